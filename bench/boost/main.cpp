// SPDX-License-Identifier: MIT
//
// The program, what its workloads share, and those of bare fibers.
#include "bench.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <malloc.h>
#include <mutex>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

// ---- measuring and reporting ----

void fail(const std::string &message)
{
    std::fprintf(stderr, "bench: %s\n", message.c_str());
    std::exit(1);
}

void expect(const char *what, int64_t got, int64_t want)
{
    if (got != want)
        fail(std::string(what) + " is " + std::to_string(got) + " instead of " + std::to_string(want));
}

void report(const Workload &w, double value, const char *unit)
{
    std::printf("%s %.2f %s\n", w.name, value, unit);
}

void report_part(const Workload &w, const char *part, double value, const char *unit)
{
    std::printf("%s.%s %.2f %s\n", w.name, part, value, unit);
}

void report_spread_us(const Workload &w, std::vector<int64_t> times)
{
    std::sort(times.begin(), times.end());
    report_part(w, "p50", double(times[times.size() / 2]) / 1e3, "us");
    report_part(w, "p99", double(times[times.size() * 99 / 100]) / 1e3, "us");
    report_part(w, "max", double(times.back()) / 1e3, "us");
}

bool quick()
{
    const char *value = std::getenv("QUICK");
    return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

int64_t now_ns()
{
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t measure_ns()
{
    return quick() ? 150000000 : 750000000;
}

double cpu_ms()
{
    rusage u;
    getrusage(RUSAGE_SELF, &u);
    return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + double(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

// Resident memory and page tables of this process.
int64_t memory_bytes()
{
    std::ifstream status("/proc/self/status");
    std::string line;
    int64_t kib = 0;
    while (std::getline(status, line))
        if (line.rfind("VmRSS:", 0) == 0 || line.rfind("VmPTE:", 0) == 0)
            kib += std::atoll(line.c_str() + 6);
    return kib * 1024;
}

// ---- yield, spawn, spawnjoin ----

static void yield(const Workload &w)
{
    const int yields = 200000;
    auto half = [] {
        for (int i = 0; i < yields / 2; i++)
            boost::this_fiber::yield();
    };
    auto pass = [&] {
        auto a = start(half), b = start(half);
        a.join();
        b.join();
    };
    report(w, per_op(yields, pass), "ns/switch");
}

static void spawn(const Workload &w)
{
    const int spawns = 20000, batch = 1000;
    auto pass = [&] {
        for (int i = 0; i < spawns / batch; i++)
            spawn_batch(batch);
    };
    report(w, per_op(spawns, pass), "ns/spawn");
}

static void spawnjoin(const Workload &w)
{
    const int joins = 20000;
    auto pass = [&] {
        for (int i = 0; i < joins; i++)
            start([] {}).join();
    };
    report(w, per_op(joins, pass), "ns");
}

// ---- mutex: w.size fibers count under one lock ----

static void mutex(const Workload &w)
{
    const int locks = 400000;
    fibers::mutex mutex;
    int64_t count;
    auto pass = [&] {
        count = 0;
        std::vector<fibers::fiber> all;
        for (int i = 0; i < w.size; i++)
            all.push_back(start([&] {
                for (int j = 0; j < locks / w.size; j++) {
                    std::unique_lock<fibers::mutex> lock(mutex);
                    count++;
                }
            }));
        join_all(all);
        expect("the count under the lock", count, locks);
    };
    report(w, per_op(locks, pass), "ns");
}

// ---- the table ----

static const Workload workloads[] = {
    {"yield_1p", 1, yield, 0},
    {"spawn_1p", 1, spawn, 0},
    {"spawn_2p", 2, spawn, 0},
    {"spawnjoin", 0, spawnjoin, 0},
    {"pingpong_1p", 1, pingpong, 0},
    {"pingpong_2p", 2, pingpong, 0},
    {"buffered_1p", 1, stream, 1},
    {"buffered_2p", 2, stream, 1},
    {"mpmc_2p", 2, stream, 8},
    {"mutex_uncontended", 0, mutex, 1},
    {"mutex_contended", 2, mutex, 8},
    {"ring_1p", 1, ring, 503},
    {"ring_2p", 2, ring, 503},
    {"skynet_2p", 2, skynet, 0},
    {"fib_2p", 2, fib, 0},
    {"sieve_2p", 2, sieve, 0},
    {"pipeline_warm", 2, pipeline, 0},
    {"parked_10k", 0, parked, 10000},
    {"parked_1m", 0, parked, 1000000},
    {"sleepers_1m", 0, sleepers, 1000000},
    {"timers_100k", 0, timers, 100000},
    {"chameneos", 0, chameneos, 0},
    {"chained_spawn", 0, chained_spawn, 0},
    {"ping_pong", 0, ping_pong, 0},
    {"spawn_many", 0, spawn_many, 0},
    {"yield_many", 0, yield_many, 0},
    {"matmul", 0, matmul, 0},
    {"create_goroutines", 0, create_goroutines, 0},
    {"pingpong_hog", 1, pingpong_hog, 0},
    {"chan_prodcons", 0, chan_prodcons, 0},
    {"wakeup_parallel", 2, wakeup_parallel, 0},
    {"matmult", 0, matmult, 0},
    {"scale_spawn", 2, scale_spawn, 10000},
    {"scale_pairs", 2, scale_pairs, 10000},
    {"scale_mpmc", 2, scale_mpmc, 10000},
    {"scale_skynet", 2, scale_skynet, 10000},
};

// ---- threads ----

static int threads_of_run;

int thread_count()
{
    return threads_of_run;
}

// All threads wait here, as threads: whoever steals finds everybody's queue.
class Meeting
{
  public:
    void arrive()
    {
        std::unique_lock<std::mutex> lock(mutex);
        if (++arrived == threads_of_run)
            complete.notify_all();
        complete.wait(lock, [&] { return arrived == threads_of_run; });
    }

  private:
    std::mutex mutex;
    std::condition_variable complete;
    int arrived = 0;
};

static void steal_and_be_stolen_from(Meeting &meeting)
{
    fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(uint32_t(threads_of_run));
    meeting.arrive();
}

static void run_on_threads(const Workload &w)
{
    Meeting begin;
    WaitGroup over(1);
    std::vector<std::thread> others;
    for (int i = 1; i < threads_of_run; i++)
        others.emplace_back([&] {
            steal_and_be_stolen_from(begin);
            over.wait();
        });
    steal_and_be_stolen_from(begin);
    w.run(w);
    over.done();
    for (auto &thread : others)
        thread.join();
}

static void run(const Workload &w)
{
    const double fiber = 10000; // bytes, its stack and what malloc keeps beside it
    const double memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
    if (w.size * fiber > memory / 2) {
        std::fprintf(stderr, "bench: %d fibers of some 10 KB each are too many for this machine's memory\n", w.size);
        return;
    }
    threads_of_run = w.threads > 0 ? w.threads : int(std::thread::hardware_concurrency());
    if (threads_of_run == 1)
        w.run(w);
    else
        run_on_threads(w);
}

static void usage()
{
    fail("usage: boost_bench -l | [-p THREADS] [-n SIZE] NAME");
}

static int number_from(const char *text)
{
    int n = std::atoi(text);
    if (n <= 0)
        usage();
    return n;
}

int main(int argc, char **argv)
{
    mallopt(M_TRIM_THRESHOLD, 1 << 30); // stacks of fibers that have ended stay for others, as elsewhere
    int threads = 0, size = 0;
    for (int option; (option = getopt(argc, argv, "lp:n:")) != -1;)
        switch (option) {
        case 'l':
            for (const Workload &w : workloads)
                std::puts(w.name);
            return 0;
        case 'p':
            threads = number_from(optarg);
            break;
        case 'n':
            size = number_from(optarg);
            break;
        default:
            usage();
        }
    if (optind + 1 != argc)
        usage();
    for (Workload w : workloads)
        if (std::strcmp(w.name, argv[optind]) == 0) {
            w.threads = threads > 0 ? threads : w.threads;
            w.size = size > 0 ? size : w.size;
            run(w);
            return 0;
        }
    fail(std::string("no workload '") + argv[optind] + "'; -l lists them");
}
