// SPDX-License-Identifier: MIT
//
// Channels: between two fibers, between many, in a ring, in a chain and in many short ones. There is no select.
#include "bench.hpp"

// ---- pingpong: a value goes to and fro between two fibers ----

void pingpong(const Workload &w)
{
    const int64_t round_trips = 20000;
    auto pass = [&] {
        auto ping = unbuffered<int64_t>(), pong = unbuffered<int64_t>();
        auto player = start([=] {
            int64_t v;
            while (ping->pop(v) == channel_op_status::success)
                pong->push(v);
        });
        for (int64_t i = 0; i < round_trips; i++) {
            ping->push(i);
            expect("what came back", pong->value_pop(), i);
        }
        ping->close();
        player.join();
    };
    report(w, per_op(round_trips, pass), "ns/round trip");
}

// ---- buffered, mpmc: w.size producers, as many consumers, one channel with a buffer ----

void stream(const Workload &w)
{
    const int64_t items = 80000;
    auto pass = [&] {
        auto channel = buffered<int64_t>(128);
        std::vector<fibers::fiber> producers, consumers;
        for (int i = 0; i < w.size; i++) {
            producers.push_back(start([=] {
                for (int64_t v = 0; v < items / w.size; v++)
                    channel->push(v);
            }));
            consumers.push_back(start([=] {
                int64_t v;
                while (channel->pop(v) == channel_op_status::success)
                    ;
            }));
        }
        join_all(producers);
        channel->close();
        join_all(consumers);
    };
    report(w, per_op(items, pass), "ns/item");
}

// ---- ring: w.size fibers in a ring of unbuffered channels pass a token, as in the thread-ring of the Game ----

void ring(const Workload &w)
{
    const int64_t hops = 20000;
    auto first = unbuffered<int64_t>(), ended = unbuffered<int64_t>(), in = first;
    std::vector<Unbuffered<int64_t>> all;
    std::vector<fibers::fiber> members;
    for (int i = 0; i < w.size; i++) {
        auto out = i < w.size - 1 ? unbuffered<int64_t>() : first;
        all.push_back(out);
        members.push_back(start([=] {
            int64_t left;
            while (in->pop(left) == channel_op_status::success)
                if (left > 1)
                    out->push(left - 1);
                else
                    ended->push(i);
        }));
        in = out;
    }
    auto pass = [&] {
        first->push(hops);
        expect("the one who got the last hop", ended->value_pop(), (hops - 1) % w.size);
    };
    report(w, per_op(hops, pass), "ns/hop");
    for (auto &channel : all)
        channel->close();
    join_all(members);
}

// ---- sieve: the first 2,000 primes through a chain of filters, each of which takes out the multiples of one ----

static void filter(int64_t prime, Unbuffered<int64_t> in, Unbuffered<int64_t> out)
{
    int64_t v;
    while (in->pop(v) == channel_op_status::success)
        if (v % prime != 0)
            out->push(v);
    out->close();
}

void sieve(const Workload &w)
{
    const int64_t primes = 2000, last_prime = 17389;
    auto pass = [&] {
        auto numbers = unbuffered<int64_t>(), in = numbers;
        std::vector<fibers::fiber> all;
        all.push_back(start([=] {
            for (int64_t v = 2; v <= last_prime; v++)
                numbers->push(v);
            numbers->close();
        }));
        int64_t prime, found = 0;
        while (in->pop(prime) == channel_op_status::success) {
            found++;
            auto out = unbuffered<int64_t>();
            all.push_back(start([=] { filter(prime, in, out); }));
            in = out;
        }
        join_all(all);
        expect("the number of primes", found, primes);
    };
    report(w, per_op(1, pass) / 1e6, "ms");
}

// ---- pipeline: 64 chains of 4 stages, in each of which a buffer goes round; every stage reads and writes it ----

namespace
{
const int chains = 64, stages = 4, pipeline_hops = 200;

struct Message {
    int64_t hops = 0; // that are left, this one included
    struct alignas(64) Line {
        int64_t changes = 0;
    } lines[16 * 1024 / 64];
};

struct Chain {
    Unbuffered<Message *> channels[stages];
    Message message;
};
} // namespace

static void stage(Unbuffered<Message *> in, Unbuffered<Message *> out, Unbuffered<Message *> ended)
{
    Message *m;
    while (in->pop(m) == channel_op_status::success) {
        for (auto &line : m->lines)
            line.changes++;
        (--m->hops > 0 ? out : ended)->push(m);
    }
}

void pipeline(const Workload &w)
{
    auto ended = unbuffered<Message *>();
    std::vector<Chain> all(chains);
    std::vector<fibers::fiber> fibers;
    for (auto &chain : all) {
        for (auto &channel : chain.channels)
            channel = unbuffered<Message *>();
        for (int i = 0; i < stages; i++) {
            auto in = chain.channels[i], out = chain.channels[(i + 1) % stages];
            fibers.push_back(start([=] { stage(in, out, ended); }));
        }
    }
    auto pass = [&] {
        for (auto &chain : all) {
            chain.message.hops = pipeline_hops;
            chain.channels[0]->push(&chain.message);
        }
        for (int i = 0; i < chains; i++)
            ended->value_pop();
    };
    report(w, per_op(int64_t(chains) * pipeline_hops, pass), "ns/hop");
    for (auto &chain : all)
        for (auto &channel : chain.channels)
            channel->close();
    join_all(fibers);
}
