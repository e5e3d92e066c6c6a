//! Mutated requests on a real socket, from many clients at once that send them in pieces, half or with garbage, hang up
//! or stay. `RELIVE_SEED=N` repeats the choices of a run, `RELIVE_REQUESTS=N` says how long it is.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::any_request::{Place, UUID};
use crate::dice::{Dice, fresh_seed, number};
use crate::properties::{BODIES, FITTING, PLACES, VERBS};

const CLIENTS: u64 = 16;
const REQUESTS: u64 = 3_000;
/// A client that has hung up, or been answered, is forgotten by then; a daemon that takes longer hangs.
const WITHIN: Duration = Duration::from_secs(60);
/// How much more memory the daemon may have after all requests than after the first tenth of them: what it remembers
/// of answers, and what the allocator keeps.
const GROWTH_MAX_KB: u64 = 96 << 10;
/// How much of an answer is read.
const ANSWER_MAX: usize = 1 << 20;

const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "1e999",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999",
    "ffffffffffffffff",
    "0x10",
    "9223372036854775808",
    "NaN",
];
const CHUNKS: [&str; 8] = [
    "0\r\n\r\n",
    "ffffffffffffffff\r\nx",
    "fffffffffffffffff\r\nx",
    "-1\r\n",
    "5\r\nab",
    "1;ext=\"\r\n\r\na\r\n0\r\nx: y\r\n\r\n",
    "\r\n\r\n",
    "3\r\nabcdef\r\n0\r\n\r\n",
];
const HEADERS: [&str; 12] = [
    "content-length: 18446744073709551616\r\n",
    "content-length: 8388609\r\n",
    "content-length: -1\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
    "connection: close, keep-alive, \u{0}\r\n",
    "expect: 100-continue\r\n",
    "relive-data-dir: %ff%fe\r\n",
    "relive-data-dir: /somewhere/else\r\n",
    "relive-request-id: same\r\n",
    "host:\r\n folded\r\n",
    "range: bytes=0-18446744073709551615\r\n",
];

/// A request that fits, or nearly.
fn request(dice: &mut Dice) -> Vec<u8> {
    let (method, path, mut body) = if dice.chance(50) {
        let (method, path, body) = dice.pick(&FITTING).unwrap();
        (*method, (*path).to_owned(), (*body).to_owned())
    } else {
        let id = *dice.pick(&["1", UUID, "0", "name", "%2e%2e", "4294967296"]).unwrap();
        let path = if dice.chance(70) {
            format!("/v1/processes/{id}{}", dice.pick(&VERBS).unwrap())
        } else {
            (*dice.pick(&PLACES).unwrap()).to_owned()
        };
        (*dice.pick(&["GET", "POST", "HEAD", "PATCH"]).unwrap(), path, (*dice.pick(&BODIES).unwrap()).to_owned())
    };
    if dice.chance(3) {
        body = format!("{{\"text\": \"{}\"}}", "x".repeat(dice.between(1, 1 << 20) as usize));
    }
    let path =
        if dice.chance(2) { format!("{path}?{}", "a=b&".repeat(dice.between(1, 20_000) as usize)) } else { path };
    let mut headers = "host: relive\r\n".to_owned();
    while dice.chance(20) {
        headers.push_str(dice.pick(&HEADERS).unwrap());
    }
    if dice.chance(2) {
        headers.push_str(&"x: y\r\n".repeat(dice.between(1, 400) as usize));
    }
    let (framing, body) = if dice.chance(20) {
        ("transfer-encoding: chunked\r\n".to_owned(), (*dice.pick(&CHUNKS).unwrap()).to_owned())
    } else {
        (format!("content-length: {}\r\n", body.len()), body)
    };
    format!("{method} {path} HTTP/1.1\r\n{headers}{framing}\r\n{body}").into_bytes()
}

/// Changes bytes somewhere.
fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let length = bytes.len() as u64;
    let at = dice.between(0, length.max(1)) as usize;
    let to = (at + dice.between(0, 40) as usize).min(bytes.len());
    match dice.between(0, 7) {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.between(0, 8)),
        1 => drop(bytes.drain(at..to)),
        2 => bytes.truncate(at),
        3 => {
            let again = bytes[at..to].repeat(dice.between(1, 20) as usize);
            bytes.splice(at..at, again);
        }
        4 => drop(bytes.splice(at..to, dice.pick(&NUMBERS).unwrap().bytes())),
        5 => {
            let noise: Vec<u8> = (0..dice.between(1, 30)).map(|_| dice.next() as u8).collect();
            bytes.splice(at..at, noise);
        }
        _ => bytes.extend(request(dice)),
    }
}

/// Sends bytes as some client would; the status of its first answer.
async fn send(socket: &Path, bytes: &[u8], dice: &mut Dice) -> Option<u16> {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    for piece in bytes.chunks(bytes.len().div_ceil(dice.between(1, 4) as usize).max(1)) {
        // The daemon may close it before all is written.
        if !matches!(timeout(WITHIN, stream.write_all(piece)).await.unwrap(), Ok(())) {
            break;
        }
        tokio::task::yield_now().await;
    }
    if dice.chance(20) {
        return None;
    }
    let mut answer = Vec::new();
    let (read, mut write) = stream.split();
    let mut read = read.take(ANSWER_MAX as u64);
    // Streams and waits do not end by themselves: most clients stay for a moment, and then close their side.
    let stay = Duration::from_millis(dice.between(0, 30));
    if timeout(stay, read.read_to_end(&mut answer)).await.is_err() {
        let _ = write.shutdown().await;
        assert!(timeout(WITHIN, read.read_to_end(&mut answer)).await.is_ok(), "no end of {:?}", show(bytes));
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{:?}: {answer}", show(bytes));
    assert!(!answer.starts_with("HTTP/1.1 500"), "{:?}: {answer}", show(bytes));
    answer.split(' ').nth(1)?.parse().ok()
}

fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned()
}

/// A client that sends request after request; how many were answered with a success, and with a refusal.
async fn client(socket: &Path, mut dice: Dice, requests: u64) -> (u64, u64) {
    let (mut done, mut refused) = (0, 0);
    for _ in 0..requests {
        let mut bytes = request(&mut dice);
        while dice.chance(50) {
            mutate(&mut bytes, &mut dice);
        }
        match send(socket, &bytes, &mut dice).await {
            Some(200..300) => done += 1,
            Some(400..500) => refused += 1,
            Some(_) | None => {}
        }
    }
    (done, refused)
}

fn own_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    anonymous.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn all_clients(socket: &Path, dice: &mut Dice, requests: u64) -> (u64, u64) {
    let clients = (0..CLIENTS).map(|_| {
        let (socket, dice) = (socket.to_owned(), dice.split());
        tokio::spawn(async move { client(&socket, dice, requests.div_ceil(CLIENTS)).await })
    });
    let (mut done, mut refused) = (0, 0);
    for client in clients.collect::<Vec<_>>() {
        let (more_done, more_refused) = client.await.unwrap();
        (done, refused) = (done + more_done, refused + more_refused);
    }
    (done, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutations_of_requests_make_the_daemon_neither_panic_nor_hang_nor_grow() {
    let seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
    let requests = number("RELIVE_REQUESTS").unwrap_or(REQUESTS);
    println!("RELIVE_SEED={seed} RELIVE_REQUESTS={requests}");
    let place = Place::new().await;
    let socket = place.listen().await;
    let mut dice = Dice::new(seed);
    all_clients(&socket, &mut dice, requests / 10).await;
    let before = own_memory_kb();
    // Clients that never end their request are in nobody's way.
    let mut half = Vec::new();
    for _ in 0..64 {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(b"POST /v1/processes/1/input HTTP/1.1\r\ncontent-length: 99\r\n\r\n{").await.unwrap();
        half.push(stream);
    }
    let (done, refused) = all_clients(&socket, &mut dice, requests).await;
    let after = own_memory_kb();
    println!("{done} done, {refused} refused; {before} kB before, {after} kB after");
    assert!(done > requests / 20 && refused > requests / 20, "the requests do not get far: {done}, {refused}");
    assert!(after < before + GROWTH_MAX_KB, "{before} kB before, {after} kB after");
    drop(half);
    place.check_alive().await;
    let mut normal = UnixStream::connect(&socket).await.unwrap();
    normal.write_all(b"GET /v1/daemon HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(WITHIN, normal.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert_eq!(Place::panics(), 0);
}
