// SPDX-License-Identifier: MIT

//! tokio's side of the benchmarks: the work of bench/weft_io.c, with the same names and the same output. This file is
//! the program and what its workloads share; net.rs has the sockets, block.rs what blocks in the kernel.

mod block;
mod net;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

pub struct Workload {
    pub name: &'static str,
    workers: usize, // 0 = as many as the process may use
    run: fn(&'static Workload, &Runtime),
    pub direct: bool,
}

const fn workload(name: &'static str, workers: usize, run: fn(&'static Workload, &Runtime)) -> Workload {
    Workload { name, workers, run, direct: false }
}

static WORKLOADS: [Workload; 5] = [
    workload("blocking", 2, block::blocking),
    workload("echo_2p", 2, net::echo),
    workload("http_raw", 2, net::http_raw),
    workload("files_hot", 0, block::files),
    Workload { name: "files_direct", workers: 0, run: block::files, direct: true },
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.len() != 2 {
        fail(&format!("usage: {} -l | NAME", arguments[0]));
    }
    if arguments[1] == "-l" {
        WORKLOADS.iter().for_each(|w| println!("{}", w.name));
        return;
    }
    match WORKLOADS.iter().find(|w| w.name == arguments[1]) {
        Some(w) => start(w),
        None => fail(&format!("no workload '{}'; -l lists them", arguments[1])),
    }
}

fn start(w: &'static Workload) {
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
const MEASURE: Duration = Duration::from_secs(1);

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

    /// Lets the tasks warm up, looks at them for a second, and stops them.
    pub async fn measure(&self) -> Rates {
        tokio::time::sleep(WARM_UP).await;
        let (before, cpu, begin) = (self.total(), cpu_time(), Instant::now());
        tokio::time::sleep(MEASURE).await;
        let done = (self.total() - before) as f64;
        let rates = Rates { done, elapsed: begin.elapsed(), cpu: cpu_time() - cpu };
        self.stop.store(true, Relaxed);
        rates
    }
}
