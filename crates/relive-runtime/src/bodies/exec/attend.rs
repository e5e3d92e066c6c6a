//! Attends a session that answers: passes orders on to it, until it ends.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use relive_agent::Orders;
use relive_core::{Program, Signal, Urgency, Why};
use relive_session::connection::{Connection, Gone, Seen};
use relive_session::exit::ExitRecord;
use relive_session::protocol::{self, Verb as SessionVerb};
use relive_session::sessions::Sessions;
use relive_session::tree::Rungs;
use tokio::time::Instant;

use super::Tenant;
use crate::bodies::{Context, LiveSession, Shim};
use crate::drive::Standing;

/// A session that answers.
pub(in crate::bodies) struct Attended<'a> {
    pub(super) sessions: &'a Sessions,
    pub(super) beginning: Beginning,
    pub(in crate::bodies) connection: Connection,
    pub(in crate::bodies) folder: PathBuf,
    pub(in crate::bodies) program: Arc<Program>,
}

/// How a session that answers came to be attended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It was launched now, with this deadline, and nobody has frozen it.
    Launched { deadline: Option<Instant> },
    /// It was found: an earlier daemon may have told it anything.
    Found,
}

impl Beginning {
    /// Returns the deadline that the shim has, if that is known, and the state of the freezer.
    fn known(self) -> (Option<Option<Instant>>, Freezer) {
        match self {
            Self::Launched { deadline } => (Some(deadline), Freezer::Thawed),
            Self::Found => (None, Freezer::Unknown),
        }
    }
}

/// The reason why a session is no longer attended.
pub(super) enum Left {
    Ended(ExitRecord),
    /// Its shim no longer answers; its directory tells why.
    Gone,
}

/// The known state of a session's freezer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freezer {
    /// Nothing: an earlier daemon may have frozen or thawed it.
    Unknown,
    Thawed,
    /// It was told to freeze, and the tree is not completely frozen yet: a process that waits in the kernel is frozen
    /// when it returns. It is asked again at this moment.
    Freezing(Instant),
    Frozen,
}

/// The next order for the freezer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Freeze,
    Thaw,
}

/// How often a freezer is asked whether all processes are frozen.
const FREEZE_AGAIN: Duration = Duration::from_millis(500);

/// Passes orders on to a session that answers, until it ends. Messages to the program are delivered in the meantime.
pub(super) async fn attend(
    cx: &mut Context,
    session: &Attended<'_>,
    tenant: &dyn Tenant,
    messages: impl Future<Output = ()>,
) -> Left {
    let connection = &session.connection;
    let rungs = session.rungs().await;
    // Before it counts as running, so that a program at its gate is never shown as running.
    cx.session.send_replace(Some(LiveSession {
        process: cx.process,
        program: Arc::clone(&session.program),
        folder: session.folder.clone(),
        shim: Shim::Answers { connection: connection.clone(), rungs: Box::new(rungs) },
    }));
    cx.owner.started().await;
    let (mut seen, mut boundary) = (connection.seen(), tenant.boundary());
    let mut messages = pin!(messages.fuse());
    let (mut told, mut timed_out) = (None, false);
    let (mut told_deadline, mut freezer) = session.beginning.known();
    loop {
        let is_boundary = *boundary.borrow_and_update();
        let orders = latest_orders(cx, is_boundary);
        let Seen { ended, gone, .. } = seen.borrow_and_update().clone();
        cx.owner.ring();
        if let Some(record) = ended {
            return Left::Ended(record);
        }
        if gone {
            return Left::Gone;
        }
        if let Some(signal) = orders.end.filter(|signal| told != Some(*signal)) {
            told = Some(signal);
            if let Some(refused) = session.tell_to_end(signal).await {
                cx.owner.warn(format!("PID {} did not get {signal}: {refused}", cx.process.of.pid));
            }
        }
        // A program that is asked to end has its grace period, which this daemon counts.
        let deadline = orders.deadline.filter(|_| orders.end.is_none());
        if told_deadline.replace(deadline) != Some(deadline) {
            // A shim that does not know deadlines leaves them to the daemon.
            let _ = session.order(SessionVerb::Deadline { left_ms: deadline.map(left_ms) }).await;
        }
        report_if_frozen(cx, &orders, freezer).await;
        match wanted(&orders, freezer, Instant::now()) {
            Some(Wanted::Freeze) => {
                freezer = freeze(cx, session).await;
                continue;
            }
            Some(Wanted::Thaw) => {
                if freezer != Freezer::Unknown {
                    tenant.thaws().await;
                }
                // If it is gone, that is noticed next.
                let _ = session.order(SessionVerb::Thaw).await;
                freezer = Freezer::Thawed;
                continue;
            }
            None => {}
        }
        let runs = matches!(freezer, Freezer::Thawed) && orders.end.is_none() && !timed_out;
        let deadline = orders.deadline.filter(|_| runs);
        let again = match freezer {
            Freezer::Freezing(again) => Some(again),
            Freezer::Unknown | Freezer::Thawed | Freezer::Frozen => None,
        };
        tokio::select! {
            // The sender stays with the owner as long as the body does.
            _ = cx.orders.changed() => {}
            _ = seen.changed() => {}
            Ok(()) = boundary.changed() => {}
            () = at(again) => {}
            () = &mut messages => {}
            () = at(deadline) => {
                timed_out = true;
                cx.owner.end_for(Why::Timeout);
            }
        }
    }
}

/// Returns the orders for a program.
fn latest_orders(cx: &mut Context, is_boundary: bool) -> Orders {
    let orders = *cx.orders.borrow_and_update();
    let may_stop = || cx.owner.standing().is_none_or(|standing| may_stop(standing, is_boundary));
    Orders { stop: orders.stop.filter(|_| may_stop()), ..orders }
}

/// Tells whether a program is stopped now. One that waits for an answer is not stopped for that: what else it does continues,
/// until somebody pauses it. One that can be stopped at a boundary only is not stopped before, unless it must be at once
/// or has been.
fn may_stop(standing: Standing, is_boundary: bool) -> bool {
    let Standing { pausing, kept, waits_for_answer } = standing;
    let urgency = if waits_for_answer { kept } else { pausing };
    let continues = waits_for_answer && kept.is_none();
    !continues && (is_boundary || urgency != Some(Urgency::Boundary))
}

/// Returns the deadline for a shim: a little later, so that a present owner acts first.
pub(crate) fn left_ms(deadline: Instant) -> u64 {
    const OWNER_FIRST: Duration = Duration::from_secs(1);
    let left = deadline.saturating_duration_since(Instant::now()) + OWNER_FIRST;
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until a moment, or for ever without one.
pub(super) async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Returns the next order for the freezer, if any. A program is frozen at any stage of its launch: one that just passed
/// its gate runs no instruction.
fn wanted(orders: &Orders, freezer: Freezer, now: Instant) -> Option<Wanted> {
    let still = orders.stop.is_some() && orders.end.is_none() && !orders.leave_sessions;
    match (still, freezer) {
        (true, Freezer::Frozen) | (false, Freezer::Thawed) => None,
        (true, Freezer::Freezing(again)) => (again <= now).then_some(Wanted::Freeze),
        (true, Freezer::Unknown | Freezer::Thawed) => Some(Wanted::Freeze),
        (false, Freezer::Unknown | Freezer::Freezing(_) | Freezer::Frozen) => Some(Wanted::Thaw),
    }
}

/// Reports that a process has stopped which was frozen while it waited for an answer, and is paused with that.
async fn report_if_frozen(cx: &Context, orders: &Orders, freezer: Freezer) {
    if freezer == Freezer::Frozen && orders.stop.is_some() && cx.owner.is_pausing().is_some() {
        cx.owner.report_stopped().await;
    }
}

/// Freezes the tree of a session, and reports that the process has stopped when all of it is frozen.
async fn freeze(cx: &Context, session: &Attended<'_>) -> Freezer {
    match session.order(SessionVerb::Freeze).await {
        Ok(protocol::Outcome::Done) => cx.owner.report_stopped().await,
        // One that has ended never stops; its end is noticed when its record is written.
        Ok(protocol::Outcome::Kept | protocol::Outcome::NoProcess) | Err(_) => {
            return Freezer::Freezing(Instant::now() + FREEZE_AGAIN);
        }
        Ok(other) => {
            let why = if let protocol::Outcome::Failed { call, errno } = other {
                format!("{call} failed with {errno}")
            } else {
                format!("its shim answered {other:?}")
            };
            cx.owner.warn(format!("PID {} cannot be frozen: {why}", cx.process.of.pid));
            cx.owner.resume().await;
        }
    }
    Freezer::Frozen
}

impl Attended<'_> {
    async fn rungs(&self) -> Rungs {
        match self.connection.rungs() {
            Some(rungs) => rungs.clone(),
            // A shim of an earlier version.
            None => match self.order(SessionVerb::Stat).await {
                Ok(protocol::Outcome::Stat(stat)) => stat.rungs,
                Ok(_) | Err(_) => Rungs::default(),
            },
        }
    }

    pub(super) async fn order(&self, verb: SessionVerb) -> Result<protocol::Outcome, Gone> {
        self.sessions.order(&self.folder, &self.connection, verb).await
    }

    /// Tells the program to end. At its gate it can do nothing about SIGTERM, so it never runs. Returns the problem, if
    /// there was one.
    async fn tell_to_end(&self, signal: Signal) -> Option<String> {
        if signal == Signal::Term && self.program.gate {
            match self.order(SessionVerb::Abort { by: None }).await {
                Ok(protocol::Outcome::Done | protocol::Outcome::Kept | protocol::Outcome::NoProcess) | Err(_) => {
                    return None;
                }
                // It has passed its gate.
                Ok(
                    protocol::Outcome::WrongStage { .. }
                    | protocol::Outcome::Unknown { .. }
                    | protocol::Outcome::Failed { .. }
                    | protocol::Outcome::Stat(_),
                ) => {}
            }
        }
        self.pass_on(signal).await
    }

    /// Sends the program the operating system's equivalent of a signal. Returns the problem, if there was one.
    pub(super) async fn pass_on(&self, signal: Signal) -> Option<String> {
        let number = |signal: rustix::process::Signal| SessionVerb::signal(signal.as_raw());
        let verb = match signal {
            Signal::Term => number(rustix::process::Signal::TERM),
            Signal::Int => number(rustix::process::Signal::INT),
            Signal::Kill => SessionVerb::Kill,
            Signal::Pause => number(rustix::process::Signal::TSTP),
            Signal::Resume => number(rustix::process::Signal::CONT),
        };
        match self.order(verb).await {
            Ok(protocol::Outcome::Failed { call, errno }) => Some(format!("{call} failed with {errno}")),
            Ok(protocol::Outcome::WrongStage { message } | protocol::Outcome::Unknown { message }) => Some(message),
            // A process that is gone needs no signal.
            Ok(protocol::Outcome::Done | protocol::Outcome::Kept | protocol::Outcome::NoProcess)
            | Ok(protocol::Outcome::Stat(_))
            | Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
