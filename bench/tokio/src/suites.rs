// SPDX-License-Identifier: MIT

//! Suites that others have published, as in bench/weft_suites.c.

use crate::task::yield_times;
use crate::{measure, on_worker, per_op, per_op_in, report, report_part, Workload};
use std::arch::asm;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc::{channel, Sender};
use tokio::sync::{oneshot, Notify};

// ---- chameneos: creatures meet in pairs at one place and change their colours ----

const MEETINGS: usize = 100_000;

#[derive(Clone, Copy, PartialEq)]
enum Colour {
    Blue,
    Red,
    Yellow,
}
use Colour::{Blue, Red, Yellow};

const COLOURS: [Colour; 10] = [Blue, Red, Yellow, Red, Yellow, Blue, Red, Yellow, Red, Blue];

fn after_meeting(a: Colour, b: Colour) -> Colour {
    match (a, b) {
        (a, b) if a == b => a,
        (Blue, Red) | (Red, Blue) => Yellow,
        (Blue, Yellow) | (Yellow, Blue) => Red,
        _ => Blue,
    }
}

struct Creature {
    state: Mutex<(Colour, usize)>, // and how often it has met; nobody waits for this lock
    met: Notify,                   // who came first waits for the other one
}

#[derive(Default)]
struct Place {
    left: usize, // meetings
    waiter: Option<Arc<Creature>>,
}

/// Who comes second makes the change for both.
fn meet(a: &Creature, b: &Creature) {
    let (mut a, mut other) = (a.state.lock().expect("a"), b.state.lock().expect("b"));
    a.0 = after_meeting(a.0, other.0);
    other.0 = a.0;
    a.1 += 1;
    other.1 += 1;
    drop(other);
    b.met.notify_one();
}

enum Turn {
    Over,
    First,
    Second(Arc<Creature>),
}

fn go_to_meeting(place: &Mutex<Place>, creature: &Arc<Creature>) -> Turn {
    let mut place = place.lock().expect("the place");
    if place.left == 0 {
        return Turn::Over;
    }
    match place.waiter.take() {
        None => {
            place.waiter = Some(creature.clone());
            Turn::First
        }
        Some(other) => {
            place.left -= 1;
            Turn::Second(other)
        }
    }
}

async fn live(place: Arc<Mutex<Place>>, creature: Arc<Creature>) {
    loop {
        match go_to_meeting(&place, &creature) {
            Turn::Over => return,
            Turn::First => creature.met.notified().await,
            Turn::Second(other) => meet(&creature, &other),
        }
    }
}

async fn chameneos_pass(n: usize) {
    let place = Arc::new(Mutex::new(Place { left: MEETINGS, waiter: None }));
    let new = |colour: &Colour| Arc::new(Creature { state: Mutex::new((*colour, 0)), met: Notify::new() });
    let creatures: Vec<_> = COLOURS[..n].iter().map(new).collect();
    let lives: Vec<_> = creatures.iter().map(|c| tokio::spawn(live(place.clone(), c.clone()))).collect();
    for life in lives {
        life.await.expect("a creature");
    }
    let met: usize = creatures.iter().map(|c| c.state.lock().expect("a creature").1).sum();
    assert_eq!(met, 2 * MEETINGS);
}

pub fn chameneos(w: &Workload, runtime: &Runtime) {
    for (part, n) in [("3", 3), ("10", 10)] {
        let pass = move || chameneos_pass(n);
        report_part(w, part, on_worker(runtime, per_op_in(measure() / 2, MEETINGS, pass)), "ns/meeting");
    }
}

// ---- chained_spawn: each of 1,000 tasks starts the next ----

fn chain_link(left: usize, done: Sender<()>) {
    tokio::spawn(async move {
        if left == 0 {
            done.send(()).await.expect("who waits");
        } else {
            chain_link(left - 1, done);
        }
    });
}

/// So many chains of that length at once.
async fn run_chains(chains: usize, length: usize) {
    let (done, mut ended) = channel(1);
    (0..chains).for_each(|_| chain_link(length, done.clone()));
    for _ in 0..chains {
        ended.recv().await.expect("an end");
    }
}

pub fn chained_spawn(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(1, || run_chains(1, 1000))) / 1e3, "us");
}

// ---- ping_pong: 1,000 tasks, each of which starts another one, asks it and is answered ----

const PINGS: i64 = 1000;

async fn ask_one(left: Arc<AtomicI64>, done: Sender<()>) {
    let (question, asked) = oneshot::channel();
    let (answer, answered) = oneshot::channel();
    tokio::spawn(async move {
        asked.await.expect("a question");
        answer.send(()).expect("who asked");
    });
    question.send(()).expect("who answers");
    answered.await.expect("an answer");
    if left.fetch_sub(1, SeqCst) == 1 {
        done.send(()).await.expect("who waits");
    }
}

async fn ping_pong_pass() {
    let (done, mut ended) = channel(1);
    let left = Arc::new(AtomicI64::new(PINGS));
    tokio::spawn(async move {
        for _ in 0..PINGS {
            tokio::spawn(ask_one(left.clone(), done.clone()));
        }
    });
    ended.recv().await.expect("an end");
}

pub fn ping_pong(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(1, ping_pong_pass)) / 1e3, "us");
}

// ---- spawn_many: 10,000 tasks, the last of which tells ----

const MANY: i64 = 10_000;

async fn spawn_many_pass() {
    let (done, mut ended) = channel(1);
    let left = Arc::new(AtomicI64::new(MANY));
    for _ in 0..MANY {
        let (left, done) = (left.clone(), done.clone());
        tokio::spawn(async move {
            if left.fetch_sub(1, SeqCst) == 1 {
                done.send(()).await.expect("who waits");
            }
        });
    }
    ended.recv().await.expect("an end");
}

pub fn spawn_many(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(1, spawn_many_pass)) / 1e3, "us");
}

// ---- yield_many: 200 tasks yield 1,000 times each ----

const YIELDERS: usize = 200;

async fn yield_many_pass() {
    let (done, mut ended) = channel(YIELDERS);
    for _ in 0..YIELDERS {
        let done = done.clone();
        tokio::spawn(async move {
            yield_times(1000).await;
            done.send(()).await.expect("who waits");
        });
    }
    for _ in 0..YIELDERS {
        ended.recv().await.expect("an end");
    }
}

pub fn yield_many(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(1, yield_many_pass)) / 1e3, "us");
}

// ---- create_goroutines: each task starts the next, in one chain, and in one for each worker ----

const CREATED: usize = 200_000;

pub fn create_goroutines(w: &Workload, runtime: &Runtime) {
    let workers = runtime.metrics().num_workers();
    let per_task = |chains| per_op_in(measure() / 2, CREATED, move || run_chains(chains, CREATED / chains));
    report(w, on_worker(runtime, per_task(1)), "ns");
    report_part(w, "parallel", on_worker(runtime, per_task(workers)), "ns");
}

// ---- pingpong_hog: two play ping-pong on one worker beside one who never stops looking at a channel, and yields, or else
// nobody would play ----

const HOG_ROUND_TRIPS: usize = 200_000;

async fn hog_pass() {
    let (ping, mut pinged) = channel(1);
    let (pong, mut ponged) = channel(1);
    let (stop, mut stopped) = oneshot::channel::<()>();
    let hog = tokio::spawn(async move {
        while stopped.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
    });
    let player = tokio::spawn(async move {
        while let Some(v) = pinged.recv().await {
            pong.send(v).await.expect("a partner");
        }
    });
    for i in 0..HOG_ROUND_TRIPS {
        ping.send(i).await.expect("a partner");
        assert_eq!(ponged.recv().await, Some(i));
    }
    drop(ping);
    stop.send(()).expect("the hog");
    hog.await.expect("the hog");
    player.await.expect("a player");
}

pub fn pingpong_hog(w: &Workload, runtime: &Runtime) {
    report(w, on_worker(runtime, per_op(HOG_ROUND_TRIPS, hog_pass)), "ns/round trip");
}

// ---- chan_prodcons, select_prodcons: for each worker a producer and a consumer, all on one channel ----

const PRODCONS_CALLS: usize = 200_000;
const CALLS_AT_ONCE: usize = 1000;

fn local_work(n: usize) {
    let mut x: u64 = 0;
    for _ in 0..n {
        x = x * 2 / 2;
        unsafe { asm!("/* {0} */", inout(reg) x) };
    }
}

/// One end of the channel, and how it moves an item; a 0 says that it was the last.
trait End: Clone + Send + 'static {
    fn send(&self, value: u64) -> impl Future<Output = ()> + Send;
    fn receive(&self) -> impl Future<Output = u64> + Send;
}

#[derive(Clone)]
struct Plain(async_channel::Sender<u64>, async_channel::Receiver<u64>);

impl End for Plain {
    async fn send(&self, value: u64) {
        self.0.send(value).await.expect("a consumer");
    }
    async fn receive(&self) -> u64 {
        self.1.recv().await.expect("a producer")
    }
}

/// Beside a deadline and a channel that are never ready.
#[derive(Clone)]
struct Select(Plain, Instant, async_channel::Receiver<()>);

impl End for Select {
    async fn send(&self, value: u64) {
        tokio::select! {
            _ = self.0.send(value) => (),
            _ = tokio::time::sleep_until(self.1.into()) => (),
            _ = self.2.recv() => (),
        }
    }
    async fn receive(&self) -> u64 {
        tokio::select! {
            v = self.0.receive() => v,
            _ = tokio::time::sleep_until(self.1.into()) => 0,
            _ = self.2.recv() => 0,
        }
    }
}

async fn prodcons_pass(work: usize, end: impl End) {
    let batches = Arc::new(AtomicI64::new((PRODCONS_CALLS / CALLS_AT_ONCE) as i64));
    let mut tasks = Vec::new();
    for _ in 0..Handle::current().metrics().num_workers() {
        let (producer, consumer, batches) = (end.clone(), end.clone(), batches.clone());
        tasks.push(tokio::spawn(async move {
            while batches.fetch_sub(1, SeqCst) > 0 {
                for _ in 0..CALLS_AT_ONCE {
                    local_work(work);
                    producer.send(1).await;
                }
            }
            producer.send(0).await;
        }));
        tasks.push(tokio::spawn(async move {
            while consumer.receive().await != 0 {
                local_work(work);
            }
        }));
    }
    for task in tasks {
        task.await.expect("a producer or consumer");
    }
}

fn plain(capacity: usize) -> Plain {
    let (output, input) = async_channel::bounded(capacity);
    Plain(output, input)
}

pub fn chan_prodcons(w: &Workload, runtime: &Runtime) {
    for (part, capacity, work) in [("0", 1, 0), ("10", 10, 0), ("100", 100, 0), ("work100", 100, 100)] {
        let pass = move || prodcons_pass(work, plain(capacity));
        report_part(w, part, on_worker(runtime, per_op_in(measure() / 4, PRODCONS_CALLS, pass)), "ns/item");
    }
}

pub fn select_prodcons(w: &Workload, runtime: &Runtime) {
    let (open, closed) = async_channel::bounded(1);
    let never = Instant::now() + Duration::from_secs(3600);
    let pass = move || prodcons_pass(100, Select(plain(128), never, closed.clone()));
    report(w, on_worker(runtime, per_op(PRODCONS_CALLS, pass)), "ns/item");
    drop(open);
}

// ---- wakeup_parallel: two wake each other after some work: does it go on in parallel? ----

const WAKE_UPS: usize = 1000;
const WAKE_DELAY: Duration = Duration::from_micros(5);

fn spin_for(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {}
}

async fn wakeup_pass(delay: Duration) {
    let (ping, mut pinged) = channel(1);
    let (pong, mut ponged) = channel(1);
    let second = tokio::spawn(async move {
        for _ in 0..WAKE_UPS {
            spin_for(delay);
            pinged.recv().await.expect("a wake-up");
            spin_for(delay + WAKE_DELAY);
            pong.send(()).await.expect("a partner");
        }
    });
    for _ in 0..WAKE_UPS {
        spin_for(delay + WAKE_DELAY);
        ping.send(()).await.expect("a partner");
        spin_for(delay);
        ponged.recv().await.expect("a wake-up");
    }
    second.await.expect("a partner");
}

/// Not beside a blocking call, which no task may make.
pub fn wakeup_parallel(w: &Workload, runtime: &Runtime) {
    for (part, delay) in [("spin0", 0), ("spin1", 1), ("spin10", 10), ("spin100", 100)] {
        let pass = move || wakeup_pass(Duration::from_micros(delay));
        report_part(w, part, on_worker(runtime, per_op_in(measure() / 5, WAKE_UPS, pass)) / 1e3, "us");
    }
}
