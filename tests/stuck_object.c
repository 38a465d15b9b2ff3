/* SPDX-License-Identifier: MIT */
/* A shared object that is never done loading: whoever loads it holds the dynamic linker's lock. STUCK_OBJECT_TELLS is a descriptor. */
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void stay(void)
{
    const char *tells = getenv("STUCK_OBJECT_TELLS");
    if (tells == NULL || write(atoi(tells), "x", 1) != 1)
        return;
    for (;;)
        pause();
}
