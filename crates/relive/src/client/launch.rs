//! Starts the daemon of a command: this very program.

mod inside;

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use relive_api::Paths;
use relive_client::{Cause, Delegated, Launcher};

use super::own::OwnSocket;
use crate::commands::config;
use crate::context::Context;

/// Returns whether an environment variable is set, and not empty.
pub(super) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

#[derive(Debug)]
pub(super) struct Launch {
    paths: Paths,
    /// Whether a person watches, and is told what takes so long.
    is_watched: bool,
}

impl Launch {
    pub(super) fn new(context: &Context) -> Self {
        Self { paths: context.paths.clone(), is_watched: context.err.is_terminal }
    }
}

impl Launcher for Launch {
    fn data(&self) -> &Path {
        &self.paths.data
    }

    fn log(&self) -> &Path {
        &self.paths.log
    }

    fn command(&self) -> Result<Command, Cause> {
        // The daemon would report the same, but only in its log.
        config::load(&self.paths)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["daemon", "serve"]).stdin(Stdio::null()).stdout(Stdio::null());
        // It outlives this directory. Relative paths were made absolute before, because the command knows the directory.
        command.current_dir("/");
        // It outlives this terminal and its Ctrl-C. In a mere process group of its own it could not leave the session of the
        // terminal, and a daemon that is stopped when the command ends would be hung up on.
        let leave = || rustix::process::setsid().map(drop).map_err(std::io::Error::from);
        // SAFETY: it makes one system call, which is safe between fork and exec.
        unsafe { command.pre_exec(leave) };
        // It outlives this shell as well, whose keys are for the processes that are created from it.
        command.env_clear().envs(crate::environment::for_the_daemon());
        for (name, path) in [("RELIVE_DATA_DIR", &self.paths.data), ("RELIVE_SOCKET", &self.paths.socket)] {
            if is_set(name) {
                command.env(name, path);
            }
        }
        Ok(command)
    }

    fn delegate(&self) -> Delegated<'_> {
        Box::pin(inside::start(&self.paths))
    }

    fn cannot_start(&self) -> bool {
        OwnSocket::from_env().is_some_and(|own| own.is_isolated(&self.paths))
    }

    fn holder(&self) -> Option<u32> {
        relive_journal::data::holder(&self.paths.data)
    }

    fn listens_elsewhere(&self, socket: &Path) -> bool {
        let its_socket = self.holder().and_then(|os_pid| relive_journal::data::socket_of(&self.paths.data, os_pid));
        its_socket.is_some_and(|its_socket| its_socket != socket)
    }

    fn is_slow(&self) {
        if self.is_watched {
            let what = if self.cannot_start() { "waiting for the daemon" } else { "starting the daemon" };
            crate::context::say(what);
        }
    }
}
