/* GPM of the simulated NVML: two samples of a GPU or a GPU instance, and the means between them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define MAX_SAMPLES 1024
#define SHORTEST_INTERVAL 0.1
#define DECODER_0 30

/* Only when a sample was taken and of what: values are means of the scenario between two of them. */
struct gpm_sample {
    struct gpu *gpu;
    int instance; /* NO_INSTANCE: the whole GPU */
    double at;
};

#define NO_INSTANCE (-1)

/* Samples that were allocated and not freed: anything else is no sample. */
static struct gpm_sample *samples[MAX_SAMPLES];

static struct gpm_sample **place_of(const struct gpm_sample *sample) {
    for (int i = 0; i < MAX_SAMPLES; i++)
        if (samples[i] == sample) return &samples[i];
    return NULL;
}

static int is_sample(const struct gpm_sample *sample) { return sample && place_of(sample); }

static int supported(const struct gpu *gpu) { return gpu->gpm && gpu->arch >= 9; }

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t gpu, nvmlGpmSupport_t *support) {
    ENTER(gpu);
    REQUIRE(support && support->version == GPM_SUPPORT_V1, ARGUMENT_VERSION_MISMATCH);
    support->isSupportedDevice = (unsigned)supported(gpu);
    LEAVE(OK);
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    ENTER(NULL);
    struct gpm_sample **place = place_of(NULL);
    REQUIRE(sample && place, INVALID_ARGUMENT);
    *sample = *place = calloc(1, sizeof **place);
    LEAVE(OK);
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    ENTER(NULL);
    REQUIRE(is_sample(sample), INVALID_ARGUMENT);
    *place_of(sample) = NULL;
    free(sample);
    LEAVE(OK);
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t gpu, nvmlGpmSample_t sample) {
    ENTER(gpu);
    REQUIRE(is_sample(sample), INVALID_ARGUMENT);
    REQUIRE(supported(gpu), NOT_SUPPORTED);
    *sample = (struct gpm_sample){.gpu = gpu, .instance = NO_INSTANCE, .at = sim_now_ns() / 1e9};
    LEAVE(OK);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t gpu, unsigned instance, nvmlGpmSample_t sample) {
    ENTER(gpu);
    REQUIRE(is_sample(sample), INVALID_ARGUMENT);
    REQUIRE(supported(gpu), NOT_SUPPORTED);
    REQUIRE(mig_has_instance(gpu, instance, call.now), NOT_FOUND);
    *sample = (struct gpm_sample){.gpu = gpu, .instance = (int)instance, .at = sim_now_ns() / 1e9};
    LEAVE(OK);
}

static const struct activity *activity_of(const struct gpm_sample *sample) {
    const struct gpu *gpu = sample->gpu;
    if (sample->instance == NO_INSTANCE) return &gpu->activity;
    return &gpu->instances[sample->instance];
}

/* One decoder is filled before the next: the mean over all of them is the scenario's. */
static double of_decoder(const struct gpu *gpu, double mean, int at) {
    return fmin(100, fmax(0, mean * gpu->decoders - 100.0 * at));
}

/* Links are counted for the GPU as a whole, not by instance. Series of -1 are not supported. */
static nvmlReturn_t metric_between(const struct gpm_sample *from, const struct gpm_sample *to,
                                   unsigned id, double *value) {
    const struct gpu *gpu = to->gpu;
    const struct activity *a = activity_of(to);
    const struct series *s = NULL;
    double scale = 1;
    switch (id) {
#define X(field, number, initial) case number: s = &a->field; break;
        GPM_FIELDS(X)
#undef X
    case 20: s = &gpu->pcie_tx; break;
    case 21: s = &gpu->pcie_rx; break;
    default:
        if (id >= DECODER_0 && id < DECODER_0 + (unsigned)gpu->decoders) s = &a->decoder;
    }
    int link = id == 20 || id == 21 || (id >= 60 && id <= 103);
    if (!s || (link && to->instance != NO_INSTANCE)) return NOT_SUPPORTED;
    if (link) scale = 1.0 / 1048576;
    *value = series_mean(s, from->at, to->at);
    if (*value < 0) return NOT_SUPPORTED;
    *value *= scale;
    if (s == &a->decoder) *value = of_decoder(gpu, *value, (int)id - DECODER_0);
    return OK;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    int known = get && is_sample(get->sample1) && is_sample(get->sample2);
    struct gpu *gpu = known ? get->sample2->gpu : NULL;
    ENTER(gpu);
    REQUIRE(gpu, INVALID_ARGUMENT);
    REQUIRE(get->version == GPM_METRICS_GET_V1, ARGUMENT_VERSION_MISMATCH);
    const struct gpm_sample *from = get->sample1, *to = get->sample2;
    REQUIRE(from->gpu == gpu && from->instance == to->instance, INVALID_ARGUMENT);
    REQUIRE(to->at - from->at > SHORTEST_INTERVAL, INVALID_ARGUMENT);
    for (unsigned i = 0; i < get->numMetrics; i++)
        REQUIRE(get->metrics[i].metricId <= (unsigned)gpu->gpm_metric_max, INVALID_ARGUMENT);
    int all_garbage = call.garbage;
    for (unsigned i = 0; i < get->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &get->metrics[i];
        char key[32];
        snprintf(key, sizeof key, "gpm:%u", metric->metricId);
        call.garbage = all_garbage;
        metric->nvmlReturn = fault_for(&call, key);
        if (metric->nvmlReturn == OK)
            metric->nvmlReturn = metric_between(from, to, metric->metricId, &metric->value);
        if (metric->nvmlReturn == OK && call.garbage) memset(&metric->value, 0xff, sizeof metric->value);
    }
    LEAVE(OK);
}
