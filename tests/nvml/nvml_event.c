/* Event sets of the simulated NVML: `event` lines of the scenario, pushed to whoever registered. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define MAX_REGISTRATIONS 64

struct registration {
    struct gpu *gpu;
    unsigned long long types;
    double since;
};

/* What nvmlEventSet_t points to. Events are given out once, in order of time. */
struct event_set {
    int n;
    struct registration registrations[MAX_REGISTRATIONS];
    unsigned char given[MAX_EVENTS];
};

nvmlReturn_t nvmlEventSetCreate(struct event_set **set) {
    ENTER(NULL);
    *set = calloc(1, sizeof **set);
    LEAVE(*set ? OK : UNKNOWN);
}

nvmlReturn_t nvmlEventSetFree(struct event_set *set) {
    ENTER(NULL);
    free(set);
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t gpu, unsigned long long *types) {
    ENTER(gpu);
    PUT(*types, (unsigned long long)gpu->event_types);
    LEAVE(OK);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t gpu, unsigned long long types, struct event_set *set) {
    ENTER(gpu);
    REQUIRE(gpu->event_types && !(types & ~(unsigned long long)gpu->event_types), NOT_SUPPORTED);
    REQUIRE(set->n < MAX_REGISTRATIONS, UNKNOWN);
    set->registrations[set->n++] = (struct registration){gpu, types, call.now};
    LEAVE(OK);
}

static const struct registration *registered(const struct event_set *set, const struct event *event) {
    for (int i = 0; i < set->n; i++) {
        const struct registration *r = &set->registrations[i];
        if (r->gpu->index == event->gpu && event->at >= r->since && r->types & event->type) return r;
    }
    return NULL;
}

static int next_event(const struct event_set *set, double now) {
    int found = -1;
    for (int i = 0; i < sim.n_events; i++) {
        const struct event *event = &sim.events[i];
        if (set->given[i] || event->at > now || !registered(set, event)) continue;
        if (found < 0 || event->at < sim.events[found].at) found = i;
    }
    return found;
}

/* A GPU of the set that is lost fails the whole wait, as the header says of the real one. */
static nvmlReturn_t lost_one(struct event_set *set, struct call *call) {
    for (int i = 0; i < set->n; i++) {
        call->gpu = set->registrations[i].gpu;
        if (fault_for(call, "nvmlEventSetWait") == GPU_IS_LOST) return GPU_IS_LOST;
    }
    return OK;
}

static nvmlReturn_t wait_for(struct call *call, struct event_set *set, nvmlEventData_v1_t *data,
                             unsigned timeout_ms, int *which) {
    *which = next_event(set, call->now);
    if (*which < 0) {
        nvmlReturn_t code = lost_one(set, call);
        if (code != OK) return code;
        if (timeout_ms) call_delay_ms(timeout_ms);
        *which = next_event(set, sim_now_ns() / 1e9);
    }
    if (*which < 0) return TIMEOUT;
    const struct event *event = &sim.events[*which];
    set->given[*which] = 1;
    *data = (nvmlEventData_v1_t){registered(set, event)->gpu, event->type, event->data};
    return OK;
}

nvmlReturn_t nvmlEventSetWait_v2(struct event_set *set, nvmlEventData_t *data, unsigned timeout_ms) {
    ENTER(NULL);
    nvmlEventData_v1_t base;
    int which;
    nvmlReturn_t code = wait_for(&call, set, &base, timeout_ms, &which);
    REQUIRE(code == OK, code);
    *data = (nvmlEventData_t){.device = base.device, .eventType = base.eventType};
    PUT(data->eventData, base.eventData);
    data->gpuInstanceId = sim.events[which].gpu_instance;
    data->computeInstanceId = sim.events[which].compute_instance;
    LEAVE(OK);
}

/* Drivers before MIG: no instances in the record. */
nvmlReturn_t nvmlEventSetWait(struct event_set *set, nvmlEventData_v1_t *data, unsigned timeout_ms) {
    ENTER(NULL);
    int which;
    LEAVE(wait_for(&call, set, data, timeout_ms, &which));
}
