/* SPDX-License-Identifier: MIT */
/*
 * Whose code an address is: of the main program, of the runtime (the section weft_text, wherever it is linked), of an object that the
 * user has allowed to be preempted, of another one.
 *
 * The dynamic linker says which objects there are; it counts those that it has loaded and unloaded, so a look whether any came or went
 * since costs 0.2 us. The table of the others is made anew then. Allowed objects are never taken out.
 *
 * A signal handler may be reading the table before, which is freed by whoever next finds no handler inside:
 *   CO1  a handler says that it is inside (w_code_begin), then takes the table; who changes it puts the new one in place, then looks whether
 *        anybody is inside. Nobody: those who were have done with what they took, and those who come take the new one. Somebody: the
 *        old one waits for the next change, so that nobody ever waits for a handler                                 [CO-2]
 *
 * The lock here is taken inside the linker's, never around it: a callback of dl_iterate_phdr may come to us as well.
 */
#include "preempt.h"
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

enum { MAX_ALLOWED = 64 };

struct range {
    uintptr_t lo, hi;
};

/* Code of objects that may not be stopped, sorted. Constant once published. */
struct others {
    struct others *older; /* of those that are out of use; lock */
    bool hides_tls;       /* of one, the thread-local storage is not where that of threads usually is */
    uint32_t count, room;
    struct range range[];
};

static struct {
    struct w_spin lock;             /* of whoever changes it */
    _Atomic uint32_t allowed_count; /* [0]: the main program */
    struct range allowed[MAX_ALLOWED];
    _Atomic(struct others *) others;    /* or NULL */
    struct others *old;                 /* out of use, but perhaps being read (CO1); lock */
    _Atomic unsigned long long changes; /* how many the linker had loaded and unloaded when others was made */
    _Atomic uint32_t inside;            /* handlers that may be reading */
    bool shared_libc;                   /* there is another object besides the main program and the kernel's */
} code;

extern const char __start_weft_text[] __attribute__((visibility("hidden"))); /* the linker makes these two */
extern const char __stop_weft_text[] __attribute__((visibility("hidden")));
extern const char w_entry[], w_entry_end[];

static bool is_in(uintptr_t pc, uintptr_t lo, uintptr_t hi)
{
    return pc - lo < hi - lo;
}

/* ---- asked by the handler ---------------------------------------------------------------------------------------- */

bool w_code_is_ours(uintptr_t pc)
{
    return is_in(pc, (uintptr_t)__start_weft_text, (uintptr_t)__stop_weft_text);
}

bool w_code_is_entry(uintptr_t pc)
{
    return is_in(pc, (uintptr_t)w_entry, (uintptr_t)w_entry_end);
}

static bool is_allowed(uintptr_t pc)
{
    uint32_t n = ld_acquire(&code.allowed_count); /* [CO-1] */
    for (uint32_t i = 0; i < n; i++)
        if (is_in(pc, code.allowed[i].lo, code.allowed[i].hi))
            return true;
    return false;
}

bool w_code_may_stop(uintptr_t pc)
{
    return is_allowed(pc) && !w_code_is_ours(pc);
}

void w_code_begin(void)
{
    add_seq(&code.inside, 1); /* [CO-2] */
}

void w_code_end(void)
{
    sub_seq(&code.inside, 1); /* [CO-2] */
}

bool w_code_is_other(uintptr_t pc)
{
    const struct others *o = ld_seq(&code.others); /* [CO-2] */
    uint32_t lo = 0, hi = o != NULL ? o->count : 0;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (pc >= o->range[mid].hi)
            lo = mid + 1;
        else
            hi = mid;
    }
    return o != NULL && lo < o->count && pc >= o->range[lo].lo && !is_allowed(pc);
}

bool w_code_hides_tls(void)
{
    const struct others *o = ld_seq(&code.others); /* [CO-2] */
    return o != NULL && o->hides_tls;
}

unsigned long long w_code_changes(void)
{
    return ld_relaxed(&code.changes); /* relaxed: only compared */
}

struct w_span w_code_span(void)
{
    const struct others *o = ld_seq(&code.others); /* [CO-2] */
    if (o == NULL || o->count == 0)
        return (struct w_span){0, 0};
    return (struct w_span){o->range[0].lo, o->range[o->count - 1].hi - o->range[0].lo};
}

/* ---- what the dynamic linker says -------------------------------------------------------------------------------- */

static struct range segment(const struct dl_phdr_info *info, const ElfW(Phdr) * ph)
{
    uintptr_t lo = info->dlpi_addr + ph->p_vaddr;
    return (struct range){lo, lo + ph->p_memsz};
}

static bool is_code(const ElfW(Phdr) * ph)
{
    return ph->p_type == PT_LOAD && ph->p_flags & PF_X;
}

static bool contains(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        struct range r = segment(info, &info->dlpi_phdr[i]);
        if (info->dlpi_phdr[i].p_type == PT_LOAD && is_in(address, r.lo, r.hi))
            return true;
    }
    return false;
}

static void allow(struct range r)
{
    w_spin_lock(&code.lock);
    uint32_t n = ld_relaxed(&code.allowed_count);
    if (n < MAX_ALLOWED) {
        code.allowed[n] = r;
        st_release(&code.allowed_count, n + 1); /* [CO-1] */
    }
    w_spin_unlock(&code.lock);
}

static bool is_the_kernels(const struct dl_phdr_info *info)
{
    return contains(info, getauxval(AT_SYSINFO_EHDR));
}

/* The main program comes first. */
static int look_at_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    bool *first = arg;
    (void)size;
    for (int i = 0; *first && i < info->dlpi_phnum; i++)
        if (is_code(&info->dlpi_phdr[i]))
            allow(segment(info, &info->dlpi_phdr[i]));
    code.shared_libc |= !*first && !is_the_kernels(info);
    *first = false;
    return 0;
}

/* Once: what was allowed stays allowed in the next run. Before anything else is allowed. */
static void allow_main_program(void)
{
    bool first = true;
    if (ld_relaxed(&code.allowed_count) == 0)
        dl_iterate_phdr(look_at_object, &first);
}

static int count_changes(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(unsigned long long *)arg = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

static unsigned long long changes_now(void)
{
    unsigned long long changes = 0;
    dl_iterate_phdr(count_changes, &changes);
    return changes;
}

/* Objects that are there when the program starts have theirs beside the thread pointer, in the mapping that an M knows as its own;
 * others may have it anywhere, and not before it is first used. */
static bool hides_tls(const struct dl_phdr_info *info)
{
    static const uintptr_t NEAR = 1 << 20;
    bool has = false;
    for (int i = 0; i < info->dlpi_phnum; i++)
        has |= info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_phdr[i].p_memsz > 0;
    return has && (uintptr_t)info->dlpi_tls_data - (w_thread_pointer() - NEAR) >= 2 * NEAR;
}

struct gathering {
    struct others *o; /* NULL: count only */
    uint32_t count;
    bool first;
};

static int gather(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct gathering *g = arg;
    (void)size;
    for (int i = 0; !g->first && i < info->dlpi_phnum; i++) {
        if (!is_code(&info->dlpi_phdr[i]))
            continue;
        if (g->o != NULL && g->count < g->o->room)
            g->o->range[g->o->count++] = segment(info, &info->dlpi_phdr[i]);
        g->count++;
    }
    if (g->o != NULL)
        g->o->hides_tls |= hides_tls(info);
    g->first = false;
    return 0;
}

static int by_address(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* NULL: no memory, or objects came meanwhile: the next time. */
static struct others *make_others(void)
{
    struct gathering g = {.first = true};
    dl_iterate_phdr(gather, &g);
    struct others *o = malloc(sizeof *o + g.count * sizeof o->range[0]);
    if (o == NULL)
        return NULL;
    *o = (struct others){.room = g.count};
    g = (struct gathering){.o = o, .first = true};
    dl_iterate_phdr(gather, &g);
    if (g.count > o->room) {
        free(o);
        return NULL;
    }
    qsort(o->range, o->count, sizeof o->range[0], by_address);
    return o;
}

static bool is_same(const struct others *a, const struct others *b)
{
    return a != NULL && b != NULL && a->count == b->count && a->hides_tls == b->hides_tls &&
           memcmp(a->range, b->range, a->count * sizeof a->range[0]) == 0;
}

static void free_all(struct others *o)
{
    for (struct others *older; o != NULL; o = older) {
        older = o->older;
        free(o);
    }
}

/* Those that nobody reads any more (CO1): the caller frees them. */
static struct others *take_old_locked(void)
{
    struct others *old = code.old;
    if (old == NULL || ld_seq(&code.inside) != 0) /* [CO-2] */
        return NULL;
    code.old = NULL;
    return old;
}

void w_code_refresh(void)
{
    unsigned long long changes = changes_now();
    if (ld_relaxed(&code.others) != NULL && ld_relaxed(&code.changes) == changes) /* relaxed: only compared */
        return;
    struct others *o = make_others(), *unused = o;
    if (o == NULL)
        return;
    w_spin_lock(&code.lock);
    bool late =
        ld_relaxed(&code.others) != NULL && ld_relaxed(&code.changes) >= changes; /* somebody was here meanwhile */
    if (!late && !is_same(ld_relaxed(&code.others), o)) {
        unused = xchg_seq(&code.others, o); /* [CO-2] */
        if (unused != NULL) {
            unused->older = code.old;
            code.old = unused;
        }
        unused = take_old_locked();
    }
    if (!late)
        st_relaxed(&code.changes, changes);
    w_spin_unlock(&code.lock);
    free_all(unused);
}

/* ---- allowing objects -------------------------------------------------------------------------------------------- */

struct request {
    uintptr_t address, libc, malloc; /* the latter two: functions of these */
    int result;
};

/* The linker, libc and what else the address of a function of theirs lies in. */
static bool is_never_stopped(const struct dl_phdr_info *info, const struct request *request)
{
    return is_the_kernels(info) || contains(info, getauxval(AT_BASE)) || contains(info, (uintptr_t)__start_weft_text) ||
           contains(info, request->malloc) || contains(info, request->libc);
}

static int allow_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct request *request = arg;
    (void)size;
    if (!contains(info, request->address))
        return 0;
    if (is_allowed(request->address)) {
        request->result = 0;
    } else if (is_never_stopped(info, request)) {
        request->result = -EPERM;
    } else if (ld_relaxed(&code.allowed_count) == MAX_ALLOWED) {
        request->result = -ENOSPC;
    } else {
        for (int i = 0; i < info->dlpi_phnum; i++)
            if (is_code(&info->dlpi_phdr[i]))
                allow(segment(info, &info->dlpi_phdr[i]));
        request->result = 0;
    }
    return 1;
}

int weft_preempt_allow(const void *address)
{
    struct request request = {.address = (uintptr_t)address, .result = -EINVAL};
    request.malloc =
        (uintptr_t)dlsym(RTLD_DEFAULT, "malloc"); /* not while the linker is asked, which would wait for itself */
    request.libc = (uintptr_t)dlsym(RTLD_DEFAULT, "__libc_start_main");
    weft_preempt_off();
    allow_main_program();
    dl_iterate_phdr(allow_object, &request);
    weft_preempt_on();
    return request.result;
}

/* ---- begin and end of a run -------------------------------------------------------------------------------------- */

const char *w_code_why_not(void)
{
    if (!code.shared_libc)
        return "libc is part of the program, and cannot be told from it";
    if (is_allowed((uintptr_t)dlsym(RTLD_DEFAULT, "malloc")))
        return "malloc is part of the program, and cannot be told from it";
    return NULL;
}

void w_code_init(void)
{
    allow_main_program();
    w_code_refresh();
}

/* There are no handlers any more. */
void w_code_done(void)
{
    free_all(ld_relaxed(&code.others));
    free_all(code.old);
    st_relaxed(&code.others, NULL);
    code.old = NULL;
}
