//! A stand-in for the daemon: HTTP on a unix socket, one request a connection, answered by the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than anything takes, so that a test that hangs fails instead.
const AT_MOST: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub method: String,
    /// With its query.
    pub path: String,
    pub request_id: Option<String>,
    pub body: Value,
}

/// The other end of one connection.
pub(crate) struct Reply {
    stream: UnixStream,
    version: &'static str,
    api: u32,
}

impl Reply {
    /// Answers as another version would.
    pub(crate) fn version(mut self, version: &'static str, api: u32) -> Self {
        (self.version, self.api) = (version, api);
        self
    }

    pub(crate) fn raw(mut self, bytes: &str) {
        let _ = self.stream.write_all(bytes.as_bytes());
    }

    pub(crate) fn json(self, body: &Value) {
        self.status(200, body);
    }

    pub(crate) fn error(self, status: u16, code: &str, message: &str) {
        self.status(status, &json!({ "error": { "code": code, "message": message } }));
    }

    fn status(mut self, status: u16, body: &Value) {
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\nrelive-version: {}\r\nrelive-api: {}\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n",
            self.version,
            self.api,
            body.len()
        );
        let _ = self.stream.write_all((head + &body).as_bytes());
    }

    /// Begins a stream; dropping it before [`Events::end`] breaks it off.
    pub(crate) fn events(mut self) -> Events {
        let version = self.version;
        let head = format!("HTTP/1.1 200 OK\r\nrelive-version: {version}\r\ntransfer-encoding: chunked\r\n\r\n");
        let _ = self.stream.write_all(head.as_bytes());
        Events { stream: self.stream }
    }

    /// Keeps the connection open until the other end is gone.
    pub(crate) fn never(mut self) {
        let _ = self.stream.read(&mut [0; 1]);
    }
}

pub(crate) struct Events {
    stream: UnixStream,
}

impl Events {
    pub(crate) fn send(mut self, id: &str, kind: &str, fields: &Value) -> Self {
        let (epoch, seq) = id.split_once('.').unwrap();
        let mut line = json!({ "v": 1, "seq": seq.parse::<u64>().unwrap(), "epoch": epoch.parse::<u32>().unwrap(),
            "at": "2026-11-15T12:00:00Z", "kind": kind, "step": 1, "crc": "00000000" });
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let event = format!("id: {id}\ndata: {line}\n\n");
        let _ = write!(self.stream, "{:x}\r\n{event}\r\n", event.len());
        self
    }

    pub(crate) fn end(mut self) {
        let _ = self.stream.write_all(b"0\r\n\r\n");
    }

    /// Keeps the stream open until the other end is gone.
    pub(crate) fn stay(mut self) {
        let _ = self.stream.read(&mut [0; 1]);
    }
}

type Handler = dyn Fn(&Request, Reply) + Send + Sync;

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    arrived: Condvar,
}

#[must_use = "it is gone when it is dropped"]
pub(crate) struct Fake {
    socket: PathBuf,
    shared: Arc<Shared>,
}

impl Fake {
    /// Answers, each connection on a thread of its own.
    pub(crate) fn listen(socket: &Path, handler: impl Fn(&Request, Reply) + Send + Sync + 'static) -> Self {
        Self::on(UnixListener::bind(socket).unwrap(), handler)
    }

    /// On a socket at which callers may be waiting already.
    pub(crate) fn on(listener: UnixListener, handler: impl Fn(&Request, Reply) + Send + Sync + 'static) -> Self {
        let socket = listener.local_addr().unwrap().as_pathname().unwrap().to_owned();
        let shared: Arc<Shared> = Arc::default();
        let fake = Self { socket, shared: Arc::clone(&shared) };
        let handler: Arc<Handler> = Arc::new(handler);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, handler) = (Arc::clone(&shared), Arc::clone(&handler));
                let stream = stream.unwrap();
                thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    shared.requests.lock().unwrap().push(request.clone());
                    shared.arrived.notify_all();
                    handler(
                        &request,
                        Reply { stream, version: env!("CARGO_PKG_VERSION"), api: relive_api::API_VERSION },
                    );
                });
            }
        });
        fake
    }

    /// The requests that have this in their method and path.
    pub(crate) fn asked(&self, what: &str) -> Vec<Request> {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().filter(|request| request.names(what)).cloned().collect()
    }

    /// Returns when so many such requests have come.
    pub(crate) fn wait_for(&self, what: &str, count: usize) {
        let requests = self.shared.requests.lock().unwrap();
        let missing =
            |requests: &mut Vec<Request>| requests.iter().filter(|request| request.names(what)).count() < count;
        let (requests, timeout) = self.shared.arrived.wait_timeout_while(requests, AT_MOST, missing).unwrap();
        assert!(!timeout.timed_out(), "`{what}` was not asked {count} times: {requests:#?}");
    }
}

impl Drop for Fake {
    #[expect(clippy::disallowed_methods, reason = "a test's own file")]
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Request {
    pub(crate) fn names(&self, what: &str) -> bool {
        format!("{} {}", self.method, self.path).contains(what)
    }
}

fn read(stream: &UnixStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut request_id) = (String::new(), 0, None);
    reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "relive-request-id" => request_id = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    Some(Request { method, path, request_id, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}
