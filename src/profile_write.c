/* SPDX-License-Identifier: MIT */
/*
 * A profile as a file: the tables of all threads put together, the addresses named.
 *
 *   .folded, .txt   a line for each stack, outermost first, and how often it was met: "main;serve;parse 42". A goroutine with a
 *                   name has that as its outermost frame; what Ms do between goroutines begins with "(scheduler)"
 *   .pb, .pb.gz     profile.proto of pprof: each sample with labels "goroutine" (its name) and "entry" (its function). The latter is a
 *                   gzip file of blocks that are not compressed: profiles are small, and so no library is needed
 *
 * Everything is made in memory first; an allocation that fails is remembered, and looked at once in the end.
 */
#include "profile.h"
#include "symbol.h"
#include "preempt.h"
#include "weft_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256 };

enum w_profile_format w_profile_format_of(const char *path)
{
    static const struct {
        const char *end;
        enum w_profile_format format;
    } known[] = {
        {".folded", W_PROFILE_FOLDED}, {".txt", W_PROFILE_FOLDED}, {".pb", W_PROFILE_PB}, {".pb.gz", W_PROFILE_PB_GZ}};
    static const char open_file[] = "/proc/self/fd/"; /* which has no name that could tell */
    size_t n = strlen(path);
    if (strncmp(path, open_file, sizeof open_file - 1) == 0)
        return W_PROFILE_FOLDED;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t k = strlen(known[i].end);
        if (n >= k && strcmp(path + n - k, known[i].end) == 0)
            return known[i].format;
    }
    return W_PROFILE_UNKNOWN;
}

static bool quick; /* names that need no file; whoever writes, of whom there is one at a time */

/* With the names that only debug information has. */
static void name_code(uintptr_t pc, char *name, size_t size)
{
    struct w_symbol symbol;
    if (quick)
        w_symbol_linked(pc, &symbol);
    else
        w_symbol_of(pc, &symbol);
    w_symbol_text(pc, &symbol, name, size);
}

/* ---- bytes that grow ---------------------------------------------------------------------------------------------- */

struct bytes {
    char *at;
    size_t used, room;
    bool failed; /* no memory: it stays as it is */
};

static void add(struct bytes *b, const void *data, size_t n)
{
    if (b->used + n > b->room) {
        size_t room = 2 * (b->used + n) + 256;
        char *at = realloc(b->at, room);
        b->failed |= at == NULL;
        if (at == NULL)
            return;
        b->at = at;
        b->room = room;
    }
    if (n > 0)
        memcpy(b->at + b->used, data, n);
    b->used += n;
}

static void add_text(struct bytes *b, const char *text)
{
    add(b, text, strlen(text));
}

static int write_out(int fd, const struct bytes *b)
{
    return b->failed ? -ENOMEM : w_deliver(fd, b->at, b->used, NULL);
}

/* ---- the stacks of all tables ------------------------------------------------------------------------------------- */

struct stacks {
    const struct w_stack_count **at;
    size_t n;
    uint64_t dropped;
};

static int gather(const struct w_profile *p, struct stacks *all)
{
    *all = (struct stacks){0};
    size_t n = 0;
    for (const struct w_samples *t = p->tables; t != NULL; t = t->next)
        for (int i = 0; i < W_PROFILE_SLOTS; i++)
            n += t->slot[i] != 0;
    all->at = malloc((n + 1) * sizeof(void *));
    if (all->at == NULL)
        return -ENOMEM;
    for (const struct w_samples *t = p->tables; t != NULL; t = t->next) {
        all->dropped += t->dropped;
        for (int i = 0; i < W_PROFILE_SLOTS; i++)
            if (t->slot[i] != 0)
                all->at[all->n++] = (const struct w_stack_count *)(const void *)&t->word[t->slot[i]];
    }
    return 0;
}

static const uint64_t *frames_of(const struct w_stack_count *s)
{
    return s->words + s->name_at;
}

/* Without the runtime's own frame below the goroutine's function, which is the same in all. */
static uint64_t frame_count(const struct w_stack_count *s)
{
    return s->frames - (s->frames > 1 && s->entry != 0 && w_code_is_ours(frames_of(s)[s->frames - 1]));
}

static void goroutine_name(const struct w_stack_count *s, char *name)
{
    memset(name, 0, W_PROFILE_NAME + 1);
    memcpy(name, s->words, s->name_at * sizeof(uint64_t));
}

/* ---- collapsed stacks --------------------------------------------------------------------------------------------- */

/* A line of them has no room for what divides it. */
static void add_frame(struct bytes *b, const char *name)
{
    size_t from = b->used;
    add_text(b, name);
    for (size_t i = from; i < b->used; i++)
        if (b->at[i] == ';' || (unsigned char)b->at[i] <= ' ')
            b->at[i] = b->at[i] == ' ' ? ' ' : '_';
}

static void add_stack(struct bytes *b, const struct w_stack_count *s)
{
    char name[NAME];
    goroutine_name(s, name);
    if (s->entry == 0)
        add_text(b, "(scheduler)");
    else
        add_frame(b, name);
    bool begun = b->used > 0 && b->at[b->used - 1] != '\0';
    for (uint64_t n = frame_count(s); n-- > 0;) {
        name_code(frames_of(s)[n], name, sizeof name);
        if (begun)
            add_text(b, ";");
        add_frame(b, name);
        begun = true;
    }
    add(b, "", 1);
}

struct line {
    size_t at; /* of its text */
    uint64_t count;
};

static const char *texts; /* that by_text compares */

static int by_text(const void *a, const void *b)
{
    return strcmp(texts + ((const struct line *)a)->at, texts + ((const struct line *)b)->at);
}

static void add_line(struct bytes *out, const char *text, uint64_t count)
{
    char number[32];
    add_text(out, text);
    snprintf(number, sizeof number, " %lu\n", (unsigned long)count);
    add_text(out, number);
}

/* Stacks that differ in addresses only have the same text. */
static void fold(const struct stacks *all, struct bytes *out)
{
    struct bytes text = {0};
    struct line *lines = malloc((all->n + 1) * sizeof *lines);
    out->failed |= lines == NULL;
    for (size_t i = 0; lines != NULL && i < all->n; i++) {
        lines[i] = (struct line){text.used, all->at[i]->count};
        add_stack(&text, all->at[i]);
    }
    out->failed |= text.failed;
    texts = text.at;
    if (!out->failed)
        qsort(lines, all->n, sizeof *lines, by_text);
    for (size_t i = 0, n; !out->failed && i < all->n; i = n) {
        uint64_t count = 0;
        for (n = i; n < all->n && by_text(&lines[i], &lines[n]) == 0; n++)
            count += lines[n].count;
        add_line(out, text.at + lines[i].at, count);
    }
    if (all->dropped > 0)
        add_line(out, "(samples without room)", all->dropped);
    free(lines);
    free(text.at);
}

/* ---- protocol buffers --------------------------------------------------------------------------------------------- */

static void add_varint(struct bytes *b, uint64_t n)
{
    char byte[10];
    size_t k = 0;
    do
        byte[k++] = (char)((n & 0x7f) | (n > 0x7f ? 0x80 : 0));
    while ((n >>= 7) > 0);
    add(b, byte, k);
}

static void add_number(struct bytes *b, uint32_t field, uint64_t n)
{
    add_varint(b, field << 3);
    add_varint(b, n);
}

static void add_data(struct bytes *b, uint32_t field, const void *data, size_t n)
{
    add_varint(b, field << 3 | 2);
    add_varint(b, n);
    add(b, data, n);
}

/* The message is used up. */
static void add_message(struct bytes *b, uint32_t field, struct bytes *message)
{
    b->failed |= message->failed;
    add_data(b, field, message->at, message->used);
    message->used = 0;
}

/* The fields of profile.proto. */
enum {
    SAMPLE_TYPE = 1,
    SAMPLE = 2,
    LOCATION = 4,
    FUNCTION = 5,
    STRING = 6,
    TIME = 9,
    DURATION = 10,
    PERIOD_TYPE = 11,
    PERIOD = 12
};

/* Each string once, in the order of their numbers; by hash. */
struct strings {
    struct bytes table; /* of char *, malloc'ed */
    uint32_t *slot;     /* a power of two of them; the number and 1, or 0 */
    size_t slots;
};

static size_t string_count(const struct strings *s)
{
    return s->table.used / sizeof(char *);
}

static char **string_at(const struct strings *s, size_t i)
{
    return (char **)(void *)s->table.at + i;
}

static uint32_t *slot_of(const struct strings *s, const char *text)
{
    uint64_t hash = 14695981039346656037ull;
    for (const char *c = text; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
    for (size_t i = hash;; i++) {
        uint32_t *slot = &s->slot[i & (s->slots - 1)];
        if (*slot == 0 || strcmp(*string_at(s, *slot - 1), text) == 0)
            return slot;
    }
}

static bool grow_slots(struct strings *s)
{
    size_t slots = s->slots == 0 ? 1024 : 2 * s->slots;
    uint32_t *slot = calloc(slots, sizeof *slot);
    if (slot == NULL)
        return false;
    free(s->slot);
    s->slot = slot;
    s->slots = slots;
    for (size_t i = 0; i < string_count(s); i++)
        *slot_of(s, *string_at(s, i)) = (uint32_t)i + 1;
    return true;
}

/* Its number; *is_new. */
static uint64_t intern(struct strings *s, const char *text, bool *is_new)
{
    *is_new = false;
    if (2 * string_count(s) >= s->slots && !grow_slots(s)) {
        s->table.failed = true;
        return 0;
    }
    uint32_t *slot = slot_of(s, text);
    if (*slot != 0)
        return *slot - 1;
    char *copy = strdup(text);
    s->table.failed |= copy == NULL;
    if (copy == NULL)
        return 0;
    add(&s->table, &copy, sizeof copy);
    if (s->table.failed) {
        free(copy);
        return 0;
    }
    *slot = (uint32_t)string_count(s);
    *is_new = true;
    return *slot - 1;
}

static uint64_t string(struct strings *s, const char *text)
{
    bool is_new;
    return intern(s, text, &is_new);
}

static void free_strings(struct strings *s)
{
    for (size_t i = 0; i < string_count(s); i++)
        free(*string_at(s, i));
    free(s->table.at);
    free(s->slot);
}

static void add_value_type(struct bytes *b, struct bytes *scratch, uint32_t field, uint64_t type, uint64_t unit)
{
    add_number(scratch, 1, type);
    add_number(scratch, 2, unit);
    add_message(b, field, scratch);
}

/* The state of the encoding. */
struct encoding {
    struct bytes out, message, part; /* the whole; the message that is being made; a part of that */
    struct strings strings, functions;
};

static void add_label(struct encoding *e, const char *key, const char *value)
{
    if (value[0] == '\0')
        return;
    add_number(&e->part, 1, string(&e->strings, key));
    add_number(&e->part, 2, string(&e->strings, value));
    add_message(&e->message, 3, &e->part);
}

/* A location's number is its address. */
static void add_sample(struct encoding *e, const struct w_stack_count *s, int64_t period)
{
    char name[NAME];
    for (uint64_t i = 0; i < frame_count(s); i++)
        add_varint(&e->part, frames_of(s)[i]);
    add_message(&e->message, 1, &e->part);
    add_varint(&e->part, s->count);
    add_varint(&e->part, s->count * (uint64_t)period);
    add_message(&e->message, 2, &e->part);
    goroutine_name(s, name);
    add_label(e, "goroutine", name);
    if (s->entry != 0)
        name_code(s->entry, name, sizeof name);
    add_label(e, "entry", s->entry != 0 ? name : "(scheduler)");
    add_message(&e->out, SAMPLE, &e->message);
}

/* A function's number is that of its name and 1. */
static void add_location(struct encoding *e, uintptr_t pc)
{
    char name[NAME];
    bool is_new;
    name_code(pc, name, sizeof name);
    uint64_t id = intern(&e->functions, name, &is_new) + 1, text = string(&e->strings, name);
    if (is_new) {
        add_number(&e->message, 1, id);
        add_number(&e->message, 2, text);
        add_number(&e->message, 3, text);
        add_message(&e->out, FUNCTION, &e->message);
    }
    add_number(&e->part, 1, id);
    add_number(&e->message, 1, pc);
    add_number(&e->message, 3, pc);
    add_message(&e->message, 4, &e->part);
    add_message(&e->out, LOCATION, &e->message);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Each address once. */
static void add_locations(struct encoding *e, const struct stacks *all)
{
    struct bytes pcs = {0};
    for (size_t i = 0; i < all->n; i++)
        add(&pcs, frames_of(all->at[i]), frame_count(all->at[i]) * sizeof(uint64_t));
    e->out.failed |= pcs.failed;
    const uint64_t *pc = (const uint64_t *)(void *)pcs.at;
    size_t n = pcs.used / sizeof *pc;
    if (n > 0)
        qsort(pcs.at, n, sizeof *pc, by_number);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || pc[i] != pc[i - 1])
            add_location(e, pc[i]);
    free(pcs.at);
}

static void encode(const struct w_profile *p, const struct stacks *all, struct encoding *e)
{
    int64_t period = WEFT_SEC / p->hz;
    string(&e->strings, ""); /* the format wants it as the first */
    uint64_t cpu = string(&e->strings, "cpu"), ns = string(&e->strings, "nanoseconds");
    uint64_t samples = string(&e->strings, "samples"), number = string(&e->strings, "count");
    add_value_type(&e->out, &e->part, SAMPLE_TYPE, samples, number);
    add_value_type(&e->out, &e->part, SAMPLE_TYPE, cpu, ns);
    for (size_t i = 0; i < all->n; i++)
        add_sample(e, all->at[i], period);
    add_locations(e, all);
    add_value_type(&e->out, &e->part, PERIOD_TYPE, cpu, ns);
    add_number(&e->out, PERIOD, (uint64_t)period);
    add_number(&e->out, TIME, (uint64_t)p->began);
    add_number(&e->out, DURATION, (uint64_t)p->length);
    for (size_t i = 0; i < string_count(&e->strings); i++)
        add_data(&e->out, STRING, *string_at(&e->strings, i), strlen(*string_at(&e->strings, i)));
    e->out.failed |= e->message.failed || e->part.failed || e->strings.table.failed || e->functions.table.failed;
    free(e->message.at);
    free(e->part.at);
    free_strings(&e->strings);
    free_strings(&e->functions);
}

/* ---- gzip, nothing compressed ------------------------------------------------------------------------------------- */

static uint32_t crc_of(const char *data, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned char)data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void add_little(struct bytes *b, uint32_t n, int bytes)
{
    for (int i = 0; i < bytes; i++)
        add(b, &(char){(char)(n >> 8 * i)}, 1);
}

static void add_gzip(struct bytes *b, const struct bytes *data)
{
    static const char HEAD[] = {0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    enum { BLOCK = 65535 };
    b->failed |= data->failed;
    add(b, HEAD, sizeof HEAD);
    size_t at = 0;
    do {
        size_t n = data->used - at < BLOCK ? data->used - at : BLOCK;
        add_little(b, at + n == data->used, 1);
        add_little(b, (uint32_t)n, 2);
        add_little(b, ~(uint32_t)n, 2);
        add(b, data->at + at, n);
        at += n;
    } while (at < data->used);
    add_little(b, crc_of(data->at, data->used), 4);
    add_little(b, (uint32_t)data->used, 4);
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

int w_profile_write(const struct w_profile *p, int fd, enum w_profile_format format)
{
    struct stacks all;
    struct encoding e = {0};
    struct bytes packed = {0};
    quick = p->quick;
    int r = gather(p, &all);
    if (r != 0)
        return r;
    if (format == W_PROFILE_FOLDED)
        fold(&all, &e.out);
    else
        encode(p, &all, &e);
    w_symbols_close();
    if (format == W_PROFILE_PB_GZ)
        add_gzip(&packed, &e.out);
    r = write_out(fd, format == W_PROFILE_PB_GZ ? &packed : &e.out);
    if (r == 0 && all.dropped > 0)
        w_say("the profile lacks %lu samples: too many different stacks", (unsigned long)all.dropped);
    free(packed.at);
    free(e.out.at);
    free(all.at);
    return r;
}
