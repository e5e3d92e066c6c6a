//! The protocol between an owner and a shim.
//!
//! One packet of a SEQPACKET unix socket is one message: a line of JSON, then, after a newline, optional raw bytes.
//! Shims outlive daemons, so the protocol is stable: fields are only added, unknown ones are ignored, and an unknown
//! request is answered with an error that says so. [`VERSION`] changes only if that is not enough.
//!
//! The shim sends [`Notice::Hello`] on every connection. Every [`Request`] has an id and gets one [`Reply`] with it.
//! Notices may arrive in between. The log itself is not sent: an attached client is told where it ends, and reads the
//! file.

use serde::{Deserialize, Serialize};

use crate::exit::ExitRecord;
use crate::log::Stream;
use crate::spec::Size;
use crate::stage::Snapshot;
use crate::tree::Rungs;

/// The version of this protocol.
pub const VERSION: u32 = 1;
/// The oldest supported version. Owner and shim understand each other if their ranges of versions overlap.
pub const OLDEST: u32 = 1;
/// The largest packet an owner sends.
pub const PACKET_MAX: usize = 64 * 1024;
/// The largest packet a shim sends.
pub const MESSAGE_MAX: usize = 16 * 1024;
/// The most input in one `write`.
pub const WRITE_MAX: usize = 32 * 1024;
/// How many clients may be connected at once.
pub const CONNECTIONS_MAX: usize = 64;
/// The longest id of a request that sends a signal.
pub const REQUEST_MAX: usize = 256;
/// How many descriptors a shim keeps.
pub const STORED_MAX: usize = 16;

/// A request of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the owner, and repeated in the reply.
    pub id: u64,
    #[serde(flatten)]
    pub verb: Verb,
}

/// The kinds of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    Proceed,
    /// Ends it at the gate: the program never runs.
    Abort {
        /// Who aborts it, as its owner knows it; the exit record names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<u32>,
    },
    /// Sends an OS signal to the program; SIGINT to its process group, like Ctrl-C on a terminal.
    Signal {
        number: i32,
        /// The id of the request that sends it. A signal that was sent with this id before is not sent again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
        /// The sender, as its owner knows it. The exit record names the sender of the signal that ended the program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<u32>,
    },
    /// Freezes the whole tree. `Kept` if some processes still wait in the kernel: asked again, it tells when all are
    /// frozen.
    Freeze,
    Thaw,
    Kill,
    /// Writes the bytes after the newline as input for the program. Answered when they are in its pipe or terminal;
    /// until then this connection writes no more.
    Write {
        /// The part of the message. A part that was written before, or is already queued, is not written again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<MessagePart>,
    },
    /// Ends the input: closes its pipe; on a terminal, types end of file.
    CloseInput,
    /// Closes the reader's end of an output pipe: whoever writes to it from now on gets SIGPIPE or EPIPE. Output that is in the
    /// pipe goes to the log. Refused for a terminal.
    CloseOutput {
        stream: Stream,
    },
    /// Changes the size of the terminal.
    Resize(Size),
    /// Reports the end of the log to this connection, now and whenever it grows.
    Attach,
    /// Reports that this connection has read the log up to here, and that the program must not run ahead of it by more
    /// than the log is sure to keep. Repeated as the reader progresses; a closed connection holds nothing back.
    Hold {
        /// The offset up to which it has read. The largest number lets the program run freely.
        read: u64,
    },
    /// Starts the daemon: a program of the session needs one and finds none. Answered when it was started, not when it
    /// serves.
    StartDaemon,
    /// Limits the running time of the program from now on; time in which its tree is frozen does not count. Without a
    /// number there is no limit.
    Deadline {
        left_ms: Option<u64>,
    },
    /// Returns the state of the session.
    Stat,
    /// Keeps the descriptor in this packet, under a name.
    Store {
        /// The name. An existing descriptor of this name is replaced.
        name: String,
    },
    /// Returns the descriptor of this name.
    Return {
        name: String,
        /// Whether the shim keeps it too. One of an earlier version does not.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keep: bool,
    },
}

impl Verb {
    /// Returns a request for a signal that is sent every time.
    #[must_use]
    pub fn signal(number: i32) -> Self {
        Self::Signal { number, request: None, by: None }
    }

    /// Returns its name in the protocol.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Proceed => "proceed",
            Self::Abort { .. } => "abort",
            Self::Signal { .. } => "signal",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Kill => "kill",
            Self::Write { .. } => "write",
            Self::CloseInput => "close_input",
            Self::CloseOutput { .. } => "close_output",
            Self::Resize(_) => "resize",
            Self::Attach => "attach",
            Self::Hold { .. } => "hold",
            Self::StartDaemon => "start_daemon",
            Self::Deadline { .. } => "deadline",
            Self::Stat => "stat",
            Self::Store { .. } => "store",
            Self::Return { .. } => "return",
        }
    }
}

/// A part of a message to a program. The parts of all messages are written in order, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MessagePart {
    /// The number of the message; later messages have greater numbers.
    pub message: u64,
    /// The number of the part in the message.
    pub part: u32,
}

/// The state of a program's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputState {
    /// Whether the program can still read its input.
    pub open: bool,
    /// The last part of a message that was written completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<MessagePart>,
}

/// A message of the shim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    Reply(Reply),
    Notice(Notice),
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub id: u64,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    Done,
    /// It will be done as soon as its stage is reached.
    Kept,
    /// The answer to `stat`.
    Stat(Box<Stat>),
    /// The program has ended: there is no process.
    NoProcess,
    /// Not possible in this stage, with what the verb needs.
    WrongStage {
        message: String,
    },
    /// The system refused.
    Failed {
        /// The system call.
        call: String,
        errno: String,
    },
    /// This shim does not know the request, or could not parse it.
    Unknown {
        message: String,
    },
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    pub snapshot: Snapshot,
    /// Whether its tree is frozen.
    pub frozen: bool,
    /// The OS pids of its tree, without the shim's. At most a thousand.
    pub members: Vec<i32>,
    /// The end of the log.
    pub log_end: u64,
    /// The names of the stored descriptors.
    pub stored: Vec<String>,
    /// The state of its input; absent from a shim that does not know numbered messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputState>,
    /// The mechanisms in use and the limits that cannot be enforced, as `doctor` shows them.
    pub rungs: Rungs,
}

/// A notification of the shim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum Notice {
    /// The first packet of every connection.
    Hello {
        version: u32,
        /// The shim's [`OLDEST`]; its version if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oldest: Option<u32>,
        /// The version of Relive of the shim.
        relive: String,
        /// The shim's own OS pid.
        shim_pid: i32,
        snapshot: Snapshot,
        /// The mechanisms in use, as in [`Stat`]; absent from a shim that does not send them, or has no tree yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rungs: Option<Box<Rungs>>,
    },
    /// The session changed its stage.
    Moved { snapshot: Snapshot },
    /// The log has grown. Sent to attached clients; slow ones get only the latest.
    Grown { log_end: u64 },
    /// It has ended; the exit record is on the disk and the log is complete. The last packet.
    Ended { record: ExitRecord },
}
