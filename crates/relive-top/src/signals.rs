//! The signals that end, stop and continue the dashboard.

use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::key::Key;

/// How long after the end of a command that had the terminal a signal may become known that was for that.
const SETTLED_AFTER: Duration = Duration::from_millis(50);

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

    /// Drops those that came so far, which were for whoever had the terminal.
    pub(crate) async fn forget(&mut self) {
        // The runtime looks for signals while this waits: of those that came together with the end of a command it may not know.
        tokio::time::sleep(SETTLED_AFTER).await;
        std::future::poll_fn(|cx| {
            let _ = (self.stops.poll_recv(cx), self.interrupts.poll_recv(cx), self.continues.poll_recv(cx));
            Poll::Ready(())
        })
        .await;
    }
}
