/* What the simulated GPUs say of their own health: errors, memory repair, limits, what they are.
 * Quantities below 0 are not supported. */
#include <math.h>
#include <string.h>

#include "calls.h"

#define MIB 1048576ull

enum { TURING = 6, AMPERE = 7, ADA = 8 };

/* ---- what kind of part ------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t gpu, unsigned *mode) {
    ENTER(gpu);
    PUT(*mode, gpu->virtualisation);
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t gpu, nvmlDeviceAddressingMode_t *mode) {
    ENTER(gpu);
    REQUIRE(mode->version == ADDRESSING_MODE_V1, ARGUMENT_VERSION_MISMATCH);
    REQUIRE(gpu->addressing >= 0, NOT_SUPPORTED);
    PUT(mode->value, gpu->addressing);
    LEAVE(OK);
}

/* ---- errors and repair ------------------------------------------------------------------------ */

/* 3-6: single and double bits, volatile and aggregate, which calls name by type and counter. */
static const struct series *ecc_series(const struct gpu *gpu, unsigned type, unsigned counter) {
    if (counter) return type ? &gpu->ecc_uncorrected_ever : &gpu->ecc_corrected_ever;
    return type ? &gpu->ecc_uncorrected : &gpu->ecc_corrected;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t gpu, unsigned type, unsigned counter,
                                         unsigned long long *count) {
    ENTER(gpu);
    REQUIRE(type <= 1 && counter <= 1, INVALID_ARGUMENT);
    double value = series_at(ecc_series(gpu, type, counter), call.now);
    REQUIRE(value >= 0, NOT_SUPPORTED);
    PUT(*count, NEAREST(value));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t gpu, unsigned *corrected, unsigned *uncorrected,
                                       unsigned *pending, unsigned *failed) {
    ENTER(gpu);
    REQUIRE(gpu->arch >= AMPERE && !AT(mig), NOT_SUPPORTED);
    PUT(*corrected, NEAREST(AT(rows_corrected)));
    PUT(*uncorrected, NEAREST(AT(rows_uncorrected)));
    PUT(*pending, NEAREST(AT(rows_pending)));
    PUT(*failed, NEAREST(AT(rows_failed)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t gpu, unsigned *pending) {
    ENTER(gpu);
    REQUIRE(gpu->arch < AMPERE, NOT_SUPPORTED);
    PUT(*pending, NEAREST(AT(pages_pending)));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t gpu, unsigned *count) {
    ENTER(gpu);
    REQUIRE(AT(pcie_replays) >= 0, NOT_SUPPORTED);
    PUT(*count, NEAREST(AT(pcie_replays)));
    LEAVE(OK);
}

/* ---- limits ------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t gpu, unsigned threshold, unsigned *celsius) {
    const struct series *limits[] = {&gpu->temp_shutdown, &gpu->temp_slowdown, &gpu->temp_mem_max, &gpu->temp_max};
    ENTER(gpu);
    REQUIRE(threshold < sizeof limits / sizeof *limits, INVALID_ARGUMENT);
    double value = series_at(limits[threshold], call.now);
    REQUIRE(value >= 0, NOT_SUPPORTED);
    PUT(*celsius, NEAREST(value));
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t gpu, nvmlBAR1Memory_t *memory) {
    ENTER(gpu);
    REQUIRE(AT(bar1_total) >= 0, NOT_SUPPORTED);
    PUT(memory->total, NEAREST(AT(bar1_total)) * MIB);
    PUT(memory->used, NEAREST(AT(bar1_used)) * MIB);
    PUT(memory->free, NEAREST(AT(bar1_total) - AT(bar1_used)) * MIB);
    LEAVE(OK);
}

/* ---- fields ------------------------------------------------------------------------------------ */

static nvmlReturn_t margin(const struct gpu *gpu, const struct series *s, double now, nvmlFieldValue_t *f) {
    if (gpu->arch < ADA) return NOT_SUPPORTED;
    f->valueType = gpu->margins_unsigned ? VALUE_UINT : VALUE_SINT;
    f->value.ullVal = 0;
    f->value.siVal = (int)lround(series_at(s, now));
    return OK;
}

static const struct series *counted(const struct gpu *gpu, unsigned id) {
    switch (id) {
    case 3: return ecc_series(gpu, 0, 0);
    case 4: return ecc_series(gpu, 1, 0);
    case 5: return ecc_series(gpu, 0, 1);
    case 6: return ecc_series(gpu, 1, 1);
    case 29: return gpu->arch < AMPERE ? &gpu->pages_corrected : NULL;
    case 30: return gpu->arch < AMPERE ? &gpu->pages_uncorrected : NULL;
    case 31: return gpu->arch < AMPERE ? &gpu->pages_pending : NULL;
    case 94: return &gpu->pcie_replays;
    case 95: return &gpu->pcie_rollovers;
    case 142: return gpu->arch >= AMPERE ? &gpu->rows_corrected : NULL;
    case 143: return gpu->arch >= AMPERE ? &gpu->rows_uncorrected : NULL;
    case 144: return gpu->arch >= AMPERE ? &gpu->rows_pending : NULL;
    case 145: return gpu->arch >= AMPERE ? &gpu->rows_failed : NULL;
    case 169: return &gpu->pcie_recoveries;
    case 170: return &gpu->c2c_links;
    case 172: return &gpu->c2c_speed;
    case 173: return &gpu->pcie_correctable;
    case 174: return &gpu->pcie_naks_received;
    case 175: return &gpu->pcie_receiver;
    case 176: return &gpu->pcie_bad_tlp;
    case 177: return &gpu->pcie_naks_sent;
    case 178: return &gpu->pcie_bad_dllp;
    case 179: return &gpu->pcie_nonfatal;
    case 180: return &gpu->pcie_fatal;
    case 181: return &gpu->pcie_unsupported;
    case 182: return &gpu->pcie_lcrc;
    case 230: return &gpu->recovery_action;
    default: return NULL;
    }
}

nvmlReturn_t health_field(const struct gpu *gpu, double now, nvmlFieldValue_t *f) {
    switch (f->fieldId) {
    case 193: return margin(gpu, &gpu->margin_shutdown, now, f);
    case 194: return margin(gpu, &gpu->margin_slowdown, now, f);
    case 195: return margin(gpu, &gpu->margin_mem_max, now, f);
    case 196: return margin(gpu, &gpu->margin_max, now, f);
    }
    const struct series *s = counted(gpu, f->fieldId);
    double value = s ? series_at(s, now) : -1;
    if (value < 0) return NOT_SUPPORTED;
    int rows = f->fieldId >= 142 && f->fieldId <= 145;
    if (rows && series_at(&gpu->mig, now)) return NOT_SUPPORTED;
    f->valueType = f->fieldId <= 6 ? VALUE_ULL : VALUE_UINT;
    f->value.ullVal = NEAREST(value);
    return OK;
}
