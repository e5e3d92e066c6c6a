//! Arbitrary bytes from a client of the daemon: they are answered or the connection is closed, in time, without a
//! panic. The fuzz target `requests` includes this file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use relive_config::Config;
use relive_daemon::in_process::{Caller, InProcess};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// The process that requests may name, besides its PID 1.
pub(crate) const UUID: &str = "01900000-0000-7000-8000-00000000000a";

/// A client that has sent everything and hung up is gone by then; a daemon that takes longer hangs.
const WITHIN: Duration = Duration::from_secs(20);

/// How many panics there were, in any thread.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A daemon with one process and no space for another: no request can run a program or a model.
pub(crate) struct Place {
    daemon: InProcess,
    root: TempDir,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            before(panic);
        }));
        let root = TempDir::new().unwrap();
        let script = root.path().join("script.yaml");
        std::fs::write(&script, "turns: [{hang: true}]").unwrap();
        let mut config = Config::default();
        config.limits.max_processes = 1;
        config.limits.floor_mb = 0;
        let daemon = InProcess::start(root.path(), &config).await.unwrap();
        let place = Self { daemon, root };
        // Not a directory whose files anybody would miss.
        let root = place.root.path().display();
        let body = format!(
            r#"{{"uuid": "{UUID}", "intent": "x", "model": "script/{}", "cwd": "{}"}}"#,
            script.display(),
            root
        );
        let head = format!("POST /v1/processes HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let answer = place.send(Caller::Person, head.as_bytes(), WITHIN).await;
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        place
    }

    /// Listens on a socket; its path.
    pub(crate) async fn listen(&self) -> std::path::PathBuf {
        let socket = self.root.path().join("socket");
        self.daemon.listen(&socket).await.unwrap();
        socket
    }

    /// How many panics there were.
    pub(crate) fn panics() -> usize {
        PANICS.load(Ordering::Relaxed)
    }

    /// Sends bytes and, if the daemon has not closed the connection by then, hangs up; returns its answer.
    async fn send(&self, caller: Caller, bytes: &[u8], hang_up_after: Duration) -> String {
        let (mut read, mut write) = tokio::io::split(self.daemon.connect_as(caller));
        let client = async {
            // The daemon may close it before all is written.
            let _ = write.write_all(bytes).await;
            tokio::time::sleep(hang_up_after).await;
            let _ = write.shutdown().await;
            std::future::pending::<()>().await;
        };
        let mut answer = Vec::new();
        tokio::select! {
            read = timeout(WITHIN, read.read_to_end(&mut answer)) => {
                assert!(read.is_ok(), "no end of {:?}", String::from_utf8_lossy(bytes));
            }
            () = client => {}
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends bytes as this caller and checks the answer; returns its status, if there is one.
    pub(crate) async fn check(&self, caller: Caller, bytes: &[u8]) -> Option<u16> {
        // Long enough for most requests to be answered.
        let answer = self.send(caller, bytes, Duration::from_millis(5)).await;
        let shown = String::from_utf8_lossy(bytes);
        assert!(!answer.contains("HTTP/1.1 500") && !answer.contains("HTTP/1.0 500"), "{shown:?}: {answer}");
        assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{shown:?}: {answer}");
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{shown:?}");
        answer.split(' ').nth(1)?.parse().ok()
    }

    /// Checks that the daemon still answers.
    pub(crate) async fn check_alive(&self) {
        let (mut client, mut answer) = (self.daemon.connect(), vec![0; 4096]);
        client.write_all(b"GET /v1/processes HTTP/1.1\r\nhost: relive\r\n\r\n").await.unwrap();
        let count = timeout(WITHIN, client.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
