//! The format of a script file. Unknown keys are refused, with their line.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use relive_llm::ModelError;
use relive_types::suggest::closest;
use relive_types::{Usd, duration};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::{Map, Value};

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    turns: Vec<Checked>,
    /// The context window.
    #[serde(default)]
    context: Option<NonZeroU32>,
    /// The answer to a request for a summary.
    #[serde(default)]
    summary: Option<Checked>,
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) turns: Vec<Turn>,
    pub(super) context: Option<NonZeroU32>,
    pub(super) summary: Option<Turn>,
}

/// A turn without contradictions; checked while it is parsed, so that the error has a line.
#[derive(Debug)]
struct Checked(Turn);

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let turn = Turn::deserialize(deserializer)?;
        match (&turn.fail, turn.fail_after_chunks, turn.hang) {
            (None, Some(_), _) => Err(de::Error::custom("`fail_after_chunks` without `fail`")),
            (Some(_), _, true) => Err(de::Error::custom("`fail` and `hang` together")),
            (Some(_), _, false) | (None, None, _) => Ok(Self(turn)),
        }
    }
}

/// The actions of the model in one turn.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    #[serde(default)]
    pub(super) thinking: Chunks,
    #[serde(default)]
    pub(super) text: Chunks,
    #[serde(default)]
    pub(super) calls: Vec<Call>,
    #[serde(default)]
    pub(super) delay: Pause,
    #[serde(default)]
    pub(super) chunk_delay: Pause,
    #[serde(default)]
    pub(super) fail: Option<String>,
    #[serde(default)]
    pub(super) fail_after_chunks: Option<usize>,
    #[serde(default)]
    pub(super) hang: bool,
    #[serde(default)]
    pub(super) usage: Option<Spent>,
    #[serde(default = "once")]
    pub(super) repeat: NonZeroU32,
}

fn once() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// A call of the model.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) name: String,
    #[serde(default)]
    pub(super) args: Map<String, Value>,
}

/// The usage that a turn reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spent {
    #[serde(default)]
    pub(super) input: u64,
    #[serde(default)]
    pub(super) output: u64,
    #[serde(default)]
    pub(super) cost_usd: Option<Usd>,
}

/// One text or a list of its pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chunks(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Chunks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChunksVisitor;
        impl<'de> Visitor<'de> for ChunksVisitor {
            type Value = Chunks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of texts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Chunks, E> {
                Ok(Chunks(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Chunks, A::Error> {
                let mut chunks = Vec::new();
                while let Some(chunk) = list.next_element()? {
                    chunks.push(chunk);
                }
                Ok(Chunks(chunks))
            }
        }
        deserializer.deserialize_any(ChunksVisitor)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pause(pub(super) Duration);

impl<'de> Deserialize<'de> for Pause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PauseVisitor;
        impl Visitor<'_> for PauseVisitor {
            type Value = Pause;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(duration::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Pause, E> {
                duration::parse(text).map(Pause).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(PauseVisitor)
    }
}

/// Parses a script. Errors call the file `name`.
pub(super) fn parse(text: &str, name: &str) -> Result<Parsed, ModelError> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| {
        if !is_script(text) {
            // Another file of the user's: no line of it is shown to whoever named it.
            return ModelError::BadScript(format!("script {name} has no `turns:`"));
        }
        let mut problem = relive_yaml::Source::new(text).mistake(&error);
        problem.message = in_plain_words(&problem.message);
        ModelError::BadScript(format!("script {}", relive_yaml::report(name, &[problem])))
    })?;
    let File { turns, context, summary } = file;
    let turns = turns.into_iter().map(|Checked(turn)| turn).collect();
    Ok(Parsed { turns, context, summary: summary.map(|Checked(turn)| turn) })
}

/// Returns whether a text is meant to be a script.
fn is_script(text: &str) -> bool {
    let is_key = |line: &str| {
        let key = line.trim_start_matches(['{', '"', ' ']);
        // Also if the last letter was forgotten, to say so.
        let rest = key.strip_prefix("turn").map(|rest| rest.trim_start_matches(['s', '"', ' ']));
        rest.is_some_and(|rest| rest.starts_with(':'))
    };
    text.lines().any(is_key)
}

/// Rewrites what serde says about Rust's types.
fn in_plain_words(message: &str) -> String {
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected "));
    if let Some((key, expected)) = unknown {
        let expected = expected.trim_start_matches("one of ").replace('`', "");
        let keys: Vec<&str> = expected.split([',', ' ']).filter(|word| !word.is_empty() && *word != "or").collect();
        return match closest(key, keys.iter().copied()) {
            Some(meant) => format!("no such key: `{key}` (did you mean `{meant}`?)"),
            None => format!("no such key: `{key}` (expected one of {})", keys.join(", ")),
        };
    }
    if message.ends_with("a nonzero u32") {
        return "must be a whole number of at least 1".to_owned();
    }
    message.to_owned()
}
