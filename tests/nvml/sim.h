/* Inside of the simulated NVML: scenario, time series, virtual clock, faults, call accounting. */
#ifndef SIM_H
#define SIM_H

#include <stddef.h>
#include <stdint.h>

#include "nvml_abi.h"

#define MAX_GPUS 32
#define MAX_PROCESSES 128
#define MAX_FAULTS 256
#define MAX_ORDERS 16
#define MAX_EVENTS 512
#define MAX_INSTANCES 16
#define MAX_MIG_DEVICES 64
#define MAX_LINKS 36
#define FOREVER 1e18

/* A piecewise constant or linear function of scenario seconds; `period` > 0 repeats it. */
struct series {
    int n, linear;
    double *t, *v, *area;
    double period;
};

double series_at(const struct series *s, double t);
double series_mean(const struct series *s, double from, double to);
double series_integral(const struct series *s, double to);
double series_bit_seconds(const struct series *s, unsigned long long bit, double to);

enum buffer_id { BUF_POWER, BUF_UTIL, BUF_MEM_UTIL, BUF_ENC, BUF_DEC, BUF_SM_CLOCK, BUF_MEM_CLOCK, BUF_COUNT };

struct buffer {
    double period;   /* seconds between samples */
    int depth;       /* samples that the driver keeps */
    int dry;         /* no samples of windows in which the GPU was idle */
    int value_type;  /* VALUE_UINT unless the scenario says otherwise */
};

struct process {
    unsigned pid;
    double mem_bytes; /* below 0: not available */
    double share;     /* of the GPU's busy time */
    double from, to;
    int graphics;
    unsigned gpu_instance, compute_instance;
};

/* Everything of a GPU that may change over time. The names are the scenario's. */
#define SERIES_FIELDS(X)                                                                           \
    X(busy, 0) X(mem_busy, 0) X(enc, 0) X(dec, 0) X(jpg, 0) X(ofa, 0)                              \
    X(power, 70) X(power_limit, 700) X(power_limit_requested, 700) X(power_limit_default, 700)     \
    X(power_limit_min, 200) X(power_limit_max, 700) X(power_module, -1)                            \
    X(sm_clock, 1980) X(sm_clock_max, 1980) X(sm_clock_boost, 1980)                                \
    X(mem_clock, 2619) X(mem_clock_max, 2619) X(video_clock, 1545)                                 \
    X(reasons, 0) X(temp, 40) X(temp_mem, 45) X(margin, 45) X(fan, 0) X(pstate, 0)                 \
    X(mem_total, 81559) X(mem_used, 0) X(mem_reserved, 600)                                        \
    X(bar1_total, 131072) X(bar1_used, 1)                                                          \
    X(pcie_rx, 0) X(pcie_tx, 0) X(pcie_gen, 5) X(pcie_gen_max, 5) X(pcie_width, 16)                \
    X(ecc_corrected, 0) X(ecc_uncorrected, 0) X(ecc_corrected_ever, 0) X(ecc_uncorrected_ever, 0)  \
    X(rows_corrected, 0) X(rows_uncorrected, 0) X(rows_pending, 0) X(rows_failed, 0)               \
    X(pages_corrected, 0) X(pages_uncorrected, 0) X(pages_pending, 0)                              \
    X(pcie_replays, 0) X(pcie_rollovers, 0) X(pcie_recoveries, 0) X(pcie_correctable, 0)           \
    X(pcie_naks_received, 0) X(pcie_receiver, 0) X(pcie_bad_tlp, 0) X(pcie_naks_sent, 0)           \
    X(pcie_bad_dllp, 0) X(pcie_nonfatal, 0) X(pcie_fatal, 0) X(pcie_unsupported, 0) X(pcie_lcrc, 0) \
    X(recovery_action, 0) X(c2c_links, -1) X(c2c_speed, -1)                                        \
    X(temp_shutdown, 95) X(temp_slowdown, 92) X(temp_mem_max, 100) X(temp_max, 87)                 \
    X(margin_shutdown, -8) X(margin_slowdown, -2) X(margin_mem_max, 0) X(margin_max, 0)            \
    X(pcie_width_max, 16) X(mig, 0) X(stamp_epoch, 0) X(process_stamp_epoch, 1) X(stamp_shift, 0)

/* What GPM counts, with the metric's number: the scenario's names after `gpm`. Below 0: not supported. */
#define GPM_FIELDS(X)                                                                              \
    X(graphics, 1, 0) X(sm, 2, 0) X(occupancy, 3, 0) X(integer, 4, 0) X(tensor, 5, 0)              \
    X(dram, 10, 0) X(fp64, 11, 0) X(fp32, 12, 0) X(fp16, 13, 0)                                    \
    X(nvlink_rx, 60, 0) X(nvlink_tx, 61, 0) X(c2c_tx, 100, -1) X(c2c_rx, 101, -1)                  \
    X(context_switch, 174, 0)

struct activity {
#define X(field, number, initial) struct series field;
    GPM_FIELDS(X)
#undef X
    struct series decoder; /* mean over the decoders */
};

struct mig_device {
    struct gpu *gpu;
    unsigned gpu_instance, compute_instance, sm_count, slices;
    char profile[32], uuid[64];
    double mem_mib, from, to;
};

/* Everything of an NVLink that may change over time; the scenario's names after `link NUMBER`. */
#define LINK_SERIES(X)                                                                             \
    X(state, 1) X(speed, 25000) X(tx, 0) X(rx, 0) X(replays, 0) X(recoveries, 0) X(crc, 0)         \
    X(failures, 0) X(effective, 0) X(symbols, 0)

struct link {
#define X(field, initial) struct series field;
    LINK_SERIES(X)
#undef X
};

struct gpu {
    int index;
    char name[96], uuid[96], pci[32], serial[30];
    int arch, cc_major, cc_minor;
    double util_window, power_window, energy_base_mj;
    int pcie_counter_bits;
    int field_max;            /* field ids above it are unknown to this driver */
    int process_struct_bytes; /* 24; 32 imitates the first R535 drivers */
    int virtualisation;       /* nvmlGpuVirtualizationMode_t */
    int addressing;           /* -1: not supported */
    int margins_unsigned;     /* T.Limit margins are announced as unsigned, though they may be negative */
    int n_links;
    struct link links[MAX_LINKS];
    int event_types;          /* what nvmlDeviceGetSupportedEventTypes answers; 0: no events */
#define X(field, initial) struct series field;
    SERIES_FIELDS(X)
#undef X
    struct buffer buffers[BUF_COUNT];
    struct process processes[MAX_PROCESSES];
    int n_processes;
    int gpm;            /* 0: this part has no GPM, whatever its architecture */
    int gpm_metric_max; /* metrics above it are unknown to this driver */
    int decoders;
    struct activity activity, instances[MAX_INSTANCES];
    struct mig_device mig_devices[MAX_MIG_DEVICES];
    int n_mig_devices;
    double sleeps_from, sleeps_to; /* a call to it in between wakes it, which the account shows */
};

enum fault_kind { FAULT_FAIL, FAULT_SLOW, FAULT_HANG, FAULT_GARBAGE };

struct fault {
    enum fault_kind kind;
    int gpu; /* -1: all */
    char pattern[80];
    int code;
    double ms, from, to;
    int part, whole; /* of every `whole` matching calls the first `part` fail */
    unsigned long seen;
};

struct order {
    double from;
    int n, gpu[MAX_GPUS];
};

struct event {
    int gpu;
    double at;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct scenario {
    char driver[80], nvml[80];
    int cuda;
    int n_gpus;
    struct gpu gpus[MAX_GPUS];
    int n_faults;
    struct fault faults[MAX_FAULTS];
    int n_orders;
    struct order orders[MAX_ORDERS];
    int n_events;
    struct event events[MAX_EVENTS];
};

/* Reads a scenario file; on failure says where on stderr and returns -1. */
int scenario_load(struct scenario *scenario, const char *path);

/* core.c */
extern struct scenario sim;

uint64_t sim_now_ns(void);
uint64_t sim_boot_us(uint64_t t_ns);
uint64_t sim_epoch_us(uint64_t t_ns);

struct stat_slot;

struct call {
    struct stat_slot *slot;
    uint64_t began_ns;
    double now; /* scenario seconds */
    struct gpu *gpu;
    struct mig_device *mig; /* the handle was that of a MIG device, `gpu` is where it is */
    int garbage;
};

/* What a call may be asked of besides a GPU that answers. */
enum { IDENTITY = 1, ON_MIG = 2 };

nvmlReturn_t call_enter(struct call *call, struct stat_slot **slot, const char *name, void *handle,
                        int kind);
nvmlReturn_t call_leave(struct call *call, nvmlReturn_t code);
nvmlReturn_t fault_for(struct call *call, const char *key);
void call_delay_ms(double ms);
nvmlReturn_t sim_start(void);
nvmlReturn_t sim_stop(void);
int sim_initialised(void);
struct gpu *sim_gpu_at(unsigned index, double now);
unsigned sim_gpu_count(double now);
int sim_gpu_valid(const struct gpu *gpu);

/* nvml_health.c, nvml_link.c: NOT_SUPPORTED for fields that are not theirs. */
nvmlReturn_t health_field(const struct gpu *gpu, double now, nvmlFieldValue_t *f);
nvmlReturn_t link_field(const struct gpu *gpu, double now, nvmlFieldValue_t *f);

/* nvml_mig.c */
struct mig_device *mig_of_handle(const void *handle);
int mig_alive(const struct mig_device *mig, double now);
int mig_has_instance(const struct gpu *gpu, unsigned instance, double now);
int mig_holds(const struct mig_device *mig, const struct process *process);
double mig_used_bytes(const struct mig_device *mig, double now);

#endif
