/* SPDX-License-Identifier: MIT */
/*
 * The names of threads, which ps, top, gdb and perf show: "weft M3" for an M, "weft monitor" for the monitor. Its thread is the
 * program's own, lent to weft_run: it gets its name back, and keeps it all along if it is the main thread, whose name is
 * that of the process (ps, pgrep).
 *
 * With WEFT_DEBUG=comm an M that runs a goroutine that has a name has that name. The kernel tells perf when it changes, so
 * `perf report --sort comm` adds up the time of goroutines by name. Each change is a system call (0.1 us), and leads through the
 * M's own stack: those with a name are taken for W_G_APART, so that switches between others have nothing more to look at.
 *
 * Rejected: a perf map file. It names code by address, and goroutines share theirs.
 *
 * In the static library of an installation that gdb knows, also the place of gdb's extension: it has no file name of its own that gdb
 * could go by.
 */
#include "weft_internal.h"
#include <stdio.h>
#include <sys/prctl.h>

#ifdef W_GDB_SCRIPT
__asm__(".pushsection \".debug_gdb_scripts\", \"MS\", %progbits, 1\n\t"
        ".byte 1\n\t" /* a file in Python */
        ".asciz \"" W_GDB_SCRIPT "\"\n\t"
        ".popsection");
#endif

enum { NAME_SIZE = 16 }; /* the kernel's, with the zero */

void w_comm_mark(struct w_g *g)
{
    if (w_sched.debug.comm && g->name != NULL)
        g->flags |= W_G_SHOWN;
}

void w_comm_of_m(const struct w_m *m)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "weft M%u", m->id);
    prctl(PR_SET_NAME, name, 0, 0, 0);
}

/* The kernel takes as much of it as it has room for. */
void w_comm_of_g(const struct w_g *g)
{
    prctl(PR_SET_NAME, g->name, 0, 0, 0);
}

void w_comm_monitor(void (*monitor)(void))
{
    char before[NAME_SIZE] = "";
    bool ours = gettid() != getpid() && prctl(PR_GET_NAME, before, 0, 0, 0) == 0;
    if (ours)
        prctl(PR_SET_NAME, "weft monitor", 0, 0, 0);
    monitor();
    if (ours)
        prctl(PR_SET_NAME, before, 0, 0, 0);
}
