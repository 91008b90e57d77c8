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
 *                          busy, mem_busy, enc, dec (%); power and limits (W); clocks (MHz); reasons
 *                          (bits); temp, temp_mem, margin (C); fan (%); pstate; mem_* and bar1_*
 *                          (MiB); pcie_rx, pcie_tx (bytes/s); pcie_gen, pcie_width and maxima; mig
 *                          (0 or 1); stamp_epoch, process_stamp_epoch (0: stamps are us since boot,
 *                          1: since 1970); stamp_shift (s added to sample stamps)
 *      SERIES is VALUE | step T V T V ... [repeat P] | linear T V T V ... [repeat P]
 *              | square PERIOD DUTY HIGH LOW [PHASE] | sine PERIOD MEAN AMPLITUDE [PHASE]
 *   buffer NAME PERIOD_MS DEPTH [dry] [double|ull]  the driver's sample buffer: power, util, mem_util,
 *                          enc, dec, sm_clock, mem_clock. dry: idle windows leave no sample
 *   util_window_ms N / power_window_ms N   what utilisation and power are averaged over
 *   energy_base_mj N / pcie_counter_bits 32|64 / fields_up_to ID / process_struct_bytes 24|32
 *   process PID MEM_MIB|- SHARE [graphics] [instance GI CI] [FROM [TO]]   SHARE of `busy`
 *   lost [FROM [TO]]       every call but identity answers "GPU is lost"
 *   fail CALL CODE [every PART WHOLE] [FROM [TO]]   CALL may hold * and ?, or name one field value
 *   slow CALL MS [...]                              ("field:186") or one buffer ("sample:1", the
 *   hang CALL [...]                                 NVML sampling type). Before the first `gpu` it
 *   garbage CALL [...]                              is for all GPUs. garbage: all ones, returned
 *                                                   with success. hang: until TO, for ever without
 * `nvmlInit` names initialisation. Functions that an old driver lacks are left out when the library
 * is built (build.py, `without`), since the binding looks symbols up.
 *
 * What is imitated
 *   Utilisation is the mean of `busy` over the driver's last whole window, as the snapshot and as the
 *   buffered samples, whose stamps mark the window's end; a buffer gives what is newer than lastSeen,
 *   oldest first, and NOT_FOUND when nothing is. Energy integrates power; throttle nanoseconds
 *   integrate the bits of `reasons`; PCIe byte counters integrate the rates and wrap. Memory v1 folds
 *   the reserve into "used". Process lists and process utilisation size themselves as the binding
 *   expects. With `mig 1` utilisation, its samples and process utilisation are not supported.
 *
 * What is not imitated
 *   Nobody has compared this with a real driver: error orders, sample periods and buffer depths are
 *   the scenario's guesses. Calls do not serialise on a driver lock, take no CPU in a kernel, and a
 *   hanging call does not block others. Sensors are exact: no noise, no sensor gaps, no energy steps.
 *   A lost GPU answers cleanly; a real one may hang, crash the caller or lose its handle. No MIG
 *   instances, vGPU, NVLink, GPM, events, ECC details, accounting, topology, or anything that sets.
 *   Process utilisation has one record a process, of the last window only. nvmlDeviceGetSamples on
 *   a real driver may truncate from either end when the caller's array is short; here the oldest
 *   come first. Nothing depends on the calling user, namespace or container.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define MIB 1048576ull

/* Every exported call begins with one of these and ends with LEAVE. */
#define ENTER_AS(gpu, identity)                                                                    \
    static struct stat_slot *slot;                                                                 \
    struct call call;                                                                              \
    nvmlReturn_t entered = call_enter(&call, &slot, __func__, gpu, identity);                      \
    if (entered != OK) return call_leave(&call, entered)
#define ENTER(gpu) ENTER_AS(gpu, 0)
#define LEAVE(code) return call_leave(&call, code)
#define REQUIRE(condition, code) \
    if (!(condition)) LEAVE(code)
/* A `garbage` fault turns every number into all ones. */
#define PUT(target, value) ((target) = call.garbage ? (__typeof__(target))~0ull : (__typeof__(target))(value))

#define AT(field) series_at(&gpu->field, call.now)
#define NEAREST(value) ((unsigned long long)llround(value))

static double window_mean(const struct series *s, double now, double window) {
    double end = floor(now / window + 1e-9) * window;
    return series_mean(s, end - window, end);
}

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

static struct gpu *find_gpu(const char *text, int by_uuid) {
    for (int i = 0; i < sim.n_gpus; i++)
        if (!strcmp(text, by_uuid ? sim.gpus[i].uuid : sim.gpus[i].pci)) return &sim.gpus[i];
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

#define TEXT_OF_GPU(function, field)                                                               \
    nvmlReturn_t function(nvmlDevice_t gpu, char *out, unsigned size) {                            \
        ENTER_AS(gpu, 1);                                                                          \
        LEAVE(copy_text(out, size, gpu->field));                                                   \
    }
TEXT_OF_GPU(nvmlDeviceGetName, name)
TEXT_OF_GPU(nvmlDeviceGetUUID, uuid)

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
NUMBER_OF_GPU(nvmlDeviceGetPcieReplayCounter, unsigned, 0)

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
        REQUIRE(!AT(mig), NOT_SUPPORTED);                                                          \
        PUT(*util, NEAREST(window_mean(&gpu->field, call.now, gpu->util_window)));                 \
        PUT(*period_us, NEAREST(1e6 * gpu->util_window));                                          \
        LEAVE(OK);                                                                                 \
    }
CODEC_UTILIZATION(nvmlDeviceGetEncoderUtilization, enc)
CODEC_UTILIZATION(nvmlDeviceGetDecoderUtilization, dec)

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t gpu, unsigned *current, unsigned *pending) {
    ENTER(gpu);
    REQUIRE(gpu->arch >= 7, NOT_SUPPORTED);
    PUT(*current, AT(mig));
    PUT(*pending, AT(mig));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t gpu, unsigned *count) {
    ENTER(gpu);
    *count = 0;
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

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, nvmlMemory_t *memory) {
    ENTER(gpu);
    double used = AT(mem_used) + AT(mem_reserved);
    PUT(memory->total, NEAREST(AT(mem_total)) * MIB);
    PUT(memory->used, NEAREST(used) * MIB);
    PUT(memory->free, NEAREST(AT(mem_total) - used) * MIB);
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, nvmlMemory_v2_t *memory) {
    ENTER(gpu);
    REQUIRE(memory->version == MEMORY_V2, ARGUMENT_VERSION_MISMATCH);
    PUT(memory->total, NEAREST(AT(mem_total)) * MIB);
    PUT(memory->reserved, NEAREST(AT(mem_reserved)) * MIB);
    PUT(memory->used, NEAREST(AT(mem_used)) * MIB);
    PUT(memory->free, NEAREST(AT(mem_total) - AT(mem_used) - AT(mem_reserved)) * MIB);
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t gpu, nvmlBAR1Memory_t *memory) {
    ENTER(gpu);
    PUT(memory->total, NEAREST(AT(bar1_total)) * MIB);
    PUT(memory->used, NEAREST(AT(bar1_used)) * MIB);
    PUT(memory->free, NEAREST(AT(bar1_total) - AT(bar1_used)) * MIB);
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t gpu, unsigned type, unsigned counter,
                                         unsigned long long *count) {
    ENTER(gpu);
    REQUIRE(type <= 1 && counter <= 1, INVALID_ARGUMENT);
    PUT(*count, 0);
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

/* ---- throttle time, field values ------------------------------------------------------------- */

static double limited_ns(const struct gpu *gpu, unsigned long long bit, double now) {
    return bit ? 1e9 * series_bit_seconds(&gpu->reasons, bit, now) : 0;
}

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t gpu, unsigned policy, nvmlViolationTime_t *time) {
    static const unsigned long long bits[] = {0x4, 0x20, 0x10, 0x200, 0, 0x400};
    ENTER(gpu);
    REQUIRE(policy < sizeof bits / sizeof *bits, INVALID_ARGUMENT);
    PUT(time->referenceTime, sim_epoch_us(sim_now_ns()));
    PUT(time->violationTime, NEAREST(limited_ns(gpu, bits[policy], call.now)));
    LEAVE(OK);
}

/* Unsupported ids and scopes leave `valueType` as it was, so that a reader must look at nvmlReturn. */
static nvmlReturn_t field_value(const struct gpu *gpu, double now, nvmlFieldValue_t *f) {
    if ((int)f->fieldId > gpu->field_max) return INVALID_ARGUMENT;
    if (f->scopeId) return NOT_SUPPORTED;
    double wide = -1, narrow = -1;
    switch (f->fieldId) {
    case 74: wide = limited_ns(gpu, 0x4, now); break;
    case 75: case 269: wide = limited_ns(gpu, 0x20, now); break;
    case 76: wide = limited_ns(gpu, 0x10, now); break;
    case 77: wide = limited_ns(gpu, 0x200, now); break;
    case 78: wide = 0; break;
    case 79: wide = limited_ns(gpu, 0x400, now); break;
    case 270: wide = limited_ns(gpu, 0x40, now); break;
    case 271: wide = limited_ns(gpu, 0x80, now); break;
    case 82: narrow = series_at(&gpu->temp_mem, now); break;
    case 83: case 191:
        wide = gpu->energy_base_mj + 1e3 * series_integral(&gpu->power, now);
        break;
    case 185: narrow = 1e3 * series_mean(&gpu->power, now - gpu->power_window, now); break;
    case 186: narrow = 1e3 * series_mean(&gpu->power, now - 0.02, now); break;
    case 187: narrow = 1e3 * series_at(&gpu->power_limit_min, now); break;
    case 188: narrow = 1e3 * series_at(&gpu->power_limit_max, now); break;
    case 189: narrow = 1e3 * series_at(&gpu->power_limit_default, now); break;
    case 190: narrow = 1e3 * series_at(&gpu->power_limit, now); break;
    case 192: narrow = 1e3 * series_at(&gpu->power_limit_requested, now); break;
    case 197: wide = series_integral(&gpu->pcie_tx, now); break;
    case 198: wide = series_integral(&gpu->pcie_rx, now); break;
    default: return NOT_SUPPORTED;
    }
    if ((f->fieldId == 197 || f->fieldId == 198) && gpu->pcie_counter_bits == 32)
        narrow = fmod(wide, 4294967296.0), wide = -1;
    f->valueType = wide >= 0 ? VALUE_ULL : VALUE_UINT;
    f->value.ullVal = 0;
    if (wide >= 0) f->value.ullVal = NEAREST(wide);
    else f->value.uiVal = (unsigned)NEAREST(narrow);
    return OK;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t gpu, int count, nvmlFieldValue_t *values) {
    ENTER(gpu);
    REQUIRE(count > 0 && values, INVALID_ARGUMENT);
    int all_garbage = call.garbage;
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "field:%u", values[i].fieldId);
        call.garbage = all_garbage;
        nvmlReturn_t code = fault_for(&call, key);
        if (code == OK) code = field_value(gpu, call.now, &values[i]);
        if (code == OK && call.garbage) memset(&values[i].value, 0xff, sizeof values[i].value);
        values[i].nvmlReturn = code;
        values[i].timestamp = (int64_t)sim_epoch_us(sim_now_ns());
        values[i].latencyUsec = 1;
    }
    LEAVE(OK);
}

/* ---- sample buffers -------------------------------------------------------------------------- */

static int buffer_of_type(unsigned type) {
    static const int ids[] = {BUF_POWER, BUF_UTIL, BUF_MEM_UTIL, BUF_ENC, BUF_DEC, BUF_SM_CLOCK, BUF_MEM_CLOCK};
    return type < sizeof ids / sizeof *ids ? ids[type] : -1;
}

static double buffer_value(const struct gpu *gpu, int id, double from, double to) {
    switch (id) {
    case BUF_POWER: return 1e3 * series_mean(&gpu->power, from, to);
    case BUF_UTIL: return series_mean(&gpu->busy, from, to);
    case BUF_MEM_UTIL: return series_mean(&gpu->mem_busy, from, to);
    case BUF_ENC: return series_mean(&gpu->enc, from, to);
    case BUF_DEC: return series_mean(&gpu->dec, from, to);
    case BUF_SM_CLOCK: return series_at(&gpu->sm_clock, to);
    default: return series_at(&gpu->mem_clock, to);
    }
}

static unsigned long long stamp_us(const struct gpu *gpu, const struct series *epoch, double t) {
    double shifted = t + series_at(&gpu->stamp_shift, t);
    uint64_t ns = (uint64_t)(shifted * 1e9);
    return series_at(epoch, t) ? sim_epoch_us(ns) : sim_boot_us(ns);
}

static void put_sample(const struct call *call, const struct buffer *b, nvmlSample_t *out,
                       unsigned long long stamp, double value) {
    out->timeStamp = stamp;
    out->sampleValue.ullVal = 0;
    if (call->garbage) memset(&out->sampleValue, 0xff, sizeof out->sampleValue);
    else if (b->value_type == VALUE_DOUBLE) out->sampleValue.dVal = value;
    else if (b->value_type == VALUE_ULL) out->sampleValue.ullVal = NEAREST(value);
    else out->sampleValue.uiVal = (unsigned)NEAREST(value);
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t gpu, unsigned type, unsigned long long last_seen_us,
                                  unsigned *value_type, unsigned *count, nvmlSample_t *samples) {
    ENTER(gpu);
    char key[32];
    snprintf(key, sizeof key, "sample:%u", type);
    nvmlReturn_t code = fault_for(&call, key);
    REQUIRE(code == OK, code);
    int id = buffer_of_type(type);
    REQUIRE(count && value_type, INVALID_ARGUMENT);
    REQUIRE(id >= 0, NOT_SUPPORTED);
    REQUIRE(!(AT(mig) && id >= BUF_UTIL && id <= BUF_DEC), NOT_SUPPORTED);
    const struct buffer *b = &gpu->buffers[id];
    *value_type = (unsigned)b->value_type;
    if (!samples) {
        *count = (unsigned)b->depth;
        LEAVE(OK);
    }
    long newest = (long)floor(call.now / b->period + 1e-9), first = newest + 1;
    int kept = 0;
    while (first > 1 && kept < b->depth && newest - first < 40L * b->depth) {
        first--;
        if (!b->dry || series_mean(&gpu->busy, (first - 1) * b->period, first * b->period) > 0) kept++;
    }
    unsigned given = 0;
    for (long k = first; k <= newest && given < *count; k++) {
        double from = (k - 1) * b->period, to = k * b->period;
        unsigned long long stamp = stamp_us(gpu, &gpu->stamp_epoch, to);
        if (stamp <= last_seen_us) continue;
        if (b->dry && series_mean(&gpu->busy, from, to) <= 0) continue;
        put_sample(&call, b, &samples[given++], stamp, buffer_value(gpu, id, from, to));
    }
    *count = given;
    LEAVE(given ? OK : NOT_FOUND);
}

/* ---- processes ------------------------------------------------------------------------------- */

static int runs(const struct process *p, double now) { return now >= p->from && now < p->to; }

/* Drivers and bindings that disagree about the layout are imitated by writing longer records. */
static void put_process(const struct gpu *gpu, const struct process *p, int bytes, void *base, unsigned at) {
    nvmlProcessInfo_v2_t info = {
        .pid = p->pid,
        .usedGpuMemory = p->mem_bytes < 0 ? NOT_AVAILABLE_ULL : (unsigned long long)p->mem_bytes,
        .gpuInstanceId = p->gpu_instance,
        .computeInstanceId = p->compute_instance,
    };
    char *to = (char *)base + (size_t)at * (size_t)bytes;
    memset(to, 0, (size_t)bytes);
    memcpy(to, &info, (size_t)bytes < sizeof info ? (size_t)bytes : sizeof info);
    (void)gpu;
}

static nvmlReturn_t list_processes(struct call *call, int graphics, int bytes, unsigned *count, void *out) {
    const struct gpu *gpu = call->gpu;
    unsigned room = out ? *count : 0, found = 0;
    for (int i = 0; i < gpu->n_processes; i++) {
        const struct process *p = &gpu->processes[i];
        if (!runs(p, call->now) || p->graphics != graphics) continue;
        if (found < room && (found + 1) * (unsigned)bytes <= room * 24u) put_process(gpu, p, bytes, out, found);
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

#define PROCESS_LIST(function, graphics, bytes)                                                    \
    nvmlReturn_t function(nvmlDevice_t gpu, unsigned *count, void *out) {                          \
        ENTER(gpu);                                                                                \
        REQUIRE(count, INVALID_ARGUMENT);                                                          \
        LEAVE(list_processes(&call, graphics, bytes, count, out));                                 \
    }
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, 0, gpu->process_struct_bytes)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, 0, 24)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 1, gpu->process_struct_bytes)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 1, 24)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2, 24)

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t gpu, nvmlProcessUtilizationSample_t *out,
                                             unsigned *count, unsigned long long last_seen_us) {
    ENTER(gpu);
    REQUIRE(count, INVALID_ARGUMENT);
    REQUIRE(!AT(mig), NOT_SUPPORTED);
    double window = gpu->util_window, end = floor(call.now / window + 1e-9) * window;
    double busy = series_mean(&gpu->busy, end - window, end);
    double mem = series_mean(&gpu->mem_busy, end - window, end);
    unsigned long long stamp = stamp_us(gpu, &gpu->process_stamp_epoch, end);
    unsigned room = out ? *count : 0, found = 0;
    for (int i = 0; i < gpu->n_processes; i++) {
        const struct process *p = &gpu->processes[i];
        unsigned sm = (unsigned)NEAREST(p->share * busy);
        if (!runs(p, call.now) || !sm || stamp <= last_seen_us) continue;
        if (found < room) {
            nvmlProcessUtilizationSample_t *u = &out[found];
            memset(u, 0, sizeof *u);
            u->pid = p->pid, u->timeStamp = stamp;
            PUT(u->smUtil, sm);
            PUT(u->memUtil, NEAREST(p->share * mem));
        }
        found++;
    }
    *count = found;
    REQUIRE(found, NOT_FOUND);
    LEAVE(found > room ? INSUFFICIENT_SIZE : OK);
}
