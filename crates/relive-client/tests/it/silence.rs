//! Listeners that accept no connections.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use relive_client::{BlockingClient, Client, Error, LongWork, Retry, Witness};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

const DAEMON: u32 = 7;

/// Knows a daemon that should be listening.
#[derive(Debug)]
struct Knows {
    /// Whether the socket file is its own.
    listens: bool,
}

impl Witness for Knows {
    fn is_daemon(&self, _: u32) -> bool {
        false
    }

    fn daemon_of(&self, _: &Path) -> Option<u32> {
        Some(DAEMON)
    }

    fn has_made_its_socket(&self, os_pid: u32) -> bool {
        self.listens && os_pid == DAEMON
    }

    fn report_silence(&self, _: &Path, _: Option<u32>) {}

    fn is_not_done(&self, _: LongWork) {}
}

fn listen_and_be_full(path: &Path) -> Vec<OwnedFd> {
    let stream = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
    let (address, listener) = (SocketAddrUnix::new(path).unwrap(), stream());
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let mut all = vec![listener];
    loop {
        let connection = stream();
        match connect(&connection, &address) {
            Ok(()) => all.push(connection),
            Err(Errno::AGAIN) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_daemon_that_is_overloaded_is_not_said_to_be_displaced() {
    let root = tempfile::tempdir().unwrap();
    std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let socket = root.path().join("socket");
    let _queue = listen_and_be_full(&socket);
    let within = Duration::from_millis(20);
    let refused = |listens: bool| {
        let client = Client::new(&socket).with_retry(Retry { within, every: Duration::from_millis(1) });
        let client = BlockingClient::new(client.with_witness(Knows { listens })).unwrap();
        client.call(|client| client.connect()).unwrap_err()
    };
    let error = refused(true);
    assert!(matches!(error, Error::Overloaded { os_pid: DAEMON, .. }), "{error}");
    assert_eq!(error.to_string(), "the daemon with OS pid 7 has not accepted a connection for 0 s");
    let error = refused(false);
    assert!(matches!(error, Error::Full { daemon: Some(DAEMON), .. }), "{error}");
}
