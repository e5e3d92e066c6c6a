//! Converts a change of a process to records.

use relive_core::{Cause, Machine, Signal, SuspendReason, Timestamp};
use relive_journal::record::{Body, Ended, Paused, Proceeded, Resumed, ResumedBy, SignalMask, Signalled};

/// Details of the records besides the change itself.
#[derive(Debug, Clone)]
pub(crate) struct RecordDetails {
    pub(crate) request: Option<String>,
    /// What ends a pause, if one ends.
    pub(crate) resumed_by: ResumedBy,
    /// When a new pause ends automatically, if it does.
    pub(crate) resume_at: Option<Timestamp>,
    /// Who ends a pause, if one ends.
    pub(crate) cause: Option<Cause>,
    /// Whether a person has to be told of the end, if it ends.
    pub(crate) unseen: bool,
}

impl Default for RecordDetails {
    fn default() -> Self {
        Self { request: None, resumed_by: ResumedBy::User, resume_at: None, cause: None, unseen: false }
    }
}

/// Returns the records that lead from `before` to `after`. An end replaces everything before it.
pub(crate) fn between(before: &Machine, after: &Machine, note: &RecordDetails) -> Vec<Body> {
    let req = note.request.clone();
    if let (None, Some(end)) = (before.end(), after.end()) {
        return vec![Body::Ended(Ended { end: end.clone(), unseen: note.unseen, req })];
    }
    let mut records = Vec::new();
    let signalled =
        |signal, cause, pending| Body::Signalled(Signalled { signal, cause, end: None, pending, req: req.clone() });
    for (signal, cause) in before.pending() {
        // A pending PAUSE and RESUME cancel each other: the opposite is recorded before the pending ones.
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
        let end = after.own_end().cloned().map(Box::new);
        records.push(Body::Signalled(Signalled { signal, cause, end, pending: false, req: req.clone() }));
    }
    match (before.pause(), after.pause()) {
        (Some(_), None) => {
            let cause = note.cause.filter(|_| matches!(note.resumed_by, ResumedBy::User | ResumedBy::Descendant));
            records.push(Body::Resumed(Resumed { by: note.resumed_by, cause, req: req.clone() }));
        }
        (earlier, Some((asked_at, reason))) if earlier != Some((asked_at, reason)) => {
            let resume_at = note.resume_at;
            let cause = after.paused_by();
            records.push(Body::Paused(Paused { reason, asked_at, resume_at, cause, req: req.clone() }));
        }
        (None | Some(_), None | Some(_)) => {}
    }
    if before.stopwatch().is_held() && !after.stopwatch().is_held() {
        records.push(Body::Proceeded(Proceeded {}));
    }
    if (before.mask(), before.handlers()) != (after.mask(), after.handlers()) {
        // Last: signals that are no longer blocked were delivered, and their records come before it.
        let (blocked, handled) = (after.mask(), after.handlers());
        records.push(Body::SignalMask(SignalMask { blocked, handled, req: req.clone(), ..SignalMask::default() }));
    }
    // A journal takes some records for the delivery of pending signals. Signals that are still pending are recorded
    // again.
    let kept = after.pending().filter(|(signal, _)| records.iter().any(|record| seems_to_land(record, *signal)));
    let kept: Vec<Body> = kept.map(|(signal, cause)| signalled(signal, cause, true)).collect();
    records.extend(kept);
    records
}

/// Returns whether a journal takes this record for the delivery of a pending signal.
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
