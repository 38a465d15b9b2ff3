/* SPDX-License-Identifier: MIT */
/* Exceptions are thrown and caught in goroutines that are stopped meanwhile, also in the middle of handling them. */
extern "C" {
#include "check.h"
}
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>
#include <weft.h>

namespace
{

std::atomic<long> turns, others_ran, destroyed;

/* Computes and calls nothing for a while, or until others have had a turn. */
void let_others_run()
{
    long before = ++turns;
    for (long i = 0; i < 300000 && turns == before; i++)
        ;
    others_ran += turns != before;
}

struct counted {
    ~counted()
    {
        let_others_run();
        destroyed++;
    }
};

int thrown_from(int depth, int number)
{
    counted c;
    if (depth == 0)
        throw std::runtime_error("number " + std::to_string(number));
    return thrown_from(depth - 1, number) + 1;
}

/* An exception inside the handler of another one, which is there again afterwards. */
void throw_and_catch(int number)
{
    try {
        thrown_from(5, number);
        CHECK(false);
    } catch (const std::runtime_error &outer) {
        let_others_run();
        try {
            let_others_run();
            thrown_from(3, -number);
        } catch (const std::exception &inner) {
            let_others_run();
            CHECK(inner.what() == "number " + std::to_string(-number));
        }
        let_others_run();
        CHECK(outer.what() == "number " + std::to_string(number));
        CHECK(std::uncaught_exceptions() == 0);
        try {
            throw; /* the outer one */
        } catch (const std::runtime_error &again) {
            CHECK(&again == &outer);
        }
    }
    CHECK(std::current_exception() == nullptr);
}

enum { EACH = 10, ALL = 8 };

void throw_some(void *arg)
{
    int each = EACH / check_scale() + 1;
    for (int i = 1; i <= each; i++)
        throw_and_catch(i);
    weft_wg_done(static_cast<weft_wg *>(arg));
}

void throwers_main(void *)
{
    weft_wg wg = {};
    weft_wg_add(&wg, ALL);
    for (int i = 0; i < ALL; i++)
        CHECK_EQ(weft_go(throw_some, &wg), 0);
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

/* It takes the exception that it handles along, wherever it ends. */
void end_while_handling(void *arg)
{
    try {
        thrown_from(0, 1);
    } catch (const std::exception &) {
        weft_wg_done(static_cast<weft_wg *>(arg));
        weft_exit();
    }
}

void find_nothing_to_handle(void *arg)
{
    CHECK(std::current_exception() == nullptr);
    weft_wg_done(static_cast<weft_wg *>(arg));
}

void leavers_main(void *)
{
    weft_wg wg = {};
    weft_wg_add(&wg, 2 * ALL);
    for (int i = 0; i < ALL; i++) {
        CHECK_EQ(weft_go(end_while_handling, &wg), 0);
        CHECK_EQ(weft_go(find_nothing_to_handle, &wg), 0);
    }
    CHECK_EQ(weft_wg_wait(&wg), 0);
}

} // namespace

CASE(who_ends_while_it_handles_an_exception_leaves_none_behind)
{
    weft_config config = {};
    config.procs = 1;
    if (!check_under_asan()) /* what they take along is lost, and it would say so */
        CHECK_EQ(weft_run_with(&config, leavers_main, nullptr), 0);
}

CASE(exceptions_are_each_goroutines_own_also_if_it_is_stopped)
{
    for (int procs : {1, 2, 8}) {
        weft_config config = {};
        config.procs = procs;
        config.quantum = 200 * WEFT_USEC;
        destroyed = others_ran = 0;
        CHECK_EQ(weft_run_with(&config, throwers_main, nullptr), 0);
        CHECK(others_ran > 0 || check_under_tsan() || check_under_asan()); /* where somebody may be stopped */
        CHECK_EQ(destroyed, ALL * (EACH / check_scale() + 1) * 10);
    }
}
