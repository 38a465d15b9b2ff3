/* SPDX-License-Identifier: MIT */
/*
 * The context switch for aarch64 (AAPCS64).
 *
 * A context that is not running is one pointer, to this frame on its own stack:
 *
 *      sp -> [ x29 ] [ where to resume ] [ x19 .. x28 ] [ d8 .. d15 ] [ fpcr | unused ]   176 bytes
 *
 * As on x86-64 the switch is entered and left by a jump, the control word is written back only if the two contexts differ, and the
 * unwind information holds on both sides because the frames have one shape.
 */

#define FRAME 176
#define SIGURG 23

        .section weft_text, "ax", %progbits

        .macro  frame_cfi
        .cfi_offset x29, -176
        .cfi_offset x30, -168
        .cfi_offset x19, -160
        .cfi_offset x20, -152
        .cfi_offset x21, -144
        .cfi_offset x22, -136
        .cfi_offset x23, -128
        .cfi_offset x24, -120
        .cfi_offset x25, -112
        .cfi_offset x26, -104
        .cfi_offset x27, -96
        .cfi_offset x28, -88
        .cfi_offset d8, -80
        .cfi_offset d9, -72
        .cfi_offset d10, -64
        .cfi_offset d11, -56
        .cfi_offset d12, -48
        .cfi_offset d13, -40
        .cfi_offset d14, -32
        .cfi_offset d15, -24
        .endm

/* w_switch_to: x0 = save, x1 = to, x2 = where to resume; entered by a jump (switch.h) */
        .globl  w_switch_to
        .hidden w_switch_to
        .type   w_switch_to, %function
        .p2align 5
w_switch_to:
        .cfi_startproc
        .cfi_register x30, x2
        stp     x29, x2, [sp, #-FRAME]!
        .cfi_def_cfa_offset FRAME
        stp     x19, x20, [sp, #16]
        stp     x21, x22, [sp, #32]
        stp     x23, x24, [sp, #48]
        stp     x25, x26, [sp, #64]
        stp     x27, x28, [sp, #80]
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        frame_cfi
        mrs     x9, fpcr
        str     x9, [sp, #160]
        mov     x10, sp
        str     x10, [x0]
        mov     sp, x1
        ldr     x11, [sp, #160]
        cmp     x9, x11
        b.eq    1f
        msr     fpcr, x11
1:      ldp     x19, x20, [sp, #16]
        ldp     x21, x22, [sp, #32]
        ldp     x23, x24, [sp, #48]
        ldp     x25, x26, [sp, #64]
        ldp     x27, x28, [sp, #80]
        ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        ldp     x29, x16, [sp], #FRAME
        br      x16
        .cfi_endproc
        .size   w_switch_to, .-w_switch_to

/* Where every goroutine starts. Its caller is undefined: unwinders stop here. */
        .p2align 4
        .cfi_startproc
        .cfi_undefined x30
        nop                     /* unwinders look one byte before an address that was never called from */
        .globl  w_entry, w_entry_end
        .hidden w_entry, w_entry_end
        .type   w_entry, %function
w_entry:
        mov     x29, xzr
        mov     x30, xzr
        bl      w_g_main
        brk     #0
w_entry_end:
        .cfi_endproc
        .size   w_entry, .-w_entry

/* void *w_first_frame(void *top) */
        .globl  w_first_frame
        .hidden w_first_frame
        .type   w_first_frame, %function
        .p2align 4
w_first_frame:
        .cfi_startproc
        and     x0, x0, #-16
        sub     x0, x0, #FRAME
        stp     xzr, xzr, [x0, #16]
        stp     xzr, xzr, [x0, #32]
        stp     xzr, xzr, [x0, #48]
        stp     xzr, xzr, [x0, #64]
        stp     xzr, xzr, [x0, #80]
        stp     xzr, xzr, [x0, #96]
        stp     xzr, xzr, [x0, #112]
        stp     xzr, xzr, [x0, #128]
        stp     xzr, xzr, [x0, #144]
        stp     xzr, xzr, [x0, #160]
        adr     x9, w_entry
        stp     xzr, x9, [x0]
        ret
        .cfi_endproc
        .size   w_first_frame, .-w_first_frame

/* void w_restart(void *top) */
        .globl  w_restart
        .hidden w_restart
        .type   w_restart, %function
        .p2align 4
w_restart:
        .cfi_startproc
        .cfi_undefined x30
        and     x0, x0, #-16
        mov     sp, x0
        b       w_entry
        .cfi_endproc
        .size   w_restart, .-w_restart

/* void w_fp_reset(void) */
        .globl  w_fp_reset
        .hidden w_fp_reset
        .type   w_fp_reset, %function
        .p2align 4
w_fp_reset:
        .cfi_startproc
        mrs     x9, fpcr
        cbz     x9, 1f
        msr     fpcr, xzr
1:      ret
        .cfi_endproc
        .size   w_fp_reset, .-w_fp_reset

/*
 * void w_walk_from(void *sp, void (*fn)(void *), void *arg)
 * While fn runs, the unwind information says that our caller's registers are those of the frame at sp: an unwinder that
 * starts in fn walks on into the parked context, of which nothing is touched.
 */
        .globl  w_walk_from
        .hidden w_walk_from
        .type   w_walk_from, %function
        .p2align 4
w_walk_from:
        .cfi_startproc
        stp     x19, x30, [sp, #-16]!
        .cfi_def_cfa_offset 16
        .cfi_offset x19, -16
        .cfi_offset x30, -8
        mov     x19, x0
        mov     x9, x1
        mov     x0, x2
        .cfi_remember_state
        .cfi_def_cfa x19, FRAME
        frame_cfi
        blr     x9
        nop
        .cfi_restore_state
        ldp     x19, x30, [sp], #16
        .cfi_def_cfa_offset 0
        .cfi_restore x19
        .cfi_restore x30
        ret
        .cfi_endproc
        .size   w_walk_from, .-w_walk_from

/* void w_go_on_in_frame(char *at, fn, siginfo_t *info, void *context, void *back) */
        .globl  w_go_on_in_frame
        .hidden w_go_on_in_frame
        .type   w_go_on_in_frame, %function
        .p2align 4
w_go_on_in_frame:
        .cfi_startproc
        mov     sp, x0
        mov     x9, x1
        mov     w0, #SIGURG
        mov     x1, x2
        mov     x2, x3
        mov     x30, x4
        br      x9
        .cfi_endproc
        .size   w_go_on_in_frame, .-w_go_on_in_frame

/* What lies between w_switch_to and here is not unwound from (profile.c). */
        .globl  w_switch_end
        .hidden w_switch_end
w_switch_end:

        .section .note.GNU-stack, "", %progbits
