/* Virtual clock, faults and call accounting of the simulated NVML. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

struct scenario sim;

/* ---- clock ----------------------------------------------------------------------------------- */

/* The clock file: four little-endian 64-bit words, written by whoever steps the time. */
struct clock_page {
    _Atomic uint64_t t_ns; /* scenario time */
    uint64_t boot_ns;      /* what CLOCK_MONOTONIC (and time since boot) read at scenario time 0 */
    uint64_t wall_ns;      /* what the wall clock read at scenario time 0 */
    uint64_t reserved;
};

static struct clock_page *page;
static uint64_t start_ns, start_boot_ns, start_wall_ns;

static uint64_t read_clock(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void *map_file(const char *path, size_t size, int create) {
    int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0644);
    if (fd < 0) return NULL;
    void *memory = MAP_FAILED;
    struct stat st;
    if (!fstat(fd, &st) && ((size_t)st.st_size >= size || !ftruncate(fd, (off_t)size)))
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

static void clock_start(void) {
    const char *path = getenv("NVML_SIM_CLOCK"), *start = getenv("NVML_SIM_START_NS");
    if (path && !page && !(page = map_file(path, sizeof *page, 0))) {
        fprintf(stderr, "nvml_sim: cannot map the clock %s\n", path);
        abort();
    }
    if (start_ns) return;
    uint64_t now = read_clock(CLOCK_MONOTONIC);
    start_ns = start ? strtoull(start, NULL, 10) : now;
    start_boot_ns = read_clock(CLOCK_BOOTTIME) - (now - start_ns);
    start_wall_ns = read_clock(CLOCK_REALTIME) - (now - start_ns);
}

uint64_t sim_now_ns(void) {
    return page ? atomic_load(&page->t_ns) : read_clock(CLOCK_MONOTONIC) - start_ns;
}

uint64_t sim_boot_us(uint64_t t_ns) { return ((page ? page->boot_ns : start_boot_ns) + t_ns) / 1000; }

uint64_t sim_epoch_us(uint64_t t_ns) { return ((page ? page->wall_ns : start_wall_ns) + t_ns) / 1000; }

static void sleep_ns(uint64_t ns) {
    struct timespec ts = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    nanosleep(&ts, NULL);
}

/* A stepped clock moves by the delay instead of anybody sleeping. */
void call_delay_ms(double ms) {
    if (page) atomic_fetch_add(&page->t_ns, (uint64_t)(ms * 1e6));
    else sleep_ns((uint64_t)(ms * 1e6));
}

/* ---- accounting ------------------------------------------------------------------------------ */

#define STAT_SLOTS 128

struct stat_slot {
    char name[64];
    _Atomic uint64_t calls, ns, max_ns;
    uint64_t reserved[5];
};

static struct stat_slot private_slots[STAT_SLOTS], *slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct stat_slot *slot_for(const char *name) {
    pthread_mutex_lock(&lock);
    if (!slots) {
        const char *path = getenv("NVML_SIM_STATS");
        slots = path ? map_file(path, sizeof private_slots, 1) : NULL;
        if (!slots) slots = private_slots;
    }
    struct stat_slot *slot = slots;
    while (slot < slots + STAT_SLOTS - 1 && slot->name[0] && strcmp(slot->name, name)) slot++;
    if (!slot->name[0]) snprintf(slot->name, sizeof slot->name, "%s", name);
    pthread_mutex_unlock(&lock);
    return slot;
}

static uint64_t account_ns(void) { return page ? sim_now_ns() : read_clock(CLOCK_MONOTONIC); }

/* ---- faults ---------------------------------------------------------------------------------- */

static int applies(const struct fault *f, const struct call *call, const char *key) {
    int gpu = call->gpu ? call->gpu->index : -1;
    return (f->gpu < 0 || f->gpu == gpu) && call->now >= f->from && call->now < f->to &&
           !fnmatch(f->pattern, key, 0);
}

static void hang_while(const struct fault *f) {
    while (sim_now_ns() / 1e9 < f->to) sleep_ns(1000000);
}

/* What the scenario has this call, field ("field:186") or buffer ("sample:1") answer. */
nvmlReturn_t fault_for(struct call *call, const char *key) {
    nvmlReturn_t code = OK;
    for (int i = 0; i < sim.n_faults; i++) {
        struct fault *f = &sim.faults[i];
        if (!applies(f, call, key)) continue;
        if (f->whole > 1 && f->seen++ % (unsigned long)f->whole >= (unsigned long)f->part) continue;
        switch (f->kind) {
        case FAULT_HANG: hang_while(f); break;
        case FAULT_SLOW: call_delay_ms(f->ms); break;
        case FAULT_GARBAGE: call->garbage = 1; break;
        case FAULT_FAIL: code = f->code; break;
        }
    }
    return code;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int users;

int sim_initialised(void) { return users > 0; }

int sim_gpu_valid(const struct gpu *gpu) {
    return gpu >= sim.gpus && gpu < sim.gpus + sim.n_gpus &&
           ((const char *)gpu - (const char *)sim.gpus) % (long)sizeof *gpu == 0;
}

/* A call to a GPU that sleeps answers as any other, but is on record as "wakes GPU n". */
static void note_wake(const struct call *call, const struct gpu *gpu) {
    if (call->now < gpu->sleeps_from || call->now >= gpu->sleeps_to) return;
    char name[32];
    snprintf(name, sizeof name, "wakes GPU %d", gpu->index);
    atomic_fetch_add(&slot_for(name)->calls, 1);
}

/* IDENTITY calls are answered from what NVML cached at start, even when the GPU is lost. A call on a
 * MIG device is known to faults as "CALL/GI/CI". */
nvmlReturn_t call_enter(struct call *call, struct stat_slot **slot, const char *name, void *handle,
                        int kind) {
    if (!*slot) *slot = slot_for(name);
    *call = (struct call){.slot = *slot, .began_ns = account_ns(), .now = sim_now_ns() / 1e9};
    if (!sim_initialised()) return UNINITIALIZED;
    call->mig = handle ? mig_of_handle(handle) : NULL;
    call->gpu = call->mig ? call->mig->gpu : handle;
    if (handle && (call->mig ? !(kind & ON_MIG) : !sim_gpu_valid(handle))) return INVALID_ARGUMENT;
    if (call->gpu) note_wake(call, call->gpu);
    char key[96];
    snprintf(key, sizeof key, "%s", name);
    if (call->mig)
        snprintf(key, sizeof key, "%s/%u/%u", name, call->mig->gpu_instance, call->mig->compute_instance);
    nvmlReturn_t code = fault_for(call, key);
    if (code == OK && call->mig && !mig_alive(call->mig, call->now)) return NOT_FOUND;
    return code == GPU_IS_LOST && kind & IDENTITY ? OK : code;
}

nvmlReturn_t call_leave(struct call *call, nvmlReturn_t code) {
    uint64_t took = account_ns() - call->began_ns;
    atomic_fetch_add(&call->slot->calls, 1);
    atomic_fetch_add(&call->slot->ns, took);
    if (took > atomic_load(&call->slot->max_ns)) atomic_store(&call->slot->max_ns, took);
    return code;
}

nvmlReturn_t sim_start(void) {
    static struct stat_slot *slot;
    struct call call = {0};
    clock_start();
    if (!slot) slot = slot_for("nvmlInitWithFlags");
    call = (struct call){.slot = slot, .began_ns = account_ns(), .now = sim_now_ns() / 1e9};
    const char *path = getenv("NVML_SIM_SCENARIO");
    nvmlReturn_t code = DRIVER_NOT_LOADED;
    if (path) {
        pthread_mutex_lock(&lock);
        code = !users && scenario_load(&sim, path) ? UNKNOWN : OK;
        pthread_mutex_unlock(&lock);
    }
    if (code == OK) code = fault_for(&call, "nvmlInit");
    if (code == OK) users++;
    return call_leave(&call, code);
}

nvmlReturn_t sim_stop(void) {
    static struct stat_slot *slot;
    struct call call;
    nvmlReturn_t code = call_enter(&call, &slot, "nvmlShutdown", NULL, 0);
    if (code == OK) users--;
    return call_leave(&call, code);
}

static const struct order *order_at(double now) {
    const struct order *found = NULL;
    for (int i = 0; i < sim.n_orders; i++)
        if (sim.orders[i].from <= now) found = &sim.orders[i];
    return found;
}

unsigned sim_gpu_count(double now) {
    const struct order *o = order_at(now);
    return (unsigned)(o ? o->n : sim.n_gpus);
}

struct gpu *sim_gpu_at(unsigned index, double now) {
    const struct order *o = order_at(now);
    if (index >= sim_gpu_count(now)) return NULL;
    int at = o ? o->gpu[index] : (int)index;
    return at >= 0 && at < sim.n_gpus ? &sim.gpus[at] : NULL;
}
