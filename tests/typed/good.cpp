// SPDX-License-Identifier: MIT
// What has to compile without a warning as C++, and to work. good.c is its twin.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include "drain.h"

#define EXPECT(condition) \
    ((condition) ? (void)0 : (std::fprintf(stderr, "good.cpp:%d: not so: %s\n", __LINE__, #condition), std::exit(1)))

namespace geometry {
struct point {
    int x, y;
    point(int x_, int y_) : x(x_), y(y_) {}
};
struct shape {
    int corners;
};
struct square : shape {
    int side;
};
enum class axis { horizontal, vertical };
} // namespace geometry

// A channel as a member, and with a type that a template is given.
template <class T> class queue
{
    weft_chan_of(T) ch_;

  public:
    explicit queue(size_t capacity) : ch_(weft_make(T, capacity)) {}
    queue(const queue &) = delete;
    queue &operator=(const queue &) = delete;
    ~queue() { weft_free_of(ch_); }
    weft_chan_of(T) chan() const { return ch_; }
    int push(const T &value) { return weft_put(ch_, value); }
    T pop()
    {
        T value{};
        EXPECT(weft_take(ch_, &value) == 0);
        return value;
    }
};

static int first_of(weft_chan_of(int) ch);
static int first_of(weft_chan_of(int) ch)
{
    int n = -1;
    EXPECT(weft_take(ch, &n) == 0);
    return n;
}

static void numbers()
{
    queue<int> ints(8);
    queue<double> doubles(2);
    queue<geometry::axis> axes(1);
    queue<std::pair<int, int> *> pairs(1);
    std::pair<int, int> pair{1, 2};
    const short small = 4;
    EXPECT(weft_put(ints.chan(), 3) == 0 && weft_put(ints.chan(), small) == 0 && ints.push('a') == 0);
    EXPECT(weft_len_of(ints.chan()) == 3 && weft_cap_of(ints.chan()) == 8);
    EXPECT(weft_close_of(ints.chan()) == 0 && weft_close_of(ints.chan()) == -EPIPE);
    EXPECT(drain_ints(ints.chan()) == 3 + 4 + 'a');
    EXPECT(weft_put(doubles.chan(), 3) == 0 && doubles.pop() == 3.0);
    EXPECT(weft_put(axes.chan(), geometry::axis::vertical) == 0 && axes.pop() == geometry::axis::vertical);
    EXPECT(weft_put(pairs.chan(), &pair) == 0 && pairs.pop()->second == 2);
}

static void pointers()
{
    int n = 7, array[3] = {1, 2, 3};
    char text[] = "text";
    geometry::square square{};
    queue<int *> int_pointers(1);
    queue<const char *> strings(1);
    queue<void *> anything(1);
    queue<geometry::shape *> shapes(1);
    queue<int (*)(weft_chan_of(int))> functions(1);
    EXPECT(weft_put(int_pointers.chan(), &n) == 0 && int_pointers.pop() == &n);
    EXPECT(weft_put(int_pointers.chan(), array) == 0 && int_pointers.pop() == array);
    EXPECT(weft_put(int_pointers.chan(), nullptr) == 0 && int_pointers.pop() == nullptr);
    EXPECT(weft_put(int_pointers.chan(), NULL) == 0 && int_pointers.pop() == nullptr);
    EXPECT(weft_put(strings.chan(), "abc") == 0 && std::strcmp(strings.pop(), "abc") == 0);
    EXPECT(weft_put(strings.chan(), text) == 0 && strings.pop() == text);
    EXPECT(weft_put(anything.chan(), &n) == 0 && anything.pop() == &n);
    EXPECT(weft_put(shapes.chan(), &square) == 0 && shapes.pop() == &square);
    EXPECT(weft_put(functions.chan(), first_of) == 0 && functions.pop() == first_of);
}

static void structs()
{
    weft_chan_of(struct reading) readings = weft_make(struct reading, 4);
    weft_chan_of(geometry::point) points = weft_make(geometry::point, 1);
    geometry::point p(0, 0);
    EXPECT(weft_put(readings, {1, 0.5}) == 0 && weft_put(readings, reading{2, 2.0}) == 0);
    EXPECT(weft_close_of(readings) == 0 && drain_readings(readings) == 2.5);
    EXPECT(weft_put(points, geometry::point(3, 4)) == 0 && weft_take(points, &p) == 0 && p.y == 4);
    weft_free_of(readings);
    weft_free_of(points);
}

static void through_goroutines()
{
    static weft_chan_of(int) requests = weft_make(int, 0);
    weft_chan_of(int) reply = weft_make(int, 0);
    queue<weft_chan_of(int)> channels(1);
    EXPECT(weft_go(
               [](void *arg) {
                   auto out = static_cast<weft_chan_of(int)>(arg);
                   for (int n; weft_take(requests, &n) == 0;)
                       EXPECT(weft_put(out, n * n) == 0);
               },
               reply) >= 0);
    for (int i = 0; i < 100; i++) {
        EXPECT(weft_put(requests, i) == 0);
        EXPECT(first_of(reply) == i * i);
    }
    EXPECT(weft_put(channels.chan(), reply) == 0 && channels.pop() == reply);
    EXPECT(weft_close_of(requests) == 0);
}

static void tries_and_cases()
{
    int n = 1;
    const int five = 5;
    weft_chan_of(int) one = weft_make(int, 1), none = nullptr;
    EXPECT(weft_try_take(one, &n) == -EAGAIN && weft_try_put(one, 3) == 0 && weft_try_put(one, 4) == -EAGAIN);
    EXPECT(weft_try_take(one, &n) == 0 && n == 3 && weft_try_put(none, 3) == -EAGAIN);
    weft_case cases[] = {WEFT_TAKE(none, &n), WEFT_PUT(one, &five), WEFT_TAKE(none, nullptr), WEFT_AT(WEFT_NEVER)};
    EXPECT(weft_select(cases, 4) == 1 && cases[1].err == 0);
    EXPECT(weft_take(one, &n) == 0 && n == 5);
    EXPECT(weft_send(weft_untyped(one), &five) == 0 && weft_take(weft_typed(int, weft_untyped(one)), nullptr) == 0);
    weft_free_of(one);
}

int main()
{
    return weft_run(
               [](void *) {
                   numbers();
                   pointers();
                   structs();
                   through_goroutines();
                   tries_and_cases();
               },
               nullptr) == 0
               ? 0
               : 1;
}
