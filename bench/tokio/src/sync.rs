// SPDX-License-Identifier: MIT

//! A mutex with and without contention; many timers at once.

use crate::{cpu_time, on_worker, per_op, report, report_part, report_spread, Workload};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

// ---- mutex: w.size tasks count under one lock, that of tokio, whose waiters park ----

const LOCKS: usize = 2_000_000;

async fn mutex_pass(tasks: usize) {
    let counter = Arc::new(Mutex::new(0));
    let count = |counter: Arc<Mutex<usize>>| async move {
        for _ in 0..LOCKS / tasks {
            *counter.lock().await += 1;
        }
    };
    let tasks: Vec<_> = (0..tasks).map(|_| tokio::spawn(count(counter.clone()))).collect();
    for task in tasks {
        task.await.expect("who counts");
    }
    assert_eq!(*counter.lock().await, LOCKS);
}

pub fn mutex(w: &Workload, runtime: &Runtime) {
    let tasks = w.size;
    report(w, on_worker(runtime, per_op(LOCKS, move || mutex_pass(tasks))), "ns");
}

// ---- timers: w.size tasks sleep for random times; how late do they wake? ----

const LONGEST_SLEEP: u64 = 200_000_000;
const TIMER_ROUNDS: usize = 3;

async fn sleep_one(want: Duration) -> Duration {
    let begin = Instant::now();
    tokio::time::sleep(want).await;
    begin.elapsed() - want
}

async fn sleep_all(n: usize, random: &mut u64, late: &mut Vec<Duration>) {
    let mut sleepers = Vec::with_capacity(n);
    for _ in 0..n {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        sleepers.push(tokio::spawn(sleep_one(Duration::from_nanos(*random % LONGEST_SLEEP))));
    }
    for sleeper in sleepers {
        late.push(sleeper.await.expect("a sleeper"));
    }
}

async fn sleep_often(n: usize) -> (Vec<Duration>, Duration) {
    let (mut late, mut random) = (Vec::with_capacity(n * TIMER_ROUNDS), 1);
    sleep_all(n, &mut random, &mut late).await; // warm-up
    late.clear();
    let before = cpu_time();
    for _ in 0..TIMER_ROUNDS {
        sleep_all(n, &mut random, &mut late).await;
    }
    (late, cpu_time() - before)
}

pub fn timers(w: &Workload, runtime: &Runtime) {
    let (late, used) = on_worker(runtime, sleep_often(w.size));
    report_spread(w, late);
    report_part(w, "cpu", used.as_secs_f64() * 1e3 / TIMER_ROUNDS as f64, "ms");
}
