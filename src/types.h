/* SPDX-License-Identifier: MIT */
/*
 * The types that cross files: goroutine (G), OS thread (M), logical processor (P), and the scheduler's shared state.
 * No logic lives here; weft_internal.h has the functions. Who owns a G is told by its state:
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
#ifndef W_TYPES_H
#define W_TYPES_H

#include "atomic.h"
#include "fatal.h"
#include "fresh.h"
#include "lock.h"
#include "probe.h"
#include "runq.h"
#include "sanitize.h"
#include "stats.h"
#include "sys.h"
#include "timers.h"
#include "trace.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft.h>

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { W_CACHE_LINE = 64, W_PAGE = 4096, W_MAX_PROCS = 1024, W_MAX_NODES = 32 };
enum { W_ALT_STACK = 64 << 10 }; /* a signal frame with AVX-512 and AMX is 12 KiB; unwinding needs a few more */

struct w_g;
struct w_m;
struct w_p;
struct w_scope;
struct w_member;
struct w_bias;
struct w_samples;

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
    W_G_PINNED = 1,     /* runs on g->pinned only */
    W_G_MAIN = 2,       /* its return ends the run */
    W_G_SPECIAL = 4,    /* has a name or a stack of another class: the slow way out */
    W_G_CANARY = 8,     /* its stack has no guard page: the lowest word is checked at each switch */
    W_G_BLOCKING = 16,  /* g->blocks > 0 */
    W_G_FOREIGN = 32,   /* stands for a thread that is no M (foreign.c); it never runs */
    W_G_MEMBER = 64,    /* started in a scope: fn and arg are scope.c's */
    W_G_SCOPED = 128,   /* g->scope or g->shields may be set: its end is told to scope.c */
    W_G_STEADY = 256,   /* g->steady > 0: it is not preempted (preempt.c) */
    W_G_CLASSED = 512,  /* g->priority is or was not WEFT_NORMAL (priority.c) */
    W_G_SHOWN = 1024,   /* its name is its thread's (comm.c): it comes from an M's own stack, and goes there */
    W_G_SERVICE = 2048, /* the library's own: what it waits for keeps no run alive, and it counts for nobody */
    W_G_STOPPED = 4096, /* a signal stopped it: it goes on through the kernel's frame (preempt.c) */
    W_G_APART = W_G_PINNED | W_G_SHOWN, /* nobody switches to or from it but an M's own stack */
    W_G_REGIONS = W_G_PINNED | W_G_BLOCKING | W_G_SCOPED | W_G_STEADY | W_G_CLASSED, /* its end has more to do */
};

/* Who runs before whom (globq.c). A goroutine of normal priority is HEAVY from when it was preempted until it next waits. */
enum w_level { W_LOW = -2, W_HEAVY = -1, W_NORMAL = 0, W_HIGH = 1 };

/* Two cache lines: the first is what a start and a switch touch, the second what only dumps and slow ways need.
 * Memory of Gs is never unmapped while a runtime is up, so a stale pointer may be read, though it may be reused. */
struct w_g {
    void *sp;              /* saved stack pointer; owner of the state. NULL: no stack yet, bound at the first run */
    struct w_g *link;      /* next in the global queue or a free list; guard: theirs */
    _Atomic uint8_t state; /* enum w_state; written by its owner, read by dumps */
    _Atomic int8_t level;  /* enum w_level; owner of the state, and who lends it a priority (priority.c) */
    uint16_t flags;        /* enum w_flags; owner of the state */
    int err;               /* errno while it is not running; owner of the state */
    weft_fn *fn;           /* entry; constant while alive */
    void *arg;             /* its argument; constant while alive */
    char *stack_lo;        /* lowest usable byte, NULL: none bound; owner of the state */
    uint64_t id;           /* constant while alive */
    void *started_at;      /* return address of the call that started it; constant while alive */

    _Alignas(W_CACHE_LINE) const char *name; /* malloc'ed or NULL; constant while alive */
    struct w_m *pinned;                      /* the M that alone may run it; the goroutine itself */
    _Atomic(const void *) waits_on;          /* the object, while WAITING; atomic: who lends a priority reads it */
    int64_t since;                           /* when the present wait or blocking region began; owner of the state */
    struct w_scope *scope;                   /* the innermost one that it runs in, or NULL; the goroutine itself */
    _Atomic uint64_t ticket; /* of its present wait (waiter.h); atomic: whoever ends the wait swaps it */
    uint16_t pins;           /* depth of weft_pin; the goroutine itself */
    uint16_t blocks;         /* depth of weft_block_enter; the goroutine itself */
    uint16_t shields;        /* depth of weft_shield; the goroutine itself */
    uint16_t steady;         /* depth of weft_preempt_off; the goroutine itself */
    uint16_t handoffs;       /* blocking regions that give the P away at once, and how many the next time (block.c); */
    uint16_t next_handoffs;  /* the goroutine itself */
    _Atomic uint8_t reason;  /* enum w_reason; valid while WAITING; atomic: likewise */
    uint8_t stack_class;     /* of stack_lo: the default one unless SPECIAL; owner of the state */
    int8_t priority;         /* WEFT_LOW, WEFT_NORMAL, WEFT_HIGH: its own; w_sched.lock once it runs */
    uint8_t loans;           /* mutexes for which it was lent a level (priority.c); w_sched.lock */
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

/* What an M is asked for, with its gate closed. */
enum w_request {
    W_GO_ON,
    W_LET_RUN,   /* let others run, and take its turn again: somebody has a better right */
    W_HEAVY_NOW, /* likewise, but it has used its share */
};

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
    struct w_g *picked;                  /* a goroutine taken from a queue that its own stack must deal with; owner M */
    struct w_g *pinned_g;                /* the goroutine that is pinned here; owner M */
    _Atomic(struct w_p *) blocked_p;     /* in a blocking region: the P that it had; owner M, and the end of a run */
    bool gave_away;                      /* in a blocking region: it gave its P away at once; owner M */
    _Atomic uint8_t preempt;             /* enum w_request; atomic: others set, M clears */
    _Atomic(struct w_tape *) tape;       /* its own (trace.h), or NULL; written under w_sched.lock */
    _Atomic(struct w_samples *) samples; /* its own (profile.c), or NULL; written under w_sched.lock */
    bool holds_tls; /* what it is about to be stopped at holds an address of this thread's; owner M (preempt.c) */
    bool by_signal; /* what it is asked for, a signal has brought to it; owner M (preempt.c) */
    bool lost;      /* it blocked without a word, and its P was taken (block.c); w_sched.lock, then owner M */
    bool abandoned; /* the run ended while it was blocked: touch nothing shared. w_sched.lock */

    struct w_p *next_p;              /* handed over with a wake-up; w_sched.lock, then owner M */
    bool next_spinning;              /* likewise: counted as spinning by the waker */
    _Atomic uint32_t wake;           /* futex: 0 asleep or about to be, 1 woken */
    struct w_m *link;                /* in the list of idle Ms; w_sched.lock */
    bool idle;                       /* is in that list; w_sched.lock */
    struct w_m *all_prev, *all_next; /* all Ms; w_sched.lock */
    struct w_p *last_p;              /* the P that it held last, or holds; owner M */
    _Atomic uint32_t bound;  /* the node that it keeps to and 1, 0: any; owner M, read under w_sched.lock as a hint */
    _Atomic uint32_t looked; /* how often it was stopped outside the runtime, to be looked at; atomic: owner M writes */
    int64_t cpu_at_stop;     /* processor time when the run was stopped; w_sched.lock */
    int64_t cpu_seen;        /* processor time at the last look at the end of the run; w_sched.lock */
    uint8_t looks_ran;       /* looks since which it had run; w_sched.lock */
    uint8_t looks_slept;     /* looks in a row that found it asleep; w_sched.lock */
    struct w_slab *keep;     /* abandoned: the slab that holds the stack it is on */
    uint64_t taken_at;       /* lost: when, in ticks, if that is traced; w_sched.lock, then owner M */
    int timer;               /* that profiles it, in the kernel, if `timed`; w_sched.lock */
    bool timed;              /* likewise */
    uint32_t id;             /* constant */
    _Atomic pid_t tid;       /* 0 until the thread has begun, then constant */
    pthread_t thread;        /* constant */
    const _Atomic uint32_t
        *cpu;        /* the CPU that the thread is on, or was when it was last outside the kernel; or NULL. Constant */
    void *alt_stack; /* W_ALT_STACK bytes, for signals; constant */
    struct w_rows *rows;       /* for walks through stacks that were stopped here (preempt.c); owner M */
    uint64_t mask;             /* masked: the thread's signal mask, but for SIGURG; owner M */
    bool masked;               /* SIGURG is blocked since a goroutine was stopped here (preempt.c); owner M */
    uintptr_t own_at, own_end; /* the thread's own stack and thread-local storage, 0: not known; constant */
    struct w_m_counters count;
    const struct w_topology *bound_in; /* whose mask of the node `bound` it has; owner M */
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
    W_ATTN_AGE = 1,    /* a quantum has passed: let the old ones have their turn */
    W_ATTN_RETIRE = 2, /* give up this P; it is beyond the number of Ps */
    W_ATTN_LOW = 4,    /* with W_ATTN_AGE: those of low priority too, and urgent ones give way to the rest */
};

enum { W_INSIDE = 8 };       /* a select over more channels than that takes the other locks in the ordinary way */
enum { W_STACK_CACHE = 64 }; /* 64 hot stacks: 256 KiB, what a second-level cache keeps */

struct w_p {
    /* Owner line: the M that holds it. */
    _Alignas(W_CACHE_LINE) _Atomic(struct w_g *) slot; /* runs next; holder, and the monitor through the gate */
    _Atomic uint32_t attn;                             /* enum w_attn bits; atomic: anybody sets, holder clears */
    _Atomic uint32_t tick;                             /* slices begun; atomic: monitor reads */
    uint32_t picks;                                    /* goroutines picked, hand-offs too; holder */
    uint32_t fair_pick;                                /* the one of them that is next out of turn (sched.c); holder */
    struct w_g *free_gs;                               /* ended goroutines, newest first; holder */
    uint32_t free_g_count;                             /* holder */
    uint32_t stack_count;                              /* of stack[]; holder */
    uint64_t id_next, id_end;                          /* numbers for new goroutines; holder */
    uint64_t rng;                                      /* holder */
    uint32_t id;                                       /* constant */
    enum w_kind slot_kind;                             /* of slot; holder */
    _Atomic int8_t level;                              /* of the goroutine that runs here; atomic: holder writes */
    bool owes;                                         /* the next pick is no urgent one (age); holder */
    bool placed_first;                                 /* who is in the slot is (w_place_first); holder */
    uint32_t lowered;      /* how often others followed urgent ones here, or nobody; holder */
    uint32_t lowered_seen; /* what that was when it was last looked at (age); holder */
    _Atomic uint32_t
        no_defer; /* so many lone goroutines get a thread at once (sched.c); monitor sets, holder counts down */

    _Alignas(W_CACHE_LINE) struct w_counters count;
    _Atomic(struct w_m *) m;          /* its holder; atomic: monitor reads */
    _Atomic(struct w_m *) blocked_by; /* its holder is in a blocking region; whoever swaps it to NULL has the P */
    _Atomic int64_t asked_at;         /* when what runs here was last interrupted; 0: it was not; atomic, a hint */
    _Atomic int64_t owed_until;       /* until then what runs here is not preempted for others; atomic: holder writes */
    enum w_pstatus status;            /* w_sched.lock */
    struct w_p *link;                 /* in the list of idle Ps; w_sched.lock */

    /* What the monitor remembers of its last look. Monitor. */
    uint32_t seen_tick;
    uint64_t seen_switches, seen_own; /* all, and those that goroutines made by themselves, with their regions */
    struct w_g *seen_slot;
    int64_t seen_at;     /* when seen_tick was first seen */
    int64_t switched_at; /* likewise seen_switches */
    int64_t urged_at;    /* when the monitor first asked it for somebody of high priority since then, or 0 */
    int64_t aged_at;
    uint8_t ages;       /* how often a quantum has passed */
    int64_t blocked_at; /* when blocked_seen was first seen */
    struct w_m *blocked_seen;
    struct w_m *still_m; /* it has not switched since the last look */
    int64_t still_since; /* when that one's clock was first seen as it was at the last look */
    _Atomic(struct w_m *)
        read_m; /* whose clock was read, outside the runtime; atomic, as the next four: hints for others */
    _Atomic int64_t read_cpu;          /* the processor time of its thread */
    _Atomic int64_t read_at;           /* when */
    _Atomic int64_t past_cpu, past_at; /* likewise at the look before; 0: it was another one then, or it has switched */
    int64_t gained;                    /* since the look before; -1: it was another one then, or it has switched */
    long naps;         /* how often its thread had slept, at an earlier look; -1: likewise, or not known */
    int64_t naps_cpu;  /* its processor time then */
    int64_t wants_cpu; /* that time when it was last seen to wait for a core; -1: likewise */
    int64_t wants_at;  /* when that was */

    _Atomic(const struct w_bias *)
        inside[W_INSIDE];      /* locks that its holder has gone into as the owner (bias.h); atomic:
                                                        holder writes, whoever withdraws a bias reads */
    uint32_t inside_count;     /* holder */
    _Atomic uint32_t unbiased; /* so many new locks are not its own (bias.h); atomic: others wanted one that was */
    int32_t linger_hope;   /* how often an M found something here just before it would have slept (sched.c); holder */
    uint32_t linger_skips; /* holder */
    uint32_t ring_batch; /* file calls that ended and were put here together, less those made since (uring.c); holder */
    _Atomic uint32_t
        io_waits; /* begun less ended here: of all Ps together, goroutines that wait for descriptors; holder */
    struct w_timers timers; /* what is to happen at a time (timer.c) */

    char *stack[W_STACK_CACHE]; /* free stacks of the default class, hottest last; holder */
    struct w_runq runq;         /* woken and yielding ones, in turn */
    struct w_fresh fresh;       /* started ones, newest first */

    /* Cold. */
    struct w_p *prev;              /* in the list of idle Ps; w_sched.lock */
    uint32_t passes;               /* over the others, for something to steal; holder */
    _Atomic uint64_t stolen_at[4]; /* of count.stolen, by enum w_distance; 0 where there are no places; holder */
};

/* ---- the scheduler ---------------------------------------------------------------------------------------------- */

struct w_glist {
    struct w_g *head, *tail;
};

/* The lists of the global queue, in the order in which they are served (globq.c). */
enum w_line {
    W_LINE_HIGH,
    W_LINE_RAN,   /* of normal priority, and ran before */
    W_LINE_FRESH, /* likewise, and never ran */
    W_LINE_HEAVY,
    W_LINE_LOW,
    W_LINES
};

struct w_globq {
    struct w_glist list[W_LINES];
    _Atomic uint32_t lens[W_LINES]; /* atomic so that they may be peeked at without the lock */
    _Atomic uint32_t len;           /* of all together; likewise */
    uint32_t turn;
};

/* The words of WEFT_DEBUG (config.c). */
struct w_debug {
    bool any;           /* there is one */
    bool fifo;          /* no slots, and fresh ones in turn, for comparison */
    bool leaks;         /* say who is alive when the run ends */
    bool comm;          /* threads have the names of the goroutines that they run (comm.c) */
    int64_t schedtrace; /* the period of a line about what goes on; 0: none */
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
    uint32_t m_serial, m_failed;  /* Ms that were to be made, and for which there was no thread; lock */
    uint32_t busy_ps;             /* Ps that are neither idle nor dead; lock */
    int32_t retaken;              /* goroutines in blocking regions whose P was taken; lock */
    bool main_exited;             /* weft_exit in the main goroutine; lock */
    int result;                   /* of weft_run; lock */
    int64_t stopped_at;           /* when stopping was set; lock */

    _Alignas(W_CACHE_LINE) _Atomic uint32_t procs; /* number of Ps wanted; atomic, written under lock */
    _Atomic uint32_t p_count;                      /* length of ps[] ever used */
    _Atomic uint32_t idle_p_count;                 /* atomic, written under lock */
    _Atomic uint32_t spinning;                     /* Ms that look for work on behalf of all */
    _Atomic uint32_t soon;      /* in the global queue: HIGH and RAN, who do not stay there; under lock */
    _Atomic bool stopping;      /* set once, under lock */
    _Atomic bool attentive;     /* the monitor looks at least every W_ATTENTIVE ns */
    _Atomic bool timely;        /* likewise, for the sake of timers (T4) */
    bool hiding;                /* goroutines may wait in slots: the monitor could get them out; constant */
    struct w_debug debug;       /* what WEFT_DEBUG asks for; constant */
    _Atomic bool m_wanted;      /* a thread could not be made: the monitor tries again */
    _Atomic int64_t coarse_now; /* the monitor's last look at the clock */
    _Atomic int64_t last_return,
        return_gap;                    /* from blocking regions without a P: the last, and how far apart (block.c) */
    _Atomic(struct w_places *) places; /* who is near whom; NULL: all are; written under lock */
    uint32_t nodes;                    /* parts of the pools of memory; constant */
    int64_t quantum;                   /* constant */
    uint64_t seed;                     /* constant */
    int64_t began_at;                  /* constant */

    _Alignas(W_CACHE_LINE) _Atomic uint32_t monitor_word; /* futex: bumped to wake the monitor */
    int64_t stuck_since;         /* no thread could be made and nothing runs; 0: it is not so; monitor */
    long slack;                  /* timer slack that the program's threads have; written before there are others */
    pthread_t monitor;           /* constant while a run is up */
    int64_t looked_at;           /* when its look began; monitor */
    int64_t looked_for, slept;   /* how long the look before took, and the sleep after it; monitor */
    int64_t oversleeps;          /* by how much it wakes up late, in the mean; monitor */
    int64_t found_at;            /* when a thread was last found blocked without a word; monitor */
    int64_t stirred_at;          /* when last not all that run did nothing but compute; monitor */
    _Atomic bool drowsy;         /* it sleeps long, though a P is taken: nobody waited at its last look */
    _Atomic bool monitor_asleep; /* in a sleep that only a wake-up ends early enough */
    _Atomic uint32_t foreign;    /* calls of foreign threads under way */
    _Atomic uint32_t run;        /* number of the run, odd while it is up; never the same again */
    _Atomic uint64_t next_id;
    _Atomic uint64_t foreign_spawned; /* goroutines started by other threads */
    _Atomic uint64_t polls, events;   /* looks at the descriptors by threads without a P, and what they told */
    _Atomic uint64_t signals;         /* sent, to make goroutines let others run */
    struct w_m_counters ended_count;  /* of the Ms that have ended; lock */
    struct w_lock procs_lock;
    struct w_p *ps[W_MAX_PROCS]; /* constant once set; [0, p_count) */
};

extern struct w_sched w_sched __attribute__((visibility("hidden"))); /* else its address is looked up each time */

#endif
