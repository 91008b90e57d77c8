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
    X(busy, 0) X(mem_busy, 0) X(enc, 0) X(dec, 0)                                                  \
    X(power, 70) X(power_limit, 700) X(power_limit_requested, 700) X(power_limit_default, 700)     \
    X(power_limit_min, 200) X(power_limit_max, 700)                                                \
    X(sm_clock, 1980) X(sm_clock_max, 1980) X(sm_clock_boost, 1980)                                \
    X(mem_clock, 2619) X(mem_clock_max, 2619) X(video_clock, 1545)                                 \
    X(reasons, 0) X(temp, 40) X(temp_mem, 45) X(margin, 45) X(fan, 0) X(pstate, 0)                 \
    X(mem_total, 81559) X(mem_used, 0) X(mem_reserved, 600)                                        \
    X(bar1_total, 131072) X(bar1_used, 1)                                                          \
    X(pcie_rx, 0) X(pcie_tx, 0) X(pcie_gen, 5) X(pcie_gen_max, 5) X(pcie_width, 16)                \
    X(pcie_width_max, 16) X(mig, 0) X(stamp_epoch, 0) X(process_stamp_epoch, 1) X(stamp_shift, 0)

struct gpu {
    int index;
    char name[96], uuid[96], pci[32], serial[30];
    int arch, cc_major, cc_minor;
    double util_window, power_window, energy_base_mj;
    int pcie_counter_bits;
    int field_max;            /* field ids above it are unknown to this driver */
    int process_struct_bytes; /* 24; 32 imitates the first R535 drivers */
#define X(field, initial) struct series field;
    SERIES_FIELDS(X)
#undef X
    struct buffer buffers[BUF_COUNT];
    struct process processes[MAX_PROCESSES];
    int n_processes;
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

struct scenario {
    char driver[80], nvml[80];
    int cuda;
    int n_gpus;
    struct gpu gpus[MAX_GPUS];
    int n_faults;
    struct fault faults[MAX_FAULTS];
    int n_orders;
    struct order orders[MAX_ORDERS];
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
    int garbage;
};

nvmlReturn_t call_enter(struct call *call, struct stat_slot **slot, const char *name, struct gpu *gpu,
                        int identity);
nvmlReturn_t call_leave(struct call *call, nvmlReturn_t code);
nvmlReturn_t fault_for(struct call *call, const char *key);
void call_delay_ms(double ms);
nvmlReturn_t sim_start(void);
nvmlReturn_t sim_stop(void);
int sim_initialised(void);
struct gpu *sim_gpu_at(unsigned index, double now);
unsigned sim_gpu_count(double now);
int sim_gpu_valid(const struct gpu *gpu);

#endif
