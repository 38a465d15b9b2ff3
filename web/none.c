/* SPDX-License-Identifier: MIT */
/* In the place of the live picture, in a library that was built without it (WEFT_WEB=OFF). */
#include "weft_internal.h"
#include <stdlib.h>

int weft_http_start(const char *address)
{
    (void)address;
    return -ENOSYS;
}

int weft_http_stop(void)
{
    return -ESRCH;
}

int w_web_settle(void)
{
    return 0;
}

void w_web_begin(void)
{
    const char *address = getenv("WEFT_HTTP");
    if (address != NULL && address[0] != '\0')
        w_say("no live picture at WEFT_HTTP=%s: this library was built without it", address);
}

void w_web_end(void)
{
}
