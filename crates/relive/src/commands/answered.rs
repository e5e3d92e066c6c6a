//! What became of something that waited for a person here, and was answered elsewhere.

use std::time::{Duration, Instant};

use relive_api::{Item, Process, item_of, question_id};
use relive_client::Source;
use relive_core::{ErrorCode, Generation, State, SuspendReason, Timestamp, Uuid};

use crate::client::Client;
use crate::error::{CommandError, Kind};
use crate::render::approval::exact;
use crate::render::line::Line;
use crate::render::time::clock_time;

/// How long the journal may take to say what the answer was. Nobody waits for it.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// What is said where there is no daemon to ask.
const UNKNOWN: &str = "the daemon does not answer, so whether it still waits is not known";
/// How soon it is asked again, if a daemon was killed.
const TELL_AGAIN: Duration = Duration::from_millis(100);
/// How much of an answer is repeated.
const ANSWER_MAX: usize = 60;

/// Something that waits for a person, as it was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) uuid: Uuid,
    generation: Generation,
    question: Option<u64>,
    /// The item.
    id: String,
    since: Timestamp,
    /// Whether it is the end of the process.
    is_end: bool,
}

impl Waiting {
    /// Returns what a process waits for; `None` if it needs nobody.
    pub(crate) fn of(process: &Process) -> Option<Self> {
        Some(Self::listed(&item_of(process)?, process.generation))
    }

    /// Returns an item as what is waited for, and an incarnation that is not later than the item.
    pub(crate) fn listed(item: &Item, generation: Generation) -> Self {
        let Item { uuid, question, since, .. } = *item;
        Self { uuid, generation, question, id: item.id.clone(), since, is_end: item.has_ended() }
    }

    /// Tells whether a process still waits for this.
    pub(crate) fn is_open(&self, process: &Process) -> bool {
        // A daemon that has just started knows less for a moment.
        if process.state == State::Created {
            return true;
        }
        match (self.question, question_id(process)) {
            (Some(asked), Some(now)) => asked == now,
            (Some(_), None) => process.suspend_reason.is_some_and(SuspendReason::awaits_answer),
            (None, _) => item_of(process).is_some_and(|item| item.id == self.id),
        }
    }

    /// Waits until it is answered, and says how. Looks for the first time after `first`, then every so often. Starts no
    /// daemon.
    pub(crate) async fn until_answered(&self, client: &Client<'_>, first: Duration, every: Duration) -> String {
        let mut after = first;
        loop {
            tokio::time::sleep(after).await;
            after = every;
            // A request would wait until there is a daemon again.
            if client.connect().await.is_err() {
                continue;
            }
            let begun = Instant::now();
            if let Ok(false) = self.is_still_open(client).await {
                return self.outcome(client).await;
            }
            // A long call is read from a long journal each time: then it is looked at less often.
            after = every.max(4 * begun.elapsed());
        }
    }

    /// Asks a daemon that runs whether it still waits.
    pub(crate) async fn is_open_at(&self, daemon: &relive_client::Client) -> Result<bool, CommandError> {
        match daemon.process(&self.uuid.to_string()).await {
            Ok(process) => Ok(self.is_open(&process)),
            Err(error) if error.code() == Some(ErrorCode::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks whether it still waits.
    pub(crate) async fn is_still_open(&self, client: &Client<'_>) -> Result<bool, CommandError> {
        match client.process(&self.uuid.to_string()).await {
            Ok(process) => Ok(self.is_open(&process)),
            Err(error) if error.kind == Kind::Code(ErrorCode::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Says what became of it, as its journal has it. A daemon that is killed meanwhile leaves that to the next one.
    pub(crate) async fn outcome(&self, client: &Client<'_>) -> String {
        let begun = Instant::now();
        loop {
            match self.told_by_journal(client).await {
                Ok(Some(told)) => return told,
                Err(error) if error.kind == Kind::Code(ErrorCode::NotFound) => return "it was removed".to_owned(),
                Ok(None) | Err(_) if self.question.is_none() => return "it does not wait any more".to_owned(),
                Ok(None) if begun.elapsed() > TOLD_WITHIN => return "answered elsewhere".to_owned(),
                Err(_) if begun.elapsed() > TOLD_WITHIN => return UNKNOWN.to_owned(),
                Ok(None) | Err(_) => tokio::time::sleep(TELL_AGAIN).await,
            }
        }
    }

    /// Says what became of it, if its journal can be read in time and has it.
    async fn told_by_journal(&self, client: &Client<'_>) -> Result<Option<String>, CommandError> {
        let mut found = None;
        // Whatever answers it comes after it, in this incarnation or a later one.
        let mut last = Some(format!("{}.{}", self.generation, self.question.unwrap_or(0)));
        let id = self.uuid.to_string();
        let read = client.read(&id, Source::Journal, &mut last, async |event| {
            if found.is_none() {
                let line = Line::parse(&event.data).filter(|line| line.at.is_some_and(|at| at >= self.since));
                // The end that waits to be seen is not what became of it.
                let line = line.filter(|line| !(self.is_end && line.kind == "ended"));
                found = line.and_then(|line| told(&line));
            }
            Ok::<_, CommandError>(())
        });
        let read = tokio::time::timeout(TOLD_WITHIN, read).await;
        match (found, read) {
            (Some(found), _) => Ok(Some(found)),
            (None, Ok(Err(error))) => Err(error),
            (None, Ok(Ok(_)) | Err(_)) => Ok(None),
        }
    }
}

/// Says what a record has done to something that waited; `None` if it did nothing to it.
fn told(line: &Line) -> Option<String> {
    let text = |name: &str| line.field::<String>(name);
    let at = line.at.map(|at| format!(" at {}", clock_time(at))).unwrap_or_default();
    Some(match line.kind.as_str() {
        "approval" => {
            let always = line.field("always") == Some(true) || line.fields.iter().any(|(name, _)| name == "rule");
            let always = if always { "always " } else { "" };
            match text("decision").as_deref() {
                Some("allowed") => format!("answered elsewhere: {always}allowed{at}"),
                Some("denied") => format!("answered elsewhere: {always}denied{at}"),
                _ => return None,
            }
        }
        "question" => format!("answered elsewhere: \"{}\"{at}", shortened(&exact(&text("answer")?))),
        "resolved" => {
            let outcome = match text("outcome")?.as_str() {
                "done" => "it happened",
                "not_done" => "it did not happen",
                _ => "it is repeated",
            };
            format!("answered elsewhere: {outcome} (said{at})")
        }
        "resumed" if text("by").as_deref() == Some("user") => format!("resumed elsewhere{at}"),
        "resumed" => format!("resumed{at}"),
        "acked" => format!("seen elsewhere{at}"),
        "ended" if at.is_empty() => "it has ended".to_owned(),
        "ended" => format!("it ended{at}"),
        _ => return None,
    })
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= ANSWER_MAX {
        return text.to_owned();
    }
    format!("{}...", text.chars().take(ANSWER_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_words() {
        let check = |record: &str, expect: Option<&str>| {
            let said = told(&Line::parse(record).unwrap());
            assert_eq!(said.as_deref(), expect, "{record}");
        };
        check(r#"{"kind":"approval","decision":"asked"}"#, None);
        check(r#"{"kind":"approval","decision":"allowed"}"#, Some("answered elsewhere: allowed"));
        let ruled = r#"{"kind":"approval","decision":"allowed","rule":"shell:ls"}"#;
        check(ruled, Some("answered elsewhere: always allowed"));
        check(r#"{"kind":"approval","decision":"denied"}"#, Some("answered elsewhere: denied"));
        check(r#"{"kind":"question"}"#, None);
        check(r#"{"kind":"question","answer":"a\u001bb"}"#, Some("answered elsewhere: \"a<ESC>b\""));
        let long = format!(r#"{{"kind":"question","answer":"{}"}}"#, "x".repeat(100));
        check(&long, Some(&format!("answered elsewhere: \"{}...\"", "x".repeat(ANSWER_MAX))));
        check(r#"{"kind":"resolved","outcome":"not_done"}"#, Some("answered elsewhere: it did not happen (said)"));
        check(r#"{"kind":"resumed","by":"user"}"#, Some("resumed elsewhere"));
        check(r#"{"kind":"resumed","by":"timer"}"#, Some("resumed"));
        check(r#"{"kind":"acked"}"#, Some("seen elsewhere"));
        check(r#"{"kind":"ended"}"#, Some("it has ended"));
        check(r#"{"kind":"paused","reason":"user"}"#, None);
        let at = Line::parse(r#"{"kind":"acked","at":"2026-11-15T12:03:04Z"}"#).unwrap();
        assert!(told(&at).unwrap().starts_with("seen elsewhere at ") && told(&at).unwrap().ends_with(":03:04"));
    }
}
