/* SPDX-License-Identifier: MIT */
/*
 * Unwind tables (DWARF call frame information, .eh_frame), read as far as a backtrace needs them.
 *
 *      pc ──> object ──> .eh_frame_hdr: sorted table ──> FDE and its CIE: a little program ──> row: how to find the caller's frame
 *
 * A row is found once and kept in a table by its pc (a hash, the last one stays): a million goroutines wait in a few places, and then a
 * frame costs 20 ns instead of 500. The table of a dump lives as long as that; each M has a small one for preemption (preempt.c), which
 * is emptied when objects have come or gone. Who is stopped is stopped in the same few functions again and again, but at any of their addresses:
 * so functions are kept as well, which spares the search (2 us if the tables are not in the cache).
 *
 * It takes no lock and no memory, if libc has _dl_find_object (since 2.35).
 */
#include "cfi.h"
#include "weft_internal.h"
#include <dlfcn.h>
#include <link.h>

enum {
    DEPTH = 8,
    FUNCTION_BITS = 5,
    NEAR = 8 /* bits: addresses that differ in these alone are likely of one function */
};

struct function {
    uintptr_t begin, size;
    const uint8_t *fde;
};

struct w_rows {
    unsigned bits;              /* of their number */
    unsigned long long objects; /* that the linker had loaded and unloaded when the first of them was found */
    struct function function[1 << FUNCTION_BITS];
    struct w_row row[];
};

static size_t size_of(unsigned bits)
{
    return sizeof(struct w_rows) + (sizeof(struct w_row) << bits);
}

struct w_rows *w_rows_new(unsigned bits)
{
    struct w_rows *rows = w_map(size_of(bits));
    if (rows != NULL)
        rows->bits = bits;
    return rows;
}

void w_rows_free(struct w_rows *rows)
{
    munmap(rows, size_of(rows->bits));
}

void w_rows_refresh(struct w_rows *rows, unsigned long long objects)
{
    if (rows->objects == objects)
        return;
    memset(rows->function, 0, sizeof rows->function);
    memset(rows->row, 0, sizeof(struct w_row) << rows->bits);
    rows->objects = objects;
}

/* The higher bits of the product depend on all bits of the key. */
static size_t place_of(uintptr_t key, unsigned bits)
{
    return (size_t)((key * 0x9E3779B97F4A7C15ull) >> (64 - bits));
}

/* ---- reading unwind tables -------------------------------------------------------------------------------------- */

enum { FORMAT = 15, OMIT = 255, RELATIVE = 112, TO_ITSELF = 16, TO_TABLE = 48, INDIRECT = 128 };

/* table: what addresses may be relative to. */
static uintptr_t encoded(struct w_cursor *r, uint8_t encoding, uintptr_t table)
{
    static const uint8_t SIZES[] = {8, 0, 2, 4, 8};
    uintptr_t base = (encoding & RELATIVE) == TO_ITSELF  ? (uintptr_t)r->at
                     : (encoding & RELATIVE) == TO_TABLE ? table
                                                         : 0;
    uint8_t format = encoding & 7;
    uint64_t value = 0;
    if (encoding == OMIT || format >= sizeof SIZES)
        return 0;
    if (format == 1)
        value = encoding & 8 ? (uint64_t)w_sleb(r) : w_uleb(r);
    else
        value = w_number(r, SIZES[format]);
    unsigned bits = 8 * SIZES[format];
    if (encoding & 8 && bits > 0 && bits < 64 && value >> (bits - 1))
        value |= ~(uint64_t)0 << bits;
    return base + (uintptr_t)value;
}

/* ---- which code is where ---------------------------------------------------------------------------------------- */

#ifdef DLFO_STRUCT_HAS_EH_DBASE

static const uint8_t *table_for(uintptr_t pc)
{
    struct dl_find_object found;
    return _dl_find_object((void *)pc, &found) == 0 ? found.dlfo_eh_frame : NULL;
}

#else

struct search {
    uintptr_t pc;
    const uint8_t *table;
};

static int look_at_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;
    const uint8_t *table = NULL;
    bool here = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        here |= ph->p_type == PT_LOAD && s->pc - (info->dlpi_addr + ph->p_vaddr) < ph->p_memsz;
        if (ph->p_type == PT_GNU_EH_FRAME)
            table = (const uint8_t *)(info->dlpi_addr + ph->p_vaddr);
    }
    s->table = here ? table : NULL;
    return here;
}

static const uint8_t *table_for(uintptr_t pc)
{
    struct search s = {.pc = pc};
    dl_iterate_phdr(look_at_object, &s);
    return s.table;
}

#endif

/* The last entry of the sorted table at or before pc: pairs of 32-bit offsets from the table's begin. NULL: none. */
static const uint8_t *find_fde(uintptr_t pc)
{
    enum { OFFSETS = 0x3b, HEAD = 64 };
    const uint8_t *table = table_for(pc);
    if (table == NULL || table[0] != 1 || table[3] != OFFSETS)
        return NULL;
    struct w_cursor r = {table + 4, table + HEAD};
    encoded(&r, table[1], (uintptr_t)table);
    uint64_t count = encoded(&r, table[2], (uintptr_t)table), lo = 0, hi = count;
    int64_t wanted = (int64_t)(pc - (uintptr_t)table);
    int32_t pair[2];
    while (lo < hi) {
        uint64_t mid = (lo + hi) / 2;
        memcpy(pair, r.at + mid * sizeof pair, sizeof pair);
        if (pair[0] <= wanted)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return NULL;
    memcpy(pair, r.at + (lo - 1) * sizeof pair, sizeof pair);
    return table + pair[1];
}

/* ---- the program of a row --------------------------------------------------------------------------------------- */

struct common {
    uint64_t code_align;
    int64_t data_align;
    struct w_cursor program;
    uint8_t ra, encoding;
    bool signal, augmented;
};

static struct w_cursor entry_at(const uint8_t *at)
{
    uint32_t size;
    memcpy(&size, at, sizeof size);
    return size == UINT32_MAX ? (struct w_cursor){at, at}
                              : (struct w_cursor){at + sizeof size, at + sizeof size + size};
}

static void read_augmentation(struct common *c, struct w_cursor *r, const char *letters)
{
    for (; *letters != '\0'; letters++) {
        if (*letters == 'R')
            c->encoding = (uint8_t)w_number(r, 1);
        else if (*letters == 'L')
            w_number(r, 1);
        else if (*letters == 'P')
            encoded(r, (uint8_t)w_number(r, 1) & ~INDIRECT, 0);
        else if (*letters == 'S')
            c->signal = true;
    }
}

static bool read_common(struct common *c, const uint8_t *at)
{
    struct w_cursor r = entry_at(at);
    *c = (struct common){0};
    if (w_number(&r, 4) != 0)
        return false;
    uint8_t version = (uint8_t)w_number(&r, 1);
    const char *letters = (const char *)r.at;
    while (r.at < r.end && *r.at++ != 0)
        ;
    c->code_align = w_uleb(&r);
    c->data_align = w_sleb(&r);
    c->ra = (uint8_t)(version == 1 ? w_number(&r, 1) : w_uleb(&r));
    c->augmented = letters[0] == 'z';
    if (letters[0] != '\0' && !c->augmented)
        return false;
    if (c->augmented) {
        uint64_t size = w_uleb(&r);
        struct w_cursor data = {r.at, r.end};
        if (size > (size_t)(r.end - r.at))
            return false;
        read_augmentation(c, &data, letters + 1);
        r.at += size;
    }
    c->program = r;
    return c->ra < W_REGS;
}

struct machine {
    struct w_row row, initial, saved[DEPTH];
    unsigned depth;
    uintptr_t at;
    const struct common *c;
    bool failed;
};

static void set_rule(struct machine *m, uint64_t reg, enum w_how how, int64_t n)
{
    bool fits = n >= -(1 << 23) && n < 1 << 23;
    if (reg < W_REGS)
        m->row.rule[reg] = (struct w_rule){.how = fits ? how : W_UNKNOWN, .n = fits ? (int32_t)n : 0};
}

static void set_cfa(struct machine *m, uint64_t reg, int64_t offset)
{
    m->failed |= reg >= W_REGS || offset != (int32_t)offset;
    m->row.cfa_register = (uint8_t)reg;
    m->row.cfa_offset = (int32_t)offset;
    m->row.size = 0;
}

static void set_expression(struct machine *m, struct w_cursor *r)
{
    uint64_t size = w_uleb(r);
    m->failed |= size == 0 || size > W_EXPRESSION || size > (size_t)(r->end - r->at);
    if (m->failed)
        return;
    memcpy(m->row.expression, r->at, size);
    m->row.size = (uint8_t)size;
    r->at += size;
}

static void skip_block(struct w_cursor *r)
{
    uint64_t size = w_uleb(r);
    r->at = size > (size_t)(r->end - r->at) ? r->end : r->at + size;
}

/* Of these, only what compilers write where a stack is realigned: it is there, so far from the frame pointer. */
static void set_by_expression(struct machine *m, struct w_cursor *r)
{
    uint64_t reg = w_uleb(r);
    struct w_cursor block = *r;
    uint64_t size = w_uleb(&block);
    skip_block(r);
    bool near_fp = size > 1 && size <= (size_t)(block.end - block.at) && block.at[0] == W_OP_BREG0 + W_REG_FP;
    struct w_cursor number = {block.at + near_fp, r->at};
    int64_t offset = near_fp ? w_sleb(&number) : 0;
    set_rule(m, reg, near_fp && number.at == number.end ? W_AT_FP : W_UNKNOWN, offset);
}

static void restore(struct machine *m, uint64_t reg)
{
    if (reg < W_REGS)
        m->row.rule[reg] = m->initial.rule[reg];
}

static void remember(struct machine *m)
{
    m->failed |= m->depth == DEPTH;
    if (!m->failed)
        m->saved[m->depth++] = m->row;
}

static void recall(struct machine *m)
{
    m->failed |= m->depth == 0;
    if (!m->failed)
        m->row = m->saved[--m->depth];
}

enum { /* DW_CFA_ */
       NOP,
       SET_LOC,
       ADVANCE1,
       ADVANCE2,
       ADVANCE4,
       OFFSET_EXTENDED,
       RESTORE_EXTENDED,
       UNDEFINED_VALUE,
       SAME_VALUE,
       REGISTER,
       REMEMBER,
       RECALL,
       DEF_CFA,
       DEF_CFA_REGISTER,
       DEF_CFA_OFFSET,
       DEF_CFA_EXPRESSION,
       BY_EXPRESSION,
       OFFSET_EXTENDED_SF,
       DEF_CFA_SF,
       DEF_CFA_OFFSET_SF,
       VAL_OFFSET,
       VAL_OFFSET_SF,
       VAL_EXPRESSION,
       NEGATE_RA_STATE = 0x2d,
       ARGS_SIZE = 0x2e,
       NEGATIVE_OFFSET = 0x2f,
       ADVANCE = 0x40,
       OFFSET = 0x80,
       RESTORE = 0xc0,
       LOW_BITS = 0x3f,
};

static void about_cfa(struct machine *m, struct w_cursor *r, uint8_t op)
{
    int64_t align = m->c->data_align;
    uint64_t reg = m->row.cfa_register;
    switch (op) {
    case DEF_CFA:
        reg = w_uleb(r);
        set_cfa(m, reg, (int64_t)w_uleb(r));
        break;
    case DEF_CFA_SF:
        reg = w_uleb(r);
        set_cfa(m, reg, w_sleb(r) * align);
        break;
    case DEF_CFA_REGISTER:
        set_cfa(m, w_uleb(r), m->row.cfa_offset);
        break;
    case DEF_CFA_OFFSET:
        set_cfa(m, reg, (int64_t)w_uleb(r));
        break;
    case DEF_CFA_OFFSET_SF:
        set_cfa(m, reg, w_sleb(r) * align);
        break;
    case DEF_CFA_EXPRESSION:
        set_expression(m, r);
        break;
    default:
        m->failed = true;
    }
}

/* false: it is not about one register. */
static bool about_register(struct machine *m, struct w_cursor *r, uint8_t op)
{
    int64_t align = m->c->data_align;
    uint64_t reg;
    switch (op) {
    case OFFSET_EXTENDED:
        reg = w_uleb(r);
        set_rule(m, reg, W_AT_CFA, (int64_t)w_uleb(r) * align);
        break;
    case OFFSET_EXTENDED_SF:
        reg = w_uleb(r);
        set_rule(m, reg, W_AT_CFA, w_sleb(r) * align);
        break;
    case NEGATIVE_OFFSET:
        reg = w_uleb(r);
        set_rule(m, reg, W_AT_CFA, -(int64_t)w_uleb(r) * align);
        break;
    case VAL_OFFSET:
        reg = w_uleb(r);
        set_rule(m, reg, W_IS_CFA, (int64_t)w_uleb(r) * align);
        break;
    case VAL_OFFSET_SF:
        reg = w_uleb(r);
        set_rule(m, reg, W_IS_CFA, w_sleb(r) * align);
        break;
    case RESTORE_EXTENDED:
        restore(m, w_uleb(r));
        break;
    case UNDEFINED_VALUE:
        set_rule(m, w_uleb(r), W_UNDEFINED, 0);
        break;
    case SAME_VALUE:
        set_rule(m, w_uleb(r), W_SAME, 0);
        break;
    case REGISTER:
        reg = w_uleb(r);
        set_rule(m, reg, W_IN_REGISTER, (int64_t)w_uleb(r));
        break;
    case BY_EXPRESSION:
        set_by_expression(m, r);
        break;
    case VAL_EXPRESSION:
        set_rule(m, w_uleb(r), W_UNKNOWN, 0);
        skip_block(r);
        break;
    default:
        return false;
    }
    return true;
}

/* Those that carry a number in their own byte. */
static void short_step(struct machine *m, struct w_cursor *r, uint8_t op)
{
    uint8_t n = op & LOW_BITS;
    if ((op & ~LOW_BITS) == ADVANCE)
        m->at += n * m->c->code_align;
    else if ((op & ~LOW_BITS) == OFFSET)
        set_rule(m, n, W_AT_CFA, (int64_t)w_uleb(r) * m->c->data_align);
    else
        restore(m, n);
}

static void step(struct machine *m, struct w_cursor *r)
{
    uint8_t op = (uint8_t)w_number(r, 1);
    if (op >= ADVANCE)
        short_step(m, r, op);
    else if (op == ADVANCE1 || op == ADVANCE2 || op == ADVANCE4)
        m->at += w_number(r, 1u << (op - ADVANCE1)) * m->c->code_align;
    else if (op == SET_LOC)
        m->at = encoded(r, m->c->encoding, 0);
    else if (op == REMEMBER)
        remember(m);
    else if (op == RECALL)
        recall(m);
    else if (op == ARGS_SIZE)
        w_uleb(r);
    else if (op != NOP && op != NEGATE_RA_STATE && !about_register(m, r, op))
        about_cfa(m, r, op);
}

/* Up to the place of pc: what comes after it is of no concern. */
static void execute(struct machine *m, struct w_cursor r, uintptr_t pc)
{
    while (r.at < r.end && !m->failed && m->at <= pc)
        step(m, &r);
}

/* The two parts of an FDE: whose it is, and the program. */
static bool read_fde(const uint8_t *at, struct common *c, struct function *f, struct w_cursor *program)
{
    struct w_cursor r = entry_at(at);
    const uint8_t *link = r.at;
    uint64_t back = w_number(&r, 4);
    if (back == 0 || !read_common(c, link - back))
        return false;
    f->begin = encoded(&r, c->encoding, 0);
    f->size = encoded(&r, c->encoding & FORMAT, 0);
    f->fde = at;
    if (c->augmented)
        skip_block(&r);
    *program = r;
    return true;
}

static bool make_row(struct w_rows *rows, struct w_row *row, uintptr_t pc)
{
    struct function *kept = &rows->function[place_of(pc >> NEAR, FUNCTION_BITS)];
    const uint8_t *at = pc - kept->begin < kept->size ? kept->fde : find_fde(pc);
    struct w_cursor program;
    struct common c;
    struct machine m;
    if (at == NULL || !read_fde(at, &c, kept, &program) || pc - kept->begin >= kept->size)
        return false;
    m.c = &c;
    m.depth = 0;
    m.failed = false;
    m.row = (struct w_row){.pc = pc, .there = true, .ra = c.ra, .signal = c.signal};
    m.at = 0;
    execute(&m, c.program, 0);
    m.initial = m.row;
    m.at = kept->begin;
    execute(&m, program, pc);
    *row = m.row;
    return !m.failed;
}

const struct w_row *w_row_of(struct w_rows *rows, uintptr_t pc)
{
    struct w_row *row = &rows->row[place_of(pc, rows->bits)];
    if (row->pc != pc && !make_row(rows, row, pc))
        *row = (struct w_row){.pc = pc};
    return row->there ? row : NULL;
}
