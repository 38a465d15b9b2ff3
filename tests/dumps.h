/* SPDX-License-Identifier: MIT */
/* What a dump says, for tests of dumps and of SIGQUIT. */
#ifndef DUMPS_H
#define DUMPS_H

#include "runs.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char text[1 << 20]; /* what a dump, or a child, said */

static inline char *dumped(int (*dump)(int))
{
    int fd = memfd_create("dump", 0);
    CHECK_EQ(dump(fd), 0);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(fd);
    return text;
}

/* The entry with this in its first line, up to the empty line behind it; NULL: there is none. Each lies in its own room. */
static inline char *entry_with(const char *what)
{
    static char found[4][64 << 10];
    static int turn;
    for (char *at = text; at != NULL && *at != '\0';) {
        char *end = strstr(at, "\n\n"), *line = strchr(at, '\n'), *hit = strstr(at, what);
        end = end != NULL ? end + 1 : at + strlen(at); /* with its last newline */
        if (hit != NULL && line != NULL && hit < line) {
            char *out = found[turn++ % 4];
            size_t n = (size_t)(end - at) < sizeof found[0] - 1 ? (size_t)(end - at) : sizeof found[0] - 1;
            memcpy(out, at, n);
            out[n] = '\0';
            return out;
        }
        at = *end != '\0' ? end + 1 : NULL;
    }
    return NULL;
}

static inline bool says(const char *entry, const char *what)
{
    bool well = entry != NULL && strstr(entry, what) != NULL;
    if (!well)
        fprintf(stderr, "# no \"%s\" in: %s\n", what, entry != NULL ? entry : text);
    return well;
}

static inline bool says_address(const char *entry, const char *before, const void *address)
{
    char what[160];
    snprintf(what, sizeof what, "%s%p", before, address);
    return says(entry, what);
}

#endif
