/* Scenario files and time series of the simulated NVML. The format is described in nvml_sim.c. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* ---- series ---------------------------------------------------------------------------------- */

static double fold(const struct series *s, double t) {
    return s->period > 0 ? t - floor(t / s->period) * s->period : t;
}

/* The last point at or before t, -1 before the first. */
static int point_before(const struct series *s, double t) {
    int low = -1, high = s->n;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (s->t[middle] <= t) low = middle;
        else high = middle;
    }
    return low;
}

static double from_point(const struct series *s, int i, double t) {
    if (i < 0) return s->v[0];
    if (!s->linear || i == s->n - 1) return s->v[i];
    double span = s->t[i + 1] - s->t[i];
    return span > 0 ? s->v[i] + (s->v[i + 1] - s->v[i]) * (t - s->t[i]) / span : s->v[i + 1];
}

static double plain_at(const struct series *s, double t) {
    return from_point(s, point_before(s, t), t);
}

double series_at(const struct series *s, double t) { return plain_at(s, fold(s, t)); }

/* Area under the straight piece that begins at point i, from there to `to`. */
static double piece(const struct series *s, int i, double to) {
    double from = i < 0 ? 0 : s->t[i];
    return (from_point(s, i, from) + from_point(s, i, to)) / 2 * (to - from);
}

/* `area` of a point is the integral from 0 to it: buffers ask for hundreds of means a second. */
static void series_finish(struct series *s) {
    s->area = calloc((size_t)s->n, sizeof *s->area);
    for (int i = 0; i < s->n; i++) {
        double to = s->t[i], before = i ? s->area[i - 1] : 0;
        s->area[i] = before + (s->linear || !i ? piece(s, i - 1, to) : s->v[i - 1] * (to - s->t[i - 1]));
    }
}

/* The integral from 0 to `to`, without regard to the period: of the value, or with `bit` of the
 * seconds in which that bit is set. */
static double plain_integral(const struct series *s, double to, unsigned long long bit) {
    if (!bit) {
        int i = point_before(s, to);
        return (i < 0 ? 0 : s->area[i]) + piece(s, i, to);
    }
    double sum = 0, at = 0;
    for (int i = -1; i < s->n && at < to; i++) {
        double end = i + 1 < s->n && s->t[i + 1] < to ? s->t[i + 1] : to;
        if (end <= at) continue;
        if ((unsigned long long)from_point(s, i, at) & bit) sum += end - at;
        at = end;
    }
    return sum;
}

static double periodic_integral(const struct series *s, double to, unsigned long long bit) {
    if (to <= 0) return 0;
    if (s->period <= 0) return plain_integral(s, to, bit);
    double whole = floor(to / s->period);
    double rest = to - whole * s->period;
    return (whole > 0 ? whole * plain_integral(s, s->period, bit) : 0) + plain_integral(s, rest, bit);
}

double series_integral(const struct series *s, double to) { return periodic_integral(s, to, 0); }

double series_bit_seconds(const struct series *s, unsigned long long bit, double to) {
    return periodic_integral(s, to, bit);
}

double series_mean(const struct series *s, double from, double to) {
    if (from < 0) from = 0;
    if (s->n == 1 || to - from < 1e-12) return series_at(s, to);
    return (series_integral(s, to) - series_integral(s, from)) / (to - from);
}

/* ---- parser ---------------------------------------------------------------------------------- */

#define MAX_WORDS 512

struct line {
    const char *path;
    int number, n;
    char *word[MAX_WORDS];
    int at;
};

static int complain(const struct line *l, const char *what) {
    fprintf(stderr, "nvml_sim: %s:%d: %s\n", l->path, l->number, what);
    return -1;
}

static const char *next(struct line *l) { return l->at < l->n ? l->word[l->at++] : NULL; }

static int next_is(struct line *l, const char *word) {
    if (l->at < l->n && !strcmp(l->word[l->at], word)) return l->at++, 1;
    return 0;
}

static int number(struct line *l, double *out) {
    const char *word = next(l);
    if (!word) return complain(l, "a number is missing");
    char *end;
    *out = !strncmp(word, "0x", 2) ? (double)strtoull(word, &end, 16) : strtod(word, &end);
    return *end ? complain(l, "not a number") : 0;
}

/* Optional trailing "FROM [TO]". */
static int range(struct line *l, double *from, double *to) {
    *from = 0, *to = FOREVER;
    if (l->at < l->n && number(l, from)) return -1;
    if (l->at < l->n && number(l, to)) return -1;
    return 0;
}

static void series_free(struct series *s) {
    free(s->t), free(s->v), free(s->area);
    memset(s, 0, sizeof *s);
}

static void series_reserve(struct series *s, int n) {
    series_free(s);
    s->t = calloc(n, sizeof *s->t), s->v = calloc(n, sizeof *s->v);
    s->n = n;
}

static void series_constant(struct series *s, double value) {
    series_reserve(s, 1);
    s->v[0] = value;
    series_finish(s);
}

static int parse_points(struct line *l, struct series *s, int linear) {
    series_reserve(s, MAX_WORDS / 2);
    s->n = 0, s->linear = linear;
    while (l->at < l->n) {
        if (next_is(l, "repeat")) return number(l, &s->period);
        if (number(l, &s->t[s->n]) || number(l, &s->v[s->n])) return -1;
        if (s->n && s->t[s->n] < s->t[s->n - 1]) return complain(l, "points must be in time order");
        s->n++;
    }
    return s->n ? 0 : complain(l, "a series needs a point");
}

/* square PERIOD DUTY HIGH LOW [PHASE]: HIGH for the first DUTY of each period. */
static int parse_square(struct line *l, struct series *s) {
    double period, duty, high, low, phase = 0;
    if (number(l, &period) || number(l, &duty) || number(l, &high) || number(l, &low)) return -1;
    if (l->at < l->n && number(l, &phase)) return -1;
    series_reserve(s, 3);
    double up = fmod(phase, period), down = fmod(phase + duty * period, period);
    s->period = period;
    if (up < down) {
        s->v[0] = low, s->t[1] = up, s->v[1] = high, s->t[2] = down, s->v[2] = low;
    } else {
        s->v[0] = high, s->t[1] = down, s->v[1] = low, s->t[2] = up, s->v[2] = high;
    }
    return 0;
}

/* sine PERIOD MEAN AMPLITUDE [PHASE], as 32 straight pieces. */
static int parse_sine(struct line *l, struct series *s) {
    double period, mean, amplitude, phase = 0;
    if (number(l, &period) || number(l, &mean) || number(l, &amplitude)) return -1;
    if (l->at < l->n && number(l, &phase)) return -1;
    series_reserve(s, 33);
    s->linear = 1, s->period = period;
    for (int i = 0; i <= 32; i++) {
        s->t[i] = period * i / 32;
        s->v[i] = mean + amplitude * sin(2 * M_PI * (s->t[i] - phase) / period);
    }
    return 0;
}

static int parse_shape(struct line *l, struct series *s) {
    if (next_is(l, "step")) return parse_points(l, s, 0);
    if (next_is(l, "linear")) return parse_points(l, s, 1);
    if (next_is(l, "square")) return parse_square(l, s);
    if (next_is(l, "sine")) return parse_sine(l, s);
    double value;
    if (number(l, &value)) return -1;
    series_reserve(s, 1);
    s->v[0] = value;
    return 0;
}

static int parse_series(struct line *l, struct series *s) {
    if (parse_shape(l, s)) return -1;
    series_finish(s);
    return 0;
}

static int parse_code(struct line *l, int *code) {
    static const struct { const char *name; int code; } codes[] = {
        {"ok", OK}, {"uninitialized", UNINITIALIZED}, {"invalid-argument", INVALID_ARGUMENT},
        {"not-supported", NOT_SUPPORTED}, {"no-permission", NO_PERMISSION}, {"not-found", NOT_FOUND},
        {"not-loaded", DRIVER_NOT_LOADED}, {"timeout", TIMEOUT},
        {"function-not-found", FUNCTION_NOT_FOUND}, {"lost", GPU_IS_LOST},
        {"reset-required", RESET_REQUIRED}, {"mismatch", LIB_RM_VERSION_MISMATCH},
        {"no-data", NO_DATA}, {"argument-version", ARGUMENT_VERSION_MISMATCH},
        {"not-ready", NOT_READY}, {"unknown", UNKNOWN},
    };
    const char *word = next(l);
    if (!word) return complain(l, "an error code is missing");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (!strcmp(word, codes[i].name)) return *code = codes[i].code, 0;
    if (!isdigit((unsigned char)*word)) return complain(l, "no such error code");
    *code = atoi(word);
    return 0;
}

static int parse_fault(struct line *l, struct scenario *sc, enum fault_kind kind, int gpu) {
    if (sc->n_faults == MAX_FAULTS) return complain(l, "too many faults");
    struct fault *f = &sc->faults[sc->n_faults++];
    const char *pattern = next(l);
    if (!pattern) return complain(l, "a call is missing");
    *f = (struct fault){.kind = kind, .gpu = gpu, .part = 1, .whole = 1};
    snprintf(f->pattern, sizeof f->pattern, "%s", pattern);
    if (kind == FAULT_FAIL && parse_code(l, &f->code)) return -1;
    if (kind == FAULT_SLOW && number(l, &f->ms)) return -1;
    if (next_is(l, "every")) {
        double part, whole;
        if (number(l, &part) || number(l, &whole)) return -1;
        f->part = (int)part, f->whole = (int)whole;
        if (f->whole < 1) return complain(l, "every PART WHOLE: the whole is at least 1");
    }
    return range(l, &f->from, &f->to);
}

static int parse_buffer(struct line *l, struct gpu *g) {
    static const char *names[BUF_COUNT] = {
        "power", "util", "mem_util", "enc", "dec", "sm_clock", "mem_clock",
    };
    const char *name = next(l);
    int id = 0;
    while (id < BUF_COUNT && (!name || strcmp(name, names[id]))) id++;
    if (id == BUF_COUNT) return complain(l, "no such buffer");
    double period_ms, depth;
    if (number(l, &period_ms) || number(l, &depth)) return -1;
    struct buffer *b = &g->buffers[id];
    *b = (struct buffer){.period = period_ms / 1e3, .depth = (int)depth, .value_type = VALUE_UINT};
    if (b->period <= 0 || b->depth < 1) return complain(l, "period and depth are above 0");
    while (l->at < l->n) {
        if (next_is(l, "dry")) b->dry = 1;
        else if (next_is(l, "double")) b->value_type = VALUE_DOUBLE;
        else if (next_is(l, "ull")) b->value_type = VALUE_ULL;
        else return complain(l, "a buffer may be dry, double or ull");
    }
    return 0;
}

/* process PID MEM_MIB|- SHARE [graphics|mps] [instance GI CI] [FROM [TO]] */
static int parse_process(struct line *l, struct gpu *g) {
    if (g->n_processes == MAX_PROCESSES) return complain(l, "too many processes");
    struct process *p = &g->processes[g->n_processes++];
    *p = (struct process){.gpu_instance = ~0u, .compute_instance = ~0u, .mem_bytes = -1};
    double pid, mib;
    if (number(l, &pid)) return -1;
    p->pid = (unsigned)pid;
    if (!next_is(l, "-")) {
        if (number(l, &mib)) return -1;
        p->mem_bytes = mib * 1048576;
    }
    if (number(l, &p->share)) return -1;
    p->graphics = next_is(l, "graphics") ? 1 : next_is(l, "mps") ? 2 : 0;
    if (next_is(l, "instance")) {
        double gi, ci;
        if (number(l, &gi) || number(l, &ci)) return -1;
        p->gpu_instance = (unsigned)gi, p->compute_instance = (unsigned)ci;
    }
    return range(l, &p->from, &p->to);
}

/* event AT BITS [DATA] [instance GI CI] */
static int parse_event(struct line *l, struct scenario *sc, int gpu) {
    if (sc->n_events == MAX_EVENTS) return complain(l, "too many events");
    struct event *e = &sc->events[sc->n_events++];
    *e = (struct event){.gpu = gpu, .gpu_instance = ~0u, .compute_instance = ~0u};
    double type, data = 0, gi, ci;
    if (number(l, &e->at) || number(l, &type)) return -1;
    if (l->at < l->n && strcmp(l->word[l->at], "instance") && number(l, &data)) return -1;
    e->type = (unsigned long long)type, e->data = (unsigned long long)data;
    if (!next_is(l, "instance")) return 0;
    if (number(l, &gi) || number(l, &ci)) return -1;
    e->gpu_instance = (unsigned)gi, e->compute_instance = (unsigned)ci;
    return 0;
}

/* mig_device GI CI PROFILE MEM_MIB SMS SLICES [FROM [TO]] */
static int parse_mig_device(struct line *l, struct gpu *g) {
    if (g->n_mig_devices == MAX_MIG_DEVICES) return complain(l, "too many MIG devices");
    struct mig_device *m = &g->mig_devices[g->n_mig_devices++];
    double gi, ci, sms, slices;
    if (number(l, &gi) || number(l, &ci)) return -1;
    if (gi < 0 || gi >= MAX_INSTANCES) return complain(l, "no such GPU instance");
    const char *profile = next(l);
    *m = (struct mig_device){.gpu = g, .gpu_instance = (unsigned)gi, .compute_instance = (unsigned)ci};
    snprintf(m->profile, sizeof m->profile, "%s", profile ? profile : "");
    if (number(l, &m->mem_mib) || number(l, &sms) || number(l, &slices)) return -1;
    m->sm_count = (unsigned)sms, m->slices = (unsigned)slices;
    snprintf(m->uuid, sizeof m->uuid, "MIG-%08x-0000-0000-0000-%012x", (unsigned)g->index,
             (unsigned)g->n_mig_devices);
    return range(l, &m->from, &m->to);
}

/* gpm FIELD SERIES, gpm_instance GI FIELD SERIES */
static int parse_gpm(struct line *l, struct activity *a) {
    const char *what = next(l);
    if (!what) return complain(l, "a GPM field is missing");
#define X(field, number, initial) \
    if (!strcmp(what, #field)) return parse_series(l, &a->field);
    GPM_FIELDS(X)
#undef X
    if (!strcmp(what, "decoder")) return parse_series(l, &a->decoder);
    return complain(l, "no such GPM field");
}

static int parse_gpm_instance(struct line *l, struct gpu *g) {
    double id;
    if (number(l, &id)) return -1;
    if (id < 0 || id >= MAX_INSTANCES) return complain(l, "no such GPU instance");
    return parse_gpm(l, &g->instances[(int)id]);
}

static void activity_defaults(struct activity *a) {
#define X(field, number, initial) series_constant(&a->field, initial);
    GPM_FIELDS(X)
#undef X
    series_constant(&a->decoder, 0);
}

static void activity_free(struct activity *a) {
#define X(field, number, initial) series_free(&a->field);
    GPM_FIELDS(X)
#undef X
    series_free(&a->decoder);
}

/* links N: so many, as they are unless `link` lines say otherwise. */
static int parse_links(struct line *l, struct gpu *g) {
    double count;
    if (number(l, &count)) return -1;
    if (count < 0 || count > MAX_LINKS) return complain(l, "no GPU has so many links");
    for (int i = g->n_links; i < (int)count; i++) {
#define X(field, initial) series_constant(&g->links[i].field, initial);
        LINK_SERIES(X)
#undef X
    }
    g->n_links = (int)count;
    return 0;
}

/* link NUMBER FIELD SERIES */
static int parse_link(struct line *l, struct gpu *g) {
    double which;
    if (number(l, &which)) return -1;
    if (which < 0 || which >= g->n_links) return complain(l, "no such link: `links` comes first");
    struct link *link = &g->links[(int)which];
    const char *what = next(l);
    if (!what) return complain(l, "a field of the link is missing");
#define X(field, initial) \
    if (!strcmp(what, #field)) return parse_series(l, &link->field);
    LINK_SERIES(X)
#undef X
    return complain(l, "no such field of a link");
}

static void links_free(struct gpu *g) {
    for (int i = 0; i < g->n_links; i++) {
#define X(field, initial) series_free(&g->links[i].field);
        LINK_SERIES(X)
#undef X
    }
}

static int text(struct line *l, char *out, size_t size) {
    out[0] = 0;
    while (l->at < l->n) {
        size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%s", used ? " " : "", l->word[l->at++]);
    }
    return out[0] ? 0 : complain(l, "a text is missing");
}

static int parse_scalar(struct line *l, struct gpu *g, const char *what, int *known) {
    double value, *seconds = !strcmp(what, "util_window_ms")    ? &g->util_window
                             : !strcmp(what, "power_window_ms") ? &g->power_window
                                                                : NULL;
    int *whole = !strcmp(what, "arch")                   ? &g->arch
                 : !strcmp(what, "pcie_counter_bits")    ? &g->pcie_counter_bits
                 : !strcmp(what, "fields_up_to")         ? &g->field_max
                 : !strcmp(what, "process_struct_bytes") ? &g->process_struct_bytes
                 : !strcmp(what, "gpm_support")          ? &g->gpm
                 : !strcmp(what, "gpm_metrics_up_to")    ? &g->gpm_metric_max
                 : !strcmp(what, "decoders")             ? &g->decoders
                 : !strcmp(what, "virtualisation")       ? &g->virtualisation
                 : !strcmp(what, "addressing")           ? &g->addressing
                 : !strcmp(what, "margins_unsigned")     ? &g->margins_unsigned
                 : !strcmp(what, "event_types")          ? &g->event_types
                                                         : NULL;
    *known = seconds || whole || !strcmp(what, "energy_base_mj");
    if (!*known) return 0;
    if (number(l, &value)) return -1;
    if (seconds) *seconds = value / 1e3;
    else if (whole) *whole = (int)value;
    else g->energy_base_mj = value;
    return 0;
}

static int parse_gpu_line(struct line *l, struct scenario *sc, struct gpu *g, const char *what) {
    if (!strcmp(what, "name")) return text(l, g->name, sizeof g->name);
    if (!strcmp(what, "uuid")) return text(l, g->uuid, sizeof g->uuid);
    if (!strcmp(what, "pci")) return text(l, g->pci, sizeof g->pci);
    if (!strcmp(what, "serial")) return text(l, g->serial, sizeof g->serial);
    if (!strcmp(what, "buffer")) return parse_buffer(l, g);
    if (!strcmp(what, "process")) return parse_process(l, g);
    if (!strcmp(what, "gpm")) return parse_gpm(l, &g->activity);
    if (!strcmp(what, "gpm_instance")) return parse_gpm_instance(l, g);
    if (!strcmp(what, "mig_device")) return parse_mig_device(l, g);
    if (!strcmp(what, "links")) return parse_links(l, g);
    if (!strcmp(what, "link")) return parse_link(l, g);
    if (!strcmp(what, "event")) return parse_event(l, sc, g->index);
    if (!strcmp(what, "sleeps")) return range(l, &g->sleeps_from, &g->sleeps_to);
    if (!strcmp(what, "cc")) {
        double major, minor;
        if (number(l, &major) || number(l, &minor)) return -1;
        g->cc_major = (int)major, g->cc_minor = (int)minor;
        return 0;
    }
    if (!strcmp(what, "lost")) {
        struct fault *f = &sc->faults[sc->n_faults];
        if (sc->n_faults++ == MAX_FAULTS) return complain(l, "too many faults");
        *f = (struct fault){.kind = FAULT_FAIL, .gpu = g->index, .code = GPU_IS_LOST, .part = 1,
                            .whole = 1, .pattern = "*"};
        return range(l, &f->from, &f->to);
    }
    int known;
    if (parse_scalar(l, g, what, &known) || known) return known ? (l->at < l->n ? complain(l, "too much") : 0) : -1;
#define X(field, initial) \
    if (!strcmp(what, #field)) return parse_series(l, &g->field);
    SERIES_FIELDS(X)
#undef X
    return complain(l, "no such field");
}

static void gpu_defaults(struct gpu *g, int index) {
    memset(g, 0, sizeof *g);
    g->index = index;
    snprintf(g->name, sizeof g->name, "NVIDIA H100 80GB HBM3");
    snprintf(g->uuid, sizeof g->uuid, "GPU-00000000-0000-0000-0000-%012x", index);
    snprintf(g->pci, sizeof g->pci, "00000000:%02X:00.0", 0x10 + index);
    g->arch = 9, g->cc_major = 9;
    g->util_window = 1.0 / 6, g->power_window = 1;
    g->pcie_counter_bits = 64, g->field_max = 1000, g->process_struct_bytes = 24;
    g->event_types = 0xfe0b;
    g->addressing = -1;
    g->gpm = 1, g->gpm_metric_max = 1000, g->decoders = 7;
    activity_defaults(&g->activity);
    for (int i = 0; i < MAX_INSTANCES; i++) activity_defaults(&g->instances[i]);
#define X(field, initial) series_constant(&g->field, initial);
    SERIES_FIELDS(X)
#undef X
    for (int i = 0; i < BUF_COUNT; i++)
        g->buffers[i] = (struct buffer){.period = 0.02, .depth = 120, .value_type = VALUE_UINT};
    for (int i = BUF_UTIL; i <= BUF_DEC; i++) g->buffers[i].period = g->util_window;
}

/* order FROM GPU...: from then on the driver lists these GPUs, in this order. */
static int parse_order(struct line *l, struct scenario *sc) {
    if (sc->n_orders == MAX_ORDERS) return complain(l, "too many orders");
    struct order *o = &sc->orders[sc->n_orders++];
    *o = (struct order){0};
    if (number(l, &o->from)) return -1;
    while (l->at < l->n && o->n < MAX_GPUS) {
        double index;
        if (number(l, &index)) return -1;
        o->gpu[o->n++] = (int)index;
    }
    return 0;
}

static int parse_line(struct line *l, struct scenario *sc, int *scope) {
    const char *what = next(l);
    if (!strcmp(what, "gpu")) {
        if (sc->n_gpus == MAX_GPUS) return complain(l, "too many GPUs");
        *scope = sc->n_gpus;
        gpu_defaults(&sc->gpus[sc->n_gpus++], *scope);
        return 0;
    }
    if (!strcmp(what, "fail")) return parse_fault(l, sc, FAULT_FAIL, *scope);
    if (!strcmp(what, "slow")) return parse_fault(l, sc, FAULT_SLOW, *scope);
    if (!strcmp(what, "hang")) return parse_fault(l, sc, FAULT_HANG, *scope);
    if (!strcmp(what, "garbage")) return parse_fault(l, sc, FAULT_GARBAGE, *scope);
    if (*scope >= 0) return parse_gpu_line(l, sc, &sc->gpus[*scope], what);
    if (!strcmp(what, "driver")) return text(l, sc->driver, sizeof sc->driver);
    if (!strcmp(what, "nvml")) return text(l, sc->nvml, sizeof sc->nvml);
    if (!strcmp(what, "order")) return parse_order(l, sc);
    if (!strcmp(what, "cuda")) {
        double value;
        if (number(l, &value)) return -1;
        sc->cuda = (int)value;
        return 0;
    }
    return complain(l, "no such directive");
}

/* ${NAME} becomes the value of that environment variable. */
static int expand(const struct line *l, const char *in, char *out, size_t size) {
    size_t used = 0;
    while (*in && *in != '#' && used + 1 < size) {
        const char *end;
        if (in[0] != '$' || in[1] != '{' || !(end = strchr(in, '}'))) {
            out[used++] = *in++;
            continue;
        }
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(end - in - 2), in + 2);
        const char *value = getenv(name);
        if (!value) return complain(l, "a ${variable} is not set");
        used += snprintf(out + used, size - used, "%s", value);
        in = end + 1;
    }
    if (used >= size) return complain(l, "line too long");
    out[used] = 0;
    return 0;
}

int scenario_load(struct scenario *sc, const char *path) {
    for (int i = 0; i < sc->n_gpus; i++) {
        activity_free(&sc->gpus[i].activity);
        links_free(&sc->gpus[i]);
        for (int k = 0; k < MAX_INSTANCES; k++) activity_free(&sc->gpus[i].instances[k]);
#define X(field, initial) series_free(&sc->gpus[i].field);
        SERIES_FIELDS(X)
#undef X
    }
    memset(sc, 0, sizeof *sc);
    strcpy(sc->driver, "570.124.06"), strcpy(sc->nvml, "12.570.124.06");
    sc->cuda = 12080;
    FILE *file = fopen(path, "re");
    if (!file) return fprintf(stderr, "nvml_sim: %s: %s\n", path, strerror(errno)), -1;
    struct line l = {.path = path};
    char raw[8192], cooked[8192];
    int scope = -1, failed = 0;
    while (!failed && fgets(raw, sizeof raw, file)) {
        l.number++, l.n = l.at = 0;
        if ((failed = expand(&l, raw, cooked, sizeof cooked))) break;
        char *save, *word = strtok_r(cooked, " \t\r\n", &save);
        for (; word && l.n < MAX_WORDS; word = strtok_r(NULL, " \t\r\n", &save)) l.word[l.n++] = word;
        if (l.n) failed = parse_line(&l, sc, &scope);
        if (!failed && l.at < l.n) failed = complain(&l, "too much on the line");
    }
    fclose(file);
    return failed ? -1 : 0;
}
