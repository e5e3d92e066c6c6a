//! Any bytes at all as a client of the daemon: they are answered or the connection is closed, in time, and nothing
//! panics. The fuzz target `requests` includes this file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use relive_config::Config;
use relive_daemon::in_process::InProcess;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// The process that requests may name, beside its PID 1.
pub(crate) const UUID: &str = "01900000-0000-7000-8000-00000000000a";

/// A client that has sent everything and hung up is forgotten by then; a daemon that takes longer hangs.
const WITHIN: Duration = Duration::from_secs(20);

/// How many panics there were, in any thread.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A daemon with one process, that takes no other: no request can run a program or a model.
pub(crate) struct Place {
    daemon: InProcess,
    _root: TempDir,
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
        let place = Self { daemon, _root: root };
        let body =
            format!(r#"{{"uuid": "{UUID}", "intent": "x", "model": "script/{}", "cwd": "/"}}"#, script.display());
        let head = format!("POST /v1/processes HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let answer = place.send(head.as_bytes(), WITHIN).await;
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        place
    }

    /// Sends bytes and, if the daemon has not closed the connection by then, hangs up; returns its answer.
    async fn send(&self, bytes: &[u8], hang_up_after: Duration) -> String {
        let (mut read, mut write) = tokio::io::split(self.daemon.connect());
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

    /// Sends bytes and checks what becomes of them; the status of the first answer, if there is one.
    pub(crate) async fn check(&self, bytes: &[u8]) -> Option<u16> {
        // Long enough for most requests to be answered.
        let answer = self.send(bytes, Duration::from_millis(5)).await;
        let shown = String::from_utf8_lossy(bytes);
        assert!(!answer.contains("HTTP/1.1 500") && !answer.contains("HTTP/1.0 500"), "{shown:?}: {answer}");
        assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{shown:?}: {answer}");
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{shown:?}");
        answer.split(' ').nth(1)?.parse().ok()
    }

    /// Checks that the daemon answers as before.
    pub(crate) async fn check_alive(&self) {
        let (mut client, mut answer) = (self.daemon.connect(), vec![0; 4096]);
        client.write_all(b"GET /v1/processes HTTP/1.1\r\nhost: relive\r\n\r\n").await.unwrap();
        let count = timeout(WITHIN, client.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
