// SPDX-License-Identifier: MIT
//
// Boost.Fiber's side of the benchmarks: the work of bench/weft_*.c with the same names and the same output, without what waits
// for sockets and files, of which Boost.Fiber knows nothing. Fibers have stacks of 16 KiB; on several threads the threads steal
// from each other. Counts are smaller where a pass would take long: values are per operation.
#pragma once

#include <boost/fiber/all.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fibers = boost::fibers;
using fibers::channel_op_status;

struct Workload {
    const char *name;
    int threads; // 0 = as many as the process may use
    void (*run)(const Workload &);
    int size; // what the workload makes of it; 0 where it has one size only
};

const int scale_part = 4; // of the usual time for scale_*: there are many points

// main.cpp
void fail(const std::string &message) __attribute__((noreturn));
void expect(const char *what, int64_t got, int64_t want);
void report(const Workload &w, double value, const char *unit);
void report_part(const Workload &w, const char *part, double value, const char *unit);
void report_spread_us(const Workload &w, std::vector<int64_t> times);
bool quick();
int64_t now_ns();
int64_t measure_ns();
double cpu_ms();
int64_t memory_bytes();
int thread_count(); // of this run

// chan.cpp
void pingpong(const Workload &w);
void stream(const Workload &w);
void ring(const Workload &w);
void sieve(const Workload &w);
void pipeline(const Workload &w);

// crowd.cpp
void spawn_batch(int n);
void parked(const Workload &w);
void sleepers(const Workload &w);
void timers(const Workload &w);
void scale_spawn(const Workload &w);
void scale_pairs(const Workload &w);
void scale_mpmc(const Workload &w);

// tree.cpp
void skynet(const Workload &w);
void scale_skynet(const Workload &w);
void fib(const Workload &w);
void matmul(const Workload &w);
void matmult(const Workload &w);

// suites.cpp
void chameneos(const Workload &w);
void chained_spawn(const Workload &w);
void ping_pong(const Workload &w);
void spawn_many(const Workload &w);
void yield_many(const Workload &w);
void create_goroutines(const Workload &w);
void pingpong_hog(const Workload &w);
void chan_prodcons(const Workload &w);
void wakeup_parallel(const Workload &w);

inline fibers::fixedsize_stack small_stack()
{
    return fibers::fixedsize_stack(16 * 1024);
}

// A fiber that somebody joins.
template <class F> fibers::fiber start(F fn)
{
    return fibers::fiber(std::allocator_arg, small_stack(), std::move(fn));
}

// One that nobody joins.
template <class F> void go(F fn)
{
    start(std::move(fn)).detach();
}

inline void join_all(std::vector<fibers::fiber> &all)
{
    for (auto &fiber : all)
        fiber.join();
}

// Counts what is still to be done. Copies are the same one, and the last who uses it frees it.
class WaitGroup
{
  public:
    explicit WaitGroup(int64_t n) : state(std::make_shared<State>())
    {
        state->left = n;
    }
    void done()
    {
        auto kept = state;
        std::unique_lock<fibers::mutex> lock(kept->mutex);
        if (--kept->left == 0)
            kept->zero.notify_all();
    }
    void wait()
    {
        auto kept = state;
        std::unique_lock<fibers::mutex> lock(kept->mutex);
        kept->zero.wait(lock, [&] { return kept->left == 0; });
    }

  private:
    struct State {
        fibers::mutex mutex;
        fibers::condition_variable zero;
        int64_t left; // mutex
    };
    std::shared_ptr<State> state;
};

template <class T> using Unbuffered = std::shared_ptr<fibers::unbuffered_channel<T>>;
template <class T> using Buffered = std::shared_ptr<fibers::buffered_channel<T>>;

template <class T> Unbuffered<T> unbuffered()
{
    return std::make_shared<fibers::unbuffered_channel<T>>();
}

// Holds one less than that, which is a power of two.
template <class T> Buffered<T> buffered(size_t capacity)
{
    return std::make_shared<fibers::buffered_channel<T>>(capacity);
}

// Nanoseconds per operation, when one pass makes `ops` of them and passes are repeated for that long. The first pass warms up and
// is not counted.
template <class F> double per_op_in(int64_t ns, int64_t ops, F pass)
{
    pass();
    int64_t passes = 0, elapsed, begin = now_ns();
    do {
        pass();
        passes++;
        elapsed = now_ns() - begin;
    } while (elapsed < ns);
    return double(elapsed) / double(passes * ops);
}

template <class F> double per_op(int64_t ops, F pass)
{
    return per_op_in(measure_ns(), ops, pass);
}
