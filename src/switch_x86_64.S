/* SPDX-License-Identifier: MIT */
/*
 * The context switch for x86-64 (System V).
 *
 * A context that is not running is one pointer, to this frame on its own stack:
 *
 *      sp -> [ mxcsr | x87 control word ] [ r15 r14 r13 r12 rbx rbp ] [ where to resume ] [ red zone, 128 bytes ]
 *
 * It is entered by a jump and left by a jump (switch.h): a call without its return, or a return to another stack's
 * caller, puts the processor's stack of return addresses out of step, and every later `ret` is mispredicted (30 ns a
 * switch). The red zone belongs to the function that contains the jump. The control bits are written back only if those
 * of the two contexts differ (loading mxcsr costs more than comparing); its status bits a call need not preserve. The frame has the same shape on both sides, so
 * the unwind information holds before and after the stack is changed.
 */

#define FRAME 64
#define SIGURG 23
#define RED_ZONE 128
#define DEFAULT_MXCSR 0x1f80
#define MXCSR_CONTROL 0xffc0
#define DEFAULT_FPCW 0x037f

        .section weft_text, "ax", @progbits

/* A context saved at this register, for unwinders. */
        .macro  saved_frame reg
        .cfi_def_cfa \reg, FRAME + RED_ZONE
        .cfi_offset rip, -(RED_ZONE + 8)
        .cfi_offset rbp, -(RED_ZONE + 16)
        .cfi_offset rbx, -(RED_ZONE + 24)
        .cfi_offset r12, -(RED_ZONE + 32)
        .cfi_offset r13, -(RED_ZONE + 40)
        .cfi_offset r14, -(RED_ZONE + 48)
        .cfi_offset r15, -(RED_ZONE + 56)
        .endm

/* w_switch_to: rdi = save, rsi = to, rdx = where to resume; entered by a jump (switch.h) */
        .globl  w_switch_to
        .hidden w_switch_to
        .type   w_switch_to, @function
        .p2align 5
w_switch_to:
        .cfi_startproc
        .cfi_def_cfa rsp, 0
        .cfi_register rip, rdx
        leaq    -RED_ZONE(%rsp), %rsp
        .cfi_adjust_cfa_offset RED_ZONE
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rip, 0
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        pushq   %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r12, 0
        pushq   %r13
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r13, 0
        pushq   %r14
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r14, 0
        pushq   %r15
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r15, 0
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        stmxcsr (%rsp)
        fnstcw  4(%rsp)
        movl    (%rsp), %eax
        movzwl  4(%rsp), %edx
        movq    %rsp, (%rdi)
        movq    %rsi, %rsp
        xorl    (%rsp), %eax
        testl   $MXCSR_CONTROL, %eax
        jne     2f
        cmpw    %dx, 4(%rsp)
        jne     2f
1:      movq    8(%rsp), %r15
        movq    16(%rsp), %r14
        movq    24(%rsp), %r13
        movq    32(%rsp), %r12
        movq    40(%rsp), %rbx
        movq    48(%rsp), %rbp
        movq    56(%rsp), %rdx
        .cfi_register rip, rdx
        .cfi_restore rbp
        .cfi_restore rbx
        .cfi_restore r12
        .cfi_restore r13
        .cfi_restore r14
        .cfi_restore r15
        leaq    FRAME+RED_ZONE(%rsp), %rsp
        .cfi_def_cfa_offset 0
        jmpq    *%rdx
        .cfi_endproc
        .size   w_switch_to, .-w_switch_to

/* Its rare half: the two contexts differ in their modes. */
        .type   w_switch_modes, @function
w_switch_modes:
        .cfi_startproc
        saved_frame rsp
2:      ldmxcsr (%rsp)
        fldcw   4(%rsp)
        jmp     1b
        .cfi_endproc
        .size   w_switch_modes, .-w_switch_modes

/* Where every goroutine starts. Its caller is undefined: unwinders stop here. */
        .p2align 4
        .cfi_startproc
        .cfi_undefined rip
        nop                     /* unwinders look one byte before an address that was never called from */
        .globl  w_entry, w_entry_end
        .hidden w_entry, w_entry_end
        .type   w_entry, @function
w_entry:
        xorl    %ebp, %ebp
        call    w_g_main
        ud2
w_entry_end:
        .cfi_endproc
        .size   w_entry, .-w_entry

/* void *w_first_frame(void *top) */
        .globl  w_first_frame
        .hidden w_first_frame
        .type   w_first_frame, @function
        .p2align 4
w_first_frame:
        .cfi_startproc
        andq    $-16, %rdi
        leaq    -(FRAME + RED_ZONE)(%rdi), %rax
        movq    $(DEFAULT_FPCW << 32 | DEFAULT_MXCSR), %rcx
        movq    %rcx, (%rax)
        xorl    %ecx, %ecx
        movq    %rcx, 8(%rax)
        movq    %rcx, 16(%rax)
        movq    %rcx, 24(%rax)
        movq    %rcx, 32(%rax)
        movq    %rcx, 40(%rax)
        movq    %rcx, 48(%rax)
        leaq    w_entry(%rip), %rcx
        movq    %rcx, 56(%rax)
        ret
        .cfi_endproc
        .size   w_first_frame, .-w_first_frame

/* void w_restart(void *top) */
        .globl  w_restart
        .hidden w_restart
        .type   w_restart, @function
        .p2align 4
w_restart:
        .cfi_startproc
        .cfi_undefined rip
        movq    %rdi, %rsp
        andq    $-16, %rsp
        jmp     w_entry
        .cfi_endproc
        .size   w_restart, .-w_restart

/* void w_fp_reset(void) */
        .globl  w_fp_reset
        .hidden w_fp_reset
        .type   w_fp_reset, @function
        .p2align 4
w_fp_reset:
        .cfi_startproc
        stmxcsr -8(%rsp)
        fnstcw  -4(%rsp)
        movl    -8(%rsp), %eax
        xorl    $DEFAULT_MXCSR, %eax
        testl   $MXCSR_CONTROL, %eax
        jne     3f
        cmpw    $DEFAULT_FPCW, -4(%rsp)
        jne     3f
        ret
3:      movl    $DEFAULT_MXCSR, -8(%rsp)
        movw    $DEFAULT_FPCW, -4(%rsp)
        ldmxcsr -8(%rsp)
        fldcw   -4(%rsp)
        ret
        .cfi_endproc
        .size   w_fp_reset, .-w_fp_reset

/*
 * void w_walk_from(void *sp, void (*fn)(void *), void *arg)
 * While fn runs, the unwind information says that our caller's registers are those of the frame at sp: an unwinder that
 * starts in fn walks on into the parked context, of which nothing is touched.
 */
        .globl  w_walk_from
        .hidden w_walk_from
        .type   w_walk_from, @function
        .p2align 4
w_walk_from:
        .cfi_startproc
        pushq   %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        movq    %rdi, %rbx
        movq    %rdx, %rdi
        .cfi_remember_state
        saved_frame rbx
        call    *%rsi
        nop
        .cfi_restore_state
        popq    %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        ret
        .cfi_endproc
        .size   w_walk_from, .-w_walk_from

/* void w_go_on_in_frame(char *at, fn, siginfo_t *info, void *context, void *back): `back` is the first word of the frame, which
 * fn's return takes off as it would the return address of a call. */
        .globl  w_go_on_in_frame
        .hidden w_go_on_in_frame
        .type   w_go_on_in_frame, @function
        .p2align 4
w_go_on_in_frame:
        .cfi_startproc
        movq    %rdi, %rsp
        movq    %rsi, %rax
        movl    $SIGURG, %edi
        movq    %rdx, %rsi
        movq    %rcx, %rdx
        jmpq    *%rax
        .cfi_endproc
        .size   w_go_on_in_frame, .-w_go_on_in_frame

/* What lies between w_switch_to and here is not unwound from (profile.c). */
        .globl  w_switch_end
        .hidden w_switch_end
w_switch_end:

        .section .note.GNU-stack, "", @progbits
