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

/// Answers a request with "not done yet" and its repeat with `done`, and checks that both have the same id.
fn check_repeated<T: std::fmt::Debug>(
    done: &'static str,
    ask: impl AsyncFnOnce(&Client) -> Result<T, relive_client::Error>,
) {
    let root = tempfile::tempdir().unwrap();
    let (socket, listener) = listen(&root);
    let server = std::thread::spawn(move || {
        let not_done = r#"{"error":{"code":"TIMEOUT","message":"not done after 30 s; it continues"}}"#;
        let first = answer_one(&listener, "408 Request Timeout", not_done);
        let second = answer_one(&listener, "200 OK", done);
        let id = |head: &str| head.lines().find(|line| line.contains("request-id")).map(str::to_owned);
        assert!(id(&first).is_some());
        assert_eq!(id(&first), id(&second));
    });
    let client = BlockingClient::new(Client::new(&socket).with_retry(Retry::NEVER)).unwrap();
    client.call(|client| ask(client)).unwrap();
    server.join().unwrap();
}

const CHANGED: &str = r#"{"written":0,"conflicts":[],"verified":true,"path":"/","files":[],"dry_run":false}"#;

#[test]
fn a_collection_that_is_not_done_yet_is_asked_for_again_with_its_id() {
    let done = r#"{"collected":true,"candidates":[],"removed":[],"freed_bytes":0,"warnings":[]}"#;
    check_repeated(done, async |client| client.gc(&relive_api::GcRequest::default()).await);
}

#[test]
fn a_rewind_that_is_not_done_yet_is_asked_for_again_with_its_id() {
    let done = r#"{"uuid":"018f0000-0000-7000-8000-000000000000","to_step":1,"restored":0,"verified":true,"files":[],
        "dry_run":false,"paused":false}"#;
    let request =
        relive_api::RewindRequest { to_step: 1, undo: false, files_only: false, force: false, dry_run: false };
    check_repeated(done, async |client| client.rewind("7", &request).await);
}

#[test]
fn a_restore_that_is_not_done_yet_is_asked_for_again_with_its_id() {
    let (paths, cwd) = (vec!["a".to_owned()], "/".to_owned());
    let request = relive_api::RestoreRequest { step: 1, paths, cwd, force: false, dry_run: false };
    check_repeated(CHANGED, async |client| client.restore("7", &request).await);
}

#[test]
fn a_removal_of_a_workspace_that_is_not_done_yet_is_asked_for_again_with_its_id() {
    let done = r#"{"uuid":"018f0000-0000-7000-8000-000000000000","path":"/","kind":"own","bytes":0,"known":true}"#;
    let request = relive_api::RemoveWorkspaceRequest { id: "7".to_owned(), force: false, dry_run: false };
    check_repeated(done, async |client| client.remove_workspace(&request).await);
}
