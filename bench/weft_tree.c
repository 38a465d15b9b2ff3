/* SPDX-License-Identifier: MIT */
/* Trees of goroutines: results go up by channel (skynet), or through memory and a wait group (fib). */
#include "weft_bench.h"

/* ---- skynet: 10 goroutines below each, and 1,000,000 leaves that send their numbers up to be summed ------------- */

enum { BRANCHES = 10, LEAVES = 1000000 };

struct node {
    weft_chan *up;
    int64_t first, leaves;
};

static void skynet_node(void *arg)
{
    struct node *n = arg;
    if (n->leaves == 1) {
        put(n->up, n->first);
        return;
    }
    struct node below = {.up = new_chan(sizeof(int64_t), 0), .first = n->first, .leaves = n->leaves / BRANCHES};
    for (int i = 0; i < BRANCHES; i++, below.first += below.leaves)
        go_copy(skynet_node, &below, sizeof below);
    int64_t sum = 0;
    for (int i = 0; i < BRANCHES; i++)
        sum += take(below.up);
    weft_chan_free(below.up);
    put(n->up, sum);
}

static void skynet_pass(void)
{
    struct node top = {.up = new_chan(sizeof(int64_t), 0), .leaves = LEAVES};
    go(skynet_node, &top);
    expect("the sum of skynet", take(top.up), (int64_t)LEAVES * (LEAVES - 1) / 2);
    weft_chan_free(top.up);
}

void skynet(const struct workload *w)
{
    int64_t start = now_ns();
    skynet_pass();
    report(w, ms_since(start), "ms");
    report_part(w, "warm", per_op(skynet_pass, 1) / 1e6, "ms");
}

/* ---- fib: fork and join, a goroutine for each call -------------------------------------------------------------- */

enum { FIB_OF = 27, FIB_RESULT = 196418, FIB_CALLS = 635621 };

struct call {
    int n;
    int64_t result;
    weft_wg *returned;
};

static void fib_call(void *arg)
{
    struct call *c = arg;
    if (c->n < 2) {
        c->result = c->n;
    } else {
        weft_wg both = {0};
        struct call a = {.n = c->n - 1, .returned = &both}, b = {.n = c->n - 2, .returned = &both};
        weft_wg_add(&both, 2);
        go(fib_call, &a);
        go(fib_call, &b);
        wait_for(&both);
        c->result = a.result + b.result;
    }
    weft_wg_done(c->returned);
}

static void fib_pass(void)
{
    weft_wg returned = {0};
    struct call c = {.n = FIB_OF, .returned = &returned};
    weft_wg_add(&returned, 1);
    go(fib_call, &c);
    wait_for(&returned);
    expect("the result of fib", c.result, FIB_RESULT);
}

void fib(const struct workload *w)
{
    report(w, per_op(fib_pass, FIB_CALLS), "ns/goroutine");
}
