/* SPDX-License-Identifier: MIT */
/* The functions that cross files, by the file that has them, and the way into the runtime and out of it. types.h has the
 * types. */
#ifndef WEFT_INTERNAL_H
#define WEFT_INTERNAL_H

#include "types.h"

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

/* One of the library's own, of high priority. It waits for descriptors alone, for with a timer it would keep a run alive. */
int w_go_service(const char *name, weft_fn *fn, void *arg);
const char *w_state_name(enum w_state s);
const char *w_reason_name(enum w_reason r);

/* ---- stack.c, guard.c ------------------------------------------------------------------------------------------- */

int w_stacks_init(size_t default_size);
void w_stacks_free(void);
int w_stack_class(size_t size); /* index, or -EINVAL */
size_t w_stack_size(int class);
size_t w_stack_guard_size(int class);
int w_stacks_reserve(uint32_t node, uint32_t more_gs); /* promise stacks of the default class for more goroutines */
char *w_stack_get(int class, uint32_t node);
void w_stack_put(int class, char *lo);
bool w_stack_cache_refill(struct w_p *p);
void w_stack_cache_flush(struct w_p *p, uint32_t keep);
bool w_stacks_trim(void); /* give back what was not needed since the last call; false: nothing left */
void *w_stack_top(int class, char *lo);
struct w_slab *w_stack_keep(int class, char *lo); /* the slab of that stack outlives w_stacks_free */
void w_slab_release(struct w_slab *slab);
int w_default_stack_class(void);
bool w_stacks_unguarded(void);
bool w_stacks_watched(void); /* some have no guard, or valgrind looks on: see to one before it is used */

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
void w_pin(struct w_m *m);
void w_unpin(struct w_m *m);
void w_m_wake(struct w_m *m);

/* ---- p.c -------------------------------------------------------------------------------------------------------- */

int w_ps_init(uint32_t n);
void w_ps_free(void);
void w_p_idle_locked(struct w_p *p);
bool w_ps_have_work(void);
struct w_p *w_p_get_idle_locked(const struct w_p *near); /* NULL: anywhere */
bool w_p_retire(struct w_m *m);

/* ---- sched.c ---------------------------------------------------------------------------------------------------- */

void w_quit(struct w_m *m) __attribute__((noreturn));
void w_run(struct w_m *m, struct w_g *g);
struct w_g *w_switch_target(struct w_m *m, const struct w_g *g, struct w_g *n);     /* of park.h */
struct w_m *w_switch_slow(struct w_m *m, struct w_g *n, w_after *after, void *arg); /* of park.h */
struct w_g *w_pick(struct w_p *p);
struct w_g *w_pick_own(struct w_p *p);
struct w_g *w_pick_here(struct w_p *p);
struct w_g *w_pick_first(struct w_p *p);
struct w_g *w_events_turn(struct w_p *p);
bool w_work_to_share(void);
void w_ready(struct w_g *g);
void w_enqueue_fresh(struct w_p *p, struct w_g *g); /* it never ran */
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
struct w_g *w_steal(struct w_p *p); /* one pass over the others */

/* ---- globq.c ---------------------------------------------------------------------------------------------------- */

void w_globq_put_locked(struct w_g *first, struct w_g *last, uint32_t n, enum w_line line);
void w_globq_put_one_locked(struct w_g *g, bool fresh);
void w_globq_put(struct w_g *g, bool fresh);
void w_globq_put_many(struct w_g **gs, uint32_t n, bool fresh);
enum { W_GLOBQ_SHARE = W_RUNQ_SIZE / 2 };             /* the most that a P takes at once */
struct w_g *w_globq_get(struct w_p *p, uint32_t max); /* HIGH, RAN, FRESH */
struct w_g *w_globq_get_any_locked(struct w_p *p);    /* whatever there is */
struct w_g *w_globq_take(enum w_line line);
void w_globq_move_locked(struct w_g *g, enum w_line from, enum w_line to);
void w_globq_adopt(struct w_p *p);

/* ---- preempt.c -------------------------------------------------------------------------------------------------- */

int w_preempt_init(void);
void w_preempt_done(void);
void w_ask(struct w_m *m, enum w_request request); /* its next runtime call, or the one that it is in, sees to it */
enum w_when { W_IF_AWAKE, W_IF_ON_CORE, W_AT_ONCE };
/* By signal, as if that thread made such a call: if it runs or waits for a core, if it runs on one just now, or at once because that is
 * known. p: only if that has not switched since the monitor looked. false: it was not sent one. (Where nobody is sent any: true.) */
bool w_interrupt(pid_t tid, struct w_p *p, enum w_when when);
void w_let_signals_in(struct w_m *m); /* unless who was stopped leaves to one who was, too, who does */
bool w_send(pid_t tid, void *value); /* that signal, with a value of somebody else's (look.c); false: it does not run */

/* ---- priority.c ------------------------------------------------------------------------------------------------- */

void w_urgent_ready(void); /* somebody of high priority is: somebody makes way, if no P is free */
bool w_make_way(void);     /* somebody is asked; false: there is nobody to ask */
enum w_when w_if_it_hears(const struct w_p *p, const struct w_m *m); /* for threads that sleep soon */
static inline bool w_uses_priorities(void)                           /* does the program, in this run? */
{
    return unlikely(__atomic_load_n(&weft_owners_, __ATOMIC_RELAXED) !=
                    0); /* relaxed: a mutex whose owner is not known lends nothing */
}
void w_set_class(struct w_g *g, int priority); /* of one that was never started */
void w_set_service(struct w_g *g);             /* likewise */
static inline int8_t w_level_of(int priority)
{
    return priority == WEFT_HIGH ? W_HIGH : priority == WEFT_LOW ? W_LOW : W_NORMAL;
}
void w_forget_class(struct w_g *g);                   /* it ends */
bool w_lend(struct w_g *g, int8_t level, bool first); /* false: it counts for nothing, it has as much of its own */
void w_repay(struct w_g *g);

/* ---- block.c ---------------------------------------------------------------------------------------------------- */

struct w_m *w_block_end(struct w_m *m);
struct w_m *w_block_found_end(struct w_m *m);
bool w_p_take(struct w_p *p, struct w_m *m);   /* m blocks without a word */
void w_p_retake(struct w_p *p, struct w_m *m); /* if it is still m's: to somebody else */

/* ---- sysmon.c, run.c -------------------------------------------------------------------------------------------- */

/* For the monitor: did its thread compute while we slept? As far as its clock tells: hardly or not known, mostly, until we came. */
enum w_computed { W_HARDLY, W_MOSTLY, W_TO_THE_LAST };
enum w_computed w_computed(const struct w_p *p);
bool w_computed_since_look(const struct w_p *p,
                           const struct w_m *m); /* for others: has m's thread, since it last looked? */

enum { W_ATTENTIVE = 1000000 };
enum { W_HURRY = 100000 };      /* ns: the monitor's time slice, the least that the kernel takes */
void *w_run_alloc(size_t size); /* memory that is given back when the run ends, if not before; NULL: none */
void w_run_free(void *memory);
void w_monitor(void);
void w_monitor_wake(void);
void w_stop(int result);
void w_stop_locked(int result);
void w_check_dead_locked(void);

/* ---- thread.c: what the kernel says of a thread ------------------------------------------------------------------- */

int64_t w_thread_cpu(pid_t tid);                                          /* processor time; 0 for tid 0 */
bool w_thread_on_core(pid_t tid);                                         /* now */
void w_thread_text(pid_t tid, const char *file, char *text, size_t size); /* what /proc says of it; "": nothing */
char w_thread_state(pid_t tid); /* R runs or wants to, S and D sleep; '?': it is not known */
bool w_thread_in_call(pid_t tid,
                      char state); /* of the kernel; not if it waits for a page, or a debugger has stopped it */
long w_thread_naps(pid_t tid);     /* how often it has gone to sleep; -1: it is not known */

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

/* ---- places.c (its types are in topology.h) ---------------------------------------------------------------------- */

struct w_places;
void w_places_init(void);
int w_places_update(uint32_t n);
void w_places_free(void);
void w_places_idle_locked(const struct w_p *p, bool idle);
struct w_p *w_nearest_idle_locked(const struct w_places *s, const struct w_p *p);
void w_m_settle(struct w_m *m, const struct w_p *p);
uint32_t w_p_node_slow(const struct w_places *s, const struct w_p *p);
void w_memory_on(uint32_t node, void *at, size_t size);

/* ---- quota.c, config.c ------------------------------------------------------------------------------------------ */

int w_usable_cpus(const char *root); /* root: "" or a folder that stands in for / */
int w_config_from_env(weft_config *c);
int w_debug_from_env(struct w_debug *d);
int w_env_number(const char *name, uint64_t max, uint64_t *out); /* left alone if the variable is not set */

/* ---- comm.c ----------------------------------------------------------------------------------------------------- */

void w_comm_mark(struct w_g *g); /* that has a name, and never ran */
void w_comm_of_m(const struct w_m *m);
void w_comm_of_g(const struct w_g *g);
void w_comm_monitor(void (*monitor)(void)); /* calls it, under the name of the monitor */

/* ---- web/server.c: the live picture ----------------------------------------------------------------------------- */

int w_web_settle(void); /* -EINVAL: WEFT_HTTP makes no sense */
void w_web_begin(void); /* with the run, if WEFT_HTTP says so */
void w_web_end(void);   /* nothing runs any more */

/* ---- overflow.c, unwind.c, dump.c ------------------------------------------------------------------------------- */

int w_overflow_init(void);
void w_overflow_done(void);
void w_report_overflow(const struct w_g *g, const void *from_pc);
void w_print_symbol(int fd, const void *pc);
void w_print_backtrace(int fd, void *sp, const void *from_pc);
void w_report_leaks(void);
void w_report_deadlock(void);

/* ---- deliver.c --------------------------------------------------------------------------------------------------- */

/* All of it, to a descriptor with O_NONBLOCK; -ETIMEDOUT: it takes nothing, and somebody is in a hurry (NULL: always). In a handler too. */
int w_deliver(int fd, const char *data, size_t n, bool (*hurried)(void));

/* ---- profile.c -------------------------------------------------------------------------------------------------- */

int w_profile_begin(void); /* of a run: what the environment asks for */
void w_profile_end(void);
void w_profile_attach(struct w_m *m); /* its own thread */
void w_profile_detach_locked(struct w_m *m);

/* ---- sigquit.c -------------------------------------------------------------------------------------------------- */

void w_sigquit_init(void);
void w_sigquit_done(void);
void w_sigquit_serve(void); /* monitor: dumps and ends the process, if somebody has sent SIGQUIT */

/* ---- small things ----------------------------------------------------------------------------------------------- */

/* Is a runtime up? Foreign threads ask; what follows from it holds only while they are counted (foreign.c). */
static inline bool w_up(void)
{
    return ld_seq(&w_sched.run) % 2 == 1; /* [FT-1] */
}

/* Whatever p runs next does not run on the slice of what ran before. */
static inline void w_begin_slice(struct w_p *p)
{
    st_relaxed(&p->tick, ld_relaxed(&p->tick) + 1); /* relaxed: the monitor only compares it with what it saw before */
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

/* Enters it from a goroutine without a look at what is wanted of the M, which may have no P. false: its run has left it behind, and it is
 * outside still. From here on nobody abandons it, so its G is there. */
static inline bool w_enter_quietly(struct w_m *m)
{
    bool abandoned = false;
    st_relaxed(&m->in_runtime, 1); /* relaxed: as in w_enter */
    w_compiler_barrier();
    if (unlikely((uintptr_t)ld_relaxed(&m->gate) <= (uintptr_t)W_GATE_REGION)) {
        w_lock(&w_sched.lock, W_RANK_SCHED);
        abandoned = m->abandoned;
        w_unlock(&w_sched.lock, W_RANK_SCHED);
    }
    if (unlikely(abandoned))
        st_release(&m->in_runtime, 0); /* [GT-1] */
    return !abandoned;
}

/* Leaves it, whatever is wanted of us: to be back soon, or to go where nobody is preempted. */
static inline void w_step_out(struct w_m *m)
{
    st_release(&m->in_runtime, 0); /* [GT-1] what we did to our P, for the monitor */
}

/* Leaves it. Somebody may have asked for our P meanwhile, and what we run may not come back soon. m: this thread's still. */
static inline void w_leave_on(struct w_m *m)
{
    if (unlikely(ld_relaxed(&m->gate) == NULL))
        m = w_enter_slow(m);
    w_step_out(m);
}

static inline void w_leave(void)
{
    w_leave_on(w_m());
}

/* Around a call that may block and that the end of the run waits for, because others rely on its end; by any thread. 0, or -EPERM: no
 * runtime is up. (block.c) */
int w_stay_begin(void);
void w_stay_end(void);

/* Of a call that any thread may make and that does not park. 0, or -EPERM: no runtime is up. m: what w_exit_call wants. */
static inline int w_enter_call(struct w_m **m)
{
    *m = w_enter();
    return *m != NULL ? 0 : w_foreign_enter();
}

static inline void w_exit_call(const struct w_m *m)
{
    if (m != NULL)
        w_leave();
    else
        w_foreign_leave();
}

/* The part of the pools that a P takes from. p NULL: a thread without one, or before there are any. */
static inline uint32_t w_p_node(const struct w_p *p)
{
    struct w_places *s = ld_acquire(&w_sched.places); /* [TP-1] */
    return likely(s == NULL) || p == NULL ? 0 : w_p_node_slow(s, p);
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
