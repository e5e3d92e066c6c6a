//! A session that answers: orders are passed on to it, until it ends.

use std::path::PathBuf;

use relive_agent::Orders;
use relive_core::{Signal, Why};
use relive_session::connection::{Connection, Gone};
use relive_session::exit::ExitRecord;
use relive_session::protocol::{self, Verb as SessionVerb};
use relive_session::sessions::Sessions;
use relive_session::stage::Stage;
use relive_session::tree::Rungs;

use crate::bodies::{Context, LiveSession};

/// A session that answers.
pub(super) struct Attended<'a> {
    pub(super) sessions: &'a Sessions,
    pub(super) connection: Connection,
    pub(super) folder: PathBuf,
}

/// Why a session is attended no more.
pub(super) enum Left {
    /// It ended.
    Ended(ExitRecord),
    /// Its shim does not answer any more; its directory knows why.
    Gone,
}

/// What the freezer of a session was last told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freezer {
    /// Nothing: an earlier daemon may have told it anything.
    Unknown,
    Thawed,
    /// Stopped at this stage. A program that waits at its gate stands still without being frozen.
    Frozen(Stage),
}

/// Passes orders on to a session that answers, until it ends.
pub(super) async fn attend(cx: &mut Context, session: &Attended<'_>) -> Left {
    let connection = &session.connection;
    let rungs = match session.order(SessionVerb::Stat).await {
        Ok(protocol::Outcome::Stat(stat)) => stat.rungs,
        Ok(_) | Err(_) => Rungs::default(),
    };
    cx.owner.started().await;
    cx.session.send_replace(Some(LiveSession {
        connection: connection.clone(),
        folder: session.folder.clone(),
        rungs,
    }));
    let mut seen = connection.seen();
    let (mut told, mut freezer, mut timed_out) = (None, Freezer::Unknown, false);
    loop {
        let orders = *cx.orders.borrow_and_update();
        let (ended, gone, stage) = {
            let seen = seen.borrow_and_update();
            (seen.ended.clone(), seen.gone, seen.snapshot.stage)
        };
        cx.owner.ring();
        if let Some(record) = ended {
            return Left::Ended(record);
        }
        if gone {
            return Left::Gone;
        }
        if let Some(signal) = orders.end.filter(|signal| told != Some(*signal)) {
            told = Some(signal);
            session.pass_on(signal).await;
        }
        match wanted(&orders, stage, freezer) {
            Some(Freezer::Frozen(stage)) => {
                freezer = freeze(cx, session, stage).await;
                continue;
            }
            Some(_) => {
                // If it has gone, that is seen next.
                let _ = session.order(SessionVerb::Thaw).await;
                freezer = Freezer::Thawed;
                continue;
            }
            None => {}
        }
        let runs = matches!(freezer, Freezer::Thawed) && orders.end.is_none() && !timed_out;
        let deadline = orders.deadline.filter(|_| runs);
        let far = tokio::time::Instant::now() + std::time::Duration::from_secs(365 * 24 * 3600);
        tokio::select! {
            // The sender stays with the owner as long as the body does.
            _ = cx.orders.changed() => {}
            _ = seen.changed() => {}
            () = tokio::time::sleep_until(deadline.unwrap_or(far)), if deadline.is_some() => {
                timed_out = true;
                cx.owner.end_for(Why::Timeout);
            }
        }
    }
}

/// What the freezer is to be told, if anything.
fn wanted(orders: &Orders, stage: Stage, freezer: Freezer) -> Option<Freezer> {
    let still = orders.stop.is_some() && orders.end.is_none() && !orders.leave_sessions;
    let can_stand_still = stage == Stage::Running || stage == Stage::Ready;
    match freezer {
        Freezer::Frozen(at) if still && at == stage => None,
        Freezer::Unknown | Freezer::Thawed | Freezer::Frozen(_) if still => {
            can_stand_still.then_some(Freezer::Frozen(stage))
        }
        Freezer::Thawed => None,
        Freezer::Unknown | Freezer::Frozen(_) => Some(Freezer::Thawed),
    }
}

/// Freezes the tree of a session, and reports that the process stands still.
async fn freeze(cx: &Context, session: &Attended<'_>, stage: Stage) -> Freezer {
    if stage == Stage::Running {
        match session.order(SessionVerb::Freeze).await {
            Ok(protocol::Outcome::Done) => {}
            // It has ended; that is seen next.
            Ok(protocol::Outcome::NoProcess) | Err(_) => return Freezer::Frozen(stage),
            Ok(other) => {
                cx.owner.warn(format!("{} cannot be frozen: {other:?}", cx.process.uuid));
                cx.owner.resume().await;
                return Freezer::Frozen(stage);
            }
        }
    }
    cx.owner.stands_still().await;
    Freezer::Frozen(stage)
}

impl Attended<'_> {
    async fn order(&self, verb: SessionVerb) -> Result<protocol::Outcome, Gone> {
        self.sessions.order(&self.folder, &self.connection, verb).await
    }

    /// Sends the program what a signal of ours is to the operating system.
    pub(super) async fn pass_on(&self, signal: Signal) {
        let number = |signal: rustix::process::Signal| SessionVerb::Signal { number: signal.as_raw() };
        let verb = match signal {
            Signal::Term => number(rustix::process::Signal::TERM),
            Signal::Int => number(rustix::process::Signal::INT),
            Signal::Kill => SessionVerb::Kill,
            Signal::Pause => number(rustix::process::Signal::TSTP),
            Signal::Resume => number(rustix::process::Signal::CONT),
        };
        // One that has gone needs no signal.
        let _ = self.order(verb).await;
    }
}

#[cfg(test)]
mod tests;
