//! The neutral events that every dialect is translated to.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

/// One fact that a line states.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    #[serde(flatten)]
    pub kind: EventKind,
    /// The subagent that the fact is about; absent for the agent itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
}

impl Event {
    /// Whether a tool call of the agent itself has ended.
    pub(crate) fn is_own_tool_end(&self) -> bool {
        self.subagent.is_none() && matches!(self.kind, EventKind::ToolEnded { .. })
    }
}

impl From<EventKind> for Event {
    fn from(kind: EventKind) -> Self {
        Self { kind, subagent: None }
    }
}

/// The content of an [`Event`]. In JSON the variant's name is the field `kind`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// The CLI named its conversation. The id is what a later resume needs.
    SessionStarted {
        session_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// An ACP agent said what it can do with conversations, in its reply to `initialize`.
    Capabilities(Capabilities),
    /// The CLI could not begin, continue or fork the conversation that it was asked for.
    SessionFailed {
        message: String,
    },
    /// The conversation was closed, or another process continues it: nothing of it is open any more.
    SessionEnded {
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    TurnStarted {
        /// Only codex app-server names its turns; an interrupt has to repeat the name.
        #[serde(skip_serializing_if = "Option::is_none")]
        turn_id: Option<String>,
    },
    TurnEnded {
        outcome: TurnOutcome,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The CLI has no open turn. The outcome of the last turn follows, was lost, or was that of a subagent.
    Idle,
    /// `delta` marks a fragment. Claude and codex app-server send fragments and then the whole text again; gemini and
    /// ACP send fragments only; codex exec and opencode send whole texts only.
    Thinking {
        text: String,
        delta: bool,
    },
    /// Text of the agent; `delta` as in `Thinking`.
    Text {
        text: String,
        delta: bool,
    },
    /// The CLI repeated a message of the user.
    UserText {
        text: String,
    },
    /// The CLI has taken a message of the user into a turn: the one with this id. Messages that were written while it works may
    /// have no turn of their own.
    MessageTaken {
        id: String,
    },
    /// The CLI has removed a message of the user from its queue, or did not accept it, or the turn that had taken it was not
    /// completed.
    MessageDropped {
        id: String,
    },
    ToolStarted {
        id: String,
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        input: Option<RawJson>,
        /// The model is still writing the input: the same event follows with it, unless the call ends before that.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        preparing: bool,
    },
    ToolEnded {
        id: String,
        failed: bool,
    },
    /// A command runs in the background. When it ends, claude starts a turn on its own.
    BackgroundStarted {
        id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    BackgroundEnded {
        id: String,
    },
    SubagentStarted {
        id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    SubagentEnded {
        id: String,
    },
    ApprovalAsked(ApprovalRequest),
    /// The agent asks the user something that is not a permission.
    Question {
        request_id: RawJson,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_id: Option<String>,
        text: String,
        /// What the answer has to repeat; absent if the question cannot be answered by a line to the CLI.
        #[serde(skip_serializing_if = "Option::is_none")]
        input: Option<RawJson>,
    },
    /// The agent asked for something that nobody can fulfil, and waits for a reply.
    UnsupportedRequest {
        request_id: RawJson,
        method: String,
        /// Left out in JSON if it is that the method is not offered.
        #[serde(skip_serializing_if = "Refusal::is_not_offered")]
        refusal: Refusal,
    },
    /// An approval or a question is closed: answered, or withdrawn by the CLI.
    Answered {
        request_id: RawJson,
    },
    Usage(ReportedUsage),
    /// The CLI asks its provider again on its own; the turn continues.
    Retry {
        #[serde(skip_serializing_if = "Option::is_none")]
        attempt: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u64>,
        message: String,
    },
    /// The account has used up its quota. Some CLIs report the moment of the reset, some the time until then, some a
    /// time of day.
    Quota {
        #[serde(skip_serializing_if = "Option::is_none")]
        resets_at: Option<Timestamp>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resets_in_ms: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resets_clock: Option<ResetClock>,
        message: String,
    },
    /// Something went wrong and the turn continues.
    Warning {
        message: String,
    },
    /// Something went wrong and the turn is over.
    Error {
        message: String,
    },
    /// The line is not JSON, or not all of it could be read. The turn continues.
    Malformed {
        reason: String,
        excerpt: String,
    },
    /// Valid JSON of a type that this version does not know.
    Unknown {
        name: String,
    },
    /// A known line that says nothing about the state.
    Other {
        name: String,
    },
}

impl EventKind {
    /// Whether the line was one of the dialect: neither malformed nor of an unknown type.
    pub(crate) fn is_recognized(&self) -> bool {
        !matches!(self, Self::Malformed { .. } | Self::Unknown { .. })
    }
}

/// How a request that nobody can fulfil is refused. In both cases the agent continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The client has no such method.
    NotOffered,
    /// A form is declined, as a person could do it.
    Decline,
}

impl Refusal {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    fn is_not_offered(&self) -> bool {
        *self == Self::NotOffered
    }
}

/// What an ACP agent can do with conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The version of the protocol that it speaks.
    pub version: u64,
    /// Whether it continues a conversation of an earlier process, and repeats it: `session/load`.
    pub load: bool,
    /// Whether it continues one without repeating it: `session/resume`.
    pub resume: bool,
    /// Whether it forks one: `session/fork`.
    pub fork: bool,
}

/// A date and a time of day as a CLI reports them. Their meaning depends on the time zone of the CLI if it names no
/// zone, and on the day of the report if it names no date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResetClock {
    /// `2026-07-05`, `07-05` without a year, a day of the week (`monday`), `today` or `tomorrow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// `20:19`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// `Europe/Dublin`, or what the CLI calls it (`PST`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    Completed,
    Interrupted,
    Failed,
    /// An earlier conversation was replayed while it was loaded; no turn of this process.
    Replayed,
}

/// A request for permission, with everything that an answer has to repeat.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApprovalRequest {
    pub request_id: RawJson,
    /// The call that waits; its result also closes the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The answers that the CLI offers. Empty if it takes a plain allow or deny.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<ApprovalOption>,
    /// Left out in JSON if it is the stream.
    #[serde(skip_serializing_if = "ApprovalChannel::is_stream")]
    pub channel: ApprovalChannel,
}

/// The origin of a request for permission, which is also the destination of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalChannel {
    /// The CLI's standard output; the answer is a line of its standard input.
    Stream,
    /// A hook of claude; the answer is the response to it.
    Hook,
    /// Only claude's screen, according to a notification: the answer has to be typed there.
    Screen,
}

impl ApprovalChannel {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    fn is_stream(&self) -> bool {
        *self == Self::Stream
    }
}

/// One answer that a CLI offers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApprovalOption {
    pub kind: OptionKind,
    /// The JSON to send back to choose this answer.
    pub value: RawJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    AllowOnce,
    AllowAlways,
    DenyOnce,
    DenyAlways,
    /// Denies and interrupts the turn.
    Cancel,
    /// An answer that this version does not know.
    Other,
}

/// The tokens and cost that the CLI reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportedUsage {
    /// What the tokens are counted over. Figures of different scopes must not be added up.
    pub scope: UsageScope,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Claude's covers the whole process, whatever the scope of its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl ReportedUsage {
    pub(crate) fn of(scope: UsageScope) -> Self {
        Self {
            scope,
            input_tokens: None,
            output_tokens: None,
            cache_read_tokens: None,
            cache_write_tokens: None,
            cost_usd: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageScope {
    /// One model call (opencode, qwen over ACP).
    Step,
    /// One turn (claude).
    Turn,
    /// Everything since the process started (gemini).
    Process,
    /// Everything since the conversation started, over all its processes (codex, qwen; the cost over ACP).
    Session,
    /// The agent decides and does not say (the tokens over ACP).
    Unspecified,
}

/// A piece of JSON, byte for byte as the CLI wrote it.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    pub(crate) fn new(value: &RawValue) -> Self {
        Self(value.to_owned())
    }

    /// Encodes a string as JSON.
    pub(crate) fn string(text: &str) -> Self {
        // A string always serializes: `null` only stands in for a case that cannot happen.
        Self(serde_json::value::to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Builds an object of values that are JSON already.
    pub(crate) fn object(fields: &[(&str, Self)]) -> Self {
        let field = |(name, value): &(&str, Self)| format!("{}:{}", Self::string(name).as_str(), value.as_str());
        let fields: Vec<String> = fields.iter().map(field).collect();
        let object = RawValue::from_string(format!("{{{}}}", fields.join(",")));
        // Whole values in an object are JSON: `null` only stands in for a case that cannot happen.
        Self(object.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}
