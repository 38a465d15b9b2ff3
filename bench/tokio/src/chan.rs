// SPDX-License-Identifier: MIT

//! Channels: between two tasks, between many, in select, in a ring, in a chain and in many short ones. What is unbuffered
//! elsewhere has a capacity of 1 here, the smallest that there is.

use crate::{measure, on_worker, per_op, report, Workload};
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{channel, Receiver, Sender};

// ---- pingpong: a value goes to and fro between two tasks ----

const ROUND_TRIPS: u64 = 200_000;

async fn pingpong_pass() {
    let (ping, mut pinged) = channel(1);
    let (pong, mut ponged) = channel(1);
    let player = tokio::spawn(async move {
        while let Some(v) = pinged.recv().await {
            pong.send(v).await.expect("a partner");
        }
    });
    for i in 0..ROUND_TRIPS {
        ping.send(i).await.expect("a partner");
        assert_eq!(ponged.recv().await, Some(i));
    }
    drop(ping);
    player.await.expect("a player");
}

pub fn pingpong(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(ROUND_TRIPS as usize, pingpong_pass)), "ns/round trip");
}

// ---- buffered: one producer, one consumer; mpmc: w.size of each, by a channel that tokio itself does not have ----

const STREAM_ITEMS: usize = 800_000;
pub const STREAM_CAPACITY: usize = 128;

async fn buffered_pass() {
    let (items, mut received) = channel(STREAM_CAPACITY);
    let producer = tokio::spawn(async move {
        for v in 0..STREAM_ITEMS as u64 {
            items.send(v).await.expect("a consumer");
        }
    });
    let consumer = tokio::spawn(async move { while received.recv().await.is_some() {} });
    producer.await.expect("a producer");
    consumer.await.expect("a consumer");
}

pub fn buffered(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(STREAM_ITEMS, buffered_pass)), "ns/item");
}

async fn mpmc_pass(ends: usize) {
    let (items, received) = async_channel::bounded(STREAM_CAPACITY);
    let mut tasks = Vec::new();
    for _ in 0..ends {
        let (items, received) = (items.clone(), received.clone());
        tasks.push(tokio::spawn(async move {
            for v in 0..(STREAM_ITEMS / ends) as u64 {
                items.send(v).await.expect("a consumer");
            }
        }));
        tasks.push(tokio::spawn(async move { while received.recv().await.is_ok() {} }));
    }
    drop(items);
    for task in tasks {
        task.await.expect("a producer or consumer");
    }
}

pub fn mpmc(w: &Workload, runtime: &Runtime) {
    let ends = w.size;
    report(w, on_worker(runtime, per_op(STREAM_ITEMS, move || mpmc_pass(ends))), "ns/item");
}

// ---- select4: one consumer selects over 4 channels with a producer each ----

const SELECT_EACH: u64 = 50_000;

fn select_producer() -> Receiver<u64> {
    let (output, input) = channel(1);
    tokio::spawn(async move {
        for v in 0..SELECT_EACH {
            output.send(v).await.expect("a consumer");
        }
    });
    input
}

async fn select_pass() {
    let (mut a, mut b, mut c, mut d) = (select_producer(), select_producer(), select_producer(), select_producer());
    let mut sum = 0;
    loop {
        sum += tokio::select! {
            Some(v) = a.recv() => v,
            Some(v) = b.recv() => v,
            Some(v) = c.recv() => v,
            Some(v) = d.recv() => v,
            else => break,
        };
    }
    assert_eq!(sum, 4 * SELECT_EACH * (SELECT_EACH - 1) / 2);
}

pub fn select4(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(4 * SELECT_EACH as usize, select_pass)), "ns/item");
}

// ---- ring: w.size tasks in a ring pass a token, as in the thread-ring of the Game ----

const RING_HOPS: usize = 500_000;

async fn ring_member(number: usize, mut input: Receiver<usize>, output: Sender<usize>, ended: Sender<usize>) {
    while let Some(hops) = input.recv().await {
        let (next, token) = if hops > 1 { (&output, hops - 1) } else { (&ended, number) };
        next.send(token).await.expect("a neighbour");
    }
}

async fn nanoseconds_of_ring(members: usize) -> f64 {
    let (end, mut ended) = channel(1);
    let (outputs, inputs): (Vec<_>, Vec<_>) = (0..members).map(|_| channel(1)).unzip();
    for (i, input) in inputs.into_iter().enumerate() {
        tokio::spawn(ring_member(i, input, outputs[(i + 1) % members].clone(), end.clone()));
    }
    let mut turn = async || {
        outputs[0].send(RING_HOPS).await.expect("a first member");
        assert_eq!(ended.recv().await, Some((RING_HOPS - 1) % members));
    };
    turn().await; // warm-up
    let (begin, mut turns) = (Instant::now(), 0);
    while begin.elapsed() < measure() {
        turn().await;
        turns += 1;
    }
    begin.elapsed().as_nanos() as f64 / (turns * RING_HOPS) as f64
}

pub fn ring(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, nanoseconds_of_ring(w.size)), "ns/hop");
}

// ---- sieve: the first 2,000 primes through a chain of filters, each of which takes out the multiples of one ----

const PRIMES: usize = 2000;
const LAST_PRIME: u64 = 17_389;

async fn filter(prime: u64, mut input: Receiver<u64>, output: Sender<u64>) {
    while let Some(v) = input.recv().await {
        if v % prime != 0 {
            output.send(v).await.expect("the next filter");
        }
    }
}

async fn sieve_pass() {
    let (numbers, mut input) = channel(1);
    tokio::spawn(async move {
        for v in 2..=LAST_PRIME {
            numbers.send(v).await.expect("the first filter");
        }
    });
    let mut found = 0;
    while let Some(prime) = input.recv().await {
        found += 1;
        let (output, next) = channel(1);
        tokio::spawn(filter(prime, input, output));
        input = next;
    }
    assert_eq!(found, PRIMES);
}

pub fn sieve(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(1, sieve_pass)) / 1e6, "ms");
}

// ---- pipeline: 64 chains of 4 stages, in each of which a buffer goes round; every stage reads and writes it ----

const CHAINS: usize = 64;
const STAGES: usize = 4;
const HOPS: u64 = 2000; // of each buffer in a pass
const LINES: usize = 16 * 1024 / 64;

#[repr(align(64))]
#[derive(Clone, Default)]
struct Line {
    changes: u64,
}

struct Message {
    hops: u64, // that are left, this one included
    lines: Vec<Line>,
}

async fn stage(mut input: Receiver<Message>, output: Sender<Message>, ended: Sender<Message>) {
    while let Some(mut message) = input.recv().await {
        message.lines.iter_mut().for_each(|line| line.changes += 1);
        message.hops -= 1;
        let next = if message.hops > 0 { &output } else { &ended };
        next.send(message).await.unwrap_or_else(|_| panic!("a stage is gone"));
    }
}

/// Returns where the chain takes its message.
fn start_chain(ended: &Sender<Message>) -> Sender<Message> {
    let (outputs, inputs): (Vec<_>, Vec<_>) = (0..STAGES).map(|_| channel(1)).unzip();
    for (i, input) in inputs.into_iter().enumerate() {
        tokio::spawn(stage(input, outputs[(i + 1) % STAGES].clone(), ended.clone()));
    }
    outputs[0].clone()
}

struct Chains {
    first: Vec<Sender<Message>>,
    ended: Receiver<Message>,
    messages: Vec<Message>,
}

impl Chains {
    fn new() -> Chains {
        let (end, ended) = channel(CHAINS);
        let first = (0..CHAINS).map(|_| start_chain(&end)).collect();
        let messages = (0..CHAINS).map(|_| Message { hops: 0, lines: vec![Line::default(); LINES] }).collect();
        Chains { first, ended, messages }
    }

    async fn pass(&mut self) {
        for (mut message, first) in self.messages.drain(..).zip(&self.first) {
            message.hops = HOPS;
            first.send(message).await.unwrap_or_else(|_| panic!("a chain is gone"));
        }
        while self.messages.len() < CHAINS {
            self.messages.push(self.ended.recv().await.expect("a message"));
        }
    }
}

async fn nanoseconds_a_hop() -> f64 {
    let mut chains = Chains::new();
    chains.pass().await; // warm-up
    let (begin, mut passes) = (Instant::now(), 0);
    while begin.elapsed() < measure() {
        chains.pass().await;
        passes += 1;
    }
    begin.elapsed().as_nanos() as f64 / (passes * CHAINS as u64 * HOPS) as f64
}

pub fn pipeline(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, nanoseconds_a_hop()), "ns/hop");
}
