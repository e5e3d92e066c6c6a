//! Requests that are no model calls, and connections that ask for nothing.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use relive_fake_model::{FakeModel, Turn};
use relive_gateway::{Exhausted, Lease};

use crate::place::{Place, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn only_what_costs_nothing_is_passed_on_beside_model_calls() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let exhausted = Lease { tokens_left: Some(0), exhausted: Exhausted::Refuse, ..Lease::default() };
    let served = place.start_with(exhausted).await;
    for path in [
        "/v1/messages/batches",
        "/v1/complete",
        "/v1/%6dessages",
        "/v1/messages%2f",
        "/v1/embeddings",
        "/v1/completions",
        "/v1beta/models/m:batchGenerateContent",
        "/v1beta/models/m:embedContent",
    ] {
        let (status, text) = served.ask(path).await;
        assert!(status == 404 && text.contains("does not pass on POST"), "{path}: {status} {text}");
    }
    // It is counted as the model call that it is.
    assert_eq!(served.ask("/v1/responses/compact").await.0, 429);
    assert!(server.requests().is_empty(), "{:?}", server.requests());
    // The server has no such thing; what it says is passed on.
    let (status, text) = served.ask("/v1/messages/count_tokens").await;
    assert!(!text.contains("does not pass on"), "{status} {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_reaches_no_agent() {
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let elsewhere = "http://127.0.0.1:9/v1/messages?key=planted";
    for status in [301, 302, 303, 307, 308] {
        let (upstream, asked) = redirect_all(status, elsewhere);
        let place = Place::new(&server).with_upstream(upstream);
        let served = place.start().await;
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let (answered, text) = served.ask(path).await;
            assert_eq!(answered, 400, "{status} {path}: {text}");
            assert!(text.contains("redirects") && text.contains("http://127.0.0.1:9"), "{text}");
            assert!(!text.contains("planted"), "{text}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2, "{status}");
        let calls = place.calls();
        assert_eq!(
            calls.iter().map(|(call, _)| (call.status, call.tokens_in)).collect::<Vec<_>>(),
            [(Some(status), 0)]
        );
    }
}

/// Starts a server that redirects every request, and returns its address and how many there were.
fn redirect_all(status: u16, location: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            // The body is one JSON text.
            while !request.ends_with(b"}") {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(length) => request.extend_from_slice(&piece[..length]),
                }
            }
            counted.fetch_add(1, Ordering::Relaxed);
            let head = format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {location}\r\n");
            let _ = stream.write_all(format!("{head}content-length: 0\r\nconnection: close\r\n\r\n").as_bytes());
        }
    });
    (base, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_ask_for_nothing_are_few_and_do_not_last() {
    /// More than are served at a time, and fewer than fit into the queue of the socket besides.
    const MANY: usize = 240;
    let server = FakeModel::start_for_agents([Turn::text("x")]);
    let place = Place::new(&server);
    let served = place.start().await;
    let mut strangers: Vec<TcpStream> = Vec::new();
    for _ in 0..MANY {
        let mut stranger = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
        stranger.write_all(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\n").unwrap();
        strangers.push(stranger);
    }
    // Its descriptors are those of root's, or cannot be seen.
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", served.os_pid)).map_or(0, Iterator::count);
    let asked = tokio::spawn(served.asking("/v1/messages"));
    let mut most = 0;
    tokio::task::block_in_place(|| {
        let first = &mut strangers[0];
        first.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        wait_until("the first one is closed", || {
            most = most.max(descriptors());
            !matches!(first.read(&mut [0; 512]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        });
    });
    assert!(most < 190, "{most} descriptors");
    assert_eq!(asked.await.unwrap().0, 200);
}
