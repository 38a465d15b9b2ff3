// SPDX-License-Identifier: MIT

//! Sockets: an echo with both ends in this process, and an HTTP server for wrk and mixed_client.

use crate::fair::{burn, burns_in};
use crate::{cpu_time, fail, quick, report, report_part, Meter, Workload};
use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

// ---- echo: 64 connections, each with a client and a server in this process ----

const CONNECTIONS: usize = 64;
const MESSAGE_SIZE: usize = 64;
const BUFFER_SIZE: usize = 4096; // of a server, which does not know how long a message is

async fn echo_server(mut stream: TcpStream) {
    let mut buffer = [0; BUFFER_SIZE];
    loop {
        let n = stream.read(&mut buffer).await.expect("read");
        if n == 0 {
            return;
        }
        stream.write_all(&buffer[..n]).await.expect("write");
    }
}

async fn echo_client(mut stream: TcpStream, meter: std::sync::Arc<Meter>, task: usize) {
    let (message, mut answer) = ([b'm'; MESSAGE_SIZE], [0; MESSAGE_SIZE]);
    while meter.goes_on() {
        stream.write_all(&message).await.expect("write");
        stream.read_exact(&mut answer).await.expect("read");
        meter.count(task);
    }
    assert_eq!(answer, message);
}

pub fn echo(w: &Workload, runtime: &Runtime) {
    let rates = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address");
        let meter = Meter::new(CONNECTIONS);
        let mut tasks = Vec::new();
        for i in 0..CONNECTIONS {
            let client = TcpStream::connect(address).await.expect("connect");
            let (server, _) = listener.accept().await.expect("accept");
            client.set_nodelay(true).expect("TCP_NODELAY");
            server.set_nodelay(true).expect("TCP_NODELAY");
            tasks.push(tokio::spawn(echo_server(server)));
            tasks.push(tokio::spawn(echo_client(client, meter.clone(), i)));
        }
        let rates = meter.measure().await;
        for task in tasks {
            task.await.expect("an end of a connection");
        }
        rates
    });
    report(w, rates.done / rates.elapsed.as_secs_f64(), "rt/s");
    report_part(w, "cpu_per_rt", rates.cpu.as_micros() as f64 / rates.done, "us");
}

// ---- http, mixed: another process asks, a hand-written loop answers ----

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
const HEAVY: &[u8] = b"GET /heavy ";
const HEAVY_TIME: Duration = Duration::from_millis(30);

static HEAVY_STEPS: AtomicU64 = AtomicU64::new(0);

fn find_end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Answers one request after the other; those that came together are answered together.
async fn serve_http(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut buffer, mut have) = ([0; BUFFER_SIZE], 0);
    let mut answers = Vec::new();
    loop {
        let n = stream.read(&mut buffer[have..]).await?;
        if n == 0 {
            return Ok(());
        }
        have += n;
        let mut used = 0;
        answers.clear();
        while let Some(end) = find_end_of_head(&buffer[used..have]) {
            if buffer[used..].starts_with(HEAVY) {
                burn(HEAVY_STEPS.load(Relaxed));
            }
            answers.extend_from_slice(ANSWER);
            used += end;
        }
        buffer.copy_within(used..have, 0);
        have -= used;
        stream.write_all(&answers).await?;
    }
}

async fn serve_all(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.expect("accept");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        tokio::spawn(async {
            match serve_http(stream).await {
                Err(e) if e.kind() != ConnectionReset && e.kind() != BrokenPipe => fail(&format!("http: {e}")),
                _ => (),
            }
        });
    }
}

fn serve(runtime: &Runtime) -> SocketAddr {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("listen");
    let address = listener.local_addr().expect("address");
    runtime.spawn(serve_all(listener));
    address
}

fn run_wrk(url: &str, duration: &str) -> String {
    let result = Command::new("wrk").args(["-t1", "-c64", duration, "--latency", url]).output();
    let result = result.unwrap_or_else(|e| fail(&format!("wrk: {e}")));
    let output = String::from_utf8_lossy(&result.stdout).into_owned();
    if !result.status.success() || output.contains("Socket errors") || output.contains("Non-2xx") {
        fail(&format!("wrk met errors\n{output}{}", String::from_utf8_lossy(&result.stderr)));
    }
    output
}

/// The n-th word of the first line that is so.
fn word(output: &str, n: usize, line: impl Fn(&str) -> bool) -> &str {
    let found = output.lines().find(|l| line(l)).and_then(|l| l.split_whitespace().nth(n));
    found.unwrap_or_else(|| fail(&format!("what wrk printed is new\n{output}")))
}

/// What comes after a label at the start of a line, such as `Requests/sec:`.
fn labelled<'a>(output: &'a str, label: &str) -> &'a str {
    word(output, 1, |line| line.trim_start().starts_with(label))
}

/// A time such as `1.90ms`.
fn microseconds(time: &str) -> f64 {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let parse = |(unit, factor)| Some(time.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    units.into_iter().find_map(parse).expect("a time")
}

pub fn http_raw(w: &Workload, runtime: &Runtime) {
    let url = format!("http://{}/", serve(runtime));
    run_wrk(&url, "-d1s"); // on this thread, which is none of the workers
    let cpu = cpu_time();
    let output = run_wrk(&url, if quick() { "-d1s" } else { "-d5s" });
    let cpu = cpu_time() - cpu;

    report(w, labelled(&output, "Requests/sec:").parse().expect("a rate"), "req/s");
    report_part(w, "p50", microseconds(labelled(&output, "50%")), "us");
    report_part(w, "p99", microseconds(labelled(&output, "99%")), "us");
    let requests: f64 = word(&output, 0, |line| line.contains(" requests in ")).parse().expect("requests");
    report_part(w, "cpu_per_req", cpu.as_micros() as f64 / requests, "us");
}

pub fn mixed(w: &Workload, runtime: &Runtime) {
    HEAVY_STEPS.store(burns_in(HEAVY_TIME), Relaxed);
    let port = serve(runtime).port().to_string();
    let client = std::env::current_exe().expect("this program").with_file_name("mixed_client");
    match Command::new(client).args([w.name, &port]).status() {
        Ok(status) if status.success() => (),
        other => fail(&format!("mixed_client: {other:?}")),
    }
}
