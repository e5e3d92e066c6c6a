//! The proxy's side of its socket: the daemon sends a person's answers, and gets a byte for every change of the log.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::relay::{ACCEPT_AGAIN, Proxy};

/// The longest list of answers.
const LINE_MAX: u64 = 1 << 20;

pub(crate) async fn accept_all(proxy: Arc<Proxy>, listener: UnixListener) {
    // The directory of the session is the user's alone.
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // For lack of descriptors. The next daemon has to be heard, too.
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            // The next daemon sends all answers anew.
            let _ = serve(&proxy, stream).await;
        });
    }
}

async fn serve(proxy: &Proxy, stream: UnixStream) -> io::Result<()> {
    let mut recorded = proxy.recorded();
    // The daemon may have read the log before this connection was accepted, and so before the last records.
    recorded.mark_changed();
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let told = async {
        while recorded.changed().await.is_ok() {
            to.write_all(b"\n").await?;
        }
        Ok(())
    };
    let heard = async {
        loop {
            line.clear();
            if (&mut from).take(LINE_MAX).read_until(b'\n', &mut line).await? == 0 {
                return Ok(());
            }
            proxy.set_answers(serde_json::from_slice(&line)?);
        }
    };
    tokio::select! {
        ended = told => ended,
        ended = heard => ended,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::process::{Resource, Rlimit};

    use super::*;
    use crate::log::Log;
    use crate::settings::Settings;

    const PATIENCE: Duration = Duration::from_secs(20);
    /// Set in the process that has the limit of descriptors.
    const ALONE: &str = "RELIVE_TEST_ALONE";

    fn proxy(directory: &std::path::Path) -> Arc<Proxy> {
        let directory = OwnedFd::from(std::fs::File::open(directory).unwrap());
        Arc::new(Proxy::new(Settings::default(), Log::open(&directory).unwrap()))
    }

    async fn is_rung(stream: &mut UnixStream) -> bool {
        tokio::time::timeout(PATIENCE, stream.read_u8()).await.is_ok_and(|read| read.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_has_connected_is_told_to_read_what_was_recorded_before_it_was_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let (mut daemon, served) = UnixStream::pair().unwrap();
        let proxy = proxy(dir.path());
        tokio::spawn(async move { serve(&proxy, served).await });
        assert!(is_rung(&mut daemon).await);
    }

    #[test]
    fn a_proxy_that_lacked_descriptors_accepts_the_next_daemon() {
        // In a process of its own: the limit holds for all tests of this one.
        let name = "control::tests::a_proxy_that_lacked_descriptors_accepts_the_next_daemon";
        if std::env::var_os(ALONE).is_none() {
            let this = std::env::current_exe().unwrap();
            let done = std::process::Command::new(this).args(["--exact", name]).env(ALONE, "1").output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let (proxy, path) = (proxy(dir.path()), dir.path().join("socket"));
            let listener = UnixListener::bind(&path).unwrap();
            let mut daemon = UnixStream::connect(&path).await.unwrap();
            let free = std::os::fd::AsRawFd::as_raw_fd(&std::fs::File::open("/dev/null").unwrap()) as u64;
            let before = rustix::process::getrlimit(Resource::Nofile);
            rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..before }).unwrap();
            let mut accepting = tokio::spawn(accept_all(proxy, listener));
            assert!(tokio::time::timeout(2 * ACCEPT_AGAIN, &mut accepting).await.is_err(), "it has given up");
            rustix::process::setrlimit(Resource::Nofile, before).unwrap();
            assert!(is_rung(&mut daemon).await);
        });
    }
}
