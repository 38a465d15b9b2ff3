/* SPDX-License-Identifier: MIT */
/* Goroutines that wait for each other's locks in a ring (rings.c). */
#ifndef W_RINGS_H
#define W_RINGS_H

#include "dump.h"

void w_rings_print(struct w_out *out);

#endif
