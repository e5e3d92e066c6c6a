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

    fn is_silent(&self, socket: &Path, os_pid: Option<u32>) {
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
