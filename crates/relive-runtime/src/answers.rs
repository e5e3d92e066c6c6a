//! A person's answers: whether a call may be made, the outcome of a call in doubt, and what an agent asks.
//!
//! The answer and the end of the pause are one synced write: a daemon killed at any moment around it either asks again
//! or keeps the answer. The first answer wins; a later one is refused with the first.

use std::sync::Arc;

use jiff::tz::TimeZone;
use relive_api::{ANSWER_MAX, Affected, PendingCall, PendingQuestion, Process, Resolution, ResolveRequest};
use relive_cli_agent::{FORM_TOOL, Form};
use relive_core::{ErrorCode, Pid, SuspendReason, Timestamp, Uuid};
use relive_journal::history::Reply;
use relive_journal::payload::Blobs;
use relive_journal::record::{Approval, Body, Call, Decision, Outcome, Question, Resolved};
use relive_journal::recovery::{Lookup, Recovery};
use relive_journal::{DataDirectory, History};
use relive_types::rule::COMMAND_TOOL;
use serde_json::json;

use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::owner::{Change, Lane, Turn};
use crate::pending::{Pending, Since};
use crate::records::RecordDetails;
use crate::runtime::Runtime;

/// What a question about a host has in place of a tool.
const HOST_QUESTION: &str = "network";

/// The open questions of a process, according to its journal.
#[derive(Debug)]
struct Open {
    /// The records that this answer would add, each with its call.
    records: Vec<(u32, Body)>,
    /// Whether a person was asked about a call.
    asked: bool,
    /// The tool of that call.
    tool: Option<String>,
    /// Whether the agent has asked something.
    question: bool,
    /// Whether calls are in doubt.
    in_doubt: bool,
    /// Whether the answered question is the open one.
    is_meant: bool,
    /// Whether a question is meant that was asked before, or the last one, which has its answer then.
    is_earlier: bool,
    /// The last answer about a call.
    earlier: Option<Approval>,
    /// When it was given.
    earlier_at: Option<Timestamp>,
    /// The answer that the question which is meant has, or the last one.
    answered: Option<Reply>,
}

impl Runtime {
    /// Records a person's answer, and resumes the process.
    pub async fn answer(
        self: &Arc<Self>,
        id: &str,
        request: ResolveRequest,
        request_id: Option<String>,
    ) -> Result<Affected> {
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let meant = request.id;
            let ended = |earlier: Option<String>| {
                let message = match earlier {
                    Some(earlier) => format!("`{id}` has its answer already: {earlier}; it has ended since"),
                    None => format!("`{id}` does not wait for an answer: it has ended"),
                };
                Error::new(ErrorCode::Conflict, message).with_hint(format!("relive info {id}"))
            };
            let request_id = request_id.map(|id| format!("resolve:{id}"));
            let found = runtime.look_up_to_change(&id).await?;
            let (uuid, note) = runtime.identity_of(&found)?;
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            let answered = match found {
                LookedUp::Living { .. } => turn.answer(&request, request_id).await?,
                // A repeat: it was accepted before the end.
                LookedUp::Remembered(_) | LookedUp::OnDisk(_) | LookedUp::Unrecovered(_) => {
                    turn.answer_given(request_id).await?
                }
            };
            let pid = match answered {
                Some(pid) => pid,
                None => return Err(ended(turn.look(move |history| earlier_answer(history, meant)).await?)),
            };
            let pause = turn.machine().and_then(|machine| machine.pause());
            let is_paused = pause.is_some_and(|(_, reason)| reason == SuspendReason::User);
            let paused = Vec::from_iter(is_paused.then_some(pid));
            Ok(Affected { affected: 1, pids: vec![pid], paused, note, ..Affected::default() })
        })
        .await
    }

    /// Adds the calls that wait for a person.
    pub(crate) async fn with_pending_calls(&self, process: Process) -> Process {
        let Some(reason) = process.suspend_reason.filter(|reason| reason.awaits_answer()) else { return process };
        let (uuid, asked_at) = (process.uuid, process.paused_at.unwrap_or(process.created_at));
        // An unreadable journal shows no calls; an answer to it is refused with the reason.
        let Some((asked, open)) = self.pending(uuid, reason, asked_at).await else { return process };
        // A CLI agent says itself what it asks for: a subagent's call is not in the journal.
        let named = self.bodies.cli.agents.get(uuid).and_then(|agent| agent.asked);
        let asked = asked.map(|asked| match named {
            Some(named) => PendingCall { tool: named.tool, args: named.args, ..asked },
            None => asked,
        });
        if reason == SuspendReason::Question {
            let question = asked.map(|asked| question_of(PendingCall { at: asked_at, ..asked }));
            return Process { question, ..process };
        }
        if reason == SuspendReason::Approval {
            return Process { approval: asked.map(|asked| PendingCall { at: asked_at, ..asked }), ..process };
        }
        Process { in_doubt: open, ..process }
    }
}

impl Runtime {
    /// Returns the calls that a process waits for an answer to, from its journal if anything has changed since it was read.
    async fn pending(&self, uuid: Uuid, reason: SuspendReason, paused_at: Timestamp) -> Option<Pending> {
        // Noted before it is read: a change in between makes it old.
        let position = self.changes.feed().noted(uuid);
        let since = position.map(|position| Since { position, reason, paused_at });
        if let Some(known) = since.and_then(|since| self.pending_calls.get(uuid, since)) {
            return Some(known);
        }
        let pending = self.on_disk(move |data| pending_calls(data, uuid)).await.ok()?.ok()?;
        if let Some(since) = since {
            self.pending_calls.insert(uuid, since, &pending, |uuid| self.changes.feed().noted(uuid));
        }
        Some(pending)
    }
}

impl Turn {
    /// Returns the last PID of a process that has accepted this answer and ended since.
    async fn answer_given(&mut self, request_id: Option<String>) -> Result<Option<Pid>> {
        if self.was_answered(request_id.as_deref()).await? { self.last_pid().await } else { Ok(None) }
    }

    /// Records an answer, and returns the process; `None` if it has ended without it.
    async fn answer(&mut self, request: &ResolveRequest, request_id: Option<String>) -> Result<Option<Pid>> {
        let Some(machine) = self.machine() else { return self.answer_given(request_id).await };
        let pid = machine.incarnation().pid;
        if self.was_answered(request_id.as_deref()).await? {
            return Ok(Some(pid));
        }
        if machine.told_to_end().is_some() {
            let message = format!("PID {pid} is being ended: there is nothing to answer");
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        let (asked, req) = (request.clone(), request_id.clone());
        let open = self.look(move |history| open(history, &asked, req.as_deref())).await?;
        // A person is asked about a call in doubt only after the process has stopped for it.
        let parked = machine.pause().map(|(_, reason)| reason).filter(|reason| reason.awaits_answer());
        let in_doubt = open.in_doubt && parked == Some(SuspendReason::InDoubt);
        check(request, pid, &open, in_doubt)?;
        if request.outcome == Resolution::Answer {
            self.check_form(request, pid).await?;
        }
        self.check_offered(request, pid)?;
        let mut change = Change::of(machine, RecordDetails::default());
        let calls: Vec<u32> = open.records.iter().map(|(call, _)| *call).collect();
        change.first = open.records.into_iter().map(|(_, body)| body).collect();
        if let Some(reason) = parked {
            self.end_pause(&mut change, reason)?;
        }
        let event = |call| match &request.rule {
            Some(rule) => ("resolved", json!({"call": call, "outcome": request.outcome, "rule": rule})),
            None if request.outcome == Resolution::Answer => {
                ("answered", json!({"call": call, "answer": request.answer}))
            }
            None => ("resolved", json!({"call": call, "outcome": request.outcome})),
        };
        change.events.extend(calls.into_iter().map(event));
        self.commit(change).await?;
        Ok(Some(pid))
    }
}

impl Turn {
    /// Refuses an answer that does not fill in the form which is asked for.
    async fn check_form(&self, request: &ResolveRequest, pid: Pid) -> Result<()> {
        let uuid = self.uuid();
        let live = self.runtime.bodies.cli.agents.get(uuid).and_then(|agent| agent.asked);
        let form = match live {
            Some(asked) => form_of(&asked.tool, &asked.args),
            None => {
                let (asked, _) = self.runtime.on_disk(move |data| pending_calls(data, uuid)).await??;
                asked.and_then(|asked| form_of(&asked.tool, &asked.args))
            }
        };
        let Some(form) = form else { return Ok(()) };
        let filled = form.fill(request.answer.as_deref().unwrap_or_default());
        let refused = |expected| Error::new(ErrorCode::Invalid, format!("PID {pid} asks for a form: {expected}"));
        filled.map(drop).map_err(|expected| refused(expected).with_hint(format!("relive resolve {pid}")))
    }
}

impl Turn {
    /// Refuses an answer that the agent which asked does not take.
    fn check_offered(&self, request: &ResolveRequest, pid: Pid) -> Result<()> {
        let live = self.runtime.bodies.cli.agents.get(self.uuid()).and_then(|agent| agent.asked);
        let Some(offered) = live.map(|asked| asked.offered) else { return Ok(()) };
        let always = request.always && request.rule.is_none();
        let message = match request.outcome {
            Resolution::Allow if always && !offered.allow_always => "offers no way to allow this",
            Resolution::Allow if !always && !offered.allow && offered.allow_always => {
                "offers to allow this always, and not once"
            }
            Resolution::Allow if !always && !offered.allow => "offers no way to allow this",
            Resolution::Deny if !offered.deny => "offers no way to deny this",
            Resolution::Allow | Resolution::Deny => return Ok(()),
            Resolution::Done | Resolution::NotDone | Resolution::Retry | Resolution::Answer => return Ok(()),
        };
        let message = format!("the agent of PID {pid} {message}");
        Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resolve {pid}")))
    }
}

/// Refuses an answer to a question that was not asked.
fn check(request: &ResolveRequest, pid: Pid, open: &Open, in_doubt: bool) -> Result<()> {
    // It shows the question and the answers. A hint that names an answer would give it when it is typed.
    let hint = || format!("relive resolve {pid}");
    let conflict = |message: String| Error::new(ErrorCode::Conflict, message);
    let approves = match request.outcome {
        Resolution::Answer => return check_answer(request, pid, open),
        Resolution::Done | Resolution::NotDone | Resolution::Retry => false,
        Resolution::Allow | Resolution::Deny => true,
    };
    if request.answer.is_some() {
        return Err(Error::new(ErrorCode::Invalid, "`answer` is only for questions").with_hint(hint()));
    }
    if open.question && open.is_meant {
        let message = format!("PID {pid} asks a question, which has to be answered with a text");
        return Err(conflict(message).with_hint(hint()));
    }
    check_is_meant(request, pid, open, in_doubt)?;
    let (asked, in_doubt) = (open.asked && open.is_meant, in_doubt && open.is_meant);
    match (approves, asked, in_doubt) {
        (true, true, _) => check_rule(request, open),
        (false, _, true) if request.always || request.reason.is_some() => {
            let message = "`always` and `reason` are only for approvals";
            Err(Error::new(ErrorCode::Invalid, message).with_hint(hint()))
        }
        (false, _, true) => Ok(()),
        (true, false, true) => {
            let message = format!("PID {pid} has a call in doubt and does not wait for an approval");
            Err(conflict(message).with_hint(hint()))
        }
        (false, true, false) => {
            let message = format!("PID {pid} waits for your approval, and no call is in doubt");
            Err(conflict(message).with_hint(hint()))
        }
        (_, false, false) => {
            let message = match &open.earlier {
                Some(earlier) => {
                    let at = open.earlier_at.map(|at| format!(" ({})", answered_at(at))).unwrap_or_default();
                    format!("PID {pid} has its answer already: {}{at}", approval_in_words(earlier))
                }
                None => format!("PID {pid} does not wait for an answer"),
            };
            Err(conflict(message).with_hint(format!("relive info {pid}")))
        }
    }
}

/// Refuses an answer to a question that was not asked, or has its answer.
fn check_answer(request: &ResolveRequest, pid: Pid, open: &Open) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorCode::Invalid, message));
    match request.answer.as_deref() {
        None => return invalid("the answer is missing".to_owned()),
        Some(answer) if answer.trim().is_empty() => return invalid("the answer is empty".to_owned()),
        Some(answer) if answer.len() > ANSWER_MAX => {
            return invalid(format!("the answer has {} bytes, and at most {ANSWER_MAX} are allowed", answer.len()));
        }
        Some(_) => {}
    }
    if request.always || request.reason.is_some() || request.rule.is_some() {
        return invalid("`always`, `reason` and `rule` are only for approvals".to_owned());
    }
    if open.question && open.is_meant {
        return Ok(());
    }
    check_is_meant(request, pid, open, open.in_doubt)?;
    let message = match &open.answered {
        // Without a number, what it asks now is meant.
        Some(Reply { text, at, .. }) if request.id.is_some() || !open.asked => {
            format!("PID {pid} has its answer already: {text} ({})", answered_at(*at))
        }
        Some(_) | None => format!("PID {pid} asks no question"),
    };
    Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive info {pid}")))
}

/// Refuses an answer to another question than the one that is asked now.
fn check_is_meant(request: &ResolveRequest, pid: Pid, open: &Open, in_doubt: bool) -> Result<()> {
    let (Some(id), true) = (request.id, open.question || open.asked || in_doubt) else { return Ok(()) };
    // Whoever answers one that has its answer is told that.
    let has_answer = open.is_earlier && (open.earlier.is_some() || open.answered.is_some());
    if open.is_meant || has_answer {
        return Ok(());
    }
    let message = format!("PID {pid} does not ask question {id}: it asks something else now");
    Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resolve {pid}")))
}

/// Refuses a rule that does not go with the answer or the call.
fn check_rule(request: &ResolveRequest, open: &Open) -> Result<()> {
    let Some(rule) = &request.rule else { return Ok(()) };
    let invalid = |message: String| Err(Error::new(ErrorCode::Invalid, message));
    if request.outcome != Resolution::Allow || !request.always {
        return invalid(format!("`{rule}`: a rule is only stored with an answer that always allows"));
    }
    match open.tool.as_deref() {
        Some(COMMAND_TOOL) => Ok(()),
        Some(tool) => invalid(format!("`{rule}`: the call that is asked about is of {tool}, which runs no command")),
        None => invalid(format!("`{rule}`: the journal does not say which tool was asked about")),
    }
}

/// Says what a person answered to a question of a process that has ended, and when; the last question if none is named.
fn earlier_answer(history: &History, question: Option<u64>) -> Option<String> {
    let verdict = history.last_verdict;
    let in_doubt = verdict.filter(|last| last.outcome.is_some() && last.question > history.question_seq);
    let question = question.or(in_doubt.map(|last| last.question)).unwrap_or(history.question_seq);
    if let Some(reply) = history.last_reply.as_ref().filter(|reply| reply.question == question) {
        return Some(format!("{} ({})", reply.text, answered_at(reply.at)));
    }
    let verdict = verdict.filter(|last| last.question == question)?;
    let said = match verdict.outcome {
        Some(Outcome::Done) => "the call happened".to_owned(),
        Some(Outcome::NotDone) => "the call did not happen".to_owned(),
        Some(Outcome::Retry) => "the call was to be repeated".to_owned(),
        None => approval_in_words(history.last_answer.as_ref()?),
    };
    Some(format!("{said} ({})", answered_at(verdict.at)))
}

fn approval_in_words(approval: &Approval) -> String {
    let word = if approval.decision == Decision::Allowed { "allowed" } else { "denied" };
    match (&approval.host, approval.name.as_deref().unwrap_or("the tool")) {
        (Some(host), _) => format!("{host} was {word}"),
        (None, tool) => format!("the call of {tool} was {word}"),
    }
}

/// Says when an answer was given, in the time zone of the daemon, which is that of the shell that started it.
fn answered_at(at: Timestamp) -> String {
    format!("at {}", at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %:z"))
}

/// Returns the open questions of a journal, and the records that this answer would add.
fn open(history: &History, request: &ResolveRequest, request_id: Option<&str>) -> Open {
    let req = request_id.map(str::to_owned);
    let settle = |outcome| {
        let resolved = |call| (call, Body::Resolved(Resolved { call, outcome, by_policy: false, req: req.clone() }));
        history.open_calls().map(|open| resolved(open.call)).collect()
    };
    let answer = |decision| {
        let (rule, reason) = (request.rule.clone(), request.reason.clone());
        let always = request.always && rule.is_none();
        let answer = history.question().map(|asked| Approval {
            decision,
            always,
            rule,
            reason,
            req: req.clone(),
            ..asked.clone()
        });
        answer.into_iter().map(|answer| (answer.call, Body::Approval(answer))).collect()
    };
    Open {
        records: match request.outcome {
            Resolution::Done => settle(Outcome::Done),
            Resolution::NotDone => settle(Outcome::NotDone),
            Resolution::Retry => settle(Outcome::Retry),
            Resolution::Allow => answer(Decision::Allowed),
            Resolution::Deny => answer(Decision::Denied),
            Resolution::Answer => {
                let answered = |asked: &Question| Question { answer: request.answer.clone(), req, ..asked.clone() };
                let answer = history.open_question().map(answered);
                answer.into_iter().map(|answer| (answer.call, Body::Question(answer))).collect()
            }
        },
        question: history.open_question().is_some(),
        asked: history.question().is_some(),
        tool: history.question().and_then(|asked| asked.name.clone()),
        in_doubt: history.open_calls().next().is_some(),
        is_meant: request.id.is_none_or(|id| {
            let is_open = history.question().is_some() || history.open_question().is_some();
            let asked = is_open && history.question_seq == id;
            asked || history.open_calls().any(|open| open.seq == id)
        }),
        is_earlier: request.id.is_some_and(|id| id <= history.question_seq),
        earlier: history.last_answer.clone(),
        earlier_at: history.last_verdict.filter(|last| last.outcome.is_none()).map(|last| last.at),
        answered: history.last_reply.clone().filter(|reply| request.id.is_none_or(|id| id == reply.question)),
    }
}

/// Returns the call that a person was asked about, and those in doubt.
fn pending_calls(data: &DataDirectory, uuid: Uuid) -> Result<Pending> {
    let directory = data.directory(uuid);
    let (history, _) = data.history(uuid)?;
    let calls = history.answer_place.map(|place| data.calls(uuid, place)).transpose()?.unwrap_or_default();
    let blobs = Blobs::new(data.io().disk.clone(), directory.path());
    let at = history.last_at.unwrap_or_default();
    let args = |call: &Call| {
        let text = blobs.json(&call.args).ok()?;
        serde_json::from_str(&text).ok()
    };
    let show = |id: u64, place: u32, at, looked| {
        let call = calls.get(place as usize)?;
        let (tool, args) = (call.name.clone(), args(call).unwrap_or_default());
        Some(PendingCall { id, call: place, tool, args, at, looked })
    };
    let asked = match history.question() {
        Some(asked) => show(history.question_seq, asked.call, at, None).map(|call| match &asked.host {
            Some(host) => about_host(call, host),
            None => call,
        }),
        None => history.open_question().and_then(|asked| show(history.question_seq, asked.call, at, None)),
    };
    let open = history.open_calls().filter_map(|open| show(open.seq, open.call, open.at, Some(looked(&open.recovery))));
    Ok((asked, open.collect()))
}

/// Returns the question about a host in the form of a call, with the command that wants to reach it.
fn about_host(call: PendingCall, host: &str) -> PendingCall {
    let command = call.args.get("command").cloned().unwrap_or_default();
    PendingCall { tool: HOST_QUESTION.to_owned(), args: json!({"host": host, "command": command}), ..call }
}

/// Returns the form that an agent asks for, if it does.
fn form_of(tool: &str, args: &serde_json::Value) -> Option<Form> {
    (tool == FORM_TOOL).then(|| Form::of(args).ok()).flatten()
}

/// Returns a question as people read it.
fn question_of(asked: PendingCall) -> PendingQuestion {
    if let Some(form) = form_of(&asked.tool, &asked.args) {
        return PendingQuestion { id: asked.id, text: form.question(), choices: form.choices(), at: asked.at };
    }
    if let Some(questions) = asked.args["questions"].as_array() {
        let (text, choices) = crate::questions::told(questions);
        return PendingQuestion { id: asked.id, text, choices, at: asked.at };
    }
    let choices = asked.args["choices"].as_array().into_iter().flatten();
    PendingQuestion {
        id: asked.id,
        text: asked.args["question"].as_str().unwrap_or_default().to_owned(),
        choices: choices.filter_map(|choice| choice.as_str()).map(str::to_owned).collect(),
        at: asked.at,
    }
}

/// Describes what was checked, and why that does not settle the call.
fn looked(recovery: &Recovery) -> String {
    match recovery {
        Recovery::Check { path, before, after } => {
            let hash = |hash: &Option<relive_journal::Hash>| match hash {
                Some(hash) => format!("sha256 {}", &hash.to_string()[..12]),
                None => "no file".to_owned(),
            };
            let (path, before, after) = (path.display(), hash(before), hash(after));
            format!("{path} has neither its content before the call ({before}) nor after it ({after})")
        }
        Recovery::Join => "the session it ran in is lost: there is no exit record".to_owned(),
        Recovery::Lookup { what: Lookup::Child(uuid) } => {
            format!("it could not be determined whether process {uuid} was created")
        }
        Recovery::Lookup { what: Lookup::Message(id) } => {
            format!("it could not be determined whether message {id} was delivered")
        }
        Recovery::Lookup { what: Lookup::Wait(_) | Lookup::Until(_) } | Recovery::Rerun | Recovery::SameKey => {
            "the tool no longer exists".to_owned()
        }
        Recovery::Doubt => "nothing: this tool leaves no trace that Relive could look for".to_owned(),
    }
}
