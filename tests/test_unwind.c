/* SPDX-License-Identifier: MIT */
/* Unwinders, in the process and in a debugger, walk a goroutine's stack to its entry and stop there. */
#include "runs.h"
#include "whitebox.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unwind.h>

enum { MAX_FRAMES = 1000 };

struct walk {
    int frames;
    uintptr_t function[MAX_FRAMES];
};

void entry_of_walker(void *arg);
int level(struct walk *w, int n);
void stop_here(void);

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg)
{
    struct walk *w = arg;
    if (w->frames == MAX_FRAMES)
        return _URC_END_OF_STACK;
    w->function[w->frames++] = _Unwind_GetRegionStart(context);
    return _URC_NO_REASON;
}

__attribute__((noinline)) int level(struct walk *w, int n)
{
    volatile int result = n > 0 ? level(w, n - 1) + 1 : (int)_Unwind_Backtrace(note_frame, w);
    return result; /* volatile: so that each level keeps its frame */
}

static int frames_of(const struct walk *w, uintptr_t function)
{
    int n = 0;
    for (int i = 0; i < w->frames; i++)
        n += w->function[i] == function;
    return n;
}

static weft_wg *walkers;

__attribute__((noinline)) void entry_of_walker(void *arg)
{
    struct walk *w = calloc(1, sizeof *w);
    (void)arg;
    for (int round = 0; round < 3; round++) {
        w->frames = 0;
        int r = level(w, 10);
        CHECK_EQ(r - 10, _URC_END_OF_STACK); /* it ended by itself, not by an error */
        CHECK(w->frames > 11 && w->frames < 100);
        CHECK_EQ(frames_of(w, (uintptr_t)level), 11);
        CHECK_EQ(frames_of(w, (uintptr_t)entry_of_walker), 1);
        int at = w->frames - 1; /* only a few of the library's own come after the entry */
        while (at > 0 && w->function[at] != (uintptr_t)entry_of_walker)
            at--;
        CHECK(w->frames - at <= 5);
        weft_yield();
    }
    free(w);
    weft_wg_done(walkers);
}

static void walk_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    walkers = &wg;
    weft_wg_add(&wg, 32);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_go(entry_of_walker, NULL), 0);
        CHECK_EQ(weft_go_copy(entry_of_walker, "x", 1), 0);
        CHECK_EQ(weft_go_with(&(weft_attr){.stack_size = 1 << 20}, entry_of_walker, NULL), 0);
    }
    entry_of_walker(NULL);
    CHECK_EQ(weft_go(entry_of_walker, NULL), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

CASE(a_backtrace_ends_at_the_goroutines_entry)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, walk_main, NULL), 0);
}

/* ---- of a parked one -------------------------------------------------------------------------------------------- */

void entry_of_parked(void *arg);
int park_at(weft_wg *wg, int n);

__attribute__((noinline)) int park_at(weft_wg *wg, int n)
{
    volatile int result = n > 0 ? park_at(wg, n - 1) + 1 : weft_wg_wait(wg);
    return result;
}

__attribute__((noinline)) void entry_of_parked(void *arg)
{
    CHECK_EQ(park_at(arg, 5), 5);
}

static void deadlock_main(void *arg)
{
    static weft_wg wg;
    (void)arg;
    wg = (weft_wg){0};
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(entry_of_parked, &wg), 0);
    weft_exit();
}

static void run_deadlock(void)
{
    CHECK_EQ(run_on(2, deadlock_main, NULL), -EDEADLK);
}

static int occurrences(const char *in, const char *what)
{
    int n = 0;
    while ((in = strstr(in, what)) != NULL) {
        in += strlen(what);
        n++;
    }
    return n;
}

CASE(the_backtrace_of_a_parked_goroutine_ends_at_its_entry)
{
    static char text[64 << 10];
    CHECK(child_is_well(run_deadlock, text, sizeof text));
    const char *trace = strstr(text, "#0");
    CHECK(trace != NULL);
    if (trace == NULL)
        return;
    CHECK_EQ(occurrences(trace, "park_at"), 6);
    CHECK_EQ(occurrences(trace, "entry_of_parked"), 1);
    const char *last = strstr(trace, "entry_of_parked");
    CHECK(last != NULL && occurrences(last, "\n    #") <= 3); /* only the library's own start comes after it */
    if (occurrences(trace, "park_at") != 6)
        fprintf(stderr, "%s", text);
}

/* ---- in a debugger ---------------------------------------------------------------------------------------------- */

__attribute__((noinline)) void stop_here(void)
{
    __asm__ volatile("" ::: "memory");
}

void entry_for_debugger(void *arg);

__attribute__((noinline)) void entry_for_debugger(void *arg)
{
    weft_yield();
    stop_here();
    __asm__ volatile("");
    weft_wg_done(arg);
}

static void debugger_main(void *arg)
{
    weft_wg wg = {0};
    (void)arg;
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(entry_for_debugger, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

/* What the debugger runs; for the rest a case like any other. */
CASE(a_goroutine_comes_by_where_a_debugger_could_stop_it)
{
    CHECK_EQ(run_on(2, debugger_main, NULL), 0);
}

static char *output_of(const char *command)
{
    static char text[64 << 10];
    FILE *f = popen(command, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL)
        pclose(f);
    return text;
}

CASE(gdb_walks_to_the_goroutines_entry_and_stops)
{
    if (check_under_emulator() || check_under_asan() || check_under_tsan()) {
        skipped("gdb and sanitizers or emulators do not mix");
        return;
    }
    if (system("command -v gdb > /dev/null 2>&1") != 0) {
        skipped("there is no gdb");
        return;
    }
    char self[4096] = "", command[5000];
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command,
             "gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'break stop_here' -ex run -ex 'bt 200' -ex kill "
             "--args '%s' "
             "a_goroutine_comes_by_where_a_debugger_could_stop_it 2>&1 < /dev/null",
             self);
    char *text = output_of(command);
    char *trace = strstr(text, "\n#0 ");
    if (trace == NULL && (strstr(text, "ptrace") != NULL || strstr(text, "Couldn't get") != NULL)) {
        skipped("gdb may not trace here");
        return;
    }
    char *entry = trace != NULL ? strstr(trace, "entry_for_debugger") : NULL;
    bool well = entry != NULL && strstr(trace, "corrupt stack") == NULL && strstr(trace, "identical to") == NULL &&
                strstr(trace, "Backtrace stopped") == NULL && strstr(trace, "More stack frames") == NULL &&
                strstr(trace, "?? ()") == NULL && strstr(trace, "Cannot access") == NULL &&
                occurrences(entry, "\n#") <= 3;
    if (!well)
        check_fail(__FILE__, __LINE__, "gdb says: %.300s", trace != NULL ? trace : text);
}
