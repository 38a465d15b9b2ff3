/* SPDX-License-Identifier: MIT */
/*
 * The frame that the kernel puts on a stack for a signal handler: what it holds, how far it reaches, and how it is moved.
 *
 *      x86-64:   [ where the handler returns to | ucontext | siginfo ] .. [ floating point, as large as the processor says ]
 *      aarch64:  [ siginfo | ucontext with room for floating point ] .. [ more of that, if it does not fit ]
 *
 * It holds all registers of the interrupted code, and the kernel takes them from there again when the handler returns
 * (sigreturn), wherever the frame lies then: so a frame can be copied to another stack, if the pointers into itself are mended.
 */
#ifndef W_SIGFRAME_H
#define W_SIGFRAME_H

#include "weft_internal.h"
#include <ucontext.h>

enum { W_FRAME_ALIGN = 64 }; /* what the processor wants for its floating-point part */

static inline char *w_whole_words(char *end)
{
    return (char *)(((uintptr_t)end + 7) & ~(uintptr_t)7);
}

struct w_frame {
    char *at, *end; /* whole words */
    siginfo_t *info;
    ucontext_t *context;
};

#if defined(__x86_64__)

enum { W_RED_ZONE = 128 };

static inline uintptr_t w_context_pc(const ucontext_t *uc)
{
    return (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
}

static inline uintptr_t w_context_sp(const ucontext_t *uc)
{
    return (uintptr_t)uc->uc_mcontext.gregs[REG_RSP];
}

/* Where a function that calls nothing returns to, if that is in a register; 0: it is on the stack. */
static inline uintptr_t w_context_link(const ucontext_t *uc)
{
    (void)uc;
    return 0;
}

/* At 464 in the floating-point part the kernel says how large it is, if it is more than the 512 bytes of old. Where the processor has no
 * XSAVE it says 4 more than there are: the mark behind the rest, which is not there either. The rest begins with 64 bytes. */
static inline char *w_frame_end(siginfo_t *info, const ucontext_t *uc)
{
    enum { AT = 464, MAGIC = 0x46505853, OLD = 512, REST = 64 };
    char *fp = (char *)uc->uc_mcontext.fpregs;
    if (fp == NULL)
        return (char *)(info + 1);
    const uint32_t *words = (const uint32_t *)(const void *)(fp + AT);
    return fp + (words[0] == MAGIC && words[1] >= OLD + REST ? words[1] : OLD);
}

static inline struct w_frame w_frame_of(siginfo_t *info, ucontext_t *uc)
{
    return (struct w_frame){(char *)uc - sizeof(void *), w_whole_words(w_frame_end(info, uc)), info, uc};
}

static inline void w_frame_mend(struct w_frame *f, ptrdiff_t moved)
{
    if (f->context->uc_mcontext.fpregs != NULL)
        f->context->uc_mcontext.fpregs = (fpregset_t)(void *)((char *)f->context->uc_mcontext.fpregs + moved);
}

#else

#include <asm/sigcontext.h>

enum { W_RED_ZONE = 0 };

static inline uintptr_t w_context_pc(const ucontext_t *uc)
{
    return uc->uc_mcontext.pc;
}

static inline uintptr_t w_context_sp(const ucontext_t *uc)
{
    return uc->uc_mcontext.sp;
}

static inline uintptr_t w_context_link(const ucontext_t *uc)
{
    return uc->uc_mcontext.regs[30];
}

/* The record that says where the rest is, or NULL. */
static inline struct extra_context *w_frame_extra(ucontext_t *uc)
{
    char *at = (char *)uc->uc_mcontext.__reserved, *end = at + sizeof uc->uc_mcontext.__reserved;
    while (at + sizeof(struct _aarch64_ctx) <= end) {
        struct _aarch64_ctx *record = (struct _aarch64_ctx *)(void *)at;
        if (record->magic == EXTRA_MAGIC)
            return (struct extra_context *)(void *)record;
        if (record->magic == 0 || record->size == 0)
            break;
        at += record->size;
    }
    return NULL;
}

static inline struct w_frame w_frame_of(siginfo_t *info, ucontext_t *uc)
{
    const struct extra_context *extra = w_frame_extra(uc);
    char *end = (char *)(uc + 1), *more = extra != NULL ? (char *)extra->datap + extra->size : end;
    return (struct w_frame){(char *)info, w_whole_words(more > end ? more : end), info, uc};
}

static inline void w_frame_mend(struct w_frame *f, ptrdiff_t moved)
{
    struct extra_context *extra = w_frame_extra(f->context);
    if (extra != NULL)
        extra->datap += (uint64_t)moved;
}

#endif

/* Is this what a handler returns to that the kernel has called? The two instructions of rt_sigreturn, by which unwinders know it too. */
static inline __attribute__((no_sanitize("address"))) bool w_is_sigreturn(const void *pc)
{
#if defined(__x86_64__)
    static const uint8_t CODE[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
#else
    static const uint8_t CODE[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
#endif
    const uint8_t *at = pc;
    size_t n = 0;
    while (n < sizeof CODE && at[n] == CODE[n]) /* no further: the code may end there */
        n++;
    return n == sizeof CODE;
}

/* Where a copy of f can lie below sp. */
static inline char *w_frame_place(const struct w_frame *f, uintptr_t sp)
{
    uintptr_t at = sp - W_RED_ZONE - (uintptr_t)(f->end - f->at);
    return (char *)(at - (at - (uintptr_t)f->at) % W_FRAME_ALIGN);
}

/* Without memcpy, which a sanitizer watches: what lies there may be marked as a dead frame. */
static inline __attribute__((no_sanitize("address"))) struct w_frame w_frame_copy(const struct w_frame *f, char *to)
{
    ptrdiff_t moved = to - f->at;
    for (size_t i = 0; i < (size_t)(f->end - f->at); i += sizeof(uint64_t))
        *(volatile uint64_t *)(void *)(to + i) = *(uint64_t *)(void *)(f->at + i);
    struct w_frame copy = {to, f->end + moved, (siginfo_t *)(void *)((char *)f->info + moved),
                           (ucontext_t *)(void *)((char *)f->context + moved)};
    w_frame_mend(&copy, moved);
    return copy;
}

#endif
