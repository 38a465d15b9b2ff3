/* SPDX-License-Identifier: MIT */
/* Trees of goroutines: results go up by channel (skynet), or through memory and a wait group (fib, matrices). */
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

/* The number of leaves is a power of ten. */
void skynet_pass(int64_t leaves)
{
    struct node top = {.up = new_chan(sizeof(int64_t), 0), .leaves = leaves};
    go(skynet_node, &top);
    expect("the sum of skynet", take(top.up), leaves * (leaves - 1) / 2);
    weft_chan_free(top.up);
}

static void skynet_of_a_million(void)
{
    skynet_pass(LEAVES);
}

void skynet(const struct workload *w)
{
    int64_t start = now_ns();
    skynet_of_a_million();
    report(w, ms_since(start), "ms");
    report_part(w, "warm", per_op(skynet_of_a_million, 1) / 1e6, "ms");
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

/* ---- matmul: products of quarters, four at a time, twice ------------------------------------------------------- */

enum { MATMUL_SIDE = 512, MATMUL_LEAF = 32 };

/* Squares within matrices of MATMUL_SIDE, of which c gets the product of a and b added. */
struct product {
    int side;
    const double *a, *b;
    double *c;
    weft_wg *done;
};

static void multiply(void *arg);

static void add_row(double *restrict row, double factor, const double *restrict other)
{
    for (int j = 0; j < MATMUL_LEAF; j++)
        row[j] += factor * other[j];
}

static void multiply_leaf(const struct product *p)
{
    for (int i = 0; i < MATMUL_LEAF; i++)
        for (int k = 0; k < MATMUL_LEAF; k++)
            add_row(p->c + i * MATMUL_SIDE, p->a[i * MATMUL_SIDE + k], p->b + k * MATMUL_SIDE);
}

/* Adds to each quarter of c one of its two products: the one with the left (0) or the right (1) half of a. */
static void multiply_quarters(const struct product *p, int half)
{
    int side = p->side / 2;
    size_t down = (size_t)side * MATMUL_SIDE, right = (size_t)side;
    weft_wg done = {0};
    weft_wg_add(&done, 4);
    for (size_t row = 0; row < 2; row++)
        for (size_t column = 0; column < 2; column++) {
            struct product quarter = {side, p->a + row * down + (size_t)half * right,
                                      p->b + (size_t)half * down + column * right, p->c + row * down + column * right,
                                      &done};
            go_copy(multiply, &quarter, sizeof quarter);
        }
    wait_for(&done);
}

static void multiply(void *arg)
{
    const struct product *p = arg;
    if (p->side == MATMUL_LEAF) {
        multiply_leaf(p);
    } else {
        multiply_quarters(p, 0);
        multiply_quarters(p, 1);
    }
    weft_wg_done(p->done);
}

static double *new_matrix(int side, double value)
{
    double *m = calloc((size_t)side * (size_t)side, sizeof *m);
    if (m == NULL)
        die("calloc", ENOMEM);
    for (int i = 0; i < side * side; i++)
        m[i] = value;
    return m;
}

static struct {
    int side;
    double *a, *b, *c;
} matrices;

static void make_matrices(int side)
{
    matrices.side = side;
    matrices.a = new_matrix(side, 1);
    matrices.b = new_matrix(side, 2);
    matrices.c = new_matrix(side, 0);
}

static void check_product(void)
{
    for (int i = 0; i < matrices.side * matrices.side; i++)
        expect("an element of the product", (int64_t)matrices.c[i], 2 * matrices.side);
}

static void clear_product(void)
{
    memset(matrices.c, 0, sizeof *matrices.c * (size_t)matrices.side * (size_t)matrices.side);
}

static void matmul_pass(void)
{
    clear_product();
    weft_wg done = {0};
    weft_wg_add(&done, 1);
    struct product whole = {MATMUL_SIDE, matrices.a, matrices.b, matrices.c, &done};
    go(multiply, &whole);
    wait_for(&done);
}

void matmul(const struct workload *w)
{
    make_matrices(MATMUL_SIDE);
    report(w, per_op(matmul_pass, 1) / 1e6, "ms");
    check_product();
}

/* ---- matmult: of Go's runtime: halves the longest side, down to less than 8; who waits does the other half ------ */

enum { MATMULT_SIDE = 200, MATMULT_THRESHOLD = 8 };

struct range {
    int from, to;
};

struct box {
    struct range i, j, k;
    weft_wg *done; /* NULL: the caller waits by calling */
};

static int length(struct range r)
{
    return r.to - r.from;
}

static void matmult_box(void *arg);

static void matmult_leaf(const struct box *b)
{
    const double *restrict first = matrices.a, *restrict second = matrices.b;
    double *restrict product = matrices.c;
    const struct range is = b->i, js = b->j, ks = b->k;
    for (int i = is.from; i < is.to; i++)
        for (int j = js.from; j < js.to; j++)
            for (int k = ks.from; k < ks.to; k++)
                product[i * MATMULT_SIDE + j] += first[i * MATMULT_SIDE + k] * second[k * MATMULT_SIDE + j];
}

/* Both halves of a box, cut across one of its sides; in parallel where they write to different places. */
static void matmult_halves(struct box *low, struct range *low_side, struct box *high, struct range *high_side,
                           bool parallel)
{
    weft_wg done = {0};
    int middle = low_side->from + length(*low_side) / 2;
    low_side->to = high_side->from = middle;
    low->done = high->done = NULL;
    if (parallel) {
        weft_wg_add(&done, 1);
        low->done = &done;
        go(matmult_box, low);
    } else {
        matmult_box(low);
    }
    matmult_box(high);
    wait_for(&done);
}

static void matmult_box(void *arg)
{
    struct box *b = arg, low = *b, high = *b;
    int i = length(b->i), j = length(b->j), k = length(b->k);
    if (i >= j && i >= k && i >= MATMULT_THRESHOLD)
        matmult_halves(&low, &low.i, &high, &high.i, true);
    else if (j >= k && j >= MATMULT_THRESHOLD)
        matmult_halves(&low, &low.j, &high, &high.j, true);
    else if (k >= MATMULT_THRESHOLD)
        matmult_halves(&low, &low.k, &high, &high.k, false);
    else
        matmult_leaf(b);
    if (b->done != NULL)
        weft_wg_done(b->done);
}

static void matmult_pass(void)
{
    clear_product();
    struct range whole = {0, MATMULT_SIDE};
    matmult_box(&(struct box){whole, whole, whole, NULL});
}

void matmult(const struct workload *w)
{
    make_matrices(MATMULT_SIDE);
    report(w, per_op(matmult_pass, (int64_t)MATMULT_SIDE * MATMULT_SIDE * MATMULT_SIDE), "ns/product");
    check_product();
}
