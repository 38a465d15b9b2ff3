/* SPDX-License-Identifier: MIT */
#include "drain.h"

long drain_ints(weft_chan_of(int) ch)
{
    long sum = 0;
    for (int n; weft_take(ch, &n) == 0;)
        sum += n;
    return sum;
}

double drain_readings(weft_chan_of(struct reading) ch)
{
    double sum = 0;
    for (struct reading r; weft_take(ch, &r) == 0;)
        sum += r.value;
    return sum;
}
