/* SPDX-License-Identifier: MIT */
/*
 * Walking a stack that somebody else uses, and may be using right now.
 *
 * The unwinder of the compiler's runtime follows the pointers that it finds, and a stack that changes under it leads it anywhere. This one
 * takes registers and memory as data: every word of the stack is copied through w_peek, and only from between the bounds of that one
 * stack. The unwind tables that it reads belong to objects that are loaded. So a walk through nonsense ends, or says nonsense, and never
 * faults. What a walk says is true if the stack stood still; its caller looks whether it did (census.c, look.c).
 *
 *      pc ──> row: how to find the caller's frame (cfi.c)
 *      row + registers + stack ──> the caller's registers and pc, and so on, until a row says that there is no caller
 *
 * Registers may be unknown: of a thread that sleeps in the kernel only sp and pc can be had. If a frame can be found only through the
 * frame pointer, and that is not known, the next word on the stack that lies where a return address would and is one is taken
 * for it (guess).
 *
 * A signal's frame is known by the code that it returns to, and its registers are taken from there.
 */
#include "frames.h"
#include "cfi.h"
#include "peek.h"
#include "preempt.h"
#include "sigframe.h"
#include <string.h>

/* ---- the stack -------------------------------------------------------------------------------------------------- */

void w_view_init(struct w_stack_view *view, uintptr_t lo, uintptr_t hi)
{
    view->lo = lo;
    view->hi = hi;
    view->ours = false;
    view->at = view->size = 0;
}

static bool load(struct w_stack_view *v, uintptr_t at, uintptr_t *value)
{
    if (at % sizeof *value != 0 || at < v->lo || v->hi < sizeof *value || at > v->hi - sizeof *value)
        return false;
    if (v->ours) {
        w_peek_words(value, (const void *)at, sizeof *value);
        return true;
    }
    if (at < v->at || at + sizeof *value > v->at + v->size) {
        size_t size = v->hi - at < sizeof v->words ? v->hi - at : sizeof v->words;
        v->size = 0;
        if (!w_peek(v->words, at, size))
            return false;
        v->at = at;
        v->size = size;
    }
    *value = v->words[(at - v->at) / sizeof *value];
    return true;
}

/* ---- expressions ------------------------------------------------------------------------------------------------ */

enum { /* DW_OP_ */
       OP_DEREF = 0x06,
       OP_CONST1U = 0x08,
       OP_CONST1S = 0x09,
       OP_AND = 0x1a,
       OP_MINUS = 0x1c,
       OP_PLUS = 0x22,
       OP_PLUS_UCONST = 0x23,
       OP_SHL = 0x24,
       OP_GE = 0x2a,
       OP_LIT0 = 0x30,
       OP_LIT31 = 0x4f,
       OP_BREG31 = 0x8f,
};

struct values {
    uint64_t v[8];
    unsigned n;
    bool well;
};

static void push(struct values *s, uint64_t value)
{
    s->well &= s->n < 8;
    if (s->well)
        s->v[s->n++] = value;
}

static uint64_t pop(struct values *s)
{
    s->well &= s->n > 0;
    return s->well ? s->v[--s->n] : 0;
}

static void combine(struct values *s, uint8_t op)
{
    uint64_t b = pop(s), a = pop(s);
    switch (op) {
    case OP_AND:
        push(s, a & b);
        break;
    case OP_MINUS:
        push(s, a - b);
        break;
    case OP_PLUS:
        push(s, a + b);
        break;
    case OP_SHL:
        push(s, b < 64 ? a << b : 0);
        break;
    case OP_GE:
        push(s, (int64_t)a >= (int64_t)b);
        break;
    default:
        s->well = false;
    }
}

/* What compilers and linkers write for the frame of a realigned stack, and of a jump into a library. */
static bool evaluate(const struct w_row *row, const struct w_regs *regs, struct w_stack_view *view, uintptr_t *result)
{
    struct w_cursor r = {row->expression, row->expression + row->size};
    struct values s = {.well = true};
    while (r.at < r.end && s.well) {
        uint8_t op = (uint8_t)w_number(&r, 1);
        if (op >= W_OP_BREG0 && op <= OP_BREG31) {
            unsigned reg = op - W_OP_BREG0;
            bool is_pc = reg == W_REG_RA && reg != W_REG_FP && W_REGS == 17;
            s.well = reg < W_REGS && (is_pc || regs->known >> reg & 1);
            push(&s, (s.well ? is_pc ? regs->pc : regs->r[reg] : 0) + (uint64_t)w_sleb(&r));
        } else if (op >= OP_LIT0 && op <= OP_LIT31) {
            push(&s, op - OP_LIT0);
        } else if (op == OP_CONST1U || op == OP_CONST1S) {
            uint64_t byte = w_number(&r, 1);
            push(&s, op == OP_CONST1S ? (uint64_t)(int64_t)(int8_t)byte : byte);
        } else if (op == OP_PLUS_UCONST) {
            push(&s, pop(&s) + w_uleb(&r));
        } else if (op == OP_DEREF) {
            uintptr_t value = 0;
            s.well &= load(view, pop(&s), &value);
            push(&s, value);
        } else {
            combine(&s, op);
        }
    }
    *result = pop(&s);
    return s.well;
}

/* ---- from frame to frame ---------------------------------------------------------------------------------------- */

static void know(struct w_regs *regs, unsigned reg, uintptr_t value)
{
    regs->r[reg] = value;
    regs->known |= (uint32_t)1 << reg;
}

void w_regs_of_context(struct w_regs *regs, const ucontext_t *uc)
{
    *regs = (struct w_regs){.pc = w_context_pc(uc)};
#if defined(__x86_64__)
    static const uint8_t PLACES[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                                     REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    for (unsigned i = 0; i < sizeof PLACES; i++)
        know(regs, i, (uintptr_t)uc->uc_mcontext.gregs[PLACES[i]]);
#else
    for (unsigned i = 0; i < 31; i++)
        know(regs, i, uc->uc_mcontext.regs[i]);
    know(regs, W_REG_SP, uc->uc_mcontext.sp);
#endif
}

bool w_regs_of_parked(struct w_regs *regs, uintptr_t sp, struct w_stack_view *view)
{
#if defined(__x86_64__)
    enum { PC = 56, SIZE = 64 + 128 };
    static const struct {
        uint8_t reg, at;
    } SAVED[] = {{15, 8}, {14, 16}, {13, 24}, {12, 32}, {3, 40}, {6, 48}};
#else
    enum { PC = 8, SIZE = 176 };
    static const struct {
        uint8_t reg, at;
    } SAVED[] = {{29, 0},  {19, 16}, {20, 24}, {21, 32}, {22, 40}, {23, 48},
                 {24, 56}, {25, 64}, {26, 72}, {27, 80}, {28, 88}};
#endif
    uintptr_t value;
    *regs = (struct w_regs){.called = true};
    if (!load(view, sp, &value) || !load(view, sp + PC, &regs->pc))
        return false;
    for (unsigned i = 0; i < sizeof SAVED / sizeof SAVED[0]; i++)
        if (load(view, sp + SAVED[i].at, &value))
            know(regs, SAVED[i].reg, value);
    know(regs, W_REG_SP, sp + SIZE);
    return true;
}

/* Is it where a signal handler returns to? Then the kernel's frame is at sp. */
static bool is_sigreturn(uintptr_t pc)
{
#if defined(__x86_64__)
    static const uint8_t CODE[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
#else
    static const uint8_t CODE[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
#endif
    uint8_t there[sizeof CODE];
    return w_peek(there, pc, sizeof there) && memcmp(there, CODE, sizeof there) == 0;
}

static bool leave_signal(struct w_regs *regs, const struct w_stack_view *view)
{
    ucontext_t uc;
    uintptr_t at = regs->r[W_REG_SP];
#if !defined(__x86_64__)
    at += sizeof(siginfo_t);
#endif
    if (at < view->lo || at >= view->hi || !w_peek(&uc, at, offsetof(ucontext_t, uc_mcontext) + sizeof uc.uc_mcontext))
        return false;
    w_regs_of_context(regs, &uc);
    return true;
}

/* Does a call return to there? */
static bool is_returned_to(struct w_rows *rows, uintptr_t pc)
{
    uint8_t code[8];
    if (pc < 4096 || w_row_of(rows, pc - 1) == NULL)
        return false;
#if defined(__x86_64__)
    if (!w_peek(code, pc - 7, 7))
        return false;
    bool indirect = false;
    for (int i = 0; i <= 5; i++)
        indirect |= code[i] == 0xff && (code[i + 1] & 0x38) == 0x10;
    return code[2] == 0xe8 || indirect;
#else
    uint32_t word;
    if (!w_peek(code, pc - 4, 4))
        return false;
    memcpy(&word, code, sizeof word);
    return word >> 26 == 0x25 || (word & 0xfffffc1f) == 0xd63f0000;
#endif
}

/* The next frame record: a frame pointer, and behind it an address that a call returns to. */
static bool guess(struct w_rows *rows, struct w_regs *regs, struct w_stack_view *view)
{
    enum { FAR = 1024 };
    uintptr_t fp, pc, sp = regs->r[W_REG_SP];
    for (unsigned i = 0; i < FAR; i++, sp += sizeof sp) {
        if (!load(view, sp, &fp) || !load(view, sp + sizeof sp, &pc))
            return false;
        pc = w_plain_address(pc);
        if (!is_returned_to(rows, pc))
            continue;
        *regs = (struct w_regs){.pc = pc, .called = true};
        if (fp > sp && fp < view->hi)
            know(regs, W_REG_FP, fp);
        know(regs, W_REG_SP, sp + 2 * sizeof sp);
        return true;
    }
    return false;
}

static bool apply(struct w_regs *next, const struct w_regs *regs, const struct w_row *row, struct w_stack_view *view,
                  uintptr_t cfa)
{
    *next = (struct w_regs){.called = true};
    for (unsigned i = 0; i < W_REGS; i++) {
        struct w_rule rule = row->rule[i];
        uintptr_t value = 0;
        if (rule.how == W_SAME && regs->known >> i & 1)
            know(next, i, regs->r[i]);
        else if (rule.how == W_AT_CFA && load(view, cfa + (uintptr_t)(intptr_t)rule.n, &value))
            know(next, i, value);
        else if (rule.how == W_AT_FP && regs->known >> W_REG_FP & 1 &&
                 load(view, regs->r[W_REG_FP] + (uintptr_t)(intptr_t)rule.n, &value))
            know(next, i, value);
        else if (rule.how == W_IS_CFA)
            know(next, i, cfa + (uintptr_t)(intptr_t)rule.n);
        else if (rule.how == W_IN_REGISTER && rule.n < W_REGS && regs->known >> rule.n & 1)
            know(next, i, regs->r[rule.n]);
    }
    if (!(next->known >> row->ra & 1))
        return false;
    next->pc = w_plain_address(next->r[row->ra]);
    know(next, W_REG_SP, cfa);
    return true;
}

static bool find_cfa(const struct w_row *row, const struct w_regs *regs, struct w_stack_view *view, uintptr_t *cfa)
{
    if (row->size > 0)
        return evaluate(row, regs, view, cfa);
    *cfa = regs->r[row->cfa_register] + (uintptr_t)(intptr_t)row->cfa_offset;
    return regs->known >> row->cfa_register & 1;
}

bool w_leave_frame(struct w_rows *rows, struct w_regs *regs, struct w_stack_view *view)
{
    const struct w_row *row = w_row_of(rows, regs->pc - regs->called);
    struct w_regs next;
    uintptr_t cfa, sp = regs->r[W_REG_SP];
    if ((row == NULL || row->signal) && !view->ours && is_sigreturn(regs->pc))
        return leave_signal(regs, view);
    if (row == NULL || (row->signal && view->ours) || row->rule[row->ra].how == W_UNDEFINED)
        return false;
    if (!find_cfa(row, regs, view, &cfa) || !apply(&next, regs, row, view, cfa))
        return !view->ours && guess(rows, regs, view);
    bool moved = cfa > sp || (cfa == sp && next.pc != regs->pc);
    *regs = next;
    return moved && cfa <= view->hi && regs->pc != 0;
}

uint32_t w_frames(struct w_rows *rows, struct w_regs *regs, struct w_stack_view *view, struct w_trace *t)
{
    bool entry = false;
    t->n = 0;
    t->exact = 0;
    do {
        entry = w_code_is_entry(regs->pc);
        if (entry)
            break;
        t->exact |= (uint64_t)!regs->called << t->n;
        t->pc[t->n++] = regs->pc;
    } while (t->n < W_TRACE_MAX && w_leave_frame(rows, regs, view));
    if (entry && t->n > 1)
        t->n--; /* w_g_main, which calls the entry function */
    return t->n;
}
