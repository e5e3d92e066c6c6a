//! A human's word: what became of a call in doubt, and whether a call may be made.
//!
//! The answer and the end of the pause are one synced write: a daemon killed at any moment around it either asks again
//! or goes by the answer.

use std::fs::File;
use std::sync::Arc;

use relive_api::{Affected, ParkedCall, Process, Resolution, ResolveRequest};
use relive_core::{ErrorCode, Pid, SuspendReason, Uuid};
use relive_journal::conversation::Message;
use relive_journal::payload::Blobs;
use relive_journal::record::{Approval, Body, Call, Decision, Outcome, Resolved, Resumed, ResumedBy};
use relive_journal::recovery::{Lookup, Recovery};
use relive_journal::{DataFolder, Durability, History};
use serde_json::json;

use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// What can be said to a process that waits for a decision; `None` if it waits for something else.
pub(crate) fn choices(reason: SuspendReason) -> Option<&'static str> {
    match reason {
        SuspendReason::InDoubt => Some("--done | --not-done | --retry"),
        SuspendReason::Approval => Some("--allow | --deny"),
        SuspendReason::User
        | SuspendReason::BudgetExceeded
        | SuspendReason::DiskFull
        | SuspendReason::IoError
        | SuspendReason::CrashLoop
        | SuspendReason::Quota
        | SuspendReason::NeedsCredentials
        | SuspendReason::DaemonStop => None,
    }
}

impl Runtime {
    /// Takes a person's word, and lets the process go on.
    pub async fn decide(self: &Arc<Self>, id: &str, request: ResolveRequest) -> Result<Affected> {
        let not_parked = || {
            let message = format!("`{id}` does not wait for a decision");
            Error::new(ErrorCode::Conflict, message).with_hint(format!("relive info {id}"))
        };
        let pid = self.find_or_ended(id).await?.ok_or_else(not_parked)?;
        let who = self.who(pid)?;
        self.stands_still(pid).await;
        let _turn = self.turn(who.uuid).lock().await;
        let reason = {
            let state = self.lock();
            let view = state.table.view(pid, self.now()).ok_or_else(not_parked)?;
            let body = state.bodies.contains_key(&pid);
            view.suspend_reason.filter(|_| !body && view.ending.is_none()).ok_or_else(not_parked)?
        };
        let choices = choices(reason).ok_or_else(not_parked)?;
        check(&request, pid, reason, choices)?;
        let writer = self.writer_of_suspended(who).await?;
        let (calls, mut batch): (Vec<u32>, Vec<Body>) = records(writer.history(), &request).into_iter().unzip();
        if writer.history().paused.is_some() {
            batch.push(Body::Resumed(Resumed { by: ResumedBy::User }));
        }
        let mut journal = self.journal(who.uuid, writer);
        let now = self.now();
        journal.append(now, batch, Durability::Synced).await?;
        for call in calls {
            journal.event(now, "resolved", json!({"call": call, "outcome": request.outcome})).await;
        }
        journal.event(now, "resumed", json!({"by": ResumedBy::User})).await;
        drop(journal);
        let mut state = self.lock();
        let reached = state.table.lift(pid, reason, self.now())?;
        Ok(self.reached(&mut state, pid, reached))
    }

    /// Waits while a process that is about to be parked puts its journal down: whoever watches it hears of the question
    /// a moment before that.
    async fn stands_still(&self, pid: Pid) {
        loop {
            let changed = self.bodies_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.lock();
                let reason = state.table.view(pid, self.now()).and_then(|view| view.suspend_reason);
                if reason.and_then(choices).is_none() || !state.bodies.contains_key(&pid) {
                    return;
                }
            }
            changed.await;
        }
    }

    /// With the calls that wait for a human's word.
    pub(crate) async fn with_parked(&self, process: Process) -> Process {
        let Some(reason) = process.suspend_reason.filter(|reason| choices(*reason).is_some()) else { return process };
        let (uuid, asked_at) = (process.uuid, process.paused_at.unwrap_or(process.created_at));
        let found = self.on_disk(move |data| parked(data, uuid)).await;
        // What cannot be read is not shown; whoever decides is told why.
        let Ok(Ok((asked, open))) = found else { return process };
        if reason == SuspendReason::Approval {
            return Process { approval: asked.map(|asked| ParkedCall { at: asked_at, ..asked }), ..process };
        }
        Process { in_doubt: open, ..process }
    }
}

fn check(request: &ResolveRequest, pid: Pid, reason: SuspendReason, choices: &str) -> Result<()> {
    let (fits, about) = match request.outcome {
        Resolution::Done | Resolution::NotDone | Resolution::Retry => (reason == SuspendReason::InDoubt, "in doubt"),
        Resolution::Allow | Resolution::Deny => (reason == SuspendReason::Approval, "put to you"),
    };
    if !fits {
        let message = format!("process {pid} has no call that is {about}: it is {}", relive_api::reason_word(reason));
        return Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resolve {pid} {choices}")));
    }
    let extras = request.always || request.reason.is_some();
    if extras && reason == SuspendReason::InDoubt {
        return Err(Error::new(ErrorCode::Invalid, "`always` and `reason` go with an approval only")
            .with_hint(format!("relive resolve {pid} {choices}")));
    }
    Ok(())
}

/// The decision about each call, as the journal has it.
fn records(history: &History, request: &ResolveRequest) -> Vec<(u32, Body)> {
    let settle = |outcome| {
        let resolved = |call| (call, Body::Resolved(Resolved { call, outcome, by_policy: false }));
        history.open_calls().map(|open| resolved(open.call)).collect()
    };
    let answer = |decision| {
        let (always, reason) = (request.always, request.reason.clone());
        let answer = history.question().map(|asked| Approval { decision, always, reason, ..asked.clone() });
        answer.into_iter().map(|answer| (answer.call, Body::Approval(answer))).collect()
    };
    match request.outcome {
        Resolution::Done => settle(Outcome::Done),
        Resolution::NotDone => settle(Outcome::NotDone),
        Resolution::Retry => settle(Outcome::Retry),
        Resolution::Allow => answer(Decision::Allowed),
        Resolution::Deny => answer(Decision::Denied),
    }
}

/// The call that was put to a human, and those in doubt.
fn parked(data: &DataFolder, uuid: Uuid) -> Result<(Option<ParkedCall>, Vec<ParkedCall>)> {
    let folder = data.folder(uuid);
    let (history, _) = data.history(uuid)?;
    let journal = File::open(folder.steps())?;
    let last = history.conversation(&journal)?.into_iter().rev().find_map(|message| match message {
        Message::Model { calls, .. } => Some(calls),
        Message::User { .. } | Message::Summary { .. } | Message::Tool { .. } => None,
    });
    let calls = last.unwrap_or_default();
    let blobs = Blobs::new(data.io().disk.clone(), folder.path());
    let at = history.last_at.unwrap_or_default();
    let args = |call: &Call| {
        let text = blobs.json(&call.args).ok()?;
        serde_json::from_str(&text).ok()
    };
    let show = |place: u32, at, looked| {
        let call = calls.get(place as usize)?;
        Some(ParkedCall { call: place, tool: call.name.clone(), args: args(call).unwrap_or_default(), at, looked })
    };
    let asked = history.question().and_then(|asked| show(asked.call, at, None));
    let open = history.open_calls().filter_map(|open| show(open.call, open.at, Some(looked(&open.recovery))));
    Ok((asked, open.collect()))
}

/// What was looked at, and why that does not settle it.
fn looked(recovery: &Recovery) -> String {
    match recovery {
        Recovery::Check { path, before, after } => {
            let hash = |hash: &Option<relive_journal::Hash>| match hash {
                Some(hash) => format!("sha256 {}", &hash.to_string()[..12]),
                None => "no file".to_owned(),
            };
            let (path, before, after) = (path.display(), hash(before), hash(after));
            format!("{path} is neither as it was before ({before}) nor as it was to become ({after})")
        }
        Recovery::Join => "the session it ran in is lost: there is no exit record".to_owned(),
        Recovery::Lookup { what: Lookup::Child(uuid) } => format!("whether process {uuid} was begun could not be told"),
        Recovery::Lookup { what: Lookup::Message(id) } => {
            format!("whether message {id} was delivered could not be told")
        }
        Recovery::Lookup { what: Lookup::Wait(_) | Lookup::Until(_) } | Recovery::Rerun | Recovery::SameKey => {
            "the tool is not there any more".to_owned()
        }
        Recovery::Doubt => "nothing: this tool leaves no trace that Relive could look for".to_owned(),
    }
}
