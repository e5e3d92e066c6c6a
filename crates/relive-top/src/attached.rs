//! A command that has the terminal.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::termios::{Termios, tcgetattr};
use tokio::process::{Child, Command};
use tokio::signal::unix::Signal;

use crate::terminal::restore_modes;

/// How long a command may take to give the terminal back when the dashboard has to end.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);

/// The exit code of a command that was left with Ctrl-C: 128 and the number of SIGINT.
const INTERRUPTED: i32 = 130;

/// Returns whether a command did what it was asked for, and what to say of its end. It has said the rest itself.
pub(crate) fn end_of(status: ExitStatus) -> (bool, String) {
    match status.code() {
        Some(0) => (true, String::new()),
        Some(INTERRUPTED) => (true, "left with Ctrl-C".to_owned()),
        Some(code) => (false, format!("exit code {code}")),
        None => (false, status.to_string()),
    }
}

/// A command that has the terminal.
pub(crate) struct Attached {
    child: Child,
    /// The modes that the terminal had before.
    modes: Option<Termios>,
}

impl Attached {
    pub(crate) fn start(words: &[String]) -> io::Result<Self> {
        let modes = tcgetattr(io::stdin()).ok();
        Ok(Self { child: Command::new("/proc/self/exe").args(words).spawn()?, modes })
    }

    /// Waits until it has ended or stopped, as by Ctrl-Z; `None` if it has stopped.
    pub(crate) async fn ended_or_stopped(&mut self, children: &mut Signal) -> io::Result<Option<ExitStatus>> {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        loop {
            let pid = self.pid();
            tokio::select! {
                status = self.child.wait() => return status.map(Some),
                _ = children.recv() => {
                    if pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), stopped), Ok(Some(_)))) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Its OS pid; `None` if it has ended.
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()?).ok()?)
    }

    pub(crate) fn send(&self, signal: rustix::process::Signal) {
        // One that ends at this moment needs none.
        let _ = self.pid().map(|pid| kill_process(pid, signal));
    }

    /// Sets the modes that the terminal had: it may have been killed, and a shell does not know those that it has set.
    pub(crate) fn restore_modes(&self) {
        self.modes.iter().for_each(restore_modes);
    }

    /// Ends it, and has it give the terminal back.
    pub(crate) async fn end(mut self) {
        self.send(rustix::process::Signal::TERM);
        self.send(rustix::process::Signal::CONT);
        if tokio::time::timeout(GIVEN_BACK_WITHIN, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
        self.restore_modes();
    }
}
