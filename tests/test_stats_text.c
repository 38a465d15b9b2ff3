/* SPDX-License-Identifier: MIT */
/* Statistics as text: weft_stats_json, WEFT_DEBUG=schedtrace=MS, and what WEFT_DEBUG does not take. */
#include "json.h"
#include "runs.h"
#include <sys/mman.h>

static weft_wg wg;
static _Atomic bool over;

static void leaf(void *arg)
{
    (void)arg;
    weft_yield();
    weft_wg_done(&wg);
}

static void yield_on(void *arg)
{
    (void)arg;
    while (!over)
        weft_yield();
    weft_wg_done(&wg);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static char text[1 << 18];

/* Into `text`. */
static void print_json(void)
{
    int fd = memfd_create("stats", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(weft_stats_json(fd), 0);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    CHECK(n > 0 && n < (ssize_t)sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    CHECK_EQ(strlen(text), n);
    close(fd);
}

static void json_main(void *arg)
{
    int procs = *(int *)arg;
    weft_wg_add(&wg, 300);
    for (int i = 0; i < 300; i++)
        CHECK_EQ(weft_go(leaf, NULL), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
    CHECK(others_have_ended());
    print_json();
    if (!json_is_valid(text)) {
        check_fail(__FILE__, __LINE__, "that is no JSON: %.400s", text);
        return;
    }
    CHECK_EQ(json_length(text, ""), 4);
    CHECK_EQ(json_integer(text, "time_ns"), json_integer(text, "totals.time_ns"));
    CHECK_EQ(json_length(text, "totals"), (sizeof(weft_stats_t) - sizeof((weft_stats_t *)0)->reserved_) / 8);
    CHECK_EQ(json_integer(text, "totals.spawned"), 301);
    CHECK_EQ(json_integer(text, "totals.ended"), 300);
    CHECK_EQ(json_integer(text, "totals.procs"), procs);
    CHECK_EQ(json_length(text, "procs"), procs);
    CHECK_EQ(json_length(text, "procs.0"), (sizeof(weft_proc_stats) - sizeof((weft_proc_stats *)0)->reserved_) / 8);
    CHECK_EQ(json_integer(text, "procs.0.id"), 0);
    CHECK(json_length(text, "threads") >= 1);
    CHECK_EQ(json_length(text, "threads.0"),
             (sizeof(weft_thread_stats) - sizeof((weft_thread_stats *)0)->reserved_) / 8);
    CHECK(strstr(text, "\"state\":\"running\"") != NULL);
    CHECK_EQ(weft_stats_json(-1), -EBADF);
}

CASE(all_of_it_is_json)
{
    EACH_PROCS(p)
    CHECK_EQ(run_on(p, json_main, &p), 0);
}

CASE(the_reader_of_json_is_strict)
{
    static const char *const good[] = {"0",    "-0.5e+7",        " [ ] ",          "{}",
                                       "\"\"", "\"\\u00e9\\n\"", "[1,{\"a\":[]}]", "{\"a\":true,\"b\":null}"};
    static const char *const bad[] = {"",         "01",  "1.",  "[1,]",        "{\"a\":1,}", "{a:1}", "'a'", "\"\n\"",
                                      "[1 2]",    "nul", "1 1", "\"\\x\"",     "{\"a\" 1}",  "[",     "\"",  "+1",
                                      "{\"a\":}", "-",   "1e",  "\"\\u12g4\"", "truee",      "[1],"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!json_is_valid(good[i]))
            check_fail(__FILE__, __LINE__, "%s was refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (json_is_valid(bad[i]))
            check_fail(__FILE__, __LINE__, "%s was taken", bad[i]);
    CHECK_EQ(json_integer("{\"ab\":1,\"a\":{\"b\":[3,{\"c\":-7}]}}", "a.b.1.c"), -7);
    CHECK(json_string_is("{\"a\":\"xy\"}", "a", "xy") && !json_string_is("{\"a\":\"xy\"}", "a", "x"));
}

/* ---- WEFT_DEBUG ------------------------------------------------------------------------------------------------- */

static void some_time_main(void *arg)
{
    (void)arg;
    over = false;
    weft_wg_add(&wg, 1);
    CHECK_EQ(weft_go(yield_on, NULL), 0);
    weft_sleep(200 * WEFT_MSEC);
    over = true;
    CHECK_EQ(weft_wg_wait(&wg), 0);
    weft_sleep(1500 * WEFT_MSEC); /* the monitor alone wakes up, for the lines */
}

static void trace_child(void)
{
    setenv("WEFT_DEBUG", "schedtrace=10", 1);
    CHECK_EQ(run_on(2, some_time_main, NULL), 0);
}

static int quiet_lines; /* while main slept alone */

/* One line of the documented form; where the next begins, or NULL. */
static const char *read_line(const char *line)
{
    unsigned long long ms, procs, idle, threads, kinds[4], global[5], local[2], alive, switches;
    int end = -1;
    int n =
        sscanf(line,
               "weft: %llums procs %llu (%llu idle) threads %llu (%llu running %llu spinning %llu idle %llu blocked) "
               "global %llu/%llu/%llu/%llu/%llu local [%llu %llu] alive %llu switches/s %llu%n",
               &ms, &procs, &idle, &threads, &kinds[0], &kinds[1], &kinds[2], &kinds[3], &global[0], &global[1],
               &global[2], &global[3], &global[4], &local[0], &local[1], &alive, &switches, &end);
    if (n != 17 || end < 0 || line[end] != '\n')
        return NULL;
    CHECK(procs == 2 && idle <= 2 && alive >= 1 && alive <= 2);
    quiet_lines += idle == 2 && alive == 1;
    CHECK(kinds[0] + kinds[1] + kinds[2] + kinds[3] == threads);
    return line + end + 1;
}

CASE(schedtrace_prints_a_line_a_period)
{
    char said[1 << 16];
    int lines = 0;
    CHECK(child_is_well(trace_child, said, sizeof said));
    for (const char *at = said, *next; *at != '\0'; at = next, lines++) {
        if (strncmp(at, "weft: no asynchronous preemption", 32) == 0 && (next = strchr(at, '\n')) != NULL) {
            next++, lines--;
            continue;
        }
        if ((next = read_line(at)) == NULL) {
            check_fail(__FILE__, __LINE__, "not of the documented form: %.200s", at);
            break;
        }
    }
    CHECK(lines <= 200);
    CHECK(quiet_lines >= 15); /* of 150; the monitor's own looks, ever rarer, are seven or so */
}

static const char *debug_value;
static int expected;

static void nothing(void *arg)
{
    (void)arg;
}

static void debug_child(void)
{
    setenv("WEFT_DEBUG", debug_value, 1);
    CHECK_EQ(weft_run(nothing, NULL), expected);
}

/* What is said: one line with that word, or nothing about WEFT_DEBUG. */
static void expect_complaint(const char *value, const char *word)
{
    char said[4096];
    debug_value = value;
    expected = word != NULL ? -EINVAL : 0;
    CHECK(child_is_well(debug_child, said, sizeof said));
    bool complains = strstr(said, "WEFT_DEBUG") != NULL;
    if (complains != (word != NULL) || (word != NULL && strstr(said, word) == NULL))
        check_fail(__FILE__, __LINE__, "WEFT_DEBUG=%s: said \"%s\"", value, said);
}

CASE(bad_words_in_weft_debug_are_complained_about)
{
    expect_complaint("nonsense", "\"nonsense\"");
    expect_complaint("leaks,leak", "\"leak\"");
    expect_complaint("Fifo", "\"Fifo\"");
    expect_complaint("schedtrace", "\"schedtrace\"");
    expect_complaint("schedtrace=", "schedtrace= ");
    expect_complaint("schedtrace=0", "schedtrace=0 ");
    expect_complaint("schedtrace=5x", "schedtrace=5x ");
    expect_complaint("fifo,schedtrace=-1,leaks", "schedtrace=-1 ");
    expect_complaint("schedtrace=99999999999999999999", "milliseconds");
    expect_complaint("schedtrace=00000000000000000000000000000000000000000000000000000000000000000001", "schedtrace=");
    expect_complaint("", NULL);
    expect_complaint("leaks,fifo,", NULL);
    expect_complaint(",schedtrace=86400000", NULL);
}
