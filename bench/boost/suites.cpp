// SPDX-License-Identifier: MIT
//
// Suites that others have published, as in bench/weft_suites.c.
#include "bench.hpp"

// ---- chameneos: creatures meet in pairs at one place and change their colours ----

namespace
{
const int meetings = 20000;
enum Colour { BLUE, RED, YELLOW };

struct Creature {
    Colour colour = BLUE;
    int64_t meetings = 0;
    bool met = false; // the place's lock
    fibers::condition_variable changed;
};

struct Place {
    fibers::mutex mutex;
    int left = meetings;        // mutex
    Creature *waiter = nullptr; // mutex: who came first
};
} // namespace

static Colour after_meeting(Colour a, Colour b)
{
    return a == b ? a : Colour(BLUE + RED + YELLOW - a - b);
}

// Who comes second makes the change for both.
static void live(Place &place, Creature &self)
{
    std::unique_lock<fibers::mutex> lock(place.mutex);
    while (place.left > 0) {
        if (place.waiter == nullptr) {
            place.waiter = &self;
            self.met = false;
            self.changed.wait(lock, [&] { return self.met; });
            continue;
        }
        Creature &other = *place.waiter;
        place.waiter = nullptr;
        place.left--;
        self.colour = other.colour = after_meeting(self.colour, other.colour);
        self.meetings++;
        other.meetings++;
        other.met = true;
        other.changed.notify_one();
    }
}

static void chameneos_pass(int n)
{
    static const Colour colours[] = {BLUE, RED, YELLOW, RED, YELLOW, BLUE, RED, YELLOW, RED, BLUE};
    Place place;
    std::vector<Creature> creatures(static_cast<size_t>(n));
    std::vector<fibers::fiber> lives;
    for (int i = 0; i < n; i++) {
        Creature &creature = creatures[size_t(i)];
        creature.colour = colours[i];
        lives.push_back(start([&] { live(place, creature); }));
    }
    join_all(lives);
    int64_t met = 0;
    for (auto &creature : creatures)
        met += creature.meetings;
    expect("the number of those who met", met, 2 * meetings);
}

void chameneos(const Workload &w)
{
    for (int n : {3, 10}) {
        double ns = per_op_in(measure_ns() / 2, meetings, [&] { chameneos_pass(n); });
        report_part(w, std::to_string(n).c_str(), ns, "ns/meeting");
    }
}

// ---- chained_spawn: each of 1,000 fibers starts the next ----

static void chain_link(int left, Buffered<int> done)
{
    if (left == 0)
        done->push(0);
    else
        go([=] { chain_link(left - 1, done); });
}

// So many chains of that length at once.
static void run_chains(int chains, int length)
{
    auto done = buffered<int>(2);
    for (int i = 0; i < chains; i++)
        go([=] { chain_link(length, done); });
    for (int i = 0; i < chains; i++)
        done->value_pop();
}

void chained_spawn(const Workload &w)
{
    report(w, per_op(1, [] { run_chains(1, 1000); }) / 1e3, "us");
}

// ---- ping_pong: 1,000 fibers, each of which starts another one, asks it and is answered ----

static void ask_one(const std::shared_ptr<std::atomic<int>> &left, const Buffered<int> &done)
{
    auto question = std::make_shared<fibers::promise<void>>(), answer = std::make_shared<fibers::promise<void>>();
    go([=] {
        question->get_future().get();
        answer->set_value();
    });
    auto answered = answer->get_future();
    question->set_value();
    answered.get();
    if (--*left == 0)
        done->push(0);
}

void ping_pong(const Workload &w)
{
    const int pings = 1000;
    auto pass = [&] {
        auto left = std::make_shared<std::atomic<int>>(pings);
        auto done = buffered<int>(2);
        go([=] {
            for (int i = 0; i < pings; i++)
                go([=] { ask_one(left, done); });
        });
        done->value_pop();
    };
    report(w, per_op(1, pass) / 1e3, "us");
}

// ---- spawn_many: 10,000 fibers, the last of which tells ----

void spawn_many(const Workload &w)
{
    const int many = 10000;
    auto pass = [&] {
        auto left = std::make_shared<std::atomic<int>>(many);
        auto done = buffered<int>(2);
        for (int i = 0; i < many; i++)
            go([=] {
                if (--*left == 0)
                    done->push(0);
            });
        done->value_pop();
    };
    report(w, per_op(1, pass) / 1e3, "us");
}

// ---- yield_many: 200 fibers yield 1,000 times each ----

void yield_many(const Workload &w)
{
    const int yielders = 200, yields_each = 1000;
    auto pass = [&] {
        auto done = buffered<int>(256);
        for (int i = 0; i < yielders; i++)
            go([=] {
                for (int j = 0; j < yields_each; j++)
                    boost::this_fiber::yield();
                done->push(0);
            });
        for (int i = 0; i < yielders; i++)
            done->value_pop();
    };
    report(w, per_op(1, pass) / 1e3, "us");
}

// ---- create_goroutines: each fiber starts the next, in one chain, and in one for each thread ----

void create_goroutines(const Workload &w)
{
    const int created = 20000, threads = thread_count();
    report(w, per_op_in(measure_ns() / 2, created, [&] { run_chains(1, created); }), "ns");
    double parallel = per_op_in(measure_ns() / 2, created, [&] { run_chains(threads, created / threads); });
    report_part(w, "parallel", parallel, "ns");
}

// ---- pingpong_hog: two play ping-pong on one thread beside one who never stops looking at a channel, and yields, or else
// nobody would play ----

void pingpong_hog(const Workload &w)
{
    const int64_t round_trips = 20000;
    auto pass = [&] {
        auto ping = unbuffered<int64_t>(), pong = unbuffered<int64_t>();
        auto stop = buffered<int>(2);
        auto hog = start([=] {
            int v;
            while (stop->try_pop(v) == channel_op_status::empty)
                boost::this_fiber::yield();
        });
        auto player = start([=] {
            int64_t v;
            while (ping->pop(v) == channel_op_status::success)
                pong->push(v);
        });
        for (int64_t i = 0; i < round_trips; i++) {
            ping->push(i);
            expect("what came back", pong->value_pop(), i);
        }
        stop->close();
        ping->close();
        hog.join();
        player.join();
    };
    report(w, per_op(round_trips, pass), "ns/round trip");
}

// ---- chan_prodcons: for each thread a producer and a consumer, all on one channel ----

static const int prodcons_calls = 20000, calls_at_once = 1000;

static void local_work(int n)
{
    int64_t x = 0;
    for (int i = 0; i < n; i++)
        __asm__ volatile("" : "=r"(x) : "0"(x * 2 / 2));
}

template <class Channel> static void produce(Channel channel, std::atomic<int> &batches, int work)
{
    while (batches-- > 0)
        for (int i = 0; i < calls_at_once; i++) {
            local_work(work);
            channel->push(1);
        }
    channel->push(0);
}

template <class Channel> static void prodcons_pass(Channel channel, int work)
{
    std::atomic<int> batches(prodcons_calls / calls_at_once);
    std::vector<fibers::fiber> all;
    for (int i = 0; i < thread_count(); i++) {
        all.push_back(start([&batches, channel, work] { produce(channel, batches, work); }));
        all.push_back(start([=] {
            while (channel->value_pop() != 0)
                local_work(work);
        }));
    }
    join_all(all);
}

template <class F> static void report_prodcons(const Workload &w, const char *part, int work, F new_channel)
{
    auto pass = [&] { prodcons_pass(new_channel(), work); };
    report_part(w, part, per_op_in(measure_ns() / 4, prodcons_calls, pass), "ns/item");
}

// Capacities are powers of two here, and the nearest is taken.
void chan_prodcons(const Workload &w)
{
    report_prodcons(w, "0", 0, unbuffered<int64_t>);
    report_prodcons(w, "10", 0, [] { return buffered<int64_t>(8); });
    report_prodcons(w, "100", 0, [] { return buffered<int64_t>(128); });
    report_prodcons(w, "work100", 100, [] { return buffered<int64_t>(128); });
}

// ---- wakeup_parallel: two wake each other after some work: does it go on in parallel? ----

static void spin_for(int64_t ns)
{
    for (int64_t end = now_ns() + ns; now_ns() < end;)
        ;
}

static void wakeup_pass(int wake_ups, int64_t delay)
{
    const int64_t wake_delay = 5000;
    auto ping = unbuffered<int>(), pong = unbuffered<int>();
    auto second = start([=] {
        for (int i = 0; i < wake_ups; i++) {
            spin_for(delay);
            ping->value_pop();
            spin_for(delay + wake_delay);
            pong->push(0);
        }
    });
    for (int i = 0; i < wake_ups; i++) {
        spin_for(delay + wake_delay);
        ping->push(0);
        spin_for(delay);
        pong->value_pop();
    }
    second.join();
}

// Not beside a blocking call, which no fiber may make.
void wakeup_parallel(const Workload &w)
{
    const int wake_ups = 1000;
    for (int us : {0, 1, 10, 100}) {
        double ns = per_op_in(measure_ns() / 5, wake_ups, [&] { wakeup_pass(wake_ups, us * 1000); });
        report_part(w, ("spin" + std::to_string(us)).c_str(), ns / 1e3, "us");
    }
}
