/* SPDX-License-Identifier: MIT */
/*
 * The types that cross files: goroutine (G), OS thread (M), logical processor (P), and the scheduler's shared state.
 * No logic lives here. Who owns a G is told by its state:
 *
 *      IDLE ──spawn──> RUNNABLE ──────run──────> RUNNING ──exit──> DEAD ──(pool)──> IDLE
 *                        ^  ^                    │ │ │ │
 *                        │  └──────yield─────────┘ │ │ └─block_enter──> BLOCKED ──block_leave──> RUNNING
 *                        │                         │ └──preempted─────> PREEMPTED (in a queue, as RUNNABLE)
 *                        └──ready── WAITING <─park─┘
 *
 * A goroutine is off its stack, and may be resumed by any M, only once the context that came after it on its M has
 * landed (sched.c); hence nobody sees it in a queue or under an open lock before that.
 */
#ifndef WEFT_INTERNAL_H
#define WEFT_INTERNAL_H

#include "atomic.h"
#include "fatal.h"
#include "fresh.h"
#include "lock.h"
#include "runq.h"
#include "sanitize.h"
#include "sys.h"
#include "timers.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft.h>

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { W_CACHE_LINE = 64, W_PAGE = 4096, W_MAX_PROCS = 1024 };

struct w_g;
struct w_m;
struct w_p;
struct w_scope;
struct w_member;
struct w_bias;

/* ---- G ---------------------------------------------------------------------------------------------------------- */

enum w_state {
    W_IDLE,      /* never started; owned by the pool, or by whoever is about to start it */
    W_RUNNABLE,  /* owned by the queue that it is in; whoever takes it from there moves it on */
    W_RUNNING,   /* owned by the M that runs it */
    W_WAITING,   /* owned by what it waits for; whoever wakes it moves it on */
    W_BLOCKED,   /* in a blocking region; owned by its M, which has no P or may lose it */
    W_PREEMPTED, /* as RUNNABLE, but it did not ask for it */
    W_DEAD,      /* ended; owned by the pool */
};

/* Why a goroutine waits; what a dump prints. */
enum w_reason {
    W_REASON_NONE,
    W_REASON_WAIT_GROUP,
    W_REASON_SEND,
    W_REASON_RECV,
    W_REASON_SELECT,
    W_REASON_NIL,
    W_REASON_SLEEP,
    W_REASON_MUTEX,
    W_REASON_READ_LOCK,
    W_REASON_WRITE_LOCK,
    W_REASON_COND,
    W_REASON_ONCE,
    W_REASON_SEMAPHORE,
    W_REASON_SCOPE,
    W_REASON_READ, /* of a descriptor, which waits_on is the number of; so it is with the next two */
    W_REASON_WRITE,
    W_REASON_FILE,
    W_REASON_COUNT
};

enum w_flags {
    W_G_PINNED = 1,    /* runs on g->pinned only */
    W_G_MAIN = 2,      /* its return ends the run */
    W_G_SPECIAL = 4,   /* has a name or a stack of another class: the slow way out */
    W_G_CANARY = 8,    /* its stack has no guard page: the lowest word is checked at each switch */
    W_G_BLOCKING = 16, /* g->blocks > 0 */
    W_G_FOREIGN = 32,  /* stands for a thread that is no M (foreign.c); it never runs */
    W_G_MEMBER = 64,   /* started in a scope: fn and arg are scope.c's */
    W_G_SCOPED = 128,  /* g->scope or g->shields may be set: its end is told to scope.c */
};

/* Two cache lines: the first is what a start and a switch touch, the second what only dumps and slow ways need.
 * Memory of Gs is never unmapped while a runtime is up, so a stale pointer may be read, though it may be reused. */
struct w_g {
    void *sp;              /* saved stack pointer; owner of the state. NULL: no stack yet, bound at the first run */
    struct w_g *link;      /* next in the global queue or a free list; guard: theirs */
    _Atomic uint8_t state; /* enum w_state; written by its owner, read by dumps */
    uint8_t reason;        /* enum w_reason; valid while WAITING */
    uint8_t flags;         /* enum w_flags; owner of the state */
    uint8_t stack_class;   /* of stack_lo; owner of the state */
    int err;               /* errno while it is not running; owner of the state */
    weft_fn *fn;           /* entry; constant while alive */
    void *arg;             /* its argument; constant while alive */
    char *stack_lo;        /* lowest usable byte, NULL: none bound; owner of the state */
    uint64_t id;           /* constant while alive */
    void *started_at;      /* return address of the call that started it; constant while alive */

    _Alignas(W_CACHE_LINE) const char *name; /* malloc'ed or NULL; constant while alive */
    struct w_m *pinned;                      /* the M that alone may run it; the goroutine itself */
    const void *waits_on;                    /* the object, while WAITING */
    int64_t since;                           /* when the present wait or blocking region began; owner of the state */
    uint32_t pins;                           /* depth of weft_pin; the goroutine itself */
    uint32_t blocks;                         /* depth of weft_block_enter; the goroutine itself */
    uint16_t handoffs;       /* blocking regions that give the P away at once, and how many the next time (block.c); */
    uint16_t next_handoffs;  /* the goroutine itself */
    uint32_t shields;        /* depth of weft_shield; the goroutine itself */
    struct w_scope *scope;   /* the innermost one that it runs in, or NULL; the goroutine itself */
    _Atomic uint64_t ticket; /* of its present wait (waiter.h); atomic: whoever ends the wait swaps it */
    W_SANITIZER_FIELDS
};
#ifndef W_SANITIZED
_Static_assert(sizeof(struct w_g) == 2 * W_CACHE_LINE,
               "a parked goroutine costs a page, 136 bytes of page table, and this");
#endif

/* ---- M ---------------------------------------------------------------------------------------------------------- */

/* The C++ runtime's exceptions in flight, which are a goroutine's own as well. NULL: there is no C++ here. */
struct w_eh {
    void *caught;
    unsigned int uncaught;
};

/* What is done to the goroutine that was left, once it is off its stack; runs in the context that came after it. */
typedef void w_after(struct w_m *m, struct w_g *prev, void *arg);

/* A closed gate: the M went into a blocking region by itself. Whoever closes gates tells it from his own NULL. */
#define W_GATE_REGION ((struct w_p *)1)

struct w_m {
    /* Hot: each runtime call and each switch. Owner M, except where it says otherwise. */
    _Alignas(W_CACHE_LINE) _Atomic(struct w_p *) gate; /* == p: the fast way in is open; NULL: look at what happened
                                                          first. atomic: anybody may close it, only the M opens it */
    _Atomic uint32_t in_runtime;                       /* 1 inside a runtime call; atomic: the monitor reads it */
    bool spinning;                                     /* counted in w_sched.spinning */
    bool quit;                                         /* it left its goroutine for good: the thread ends */
    struct w_p *p;                                     /* the P that it holds; owner M */
    struct w_g *g;                                     /* the goroutine that it runs, NULL on its own stack */
    void *sp;                                          /* its own stack while a goroutine runs */
    w_after *after;                                    /* what to do to prev on landing */
    struct w_g *prev;
    void *after_arg;

    _Alignas(W_CACHE_LINE) int *errno_at; /* this thread's errno; constant */
    struct w_eh *eh_at;                   /* this thread's exceptions in flight, or NULL; constant */
    struct w_g *picked;              /* a goroutine taken from a queue that its own stack must deal with; owner M */
    struct w_g *pinned_g;            /* the goroutine that is pinned here; owner M */
    _Atomic(struct w_p *) blocked_p; /* in a blocking region: the P that it had; owner M, and the end of a run */
    bool gave_away;                  /* in a blocking region: it gave its P away at once; owner M */
    _Atomic bool preempt;            /* asked to let others run; atomic: monitor sets, M clears */
    bool lost;      /* it blocked without a word, and its P was taken (block.c); w_sched.lock, then owner M */
    bool abandoned; /* the run ended while it was blocked: touch nothing shared. w_sched.lock */

    struct w_p *next_p;              /* handed over with a wake-up; w_sched.lock, then owner M */
    bool next_spinning;              /* likewise: counted as spinning by the waker */
    _Atomic uint32_t wake;           /* futex: 0 asleep or about to be, 1 woken */
    struct w_m *link;                /* in the list of idle Ms; w_sched.lock */
    bool idle;                       /* is in that list; w_sched.lock */
    struct w_m *all_prev, *all_next; /* all Ms; w_sched.lock */
    int64_t cpu_at_stop;             /* processor time when the run was stopped; w_sched.lock */
    struct w_slab *keep;             /* abandoned: the slab that holds the stack it is on */
    uint32_t id;                     /* constant */
    _Atomic pid_t tid;               /* 0 until the thread has begun, then constant */
    pthread_t thread;                /* constant */
    void *alt_stack;                 /* for SIGSEGV; constant */
    W_SANITIZER_FIELDS
};

/* ---- P ---------------------------------------------------------------------------------------------------------- */

enum w_pstatus {
    W_P_IDLE,    /* in the list of idle Ps; w_sched.lock */
    W_P_RUNNING, /* held by the M in p->m, or on its way to one */
    W_P_DEAD,    /* beyond the number of Ps */
};

/* How a goroutine became runnable, which decides its place among the others (sched.c). */
enum w_kind {
    W_HANDOFF, /* woken by the running one */
    W_TURN,    /* it yielded, or was replaced as a hand-off: in turn */
    W_FRESH,   /* never ran */
};

/* Requests to the holder of a P, noticed at its next scheduling decision. */
enum w_attn {
    W_ATTN_AGE = 1,    /* a slice has passed: let the old ones have their turn */
    W_ATTN_RETIRE = 2, /* give up this P; it is beyond the number of Ps */
};

/* Plain counters of a P: written by its holder, read by anybody. */
struct w_counters {
    _Atomic uint64_t spawned, ended, switches, steals, stolen, parks, overflows;
};

enum { W_INSIDE = 8 };       /* a select over more channels than that takes the other locks in the ordinary way */
enum { W_STACK_CACHE = 64 }; /* 64 hot stacks: 256 KiB, what a second-level cache keeps */

struct w_p {
    /* Owner line: the M that holds it. */
    _Alignas(W_CACHE_LINE) _Atomic(struct w_g *) slot; /* runs next; holder, and the monitor through the gate */
    _Atomic uint32_t attn;                             /* enum w_attn bits; atomic: anybody sets, holder clears */
    _Atomic uint32_t tick;                             /* slices begun; atomic: monitor reads */
    uint32_t picks;                                    /* goroutines picked, hand-offs too; holder */
    struct w_g *free_gs;                               /* ended goroutines, newest first; holder */
    uint32_t free_g_count;                             /* holder */
    uint32_t stack_count;                              /* of stack[]; holder */
    uint64_t id_next, id_end;                          /* numbers for new goroutines; holder */
    uint64_t rng;                                      /* holder */
    uint32_t id;                                       /* constant */
    enum w_kind slot_kind;                             /* of slot; holder */
    _Atomic uint32_t
        no_defer; /* so many lone goroutines get a thread at once (sched.c); monitor sets, holder counts down */

    _Alignas(W_CACHE_LINE) struct w_counters count;
    _Atomic(struct w_m *) m;          /* its holder; atomic: monitor reads */
    _Atomic(struct w_m *) blocked_by; /* its holder is in a blocking region; whoever swaps it to NULL has the P */
    enum w_pstatus status;            /* w_sched.lock */
    struct w_p *link;                 /* in the list of idle Ps; w_sched.lock */

    /* What the monitor remembers of its last look. Monitor. */
    uint32_t seen_tick;
    uint64_t seen_switches;
    struct w_g *seen_slot;
    int64_t seen_at; /* when seen_tick was first seen */
    int64_t aged_at;
    int64_t blocked_at; /* when blocked_seen was first seen */
    struct w_m *blocked_seen;
    struct w_m *still_m; /* it has not switched since the last look, while others waited */
    int64_t still_cpu;   /* the processor time of its thread at the last look */

    _Atomic(const struct w_bias *)
        inside[W_INSIDE];  /* locks that its holder has gone into as the owner (bias.h); atomic:
                                                        holder writes, whoever withdraws a bias reads */
    uint32_t inside_count; /* holder */
    int32_t linger_hope;   /* how often an M found something here just before it would have slept (sched.c); holder */
    uint32_t linger_skips; /* holder */
    uint32_t ring_batch; /* file calls that ended and were put here together, less those made since (uring.c); holder */
    _Atomic uint32_t
        io_waits; /* begun less ended here: of all Ps together, goroutines that wait for descriptors; holder */
    struct w_timers timers; /* what is to happen at a time (timer.c) */

    char *stack[W_STACK_CACHE]; /* free stacks of the default class, hottest last; holder */
    struct w_runq runq;         /* woken and yielding ones, in turn */
    struct w_fresh fresh;       /* started ones, newest first */
};

/* ---- the scheduler ---------------------------------------------------------------------------------------------- */

struct w_glist {
    struct w_g *head, *tail;
};

struct w_globq {
    struct w_glist list[2]; /* [true]: those that never ran */
    uint32_t turn;
    _Atomic uint32_t len; /* atomic so that it may be peeked at without the lock */
};

struct w_sched {
    struct w_lock lock;
    struct w_globq globq;         /* lock */
    struct w_p *idle_ps;          /* lock */
    struct w_m *idle_ms;          /* lock */
    struct w_m *all_ms;           /* lock */
    struct w_m *ended_ms;         /* threads to join; lock */
    uint32_t m_count;             /* Ms that have not ended; lock */
    uint32_t idle_m_count;        /* lock */
    struct w_m *poller;           /* the idle M that sleeps in the netpoller (m.c), or NULL; lock */
    struct w_m *keeper;           /* the idle M that wakes up for the timers (m.c), or NULL; lock */
    _Atomic int64_t keeper_until; /* when it does; WEFT_NEVER: there is none; written under lock */
    uint32_t m_serial;            /* lock */
    uint32_t busy_ps;             /* Ps that are neither idle nor dead; lock */
    int32_t retaken;              /* goroutines in blocking regions whose P was taken; lock */
    bool main_exited;             /* weft_exit in the main goroutine; lock */
    int result;                   /* of weft_run; lock */
    int64_t stopped_at;           /* when stopping was set; lock */

    _Alignas(W_CACHE_LINE) _Atomic uint32_t procs; /* number of Ps wanted; atomic, written under lock */
    _Atomic uint32_t p_count;                      /* length of ps[] ever used */
    _Atomic uint32_t idle_p_count;                 /* atomic, written under lock */
    _Atomic uint32_t spinning;                     /* Ms that look for work on behalf of all */
    _Atomic uint32_t returned;                     /* in the global queue, those that ran before; written under lock */
    _Atomic bool stopping;                         /* set once, under lock */
    _Atomic bool attentive;                        /* the monitor looks at least every W_ATTENTIVE ns */
    _Atomic bool timely;                           /* likewise, for the sake of timers (T4) */
    bool hiding;                /* goroutines may wait in slots: the monitor could get them out; constant */
    _Atomic bool m_wanted;      /* a thread could not be made: the monitor tries again */
    _Atomic int64_t coarse_now; /* the monitor's last look at the clock */
    _Atomic int64_t last_return,
        return_gap;  /* from blocking regions without a P: the last, and how far apart (block.c) */
    int64_t quantum; /* constant */
    uint64_t seed;   /* constant */

    _Alignas(W_CACHE_LINE) _Atomic uint32_t monitor_word; /* futex: bumped to wake the monitor */
    int64_t stuck_since;         /* no thread could be made and nothing runs; 0: it is not so; monitor */
    int64_t found_at;            /* when a thread was last found blocked without a word; monitor */
    _Atomic bool drowsy;         /* it sleeps long, though a P is taken: nobody waited at its last look */
    _Atomic bool monitor_asleep; /* in a sleep that only a wake-up ends early enough */
    _Atomic uint32_t foreign;    /* calls of foreign threads under way */
    _Atomic uint32_t run;        /* number of the run, odd while it is up; never the same again */
    _Atomic uint64_t next_id;
    _Atomic uint64_t foreign_spawned; /* goroutines started by other threads */
    struct w_lock procs_lock;
    struct w_p *ps[W_MAX_PROCS]; /* constant once set; [0, p_count) */
};

extern struct w_sched w_sched;

/* ---- switch_*.S (the switch itself is in switch.h) --------------------------------------------------------------- */

/* Puts a first frame below top: the context then starts in entry(), and unwinders stop there. */
void *w_first_frame(void *top);

/* Sets the stack pointer to top, where a first frame would be, and starts anew in w_g_main. */
void w_restart(void *top) __attribute__((noreturn));

/* Calls fn(arg) in a frame whose caller is, for an unwinder, the context saved as sp. */
void w_walk_from(void *sp, void (*fn)(void *), void *arg);

/* The C function in which every goroutine starts (g.c). */
void w_g_main(void) __attribute__((noreturn));

/* Puts the floating-point control words to what a new thread has. */
void w_fp_reset(void);

/* ---- the current M ---------------------------------------------------------------------------------------------- */

extern __thread struct w_m *w_tls_m __attribute__((tls_model("initial-exec")));

/* The M of this thread, NULL on a foreign one. Dead after any call that may switch: read it again. The load is
 * opaque to the compiler, which would otherwise keep the thread's address across a switch. */
static inline struct w_m *w_m(void)
{
#if defined(__x86_64__)
    struct w_m *m;
    __asm__ volatile("movq w_tls_m@gottpoff(%%rip), %0\n\tmovq %%fs:(%0), %0" : "=r"(m));
    return m;
#elif defined(__aarch64__)
    struct w_m *m;
    __asm__ volatile("adrp %0, :gottprel:w_tls_m\n\tldr %0, [%0, #:gottprel_lo12:w_tls_m]\n\t"
                     "mrs x16, tpidr_el0\n\tldr %0, [x16, %0]"
                     : "=r"(m)::"x16");
    return m;
#else
#error "Weft knows x86-64 and aarch64"
#endif
}

/* ---- g.c -------------------------------------------------------------------------------------------------------- */

void w_gs_init(void);
void w_gs_free(void);
struct w_g *w_g_new(struct w_p *p);             /* p NULL: on a thread without one. NULL: no memory */
void w_g_recycle(struct w_p *p, struct w_g *g); /* ended, off its stack */
bool w_g_bind(struct w_p *p, struct w_g *g);    /* gives it a stack and a first frame */
void w_gs_flush(struct w_p *p);                 /* a P's free ones go back to all */
void w_gs_each(void (*fn)(struct w_g *g, void *arg), void *arg);
int w_g_start_member(struct w_p *p, struct w_scope *scope, weft_fn *fn, struct w_member *member, void *site);
int w_g_start_main(weft_fn *fn, void *arg, size_t stack_size);
const char *w_state_name(enum w_state s);
const char *w_reason_name(enum w_reason r);

/* ---- stack.c, guard.c ------------------------------------------------------------------------------------------- */

int w_stacks_init(size_t default_size);
void w_stacks_free(void);
int w_stack_class(size_t size); /* index, or -EINVAL */
size_t w_stack_size(int class);
size_t w_stack_guard_size(int class);
int w_stacks_reserve(uint32_t more_gs); /* promise stacks of the default class for that many more goroutines */
char *w_stack_get(int class);
void w_stack_put(int class, char *lo);
bool w_stack_cache_refill(struct w_p *p);
void w_stack_cache_flush(struct w_p *p, uint32_t keep);
bool w_stacks_trim(void); /* give back what was not needed since the last call; false: nothing left */
void *w_stack_top(int class, char *lo);
struct w_slab *w_stack_keep(int class, char *lo); /* the slab of that stack outlives w_stacks_free */
void w_slab_release(struct w_slab *slab);
int w_default_stack_class(void);
bool w_stacks_unguarded(void);

enum w_guard { W_GUARD_NONE, W_GUARD_PAGE };
enum w_guard w_guard_install(char *const *at, size_t n, size_t size); /* all or nothing */
void w_guard_init(void);

/* ---- m.c -------------------------------------------------------------------------------------------------------- */

int w_m_start(struct w_p *p, bool spinning); /* an M, woken or new, takes over p; -errno: p was made idle */
void w_m_stop(struct w_m *m);                /* sleeps until it has a P, or the run ends */
void w_m_stop_pinned(struct w_m *m, struct w_g *picked);
void w_m_start_pinned(struct w_m *m, struct w_g *g);
void w_m_acquire(struct w_m *m, struct w_p *p);
void w_ms_join(void);
void w_m_wake(struct w_m *m);

/* ---- p.c -------------------------------------------------------------------------------------------------------- */

int w_ps_init(uint32_t n);
void w_ps_free(void);
void w_p_idle_locked(struct w_p *p);
bool w_ps_have_work(void);
struct w_p *w_p_get_idle_locked(void);
bool w_p_retire(struct w_m *m);

/* ---- sched.c ---------------------------------------------------------------------------------------------------- */

void w_quit(struct w_m *m) __attribute__((noreturn));
void w_run(struct w_m *m, struct w_g *g);
void w_check_canary(const struct w_g *g);
struct w_g *w_pick(struct w_p *p);
struct w_g *w_pick_own(struct w_p *p);
struct w_g *w_pick_here(struct w_p *p);
struct w_g *w_events_turn(struct w_p *p);
bool w_work_to_share(void);
void w_ready(struct w_g *g);
void w_enqueue(struct w_p *p, struct w_g *g, enum w_kind kind);
void w_enqueue_all(struct w_p *p, struct w_g *first);
void w_enqueue_global(struct w_g *g, bool fresh);
void w_expose(struct w_p *p);
void w_share(struct w_p *p, struct w_g *g, enum w_kind kind);
void w_place_first(struct w_p *p, struct w_g *g);
bool w_m_outside(struct w_p *p, struct w_m *m);
bool w_rescue(struct w_p *p, struct w_m *m);
void w_wake_one(void);
void w_look_again(void);
void w_p_release(struct w_p *p);
uint32_t w_p_work(struct w_p *p);
struct w_m *w_enter_slow(struct w_m *m);
void w_after_yield(struct w_m *m, struct w_g *prev, void *arg);
void w_after_global(struct w_m *m, struct w_g *prev, void *arg);

/* ---- find.c ----------------------------------------------------------------------------------------------------- */

struct w_g *w_find(struct w_m *m);

/* ---- globq.c ---------------------------------------------------------------------------------------------------- */

void w_globq_put_locked(struct w_g *first, struct w_g *last, uint32_t n, bool fresh);
void w_globq_put(struct w_g *g, bool fresh);
void w_globq_put_many(struct w_g **gs, uint32_t n, bool fresh);
enum { W_GLOBQ_SHARE = W_RUNQ_SIZE / 2 }; /* the most that a P takes at once */
struct w_g *w_globq_get(struct w_p *p, uint32_t max);
struct w_g *w_globq_get_locked(struct w_p *p, uint32_t max);
void w_globq_adopt(struct w_p *p);

/* ---- block.c ---------------------------------------------------------------------------------------------------- */

struct w_m *w_block_end(struct w_m *m);
struct w_m *w_block_found_end(struct w_m *m);
bool w_p_take(struct w_p *p, struct w_m *m);   /* m blocks without a word */
void w_p_retake(struct w_p *p, struct w_m *m); /* if it is still m's: to somebody else */

/* ---- sysmon.c, run.c -------------------------------------------------------------------------------------------- */

enum { W_ATTENTIVE = 1000000 };
void *w_run_alloc(size_t size); /* memory that is given back when the run ends, if not before; NULL: none */
void w_run_free(void *memory);
void w_monitor(void);
void w_monitor_wake(void);
void w_stop(int result);
void w_stop_locked(int result);
void w_check_dead_locked(void);
int64_t w_thread_cpu(pid_t tid); /* processor time; 0 for tid 0 */
char w_thread_state(pid_t tid);  /* as the kernel tells it: R runs or wants to, S and D sleep; '?': it does not */

/* ---- foreign.c -------------------------------------------------------------------------------------------------- */

struct w_wait;
int w_foreign_enter(void);         /* a call of a thread that is no M; -EPERM: no runtime is up */
struct w_g *w_foreign_begin(void); /* likewise, but runtime or not; the G that stands for the thread */
void w_foreign_leave(void);        /* ends either */
void w_foreign_sleep(struct w_wait *wait, w_after *after, void *arg, const struct w_timer *timer);
void w_foreign_wake(struct w_g *g);
void w_wake_several(struct w_g *first);
void w_foreign_let_in(void);
void w_foreign_shut_out(void);
uint64_t *w_foreign_rng(void);

/* ---- chan.c ----------------------------------------------------------------------------------------------------- */

void w_chan_offer(weft_chan *ch, const void *value);
int w_wait_forever(struct w_g *g, enum w_reason reason);

/* ---- net.c ------------------------------------------------------------------------------------------------------ */

void w_net_init(void);

/* ---- topology.c, config.c --------------------------------------------------------------------------------------- */

int w_usable_cpus(const char *root); /* root: "" or a folder that stands in for / */
int w_config_from_env(weft_config *c);
bool w_debug_wants(const char *word); /* is it among those of WEFT_DEBUG? */

/* ---- overflow.c, unwind.c, dump.c ------------------------------------------------------------------------------- */

int w_overflow_init(void);
void w_overflow_done(void);
void w_report_overflow(const struct w_g *g, const void *from_pc);
void w_print_symbol(int fd, const void *pc);
void w_print_backtrace(int fd, void *sp, const void *from_pc);
void w_dump_all(int fd);
void w_report_leaks(void);

/* ---- small things ----------------------------------------------------------------------------------------------- */

/* Is a runtime up? Foreign threads ask; what follows from it holds only while they are counted (foreign.c). */
static inline bool w_up(void)
{
    return ld_seq(&w_sched.run) % 2 == 1; /* [FT-1] */
}

static inline void w_count(_Atomic uint64_t *c)
{
    st_relaxed(c, ld_relaxed(c) + 1); /* relaxed, no lock: a counter has one writer */
}

static inline void w_set_state(struct w_g *g, enum w_state s)
{
    st_relaxed(&g->state, (uint8_t)s); /* relaxed: hand-overs are ordered by the queue or lock that they go through */
}

/* Enters the runtime from a goroutine: from here until w_leave the M holds a P. NULL on a foreign thread. */
static inline struct w_m *w_enter(void)
{
    struct w_m *m = w_m();
    if (unlikely(m == NULL))
        return NULL;
    st_relaxed(&m->in_runtime, 1); /* relaxed: the monitor's membarrier orders it against the gate */
    w_compiler_barrier();
    if (unlikely((uintptr_t)ld_relaxed(&m->gate) <= (uintptr_t)W_GATE_REGION))
        return w_enter_slow(m);
    return m;
}

static inline void w_leave(void)
{
    st_release(&w_m()->in_runtime, 0); /* [GT-1] what we did to our P, for the monitor */
}

/* xorshift64*: good enough to spread thieves, 1 ns. */
static inline uint32_t w_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (uint32_t)(x * 0x2545F4914F6CDD1Dull >> 32);
}

#endif
