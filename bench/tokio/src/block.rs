// SPDX-License-Identifier: MIT

//! What blocks in the kernel: sleeping there, and reading files. tokio has threads beside its workers for that.

use crate::{fail, quick, report, report_part, Meter, Workload};
use std::arch::asm;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::spawn_blocking;

// ---- blocking: tasks sleep in the kernel while others count ----

const BLOCKERS: usize = 64;
const COUNTERS: usize = 2;
const BLOCKS: usize = 200;
const COUNT_AT_ONCE: usize = 100_000; // some 30 us

fn threads() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).expect("Threads");
    line.trim().parse().expect("a number of threads")
}

async fn block_often(most_threads: Arc<AtomicUsize>) {
    for i in 0..BLOCKS {
        let most_threads = most_threads.clone();
        let block = move || {
            std::thread::sleep(Duration::from_millis(1));
            if i == BLOCKS / 2 {
                most_threads.fetch_max(threads(), Relaxed);
            }
        };
        spawn_blocking(block).await.expect("a sleep");
    }
}

async fn count(stop: Arc<AtomicBool>) -> u64 {
    let mut n: u64 = 0;
    while !stop.load(Relaxed) {
        for _ in 0..COUNT_AT_ONCE {
            n += 1;
            unsafe { asm!("/* {0} */", inout(reg) n) };
        }
        tokio::task::yield_now().await;
    }
    n
}

pub fn blocking(w: &Workload, runtime: &Runtime) {
    let most_threads = Arc::new(AtomicUsize::new(0));
    let (elapsed, counted) = runtime.block_on(async {
        let stop = Arc::new(AtomicBool::new(false));
        let counters: Vec<_> = (0..COUNTERS).map(|_| tokio::spawn(count(stop.clone()))).collect();
        let begin = Instant::now();
        let blockers: Vec<_> = (0..BLOCKERS).map(|_| tokio::spawn(block_often(most_threads.clone()))).collect();
        for blocker in blockers {
            blocker.await.expect("a blocker");
        }
        let elapsed = begin.elapsed();
        stop.store(true, Relaxed);
        let mut counted = 0;
        for counter in counters {
            counted += counter.await.expect("a counter");
        }
        (elapsed, counted)
    });
    report_part(w, "total", elapsed.as_secs_f64() * 1e3, "ms");
    report_part(w, "counted", counted as f64 / 1e6 / elapsed.as_secs_f64(), "M/s");
    report_part(w, "threads", most_threads.load(Relaxed) as f64, "threads");
}

// ---- files: 32 tasks read pages at random, from the page cache or (w.size == DIRECT) from the device ----

pub const DIRECT: usize = 1;
const READERS: usize = 32;
const PAGE_SIZE: usize = 4096;
const CHUNK: usize = 256; // pages

#[repr(align(4096))]
struct Pages<const N: usize>([[u8; PAGE_SIZE]; N]);

impl<const N: usize> Pages<N> {
    fn new() -> Box<Pages<N>> {
        Box::new(Pages([[0; PAGE_SIZE]; N]))
    }
}

fn file_pages() -> u64 {
    (if quick() { 32 << 20 } else { 256 << 20 }) / PAGE_SIZE as u64
}

/// Makes the file, which has no name any more, with the page's number at the start of each page.
fn create_in(folder: &str, flags: i32) -> io::Result<File> {
    let path = format!("{folder}/weft_bench.{}", std::process::id());
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).open(&path)?;
    std::fs::remove_file(&path)?;
    let mut chunk = Pages::<CHUNK>::new();
    for first in (0..file_pages()).step_by(CHUNK) {
        for (page, bytes) in (first..).zip(chunk.0.iter_mut()) {
            bytes[..8].copy_from_slice(&page.to_le_bytes());
        }
        file.write_all(chunk.0.as_flattened())?;
    }
    file.sync_all()?;
    Ok(file)
}

async fn read_pages(file: Arc<File>, pages: u64, meter: Arc<Meter>, task: usize) {
    let mut buffer = Pages::<1>::new();
    let mut x = task as u64 + 1;
    while meter.goes_on() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let (page, file) = (x % pages, file.clone());
        let read = move || {
            file.read_exact_at(&mut buffer.0[0], page * PAGE_SIZE as u64).expect("a whole page");
            buffer
        };
        buffer = spawn_blocking(read).await.expect("a read");
        assert_eq!(buffer.0[0][..8], page.to_le_bytes());
        meter.count(task);
    }
}

pub fn files(w: &Workload, runtime: &Runtime) {
    let flags = if w.size == DIRECT { libc::O_DIRECT } else { 0 };
    let file = match create_in("/var/tmp", flags).or_else(|_| create_in(".", flags)) {
        Ok(file) => Arc::new(file),
        Err(e) => {
            eprintln!("bench: {}: no file for it in /var/tmp nor here: {e}", w.name);
            return;
        }
    };
    let rates = runtime.block_on(async {
        let (pages, meter) = (file_pages(), Meter::new(READERS));
        let readers: Vec<_> =
            (0..READERS).map(|i| tokio::spawn(read_pages(file.clone(), pages, meter.clone(), i))).collect();
        let rates = meter.measure().await;
        for reader in readers {
            reader.await.unwrap_or_else(|e| fail(&format!("a reader: {e}")));
        }
        rates
    });
    report(w, rates.elapsed.as_nanos() as f64 / rates.done, "ns");
    report_part(w, "cpu", rates.cpu.as_nanos() as f64 / rates.done, "ns");
}
