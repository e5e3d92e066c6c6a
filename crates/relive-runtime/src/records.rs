//! From what happened to a process to the records that say so.

use relive_core::{Machine, State, Timestamp};
use relive_journal::record::{Body, Ended, Paused, Resumed, ResumedBy, SignalMask, Signalled};

/// What the records of a change say beside the change itself.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    /// The id of the request.
    pub(crate) request: Option<String>,
    /// What ends a pause, if one ends.
    pub(crate) resumed_by: ResumedBy,
    /// When a pause ends without being asked, if one begins.
    pub(crate) resume_at: Option<Timestamp>,
}

impl Default for Note {
    fn default() -> Self {
        Self { request: None, resumed_by: ResumedBy::User, resume_at: None }
    }
}

/// Returns the records by which a journal follows from `before` to `after`. An end stands for everything before it.
pub(crate) fn between(before: &Machine, after: &Machine, note: &Note) -> Vec<Body> {
    let (req, mask_req) = (note.request.clone(), note.request.clone());
    if let (None, Some(end)) = (before.end(), after.end()) {
        return vec![Body::Ended(Ended { end: end.clone(), req })];
    }
    let mut records = Vec::new();
    let signalled = |signal, cause, pending| Body::Signalled(Signalled { signal, cause, pending, req: req.clone() });
    for (signal, cause) in after.pending() {
        if !before.pending().any(|(kept, _)| kept == signal) {
            records.push(signalled(signal, cause, true));
        }
    }
    for (signal, cause) in before.pending() {
        // A pending PAUSE and RESUME cancel each other: the journal is told the opposite.
        let cancelled = after.state() == State::Running && !after.pending().any(|(kept, _)| kept == signal);
        if let Some(opposite) = signal.opposite().filter(|_| cancelled && before.pause() == after.pause()) {
            records.push(signalled(opposite, cause, true));
        }
    }
    if let Some((signal, cause)) = after.ending().filter(|ending| before.ending() != Some(*ending)) {
        #[cfg(feature = "faults")]
        if crate::faults::is_on("no-signalled") {
            return records;
        }
        records.push(signalled(signal, cause, false));
    }
    match (before.pause(), after.pause()) {
        (Some(_), None) => records.push(Body::Resumed(Resumed { by: note.resumed_by, req })),
        (earlier, Some((asked_at, reason))) if earlier != Some((asked_at, reason)) => {
            records.push(Body::Paused(Paused { reason, asked_at, resume_at: note.resume_at, req }));
        }
        (None | Some(_), None | Some(_)) => {}
    }
    if (before.mask(), before.handlers()) != (after.mask(), after.handlers()) {
        // Last: signals that are not blocked any more have landed, and their records are before it.
        records.push(Body::SignalMask(SignalMask { blocked: after.mask(), handled: after.handlers(), req: mask_req }));
    }
    records
}
