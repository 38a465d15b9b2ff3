/* SPDX-License-Identifier: MIT */
/*
 * A model checker for lock-free code: the real code, a few threads with short programs, every execution that RC11, the
 * repaired memory model of C11, allows.
 *
 * This header stands in the place of atomic.h, so that each atomic operation is a call into the checker; it is included
 * before the code that is to be checked. The checker tries each order of the operations of all threads, and for each
 * load each value that it may return. rc11.c says how, and what its memory is.
 *
 *      static const struct rc11_program p = {.run = run, .check = check, .location_of = location_of, ...};
 *      CHECK(rc11_holds(&p, &count));
 *
 *   run(t)           the program of thread t. It is run again and again from its beginning and often left in the middle
 *                    by longjmp: apart from atomics it uses nothing of other threads, and it forgets what it noted.
 *   check()          looks at an execution that has ended: what each operation read and wrote (rc11), and what run()
 *                    noted. A demand that is not met ends the search.
 *   location_of(at)  the number of an atomic; only their addresses are used, their values are in the checker.
 *
 * What is asked of the code: an atomic is written by one thread alone, or by swaps alone, and holds 32 bits or a
 * pointer. A check that never fails proves nothing: a program can be given a breakage, and then must not hold.
 */
#ifndef RC11_H
#define RC11_H
#define W_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

/* ---- the operations --------------------------------------------------------------------------------------------- */

enum rc11_order { RELAXED, ACQUIRE = 1, RELEASE = 2, ACQ_REL = 3, TOTAL_ORDER = 4, SEQ = 7 }; /* bits */
enum rc11_what { LOAD, STORE, SWAP, CAS };

uint64_t rc11_perform(enum rc11_what what, enum rc11_order order, void *at, uint64_t value);
bool rc11_compare_and_swap(enum rc11_order order, void *at, uint32_t *expected, uint32_t value);

#define VALUE_OF(p)          __typeof__((void)0, *(p)) /* without _Atomic */
#define BITS(v)              ((uint64_t)(uintptr_t)(v))
#define LD(order, p)         ((VALUE_OF(p))(uintptr_t)rc11_perform(LOAD, order, (void *)(p), 0))
#define ST(order, p, v)      ((void)rc11_perform(STORE, order, (void *)(p), BITS(v)))
#define ld_relaxed(p)        LD(RELAXED, p)
#define ld_acquire(p)        LD(ACQUIRE, p)
#define ld_seq(p)            LD(SEQ, p)
#define st_relaxed(p, v)     ST(RELAXED, p, v)
#define st_release(p, v)     ST(RELEASE, p, v)
#define xchg_seq(p, v)       ((void)rc11_perform(SWAP, SEQ, (void *)(p), BITS(v)))
#define cas_release(p, o, v) rc11_compare_and_swap(RELEASE, (void *)(p), o, v)
#define cas_acq_rel(p, o, v) rc11_compare_and_swap(ACQ_REL, (void *)(p), o, v)
#define cas_seq(p, o, v)     rc11_compare_and_swap(SEQ, (void *)(p), o, v)

/* ---- a program, and what is broken in it ------------------------------------------------------------------------ */

enum { RC11_THREADS = 3, RC11_LOCATIONS = 6, RC11_OPS = 64, RC11_MESSAGES = 32 };

struct rc11_breakage {
    int what, location, thread; /* which operations, -1 is any */
    enum rc11_order without;    /* these bits are taken away from their order */
    bool blind;                 /* each compare-and-swap of thread 0 becomes a store */
};

struct rc11_program {
    void (*run)(int t);
    void (*check)(void);
    uint8_t (*location_of)(const void *at);
    uint64_t initial[RC11_LOCATIONS];
    int8_t writer[RC11_LOCATIONS]; /* the only thread that writes there, or -1 */
    struct rc11_breakage broken;
};

struct rc11_count {
    uint64_t programs, states;
    double schedules;
};

/* Explores a program: is every demand met? Adds to count. */
bool rc11_holds(const struct rc11_program *p, struct rc11_count *count);

/* ---- for run() -------------------------------------------------------------------------------------------------- */

/* How many operations its thread has done. */
uint8_t rc11_position(void);

/* The same at the beginning of a call, in which a loop reads the same old message twice at most. */
uint8_t rc11_call_begins(void);

/* ---- for check() ------------------------------------------------------------------------------------------------ */

/* How much is known: the last message of each location, the operations of each thread. */
struct rc11_view {
    uint8_t message[RC11_LOCATIONS], ops[RC11_THREADS];
};

struct rc11_message {
    uint64_t value;
    struct rc11_view carries; /* what an acquire load learns */
    struct rc11_view writer;  /* what its writer knew */
};

struct rc11_op {
    enum rc11_what what;
    enum rc11_order order;
    uint8_t location, call; /* call: number of the operation with which it began */
    uint64_t value, expected;
};

struct rc11_result {
    struct rc11_op op;
    uint64_t value;
    bool won;               /* a compare-and-swap that did */
    int8_t read, wrote;     /* messages, or -1 */
    struct rc11_view knows; /* the thread, afterwards */
};

/* The execution as far as it went. */
struct rc11_execution {
    struct rc11_result results[RC11_THREADS][RC11_OPS];
    struct rc11_message memory[RC11_LOCATIONS][RC11_MESSAGES];
    uint8_t written[RC11_LOCATIONS]; /* number of messages */
    const char *violation;           /* the first demand that was not met, or NULL */
};

extern struct rc11_execution rc11;

void rc11_demand(bool cond, const char *what);
void rc11_print(const char *const *location_names);

#endif
