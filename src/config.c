/* SPDX-License-Identifier: MIT */
/* The environment variables that win over weft_config. A value that makes no sense is named on stderr and refused. */
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

static int parse(const char *name, const struct unit *units, uint64_t max, uint64_t *out)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0')
        return 0;
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
        return 0;
    }
    w_say("%s=%s makes no sense", name, text);
    return -EINVAL;
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

bool w_debug_wants(const char *word)
{
    const char *text = getenv("WEFT_DEBUG");
    size_t n = strlen(word);
    for (; text != NULL; text = strchr(text, ','), text += text != NULL)
        if (strncmp(text, word, n) == 0 && (text[n] == '\0' || text[n] == ','))
            return true;
    return false;
}
