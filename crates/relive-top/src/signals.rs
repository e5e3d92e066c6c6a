//! The signals that end, stop and continue the dashboard.

use std::task::Poll;
use std::{io, mem, ptr};

use rustix::process::{getpid, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::key::Key;

/// The signals that end the dashboard.
pub(crate) struct Signals(Vec<(u8, Signal)>);

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let kinds = [(1, SignalKind::hangup()), (3, SignalKind::quit()), (15, SignalKind::terminate())];
        kinds.into_iter().map(|(number, kind)| Ok((number, signal(kind)?))).collect::<io::Result<_>>().map(Self)
    }

    pub(crate) async fn next(&mut self) -> u8 {
        std::future::poll_fn(|cx| {
            let number =
                self.0.iter_mut().find_map(|(number, signal)| signal.poll_recv(cx).is_ready().then_some(*number));
            number.map_or(Poll::Pending, |number| Poll::Ready(128 + number))
        })
        .await
    }
}

/// Ctrl-Z and Ctrl-C, which are signals and not read: they also act within a pasted text whose end is missing. Another program,
/// such as a shell, may send them too. A shell also says that it has continued us.
pub(crate) struct KeySignals {
    stops: Signal,
    interrupts: Signal,
    continues: Signal,
}

/// What a signal stands for.
pub(crate) enum Told {
    Key(Key),
    /// After a stop that was not ours, as with SIGSTOP: the shell may have set its own modes.
    Continued,
}

impl KeySignals {
    pub(crate) fn listen() -> io::Result<Self> {
        let stops = signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?;
        let continues = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
        Ok(Self { stops, interrupts: signal(SignalKind::interrupt())?, continues })
    }

    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.stops.recv() => Told::Key(Key::Suspend),
            _ = self.interrupts.recv() => Told::Key(Key::Interrupt),
            _ = self.continues.recv() => Told::Continued,
        }
    }

    /// Stops the dashboard until it is continued.
    pub(crate) async fn stop(&mut self) -> io::Result<()> {
        kill_process(getpid(), rustix::process::Signal::STOP)?;
        self.continues.recv().await;
        Ok(())
    }

    /// Drops those that came so far, which were for whoever had the terminal.
    pub(crate) async fn forget(&mut self) {
        std::future::poll_fn(|cx| {
            let _ = (self.stops.poll_recv(cx), self.interrupts.poll_recv(cx), self.continues.poll_recv(cx));
            Poll::Ready(())
        })
        .await;
    }
}

/// While this lives, Ctrl-C is for the command that has the terminal. The kernel sends it to the dashboard too, whose handler may
/// run on another thread, and only after the command has ended; a signal that is ignored when it is sent never comes.
pub(crate) struct InterruptsIgnored {
    before: libc::sigaction,
}

impl InterruptsIgnored {
    /// Begins once the command runs, which would inherit it.
    pub(crate) fn begin() -> Self {
        // SAFETY: all zeros are a valid action, which is replaced by the current one. Both pointers are valid for the call.
        unsafe {
            let (mut ignore, mut before) = (mem::zeroed::<libc::sigaction>(), mem::zeroed());
            ignore.sa_sigaction = libc::SIG_IGN;
            libc::sigaction(libc::SIGINT, &raw const ignore, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for InterruptsIgnored {
    fn drop(&mut self) {
        // SAFETY: the action was in force before, and the pointer is valid for the call.
        unsafe { libc::sigaction(libc::SIGINT, &raw const self.before, ptr::null_mut()) };
    }
}
