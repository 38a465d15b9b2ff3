// SPDX-License-Identifier: MIT

//! Who gets a worker while others compute without an await: nobody, until they are stopped.

use crate::{quick, report_spread, Workload};
use std::arch::asm;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

// ---- arithmetic that calls nobody, as in burn.h ----

const HOGS: usize = 4;
const BURN_AT_ONCE: u64 = 1000; // some 2 us between two looks at the flag
const HOGS_AT_MOST: Duration = Duration::from_secs(10);
const QUICK_HOGS_AT_MOST: Duration = Duration::from_secs(3);

/// n steps, each of which needs the one before.
pub fn burn(n: u64) {
    let mut x: u64 = 1;
    for _ in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    unsafe { asm!("/* {0} */", in(reg) x) };
}

/// How many steps take that long when nothing disturbs them.
pub fn burns_in(time: Duration) -> u64 {
    const TRIALS: u32 = 20;
    const STEPS: u64 = 1_000_000;
    let trial = |_| {
        let begin = Instant::now();
        burn(STEPS);
        begin.elapsed()
    };
    let best = (0..TRIALS).map(trial).min().expect("a trial");
    time.as_nanos() as u64 * STEPS / best.as_nanos() as u64
}

// ---- preempt: how late does a sleeper wake while others compute? ----

const PERIOD: Duration = Duration::from_millis(1);

static STOP: AtomicBool = AtomicBool::new(false);

async fn hog() {
    while !STOP.load(Relaxed) {
        burn(BURN_AT_ONCE);
    }
}

/// Starts the hogs itself, so that they cannot keep it from beginning.
async fn sleep_often() -> Vec<Duration> {
    let hogs: Vec<_> = (0..HOGS).map(|_| tokio::spawn(hog())).collect();
    let (mut times, wanted) = (Vec::new(), if quick() { 100 } else { 500 });
    while times.len() < wanted && !STOP.load(Relaxed) {
        let begin = Instant::now();
        tokio::time::sleep(PERIOD).await;
        times.push(begin.elapsed() - PERIOD);
    }
    STOP.store(true, Relaxed);
    for hog in hogs {
        hog.await.expect("a hog");
    }
    times
}

pub fn preempt(w: &Workload, runtime: &Runtime) {
    std::thread::spawn(|| {
        std::thread::sleep(if quick() { QUICK_HOGS_AT_MOST } else { HOGS_AT_MOST });
        STOP.store(true, Relaxed);
    });
    let sleeper = runtime.spawn(sleep_often());
    report_spread(w, runtime.block_on(sleeper).expect("a sleeper"));
}
