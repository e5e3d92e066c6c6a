//! The conversation as the model is shown it, kept up to date record by record.
//!
//! The rules are those of the journal's own conversation: every call is followed by exactly one result, in the order of
//! the calls, and what was said meanwhile comes after the results. A recovered agent builds it from the same records.

use relive_journal::conversation::Said;
use relive_journal::payload::{Json, Text};
use relive_journal::record::{Body, ModelEnded};

use relive_llm::{Conversation, Message, ToolCall};

/// A conversation in progress.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    pub(super) messages: Conversation,
    /// The calls of the last answer, each with its result once it is known; empty when all have one.
    calls: Vec<(ToolCall, Option<(bool, String)>)>,
    /// Messages that arrived while the calls ran.
    meanwhile: Vec<Message>,
    /// Messages that arrived during the model call: they come after the answer.
    unheard: Vec<Message>,
    asking: bool,
}

impl Dialogue {
    /// The conversation that these records amount to.
    pub(super) fn of(records: Vec<Body>) -> Self {
        let mut dialogue = Self::default();
        for body in records {
            dialogue.take(body);
        }
        dialogue
    }

    /// Takes in a message.
    pub(super) fn hear(&mut self, text: String) {
        let message = Message::User { text };
        if self.asking {
            self.unheard.push(message);
        } else if self.calls.is_empty() {
            self.messages.push(message);
        } else {
            self.meanwhile.push(message);
        }
    }

    /// A call of the last answer, while not all of them have their result.
    pub(super) fn call(&self, call: u32) -> Option<&ToolCall> {
        self.calls.get(call as usize).map(|(asked, _)| asked)
    }

    /// Takes in a record.
    pub(super) fn take(&mut self, body: Body) {
        match Said::of(body) {
            Some(Said::Input(input)) => self.hear(whole(input.text)),
            Some(Said::Summary(compacted)) => {
                self.asking = false;
                self.messages.push(Message::Summary { text: whole(compacted.summary) });
            }
            Some(Said::Asked) => {
                self.messages.append(&mut self.unheard);
                self.asking = true;
            }
            Some(Said::CutOff) => {
                self.asking = false;
                self.messages.append(&mut self.unheard);
            }
            Some(Said::Answer(answer)) => self.answer(answer),
            Some(Said::Result { call, ok, text }) => self.result(call, ok, whole(text)),
            None => {}
        }
    }

    fn answer(&mut self, answer: ModelEnded) {
        self.asking = false;
        let call =
            |call: relive_journal::record::Call| ToolCall { id: call.id, name: call.name, args: json(call.args) };
        let calls: Vec<ToolCall> = answer.calls.into_iter().map(call).collect();
        self.calls = calls.iter().map(|call| (call.clone(), None)).collect();
        self.messages.push(Message::Model {
            thinking: answer.thinking.map(whole),
            text: answer.text.map(whole),
            calls,
            carry: answer.carry.map(json),
        });
        if self.calls.is_empty() {
            self.messages.append(&mut self.unheard);
        } else {
            self.meanwhile.append(&mut self.unheard);
        }
    }

    fn result(&mut self, call: u32, ok: bool, text: String) {
        if let Some((_, result)) = self.calls.get_mut(call as usize) {
            *result = Some((ok, text));
        }
        if self.calls.iter().any(|(_, result)| result.is_none()) {
            return;
        }
        for (asked, result) in self.calls.drain(..) {
            let (ok, result) = result.unwrap_or_default();
            self.messages.push(Message::Tool { id: asked.id, ok, result });
        }
        self.messages.append(&mut self.meanwhile);
    }
}

fn whole(text: Text) -> String {
    match text {
        Text::Inline(text) => text,
        // Payloads are loaded before a conversation is built.
        Text::Blob(blob) => blob.head,
    }
}

fn json(json: Json) -> String {
    match json {
        Json::Inline(raw) => raw.get().to_owned(),
        Json::Blob(blob) => blob.head,
    }
}
