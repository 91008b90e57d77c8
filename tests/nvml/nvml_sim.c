/* A simulated libnvidia-ml.so.1, driven by a scenario file and a clock that tests can step.
 *
 * The tests build it with `cc -shared -fPIC` and load it with the real nvidia-ml-py in a child
 * process; nothing in Python pretends to be pynvml. It answers from closed formulas over the scenario
 * and the clock, so the same moment always gives the same answer.
 *
 * Environment
 *   NVML_SIM_SCENARIO  the scenario file. Without it nvmlInit answers "driver not loaded".
 *   NVML_SIM_CLOCK     a file of four 64-bit words: scenario time ns, monotonic ns at time 0, wall ns
 *                      at time 0, unused. Whoever writes the first word steps the time, and slow
 *                      calls move it instead of sleeping. Without it CLOCK_MONOTONIC runs from the
 *                      first nvmlInit (or from NVML_SIM_START_NS).
 *   NVML_SIM_STATS     a file that receives calls and time by function: records of 128 bytes: name
 *                      (64 bytes), calls, ns, longest ns (64 bits each). It may be read at any time.
 *
 * Scenario: one directive a line, `#` begins a comment, ${NAME} is taken from the environment.
 *   driver TEXT / nvml TEXT / cuda NUMBER           versions
 *   order FROM GPU...      from then on these GPUs are listed in this order (hot-unplug, renumbering)
 *   gpu                    begins the next GPU; what follows belongs to it
 *   name, uuid, pci, serial TEXT / arch N / cc MAJOR MINOR
 *   FIELD SERIES           a quantity over time; FIELD is a name of SERIES_FIELDS in sim.h:
 *                          busy, mem_busy, enc, dec, jpg, ofa (%); power and limits (W); clocks
 *                          (MHz); reasons (bits); temp, temp_mem, margin (C); fan (%); pstate; mem_*
 *                          and bar1_* (MiB); pcie_rx, pcie_tx (bytes/s); pcie_gen, pcie_width and maxima; mig
 *                          (0 or 1); stamp_epoch, process_stamp_epoch (0: stamps are us since boot,
 *                          1: since 1970); stamp_shift (s added to sample stamps); power_module
 *                          (W, CPU included); counts and flags of health: ecc_*, rows_*, pages_*,
 *                          pcie_replays and other pcie_* errors, recovery_action, c2c_links;
 *                          c2c_speed (MB/s); temp_shutdown and other limits (C), margin_shutdown and
 *                          other T.Limit margins. Of health, below 0 is not supported; rows are from
 *                          Ampere on, pages before it, margins from Ada on
 *      SERIES is VALUE | step T V T V ... [repeat P] | linear T V T V ... [repeat P]
 *              | square PERIOD DUTY HIGH LOW [PHASE] | sine PERIOD MEAN AMPLITUDE [PHASE]
 *   buffer NAME PERIOD_MS DEPTH [dry] [double|ull]  the driver's sample buffer: power, util, mem_util,
 *                          enc, dec, sm_clock, mem_clock. dry: idle windows leave no sample
 *   util_window_ms N / power_window_ms N   what utilisation and power are averaged over
 *   energy_base_mj N / pcie_counter_bits 32|64 / fields_up_to ID / process_struct_bytes 24|32
 *   links N                NVLinks, all up / link NUMBER FIELD SERIES   FIELD is a name of LINK_SERIES
 *                          in sim.h: state (0 down, 1 up, 2 asleep), speed (MB/s), tx, rx (bytes/s),
 *                          replays, recoveries, crc; failures, effective, symbols from Blackwell on
 *   virtualisation MODE / addressing MODE|-1 / margins_unsigned 0|1
 *   gpm FIELD SERIES       what GPM counts; FIELD is a name of GPM_FIELDS in sim.h, in %, links in
 *                          bytes/s, -1 for not supported, nan; or decoder, the mean of all. PCIe rates
 *                          are those of pcie_rx and pcie_tx
 *   gpm_instance GI FIELD SERIES    the same of one MIG GPU instance, which counts no links
 *   gpm_support 0|1 / gpm_metrics_up_to ID / decoders N    GPM is there from `arch 9` (Hopper) on
 *   mig_device GI CI PROFILE MEM_MIB SMS SLICES [FROM [TO]]   a MIG device, there while `mig` is 1;
 *                          its UUID ends in the number of its line among these. It uses what its
 *                          processes hold
 *   process PID MEM_MIB|- SHARE [graphics|mps] [instance GI CI] [FROM [TO]]   SHARE of `busy`
 *   event AT BITS [DATA] [instance GI CI]   an event for those who have registered by then; DATA is
 *                          the Xid of bit 0x8 / event_types BITS: what may be registered, 0: nothing
 *   sleeps FROM [TO]       a call to this GPU then is counted as "wakes GPU N" in the statistics
 *   lost [FROM [TO]]       every call but identity answers "GPU is lost"
 *   fail CALL CODE [every PART WHOLE] [FROM [TO]]   CALL may hold * and ?, or name one field value
 *   slow CALL MS [...]                              ("field:186", of link 3 "field:138/3") or one
 *   hang CALL [...]                                 buffer ("sample:1", the NVML sampling type).
 *   garbage CALL [...]                              Before the first `gpu` it is for all GPUs.
 *                                                   garbage: all ones, returned with success. hang:
 *                                                   until TO, for ever without. One GPM metric is
 *                                                   "gpm:174", a call on a MIG device CALL/GI/CI
 * `nvmlInit` names initialisation. Functions that an old driver lacks are left out when the library
 * is built (build.py, `without`), since the binding looks symbols up.
 *
 * What is imitated
 *   Utilisation is the mean of `busy` over the driver's last whole window, as the snapshot and as the
 *   buffered samples, whose stamps mark the window's end; a buffer gives what is newer than lastSeen,
 *   oldest first, and NOT_FOUND when nothing is. Energy integrates power; throttle nanoseconds
 *   integrate the bits of `reasons`; PCIe byte counters integrate the rates and wrap. Memory v1 folds
 *   the reserve into "used". Process lists and process utilisation size themselves as the binding
 *   expects. With `mig 1` utilisation, its samples and process utilisation are not supported. A GPM
 *   metric is the mean of its series between two samples, which must lie 100 ms apart and be of the
 *   same GPU or instance; buffers that were freed are refused. A MIG device answers for its UUID,
 *   name, ids, attributes, memory and processes and for nothing else; one that has gone, NOT_FOUND.
 *
 * What is not imitated
 *   Nobody has compared this with a real driver: error orders, sample periods and buffer depths are
 *   the scenario's guesses. Calls do not serialise on a driver lock, take no CPU in a kernel, and a
 *   hanging call does not block others. Sensors are exact: no noise, no sensor gaps, no energy steps.
 *   A lost GPU answers cleanly; a real one may hang, crash the caller or lose its handle. A vGPU
 *   guest or a part without memory of its own answers as any other but for what `fail` lines take
 *   from it. Health only changes as the scenario says: nothing counts errors by itself, and GPM's
 *   link totals are not the sum of the links. Which fields a real part has, with which value types,
 *   is guessed from the header. No ECC by location, accounting, topology, or anything that sets. GPM of
 *   a whole GPU is the scenario's and no sum of its instances; an instance is there while one of its
 *   devices is. Real handles of MIG devices may outlive them or be given to others, and what a driver
 *   counts for an instance (decoders, links) nobody has looked up.
 *   Process utilisation has one record a process, of the last window only. nvmlDeviceGetSamples on
 *   a real driver may truncate from either end when the caller's array is short; here the oldest
 *   come first. Nothing depends on the calling user, namespace or container.
 */
#include <stdio.h>
#include <string.h>

#include "calls.h"

#define MIB 1048576ull

static nvmlReturn_t copy_text(char *to, unsigned size, const char *text) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return OK;
}

/* ---- library --------------------------------------------------------------------------------- */

nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return (void)flags, sim_start(); }
nvmlReturn_t nvmlInit_v2(void) { return sim_start(); }
nvmlReturn_t nvmlInit(void) { return sim_start(); }
nvmlReturn_t nvmlShutdown(void) { return sim_stop(); }

const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires reset";
    case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size) {
    ENTER(NULL);
    LEAVE(copy_text(version, size, sim.driver));
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    ENTER(NULL);
    LEAVE(copy_text(version, size, sim.nvml));
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER(NULL);
    PUT(*version, sim.cuda);
    LEAVE(OK);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* ---- identity: NVML answers these from what it cached, lost GPU or not ------------------------ */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(NULL);
    *count = sim_gpu_count(call.now);
    LEAVE(OK);
}

/* Unlike identity, opening a lost GPU fails. */
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    struct gpu *gpu = sim_initialised() ? sim_gpu_at(index, sim_now_ns() / 1e9) : NULL;
    ENTER(gpu);
    REQUIRE(gpu, INVALID_ARGUMENT);
    *device = gpu;
    LEAVE(OK);
}

/* Addresses are numbers: "0000:1b:00.0" is the GPU that the driver writes "00000000:1B:00.0". */
static int same_address(const char *one, const char *other) {
    unsigned a[4], b[4];
    return sscanf(one, "%x:%x:%x.%x", &a[0], &a[1], &a[2], &a[3]) == 4 &&
           sscanf(other, "%x:%x:%x.%x", &b[0], &b[1], &b[2], &b[3]) == 4 && !memcmp(a, b, sizeof a);
}

static struct gpu *find_gpu(const char *text, int by_uuid) {
    for (int i = 0; i < sim.n_gpus; i++) {
        struct gpu *gpu = &sim.gpus[i];
        if (by_uuid ? !strcmp(text, gpu->uuid) : same_address(text, gpu->pci)) return gpu;
    }
    return NULL;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    struct gpu *gpu = find_gpu(uuid, 1);
    ENTER(gpu);
    REQUIRE(gpu, NOT_FOUND);
    *device = gpu;
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *device) {
    struct gpu *gpu = find_gpu(pci, 0);
    ENTER(gpu);
    REQUIRE(gpu, NOT_FOUND);
    *device = gpu;
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned size) {
    ENTER_AS(device, IDENTITY | ON_MIG);
    char name[160];
    snprintf(name, sizeof name, call.mig ? "%s MIG %s" : "%s", call.gpu->name, call.mig ? call.mig->profile : "");
    LEAVE(copy_text(out, size, name));
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned size) {
    ENTER_AS(device, IDENTITY | ON_MIG);
    LEAVE(copy_text(out, size, call.mig ? call.mig->uuid : call.gpu->uuid));
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t gpu, char *out, unsigned size) {
    ENTER_AS(gpu, 1);
    REQUIRE(gpu->serial[0], NOT_SUPPORTED);
    LEAVE(copy_text(out, size, gpu->serial));
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t gpu, unsigned *index) {
    ENTER_AS(gpu, 1);
    for (unsigned i = 0; i < sim_gpu_count(call.now); i++)
        if (sim_gpu_at(i, call.now) == gpu) return *index = i, call_leave(&call, OK);
    LEAVE(NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t gpu, unsigned *minor) {
    ENTER_AS(gpu, 1);
    *minor = (unsigned)gpu->index;
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, nvmlPciInfo_t *pci) {
    ENTER_AS(gpu, 1);
    memset(pci, 0, sizeof *pci);
    sscanf(gpu->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busId, sizeof pci->busId, "%s", gpu->pci);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%.4x:%.2x:%.2x.0", pci->domain & 0xffff,
             pci->bus & 0xff, pci->device & 0xff);
    pci->pciDeviceId = 0x233010de;
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t gpu, unsigned *arch) {
    ENTER_AS(gpu, 1);
    *arch = (unsigned)gpu->arch;
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t gpu, int *major, int *minor) {
    ENTER_AS(gpu, 1);
    *major = gpu->cc_major, *minor = gpu->cc_minor;
    LEAVE(OK);
}

/* ---- plain numbers --------------------------------------------------------------------------- */

#define NUMBER_OF_GPU(function, type, value)                                                       \
    nvmlReturn_t function(nvmlDevice_t gpu, type *out) {                                           \
        ENTER(gpu);                                                                                \
        PUT(*out, NEAREST(value));                                                                 \
        LEAVE(OK);                                                                                 \
    }
NUMBER_OF_GPU(nvmlDeviceGetPowerUsage, unsigned,
              1e3 * series_mean(&gpu->power, call.now - gpu->power_window, call.now))
NUMBER_OF_GPU(nvmlDeviceGetEnforcedPowerLimit, unsigned, 1e3 * AT(power_limit))
NUMBER_OF_GPU(nvmlDeviceGetPowerManagementLimit, unsigned, 1e3 * AT(power_limit_requested))
NUMBER_OF_GPU(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 1e3 * AT(power_limit_default))
NUMBER_OF_GPU(nvmlDeviceGetTotalEnergyConsumption, unsigned long long,
              gpu->energy_base_mj + 1e3 * series_integral(&gpu->power, call.now))
NUMBER_OF_GPU(nvmlDeviceGetPerformanceState, unsigned, AT(pstate))
NUMBER_OF_GPU(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, AT(reasons))
NUMBER_OF_GPU(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, AT(reasons))
NUMBER_OF_GPU(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, AT(pcie_gen))
NUMBER_OF_GPU(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, AT(pcie_gen_max))
NUMBER_OF_GPU(nvmlDeviceGetCurrPcieLinkWidth, unsigned, AT(pcie_width))
NUMBER_OF_GPU(nvmlDeviceGetMaxPcieLinkWidth, unsigned, AT(pcie_width_max))
NUMBER_OF_GPU(nvmlDeviceGetPersistenceMode, unsigned, 1)
NUMBER_OF_GPU(nvmlDeviceGetDisplayMode, unsigned, 0)
NUMBER_OF_GPU(nvmlDeviceGetDisplayActive, unsigned, 0)
NUMBER_OF_GPU(nvmlDeviceGetComputeMode, unsigned, 0)

/* Answered on Linux too, where it is never supported. */
nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t gpu, unsigned *current, unsigned *pending) {
    ENTER_AS(gpu, 1);
    (void)current, (void)pending;
    LEAVE(NOT_SUPPORTED);
}

nvmlReturn_t nvmlDeviceGetDriverModel(nvmlDevice_t gpu, unsigned *current, unsigned *pending) {
    return nvmlDeviceGetDriverModel_v2(gpu, current, pending);
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t gpu, unsigned *percent) {
    ENTER(gpu);
    PUT(*percent, NEAREST(AT(fan)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t gpu, unsigned fan, unsigned *percent) {
    ENTER(gpu);
    REQUIRE(!fan, INVALID_ARGUMENT);
    PUT(*percent, NEAREST(AT(fan)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t gpu, unsigned *low,
                                                          unsigned *high) {
    ENTER(gpu);
    PUT(*low, NEAREST(1e3 * AT(power_limit_min)));
    PUT(*high, NEAREST(1e3 * AT(power_limit_max)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t gpu, nvmlTemperature_t *temperature) {
    ENTER(gpu);
    REQUIRE(temperature->version == TEMPERATURE_V1, ARGUMENT_VERSION_MISMATCH);
    REQUIRE(temperature->sensorType == 0, INVALID_ARGUMENT);
    PUT(temperature->temperature, llround(AT(temp)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, unsigned sensor, unsigned *temperature) {
    ENTER(gpu);
    REQUIRE(sensor == 0, INVALID_ARGUMENT);
    PUT(*temperature, llround(AT(temp)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t gpu, nvmlMarginTemperature_t *margin) {
    ENTER(gpu);
    REQUIRE(margin->version == MARGIN_TEMPERATURE_V1, ARGUMENT_VERSION_MISMATCH);
    PUT(margin->marginTemperature, llround(AT(margin)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, nvmlUtilization_t *util) {
    ENTER(gpu);
    REQUIRE(!AT(mig), NOT_SUPPORTED);
    PUT(util->gpu, NEAREST(window_mean(&gpu->busy, call.now, gpu->util_window)));
    PUT(util->memory, NEAREST(window_mean(&gpu->mem_busy, call.now, gpu->util_window)));
    LEAVE(OK);
}

#define CODEC_UTILIZATION(function, field)                                                         \
    nvmlReturn_t function(nvmlDevice_t gpu, unsigned *util, unsigned *period_us) {                 \
        ENTER(gpu);                                                                                \
        REQUIRE(!AT(mig) && AT(field) >= 0, NOT_SUPPORTED);                                        \
        PUT(*util, NEAREST(window_mean(&gpu->field, call.now, gpu->util_window)));                 \
        PUT(*period_us, NEAREST(1e6 * gpu->util_window));                                          \
        LEAVE(OK);                                                                                 \
    }
CODEC_UTILIZATION(nvmlDeviceGetEncoderUtilization, enc)
CODEC_UTILIZATION(nvmlDeviceGetDecoderUtilization, dec)
CODEC_UTILIZATION(nvmlDeviceGetJpgUtilization, jpg)
CODEC_UTILIZATION(nvmlDeviceGetOfaUtilization, ofa)

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t gpu, unsigned *current, unsigned *pending) {
    ENTER(gpu);
    REQUIRE(gpu->arch >= 7, NOT_SUPPORTED);
    PUT(*current, AT(mig));
    PUT(*pending, AT(mig));
    LEAVE(OK);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static const struct series *clock_series(const struct gpu *gpu, unsigned type, int maximum) {
    switch (type) {
    case CLOCK_GRAPHICS:
    case CLOCK_SM: return maximum ? &gpu->sm_clock_max : &gpu->sm_clock;
    case CLOCK_MEM: return maximum ? &gpu->mem_clock_max : &gpu->mem_clock;
    case CLOCK_VIDEO: return &gpu->video_clock;
    default: return NULL;
    }
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, unsigned type, unsigned *mhz) {
    ENTER(gpu);
    REQUIRE(clock_series(gpu, type, 0), INVALID_ARGUMENT);
    PUT(*mhz, NEAREST(series_at(clock_series(gpu, type, 0), call.now)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t gpu, unsigned type, unsigned *mhz) {
    ENTER(gpu);
    REQUIRE(clock_series(gpu, type, 1), INVALID_ARGUMENT);
    PUT(*mhz, NEAREST(series_at(clock_series(gpu, type, 1), call.now)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t gpu, unsigned type, unsigned *mhz) {
    ENTER(gpu);
    REQUIRE(type <= CLOCK_SM, NOT_SUPPORTED);
    PUT(*mhz, NEAREST(AT(sm_clock_boost)));
    LEAVE(OK);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* In MiB. Of a MIG device: what its processes hold, without a reserve. */
struct memory { unsigned long long total, used, reserved; };

static struct memory memory_of(const struct call *call) {
    const struct gpu *gpu = call->gpu;
    if (call->mig)
        return (struct memory){NEAREST(call->mig->mem_mib), NEAREST(mig_used_bytes(call->mig, call->now) / MIB), 0};
    return (struct memory){
        NEAREST(series_at(&gpu->mem_total, call->now)),
        NEAREST(series_at(&gpu->mem_used, call->now)),
        NEAREST(series_at(&gpu->mem_reserved, call->now)),
    };
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER_AS(device, ON_MIG);
    struct memory m = memory_of(&call);
    PUT(memory->total, m.total * MIB);
    PUT(memory->used, (m.used + m.reserved) * MIB);
    PUT(memory->free, (m.total - m.used - m.reserved) * MIB);
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER_AS(device, ON_MIG);
    REQUIRE(memory->version == MEMORY_V2, ARGUMENT_VERSION_MISMATCH);
    struct memory m = memory_of(&call);
    PUT(memory->total, m.total * MIB);
    PUT(memory->reserved, m.reserved * MIB);
    PUT(memory->used, m.used * MIB);
    PUT(memory->free, (m.total - m.used - m.reserved) * MIB);
    LEAVE(OK);
}

/* Blocks for the 20 ms window that it measures, as the real call is documented to. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t gpu, unsigned counter, unsigned *kb_per_s) {
    ENTER(gpu);
    REQUIRE(counter <= 1, INVALID_ARGUMENT);
    call_delay_ms(20);
    double end = sim_now_ns() / 1e9;
    PUT(*kb_per_s, NEAREST(series_mean(counter ? &gpu->pcie_rx : &gpu->pcie_tx, end - 0.02, end) / 1e3));
    LEAVE(OK);
}
