//! From what happened to a process to the records that say so.

use relive_core::{Machine, Signal, SuspendReason, Timestamp};
use relive_journal::record::{Body, Ended, Paused, Resumed, ResumedBy, SignalMask, Signalled};

/// What the records of a change say beside the change itself.
#[derive(Debug, Clone)]
pub(crate) struct RecordDetails {
    /// The id of the request.
    pub(crate) request: Option<String>,
    /// What ends a pause, if one ends.
    pub(crate) resumed_by: ResumedBy,
    /// When a pause ends without being asked, if one begins.
    pub(crate) resume_at: Option<Timestamp>,
}

impl Default for RecordDetails {
    fn default() -> Self {
        Self { request: None, resumed_by: ResumedBy::User, resume_at: None }
    }
}

/// Returns the records by which a journal follows from `before` to `after`. An end stands for everything before it.
pub(crate) fn between(before: &Machine, after: &Machine, note: &RecordDetails) -> Vec<Body> {
    let req = note.request.clone();
    if let (None, Some(end)) = (before.end(), after.end()) {
        return vec![Body::Ended(Ended { end: end.clone(), req })];
    }
    let mut records = Vec::new();
    let signalled = |signal, cause, pending| Body::Signalled(Signalled { signal, cause, pending, req: req.clone() });
    for (signal, cause) in before.pending() {
        // A pending PAUSE and RESUME cancel each other: the journal is told the opposite, before what is pending now.
        let cancelled = !after.pending().any(|(kept, _)| kept == signal);
        if let Some(opposite) = signal.opposite().filter(|_| cancelled && before.pause() == after.pause()) {
            records.push(signalled(opposite, cause, true));
        }
    }
    for (signal, cause) in after.pending() {
        if !before.pending().any(|(kept, _)| kept == signal) {
            records.push(signalled(signal, cause, true));
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
        (Some(_), None) => records.push(Body::Resumed(Resumed { by: note.resumed_by, req: req.clone() })),
        (earlier, Some((asked_at, reason))) if earlier != Some((asked_at, reason)) => {
            let resume_at = note.resume_at;
            records.push(Body::Paused(Paused { reason, asked_at, resume_at, req: req.clone() }));
        }
        (None | Some(_), None | Some(_)) => {}
    }
    if (before.mask(), before.handlers()) != (after.mask(), after.handlers()) {
        // Last: signals that are not blocked any more have landed, and their records are before it.
        let (blocked, handled) = (after.mask(), after.handlers());
        records.push(Body::SignalMask(SignalMask { blocked, handled, req: req.clone() }));
    }
    // A journal takes some records for the landing of pending signals. Those that are still pending are kept again.
    let kept = after.pending().filter(|(signal, _)| records.iter().any(|record| seems_to_land(record, *signal)));
    let kept: Vec<Body> = kept.map(|(signal, cause)| signalled(signal, cause, true)).collect();
    records.extend(kept);
    records
}

/// Tells whether a journal takes this record for the landing of a pending signal.
fn seems_to_land(record: &Body, signal: Signal) -> bool {
    if let Body::SignalMask(mask) = record {
        return !mask.blocked.contains(signal);
    }
    let by_user = matches!(
        record,
        Body::Paused(Paused { reason: SuspendReason::User, .. })
            | Body::Resumed(Resumed { by: ResumedBy::User | ResumedBy::Descendant, .. })
    );
    by_user && signal.opposite().is_some()
}

#[cfg(test)]
mod tests;
