/* SPDX-License-Identifier: MIT */
/* The environment variables: those that win over weft_config, and the words of WEFT_DEBUG. A value that makes no sense is named on
 * stderr and refused. */
#include "weft_internal.h"
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit NONE[] = {{"", 1}, {NULL, 0}};
static const struct unit SIZES[] = {{"", 1},        {"K", 1 << 10}, {"k", 1 << 10}, {"M", 1 << 20},
                                    {"m", 1 << 20}, {"G", 1 << 30}, {"g", 1 << 30}, {NULL, 0}};
static const struct unit TIMES[] = {{"", 1}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {NULL, 0}};

/* false: that is no number with one of these units, or too large. */
static bool number(const char *text, const struct unit *units, uint64_t max, uint64_t *out)
{
    uint64_t n = 0;
    const char *end = text;
    bool fits = true;
    for (; *end >= '0' && *end <= '9'; end++)
        fits = fits && !__builtin_mul_overflow(n, 10, &n) && !__builtin_add_overflow(n, (uint64_t)(*end - '0'), &n);
    for (const struct unit *u = units; fits && end != text && u->name != NULL; u++) {
        if (strcmp(end, u->name) != 0)
            continue;
        if (n > max / u->factor)
            break;
        *out = n * u->factor;
        return true;
    }
    return false;
}

static int parse(const char *name, const struct unit *units, uint64_t max, uint64_t *out)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0' || number(text, units, max, out))
        return 0;
    w_say("%s=%s makes no sense", name, text);
    return -EINVAL;
}

int w_env_number(const char *name, uint64_t max, uint64_t *out)
{
    return parse(name, NONE, max, out);
}

int w_config_from_env(weft_config *c)
{
    uint64_t procs = (uint64_t)c->procs, stack = c->stack_size, quantum = (uint64_t)c->quantum;
    const char *never = getenv("WEFT_QUANTUM");
    int r = parse("WEFT_PROCS", NONE, W_MAX_PROCS, &procs);
    if (r == 0)
        r = parse("WEFT_STACK", SIZES, (uint64_t)1 << 36, &stack);
    if (r == 0 && never != NULL && strcmp(never, "never") == 0)
        quantum = WEFT_NEVER;
    else if (r == 0)
        r = parse("WEFT_QUANTUM", TIMES, INT64_MAX, &quantum);
    if (r == 0)
        r = parse("WEFT_SEED", NONE, UINT64_MAX, &c->seed);
    c->procs = (int)procs;
    c->stack_size = stack;
    c->quantum = (int64_t)quantum;
    return r;
}

/* ---- WEFT_DEBUG ------------------------------------------------------------------------------------------------- */

enum { LONGEST_WORD = 64 };
static const char SCHEDTRACE[] = "schedtrace=";
static const uint64_t LONGEST_PERIOD = 86400000; /* ms */

static int take_word(struct w_debug *d, const char *word)
{
    uint64_t ms = 0;
    d->any = true;
    if (strcmp(word, "fifo") == 0) {
        d->fifo = true;
    } else if (strcmp(word, "leaks") == 0) {
        d->leaks = true;
    } else if (strcmp(word, "comm") == 0) {
        d->comm = true;
    } else if (strncmp(word, SCHEDTRACE, sizeof SCHEDTRACE - 1) != 0) {
        w_say("WEFT_DEBUG knows no \"%s\": its words are comm, fifo, leaks and schedtrace=MS, with commas between them",
              word);
        return -EINVAL;
    } else if (!number(word + sizeof SCHEDTRACE - 1, NONE, LONGEST_PERIOD, &ms) || ms == 0) {
        w_say("WEFT_DEBUG: %s makes no sense: it takes milliseconds, from 1 to %lu", word,
              (unsigned long)LONGEST_PERIOD);
        return -EINVAL;
    }
    if (ms > 0)
        d->schedtrace = (int64_t)ms * WEFT_MSEC;
    return 0;
}

int w_debug_from_env(struct w_debug *d)
{
    char word[LONGEST_WORD];
    const char *at = getenv("WEFT_DEBUG");
    int r = 0;
    *d = (struct w_debug){0};
    for (size_t n; r == 0 && at != NULL && *at != '\0'; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        size_t k = n < sizeof word ? n : sizeof word - 1; /* a longer one is none of ours, be it cut */
        memcpy(word, at, k);
        word[k] = '\0';
        if (k > 0)
            r = take_word(d, word);
    }
    return r;
}
