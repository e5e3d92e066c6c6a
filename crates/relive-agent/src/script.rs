//! The scripted model: plays the answers in a file. It needs no key and no network, and the demo and the tests use it.
//! `docs/scripts.md` describes the file.
//!
//! **Invariant:** the same question has the same answer. Only the number of answers in the journal, compacted or not,
//! selects the turn, so a resumed or forked process continues exactly where its journal ends. A script keeps no state.

mod format;
mod placeholder;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use relive_llm::{Answer, Delta, Model, ModelError, Purpose, Question, ToolCall, estimated_tokens};
use relive_types::{Usage, Uuid};
use rustix::fs::CWD;

use self::format::{Parsed, Turn};
use self::placeholder::Values;
use crate::plain_file::{self, Links};

/// The largest file that is read.
const FILE_MAX: u64 = 16 * 1024 * 1024;
/// The answer after the last turn.
const PAST_THE_END: &str = "done";
/// The summary of a script that has none.
const SUMMED_UP: &str = "The agent has followed its script.";

const DEMO: &str = include_str!("script/demo.yaml");

/// A scripted model, cheap to clone.
#[derive(Debug, Clone)]
pub struct Script {
    /// Each turn with the number of answers up to its end, repeats counted.
    turns: Arc<[(u64, Turn)]>,
    context_tokens: Option<u64>,
    summary: Option<Arc<Turn>>,
    uuid: Option<Uuid>,
}

impl Script {
    /// Reads a script from a file. Blocks.
    pub fn load(path: &Path) -> Result<Self, ModelError> {
        let name = path.display().to_string();
        let text = plain_file::read(CWD, path, Links::Follow, FILE_MAX)
            .map_err(|error| ModelError::BadScript(unreadable(&name, &error)))?;
        Self::parse(&text, &name)
    }

    /// Parses a script. Errors call it `name`.
    pub fn parse(text: &str, name: &str) -> Result<Self, ModelError> {
        let mut end = 0_u64;
        let Parsed { turns, context, summary } = format::parse(text, name)?;
        let turns = turns.into_iter().map(|turn| {
            end += u64::from(turn.repeat.get());
            (end, turn)
        });
        Ok(Self {
            turns: turns.collect(),
            context_tokens: context.map(|tokens| u64::from(tokens.get())),
            summary: summary.map(Arc::new),
            uuid: None,
        })
    }

    /// Opens `script/NAME` for a process in the directory `cwd`: a built-in script, or else a file. Blocks.
    pub fn open(name: &str, cwd: &Path) -> Result<Self, ModelError> {
        match Self::builtin(name) {
            Some(text) => Self::parse(text, name),
            None => Self::load(&cwd.join(name)),
        }
    }

    /// Returns the text of a built-in script.
    #[must_use]
    pub fn builtin(name: &str) -> Option<&'static str> {
        (name == "demo").then_some(DEMO)
    }

    /// Sets the process that `{{uuid}}` stands for.
    #[must_use]
    pub fn with_uuid(self, uuid: Uuid) -> Self {
        Self { uuid: Some(uuid), ..self }
    }

    /// Returns the turn after this many answers.
    fn turn(&self, answers: u64) -> Option<&Turn> {
        let index = self.turns.partition_point(|(end, _)| *end <= answers);
        self.turns.get(index).map(|(_, turn)| turn)
    }
}

impl Model for Script {
    fn reserved_tokens(&self) -> u64 {
        let most = self.turns.iter().map(|(_, turn)| match turn.usage {
            Some(usage) => usage.input.saturating_add(usage.output),
            None => {
                let said: usize = turn.thinking.0.iter().chain(&turn.text.0).map(String::len).sum();
                estimated_tokens(said)
            }
        });
        most.max().unwrap_or(0).max(1)
    }

    fn context_tokens(&self) -> Option<u64> {
        self.context_tokens
    }

    fn has_price(&self) -> bool {
        self.turns.iter().any(|(_, turn)| turn.usage.is_some_and(|usage| usage.cost_usd.is_some()))
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Answer, ModelError>> {
        let (turn, otherwise) = match question.purpose {
            Purpose::Step => (self.turn(question.answers), PAST_THE_END),
            Purpose::Summary => (self.summary.as_deref(), SUMMED_UP),
        };
        let Some(turn) = turn else {
            return async move { Ok(play(says(otherwise, &question))) }.boxed();
        };
        let values = Values::of(&question, question.answers + 1, self.uuid);
        match (&turn.fail, turn.fail_after_chunks) {
            (Some(reason), None) => {
                let (delay, error) = (turn.delay.0, ModelError::Failed(values.fill(reason)));
                async move {
                    tokio::time::sleep(delay).await;
                    Err(error)
                }
                .boxed()
            }
            (Some(_), Some(_)) | (None, _) => {
                let acts = acts(turn, &values, &question);
                async move { Ok(play(acts)) }.boxed()
            }
        }
    }
}

/// One action of a turn.
#[derive(Debug)]
enum Act {
    Wait(Duration),
    Say(Delta),
    Fail(ModelError),
    Hang,
}

fn unreadable(name: &str, error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::InvalidData {
        return format!("script {name} is not UTF-8 text");
    }
    // As in all messages: in lower case, and without the number of the error.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase()).map(String::from).unwrap_or_default();
    format!("cannot read script {name}: {first}{}", letters.as_str())
}

fn acts(turn: &Turn, values: &Values<'_>, question: &Question) -> VecDeque<Act> {
    let thinking = turn.thinking.0.iter().map(|chunk| Delta::Thinking(values.fill(chunk)));
    let text = turn.text.0.iter().map(|chunk| Delta::Text(values.fill(chunk)));
    let chunks_max = turn.fail_after_chunks.unwrap_or(usize::MAX);
    let mut acts = VecDeque::from([Act::Wait(turn.delay.0)]);
    for (index, chunk) in thinking.chain(text).take(chunks_max).enumerate() {
        if index > 0 {
            acts.push_back(Act::Wait(turn.chunk_delay.0));
        }
        acts.push_back(Act::Say(chunk));
    }
    if let Some(reason) = &turn.fail {
        acts.push_back(Act::Fail(ModelError::Failed(values.fill(reason))));
        return acts;
    }
    if turn.hang {
        acts.push_back(Act::Hang);
        return acts;
    }
    for (index, call) in turn.calls.iter().enumerate() {
        let args = call.args.iter().map(|(name, value)| (name.clone(), values.fill_json(value)));
        acts.push_back(Act::Say(Delta::Call(ToolCall {
            id: format!("call_{}_{}", values.turn, index + 1),
            name: call.name.clone(),
            args: serde_json::Value::Object(args.collect()).to_string(),
        })));
    }
    let usage = match turn.usage {
        Some(spent) => {
            Usage { tokens_in: spent.input, tokens_out: spent.output, cost_usd: spent.cost_usd, ..Usage::default() }
        }
        None => estimate(question, &acts),
    };
    acts.push_back(Act::Say(Delta::Usage(usage)));
    acts
}

fn says(text: &str, question: &Question) -> VecDeque<Act> {
    let mut acts = VecDeque::from([Act::Say(Delta::Text(text.to_owned()))]);
    let usage = estimate(question, &acts);
    acts.push_back(Act::Say(Delta::Usage(usage)));
    acts
}

fn play(acts: VecDeque<Act>) -> Answer {
    stream::unfold(acts, |mut acts| async move {
        loop {
            match acts.pop_front()? {
                Act::Wait(delay) if delay.is_zero() => {}
                Act::Wait(delay) => tokio::time::sleep(delay).await,
                Act::Say(delta) => return Some((Ok(delta), acts)),
                Act::Fail(error) => return Some((Err(error), acts)),
                Act::Hang => std::future::pending::<()>().await,
            }
        }
    })
    .boxed()
}

/// Estimates what a turn used from the length of the question and the answer.
fn estimate(question: &Question, acts: &VecDeque<Act>) -> Usage {
    let said = acts.iter().map(|act| match act {
        Act::Say(Delta::Thinking(text) | Delta::Text(text)) => text.len(),
        Act::Say(Delta::Call(call)) => call.args.len(),
        Act::Say(Delta::Carry(_) | Delta::Usage(_) | Delta::Progress) | Act::Wait(_) | Act::Fail(_) | Act::Hang => 0,
    });
    Usage {
        tokens_in: question.estimated_tokens(),
        tokens_out: estimated_tokens(said.sum()),
        estimated: true,
        ..Usage::default()
    }
}
