/* SPDX-License-Identifier: MIT */
/*
 * Who is stopped anywhere goes on, perhaps on another thread, with all that it had: registers, flags, modes of arithmetic, what
 * lies below its stack pointer, errno.
 *
 * The holders are assembly: each fills what it is about with known values and compares until `holders_over`. They return 0 if
 * nothing has changed.
 */
#include "preempts.h"
#include <fenv.h>
#include <math.h>

extern char holders_over; /* read by assembly */
char holders_over;

int hold_integers(void);
int hold_vectors(void);
int hold_modes(void);

/* ---- holders ------------------------------------------------------------------------------------------------------ */

#if defined(__x86_64__)

#define FUNCTION(name) ".text\n.globl " name "\n.type " name ",@function\n" name ":\n.cfi_startproc\n"
#define END(name)      ".cfi_endproc\n.size " name ",.-" name "\n"
#define SAVE(reg)      "pushq %" reg "\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset " reg ", 0\n"
#define RESTORE(reg)   "popq %" reg "\n.cfi_adjust_cfa_offset -8\n.cfi_restore " reg "\n"

/* All general registers but the stack pointer, the carry flag, and the red zone. */
__asm__(FUNCTION("hold_integers") SAVE("rbx") SAVE("rbp") SAVE("r12") SAVE("r13") SAVE("r14") SAVE("r15") /* */
        ".set value, 0x11111101\n"
        ".irp reg, rax,rbx,rcx,rdx,rsi,rdi,rbp,r8,r9,r10,r11,r12,r13,r14,r15\n"
        "movq $value - 0x60000000, %\\reg\n" /* some of them negative */
        ".set value, value + 0x0a0b0c0d\n"
        ".endr\n"
        ".irp at, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16\n"
        "movq $0x5eed0000 + \\at, -8 * \\at(%rsp)\n"
        ".endr\n"
        "1:\n"
        ".set value, 0x11111101\n"
        ".irp reg, rax,rbx,rcx,rdx,rsi,rdi,rbp,r8,r9,r10,r11,r12,r13,r14,r15\n"
        "cmpq $value - 0x60000000, %\\reg\n"
        "jne 2f\n"
        ".set value, value + 0x0a0b0c0d\n"
        ".endr\n"
        ".irp at, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16\n"
        "cmpq $0x5eed0000 + \\at, -8 * \\at(%rsp)\n"
        "jne 2f\n"
        ".endr\n"
        "stc\n"
        ".rept 64\nnop\n.endr\n"
        "jnc 2f\n"
        "clc\n"
        ".rept 64\nnop\n.endr\n"
        "jc 2f\n"
        "cmpb $0, holders_over(%rip)\n"
        "je 1b\n"
        "xorl %eax, %eax\n"
        "jmp 3f\n"
        "2: movl $1, %eax\n"
        "3:\n" RESTORE("r15") RESTORE("r14") RESTORE("r13") RESTORE("r12") RESTORE("rbp") RESTORE("rbx") /* */
        "ret\n" END("hold_integers"));

/* ymm0 to ymm14; the last one is for comparing. */
__asm__(".data\n.balign 32\nhold_table:\n.set byte, 1\n.rept 15 * 32\n.byte byte * 7 & 0xff\n.set byte, byte + "
        "1\n.endr\n"             /* */
        FUNCTION("hold_vectors") /* */
        ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14\n"
        "vmovdqa hold_table + 32 * \\i(%rip), %ymm\\i\n"
        ".endr\n"
        "1:\n"
        ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14\n"
        "vpcmpeqb hold_table + 32 * \\i(%rip), %ymm\\i, %ymm15\n"
        "vpmovmskb %ymm15, %eax\n"
        "cmpl $-1, %eax\n"
        "jne 2f\n"
        ".endr\n"
        "cmpb $0, holders_over(%rip)\n"
        "je 1b\n"
        "vzeroupper\n"
        "xorl %eax, %eax\n"
        "ret\n"
        "2: vzeroupper\n"
        "movl $1, %eax\n"
        "ret\n" END("hold_vectors"));

/* Seven numbers on the x87's stack; its control word and that of SSE, both rounding upwards. */
__asm__(FUNCTION("hold_modes") "subq $24, %rsp\n.cfi_adjust_cfa_offset 24\n"
                               "fnstcw (%rsp)\n"
                               "stmxcsr 4(%rsp)\n"
                               "movw $0x0a7f, 8(%rsp)\n"
                               "fldcw 8(%rsp)\n"
                               "movl $0xdf80, 12(%rsp)\n"
                               "ldmxcsr 12(%rsp)\n"
                               "fld1\nfldpi\nfldl2e\nfldz\nfldlg2\nfldln2\nfldl2t\n"
                               "1: fnstcw 16(%rsp)\n"
                               "cmpw $0x0a7f, 16(%rsp)\n"
                               "jne 2f\n"
                               "stmxcsr 16(%rsp)\n"
                               "cmpl $0xdf80, 16(%rsp)\n"
                               "jne 2f\n"
                               "cmpb $0, holders_over(%rip)\n"
                               "je 1b\n"
                               ".irp load, fldl2t,fldln2,fldlg2,fldz,fldl2e,fldpi,fld1\n"
                               "\\load\n"
                               "fucomip %st(1), %st\n"
                               "jne 2f\n"
                               "jp 2f\n"
                               "fstp %st(0)\n"
                               ".endr\n"
                               "xorl %eax, %eax\n"
                               "jmp 3f\n"
                               "2: movl $1, %eax\n"
                               "3: fninit\n"
                               "fldcw (%rsp)\n"
                               "ldmxcsr 4(%rsp)\n"
                               "addq $24, %rsp\n.cfi_adjust_cfa_offset -24\n"
                               "ret\n" END("hold_modes"));

static bool has_vectors(void)
{
    return __builtin_cpu_supports("avx2");
}

#else

#define FUNCTION(name) ".text\n.globl " name "\n.type " name ",%function\n" name ":\n.cfi_startproc\n"
#define END(name)      ".cfi_endproc\n.size " name ",.-" name "\n"

/* All general registers but x30, which is for comparing; the flags. */
__asm__(
    FUNCTION("hold_integers") "stp x29, x30, [sp, -96]!\n.cfi_adjust_cfa_offset 96\n.cfi_rel_offset x29, 0\n"
                              ".cfi_rel_offset x30, 8\n"
                              "stp x19, x20, [sp, 16]\nstp x21, x22, [sp, 32]\nstp x23, x24, [sp, 48]\n"
                              "stp x25, x26, [sp, 64]\nstp x27, x28, [sp, 80]\n"
                              ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,19,20,21,22,23,24,25,26,27,28,29\n"
                              "mov x\\i, #5 + 16 * \\i\n"
                              ".endr\n"
                              "1:\n"
                              ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,19,20,21,22,23,24,25,26,27,28,29\n"
                              "cmp x\\i, #5 + 16 * \\i\n"
                              "b.ne 2f\n"
                              ".endr\n"
                              ".rept 64\nnop\n.endr\n"
                              "b.ne 2f\n"
                              "adrp x30, holders_over\n"
                              "ldrb w30, [x30, :lo12:holders_over]\n"
                              "cbz w30, 1b\n"
                              "mov w0, 0\n"
                              "b 3f\n"
                              "2: mov w0, 1\n"
                              "3: ldp x19, x20, [sp, 16]\nldp x21, x22, [sp, 32]\nldp x23, x24, [sp, 48]\n"
                              "ldp x25, x26, [sp, 64]\nldp x27, x28, [sp, 80]\n"
                              "ldp x29, x30, [sp], 96\n.cfi_adjust_cfa_offset -96\n"
                              "ret\n" END("hold_integers"));

/* v0 to v30; the last one is for comparing. */
__asm__(FUNCTION(
    "hold_vectors") "stp d8, d9, [sp, -64]!\n.cfi_adjust_cfa_offset 64\n"
                    "stp d10, d11, [sp, 16]\nstp d12, d13, [sp, 32]\nstp d14, d15, [sp, 48]\n"
                    ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30\n"
                    "movi v\\i\\().16b, #5 * \\i + 1\n"
                    ".endr\n"
                    "1:\n"
                    ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30\n"
                    "movi v31.16b, #5 * \\i + 1\n"
                    "cmeq v31.16b, v31.16b, v\\i\\().16b\n"
                    "uminv b31, v31.16b\n"
                    "umov w1, v31.b[0]\n"
                    "cmp w1, #255\n"
                    "b.ne 2f\n"
                    ".endr\n"
                    "adrp x1, holders_over\n"
                    "ldrb w1, [x1, :lo12:holders_over]\n"
                    "cbz w1, 1b\n"
                    "mov w0, 0\n"
                    "b 3f\n"
                    "2: mov w0, 1\n"
                    "3: ldp d10, d11, [sp, 16]\nldp d12, d13, [sp, 32]\nldp d14, d15, [sp, 48]\n"
                    "ldp d8, d9, [sp], 64\n.cfi_adjust_cfa_offset -64\n"
                    "ret\n" END("hold_vectors"));

/* Rounding upwards, and tiny numbers flushed. */
__asm__(FUNCTION("hold_modes") "mrs x2, fpcr\n"
                               "mov x3, #0x1400000\n"
                               "msr fpcr, x3\n"
                               "1: mrs x1, fpcr\n"
                               "cmp x1, x3\n"
                               "b.ne 2f\n"
                               "adrp x1, holders_over\n"
                               "ldrb w1, [x1, :lo12:holders_over]\n"
                               "cbz w1, 1b\n"
                               "mov w0, 0\n"
                               "b 3f\n"
                               "2: mov w0, 1\n"
                               "3: msr fpcr, x2\n"
                               "ret\n" END("hold_modes"));

static bool has_vectors(void)
{
    return true;
}

#endif

/* ---- they are stopped thousands of times -------------------------------------------------------------------------- */

static void hold(void *arg)
{
    int (*holder)(void) = *(int (**)(void))arg;
    CHECK_EQ(holder(), 0);
}

/* Beside them runs one that changes everything. */
static void disturb(void *arg)
{
    (void)arg;
    for (volatile double x = 1.5; !over; weft_yield())
        for (int i = 0; i < 1000; i++)
            x = sqrt(x + i) * 1.000001;
}

static void holders_main(void *arg)
{
    int n = 2 * weft_procs(0);
    over = false;
    holders_over = 0;
    CHECK_EQ(weft_go(disturb, NULL), 0);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(hold, arg), 0);
    pest_start();
    for (int64_t end = weft_now() + 60 * WEFT_SEC; stops() < scaled(600) && weft_count() == n + 2 && weft_now() < end;)
        weft_yield();
    CHECK(stops() >= scaled(600));
    holders_over = 1;
    pest_stop();
    end_all();
}

static void are_held(int (*holder)(void))
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, holders_main, (void *)&holder), 0);
}

CASE(general_registers_flags_and_the_red_zone_are_held)
{
    are_held(hold_integers);
}

CASE(vector_registers_are_held)
{
    if (has_vectors())
        are_held(hold_vectors);
    else
        skipped("there are no such registers");
}

CASE(modes_of_arithmetic_are_held)
{
    are_held(hold_modes);
}

/* ---- modes as C has them ------------------------------------------------------------------------------------------ */

static const int ROUNDINGS[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
enum { ROUNDINGS_N = 4 };

static __attribute__((noinline)) double third(double sign)
{
    volatile double a = sign, b = 3;
    return a / b;
}

static _Atomic long rounded;

static void round_so(void *arg)
{
    int mode = *(const int *)arg;
    CHECK_EQ(fegetround(), FE_TONEAREST); /* a new goroutine has what a new thread has */
    CHECK_EQ(fesetround(mode), 0);
    double plus = third(1), minus = third(-1);
    long wrong = 0;
    for (; !over; rounded++)
        wrong += third(1) != plus || third(-1) != minus;
    CHECK_EQ(wrong, 0);
    CHECK_EQ(fegetround(), mode);
}

static void rounding_main(void *arg)
{
    (void)arg;
    over = false;
    rounded = 0;
    for (int i = 0; i < 2 * ROUNDINGS_N; i++)
        CHECK_EQ(weft_go(round_so, (void *)&ROUNDINGS[i % ROUNDINGS_N]), 0);
    pest_start();
    for (int64_t end = weft_now() + 60 * WEFT_SEC; stops() < scaled(300) && weft_now() < end;)
        weft_yield();
    CHECK_EQ(fegetround(), FE_TONEAREST);
    pest_stop();
    end_all();
}

CASE(each_rounds_as_it_has_chosen)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, rounding_main, NULL), 0);
}

/* ---- errno -------------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) int errno_now(void)
{
    return errno;
}

static __attribute__((noinline)) void set_errno(int e)
{
    errno = e;
}

static void keep_errno(void *arg)
{
    int mine = (int)(intptr_t)arg;
    while (!over) {
        set_errno(mine);
        outlast(3);
        CHECK_EQ(errno_now(), mine);
    }
}

static void errno_main(void *arg)
{
    (void)arg;
    over = false;
    pest_start();
    for (int i = 0; i < 4; i++)
        CHECK_EQ(weft_go(keep_errno, (void *)(intptr_t)(1000 + i)), 0);
    for (int64_t end = weft_now() + 60 * WEFT_SEC; stops() < scaled(300) && weft_now() < end;)
        weft_yield();
    CHECK(stops() >= scaled(300));
    over = true;
    CHECK(others_have_ended());
    pest_stop();
}

CASE(errno_is_each_ones_own)
{
    if (never_stopped())
        return;
    EACH_PROCS(p) CHECK_EQ(run_on(p, errno_main, NULL), 0);
}

/* ---- long computations -------------------------------------------------------------------------------------------- */

struct sum {
    uint64_t integers;
    double doubles;
    long double longs;
    uint64_t sorted;
};

static __attribute__((noinline)) uint64_t sort_some(uint64_t rng)
{
    enum { N = 500 };
    uint64_t a[N], sum = 0;
    for (int i = 0; i < N; i++)
        a[i] = rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    for (int i = 1; i < N; i++)
        for (int j = i; j > 0 && a[j - 1] > a[j]; j--) {
            uint64_t t = a[j];
            a[j] = a[j - 1];
            a[j - 1] = t;
        }
    for (int i = 0; i < N; i++)
        sum = sum * 31 + a[i];
    return sum;
}

static struct sum compute(void)
{
    struct sum s = {1, 1, 1, 1};
    double vector[64];
    for (int i = 0; i < 64; i++)
        vector[i] = i + 0.25;
    for (int round = 0; round < scaled(30); round++) {
        for (int i = 0; i < 64; i++)
            vector[i] = vector[i] * 1.0000001 + vector[(i + 7) % 64] / 3;
        for (int i = 0; i < 20000; i++)
            s.integers = (s.integers ^ s.integers >> 29) * 0xBF58476D1CE4E5B9ull + (uint64_t)i;
        for (int i = 0; i < 5000; i++)
            s.longs = s.longs / 3 + (long double)i * 1.7L;
        s.sorted = s.sorted * 31 + sort_some(s.integers);
    }
    for (int i = 0; i < 64; i++)
        s.doubles += vector[i];
    return s;
}

static struct sum expected;

static void compute_and_compare(void *arg)
{
    struct sum s = compute();
    CHECK(s.integers == expected.integers && s.sorted == expected.sorted);
    CHECK(s.doubles == expected.doubles && s.longs == expected.longs);
    weft_wg_done(arg);
}

static void compute_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    pest_start();
    weft_wg_add(&wg, 16);
    for (int i = 0; i < 16; i++)
        CHECK_EQ(weft_go(compute_and_compare, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK(stops() > 0);
    pest_stop();
}

CASE(long_computations_come_to_the_same_result)
{
    if (never_stopped())
        return;
    expected = compute();
    EACH_PROCS(p) CHECK_EQ(run_on(p, compute_main, NULL), 0);
}
