/* SPDX-License-Identifier: MIT */
/*
 * The programs behind the traces in this folder.
 *
 *   $ cc -O2 -Iinclude tools/traces/traced.c build/libweft.a -lpthread -ldl -o build/traced
 *   $ WEFT_PROCS=2 WEFT_TRACE=build/tree.json build/traced tree
 *   $ tools/simulate.py --shorten build/tree.json > tools/traces/tree.trace
 */
#include <stdio.h>
#include <string.h>
#include <weft.h>

static void compute(int64_t ns)
{
    for (int64_t end = weft_now() + ns; weft_now() < end;)
        ;
}

/* ---- tree: ten below each, a thousand leaves that compute for 20 us --------------------------------------------- */

struct node {
    weft_wg *above;
    int leaves;
};

static void node(void *arg)
{
    struct node n = *(struct node *)arg;
    if (n.leaves == 1) {
        compute(20 * WEFT_USEC);
    } else {
        weft_wg below = {0};
        weft_wg_add(&below, 10);
        for (int i = 0; i < 10; i++)
            weft_go_copy(node, &(struct node){&below, n.leaves / 10}, sizeof n);
        weft_wg_wait(&below);
    }
    weft_wg_done(n.above);
}

static void tree(void)
{
    weft_wg wg = {0};
    weft_wg_add(&wg, 1);
    weft_go_copy(node, &(struct node){&wg, 1000}, sizeof(struct node));
    weft_wg_wait(&wg);
}

/* ---- pipeline: 16 chains of 4 stages, 25 items through each, 5 us an item and stage ----------------------------- */

enum { CHAINS = 16, STAGES = 4, ITEMS = 25, ROOM = 4 };

struct stage {
    weft_chan *in, *out; /* NULL: the first makes them, the last drops them */
    weft_wg *wg;
};

static void stage(void *arg)
{
    struct stage s = *(struct stage *)arg;
    for (int item = 0; item < ITEMS; item++) {
        if (s.in != NULL)
            weft_recv(s.in, &item);
        compute(5 * WEFT_USEC);
        if (s.out != NULL)
            weft_send(s.out, &item);
    }
    weft_wg_done(s.wg);
}

static void pipeline(void)
{
    static weft_chan *chans[CHAINS][STAGES - 1];
    weft_wg wg = {0};
    weft_wg_add(&wg, CHAINS * STAGES);
    for (int c = 0; c < CHAINS; c++) {
        for (int i = 0; i < STAGES - 1; i++)
            chans[c][i] = weft_chan_new(sizeof(int), ROOM);
        for (int i = 0; i < STAGES; i++) {
            struct stage s = {i > 0 ? chans[c][i - 1] : NULL, i < STAGES - 1 ? chans[c][i] : NULL, &wg};
            weft_go_copy(stage, &s, sizeof s);
        }
    }
    weft_wg_wait(&wg);
    for (int c = 0; c < CHAINS; c++)
        for (int i = 0; i < STAGES - 1; i++)
            weft_chan_free(chans[c][i]);
}

static void run(void *arg)
{
    if (strcmp(arg, "tree") == 0)
        tree();
    else
        pipeline();
}

int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "tree") != 0 && strcmp(argv[1], "pipeline") != 0)) {
        fprintf(stderr, "usage: %s tree|pipeline\n", argv[0]);
        return 2;
    }
    return weft_run(run, argv[1]) == 0 ? 0 : 1;
}
