/* SPDX-License-Identifier: MIT */
/* Reading memory that others may be changing, giving back or unmapping: what is not there is an error, not a fault (peek.c). */
#ifndef W_PEEK_H
#define W_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void w_peek_begin(void);                            /* before the first look: whose memory it is */
bool w_peek(void *to, uintptr_t from, size_t size); /* false: not all of it is there */

/* Memory that is there for certain, word by word, though others may write to it meanwhile. size: a multiple of 8. */
void w_peek_words(void *to, const void *from, size_t size);

#endif
