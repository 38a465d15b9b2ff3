/* SPDX-License-Identifier: MIT */
/*
 * Ten thousand goroutines in a row, each with a channel to its left and one to its right. A number goes in at the
 * right end, each adds one, and it comes out at the left.
 *
 *   $ cc chain.c -lweft -o chain && ./chain
 *   through 10000 goroutines: 10000
 */
#include <stdio.h>
#include <weft.h>

enum { LENGTH = 10000 };

struct link {
    weft_chan_of(int) left, right;
};

static void add_one(void *arg)
{
    struct link *link = arg;
    int n;
    if (weft_take(link->right, &n) == 0)
        weft_put(link->left, n + 1);
    weft_free_of(link->right); /* whoever sent on it is done with it */
}

static void start(void *arg)
{
    weft_chan_of(int) end = weft_make(int, 0);
    struct link link = {NULL, end};
    int n = 0;
    (void)arg;
    for (int i = 0; i < LENGTH; i++) {
        link.left = link.right;
        link.right = weft_make(int, 0);
        if (link.right == NULL || weft_go_copy(add_one, &link, sizeof link) < 0) {
            fprintf(stderr, "no memory for goroutine %d\n", i);
            return;
        }
    }
    weft_put(link.right, 0);
    weft_take(end, &n);
    printf("through %d goroutines: %d\n", LENGTH, n);
    weft_free_of(end);
}

int main(void)
{
    return weft_run(start, NULL) == 0 ? 0 : 1;
}
