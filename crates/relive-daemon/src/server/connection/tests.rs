//! The deadlines of a connection, on a clock that is stopped between events.

use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

use super::*;

const QUICK: &[u8] = b"GET /quick HTTP/1.1\r\nhost: x\r\n\r\n";
/// More than the pipe and hyper's buffer hold.
const LARGE: usize = 1 << 20;

struct Client {
    stream: DuplexStream,
    connection: Arc<Connection>,
    served: JoinHandle<()>,
    stop: watch::Sender<bool>,
    connected: Instant,
}

fn connect() -> Client {
    let router = Router::new()
        .route("/quick", get(async || "quick"))
        .route("/slow", get(async || tokio::time::sleep(Duration::from_secs(20)).await))
        .route("/echo", axum::routing::post(async |body: Bytes| body))
        .route("/never", get(never))
        .route("/large", get(async || vec![b'x'; LARGE]))
        .route("/stream", get(endless));
    let (stream, server) = tokio::io::duplex(16 << 10);
    let (stop, stopping) = watch::channel(false);
    let connection = Connection::new();
    let served = tokio::spawn(serve(server, Caller::Person, Arc::clone(&connection), router, stopping));
    Client { stream, connection, served, stop, connected: Instant::now() }
}

async fn never(request: axum::extract::Request) {
    let connection = request.extensions().get::<Arc<Connection>>().unwrap();
    connection.has_request();
    connection.is_stream();
    std::future::pending().await
}

async fn endless(request: axum::extract::Request) -> Body {
    let connection = request.extensions().get::<Arc<Connection>>().unwrap();
    connection.has_request();
    connection.is_stream();
    Body::from_stream(futures_util::stream::repeat_with(|| Ok::<_, io::Error>(vec![b'x'; 4096])))
}

impl Client {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn answer(&mut self) -> String {
        let mut bytes = vec![0; 4096];
        let count = self.stream.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    /// Waits until the daemon has closed the connection; returns how long after it was opened.
    async fn closed_after(self) -> u64 {
        let Self { stream, served, stop, connected, .. } = self;
        served.await.unwrap();
        drop((stream, stop));
        connected.elapsed().as_secs()
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_sends_nothing_or_half_a_head_is_closed_after_5_seconds() {
    assert_eq!(connect().closed_after().await, 5);
    let mut client = connect();
    client.send(b"GET /quick HTT").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    client.send(b"P/1.1\r\nhost: ").await;
    assert_eq!(client.closed_after().await, 5, "a byte now and then does not extend it");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_for_30_seconds_between_requests() {
    let mut client = connect();
    for _ in 0..3 {
        client.send(QUICK).await;
        assert!(client.answer().await.ends_with("quick"));
        tokio::time::sleep(Duration::from_secs(29)).await;
    }
    assert_eq!(client.closed_after().await, 2 * 29 + 30);
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_later_request_has_5_seconds_as_well() {
    let mut client = connect();
    client.send(QUICK).await;
    client.answer().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    client.send(b"GET").await;
    assert_eq!(client.closed_after().await, 15);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_being_served_has_no_deadline_here() {
    let mut client = connect();
    client.send(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(client.answer().await.starts_with("HTTP/1.1 200"));
    assert_eq!(client.connected.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_closed_after_60_seconds() {
    for path in ["/large", "/stream"] {
        let mut client = connect();
        client.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await;
        tokio::time::sleep(Duration::from_secs(50)).await;
        // A client that reads, even slowly, is not closed.
        client.stream.read_exact(&mut vec![0; 32 << 10]).await.unwrap();
        let closed = client.closed_after().await;
        assert_eq!(closed, 50 + 60, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_its_answers_cannot_ask_without_end() {
    let mut client = connect();
    let asking = async { while client.stream.write_all(QUICK).await.is_ok() {} };
    asking.await;
    assert_eq!(client.closed_after().await, 60);
}

#[tokio::test(start_paused = true)]
async fn a_stop_closes_what_is_owed_nothing_at_once() {
    let requests: [&[u8]; 4] =
        [b"", b"GET /qu", b"POST /quick HTTP/1.1\r\ncontent-length: 5\r\n\r\nab", b"GET /stream HTTP/1.1\r\n\r\n"];
    for request in requests {
        let mut client = connect();
        client.send(request).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.stop.send_replace(true);
        let text = String::from_utf8_lossy(request);
        assert_eq!(client.closed_after().await, 1, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_an_answer_its_time_and_closes_the_connection_then() {
    let mut client = connect();
    client.connection.has_request();
    client.send(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The routes of these tests do not read bodies, which the daemon would report.
    client.connection.has_request();
    client.stop.send_replace(true);
    assert!(client.answer().await.starts_with("HTTP/1.1 200"));
    assert_eq!(client.closed_after().await, 20);
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_are_answered_with_400_or_closed() {
    let huge = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(BUFFER_MAX));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(HEADERS_MAX + 1));
    let inputs: [&[u8]; 5] = [
        b"\0\xff\x01garbage\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        huge.as_bytes(),
        many.as_bytes(),
        b"\r\n\r\n",
    ];
    for input in inputs {
        let mut client = connect();
        // It may be closed before all of it is written.
        let _ = client.stream.write_all(input).await;
        let mut answer = Vec::new();
        let _ = client.stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert!(client.closed_after().await <= 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_is_noticed_whatever_it_sent_before() {
    let request = b"GET /never HTTP/1.1\r\nhost: x\r\n\r\n";
    for more in [0, 1, 100, 30_000] {
        let mut client = connect();
        client.send(request).await;
        client.send(&vec![b'x'; more]).await;
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert!(!client.served.is_finished(), "{more}");
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.closed_after().await, 7, "{more}");
    }
    let mut client = connect();
    client.send(request).await;
    let sending = async { while client.stream.write_all(&[b'x'; 4096]).await.is_ok() {} };
    sending.await;
    assert_eq!(client.closed_after().await, 0, "more than is kept of later requests");
}

#[tokio::test(start_paused = true)]
async fn a_long_request_behind_one_that_is_served_waits() {
    let mut client = connect();
    client.send(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.connection.has_request();
    let (mut read, mut write) = tokio::io::split(client.stream);
    let length = 4 * BUFFER_MAX;
    let head = format!("POST /echo HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    let sending = async {
        write.write_all(head.as_bytes()).await.unwrap();
        write.write_all(&vec![b'x'; length]).await.unwrap();
    };
    let mut answer = Vec::new();
    let (read, ()) = tokio::join!(read.read_to_end(&mut answer), sending);
    read.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer).matches("HTTP/1.1 200").count(), 2);
    assert!(answer.len() > length);
}

#[tokio::test(start_paused = true)]
async fn requests_in_a_row_are_answered_in_a_row() {
    let mut client = connect();
    let slow = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n";
    client.send(&[&slow[..], QUICK, &slow[..], QUICK].concat()).await;
    client.connection.has_request();
    client.send(b"GET /quick HTTP/1.1\r\nconnection: close\r\n\r\n").await;
    let mut answer = String::new();
    client.stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 5, "{answer}");
    assert_eq!(answer.matches("quick").count(), 3, "{answer}");
}
