/* SPDX-License-Identifier: MIT */
#include "fatal.h"
#include "sys.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 512 };

static void put(int fd, const char *prefix, const char *fmt, va_list ap, const char *suffix)
{
    char line[LINE];
    size_t n = strlen(prefix), room = sizeof line - strlen(suffix);
    memcpy(line, prefix, n);
    int k = vsnprintf(line + n, room - n, fmt, ap);
    n += k < 0 ? 0 : (size_t)k < room - n ? (size_t)k : room - n - 1;
    memcpy(line + n, suffix, strlen(suffix));
    n += strlen(suffix);
    long ignored = syscall(SYS_write, fd, line, n);
    (void)ignored;
}

void w_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put(STDERR_FILENO, "weft: ", fmt, ap, "\n");
    va_end(ap);
}

void w_say_to(int fd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put(fd, "", fmt, ap, "");
    va_end(ap);
}

void w_fatal(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put(STDERR_FILENO, "weft: ", fmt, ap, "\n");
    va_end(ap);
    abort();
}
