//! Kept connections.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::sync::mpsc;

use relive_client::{BlockingClient, Client, Retry};

/// Answers one request on the next connection, and hangs up. Returns the head of the request.
fn answer_one(listener: &UnixListener, status: &str, body: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0);
    }
    write!(
        stream,
        "HTTP/1.1 {status}\r\nrelive-version: 0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    head
}

/// Listens on a socket below `root`.
fn listen(root: &tempfile::TempDir) -> (std::path::PathBuf, UnixListener) {
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let socket = root.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    (socket, listener)
}

#[test]
fn a_kept_connection_to_a_daemon_that_was_killed_is_not_used() {
    let root = tempfile::tempdir().unwrap();
    let (socket, listener) = listen(&root);
    let (hung_up, has_hung_up) = mpsc::channel();
    let server = std::thread::spawn(move || {
        for _ in 0..3 {
            answer_one(&listener, "200 OK", r#"{"processes":[]}"#);
            hung_up.send(()).unwrap();
        }
    });
    let client = BlockingClient::new(Client::new(&socket).with_retry(Retry::NEVER)).unwrap();
    let all = relive_api::ListQuery::default();
    for _ in 0..3 {
        client.call(|client| client.list(&all)).unwrap();
        has_hung_up.recv().unwrap();
    }
    server.join().unwrap();
}

#[test]
fn a_request_that_is_not_done_yet_is_repeated_with_its_id() {
    let root = tempfile::tempdir().unwrap();
    let (socket, listener) = listen(&root);
    let server = std::thread::spawn(move || {
        let not_done = r#"{"error":{"code":"TIMEOUT","message":"not done after 30 s; it continues"}}"#;
        let first = answer_one(&listener, "408 Request Timeout", not_done);
        let second = answer_one(
            &listener,
            "200 OK",
            r#"{"collected":true,"candidates":[],"removed":[],"freed_bytes":0,"warnings":[]}"#,
        );
        let id = |head: &str| head.lines().find(|line| line.contains("request-id")).map(str::to_owned);
        assert!(id(&first).is_some());
        assert_eq!(id(&first), id(&second));
    });
    let client = BlockingClient::new(Client::new(&socket).with_retry(Retry::NEVER)).unwrap();
    let all = relive_api::GcRequest::default();
    client.call(|client| client.gc(&all)).unwrap();
    server.join().unwrap();
}
