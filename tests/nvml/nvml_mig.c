/* MIG devices of the simulated NVML. Their UUIDs, names, memory and processes are asked for with the
 * calls of a GPU, which answer for these handles too. */
#include <math.h>
#include <string.h>

#include "calls.h"

#define MOST_DEVICES 7

static int alive(const struct mig_device *mig, double now) {
    return series_at(&mig->gpu->mig, now) > 0 && now >= mig->from && now < mig->to;
}

struct mig_device *mig_of_handle(const void *handle) {
    for (int i = 0; i < sim.n_gpus; i++)
        for (int k = 0; k < sim.gpus[i].n_mig_devices; k++)
            if (handle == &sim.gpus[i].mig_devices[k]) return &sim.gpus[i].mig_devices[k];
    return NULL;
}

int mig_alive(const struct mig_device *mig, double now) { return alive(mig, now); }

int mig_has_instance(const struct gpu *gpu, unsigned instance, double now) {
    for (int i = 0; i < gpu->n_mig_devices; i++)
        if (gpu->mig_devices[i].gpu_instance == instance && alive(&gpu->mig_devices[i], now)) return 1;
    return 0;
}

int mig_holds(const struct mig_device *mig, const struct process *p) {
    return p->gpu_instance == mig->gpu_instance && p->compute_instance == mig->compute_instance;
}

double mig_used_bytes(const struct mig_device *mig, double now) {
    double sum = 0;
    for (int i = 0; i < mig->gpu->n_processes; i++) {
        const struct process *p = &mig->gpu->processes[i];
        if (mig_holds(mig, p) && now >= p->from && now < p->to && p->mem_bytes > 0) sum += p->mem_bytes;
    }
    return sum;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t gpu, unsigned *count) {
    ENTER(gpu);
    PUT(*count, gpu->arch >= 7 ? MOST_DEVICES : 0);
    LEAVE(OK);
}

/* Places are filled from the front; those behind the last device are empty. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t gpu, unsigned index, nvmlDevice_t *device) {
    ENTER(gpu);
    REQUIRE(index < MOST_DEVICES, INVALID_ARGUMENT);
    for (int i = 0; i < gpu->n_mig_devices; i++) {
        if (!alive(&gpu->mig_devices[i], call.now) || index--) continue;
        *device = (nvmlDevice_t)(void *)&gpu->mig_devices[i];
        LEAVE(OK);
    }
    LEAVE(NOT_FOUND);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *answer) {
    ENTER_AS(device, ON_MIG);
    *answer = call.mig != NULL;
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *gpu) {
    ENTER_AS(device, ON_MIG);
    REQUIRE(call.mig, INVALID_ARGUMENT);
    *gpu = call.gpu;
    LEAVE(OK);
}

#define NUMBER_OF_MIG(function, field)                                                             \
    nvmlReturn_t function(nvmlDevice_t device, unsigned *out) {                                    \
        ENTER_AS(device, ON_MIG);                                                                  \
        REQUIRE(call.mig, INVALID_ARGUMENT);                                                       \
        PUT(*out, call.mig->field);                                                                \
        LEAVE(OK);                                                                                 \
    }
NUMBER_OF_MIG(nvmlDeviceGetGpuInstanceId, gpu_instance)
NUMBER_OF_MIG(nvmlDeviceGetComputeInstanceId, compute_instance)

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    ENTER_AS(device, ON_MIG);
    REQUIRE(call.mig, NOT_SUPPORTED);
    memset(attributes, 0, sizeof *attributes);
    PUT(attributes->multiprocessorCount, call.mig->sm_count);
    PUT(attributes->gpuInstanceSliceCount, call.mig->slices);
    PUT(attributes->computeInstanceSliceCount, call.mig->slices);
    PUT(attributes->memorySizeMB, llround(call.mig->mem_mib));
    LEAVE(OK);
}
