//! A data directory with a gateway.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use relive_fake_model::FakeModel;
use relive_gateway::{Auth, Ended, Entry, Facts, Gateway, Lease, Link};
use tempfile::TempDir;
use tokio::sync::watch;
use uuid::Uuid;

pub(crate) const TOKEN: &str = "relive-token";
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "waited for {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A question that the server takes from an agent, in any of the wire formats.
pub(crate) fn body() -> String {
    body_with(serde_json::json!([{"role": "user", "content": "hello"}]))
}

/// The question after the first answer.
pub(crate) fn second_body() -> String {
    body_with(serde_json::json!([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "x"},
        {"role": "user", "content": "and"}]))
}

fn body_with(messages: serde_json::Value) -> String {
    let question = serde_json::json!({"model": "m", "stream": true, "max_tokens": 10, "tools": [{"name": "t"}],
        "messages": messages, "input": []});
    question.to_string()
}

pub(crate) struct Place {
    data: TempDir,
    lock: File,
    upstream: String,
    auth: Auth,
    pub(crate) uuid: Uuid,
}

/// A process that is served.
pub(crate) struct Served {
    pub(crate) link: Link,
    pub(crate) port: u16,
    pub(crate) os_pid: u32,
    pub(crate) facts: watch::Receiver<Facts>,
}

fn open_lock(data: &Path) -> File {
    let lock = File::options().create(true).truncate(false).read(true).write(true).open(data.join("lock")).unwrap();
    let begun = Instant::now();
    while lock.try_lock().is_err() {
        assert!(begun.elapsed() < DEADLINE, "the lock is held");
        std::thread::sleep(Duration::from_millis(5));
    }
    lock
}

impl Place {
    pub(crate) fn new(server: &FakeModel) -> Self {
        Self::of(server, "/v1/messages")
    }

    /// One whose agents ask this path, with the key as the provider wants it.
    pub(crate) fn of(server: &FakeModel, path: &str) -> Self {
        let data = TempDir::new().unwrap();
        let lock = open_lock(data.path());
        let auth = match path {
            "/v1/messages" => Auth { header: "x-api-key".to_owned(), value: "planted".to_owned() },
            _ => Auth { header: "authorization".to_owned(), value: "Bearer planted".to_owned() },
        };
        let place = Self { data, lock, upstream: server.base_url(), auth, uuid: Uuid::from_u128(7) };
        rustix::fs::mkdir(place.directory(), rustix::fs::Mode::RWXU).unwrap();
        place
    }

    /// One whose provider has this address.
    pub(crate) fn with_upstream(self, upstream: String) -> Self {
        Self { upstream, ..self }
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Another daemon has the data directory now.
    pub(crate) fn lock_again(&mut self) {
        self.lock.unlock().unwrap();
        self.lock = open_lock(self.data.path());
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.data.path().join("process")
    }

    pub(crate) fn calls(&self) -> Vec<(Ended, u64)> {
        relive_gateway::read_log(&self.directory(), 0).unwrap()
    }

    pub(crate) fn entry(&self, port: Option<u16>, lease: Lease) -> Entry {
        Entry {
            uuid: self.uuid,
            port,
            token: relive_gateway::token_hash(TOKEN),
            upstream: self.upstream.clone(),
            auth: self.auth.clone(),
            directory: self.directory(),
            lease,
        }
    }

    pub(crate) async fn start(&self) -> Served {
        self.start_at(None, Lease::default()).await
    }

    pub(crate) async fn start_with(&self, lease: Lease) -> Served {
        self.start_at(None, lease).await
    }

    pub(crate) async fn start_at(&self, port: Option<u16>, lease: Lease) -> Served {
        let started = self.start_gateway();
        let port = started.link.serve(self.entry(port, lease), None).await.unwrap();
        Served { port, ..started }
    }

    /// Starts a gateway that serves nobody yet.
    pub(crate) fn start_gateway(&self) -> Served {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_gateway-test-process"));
        let gateway = Gateway::start(&program, self.data(), self.lock()).unwrap();
        let os_pid = gateway.os_pid().unwrap();
        let (tell, facts) = watch::channel(Facts::default());
        let link = gateway.talk(move |_, facts| drop(tell.send_replace(facts))).unwrap();
        Served { link, port: 0, os_pid, facts }
    }

    /// Starts a gateway that serves at this socket, which others have, too.
    pub(crate) async fn start_with_socket(&self, socket: &OwnedFd, lease: Lease) -> Served {
        let started = self.start_gateway();
        let socket = socket.try_clone().unwrap();
        let port = started.link.serve(self.entry(None, lease), Some(socket)).await.unwrap();
        Served { port, ..started }
    }

    /// Asks somebody with this key; the status is 0 if the answer breaks off.
    pub(crate) async fn ask_at(&self, base: &str, key: &str, path: &str) -> (u16, String) {
        ask(format!("{base}{path}"), key.to_owned()).await
    }
}

impl Served {
    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) async fn ask(&self, path: &str) -> (u16, String) {
        self.asking(path).await
    }

    pub(crate) fn asking(&self, path: &str) -> impl Future<Output = (u16, String)> + Send + 'static {
        ask(format!("{}{path}", self.base()), TOKEN.to_owned())
    }

    /// Waits for facts like this.
    pub(crate) async fn facts(&self, are_so: impl FnMut(&Facts) -> bool) -> Facts {
        let mut facts = self.facts.clone();
        let found = tokio::time::timeout(DEADLINE, facts.wait_for(are_so)).await;
        found.unwrap_or_else(|_| panic!("waited for {DEADLINE:?}")).unwrap().clone()
    }
}

/// Returns a client that uses its connections again.
pub(crate) fn client() -> reqwest::Client {
    // The first test that comes here installs it for all.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn ask(url: String, key: String) -> (u16, String) {
    ask_by(client(), url, key, body()).await
}

pub(crate) async fn ask_by(client: reqwest::Client, url: String, key: String, body: String) -> (u16, String) {
    let request = client
        .post(url)
        .header("authorization", format!("Bearer {key}"))
        .header("x-api-key", key)
        .header("anthropic-version", "2023-06-01")
        .body(body);
    let Ok(response) = request.send().await else { return (0, String::new()) };
    let status = response.status().as_u16();
    match response.text().await {
        Ok(text) => (status, text),
        Err(_) => (0, String::new()),
    }
}
