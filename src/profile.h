/* SPDX-License-Identifier: MIT */
/* What the sampler (profile.c) leaves behind for the writer of profiles (profile_write.c). */
#ifndef W_PROFILE_H
#define W_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    W_PROFILE_FRAMES = 64, /* of a stack: what is further out is left away */
    W_PROFILE_NAME = 48,   /* bytes of a goroutine's name */
    W_PROFILE_SLOTS = 1 << 13,
    W_PROFILE_WORDS = 1 << 18, /* 2 MiB of addresses that cost nothing until they are used */
};

/* One stack and how often it was met, as it lies among the words of a table. */
struct w_stack_count {
    uint64_t count;
    uint64_t hash;    /* of all that follows */
    uint64_t name_at; /* 0: the goroutine has no name; else these many words of name come before the addresses */
    uint64_t frames;  /* how many addresses, innermost first */
    uintptr_t entry;  /* what the goroutine was started with; 0: it was no goroutine, but the scheduler */
    uint64_t words[]; /* the name, then the addresses */
};

/* Of one thread after the other; written by its handler alone. */
struct w_samples {
    struct w_samples *next, *spare; /* of all; of those that no M has. w_sched.lock */
    uint64_t dropped;               /* samples for which there was no room */
    uint64_t taken;                 /* all others */
    uint32_t used;                  /* words; 0 is never the place of a stack */
    uint32_t slot[W_PROFILE_SLOTS]; /* by hash: where its stack is, 0: none */
    uint64_t word[W_PROFILE_WORDS];
};

struct w_profile {
    const struct w_samples *tables; /* linked by next */
    int hz;
    int64_t began, length; /* ns: since the epoch; of it */
    bool quick;            /* there is little stack: names that need no debug information */
};

/* In the format that the end of the path asks for. */
enum w_profile_format { W_PROFILE_FOLDED, W_PROFILE_PB, W_PROFILE_PB_GZ, W_PROFILE_UNKNOWN };
enum w_profile_format w_profile_format_of(const char *path);
int w_profile_write(const struct w_profile *profile, int fd, enum w_profile_format format);

#endif
