/* SPDX-License-Identifier: MIT */
/* The one way for tests to look inside the library. */
#ifndef WHITEBOX_H
#define WHITEBOX_H

#include "weft_internal.h"

#endif
