/* SPDX-License-Identifier: MIT */
/*
 * Static probes for bpftrace, SystemTap and perf, where <sys/sdt.h> was there when Weft was built. A probe is a nop, and a note in
 * the file that says where it is and in which registers or memory its arguments are: nothing is computed for it, so all of
 * them are values that lie ready. gcc leaves them where they are; clang loads each, so that the build has probes with it only if
 * asked to. docs/inside.md says what each tells.
 *
 * Who has a name has it as a string, others have NULL; `entry` is the function that a goroutine was started with, of one that
 * belongs to a scope the function of Weft that calls it.
 */
#ifndef W_PROBE_H
#define W_PROBE_H

#ifdef W_PROBES

#ifdef __clang__
#undef STAP_SDT_ARG_CONSTRAINT
#define STAP_SDT_ARG_CONSTRAINT nr /* it would store each argument to have it in memory */
#endif
#include <sys/sdt.h>

#define w_probe_spawn(g)              DTRACE_PROBE3(weft, spawn, (g)->id, (g)->name, (g)->fn)
#define w_probe_end(g)                DTRACE_PROBE2(weft, end, (g)->id, (g)->name)
#define w_probe_switch(m, p, g)       DTRACE_PROBE5(weft, switch, (g)->id, (g)->name, (g)->fn, (p)->id, (m)->id)
#define w_probe_park(g, reason, what) DTRACE_PROBE4(weft, park, (g)->id, (g)->name, (int)(reason), what)
#define w_probe_ready(g)              DTRACE_PROBE3(weft, ready, (g)->id, (g)->name, (g)->fn)
#define w_probe_steal(p, victim, g)   DTRACE_PROBE4(weft, steal, (g)->id, (g)->name, (p)->id, (victim)->id)
#define w_probe_preempt(m, g)         DTRACE_PROBE4(weft, preempt, (g)->id, (g)->name, (m)->p->id, (m)->id)
#define w_probe_block_enter(m, g)     DTRACE_PROBE3(weft, block_enter, (g)->id, (g)->name, (m)->id)
#define w_probe_block_found(m, g)     DTRACE_PROBE3(weft, block_found, (g)->id, (g)->name, (m)->id)
#define w_probe_block_leave(m, g)     DTRACE_PROBE3(weft, block_leave, (g)->id, (g)->name, (m)->id)

#else

#define w_probe_spawn(g)              ((void)0)
#define w_probe_end(g)                ((void)0)
#define w_probe_switch(m, p, g)       ((void)0)
#define w_probe_park(g, reason, what) ((void)0)
#define w_probe_ready(g)              ((void)0)
#define w_probe_steal(p, victim, g)   ((void)0)
#define w_probe_preempt(m, g)         ((void)0)
#define w_probe_block_enter(m, g)     ((void)0)
#define w_probe_block_found(m, g)     ((void)0)
#define w_probe_block_leave(m, g)     ((void)0)

#endif

#endif
