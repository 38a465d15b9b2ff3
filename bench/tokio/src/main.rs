// SPDX-License-Identifier: MIT

//! tokio's side of the benchmarks: the work of bench/weft_*.c with the same names and the same output. This file is the
//! program and what its workloads share; task.rs has bare tasks and trees of them, chan.rs the channels, crowd.rs many tasks at
//! once, suites.rs what others have published, sync.rs a lock and timers, net.rs the sockets, block.rs what blocks in the kernel,
//! fair.rs what does not let others run.

mod block;
mod chan;
mod crowd;
mod fair;
mod net;
mod suites;
mod sync;
mod task;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

#[derive(Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub workers: usize, // 0 = as many as the process may use
    run: fn(&Workload, &Runtime),
    pub size: usize, // what the workload makes of it; 0 where it has one size only
}

const fn workload(name: &'static str, workers: usize, run: fn(&Workload, &Runtime), size: usize) -> Workload {
    Workload { name, workers, run, size }
}

static WORKLOADS: &[Workload] = &[
    workload("yield_1p", 1, task::yields, 0),
    workload("spawn_1p", 1, task::spawn, 0),
    workload("spawn_2p", 2, task::spawn, 0),
    workload("spawnjoin", 0, task::spawnjoin, 0),
    workload("pingpong_1p", 1, chan::pingpong, 0),
    workload("pingpong_2p", 2, chan::pingpong, 0),
    workload("buffered_1p", 1, chan::buffered, 0),
    workload("buffered_2p", 2, chan::buffered, 0),
    workload("mpmc_2p", 2, chan::mpmc, 8),
    workload("select4_2p", 2, chan::select4, 0),
    workload("mutex_uncontended", 0, sync::mutex, 1),
    workload("mutex_contended", 2, sync::mutex, 8),
    workload("ring_1p", 1, chan::ring, 503),
    workload("ring_2p", 2, chan::ring, 503),
    workload("skynet_2p", 2, task::skynet, 0),
    workload("fib_2p", 2, task::fib, 0),
    workload("sieve_2p", 2, chan::sieve, 0),
    workload("pipeline_warm", 2, chan::pipeline, 0),
    workload("parked_10k", 0, crowd::parked, 10_000),
    workload("parked_1m", 0, crowd::parked, 1_000_000),
    workload("sleepers_1m", 0, crowd::sleepers, 1_000_000),
    workload("timers_100k", 0, sync::timers, 100_000),
    workload("preempt", 2, fair::preempt, 0),
    workload("blocking", 2, block::blocking, 0),
    workload("echo_2p", 2, net::echo, 0),
    workload("http_raw", 2, net::http_raw, 0),
    workload("mixed", 2, net::mixed, 0),
    workload("files_hot", 0, block::files, 0),
    workload("files_direct", 0, block::files, block::DIRECT),
    workload("chameneos", 0, suites::chameneos, 0),
    workload("chained_spawn", 0, suites::chained_spawn, 0),
    workload("ping_pong", 0, suites::ping_pong, 0),
    workload("spawn_many", 0, suites::spawn_many, 0),
    workload("yield_many", 0, suites::yield_many, 0),
    workload("create_goroutines", 0, suites::create_goroutines, 0),
    workload("pingpong_hog", 1, suites::pingpong_hog, 0),
    workload("chan_prodcons", 0, suites::chan_prodcons, 0),
    workload("select_prodcons", 0, suites::select_prodcons, 0),
    workload("wakeup_parallel", 2, suites::wakeup_parallel, 0),
    workload("scale_spawn", 2, crowd::scale_spawn, 10_000),
    workload("scale_pairs", 2, crowd::scale_pairs, 10_000),
    workload("scale_mpmc", 2, crowd::scale_mpmc, 10_000),
    workload("scale_skynet", 2, task::scale_skynet, 10_000),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words == ["-l"] {
        WORKLOADS.iter().for_each(|w| println!("{}", w.name));
        return;
    }
    let workers = take_option(&mut words, "-p");
    let size = take_option(&mut words, "-n");
    let [name] = words[..] else { usage() };
    let Some(found) = WORKLOADS.iter().find(|w| w.name == name) else {
        fail(&format!("no workload '{name}'; -l lists them"))
    };
    start(&Workload { workers: workers.unwrap_or(found.workers), size: size.unwrap_or(found.size), ..*found });
}

fn usage() -> ! {
    fail("usage: tokio_bench -l | [-p WORKERS] [-n SIZE] NAME")
}

/// Takes an option with its number out of the words.
fn take_option(words: &mut Vec<&str>, option: &str) -> Option<usize> {
    let at = words.iter().position(|word| *word == option)?;
    let value = words.get(at + 1).and_then(|word| word.parse().ok()).filter(|n| *n > 0);
    words.drain(at..words.len().min(at + 2));
    value.or_else(|| usage())
}

fn start(w: &Workload) {
    let mut builder = Builder::new_multi_thread();
    if w.workers > 0 {
        builder.worker_threads(w.workers);
    }
    let runtime = builder.enable_all().build().expect("a runtime");
    (w.run)(w, &runtime);
    runtime.shutdown_background();
}

// ---- measuring and reporting ----

const WARM_UP: Duration = Duration::from_millis(200);
pub const QUICKER: u32 = 5;

/// For how long timed passes are repeated.
pub fn measure() -> Duration {
    Duration::from_millis(750) / if quick() { QUICKER } else { 1 }
}

/// Runs it on one of the workers.
pub fn on_worker<F>(runtime: &Runtime, main: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    runtime.block_on(runtime.spawn(main)).expect("the main task")
}

/// Nanoseconds per operation, when one pass makes `ops` of them and passes are repeated for that long. The first pass warms
/// up and is not counted.
pub async fn per_op_in<F>(time: Duration, ops: usize, mut pass: impl FnMut() -> F) -> f64
where
    F: Future<Output = ()>,
{
    pass().await;
    let (begin, mut passes) = (Instant::now(), 0);
    while begin.elapsed() < time {
        pass().await;
        passes += 1;
    }
    begin.elapsed().as_nanos() as f64 / (passes * ops) as f64
}

pub async fn per_op<F>(ops: usize, pass: impl FnMut() -> F) -> f64
where
    F: Future<Output = ()>,
{
    per_op_in(measure(), ops, pass).await
}

/// The parts .p50, .p99 and .max.
pub fn report_spread(w: &Workload, mut times: Vec<Duration>) {
    times.sort();
    let part = |name, at: usize| report_part(w, name, times[at].as_nanos() as f64 / 1e3, "us");
    part("p50", times.len() / 2);
    part("p99", times.len() * 99 / 100);
    part("max", times.len() - 1);
}

/// Resident memory and page tables of this process.
pub fn memory_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let kib = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok());
    let wanted = status.lines().filter(|line| line.starts_with("VmRSS:") || line.starts_with("VmPTE:"));
    wanted.filter_map(kib).sum::<f64>() * 1024.0
}

pub fn fail(message: &str) -> ! {
    eprintln!("bench: {message}");
    std::process::exit(1);
}

/// What QUICK=1 asks for: smaller and shorter, where a workload would take long.
pub fn quick() -> bool {
    std::env::var("QUICK").is_ok_and(|value| !value.is_empty() && value != "0")
}

pub fn report(w: &Workload, value: f64, unit: &str) {
    println!("{} {value:.2} {unit}", w.name);
}

pub fn report_part(w: &Workload, part: &str, value: f64, unit: &str) {
    println!("{}.{part} {value:.2} {unit}", w.name);
}

/// What this process has used so far, in user mode and in the kernel.
pub fn cpu_time() -> Duration {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        fail("getrusage");
    }
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Counts what one task has done; alone on its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Tally(AtomicU64);

/// What the tasks of a workload share with the one that measures them.
pub struct Meter {
    tallies: Vec<Tally>,
    stop: AtomicBool,
}

pub struct Rates {
    pub done: f64, // operations
    pub elapsed: Duration,
    pub cpu: Duration,
}

impl Meter {
    pub fn new(tasks: usize) -> Arc<Meter> {
        let tallies = (0..tasks).map(|_| Tally::default()).collect();
        Arc::new(Meter { tallies, stop: AtomicBool::new(false) })
    }

    pub fn count(&self, task: usize) {
        self.tallies[task].0.fetch_add(1, Relaxed);
    }

    pub fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    fn total(&self) -> u64 {
        self.tallies.iter().map(|t| t.0.load(Relaxed)).sum()
    }

    /// Lets the tasks warm up, looks at them for about a second, and stops them.
    pub async fn measure(&self) -> Rates {
        tokio::time::sleep(WARM_UP).await;
        let (before, cpu, begin) = (self.total(), cpu_time(), Instant::now());
        tokio::time::sleep(measure()).await;
        let done = (self.total() - before) as f64;
        let rates = Rates { done, elapsed: begin.elapsed(), cpu: cpu_time() - cpu };
        self.stop.store(true, Relaxed);
        rates
    }
}
