/* SPDX-License-Identifier: MIT */
/* The one way in which the library speaks up: a line on stderr, and where the process cannot go on, abort(). */
#ifndef W_FATAL_H
#define W_FATAL_H

#define W_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* "weft: " and the message, in one write(2); safe in a signal handler. Understands what vsnprintf does. */
void w_say(const char *fmt, ...) W_PRINTF(1, 2);
void w_say_to(int fd, const char *fmt, ...) W_PRINTF(2, 3); /* without the prefix */

void w_fatal(const char *fmt, ...) W_PRINTF(1, 2) __attribute__((noreturn, cold));

/* Broken invariants stop release builds too; the expression's text names them. */
#define W_ASSERT(cond)                                                          \
    do {                                                                        \
        if (__builtin_expect(!(cond), 0))                                       \
            w_fatal("broken invariant: %s (%s:%d)", #cond, __FILE__, __LINE__); \
    } while (0)

#endif
