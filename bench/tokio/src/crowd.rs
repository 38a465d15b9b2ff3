// SPDX-License-Identifier: MIT

//! Many tasks at once: what they cost while they wait, and how the cost of an operation grows with their number and with that of
//! the workers.

use crate::chan::STREAM_CAPACITY;
use crate::task::{spawn_batch, BATCH};
use crate::{measure, memory_bytes, on_worker, per_op_in, quick, report, report_part, Workload, QUICKER};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::channel;
use tokio::sync::Semaphore;

/// Tasks that stand at a gate until all have arrived.
struct Crowd {
    arrived: Semaphore,
    left: Semaphore,
    gate: Semaphore, // which has no permit and is closed to let them go
    n: u32,
}

impl Crowd {
    fn new(n: usize) -> Arc<Crowd> {
        let none = || Semaphore::new(0);
        Arc::new(Crowd { arrived: none(), left: none(), gate: none(), n: n as u32 })
    }

    async fn stand_at_gate(&self) {
        self.arrived.add_permits(1);
        self.gate.acquire().await.expect_err("it has no permits");
    }

    async fn all_arrived(&self) {
        self.arrived.acquire_many(self.n).await.expect("it is not closed").forget();
    }

    /// Returns how long it took from the opening of the gate until the last had left.
    async fn let_go(&self) -> Duration {
        let begin = Instant::now();
        self.gate.close();
        self.left.acquire_many(self.n).await.expect("it is not closed").forget();
        begin.elapsed()
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

// ---- parked: tasks blocked on one semaphore, then let go all at once ----

async fn parked_parts(n: usize) -> [f64; 3] {
    spawn_batch(BATCH).await; // warm-up: threads and code, hardly any memory
    let (before, begin) = (memory_bytes(), Instant::now());
    let crowd = Crowd::new(n);
    for _ in 0..n {
        let crowd = crowd.clone();
        tokio::spawn(async move {
            crowd.stand_at_gate().await;
            crowd.left.add_permits(1);
        });
    }
    crowd.all_arrived().await;
    let (create, bytes) = (milliseconds(begin.elapsed()), (memory_bytes() - before) / n as f64);
    [create, bytes, milliseconds(crowd.let_go().await)]
}

pub fn parked(w: &Workload, runtime: &Runtime) {
    let [create, bytes, wake] = on_worker(runtime, parked_parts(w.size));
    report_part(w, "create", create, "ms");
    report_part(w, "bytes", bytes, "B");
    report_part(w, "wake", wake, "ms");
}

// ---- sleepers: tasks that all sleep; the end of the program ends them ----

async fn sleepers_parts(n: usize) -> [f64; 2] {
    spawn_batch(BATCH).await;
    let (before, begin) = (memory_bytes(), Instant::now());
    let about_to_sleep = Arc::new(Semaphore::new(0));
    for _ in 0..n {
        let about_to_sleep = about_to_sleep.clone();
        tokio::spawn(async move {
            about_to_sleep.add_permits(1);
            drop(about_to_sleep);
            tokio::time::sleep(Duration::from_secs(600)).await;
        });
    }
    about_to_sleep.acquire_many(n as u32).await.expect("it is not closed").forget();
    [milliseconds(begin.elapsed()), (memory_bytes() - before) / n as f64]
}

pub fn sleepers(w: &Workload, runtime: &Runtime) {
    let [create, bytes] = on_worker(runtime, sleepers_parts(w.size));
    report_part(w, "create", create, "ms");
    report_part(w, "bytes", bytes, "B");
}

// ---- scale_spawn: all are started, end at once, and are waited for ----

pub const SCALE_PART: u32 = 4; // of the usual time: there are many points

pub fn scale_spawn(w: &Workload, runtime: &Runtime) {
    let n = w.size;
    report(w, on_worker(runtime, per_op_in(measure() / SCALE_PART, n, move || spawn_batch(n))), "ns/spawn");
}

// ---- scale_pairs: each two play ping-pong ----

/// How many operations there are for each of the n that are half of the tasks.
fn share(tasks: usize) -> (usize, usize) {
    let (n, all) = ((tasks / 2).max(1), 1_000_000 / if quick() { QUICKER as usize } else { 1 });
    (n, all.div_ceil(n))
}

async fn pairs_time(n: usize, each: usize) -> Duration {
    let crowd = Crowd::new(n);
    for _ in 0..n {
        let (ping, mut pinged) = channel(1);
        let (pong, mut ponged) = channel(1);
        tokio::spawn(async move {
            while let Some(v) = pinged.recv().await {
                pong.send(v).await.expect("a partner");
            }
        });
        let crowd = crowd.clone();
        tokio::spawn(async move {
            crowd.stand_at_gate().await;
            for i in 0..each {
                ping.send(i).await.expect("a partner");
                assert_eq!(ponged.recv().await, Some(i));
            }
            drop(ping);
            assert_eq!(ponged.recv().await, None); // the other one is done as well
            crowd.left.add_permits(1);
        });
    }
    crowd.all_arrived().await;
    crowd.let_go().await
}

pub fn scale_pairs(w: &Workload, runtime: &Runtime) {
    let (n, each) = share(w.size);
    let time = on_worker(runtime, pairs_time(n, each));
    report(w, time.as_nanos() as f64 / (n * each) as f64, "ns/round trip");
}

// ---- scale_mpmc: one half sends, the other receives, by one channel with a buffer ----

async fn mpmc_time(n: usize, each: usize) -> Duration {
    let crowd = Crowd::new(2 * n);
    let received = Arc::new(AtomicUsize::new(0));
    let (output, input) = async_channel::bounded(STREAM_CAPACITY);
    for _ in 0..n {
        let (producer, items) = (crowd.clone(), output.clone());
        tokio::spawn(async move {
            producer.stand_at_gate().await;
            for v in 0..each {
                items.send(v).await.expect("a consumer");
            }
            drop(items);
            producer.left.add_permits(1);
        });
        let (consumer, items, received) = (crowd.clone(), input.clone(), received.clone());
        tokio::spawn(async move {
            consumer.stand_at_gate().await;
            let mut count = 0;
            while items.recv().await.is_ok() {
                count += 1;
            }
            received.fetch_add(count, Relaxed);
            consumer.left.add_permits(1);
        });
    }
    drop(output);
    crowd.all_arrived().await;
    let time = crowd.let_go().await;
    assert_eq!(received.load(Relaxed), n * each);
    time
}

pub fn scale_mpmc(w: &Workload, runtime: &Runtime) {
    let (n, each) = share(w.size);
    let time = on_worker(runtime, mpmc_time(n, each));
    report(w, time.as_nanos() as f64 / (n * each) as f64, "ns/item");
}
