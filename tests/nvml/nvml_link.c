/* NVLinks of the simulated GPUs: `links` and `link` lines of the scenario. Scopes are link numbers. */
#include <math.h>

#include "calls.h"

enum { BLACKWELL = 10 };

static const struct link *find_link(const struct gpu *gpu, unsigned number) {
    return number < (unsigned)gpu->n_links ? &gpu->links[number] : NULL;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t gpu, unsigned number, unsigned *active) {
    ENTER(gpu);
    REQUIRE(gpu->n_links, NOT_SUPPORTED);
    REQUIRE(find_link(gpu, number), INVALID_ARGUMENT);
    PUT(*active, series_at(&find_link(gpu, number)->state, call.now) == 1);
    LEAVE(OK);
}

/* What counts errors changed with Blackwell; NULL for what the other kind of part has. */
static const struct series *counted(const struct gpu *gpu, const struct link *l, unsigned id) {
    int new = gpu->arch >= BLACKWELL;
    switch (id) {
    case 161: return new ? NULL : &l->replays;
    case 162: return new ? NULL : &l->recoveries;
    case 163: return new ? NULL : &l->crc;
    case 164: return &l->speed;
    case 165: return &l->state;
    case 214: return new ? &l->failures : NULL;
    case 215: return new ? &l->recoveries : NULL;
    case 219: return new ? &l->effective : NULL;
    case 221: return new ? &l->symbols : NULL;
    default: return NULL;
    }
}

static nvmlReturn_t put(nvmlFieldValue_t *f, unsigned type, double value) {
    if (value < 0) return NOT_SUPPORTED;
    f->valueType = type;
    f->value.ullVal = NEAREST(value);
    return OK;
}

static int of_links(unsigned id) {
    return (id >= 138 && id <= 141) || (id >= 161 && id <= 165) || (id >= 201 && id <= 225);
}

/* 138-141 count KiB, 202 and 204 (NVLink 5) bytes. */
nvmlReturn_t link_field(const struct gpu *gpu, double now, nvmlFieldValue_t *f) {
    if (f->fieldId == 91) return gpu->n_links ? put(f, VALUE_UINT, gpu->n_links) : NOT_SUPPORTED;
    if (!of_links(f->fieldId)) return NOT_SUPPORTED;
    const struct link *l = find_link(gpu, f->scopeId);
    if (!l) return gpu->n_links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    double sent = series_integral(&l->tx, now), received = series_integral(&l->rx, now);
    switch (f->fieldId) {
    case 138: case 140: return put(f, VALUE_ULL, sent / 1024);
    case 139: case 141: return put(f, VALUE_ULL, received / 1024);
    case 202: return gpu->arch >= BLACKWELL ? put(f, VALUE_ULL, sent) : NOT_SUPPORTED;
    case 204: return gpu->arch >= BLACKWELL ? put(f, VALUE_ULL, received) : NOT_SUPPORTED;
    }
    const struct series *s = counted(gpu, l, f->fieldId);
    return s ? put(f, f->fieldId >= 200 ? VALUE_ULL : VALUE_UINT, series_at(s, now)) : NOT_SUPPORTED;
}
