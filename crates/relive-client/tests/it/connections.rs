//! Kept connections.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::sync::mpsc;

use relive_client::{BlockingClient, Client, Retry};

/// Answers one request on the next connection, and hangs up.
fn answer_one(listener: &UnixListener) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
    }
    let body = r#"{"processes":[]}"#;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nrelive-version: 0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
}

#[test]
fn a_kept_connection_to_a_daemon_that_was_killed_is_not_used() {
    let root = tempfile::tempdir().unwrap();
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let socket = root.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let (hung_up, has_hung_up) = mpsc::channel();
    let server = std::thread::spawn(move || {
        for _ in 0..3 {
            answer_one(&listener);
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
