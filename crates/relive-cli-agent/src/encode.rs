//! Encodes messages to a CLI: a user turn, an interrupt, the answer to an approval.
//!
//! JSON that the CLI wrote itself (an input, an id) goes back byte for byte: parsing it could fail.

mod acp;
mod claude;
mod codex_app_server;

use serde_json::json;

use crate::dialect::Dialect;
use crate::event::{ApprovalChannel, ApprovalOption, ApprovalRequest, Event, EventKind, OptionKind, RawJson, Refusal};
use crate::form::{Filled, Form};

/// A person's answer to a request for permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Allow,
    /// Allow, and do not ask again for the like. A CLI that cannot remember takes it as a plain allow.
    AllowAlways,
    /// Deny. Claude tells the model the reason; the other dialects have no field for it.
    Deny {
        reason: Option<String>,
    },
}

/// The reason why a message cannot be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("{0} reads no messages while it runs")]
    NotDuplex(Dialect),
    #[error("the CLI has not named its conversation yet")]
    NoSession,
    #[error("no turn is open that could be interrupted")]
    NoTurn,
    #[error("the CLI does not offer this answer")]
    NotOffered,
    #[error("a hook asked for this permission: the answer is the response to the hook")]
    AskedByHook,
    #[error("no hook asked for this permission: the answer is a line to the CLI")]
    NotAskedByHook,
    #[error("only a notification told of this permission: the answer has to be typed in the CLI's own screen")]
    AskedOnScreen,
}

/// The dialects that can be written.
#[derive(Debug, Clone, Copy)]
enum DuplexDialect {
    Claude,
    CodexAppServer,
    Acp,
}

impl TryFrom<Dialect> for DuplexDialect {
    type Error = EncodeError;

    fn try_from(dialect: Dialect) -> Result<Self, EncodeError> {
        match dialect {
            Dialect::Claude | Dialect::Qwen => Ok(Self::Claude),
            Dialect::CodexAppServer => Ok(Self::CodexAppServer),
            Dialect::Acp => Ok(Self::Acp),
            Dialect::CodexExec | Dialect::Gemini | Dialect::Opencode => Err(EncodeError::NotDuplex(dialect)),
        }
    }
}

/// Encodes messages for one CLI process. It has to observe the events of that process, because codex and ACP need ids
/// that the CLI chose.
#[derive(Debug)]
pub struct Encoder {
    dialect: DuplexDialect,
    session_id: Option<String>,
    turn_id: Option<String>,
    /// The id of the next message of the user.
    message_id: Option<String>,
    last_request: u64,
}

impl Encoder {
    pub fn new(dialect: Dialect) -> Result<Self, EncodeError> {
        Ok(Self { dialect: dialect.try_into()?, session_id: None, turn_id: None, message_id: None, last_request: 0 })
    }

    /// Learns the ids that later messages have to repeat.
    pub fn observe(&mut self, event: &Event) {
        if event.subagent.is_some() {
            return;
        }
        if let EventKind::SessionStarted { session_id, .. } = &event.kind {
            self.session_id = Some(session_id.clone());
        } else if let EventKind::TurnStarted { turn_id: Some(turn_id) } = &event.kind {
            self.turn_id = Some(turn_id.clone());
        } else if let EventKind::TurnEnded { .. } | EventKind::Idle | EventKind::Error { .. } = &event.kind {
            self.turn_id = None;
        } else if let EventKind::SessionEnded { .. } = &event.kind {
            self.session_id = None;
            self.turn_id = None;
        }
    }

    /// Numbers the next requests from here, so that a later encoder for the same process repeats no number.
    pub fn number_requests_from(&mut self, number: u64) {
        self.last_request = number;
    }

    /// Gives the next message of the user an id, a UUID, which claude repeats when it takes the message into a turn. The other
    /// dialects have no field for it.
    pub fn name_next_message(&mut self, id: String) {
        self.message_id = Some(id);
    }

    /// Encodes a message of the user, which starts a turn. Every message is one line, including its line ending.
    pub fn user_turn(&mut self, text: &str) -> Result<String, EncodeError> {
        let message_id = self.message_id.take();
        let message = match self.dialect {
            DuplexDialect::Claude => claude::user_turn(text, message_id),
            DuplexDialect::CodexAppServer => {
                let session = self.session_id()?.to_owned();
                codex_app_server::user_turn(self.next_request(), &session, text)
            }
            DuplexDialect::Acp => {
                let session = self.session_id()?.to_owned();
                acp::user_turn(self.next_request(), &session, text)
            }
        };
        Ok(message + "\n")
    }

    /// Encodes the request to stop the turn and keep the conversation.
    pub fn interrupt(&mut self) -> Result<String, EncodeError> {
        let message = match self.dialect {
            DuplexDialect::Claude => claude::interrupt(self.next_request()),
            DuplexDialect::CodexAppServer => {
                let session = self.session_id()?.to_owned();
                let turn = self.turn_id.clone().ok_or(EncodeError::NoTurn)?;
                codex_app_server::interrupt(self.next_request(), &session, &turn)
            }
            DuplexDialect::Acp => acp::interrupt(self.session_id()?),
        };
        Ok(message + "\n")
    }

    /// Encodes the answer to a request for permission that the CLI printed. Claude and ACP agents accept every deny; codex
    /// accepts only the answers that it offers, if it offers any.
    pub fn answer(&self, request: &ApprovalRequest, answer: &Answer) -> Result<String, EncodeError> {
        match request.channel {
            ApprovalChannel::Stream => {}
            ApprovalChannel::Hook => return Err(EncodeError::AskedByHook),
            ApprovalChannel::Screen => return Err(EncodeError::AskedOnScreen),
        }
        let message = match self.dialect {
            DuplexDialect::Claude => claude::answer(request, answer),
            DuplexDialect::CodexAppServer => codex_app_server::answer(request, answer)?,
            DuplexDialect::Acp => acp::answer(request, answer)?,
        };
        Ok(message + "\n")
    }

    /// Returns whether the CLI takes this answer to a request: [`Self::answer`] encodes it then.
    #[must_use]
    pub fn offers(&self, request: &ApprovalRequest, answer: &Answer) -> bool {
        match self.dialect {
            DuplexDialect::Claude => true,
            DuplexDialect::CodexAppServer => request.options.is_empty() || choose(request, answer).is_some(),
            DuplexDialect::Acp => matches!(answer, Answer::Deny { .. }) || choose(request, answer).is_some(),
        }
    }

    /// Encodes the reply to a request that nobody can fulfil. `request_id` is JSON that the agent wrote.
    #[must_use]
    pub fn refuse(&self, request_id: &str, refusal: Refusal) -> String {
        let message = match (self.dialect, refusal) {
            (DuplexDialect::Claude, Refusal::NotOffered) => claude::not_offered(request_id),
            (DuplexDialect::Claude, Refusal::Decline) => claude::success(request_id, DECLINED),
            (DuplexDialect::CodexAppServer, Refusal::NotOffered) => codex_app_server::not_offered(request_id),
            (DuplexDialect::CodexAppServer, Refusal::Decline) => codex_app_server::result(request_id, DECLINED),
            (DuplexDialect::Acp, Refusal::NotOffered) => acp::not_offered(request_id),
            (DuplexDialect::Acp, Refusal::Decline) => acp::result(request_id, DECLINED),
        };
        message + "\n"
    }

    /// Encodes the answer to a question that the CLI printed: `input` is what it asked. Where it asks several things, each line
    /// answers one of them. A form that this text does not fill in is declined.
    #[must_use]
    pub fn reply(&self, request_id: &RawJson, input: &RawJson, text: &str) -> String {
        let (id, filled) = (request_id.as_str(), Form::read(input.as_str()).map(|form| filled(&form, text)));
        let message = match (self.dialect, filled) {
            (DuplexDialect::Claude, Ok(filled)) => claude::success(id, &filled),
            (DuplexDialect::Claude, Err(_)) => claude::reply(id, input, text),
            (DuplexDialect::CodexAppServer, Ok(filled)) => codex_app_server::result(id, &filled),
            (DuplexDialect::CodexAppServer, Err(_)) => codex_app_server::reply(id, input, text),
            (DuplexDialect::Acp, Ok(filled)) => acp::result(id, &filled),
            (DuplexDialect::Acp, Err(_)) => acp::result(id, DECLINED),
        };
        message + "\n"
    }

    /// Encodes the answer to a request for permission that a hook of claude made: the body of the response to that hook.
    pub fn hook_answer(request: &ApprovalRequest, answer: &Answer) -> Result<String, EncodeError> {
        match request.channel {
            ApprovalChannel::Hook => Ok(claude::hook_answer(request, answer)),
            ApprovalChannel::Stream => Err(EncodeError::NotAskedByHook),
            ApprovalChannel::Screen => Err(EncodeError::AskedOnScreen),
        }
    }

    fn session_id(&self) -> Result<&str, EncodeError> {
        self.session_id.as_deref().ok_or(EncodeError::NoSession)
    }

    fn next_request(&mut self) -> String {
        self.last_request += 1;
        format!("relive-{}", self.last_request)
    }
}

/// The reply that declines a form, in every dialect.
const DECLINED: &str = r#"{"action":"decline"}"#;

/// Returns the reply to a form, which every dialect has from MCP.
fn filled(form: &Form, text: &str) -> String {
    match form.fill(text) {
        Ok(Filled::Accepted(content)) => json!({ "action": "accept", "content": content }).to_string(),
        Ok(Filled::Declined) | Err(_) => DECLINED.to_owned(),
    }
}

/// Returns the answer to each of some questions: a line for each, or all of the text for all of them.
fn answers(questions: usize, text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if questions > 1 && lines.len() == questions { lines } else { vec![text; questions] }
}

/// Returns the option that comes closest to an answer.
fn choose<'a>(request: &'a ApprovalRequest, answer: &Answer) -> Option<&'a ApprovalOption> {
    let wanted: &[OptionKind] = match answer {
        Answer::Allow => &[OptionKind::AllowOnce],
        Answer::AllowAlways => &[OptionKind::AllowAlways, OptionKind::AllowOnce],
        Answer::Deny { .. } => &[OptionKind::DenyOnce, OptionKind::Cancel],
    };
    wanted.iter().find_map(|kind| request.options.iter().find(|option| option.kind == *kind))
}
