// SPDX-License-Identifier: MIT
//
// Trees of fibers: results go up by channel (skynet), as futures (fib), or through memory (matrices).
#include "bench.hpp"

// ---- skynet: 10 fibers below each, and leaves that send their numbers up to be summed ----

static void skynet_node(const Buffered<int64_t> &up, int64_t first, int64_t leaves)
{
    const int branches = 10;
    if (leaves == 1) {
        up->push(first);
        return;
    }
    auto below = buffered<int64_t>(16);
    int64_t part = leaves / branches, sum = 0;
    for (int i = 0; i < branches; i++)
        go([=] { skynet_node(below, first + i * part, part); });
    for (int i = 0; i < branches; i++)
        sum += below->value_pop();
    up->push(sum);
}

static void skynet_pass(int64_t leaves)
{
    auto top = buffered<int64_t>(2);
    go([=] { skynet_node(top, 0, leaves); });
    expect("the sum of skynet", top->value_pop(), leaves * (leaves - 1) / 2);
}

void skynet(const Workload &w)
{
    auto milliseconds = [] {
        int64_t begin = now_ns();
        skynet_pass(1000000);
        return double(now_ns() - begin) / 1e6;
    };
    report(w, milliseconds(), "ms");
    report_part(w, "warm", milliseconds(), "ms");
}

// A tree with so many leaves, rounded up to a power of ten.
void scale_skynet(const Workload &w)
{
    int64_t leaves = 1;
    while (leaves < w.size)
        leaves *= 10;
    report(w, per_op_in(measure_ns() / scale_part, leaves, [&] { skynet_pass(leaves); }), "ns/leaf");
}

// ---- fib: fork and join, a fiber for each call ----

static int64_t fib_call(int n)
{
    if (n < 2)
        return n;
    auto call = [](int m) {
        return fibers::async(fibers::launch::post, std::allocator_arg, small_stack(), [=] { return fib_call(m); });
    };
    auto a = call(n - 1), b = call(n - 2);
    return a.get() + b.get();
}

void fib(const Workload &w)
{
    const int64_t of = 27, result = 196418, calls = 635621;
    report(w, per_op(calls, [&] { expect("the result of fib", fib_call(int(of)), result); }), "ns/goroutine");
}

// ---- matrices ----

namespace
{
struct Matrices {
    int side;
    std::vector<double> a, b, c;

    explicit Matrices(int n) : side(n), a(size_t(n) * size_t(n), 1), b(a.size(), 2), c(a.size(), 0)
    {
    }
    void clear()
    {
        c.assign(c.size(), 0);
    }
    void check() const
    {
        for (double v : c)
            expect("an element of the product", int64_t(v), 2 * side);
    }
};
} // namespace

// ---- matmul: products of quarters, four at a time, twice ----

static const int matmul_side = 512, matmul_leaf = 32;

static void multiply_leaf(const double *__restrict a, const double *__restrict b, double *__restrict c)
{
    for (int i = 0; i < matmul_leaf; i++)
        for (int k = 0; k < matmul_leaf; k++)
            for (int j = 0; j < matmul_leaf; j++)
                c[i * matmul_side + j] += a[i * matmul_side + k] * b[k * matmul_side + j];
}

static void multiply(int side, const double *a, const double *b, double *c)
{
    if (side == matmul_leaf) {
        multiply_leaf(a, b, c);
        return;
    }
    int right = side / 2, down = side / 2 * matmul_side;
    for (int half = 0; half < 2; half++) {
        std::vector<fibers::fiber> quarters;
        for (int quarter = 0; quarter < 4; quarter++) {
            int row = quarter / 2 * down, column = quarter % 2 * right;
            quarters.push_back(
                start([=] { multiply(side / 2, a + row + half * right, b + half * down + column, c + row + column); }));
        }
        join_all(quarters);
    }
}

void matmul(const Workload &w)
{
    Matrices m(matmul_side);
    auto pass = [&] {
        m.clear();
        multiply(matmul_side, m.a.data(), m.b.data(), m.c.data());
    };
    report(w, per_op(1, pass) / 1e6, "ms");
    m.check();
}

// ---- matmult: of Go's runtime: halves the longest side, down to less than 8; who waits does the other half ----

namespace
{
const int matmult_side = 200, matmult_threshold = 8;

struct Range {
    int from, to;

    int length() const
    {
        return to - from;
    }
    Range low() const
    {
        return {from, from + length() / 2};
    }
    Range high() const
    {
        return {from + length() / 2, to};
    }
};

struct Product {
    const double *a, *b;
    double *c;

    void leaf(Range is, Range js, Range ks) const
    {
        const double *__restrict first = a, *__restrict second = b;
        double *__restrict product = c;
        for (int i = is.from; i < is.to; i++)
            for (int j = js.from; j < js.to; j++)
                for (int k = ks.from; k < ks.to; k++)
                    product[i * matmult_side + j] += first[i * matmult_side + k] * second[k * matmult_side + j];
    }
    void box(Range i, Range j, Range k) const
    {
        if (i.length() >= j.length() && i.length() >= k.length() && i.length() >= matmult_threshold) {
            auto half = start([=] { box(i.low(), j, k); });
            box(i.high(), j, k);
            half.join();
        } else if (j.length() >= k.length() && j.length() >= matmult_threshold) {
            auto half = start([=] { box(i, j.low(), k); });
            box(i, j.high(), k);
            half.join();
        } else if (k.length() >= matmult_threshold) { // both halves write to the same places
            box(i, j, k.low());
            box(i, j, k.high());
        } else {
            leaf(i, j, k);
        }
    }
};
} // namespace

void matmult(const Workload &w)
{
    Matrices m(matmult_side);
    const Product product = {m.a.data(), m.b.data(), m.c.data()};
    const Range whole = {0, matmult_side};
    auto pass = [&] {
        m.clear();
        product.box(whole, whole, whole);
    };
    report(w, per_op(int64_t(matmult_side) * matmult_side * matmult_side, pass), "ns/product");
    m.check();
}
