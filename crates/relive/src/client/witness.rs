//! Tells the daemon from another program that listens on its socket.

use std::path::{Path, PathBuf};

use relive_client::{LongWork, Witness};

use super::unreached::Unreached;

/// The daemon is the process that has locked the data directory.
#[derive(Debug)]
pub(super) struct LockHolder {
    pub(super) data: PathBuf,
}

impl Witness for LockHolder {
    fn is_daemon(&self, os_pid: u32) -> bool {
        relive_journal::data::holder(&self.data) == Some(os_pid)
    }

    fn daemon_of(&self, socket: &Path) -> Option<u32> {
        Unreached::of(&self.data).filter(|daemon| daemon.is_meant_to_listen_on(socket)).map(|daemon| daemon.os_pid)
    }

    fn has_made_its_socket(&self, os_pid: u32) -> bool {
        relive_journal::data::has_made_its_socket(&self.data, os_pid)
    }

    fn report_silence(&self, socket: &Path, os_pid: Option<u32>) {
        let socket = socket.display();
        crate::context::say(&match os_pid {
            Some(os_pid) if self.is_daemon(os_pid) => {
                format!("waiting for the daemon, OS pid {os_pid}, which does not answer yet")
            }
            Some(os_pid) => format!("waiting for OS pid {os_pid}, which listens on {socket} and does not answer"),
            None => format!("waiting for the program that listens on {socket} and accepts no connections"),
        });
    }

    fn is_not_done(&self, work: LongWork) {
        crate::context::say(match work {
            LongWork::Start => "the daemon is still working on this; Ctrl-C cancels the start",
            LongWork::Other => "the daemon is still working on this; Ctrl-C only stops waiting for it",
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use relive_journal::data::SpaceRules;
    use relive_journal::{DataDirectory, Disk, Io};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's own files")]
    fn a_socket_that_another_program_has_replaced_is_not_that_of_the_daemon() {
        let root = tempfile::tempdir().unwrap();
        let (data, socket, other) = (root.path().join("data"), root.path().join("socket"), root.path().join("other"));
        let open = DataDirectory::open(&data, Io::new(Disk::new()), SpaceRules::default()).unwrap();
        let _daemons = UnixListener::bind(&socket).unwrap();
        open.tell_socket(&socket).unwrap();
        let witness = LockHolder { data };
        let us = std::process::id();
        assert_eq!(witness.daemon_of(&socket), Some(us));
        assert!(witness.has_made_its_socket(us));
        let _others = UnixListener::bind(&other).unwrap();
        std::fs::rename(&other, &socket).unwrap();
        assert_eq!(witness.daemon_of(&socket), Some(us));
        assert!(!witness.has_made_its_socket(us));
    }
}
