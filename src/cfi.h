/* SPDX-License-Identifier: MIT */
/* Rows of unwind tables: how a frame's caller is found from each address (cfi.c); and the numbers that such tables are written in. */
#ifndef W_CFI_H
#define W_CFI_H

#include "frames.h"
#include <string.h>

enum { W_EXPRESSION = 22 };

enum { W_OP_BREG0 = 0x70 }; /* DW_OP_breg0: a register and an offset; the next ones are of the next registers */

enum w_how { W_SAME, W_UNDEFINED, W_AT_CFA, W_AT_FP, W_IS_CFA, W_IN_REGISTER, W_UNKNOWN };

struct w_rule {
    enum w_how how : 8;
    int32_t n : 24; /* offset, or number of the register */
};

/* How to find the caller's registers at one address. */
struct w_row {
    uintptr_t pc; /* 0: an empty place */
    int32_t cfa_offset;
    uint8_t cfa_register;
    uint8_t ra;   /* the column of the return address */
    bool there;   /* false: there is no such code */
    bool signal;  /* a handler returns to here */
    uint8_t size; /* of the expression, if not 0, that says where the frame is */
    uint8_t expression[W_EXPRESSION];
    struct w_rule rule[W_REGS];
};

/* NULL: there is no such code, or no table for it. Valid until the next. */
const struct w_row *w_row_of(struct w_rows *rows, uintptr_t pc);

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

struct w_cursor {
    const uint8_t *at, *end;
};

static inline uint64_t w_number(struct w_cursor *r, unsigned size)
{
    uint64_t value = 0;
    if ((size_t)(r->end - r->at) < size) {
        r->at = r->end;
        return 0;
    }
    memcpy(&value, r->at, size);
    r->at += size;
    return value;
}

static inline uint64_t w_uleb(struct w_cursor *r)
{
    uint64_t value = 0;
    for (unsigned shift = 0; r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            break;
    }
    return value;
}

static inline int64_t w_sleb(struct w_cursor *r)
{
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte = 128;
    while (byte >= 128 && r->at < r->end) {
        byte = *r->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 127) << shift;
        shift += 7;
    }
    if (shift < 64 && byte & 64)
        value |= ~(uint64_t)0 << shift;
    return (int64_t)value;
}

#endif
