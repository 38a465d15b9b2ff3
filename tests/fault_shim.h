/* SPDX-License-Identifier: MIT */
/*
 * Calls of the library into libc that fail on order. The executable is linked with --wrap for each of them, so only calls
 * made by the library and by the tests come here, not those that libc makes itself.
 */
#ifndef FAULT_SHIM_H
#define FAULT_SHIM_H

#include <stdbool.h>

enum fault_kind {
    FAULT_MMAP = 1,
    FAULT_MALLOC = 2, /* and calloc, realloc, aligned_alloc, strdup */
    FAULT_THREAD = 4,
    FAULT_ADVICE = 8, /* madvise, mprotect, process_madvise, membarrier */
    FAULT_ALL = 15,
};

/* From now on calls of these kinds are counted, and the ones from `first` to `last` fail. */
void fault_arm(int kinds, long first, long last);
void fault_disarm(void);

long fault_failed(void); /* calls that were made to fail since they were armed */
long fault_blocks(void); /* malloc'ed and not yet freed by the library and the tests */
long fault_mapped(void); /* bytes mapped and not yet unmapped by them */

#endif
