//! Questions of an agent, and of the agents below it, to whoever watches.
//!
//! Each question is shown once. They are asked one after the other; one that is answered elsewhere goes away.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path};

use relive_api::{PendingCall, Process, Resolution, ResolveRequest, chosen, numbers_choose};
use relive_core::{Pid, SuspendReason, Uuid};
use relive_types::CommandRule;

use crate::client::Client;
use crate::commands::answered::Waiting;
use crate::error::{CommandError, Outcome};
use crate::render::approval::{self, Before, Shown, exact};
use crate::render::diff::{self, Mark};
use crate::render::parked;
use crate::render::processes::suspension_of;
use crate::terminal::{Look, Paint};

/// The largest file that a diff is made from.
const FILE_MAX: u64 = 1 << 20;
/// Asks for a text.
const ANSWER: &str = "your answer, then Enter: ";

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
    /// The one whose answer is being sent: it is asked again if that is not accepted.
    answering: Option<Question>,
    /// Those that were shown.
    shown: BTreeSet<(Uuid, u64)>,
}

struct Question {
    uuid: Uuid,
    pid: Pid,
    /// Names the question, for the answer to it.
    id: u64,
    about: About,
    seen: Seen,
    text: String,
    /// By which it is found out whether it still waits.
    waiting: Waiting,
}

/// What a person is asked.
enum About {
    /// Whether a call of this tool may be made.
    Call {
        tool: String,
        /// What `always` stores, where it can be said.
        always: Always,
    },
    /// Something that the agent wants to know, with the answers it proposes.
    Words { choices: Vec<String> },
}

/// Whether all of a question was shown. One that was not can only be refused here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    All,
    Part,
}

impl From<&Shown> for Seen {
    fn from(shown: &Shown) -> Self {
        if shown.whole { Self::All } else { Self::Part }
    }
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
        Self { client, at_question, open: VecDeque::new(), answering: None, shown: BTreeSet::new() }
    }

    /// Whether somebody is being asked.
    pub(super) fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    /// The process that is being asked about.
    pub(super) fn asker(&self) -> Option<Uuid> {
        self.open.front().map(|question| question.uuid)
    }

    /// What is being asked.
    pub(super) fn asked(&self) -> Option<&Waiting> {
        self.open.front().map(|question| &question.waiting)
    }

    /// Passes over those that were answered elsewhere before they were shown.
    pub(super) async fn pass_over_answered(&mut self) {
        // Nobody is kept waiting for a daemon that is gone.
        let Some(daemon) = Client::beside(self.client.context()).await else { return };
        while let Some(question) = self.open.front()
            && let Ok(false) = question.waiting.is_open_at(&daemon).await
        {
            self.open.pop_front();
        }
    }

    /// The answer that was sent is accepted.
    pub(super) fn answer_accepted(&mut self) {
        self.answering = None;
    }

    /// Asks the question again whose answer was not accepted, before all others.
    pub(super) fn ask_again(&mut self) {
        if let Some(question) = self.answering.take() {
            self.open.push_front(question);
        }
    }

    /// A process waits for an answer. Returns whether a question is to be shown now.
    pub(super) async fn waiting(&mut self, uuid: Uuid) -> Outcome<bool> {
        let process = self.client.process(&uuid.to_string()).await?;
        // Somebody else may have answered already.
        let Some(question) = self.question(&process).filter(|question| self.shown.insert((uuid, question.id))) else {
            return Ok(false);
        };
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
                return Err(unanswered(&question, "and there is no terminal to ask on"));
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
        let message = format!("PID {pid} is suspended ({}), and keeps waiting", suspension_of(&process, reason));
        let hint = match (process.hint, reason) {
            (Some(hint), _) => hint,
            (None, SuspendReason::InDoubt) => format!("relive resolve {pid}"),
            (None, _) => format!("relive resume {pid}"),
        };
        Err(CommandError::invalid(message).with_hint(hint))
    }

    fn question(&self, process: &Process) -> Option<Question> {
        let (uuid, pid) = (process.uuid, process.pid);
        let (waiting, then) = (Waiting::of(process)?, parked::then_paused(process));
        if let Some(asked) = &process.question {
            let shown = parked::question(process, asked, &self.client.context().err.resized());
            let (about, seen) = (About::Words { choices: asked.choices.clone() }, Seen::from(&shown));
            return Some(Question { uuid, pid, id: asked.id, about, seen, text: then + &shown.text, waiting });
        }
        let call = process.approval.as_ref()?;
        let shown = shown(process, call, &self.client.context().err.resized());
        let always = match approval::rule_for_always(call) {
            Ok(Some(rule)) if shown.whole => Always::Rule(rule),
            Ok(None) if shown.whole => Always::EveryCall,
            Ok(_) | Err(_) => Always::No,
        };
        let about = About::Call { tool: call.tool.clone(), always };
        Some(Question { uuid, pid, id: call.id, about, seen: Seen::from(&shown), text: then + &shown.text, waiting })
    }

    /// Shows the question that is next.
    pub(super) fn show(&self) {
        let Some(question) = self.open.front() else { return };
        let context = self.client.context();
        context.say_on(&question.text);
        self.show_prompt();
    }

    pub(super) fn show_prompt(&self) {
        let Some(question) = self.open.front() else { return };
        let context = self.client.context();
        let prompt = match &question.about {
            About::Call { .. } if question.seen == Seen::Part => {
                format!("[n]o, then Enter; or once you have seen all of it: relive resolve {} --allow ", question.pid)
            }
            About::Words { .. } if question.seen == Seen::Part => {
                format!("once you have seen all of it: relive resolve {} --answer TEXT ", question.pid)
            }
            About::Call { always: Always::Rule(_), .. } => {
                "allow? [y]es, [n]o, [a]lways this command, then Enter: ".to_owned()
            }
            About::Call { tool, always: Always::EveryCall } => {
                format!("allow? [y]es, [n]o, [a]lways {}, then Enter: ", exact(tool))
            }
            About::Call { always: Always::No, .. } => "allow? [y]es, [n]o, then Enter: ".to_owned(),
            About::Words { choices } if choices.is_empty() => ANSWER.to_owned(),
            // Each number would also be a text.
            About::Words { choices } if !numbers_choose(choices) => {
                "your answer (the text of a choice), then Enter: ".to_owned()
            }
            About::Words { .. } => "your answer or its number, then Enter: ".to_owned(),
        };
        context.say_on(&context.err.paint(Paint::Bold, &prompt));
    }

    /// Withdraws the question that is being asked.
    pub(super) fn withdraw(&mut self) {
        self.open.pop_front();
    }

    /// Withdraws what a process asks, which has ended. Returns whether it was being asked about.
    pub(super) fn withdraw_all_of(&mut self, uuid: Uuid) -> bool {
        let asking = self.asker() == Some(uuid);
        self.open.retain(|question| question.uuid != uuid);
        self.answering = self.answering.take().filter(|question| question.uuid != uuid);
        asking
    }

    /// The answer that a line gives; `None`, and it is asked again, where it gives none.
    pub(super) fn answer(&mut self, line: &str) -> Option<Answer> {
        let question = self.open.front()?;
        let denies = matches!(parse(line), Some((Resolution::Deny, _)));
        if question.seen == Seen::Part && !(denies && matches!(question.about, About::Call { .. })) {
            self.show_prompt();
            return None;
        }
        let (tool, stored) = match &question.about {
            About::Call { tool, always } => (tool.clone(), always.clone()),
            About::Words { choices } => {
                let Some(answer) = chosen(line, choices) else {
                    self.client.context().say_on(ANSWER);
                    return None;
                };
                let (uuid, id) = (question.uuid, question.id);
                self.answering = self.open.pop_front();
                return Some(Answer { uuid, request: ResolveRequest::answer(answer, Some(id)), done: None });
            }
        };
        let Some((outcome, always)) = parse(line).filter(|(_, always)| !always || stored != Always::No) else {
            let always = if stored == Always::No { "" } else { ", [a]lways" };
            self.client.context().say_on(&format!("[y]es, [n]o{always}, then Enter: "));
            return None;
        };
        let (uuid, pid, id) = (question.uuid, question.pid, question.id);
        self.answering = self.open.pop_front();
        let rule = match stored {
            Always::Rule(rule) if always => Some(rule),
            Always::Rule(_) | Always::EveryCall | Always::No => None,
        };
        let done = match &rule {
            Some(rule) => Some(format!("stored the rule for PID {pid}: {}", exact(&rule.to_string()))),
            None => always.then(|| format!("stored the rule for PID {pid}: every call of {}", exact(&tool))),
        };
        let request = ResolveRequest { always, id: Some(id), rule, ..ResolveRequest::new(outcome) };
        Some(Answer { uuid, request, done })
    }

    /// Nobody is there any more to answer what is asked.
    pub(super) fn end_of_input(&self) -> Option<CommandError> {
        self.open.front().map(|question| unanswered(question, "and the input has ended"))
    }
}

fn unanswered(question: &Question, why: &str) -> CommandError {
    let pid = question.pid;
    let wanted = match question.about {
        About::Call { .. } => "approval",
        About::Words { .. } => "answer",
    };
    let message = format!("PID {pid} waits for your {wanted}, {why}; it keeps waiting");
    CommandError::invalid(message).with_hint(format!("relive resolve {pid}"))
}

/// Tells whether `run` asks for what a suspended process waits for.
pub(super) fn is_asked_here(reason: SuspendReason) -> bool {
    matches!(reason, SuspendReason::Approval | SuspendReason::Question)
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
        | SuspendReason::Question
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
    let before = approval::written_file(call).map(|path| read_file(Path::new(&process.cwd), path));
    let mut shown = approval::show(&who, call, &before.unwrap_or(Before::Absent), look);
    shown.point_to_rest(process);
    shown
}

/// Returns what a process that asks to write a file would change in it, each line with its sign; `None` if there is
/// nothing to compare with.
pub(crate) fn compared(process: &Process) -> Option<Vec<String>> {
    let call = process.approval.as_ref()?;
    let before = read_file(Path::new(&process.cwd), approval::written_file(call)?);
    let after = call.args.get("content").and_then(serde_json::Value::as_str)?;
    let (head, before) = match before {
        Before::Absent => return None,
        Before::Text(text) => (None, text),
        Before::Hidden { bytes } => (Some(format!("the file is overwritten: {bytes} bytes, not shown")), String::new()),
        Before::NoFile => (Some("this is not a file".to_owned()), String::new()),
    };
    // No line of a content has this sign.
    let head = head.map(|head| format!("{} {head}", Mark::Skipped.sign()));
    let lines = diff::lines(&before, after).into_iter().map(|(mark, line)| format!("{}{line}", mark.sign()));
    Some(head.into_iter().chain(lines).collect())
}

/// Returns what a file of the agent's directory holds, for a diff of a plain text of a usual size.
fn read_file(cwd: &Path, path: &str) -> Before {
    let full = cwd.join(path);
    let Ok(found) = std::fs::metadata(&full) else { return Before::Absent };
    if !found.is_file() {
        return Before::NoFile;
    }
    let hidden = Before::Hidden { bytes: found.len() };
    // Nothing above the directory is shown.
    if Path::new(path).components().any(|part| part == Component::ParentDir) {
        return hidden;
    }
    read_text(&full).map_or(hidden, Before::Text)
}

/// Reads a file; `None` where it is not a plain text of a usual size.
fn read_text(path: &Path) -> Option<String> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
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
