//! Questions of an agent, and of the agents below it, to whoever watches.
//!
//! Each question is shown once. They are asked one after the other; one that is answered elsewhere goes away.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path};

use relive_api::{PendingCall, Process, Resolution, ResolveRequest};
use relive_core::{Pid, SuspendReason, Uuid};
use relive_types::CommandRule;

use crate::client::Client;
use crate::error::{CommandError, Outcome};
use crate::render::approval::{self, Shown, exact};
use crate::render::processes::suspension;
use crate::terminal::{Look, Paint};

/// The largest file that a diff is made from.
const FILE_MAX: u64 = 1 << 20;

/// What becomes of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtQuestion {
    /// It is put to the person at the terminal.
    Ask,
    /// Somebody answers it elsewhere.
    Wait,
    /// Nobody can answer it here: the command fails, and the process keeps waiting.
    Fail,
}

pub(super) struct Questions<'a> {
    client: &'a Client<'a>,
    at_question: AtQuestion,
    /// The first one is being asked.
    open: VecDeque<Question>,
    /// Those that were shown.
    shown: BTreeSet<(Uuid, u64)>,
}

struct Question {
    uuid: Uuid,
    pid: Pid,
    call: PendingCall,
    text: String,
    /// What `always` stores, where it can be said.
    always: Always,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Always {
    Rule(CommandRule),
    EveryCall,
    /// Not all of the call was shown, or it is too long for a rule.
    No,
}

/// An answer, and whom it is for.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) uuid: Uuid,
    pub(super) request: ResolveRequest,
    /// What is said when it was accepted, where that is more than was typed.
    pub(super) done: Option<String>,
}

impl<'a> Questions<'a> {
    pub(super) fn new(client: &'a Client<'a>, at_question: AtQuestion) -> Self {
        Self { client, at_question, open: VecDeque::new(), shown: BTreeSet::new() }
    }

    /// Whether somebody is being asked.
    pub(super) fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    /// The process that is being asked about.
    pub(super) fn asker(&self) -> Option<Uuid> {
        self.open.front().map(|question| question.uuid)
    }

    /// A process waits for an answer. Returns whether a question is to be shown now.
    pub(super) async fn waiting(&mut self, uuid: Uuid) -> Outcome<bool> {
        let process = self.client.process(&uuid.to_string()).await?;
        // Somebody else may have answered already.
        let Some(call) = process.approval.clone().filter(|call| self.shown.insert((uuid, call.id))) else {
            return Ok(false);
        };
        let question = self.question(&process, call);
        let context = self.client.context();
        match self.at_question {
            AtQuestion::Ask => {
                self.open.push_back(question);
                return Ok(self.open.len() == 1);
            }
            AtQuestion::Wait => {
                context.say_on(&question.text);
                context.say(&format!("it waits for an answer: relive resolve {}", question.pid));
            }
            AtQuestion::Fail => {
                context.say_on(&question.text);
                return Err(unanswered(question.pid, "and there is no terminal to ask on"));
            }
        }
        Ok(false)
    }

    /// A process was suspended, and waits for a person. Fails where nobody can do anything about it here.
    pub(super) async fn suspended(&self, uuid: Uuid) -> Outcome<()> {
        if self.at_question != AtQuestion::Fail {
            return Ok(());
        }
        let process = self.client.process(&uuid.to_string()).await?;
        // It may have been resumed since.
        let Some(reason) = process.suspend_reason.filter(|reason| waits_for_person(*reason)) else { return Ok(()) };
        let pid = process.pid;
        let message = format!("PID {pid} is suspended ({}), and keeps waiting", suspension(reason));
        let hint = match (process.hint, reason) {
            (Some(hint), _) => hint,
            (None, SuspendReason::InDoubt) => format!("relive resolve {pid}"),
            (None, _) => format!("relive resume {pid}"),
        };
        Err(CommandError::invalid(message).with_hint(hint))
    }

    fn question(&self, process: &Process, call: PendingCall) -> Question {
        let shown = shown(process, &call, &self.client.context().err.resized());
        let always = match approval::rule_for_always(&call) {
            Ok(Some(rule)) if shown.whole => Always::Rule(rule),
            Ok(None) if shown.whole => Always::EveryCall,
            Ok(_) | Err(_) => Always::No,
        };
        Question { uuid: process.uuid, pid: process.pid, call, text: shown.text, always }
    }

    /// Shows the question that is next.
    pub(super) fn show(&self) {
        let Some(question) = self.open.front() else { return };
        let context = self.client.context();
        context.say_on(&question.text);
        let always = match &question.always {
            Always::Rule(_) => ", [a]lways this command".to_owned(),
            Always::EveryCall => format!(", [a]lways {}", exact(&question.call.tool)),
            Always::No => String::new(),
        };
        context.say_on(&context.err.paint(Paint::Bold, &format!("allow? [y]es, [n]o{always} ")));
    }

    /// A process was resumed, or has ended. Returns whether it was being asked about.
    pub(super) fn answered_elsewhere(&mut self, uuid: Uuid) -> bool {
        let asking = self.asker() == Some(uuid);
        self.open.retain(|question| question.uuid != uuid);
        asking
    }

    /// The answer that a line gives; `None`, and it is asked again, where it gives none.
    pub(super) fn answer(&mut self, line: &str) -> Option<Answer> {
        let question = self.open.front()?;
        let Some((outcome, always)) = parse(line).filter(|(_, always)| !always || question.always != Always::No) else {
            let always = if question.always == Always::No { "" } else { ", [a]lways" };
            self.client.context().say_on(&format!("[y]es, [n]o{always}? "));
            return None;
        };
        let Question { uuid, pid, call, always: stored, .. } = self.open.pop_front()?;
        let rule = match stored {
            Always::Rule(rule) if always => Some(rule),
            Always::Rule(_) | Always::EveryCall | Always::No => None,
        };
        let done = match &rule {
            Some(rule) => Some(format!("stored the rule for PID {pid}: {}", exact(&rule.to_string()))),
            None => always.then(|| format!("stored the rule for PID {pid}: every call of {}", exact(&call.tool))),
        };
        let request = ResolveRequest { outcome, always, reason: None, id: Some(call.id), rule };
        Some(Answer { uuid, request, done })
    }

    /// Nobody is there any more to answer what is asked.
    pub(super) fn end_of_input(&self) -> Option<CommandError> {
        self.open.front().map(|question| unanswered(question.pid, "and the input has ended"))
    }
}

fn unanswered(pid: Pid, why: &str) -> CommandError {
    let message = format!("PID {pid} waits for your approval, {why}; it keeps waiting");
    CommandError::invalid(message).with_hint(format!("relive resolve {pid}"))
}

/// Tells whether a suspended process continues only after a person has done something that `run` cannot ask for.
pub(super) fn waits_for_person(reason: SuspendReason) -> bool {
    match reason {
        SuspendReason::BudgetExceeded
        | SuspendReason::NeedsCredentials
        | SuspendReason::InDoubt
        | SuspendReason::IoError
        | SuspendReason::CrashLoop
        | SuspendReason::Stalled => true,
        // An approval is asked for; whoever paused it knows; the others continue by themselves.
        SuspendReason::Approval
        | SuspendReason::User
        | SuspendReason::DiskFull
        | SuspendReason::Quota
        | SuspendReason::DaemonStop => false,
    }
}

/// Whether a line would be an answer, had there been a question.
pub(super) fn is_answer(line: &str) -> bool {
    parse(line).is_some()
}

fn parse(line: &str) -> Option<(Resolution, bool)> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some((Resolution::Allow, false)),
        "a" | "always" => Some((Resolution::Allow, true)),
        "n" | "no" => Some((Resolution::Deny, false)),
        _ => None,
    }
}

/// Returns a call as a person reads it: commands as commands, edits as a diff.
pub(crate) fn shown(process: &Process, call: &PendingCall, look: &Look) -> Shown {
    let who = match &process.name {
        Some(name) => format!("PID {} ({})", process.pid, exact(name)),
        None => format!("PID {}", process.pid),
    };
    let before = approval::written_file(call).and_then(|path| read_file(Path::new(&process.cwd), path));
    let mut shown = approval::show(&who, call, before.as_deref(), look);
    if !shown.whole {
        shown.text.push_str(&format!("to see all of it: relive info --json {}\n", process.pid));
    }
    shown
}

/// What a file of the agent's directory holds, for a diff; nothing where it is not a plain text of a usual size.
fn read_file(cwd: &Path, path: &str) -> Option<String> {
    let path = Path::new(path);
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(cwd.join(path)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text).ok()?;
    (read as u64 <= FILE_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_is_one() {
        let check = |line: &str, expect| assert_eq!(parse(line), expect, "{line:?}");
        check("y", Some((Resolution::Allow, false)));
        check(" Always ", Some((Resolution::Allow, true)));
        check("NO", Some((Resolution::Deny, false)));
        check("", None);
        check("yesterday", None);
    }
}
