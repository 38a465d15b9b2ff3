# SPDX-License-Identifier: MIT
"""The workloads in words, and the order in which a report shows them."""

# Title, and the workloads of that section; one that is in none is shown in the table only.
SECTIONS = [
    ("Goroutines", ["yield_1p", "spawn_1p", "spawn_2p", "spawnjoin"]),
    ("Channels", ["pingpong_1p", "pingpong_2p", "buffered_1p", "buffered_2p", "mpmc_2p", "select4_2p", "ring_1p", "ring_2p",
                  "pipeline_warm", "sieve_2p"]),
    ("Locks", ["mutex_uncontended", "mutex_contended"]),
    ("Trees", ["skynet_2p", "fib_2p", "matmul"]),
    ("Many at once", ["parked_10k", "parked_1m", "sleepers_1m"]),
    ("Time and fairness", ["timers_100k", "preempt", "preempt_high", "ready_high", "preempt_cost", "preempt_own",
                           "mixed"]),
    ("The kernel", ["blocking", "echo_2p", "http_raw", "files_hot", "files_direct"]),
    ("The Benchmarks Game, and the article on tokio's scheduler",
     ["chameneos", "chained_spawn", "ping_pong", "spawn_many", "yield_many"]),
    ("Of Go's runtime",
     ["create_goroutines", "pingpong_hog", "chan_prodcons", "select_prodcons", "wakeup_parallel", "matmult"]),
]

# Workloads that are measured on several numbers of Ps, and with several numbers of goroutines: (name, words).
SCALING = [
    ("scale_spawn", "start and end of a goroutine"),
    ("scale_pairs", "a round trip, all playing ping-pong in pairs"),
    ("scale_mpmc", "an item through one channel, half of them sending"),
    ("scale_skynet", "a leaf of a tree"),
]

WORKLOAD_NOTES = """\
`_1p` is one P (GOMAXPROCS=1), and the process, whoever's it is, is kept on one CPU. `_2p` is two Ps on whichever CPUs
the kernel gives them; threads, which have no Ps, are kept on the first two CPUs instead, in `mutex_contended`,
`preempt`, `blocking`, `http_raw` and `mixed` too, and with them the clients that they start (`wrk` and that of
`mixed`), and in `scale_spawn` on as many as there are Ps. Nobody else is kept anywhere: the others use every CPU unless
they say so. A run takes about a second, warm-up is not counted unless it says cold. The programs are `bench/weft_*.c`,
`bench/go/`, `bench/tokio/`, `bench/boost/`, `bench/pthread/` and `bench/bare/` (nothing but the kernel). A twin lacks
what its library cannot do or nobody would do with it: Boost.Fiber knows no sockets, no select and no preemption, tokio
does not multiply matrices, and nobody starts a thread for each filter of a sieve or each block of a matrix.

- `yield_1p`: two goroutines yield in turn. Threads: `sched_yield` on one CPU.
- `spawn_1p`, `spawn_2p`: 1,000,000 empty goroutines in batches of 1,000 with a wait group, again and again. Threads:
  batches of 100, created and joined.
- `spawnjoin`: start one and wait for it, in a loop.
- `pingpong_1p`, `pingpong_2p`: a value goes to and fro between two goroutines by two unbuffered channels. Threads: a
  turn under a mutex, with a condition variable for each side.
- `buffered_1p`, `buffered_2p`: one producer, one consumer, a channel of capacity 128.
- `mpmc_2p`: the same with 8 producers and 8 consumers.
- `select4_2p`: one consumer selects over 4 unbuffered channels with a producer each.
- `mutex_uncontended`, `mutex_contended`: one goroutine, or 8 on two Ps, count under a mutex; the time of one lock,
  count and unlock.
- `ring_1p`, `ring_2p`: 503 goroutines in a ring of unbuffered channels pass a token: the thread-ring of the Computer
  Language Benchmarks Game. What is unbuffered elsewhere has a capacity of 1 in tokio.
- `skynet_2p`: a tree of goroutines with 10 below each and 1,000,000 leaves, whose numbers are summed by unbuffered
  channels (capacity 10 in tokio, 15 in Boost.Fiber, so that no child waits); cold, the first thing that the process
  does. `.warm`: again and again after that.
- `fib_2p`: fib(27) with a goroutine for each call down to n < 2 and a wait group for each pair.
- `sieve_2p`: the first 2,000 primes through a chain of filters, a goroutine and an unbuffered channel for each.
- `pipeline_warm`: 64 chains of 4 goroutines, in each of which a buffer of 16 KiB goes round by unbuffered channels
  (tokio: of capacity 1); each stage reads and writes all of its cache lines, and finds them in the cache if it runs on
  the same CPU right after the one before it.
- `parked_1m`, `parked_10k`: so many goroutines blocked on one unbuffered channel (threads, 10,000 only: a condition
  variable). `.create`: until all have arrived. `.bytes`: growth of resident memory and page tables for each; a thread's
  kernel stack is not in it. `.wake`: from the release until all are done.
- `sleepers_1m`: 1,000,000 goroutines that all sleep. `.create`: until all are about to. `.bytes`: as above.
- `timers_100k`: 100,000 goroutines sleep for random times up to 200 ms, three times over. `.p50`, `.p99`, `.max`: how
  much longer than wanted a sleep was. `.cpu`: processor time of one time over, starting the goroutines included.
- `preempt`, `preempt_high`: 4 endless loops of arithmetic without a call on two Ps, and one goroutine, in the second of
  high priority, that sleeps 500 times 1 ms. `.p50`, `.p99`, `.max`: how much longer than wanted a sleep was. The loops
  are stopped after 10 s, which is the figure of whoever cannot take a P from them.
- `ready_high`: a goroutine of high priority beside such loops receives from a thread that is not the scheduler's, which
  sends the time 500 times, 1 ms after the last was taken. `.p50`, `.p99`, `.max`: how long after that time it runs.
  Bare, for these two: two threads compute, and 1 ms later a timer of the kernel's, or a third thread that sleeps
  meanwhile, sends one of them a signal; how late its handler runs.
- `quantum_cost`: what a quantum of 1 ms costs 4 goroutines that compute for 30 ms each on two Ps, against no preemption
  at all; the best of 20 runs of either, in turn. `.percent`: in time. `.cpu_percent`: in processor time.
- `preempt_cost`: two goroutines on one P compute and look at the clock, with a quantum of 1 ms. `.p50`, `.p99`, `.max`:
  from the last look of one to the first of the other, both of which were stopped by a signal. Bare: what a thread that
  does the same loses by a signal from another one, once a millisecond, whose handler does nothing.
- `preempt_own`: the same two, but each keeps the signal waiting at its thread (it is blocked) and lets it in right after a
  look at the clock: from that look to the first of the other. What the signal takes from the CPU of the monitor to this
  one is not in it. Bare: likewise, with the handler that does nothing.
- `blocking`: on two Ps, 64 goroutines sleep 200 times 1 ms each in the kernel, which holds up the thread, while two
  others count and yield every 30 us or so. Every scheduler is told of each sleep: Weft by `weft_block_enter` and
  `weft_block_leave` around it, Go by `syscall.Nanosleep`, which announces itself, tokio by `spawn_blocking`. `.total`:
  until all have slept, 200 ms at best. `.counted`: what the two came to meanwhile. `.threads`: the most OS threads of
  the process.
- `echo_2p`: 64 TCP connections in the process, a goroutine at each end, 64 bytes to and fro. `.cpu_per_rt`: processor
  time of a round trip, both ends. Bare: two threads with an epoll each; both ends of a connection are on the same.
- `http_raw`: a keep-alive server that finds the end of each request and sends a fixed answer, on two Ps, asked by `wrk
  -t1 -c64 -d5s` on the same CPUs. `.cpu_per_req`: processor time of the server alone. Bare: as for the echo.
- `mixed`: the same server; for one request in ten it computes for 30 ms without a call. Asked by a process on the same
  CPUs with 16 connections, each of which waits for its answer, then pauses, 35 ms on the average: 60 % of two CPUs are
  asked for. `.light_p50`, `.light_p99`: latency of the other requests. `.unloaded_p99`: that without heavy ones,
  measured before. `.extra_p99`: the difference. `.heavy_p50`: latency of the heavy ones, 30 ms at best. Threads: one
  for each connection.
- `files_hot`, `files_direct`: 32 goroutines read 4 KiB at random places of a file of 256 MiB, from the page cache, or
  from the device with O_DIRECT. `.cpu`: processor time of one read. tokio: `spawn_blocking` for each. Threads: 32 of
  them. Bare: one thread with 32 requests in an io_uring.
- `chameneos`: the Game's chameneos-redux: `.3` or `.10` creatures meet in pairs at one place and change their colours.
- `chained_spawn`, `ping_pong`, `spawn_many`, `yield_many`: the four of the article on tokio's scheduler: 1,000 tasks
  each of which starts the next; 1,000 tasks that each start another one, ask it and are answered; 10,000 tasks; 200
  tasks that yield 1,000 times. Threads: all are joined.
- `matmul`: two matrices of 512 x 512 numbers, by products of quarters down to 32 x 32, four at a time. Most of it is
  arithmetic, and so the compilers'.
- `create_goroutines`, `pingpong_hog`, `chan_prodcons`, `select_prodcons`, `wakeup_parallel`, `matmult`: twins of the
  benchmarks of Go's runtime. A chain in which each goroutine starts the next (`.parallel`: one for each P); ping-pong
  on one P beside a loop that looks at a channel (in tokio and Boost.Fiber, where nobody would play, it yields); a
  producer and a consumer for each P on one channel of capacity 0, 10 or 100, or of 100 with some work for each item,
  and by a select beside a timer; two goroutines that work for 0 to 100 us and wake each other; a product of matrices
  whose longest side is halved down to 8.
- `scale_spawn`, `scale_pairs`, `scale_mpmc`, `scale_skynet`: so many goroutines on so many Ps are started and end; play
  ping-pong in pairs; send and receive, one half each, by one channel; are the leaves of a tree, with channels as in
  `skynet_2p`. Except for the first and the last, starting them is not counted.
""".splitlines()
