//! A model's answer through the gateway, beside the same answer without it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Instant;

use relive_gateway::{Auth, Entry, Gateway, Lease, Link};

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, median};
use crate::table::{Mark, Row, kilobytes, milliseconds};

const TOKEN: &str = "bench";
/// How many short answers a round has.
const ANSWERS: usize = 50;
/// The pieces of a long answer, and the text of each.
const PIECES: usize = 20_000;
const PIECE_BYTES: usize = 1_000;
/// How many streams are open at once.
const STREAMS: usize = 100;

const BEGIN: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\
    \"output_tokens\":1}}}\n\n";
const END: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

/// How an answer continues after its first piece, by the path of the request.
const SHORT: &str = "/short/messages";
const LONG: &str = "/long/messages";
const OPEN: &str = "/open/messages";

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let provider = provider()?;
    let root = place.directory("gateway")?;
    let lock = File::create_new(root.join("lock"))?;
    lock.lock()?;
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let gateway = Gateway::start(&crate::daemon::program()?, &root, lock.as_fd())?;
    let os_pid = gateway.os_pid().ok_or("the gateway has no pid")?;
    let link = executor.block_on(async { gateway.talk(|_, _| {}) })?;
    let through = serve(&executor, &link, provider, &root)?;
    let (mut first, mut long) = (Rounds::default(), Rounds::default());
    // The first round warms up.
    for round in 0..=options.rounds {
        let (ours, direct) = (first_byte(through)?, first_byte(provider)?);
        let (ours_long, direct_long) = (stream(through)?, stream(provider)?);
        if round > 0 {
            first.add(ours, direct);
            long.add(ours_long, direct_long);
        }
    }
    let memory = memory(through, os_pid)?;
    executor.block_on(link.forget(relive_core::Uuid::nil()))?;
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let per_second = |seconds: f64| format!("{:.0} MB/s", (PIECES * PIECE_BYTES) as f64 / seconds / 1e6);
    Ok(vec![
        Row {
            name: "gateway: time to first byte".to_owned(),
            ours: milliseconds(first.ours()),
            peer: format!("{}  direct", milliseconds(first.peer())),
            ratio: first.ratio(),
            mark: Mark::None,
        },
        Row {
            name: "gateway: throughput of a stream".to_owned(),
            ours: per_second(long.ours()),
            peer: format!("{}  direct", per_second(long.peer())),
            ratio: long.ratio().inverse(),
            mark: Mark::None,
        },
        Row {
            name: format!("gateway: memory of {STREAMS} streams"),
            ours: kilobytes(memory),
            peer: "-".to_owned(),
            ratio: f64::NAN.into(),
            mark: Mark::None,
        },
    ])
}

fn serve(
    executor: &tokio::runtime::Runtime,
    link: &Link,
    provider: SocketAddr,
    root: &std::path::Path,
) -> Result<SocketAddr> {
    let entry = Entry {
        uuid: relive_core::Uuid::nil(),
        port: None,
        token: relive_gateway::token_hash(TOKEN),
        upstream: format!("http://{provider}"),
        auth: Auth { header: "x-api-key".to_owned(), value: "real".to_owned() },
        directory: root.to_owned(),
        lease: Lease::default(),
    };
    let port = executor.block_on(link.serve(entry, None))?;
    Ok(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Starts a server that answers in pieces, with a thread for each connection, until this program ends.
fn provider() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // A connection that breaks is the other side's.
            std::thread::spawn(move || drop(answer_all(stream)));
        }
    });
    Ok(address)
}

fn answer_all(stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut from = BufReader::new(stream.try_clone()?);
    let mut to = stream;
    let delta = format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"delta\":{{\"text\":\"{}\"}}}}\n\n",
        "x".repeat(PIECE_BYTES)
    );
    loop {
        let (first, length) = read_head(&mut from)?;
        std::io::copy(&mut (&mut from).take(length), &mut std::io::sink())?;
        to.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        write_chunk(&mut to, BEGIN)?;
        if first.contains(OPEN) {
            // Until the other side hangs up.
            std::io::copy(&mut from, &mut std::io::sink())?;
            return Ok(());
        }
        for _ in 0..if first.contains(LONG) { PIECES } else { 1 } {
            write_chunk(&mut to, &delta)?;
        }
        write_chunk(&mut to, END)?;
        to.write_all(b"0\r\n\r\n")?;
    }
}

fn write_chunk(to: &mut TcpStream, text: &str) -> Result<()> {
    Ok(to.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?)
}

/// Reads a head, and returns its first line and the length of the body.
fn read_head(from: &mut impl std::io::BufRead) -> Result<(String, u64)> {
    let (mut first, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err("the connection has ended".into());
        }
        if line == "\r\n" {
            return Ok((first, length));
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        if first.is_empty() {
            first = line;
        }
    }
}

/// Sends a question, and returns where its answer comes from, after its head and its first line.
fn ask(at: &TcpStream, path: &str) -> Result<BufReader<TcpStream>> {
    let body = "{\"model\":\"m\",\"stream\":true}";
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: bench\r\nx-api-key: {TOKEN}\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut to = at.try_clone()?;
    to.write_all(format!("{head}{body}").as_bytes())?;
    let mut from = BufReader::with_capacity(64 << 10, at.try_clone()?);
    let (first, _) = read_head(&mut from)?;
    if !first.contains("200") {
        return Err(format!("the answer is {first}").into());
    }
    from.read_line(&mut String::new())?;
    Ok(from)
}

/// Reads the pieces of an answer to their end.
fn finish(mut from: BufReader<TcpStream>) -> Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Err("the answer was cut".into());
        }
        if line == b"0\r\n" {
            from.read_until(b'\n', &mut line)?;
            return Ok(());
        }
    }
}

fn connect(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn first_byte(at: SocketAddr) -> Result<f64> {
    let stream = connect(at)?;
    let mut times = Vec::new();
    for _ in 0..ANSWERS {
        let begun = Instant::now();
        let from = ask(&stream, SHORT)?;
        times.push(begun.elapsed().as_secs_f64());
        finish(from)?;
    }
    Ok(median(times))
}

fn stream(at: SocketAddr) -> Result<f64> {
    let stream = connect(at)?;
    let begun = Instant::now();
    finish(ask(&stream, LONG)?)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Returns what the memory of the gateway grows by.
fn memory(at: SocketAddr, os_pid: u32) -> Result<u64> {
    let before = resident(os_pid)?;
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        let stream = connect(at)?;
        open.push(ask(&stream, OPEN)?);
    }
    Ok(resident(os_pid)?.saturating_sub(before))
}

fn resident(os_pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{os_pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? * 1024)
}
