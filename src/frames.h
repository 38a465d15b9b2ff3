/* SPDX-License-Identifier: MIT */
/* Backtraces of stacks that others use, from registers and memory as data (frames.c). */
#ifndef W_FRAMES_H
#define W_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#if defined(__x86_64__)
enum { W_REGS = 17, W_REG_FP = 6, W_REG_SP = 7, W_REG_RA = 16 };
#else
enum { W_REGS = 32, W_REG_FP = 29, W_REG_SP = 31, W_REG_RA = 30 };
#endif

/* As DWARF numbers them. */
struct w_regs {
    uintptr_t r[W_REGS];
    uintptr_t pc;
    uint32_t known; /* a bit for each */
    bool called;    /* pc is where a call returns to, not where something was interrupted */
};

enum { W_STACK_WINDOW = 2048 };

/* A stack, of which parts are copied as they are needed. */
struct w_stack_view {
    uintptr_t lo, hi; /* nothing outside is looked at */
    bool ours;        /* it is the asker's, and stands still: it is read as it is, and nothing is guessed */
    uintptr_t at;     /* the part that was copied last */
    size_t size;
    uint64_t words[W_STACK_WINDOW / 8];
};

/* A return address, which may be signed in its upper bits on aarch64. */
static inline uintptr_t w_plain_address(uintptr_t pc)
{
#if defined(__aarch64__)
    return pc & (((uintptr_t)1 << 48) - 1);
#else
    return pc;
#endif
}

struct w_rows; /* what was learnt about addresses in code */

enum { W_ROWS_OF_DUMP = 12, W_ROWS_OF_M = 6 /* bits */ };

struct w_rows *w_rows_new(unsigned bits); /* that many can be kept; NULL: no memory */
void w_rows_free(struct w_rows *rows);
void w_rows_refresh(struct w_rows *rows,
                    unsigned long long objects); /* forgets all, if that number is another one now */

enum { W_TRACE_MAX = 48 };

struct w_trace {
    uintptr_t pc[W_TRACE_MAX]; /* from the innermost frame on; nothing of the runtime below the entry function */
    uint64_t exact;            /* a bit for each that was interrupted there: the others are where a call returns to */
    uint32_t n;
};

/* To the caller. false: there is none, or it cannot be found. */
bool w_leave_frame(struct w_rows *rows, struct w_regs *regs, struct w_stack_view *view);

/* How many frames; regs is used up. */
uint32_t w_frames(struct w_rows *rows, struct w_regs *regs, struct w_stack_view *view, struct w_trace *t);

/* The address that tells which line it is. */
static inline uintptr_t w_trace_site(const struct w_trace *t, uint32_t i)
{
    return t->pc[i] - (t->exact >> i & 1 ? 0 : 1);
}

bool w_regs_of_parked(struct w_regs *regs, uintptr_t sp,
                      struct w_stack_view *view); /* of a context that was switched away from */
void w_regs_of_context(struct w_regs *regs, const ucontext_t *uc);
void w_view_init(struct w_stack_view *view, uintptr_t lo, uintptr_t hi);

#endif
