// SPDX-License-Identifier: MIT
//
// Many fibers at once: what they cost while they wait, and how the cost of an operation grows with their number and with that of
// the threads.
#include "bench.hpp"

#include <cstdio>
#include <cstdlib>

void spawn_batch(int n)
{
    std::vector<fibers::fiber> all;
    all.reserve(size_t(n));
    for (int i = 0; i < n; i++)
        all.push_back(start([] {}));
    join_all(all);
}

namespace
{
// Fibers that stand at a gate until all have arrived.
class Crowd
{
  public:
    WaitGroup arrived, left;

    explicit Crowd(int n) : arrived(n), left(n)
    {
    }
    void stand_at_gate()
    {
        arrived.done();
        std::unique_lock<fibers::mutex> lock(mutex);
        opened.wait(lock, [&] { return is_open; });
    }
    // Returns how many nanoseconds it took from the opening of the gate until the last had left.
    int64_t let_go()
    {
        int64_t begin = now_ns();
        {
            std::unique_lock<fibers::mutex> lock(mutex);
            is_open = true;
            opened.notify_all();
        }
        left.wait();
        return now_ns() - begin;
    }

  private:
    fibers::mutex mutex;
    fibers::condition_variable opened;
    bool is_open = false; // mutex
};
} // namespace

// ---- parked: fibers blocked on one condition variable, then let go all at once ----

void parked(const Workload &w)
{
    spawn_batch(1000); // warm-up: threads and code, hardly any memory
    int64_t before = memory_bytes(), begin = now_ns();
    auto crowd = std::make_shared<Crowd>(w.size);
    for (int i = 0; i < w.size; i++)
        go([=] {
            crowd->stand_at_gate();
            crowd->left.done();
        });
    crowd->arrived.wait();
    report_part(w, "create", double(now_ns() - begin) / 1e6, "ms");
    report_part(w, "bytes", double(memory_bytes() - before) / w.size, "B");
    report_part(w, "wake", double(crowd->let_go()) / 1e6, "ms");
}

// ---- sleepers: fibers that all sleep; the end of the process ends them ----

void sleepers(const Workload &w)
{
    spawn_batch(1000);
    int64_t before = memory_bytes(), begin = now_ns();
    WaitGroup about_to_sleep(w.size);
    for (int i = 0; i < w.size; i++)
        go([=]() mutable {
            about_to_sleep.done();
            boost::this_fiber::sleep_for(std::chrono::minutes(10));
        });
    about_to_sleep.wait();
    report_part(w, "create", double(now_ns() - begin) / 1e6, "ms");
    report_part(w, "bytes", double(memory_bytes() - before) / w.size, "B");
    std::fflush(stdout);
    std::_Exit(0);
}

// ---- timers: w.size fibers sleep for random times; how late do they wake? ----

static void sleep_all(int64_t *late, int n)
{
    const int64_t longest_sleep = 200000000;
    WaitGroup woken(n);
    for (int i = 0; i < n; i++) {
        int64_t want = random() % longest_sleep;
        go([=]() mutable {
            int64_t begin = now_ns();
            boost::this_fiber::sleep_for(std::chrono::nanoseconds(want));
            late[i] = now_ns() - begin - want;
            woken.done();
        });
    }
    woken.wait();
}

void timers(const Workload &w)
{
    const int rounds = 3;
    std::vector<int64_t> late(size_t(rounds) * size_t(w.size));
    sleep_all(late.data(), w.size); // warm-up
    double before = cpu_ms();
    for (int i = 0; i < rounds; i++)
        sleep_all(late.data() + size_t(i) * size_t(w.size), w.size);
    double used = cpu_ms() - before;
    report_spread_us(w, std::move(late));
    report_part(w, "cpu", used / rounds, "ms");
}

// ---- scale_spawn: all are started, end at once, and are waited for ----

void scale_spawn(const Workload &w)
{
    report(w, per_op_in(measure_ns() / scale_part, w.size, [&] { spawn_batch(w.size); }), "ns/spawn");
}

// ---- scale_pairs: each two play ping-pong ----

namespace
{
struct Share {
    int n;        // half of the fibers
    int64_t each; // operations of each of them

    explicit Share(int fibers) : n(fibers / 2 > 0 ? fibers / 2 : 1), each(((quick() ? 200000 : 1000000) + n - 1) / n)
    {
    }
    double per_op(int64_t ns) const
    {
        return double(ns) / double(n * each);
    }
};
} // namespace

void scale_pairs(const Workload &w)
{
    const Share share(w.size);
    auto crowd = std::make_shared<Crowd>(share.n);
    for (int i = 0; i < share.n; i++) {
        auto ping = unbuffered<int64_t>(), pong = unbuffered<int64_t>();
        go([=] {
            int64_t v;
            while (ping->pop(v) == channel_op_status::success)
                pong->push(v);
        });
        go([=] {
            crowd->stand_at_gate();
            for (int64_t v = 0; v < share.each; v++) {
                ping->push(v);
                expect("what came back", pong->value_pop(), v);
            }
            ping->close();
            crowd->left.done();
        });
    }
    crowd->arrived.wait();
    report(w, share.per_op(crowd->let_go()), "ns/round trip");
}

// ---- scale_mpmc: one half sends, the other receives, by one channel with a buffer ----

void scale_mpmc(const Workload &w)
{
    const Share share(w.size);
    auto crowd = std::make_shared<Crowd>(2 * share.n);
    auto channel = buffered<int64_t>(128);
    auto received = std::make_shared<std::atomic<int64_t>>(0);
    WaitGroup producers(share.n);
    for (int i = 0; i < share.n; i++) {
        go([=]() mutable {
            crowd->stand_at_gate();
            for (int64_t v = 0; v < share.each; v++)
                channel->push(v);
            producers.done();
            crowd->left.done();
        });
        go([=] {
            crowd->stand_at_gate();
            int64_t v, n = 0;
            while (channel->pop(v) == channel_op_status::success)
                n++;
            *received += n;
            crowd->left.done();
        });
    }
    go([=]() mutable {
        producers.wait();
        channel->close();
    });
    crowd->arrived.wait();
    report(w, share.per_op(crowd->let_go()), "ns/item");
    expect("the number of items", *received, share.n * share.each);
}
