//! Signals that end a command in the foreground.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CommandError, Outcome};

/// Signals that end this command but not the process, and the one that a shell sends when it continues us.
pub(super) struct Signals {
    leaving: Vec<(u8, Signal)>,
    continued: Option<Signal>,
}

impl Signals {
    /// Listens for SIGTERM, and for the others where there is a terminal to give back.
    pub(super) fn listen(has_terminal: bool) -> Outcome<Self> {
        const SIGTERM: u8 = 15;
        let cannot = |error| CommandError::internal("cannot listen for signals").because(error);
        if !has_terminal {
            let leaving = vec![(SIGTERM, signal(SignalKind::terminate()).map_err(cannot)?)];
            return Ok(Self { leaving, continued: None });
        }
        let kinds = [(1, SignalKind::hangup()), (3, SignalKind::quit()), (SIGTERM, SignalKind::terminate())];
        let leaving = kinds.into_iter().map(|(number, kind)| Ok((number, signal(kind).map_err(cannot)?)));
        let continued = signal(SignalKind::from_raw(libc::SIGCONT)).map_err(cannot)?;
        Ok(Self { leaving: leaving.collect::<Outcome<_>>()?, continued: Some(continued) })
    }

    /// The number of the signal that told us to leave; none where we were continued.
    pub(super) async fn told(&mut self) -> Option<u8> {
        std::future::poll_fn(|cx| {
            use std::task::Poll;
            for (number, signal) in &mut self.leaving {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(Some(*number));
                }
            }
            match &mut self.continued {
                Some(continued) => continued.poll_recv(cx).map(|_| None),
                None => Poll::Pending,
            }
        })
        .await
    }
}
