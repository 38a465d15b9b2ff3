// SPDX-License-Identifier: MIT

//! Bare tasks, and trees of them: results go up by channel (skynet) or as what the task returns (fib).

use crate::crowd::SCALE_PART;
use crate::{measure, on_worker, per_op, per_op_in, report, report_part, Workload};
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{channel, Sender};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

// ---- yield: two tasks yield in turn ----

const YIELDS: usize = 1_000_000;

pub async fn yield_times(n: usize) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}

async fn yield_pass() {
    let halves = [tokio::spawn(yield_times(YIELDS / 2)), tokio::spawn(yield_times(YIELDS / 2))];
    for half in halves {
        half.await.expect("a half");
    }
}

pub fn yields(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(YIELDS, yield_pass)), "ns/switch");
}

// ---- spawn: empty tasks in batches, each of which is waited for ----

const SPAWNS: usize = 1_000_000;
pub const BATCH: usize = 1000;

pub async fn spawn_batch(n: usize) {
    let handles: Vec<_> = (0..n).map(|_| tokio::spawn(async {})).collect();
    for handle in handles {
        handle.await.expect("a task");
    }
}

async fn spawn_pass() {
    for _ in 0..SPAWNS / BATCH {
        spawn_batch(BATCH).await;
    }
}

pub fn spawn(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(SPAWNS, spawn_pass)), "ns/spawn");
}

// ---- spawnjoin: start one and wait for it ----

const JOINS: usize = 100_000;

async fn join_pass() {
    for _ in 0..JOINS {
        tokio::spawn(async {}).await.expect("a task");
    }
}

pub fn spawnjoin(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(JOINS, join_pass)), "ns");
}

// ---- skynet: 10 tasks below each, and leaves that send their numbers up to be summed ----

const BRANCHES: usize = 10;
const LEAVES: u64 = 1_000_000;

fn skynet_node(up: Sender<u64>, first: u64, leaves: u64) -> Boxed<()> {
    Box::pin(async move {
        if leaves == 1 {
            up.send(first).await.expect("a parent");
            return;
        }
        let (below, mut sums) = channel(BRANCHES);
        let part = leaves / BRANCHES as u64;
        for i in 0..BRANCHES as u64 {
            tokio::spawn(skynet_node(below.clone(), first + i * part, part));
        }
        drop(below);
        let mut sum = 0;
        while let Some(v) = sums.recv().await {
            sum += v;
        }
        up.send(sum).await.expect("a parent");
    })
}

async fn skynet_pass(leaves: u64) {
    let (top, mut result) = channel(1);
    tokio::spawn(skynet_node(top, 0, leaves));
    assert_eq!(result.recv().await, Some(leaves * (leaves - 1) / 2));
}

pub fn skynet(w: &Workload, runtime: &Runtime) {
    let begin = Instant::now();
    on_worker(runtime, skynet_pass(LEAVES));
    report(w, begin.elapsed().as_secs_f64() * 1e3, "ms");
    report_part(w, "warm", on_worker(runtime, per_op(1, || skynet_pass(LEAVES))) / 1e6, "ms");
}

/// A tree with so many leaves, rounded up to a power of ten.
pub fn scale_skynet(w: &Workload, runtime: &Runtime) {
    let leaves = (0..).map(|n| 10_u64.pow(n)).find(|n| *n >= w.size as u64).expect("a power of ten");
    report(
        w,
        on_worker(runtime, per_op_in(measure() / SCALE_PART, leaves as usize, move || skynet_pass(leaves))),
        "ns/leaf",
    );
}

// ---- fib: fork and join, a task for each call ----

const FIB_OF: u64 = 27;
const FIB_RESULT: u64 = 196_418;
const FIB_CALLS: usize = 635_621;

fn fib_call(n: u64) -> Boxed<u64> {
    Box::pin(async move {
        if n < 2 {
            return n;
        }
        let (a, b) = (tokio::spawn(fib_call(n - 1)), tokio::spawn(fib_call(n - 2)));
        a.await.expect("a call") + b.await.expect("a call")
    })
}

pub fn fib(w: &Workload, runtime: &Runtime) {
    let pass = || async { assert_eq!(fib_call(FIB_OF).await, FIB_RESULT) };
    report(w, on_worker(runtime, per_op(FIB_CALLS, pass)), "ns/goroutine");
}
