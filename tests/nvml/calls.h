/* Inside of the functions that the simulated NVML exports. */
#ifndef CALLS_H
#define CALLS_H

#include <math.h>

#include "sim.h"

/* Every exported call begins with one of these and ends with LEAVE. */
#define ENTER_AS(gpu, kind)                                                                        \
    static struct stat_slot *slot;                                                                 \
    struct call call;                                                                              \
    nvmlReturn_t entered = call_enter(&call, &slot, __func__, gpu, kind);                          \
    if (entered != OK) return call_leave(&call, entered)
#define ENTER(gpu) ENTER_AS(gpu, 0)
#define LEAVE(code) return call_leave(&call, code)
#define REQUIRE(condition, code) \
    if (!(condition)) LEAVE(code)
/* A `garbage` fault turns every number into all ones. */
#define PUT(target, value) ((target) = call.garbage ? (__typeof__(target))~0ull : (__typeof__(target))(value))

#define AT(field) series_at(&gpu->field, call.now)
#define NEAREST(value) ((unsigned long long)llround(value))

static inline double window_mean(const struct series *s, double now, double window) {
    double end = floor(now / window + 1e-9) * window;
    return series_mean(s, end - window, end);
}

#endif
