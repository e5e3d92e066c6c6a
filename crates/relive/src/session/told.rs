//! The signals that would end or stop this command. While the terminal belongs to the program, it is given back first; without a
//! terminal, a program that was typed gets them.

use std::io;
use std::task::Poll;

use rustix::process::{Signal as Number, getpid, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::watch::{Arrival, Manner};
use crate::terminal::raw::Raw;

/// Those that end a command by default, and that somebody may send it. SIGINT and SIGHUP have a meaning of their own.
/// The runtime cannot listen for SIGILL, SIGFPE and SIGSEGV.
const LEAVING: [Number; 13] = [
    Number::QUIT,
    Number::ABORT,
    Number::USR1,
    Number::USR2,
    Number::PIPE,
    Number::ALARM,
    Number::VTALARM,
    Number::PROF,
    Number::XCPU,
    Number::XFSZ,
    Number::IO,
    Number::POWER,
    Number::SYS,
];

/// Those that a program gets which was typed without a terminal of its own: Ctrl-\, and what scripts send.
const PASSED_ON: [Number; 4] = [Number::QUIT, Number::USR1, Number::USR2, Number::ALARM];

/// The signals to this command. None is listened for if it watches a program that has no terminal and was started before.
pub(super) struct Told {
    signals: Vec<(Number, Signal)>,
    is_passed_on: bool,
}

/// What a signal asks for.
pub(super) enum Asked {
    /// To end without the program, by the signal with this number.
    Leave(u8),
    /// To stop until SIGCONT.
    Stop,
    /// To send the program the signal with this number.
    PassOn(i32),
}

impl Told {
    /// Listens from now on.
    pub(super) fn listen(manner: &Manner) -> io::Result<Self> {
        let mut numbers = Vec::new();
        if manner.detach.is_some() {
            numbers.extend(LEAVING);
            numbers.push(Number::TSTP);
            // The command that started the program passes it on.
            numbers.extend((manner.arrival == Arrival::Again).then_some(Number::TERM));
        }
        let is_passed_on = manner.detach.is_none() && manner.arrival == Arrival::First;
        if is_passed_on {
            numbers.extend(PASSED_ON);
        }
        let listen = |number: Number| Ok((number, signal(SignalKind::from_raw(number.as_raw()))?));
        Ok(Self { signals: numbers.into_iter().map(listen).collect::<io::Result<_>>()?, is_passed_on })
    }

    pub(super) async fn next(&mut self) -> Asked {
        let number = std::future::poll_fn(|cx| {
            let told = self
                .signals
                .iter_mut()
                .find_map(|(number, signal)| matches!(signal.poll_recv(cx), Poll::Ready(Some(()))).then_some(*number));
            told.map_or(Poll::Pending, Poll::Ready)
        });
        match number.await {
            number if self.is_passed_on => Asked::PassOn(number.as_raw()),
            Number::TSTP => Asked::Stop,
            other => Asked::Leave(u8::try_from(other.as_raw()).unwrap_or(0)),
        }
    }
}

/// Gives the terminal back, stops this command, and takes the terminal again when it continues.
pub(super) fn stop(raw: Option<&Raw>) -> io::Result<()> {
    if let Some(raw) = raw {
        raw.leave();
    }
    kill_process(getpid(), Number::STOP)?;
    match raw {
        Some(raw) => raw.enter_again(),
        None => Ok(()),
    }
}
