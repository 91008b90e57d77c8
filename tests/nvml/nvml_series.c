/* What the simulated NVML answers over time: counters, field values, sample buffers, processes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"

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

/* Power of the module, CPU included: scope 1 of the power fields. */
static nvmlReturn_t module_power(const struct gpu *gpu, double now, nvmlFieldValue_t *f) {
    double window = f->fieldId == 185 ? gpu->power_window : 0.02;
    double watts = series_mean(&gpu->power_module, now - window, now);
    if (watts < 0) return NOT_SUPPORTED;
    f->valueType = VALUE_UINT;
    f->value.ullVal = NEAREST(1e3 * watts);
    return OK;
}

/* Unsupported ids and scopes leave `valueType` as it was, so that a reader must look at nvmlReturn. */
static nvmlReturn_t field_value(const struct gpu *gpu, double now, nvmlFieldValue_t *f) {
    if ((int)f->fieldId > gpu->field_max) return INVALID_ARGUMENT;
    if (f->scopeId == 1 && (f->fieldId == 185 || f->fieldId == 186)) return module_power(gpu, now, f);
    nvmlReturn_t code = link_field(gpu, now, f);
    if (code != NOT_SUPPORTED) return code;
    if (f->scopeId) return NOT_SUPPORTED;
    code = health_field(gpu, now, f);
    if (code != NOT_SUPPORTED) return code;
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
        if (code == OK && values[i].scopeId) {
            snprintf(key, sizeof key, "field:%u/%u", values[i].fieldId, values[i].scopeId);
            code = fault_for(&call, key);
        }
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
        if (call->mig && !mig_holds(call->mig, p)) continue;
        if (found < room && (found + 1) * (unsigned)bytes <= room * 24u) put_process(gpu, p, bytes, out, found);
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

#define PROCESS_LIST(function, graphics, bytes)                                                    \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *count, void *out) {                       \
        ENTER_AS(device, ON_MIG);                                                                  \
        REQUIRE(count, INVALID_ARGUMENT);                                                          \
        LEAVE(list_processes(&call, graphics, bytes, count, out));                                 \
    }
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, 0, call.gpu->process_struct_bytes)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, 0, 24)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 1, call.gpu->process_struct_bytes)
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
