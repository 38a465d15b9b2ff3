/* SPDX-License-Identifier: MIT */
/*
 * Backtraces: of the running context, and of a parked goroutine without touching its stack (w_walk_from gives the
 * unwinder a frame whose caller is the parked one).
 */
#include "symbol.h"
#include "weft_internal.h"
#include <unwind.h>

enum { MAX_FRAMES = 64 };

struct trace {
    int fd;
    int printed;
    const void *from_pc; /* print nothing before this address was met; NULL: from the start */
    bool skip_first;     /* the frame that called the unwinder */
};

/* Of a program that dies. */
void w_print_symbol(int fd, const void *pc)
{
    struct w_symbol s;
    w_symbol_quick((uintptr_t)pc, &s);
    if (s.object == NULL)
        w_say_to(fd, "%p", pc);
    else if (s.name != NULL)
        w_say_to(fd, "%p %s+0x%lx (%s)", pc, s.name, (unsigned long)s.offset, s.object);
    else
        w_say_to(fd, "%p (%s+0x%lx)", pc, s.object, (unsigned long)s.offset);
}

static _Unwind_Reason_Code print_frame(struct _Unwind_Context *context, void *arg)
{
    struct trace *t = arg;
    const void *pc = (const void *)_Unwind_GetIP(context);
    if (pc == NULL)
        return _URC_END_OF_STACK;
    if (t->from_pc != NULL && pc == t->from_pc)
        t->from_pc = NULL;
    if (t->from_pc != NULL || t->skip_first) {
        t->skip_first = false;
        return _URC_NO_REASON;
    }
    w_say_to(t->fd, "    #%-2d ", t->printed);
    w_print_symbol(t->fd, pc);
    w_say_to(t->fd, "\n");
    return ++t->printed < MAX_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static void walk(void *arg)
{
    _Unwind_Backtrace(print_frame, arg);
}

/* sp: a parked context, or NULL for the running one, of which what lies above from_pc is left out. */
void w_print_backtrace(int fd, void *sp, const void *from_pc)
{
    struct trace t = {.fd = fd, .from_pc = from_pc, .skip_first = true};
    if (sp != NULL)
        w_walk_from(sp, walk, &t);
    else
        walk(&t);
}
