/* SPDX-License-Identifier: MIT */
/*
 * w_switch: saves this context's registers on its stack and its stack pointer in *save, goes on in the context saved as
 * `to`, and returns when somebody switches back.
 *
 * It jumps to w_switch_to (switch_*.S) instead of calling it, so that calls and returns stay in step on either side of
 * the switch. What a call would clobber is named; what a call preserves, w_switch_to saves.
 */
#ifndef W_SWITCH_H
#define W_SWITCH_H

static inline __attribute__((always_inline)) void w_switch(void **save, void *to)
{
#if defined(__x86_64__)
    __asm__ volatile("leaq 1f(%%rip), %%rdx\n\t"
                     "jmp w_switch_to\n"
                     "1:"
                     : "+D"(save), "+S"(to)
                     :
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc", "st", "st(1)", "st(2)", "st(3)",
                       "st(4)", "st(5)", "st(6)", "st(7)", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                       "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#ifdef __AVX512F__
                       ,
                       "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",
                       "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
    );
#else
    register void **x0 __asm__("x0") = save;
    register void *x1 __asm__("x1") = to;
    __asm__ volatile("adr x2, 1f\n\t"
                     "b w_switch_to\n"
                     "1:"
                     : "+r"(x0), "+r"(x1)
                     :
                     : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
                       "x17", "x30", "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17",
                       "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",
                       "v31");
#endif
}

#endif
