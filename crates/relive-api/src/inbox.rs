//! The inbox: what waits for a person. One pure function turns what is known of a process into its item, so that every
//! list, stream and screen agrees about it.

mod choices;

use relive_core::Body;
use relive_types::program::{quote, relive_commands};
use relive_types::rule::{COMMAND_TOOL, RuleError};
use relive_types::{CommandRule, Pid, SuspendReason, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

pub use self::choices::{chosen, numbers_choose};
use crate::process::{PendingCall, Process};
use crate::words::{end_in_words, reached_limit};

/// How much of a text an item shows; `info` and `resolve` show all of it.
const TEXT_MAX: usize = 400;

/// How many ended processes an inbox has, the newest. A person who does not look at these does not look at more either.
pub const INBOX_ENDED_MAX: usize = 1_000;

/// The inbox, in the order in which a person should look at it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inbox {
    pub items: Vec<Item>,
    /// Whether there may be more: there are too many, or the index of ended processes is being rebuilt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

/// Something that waits for a person. A process has at most one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Names this item for ever: another one of the same process has another id.
    pub id: String,
    pub uuid: Uuid,
    pub pid: Pid,
    pub name: Option<String>,
    pub kind: ItemKind,
    pub since: Timestamp,
    /// One line for a person.
    pub text: String,
    /// The possible answers, the usual one first.
    pub answers: Vec<Answer>,
    /// The question that an answer is for, as `info` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<u64>,
    /// When the process continues by itself, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<Timestamp>,
    /// Whether somebody has paused the process: once it has what it waits for, it is suspended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pause_kept: bool,
    pub cwd: String,
}

/// One answer: a key, a word and the command that does the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub key: char,
    pub text: String,
    pub command: String,
    #[serde(default)]
    pub kind: AnswerKind,
}

/// What an answer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    /// The command is the answer.
    #[default]
    Command,
    /// The command has `TEXT` where the person's own words belong.
    Text,
    /// It says that the end was seen.
    Ack,
    /// It only shows something: the item stays.
    Look,
}

/// Where the words of a person belong in the command of an answer.
const TEXT_OPTION: &str = "--answer TEXT";

/// A person has seen how a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AckRequest {
    /// The item that was seen: if the process has another one by now, the request is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acked {
    pub uuid: Uuid,
    /// Whether it was in the inbox until now.
    pub changed: bool,
}

/// A process that has changed, in the stream of all processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub uuid: Uuid,
    /// Absent if it is gone.
    pub process: Option<Process>,
    /// What it needs a person for, if it does.
    pub item: Option<Item>,
}

/// What a process needs a person for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    Approval,
    Question,
    InDoubt,
    Budget,
    Quota,
    Credentials,
    Stalled,
    Failed,
    Damaged,
    Finished,
}

impl ItemKind {
    /// Returns the kind as in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Question => "question",
            Self::InDoubt => "in_doubt",
            Self::Budget => "budget",
            Self::Quota => "quota",
            Self::Credentials => "credentials",
            Self::Stalled => "stalled",
            Self::Failed => "failed",
            Self::Damaged => "damaged",
            Self::Finished => "finished",
        }
    }

    /// Tells whether it is answered by `relive resolve`.
    fn is_resolved(self) -> bool {
        match self {
            Self::Approval | Self::Question | Self::InDoubt => true,
            Self::Budget
            | Self::Quota
            | Self::Credentials
            | Self::Stalled
            | Self::Failed
            | Self::Damaged
            | Self::Finished => false,
        }
    }
}

/// Returns the command of an answer with the words of a person in it.
#[must_use]
pub fn with_words(command: &str, words: &str) -> String {
    command.replacen(TEXT_OPTION, &format!("--answer {}", quote(words)), 1)
}

impl Item {
    /// Returns the command of an answer, for this item alone: if something else is asked by now, it is refused.
    #[must_use]
    pub fn exact_command(&self, answer: &Answer) -> String {
        let command = &answer.command;
        match (answer.kind, self.question) {
            (AnswerKind::Ack, _) => format!("relive inbox ack {}", self.id),
            (AnswerKind::Command | AnswerKind::Text, Some(question)) if self.kind.is_resolved() => {
                format!("{command} --question {question}")
            }
            (AnswerKind::Command | AnswerKind::Text | AnswerKind::Look, _) => command.clone(),
        }
    }

    /// Returns the keys of the answers and what they do, in words of Relive: choices of an agent are named by their
    /// numbers, since their text could pass for another answer.
    #[must_use]
    pub fn keys(&self) -> Vec<(String, &str)> {
        self.keys_of(|_| true)
    }

    /// Returns the same for some of the answers.
    pub fn keys_of(&self, is_offered: impl Fn(&Answer) -> bool) -> Vec<(String, &str)> {
        let offered = self.answers.iter().filter(|answer| is_offered(answer));
        let (chosen, others): (Vec<&Answer>, Vec<&Answer>) = offered.partition(|answer| self.is_choice(answer));
        let chosen = match (chosen.first(), chosen.last()) {
            (Some(only), Some(last)) if only.key == last.key => Some((only.key.to_string(), "as proposed")),
            (Some(first), Some(last)) => Some((format!("{}-{}", first.key, last.key), "as proposed")),
            (_, _) => None,
        };
        chosen
            .into_iter()
            .chain(others.into_iter().map(|answer| (answer.key.to_string(), answer.text.as_str())))
            .collect()
    }

    /// Tells whether an answer is one that the agent proposes: its text is the agent's.
    #[must_use]
    pub fn is_choice(&self, answer: &Answer) -> bool {
        self.kind == ItemKind::Question && answer.kind == AnswerKind::Command
    }

    /// Returns the answer that stands for all of them where there is room for one: none that an agent proposes.
    #[must_use]
    pub fn usual_answer(&self) -> Option<&Answer> {
        self.answers.iter().find(|answer| !self.is_choice(answer))
    }

    /// Tells whether an answer only refuses what is asked: nobody has to read all of it for that.
    #[must_use]
    pub fn refuses(&self, answer: &Answer) -> bool {
        self.kind == ItemKind::Approval && answer.key == 'n'
    }

    /// Says that the process is paused after this, if somebody has paused it.
    #[must_use]
    pub fn then_paused(&self) -> Option<&'static str> {
        let then = match self.kind {
            ItemKind::Approval | ItemKind::Question | ItemKind::InDoubt => "paused once it is answered",
            ItemKind::Budget
            | ItemKind::Quota
            | ItemKind::Credentials
            | ItemKind::Stalled
            | ItemKind::Failed
            | ItemKind::Damaged
            | ItemKind::Finished => "paused once it can continue",
        };
        self.pause_kept.then_some(then)
    }

    /// Tells whether the process has ended: then nothing waits for the answer.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.answers.iter().any(|answer| answer.kind == AnswerKind::Ack)
    }

    /// Returns the order of an item: what blocks a process comes before what has failed, and that before what is done.
    fn rank(&self) -> (u8, Timestamp, Uuid) {
        let class = match self.kind {
            ItemKind::Finished => 2,
            ItemKind::Failed if self.has_ended() => 1,
            ItemKind::Approval
            | ItemKind::Question
            | ItemKind::InDoubt
            | ItemKind::Budget
            | ItemKind::Quota
            | ItemKind::Credentials
            | ItemKind::Stalled
            | ItemKind::Failed
            | ItemKind::Damaged => 0,
        };
        (class, self.since, self.uuid)
    }
}

/// Orders items: the oldest that blocks a process first.
pub fn sort_items(items: &mut [Item]) {
    items.sort_by_key(Item::rank);
}

/// Returns the item of a process; `None` if it needs nobody.
#[must_use]
pub fn item_of(process: &Process) -> Option<Item> {
    let id = process.short.as_str();
    let (kind, since, text, answers) = if process.display == "damaged" {
        let text = process.note.clone().unwrap_or_else(|| "its journal cannot be read".to_owned());
        (
            ItemKind::Damaged,
            process.created_at,
            text,
            vec![look('i', "show it", format!("relive info {}", process.uuid))],
        )
    } else if process.dead_at.is_some() {
        ended(process, id)?
    } else if let Some(reason) = process.suspend_reason.filter(|_| process.display != "pausing") {
        let (kind, text, answers) = suspended(process, reason, id)?;
        (kind, process.paused_at.unwrap_or(process.created_at), text, answers)
    } else if process.stalled {
        let since = process.stalled_at.or(process.started_at).unwrap_or(process.created_at);
        let answers = vec![
            look('l', "show its log", format!("relive logs {id}")),
            answer('x', "end it", format!("relive kill {id}")),
        ];
        (ItemKind::Stalled, since, "makes no progress".to_owned(), answers)
    } else if let Some((kind, since, text)) = dialog(process) {
        (kind, since, text, vec![look('i', "answer it in its terminal", format!("relive attach {id}"))])
    } else {
        return None;
    };
    Some(Item {
        id: format!("{id}:{}:{}", kind.word(), since.as_millisecond()),
        uuid: process.uuid,
        pid: process.pid,
        name: process.name.clone(),
        kind,
        since,
        text: match kind {
            // What a person allows has its line breaks and its blanks, and whoever shows it marks them.
            ItemKind::Approval | ItemKind::InDoubt => cut(text),
            ItemKind::Question
            | ItemKind::Budget
            | ItemKind::Quota
            | ItemKind::Credentials
            | ItemKind::Stalled
            | ItemKind::Failed
            | ItemKind::Damaged
            | ItemKind::Finished => one_line(&text),
        },
        answers,
        question: question_id(process),
        resume_at: process.resume_at,
        pause_kept: process.pause_kept,
        cwd: process.cwd.clone(),
    })
}

/// Returns the question that a person's answer is for.
#[must_use]
pub fn question_id(process: &Process) -> Option<u64> {
    let asked = process.question.as_ref().map(|question| question.id);
    let call = process.approval.as_ref().or(process.in_doubt.first()).map(|call| call.id);
    asked.or(call)
}

/// Returns what a CLI agent asks in a dialog of its own, which is answered in its terminal.
fn dialog(process: &Process) -> Option<(ItemKind, Timestamp, String)> {
    let agent = process.agent.as_ref()?;
    let dialog = agent.get("dialog")?.as_object()?;
    let since = dialog.get("since")?.as_str()?.parse().ok()?;
    let is_question = agent.get("waiting").and_then(|waiting| waiting.as_str()) == Some("question");
    let kind = if is_question { ItemKind::Question } else { ItemKind::Approval };
    let tool = dialog.get("tool").and_then(|tool| tool.as_str());
    let tool = tool.map(|tool| format!(": {tool}")).unwrap_or_default();
    Some((kind, since, format!("waits in its own dialog{tool}")))
}

fn ended(process: &Process, id: &str) -> Option<(ItemKind, Timestamp, String, Vec<Answer>)> {
    let since = process.dead_at.filter(|_| process.unseen)?;
    let exit = process.exit.as_ref()?;
    let seen = Answer { kind: AnswerKind::Ack, ..answer('e', "seen", format!("relive inbox ack {id}")) };
    let logs = look('l', "show its log", format!("relive logs {id}"));
    if exit.code == 0 {
        return Some((ItemKind::Finished, since, process.intent.clone(), vec![seen, logs]));
    }
    let why = match (exit.reason.as_str(), end_in_words(process)) {
        ("exited", _) => format!("exit code {}", process.exit_code.map_or(exit.code, i32::from)),
        (_, Some(why)) => why,
        (reason, None) => reason.to_owned(),
    };
    let (again, text) = resume(process, id, "resume it", &why);
    Some((ItemKind::Failed, since, text, vec![seen, again, logs]))
}

/// Returns the answer that resumes a process, and the text of its item. A hint that is no command, such as where a key
/// belongs, is for the person to read and not for a key to run.
fn resume(process: &Process, id: &str, does: &str, text: &str) -> (Answer, String) {
    let plain = || format!("relive resume {id}");
    match &process.hint {
        None => (answer('u', does, plain()), text.to_owned()),
        Some(hint) if relive_commands(hint).is_some() => (answer('u', does, hint.clone()), text.to_owned()),
        Some(hint) => (answer('u', does, plain()), format!("{text}: {hint}")),
    }
}

fn suspended(process: &Process, reason: SuspendReason, id: &str) -> Option<(ItemKind, String, Vec<Answer>)> {
    let resolve = |key, text: &str, option: &str| answer(key, text, format!("relive resolve {id} {option}"));
    let own_words = || Answer { kind: AnswerKind::Text, ..resolve('r', "reply", TEXT_OPTION) };
    let resumed = |kind, text: &str, does: &str| {
        let (answer, text) = resume(process, id, does, text);
        (kind, text, vec![answer])
    };
    // It spends more: no key that only continues something does that.
    let raised = |text: &str| {
        let (answer, text) = resume(process, id, "allow twice as much", text);
        (ItemKind::Budget, text, vec![Answer { key: 'm', ..answer }])
    };
    Some(match reason {
        SuspendReason::Approval => {
            let text = process.approval.as_ref().map_or_else(|| "asks whether it may make a call".to_owned(), call);
            let mut answers = vec![resolve('y', "allow", "--allow"), resolve('n', "deny", "--deny")];
            let always = process.approval.as_ref().and_then(always);
            answers.extend(always.map(|does| resolve('a', does, "--allow --always")));
            (ItemKind::Approval, text, answers)
        }
        SuspendReason::Question => {
            let Some(question) = &process.question else {
                return Some((ItemKind::Question, "asks a question".to_owned(), vec![own_words()]));
            };
            let choices = ('1'..='9').zip(&question.choices);
            let mut answers: Vec<Answer> =
                choices.map(|(key, choice)| resolve(key, choice, &format!("--answer {}", quote(choice)))).collect();
            answers.push(own_words());
            (ItemKind::Question, question.text.clone(), answers)
        }
        SuspendReason::InDoubt => {
            let text = process.in_doubt.first().map_or_else(|| "a call".to_owned(), call);
            let answers = vec![
                resolve('h', "it happened", "--done"),
                resolve('n', "it did not happen", "--not-done"),
                resolve('o', "repeat it", "--retry"),
            ];
            (ItemKind::InDoubt, format!("it is unknown whether this happened: {text}"), answers)
        }
        SuspendReason::BudgetExceeded => {
            let reached = reached_limit(process).map(|limit| format!("reached {limit}"));
            raised(reached.as_deref().unwrap_or("budget exceeded"))
        }
        SuspendReason::Quota => resumed(ItemKind::Quota, "the provider refuses calls for a while", "try again now"),
        SuspendReason::NeedsCredentials if matches!(process.body, Body::Compose | Body::Supervisor) => {
            resumed(ItemKind::Credentials, "its environment is lost", "resume it with that of this shell")
        }
        SuspendReason::NeedsCredentials => {
            resumed(ItemKind::Credentials, "has no valid key for its model", "resume it")
        }
        SuspendReason::Stalled => resumed(ItemKind::Stalled, "made no progress and was paused", "resume it"),
        SuspendReason::DiskFull => resumed(ItemKind::Failed, "suspended: the disk is full", "resume it"),
        SuspendReason::IoError => resumed(ItemKind::Failed, "suspended: its journal cannot be written", "resume it"),
        SuspendReason::CrashLoop => {
            resumed(ItemKind::Failed, "suspended: it crashed the daemon three times without progress", "resume it")
        }
        SuspendReason::User | SuspendReason::DaemonStop => return None,
    })
}

/// Returns the command that a call would run, if it runs one.
#[must_use]
pub fn command_of(call: &PendingCall) -> Option<&str> {
    let runs = call.tool == COMMAND_TOOL;
    call.args.get("command").and_then(|command| command.as_str()).filter(|_| runs)
}

/// Returns the rule that `always` stores for a call; none where it holds for every call of the tool. Some commands are
/// too long for a rule.
pub fn rule_for_always(call: &PendingCall) -> Result<Option<CommandRule>, RuleError> {
    command_of(call).map(CommandRule::exactly).transpose()
}

/// Returns what `always` allows, in words of Relive.
fn always(call: &PendingCall) -> Option<&'static str> {
    match rule_for_always(call) {
        Ok(Some(_)) => Some("always this command"),
        Ok(None) => Some("always this tool"),
        Err(_) => None,
    }
}

fn answer(key: char, text: &str, command: String) -> Answer {
    Answer { key, text: text.to_owned(), command, kind: AnswerKind::Command }
}

fn look(key: char, text: &str, command: String) -> Answer {
    Answer { kind: AnswerKind::Look, ..answer(key, text, command) }
}

/// Returns a call on one line: the tool, and its only text or all arguments.
fn call(call: &PendingCall) -> String {
    let only = call.args.as_object().filter(|args| args.len() == 1).and_then(|args| args.values().next());
    match only.and_then(|value| value.as_str()) {
        Some(text) => format!("{}: {text}", call.tool),
        None => format!("{}: {}", call.tool, call.args),
    }
}

fn one_line(text: &str) -> String {
    // Other spaces look like one and are none: they stay, so that they can be spelled out.
    cut(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
