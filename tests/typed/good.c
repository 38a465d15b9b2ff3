/* SPDX-License-Identifier: MIT */
/* What has to compile without a warning as C, and to work. good.cpp is its twin. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "drain.h"

#define EXPECT(condition) \
    ((condition) ? (void)0 : (fprintf(stderr, "good.c:%d: not so: %s\n", __LINE__, #condition), exit(1)))

typedef int unary(int);
enum color { RED, GREEN };
union number {
    int i;
    double d;
};
struct line {
    struct reading from, to;
    const char *name;
    int points[4];
};
struct job {
    int n;
    weft_chan_of(int) reply;
};

/* Declared twice: it is the same type each time. */
static int first_of(weft_chan_of(int) ch);
static int first_of(weft_chan_of(int) ch)
{
    int n = -1;
    EXPECT(weft_take(ch, &n) == 0);
    return n;
}

static weft_chan_of(struct reading) channel_of_readings(size_t capacity)
{
    return weft_make(struct reading, capacity);
}

static int twice(int n)
{
    return 2 * n;
}

static void numbers(void)
{
    const int three = 3;
    short small = 4;
    unsigned u = 5;
    double d = 0;
    bool b = false;
    unsigned char c = 0;
    enum color color = RED;
    weft_chan_of(int) ints = weft_make(int, 8);
    weft_chan_of(double) doubles = weft_make(double, 1);
    weft_chan_of(bool) bools = weft_make(bool, 1);
    weft_chan_of(unsigned char) bytes = weft_make(unsigned char, 1);
    weft_chan_of(unsigned) naturals = weft_make(unsigned, 1);
    weft_chan_of(enum color) colors = weft_make(enum color, 1);
    EXPECT(weft_put(ints, three) == 0 && weft_put(ints, small) == 0 && weft_put(ints, u) == 0);
    EXPECT(weft_put(ints, 'a') == 0 && weft_put(ints, GREEN) == 0 && weft_put(ints, -1) == 0);
    EXPECT(weft_len_of(ints) == 6 && weft_cap_of(ints) == 8);
    EXPECT(weft_close_of(ints) == 0 && weft_close_of(ints) == -EPIPE && weft_put(ints, 1) == -EPIPE);
    EXPECT(drain_ints(ints) == 3 + 4 + 5 + 'a' + 1 - 1);
    EXPECT(weft_put(doubles, 3) == 0 && weft_take(doubles, &d) == 0 && d == 3.0);
    EXPECT(weft_put(bools, true) == 0 && weft_take(bools, &b) == 0 && b);
    EXPECT(weft_put(bytes, 'x') == 0 && weft_take(bytes, &c) == 0 && c == 'x');
    EXPECT(weft_put(naturals, three) == 0 && weft_take(naturals, &u) == 0 && u == 3);
    EXPECT(weft_put(colors, GREEN) == 0 && weft_take(colors, &color) == 0 && color == GREEN);
    weft_free_of(ints);
    weft_free_of(doubles);
    weft_free_of(bools);
    weft_free_of(bytes);
    weft_free_of(naturals);
    weft_free_of(colors);
}

static void pointers(void)
{
    int n = 7, array[3] = {1, 2, 3}, *ip = NULL;
    char text[] = "text";
    const char *s = NULL;
    void *vp = &n;
    unary *f = NULL;
    weft_chan_of(int *) int_pointers = weft_make(int *, 4);
    weft_chan_of(const char *) strings = weft_make(const char *, 4);
    weft_chan_of(void *) anything = weft_make(void *, 4);
    weft_chan_of(unary *) functions = weft_make(unary *, 4);
    weft_chan_of(int (*)(int)) same_functions = functions;
    EXPECT(weft_put(int_pointers, &n) == 0 && weft_take(int_pointers, &ip) == 0 && ip == &n);
    EXPECT(weft_put(int_pointers, array) == 0 && weft_take(int_pointers, &ip) == 0 && ip == array);
    EXPECT(weft_put(int_pointers, NULL) == 0 && weft_take(int_pointers, &ip) == 0 && ip == NULL);
    EXPECT(weft_put(strings, "abc") == 0 && weft_take(strings, &s) == 0 && strcmp(s, "abc") == 0);
    EXPECT(weft_put(strings, text) == 0 && weft_take(strings, &s) == 0 && s == text);
    EXPECT(weft_put(anything, &n) == 0 && weft_take(anything, &vp) == 0 && vp == &n);
    EXPECT(weft_put(anything, vp) == 0 && weft_take(anything, NULL) == 0);
    EXPECT(weft_put(functions, twice) == 0 && weft_take(same_functions, &f) == 0 && f(4) == 8);
    weft_free_of(int_pointers);
    weft_free_of(strings);
    weft_free_of(anything);
    weft_free_of(functions);
}

static void structs(void)
{
    const struct reading r = {1, 0.5};
    struct reading two[2];
    struct line line = {.name = "line", .points = {1, 2, 3, 4}};
    union number number = {.d = 2.5};
    weft_chan_of(struct reading) readings = channel_of_readings(4);
    weft_chan_of(struct line) lines = weft_make(struct line, 1);
    weft_chan_of(union number) numbers = weft_make(union number, 1);
    EXPECT(weft_put(readings, r) == 0 && weft_put(readings, (struct reading){2, 1.5}) == 0);
    EXPECT(weft_take(readings, two) == 0 && weft_take(readings, &two[1]) == 0);
    EXPECT(two[0].sensor == 1 && two[1].sensor == 2 && two[1].value == 1.5);
    EXPECT(weft_put(readings, two[0]) == 0 && weft_put(readings, (struct reading){.sensor = 3, .value = 2}) == 0);
    EXPECT(weft_close_of(readings) == 0 && drain_readings(readings) == 2.5);
    EXPECT(weft_put(lines, line) == 0);
    memset(&line, 0, sizeof line);
    EXPECT(weft_take(lines, &line) == 0 && strcmp(line.name, "line") == 0 && line.points[3] == 4);
    EXPECT(weft_put(numbers, number) == 0 && weft_take(numbers, &number) == 0 && number.d == 2.5);
    weft_free_of(readings);
    weft_free_of(lines);
    weft_free_of(numbers);
}

static void square(void *arg)
{
    weft_chan_of(struct job) jobs = arg;
    for (struct job job; weft_take(jobs, &job) == 0;)
        EXPECT(weft_put(job.reply, job.n * job.n) == 0);
}

static void through_goroutines(void)
{
    weft_chan_of(struct job) jobs = weft_make(struct job, 0);
    weft_chan_of(int) reply = weft_make(int, 0), other = NULL;
    weft_chan_of(weft_chan_of(int)) channels = weft_make(weft_chan_of(int), 1);
    EXPECT(weft_go(square, jobs) >= 0);
    for (int i = 0; i < 100; i++) {
        EXPECT(weft_put(jobs, (struct job){i, reply}) == 0);
        EXPECT(first_of(reply) == i * i);
    }
    EXPECT(weft_put(channels, reply) == 0 && weft_take(channels, &other) == 0 && other == reply);
    EXPECT(weft_close_of(jobs) == 0);
    weft_free_of(channels);
}

static void tries_and_cases(void)
{
    int n = 1, evaluated = 0;
    const int five = 5;
    weft_chan_of(int) one = weft_make(int, 1), none = NULL, both[2] = {one, none};
    EXPECT(weft_try_take(one, &n) == -EAGAIN && weft_try_put(one, 3) == 0 && weft_try_put(one, 4) == -EAGAIN);
    EXPECT(weft_try_take(one, &n) == 0 && n == 3 && weft_try_put(none, 3) == -EAGAIN);
    EXPECT(weft_try_put(both[evaluated++], ++n) == 0 && evaluated == 1 && n == 4);
    EXPECT(weft_try_take(both[0], (evaluated++, &n)) == 0 && evaluated == 2);
    weft_case cases[] = {WEFT_TAKE(none, &n), WEFT_PUT(one, &five), WEFT_TAKE(none, NULL), WEFT_AT(WEFT_NEVER)};
    switch (weft_select(cases, 4)) {
    case 1:
        EXPECT(cases[1].err == 0);
        break;
    default:
        EXPECT(!"the case that is ready");
    }
    EXPECT(weft_take(one, &n) == 0 && n == 5);
    EXPECT(weft_send(weft_untyped(one), &five) == 0 && weft_take(weft_typed(int, weft_untyped(one)), &n) == 0);
    weft_free_of(one);
}

static void everything(void *arg)
{
    (void)arg;
    numbers();
    pointers();
    structs();
    through_goroutines();
    tries_and_cases();
}

int main(void)
{
    return weft_run(everything, NULL) == 0 ? 0 : 1;
}
