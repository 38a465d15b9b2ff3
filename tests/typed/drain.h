/* SPDX-License-Identifier: MIT */
/* A C function with typed channels in its signature, for callers in C and in C++. */
#include <weft.h>

struct reading {
    int sensor;
    double value;
};

#ifdef __cplusplus
extern "C" {
#endif

/* The sum of what comes until the channel is closed. */
long drain_ints(weft_chan_of(int) ch);
double drain_readings(weft_chan_of(struct reading) ch);

#ifdef __cplusplus
}
#endif
