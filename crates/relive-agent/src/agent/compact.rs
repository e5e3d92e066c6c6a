//! Compaction: when the model's window fills up, the same model summarizes the older part of the conversation.
//!
//! The newest messages stay unchanged, with every call and its result, and so does the last question. The cost of the
//! summary is recorded with it. Until then nothing has changed, so after a crash, a pause or a failure the summary is
//! requested again.

use relive_journal::Durability;
use relive_journal::conversation::Cut;
use relive_journal::record::{Body, Compacted, Usage};
use relive_llm::{Message, ModelError, Purpose, Question, estimated_tokens};
use serde_json::json;

use super::ask::{Aloud, Unanswered, exit_cause};
use super::dialogue::Dialogue;
use super::heard::Heard;
use super::retry::Attempts;
use super::transcript::transcript;
use super::{Exit, Loop, Step};

/// The space for an answer: a fifth of the window, and at most this much.
const ANSWER_MAX: u64 = 32_768;
/// A smaller window is useless.
const WINDOW_MIN: u64 = 256;
/// How much of the task is repeated before each summary.
const TASK_MAX: usize = 8 * 1024;

const SUM_UP: &str = "You keep the memory of an agent whose conversation has grown too long. You are shown the older \
part of it. Write what the agent must know to go on without it: what was asked for, what was decided and why, what was \
done, which files and commands matter and how they stand, what failed, what was found out, and what is still to do. \
Keep names, paths, numbers and identifiers exact. Write plain text of at most 600 words, and nothing else.";

/// The tokens that a provider counted, so that only later messages have to be estimated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// The length of the counted messages, without the prompt and the tools.
    pub(super) bytes: usize,
    pub(super) tokens: u64,
}

impl Loop {
    /// Returns how many tokens of the window the next question takes.
    pub(super) fn context_tokens(&self) -> u64 {
        let Measured { bytes, tokens } = self.measured.unwrap_or_else(|| {
            let tokens = estimated_tokens(self.system_prompt.len() + self.tool_definitions.len());
            Measured { bytes: 0, tokens }
        });
        tokens.saturating_add(estimated_tokens(self.dialogue.messages.bytes().saturating_sub(bytes)))
    }

    fn is_full(&self) -> bool {
        self.window.is_some_and(|window| self.context_tokens() > window - (window / 5).min(ANSWER_MAX))
    }

    /// Compacts the conversation until the next question fits, with space for an answer.
    pub(super) async fn make_room(&mut self, step: u32) -> Step {
        // First the newest quarter of the window is kept; if that is too much, only the last question.
        for share in [4, u64::MAX] {
            if !self.is_full() {
                return Ok(());
            }
            self.compact(step, self.window.unwrap_or(u64::MAX) / share).await?;
            self.catch_up().await?;
            self.boundary()?;
            self.within_limits(step).await?;
        }
        if self.is_full() { Err(self.does_not_fit()) } else { Ok(()) }
    }

    /// Shrinks the window after the model has refused this many tokens. Returns `false` if nothing would fit any more.
    pub(super) fn shrink_window(&mut self, refused_tokens: u64) -> bool {
        let smaller = refused_tokens / 4 * 3;
        self.window = Some(self.window.map_or(smaller, |window| window.min(smaller)));
        smaller >= WINDOW_MIN
    }

    fn does_not_fit(&self) -> Exit {
        let (window, model) = (self.window.unwrap_or_default(), &self.agent.meta.model);
        Exit::Faulted(format!(
            "the conversation does not fit into the {window} tokens that {model} can read, even summed up \
             (hint: if it can read more, say so under context_window in config.yaml)"
        ))
    }

    async fn compact(&mut self, step: u32, keep_tokens: u64) -> Step {
        let cuts = self.agent.journal.cuts().await?;
        let messages = self.dialogue.messages.clone();
        let Some(cut) = choose(&messages, &cuts, keep_tokens) else { return Err(self.does_not_fit()) };
        let before = self.context_tokens();
        let (said, usage) = self.sum_up(step, &messages[..cut.messages]).await?;
        let summary = format!("{}{}", self.task(), said.trim());
        let compacted = Compacted { through: cut.through, summary: summary.into(), usage: Some(usage) };
        self.record(Body::Compacted(compacted), Durability::Synced).await?;
        self.dialogue = Dialogue::of(self.agent.journal.conversation().await?);
        self.measured = None;
        let after = self.context_tokens();
        let body = json!({"messages": cut.messages, "tokens_before": before, "tokens_after": after});
        self.event("compacted", body);
        Ok(())
    }

    /// Returns the task in the user's own words, which no summary may lose.
    fn task(&self) -> String {
        let max = self.window.and_then(|window| usize::try_from(window / 4).ok()).unwrap_or(TASK_MAX).min(TASK_MAX);
        let task = &self.agent.intent[..self.agent.intent.floor_char_boundary(max)];
        format!("The task, as it was given:\n\n{task}\n\nSince then:\n\n")
    }

    /// Asks for a summary, with the same retries as for any other answer.
    async fn sum_up(&mut self, step: u32, messages: &[Message]) -> Step<(String, Usage)> {
        let mut attempts = Attempts::default();
        loop {
            self.model_started(Purpose::Summary).await?;
            // Half of the window is for the transcript; a token has about four bytes.
            let bytes_max = self.window.map_or(usize::MAX, |window| usize::try_from(window * 2).unwrap_or(usize::MAX));
            let question = Question {
                step,
                system_prompt: SUM_UP.into(),
                tools: "[]".into(),
                messages: vec![Message::User { text: transcript(messages, bytes_max) }].into(),
                answers: self.standing.answers,
                purpose: Purpose::Summary,
            };
            let asked_tokens = question.estimated_tokens();
            let mut heard = Heard::default();
            let error = match self.ask_once(question, &mut heard, Aloud::No).await {
                Ok(()) if !heard.text.trim().is_empty() => {
                    let usage = heard.usage.unwrap_or_else(|| self.estimate(&heard, asked_tokens));
                    return Ok((heard.text, usage));
                }
                Ok(()) => ModelError::Empty("the model did not summarize the conversation".to_owned()),
                Err(Unanswered::Exit(exit)) => {
                    self.cut_off(heard, asked_tokens, exit_cause(&exit)).await?;
                    return Err(exit);
                }
                Err(Unanswered::Failed(error)) => error,
            };
            self.cut_off(heard, asked_tokens, Some(error.to_string())).await?;
            let shrunk = matches!(error, ModelError::ContextFull(_)) && self.shrink_window(asked_tokens);
            if !shrunk {
                self.back_off(&mut attempts, error).await?;
            }
            self.catch_up().await?;
            self.boundary()?;
            self.within_limits(step).await?;
        }
    }
}

/// Returns the earliest cut that leaves at most `keep_tokens`, else the latest. The last question is never summarized,
/// and a summary without an answer in it is useless.
fn choose(messages: &[Message], cuts: &[Cut], keep_tokens: u64) -> Option<Cut> {
    let is_user = |message: &Message| matches!(message, Message::User { .. });
    let asked = messages.iter().rposition(|message| !is_user(message)).map_or(0, |last| last + 1);
    let first_answer = messages.iter().position(|message| matches!(message, Message::Model { .. }))?;
    let mut chosen: Option<Cut> = None;
    let mut kept = (messages.len(), 0);
    for cut in cuts.iter().rev().filter(|cut| (first_answer + 1..=asked).contains(&cut.messages)) {
        let between = messages.get(cut.messages..kept.0).unwrap_or_default();
        kept = (cut.messages, kept.1 + between.iter().map(Message::bytes).sum::<usize>());
        if chosen.is_some() && estimated_tokens(kept.1) > keep_tokens {
            break;
        }
        chosen = Some(*cut);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use relive_llm::ToolCall;

    fn user(bytes: usize) -> Message {
        Message::User { text: "u".repeat(bytes) }
    }

    fn answer(calls: usize) -> Message {
        let call = |number| ToolCall { id: format!("c{number}"), name: "read".to_owned(), args: "{}".to_owned() };
        Message::Model { thinking: None, text: None, calls: (0..calls).map(call).collect(), carry: None }
    }

    fn result(bytes: usize) -> Message {
        Message::Tool { id: "c0".to_owned(), ok: true, result: "r".repeat(bytes) }
    }

    /// Checks `messages` with cuts after these numbers of them.
    fn check(messages: &[Message], cuts: &[usize], keep_tokens: u64, expect: Option<usize>) {
        let cuts: Vec<Cut> = cuts.iter().map(|&messages| Cut { messages, through: messages as u64 }).collect();
        let chosen = choose(messages, &cuts, keep_tokens).map(|cut| cut.messages);
        assert_eq!(chosen, expect, "{messages:?} {keep_tokens}");
    }

    #[test]
    fn the_cut_keeps_as_much_as_fits_and_always_the_last_question() {
        let steps = [user(40), answer(1), result(40), answer(1), result(40), answer(1), result(40)];
        let cuts = [1, 3, 5, 7];
        check(&steps, &cuts, 1000, Some(3));
        check(&steps, &cuts, 25, Some(3));
        check(&steps, &cuts, 20, Some(5));
        check(&steps, &cuts, 0, Some(7));
        let spoken = [&steps[..], &[user(4000), user(4000)]].concat();
        check(&spoken, &[1, 3, 5, 7, 8, 9], 20, Some(7));
    }

    #[test]
    fn messages_without_an_answer_are_not_summarized() {
        check(&[user(4000)], &[1], 0, None);
        check(&[user(4000), user(4000)], &[1, 2], 0, None);
        let summed_up = [Message::Summary { text: "s".repeat(4000) }, user(4000)];
        check(&summed_up, &[2], 0, None);
        let again = [Message::Summary { text: String::new() }, answer(0), user(10)];
        check(&again, &[2, 3], 0, Some(2));
    }
}
