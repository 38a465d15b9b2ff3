/* SPDX-License-Identifier: MIT */
/* Which code may be stopped, as preempt.c asks; code.c knows. All but the first and the last two are asked by a signal handler. */
#ifndef W_PREEMPT_H
#define W_PREEMPT_H

#include "weft_internal.h"

struct w_span {
    uintptr_t at, size;
};

const char *w_code_why_not(void);   /* NULL: it can be told which code is whose */
bool w_code_may_stop(uintptr_t pc); /* the main program's, or that of an allowed object; not the runtime's */
bool w_code_is_ours(uintptr_t pc);  /* the runtime's */
bool w_code_is_entry(uintptr_t pc); /* where every goroutine starts */
void w_code_begin(void);            /* around the next three: a table that they read is not freed */
void w_code_end(void);
bool w_code_is_other(uintptr_t pc); /* of any other object */
struct w_span w_code_span(void);    /* all other objects lie in it, and perhaps more */
bool w_code_hides_tls(void);        /* an address in some thread's storage may not look like one */
unsigned long long
w_code_changes(void);      /* how many the linker has ever loaded and unloaded, when that was last asked */
void w_code_refresh(void); /* objects may have come or gone since */
void w_code_init(void);
void w_code_done(void);

/* Leaves the handler for fn(SIGURG, info, context), with the copied frame at `at` for the stack that it returns through. back: where
 * a handler returns to. */
void w_go_on_in_frame(char *at, void (*fn)(int, siginfo_t *, void *), siginfo_t *info, void *context, void *back)
    __attribute__((noreturn));

#endif
