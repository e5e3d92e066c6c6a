//! What the owner and the shim say to each other.
//!
//! One packet of a SEQPACKET unix socket is one message: a line of JSON, then, after a newline, raw bytes where the
//! message has some. Shims outlive daemons, so this is stable: fields are only added, unknown ones passed over, and an
//! unknown request is answered with an error that says so. [`VERSION`] changes only if that is not enough.
//!
//! The shim greets every connection with [`Notice::Hello`]. Every [`Request`] has an id and gets one [`Reply`] with it.
//! Notices come in between. The log's content is not sent: who attaches is told how far it reaches, and reads the file.

use serde::{Deserialize, Serialize};

use crate::exit::ExitRecord;
use crate::spec::Size;
use crate::stage::Snapshot;

/// The version of this protocol.
pub const VERSION: u32 = 1;
/// The oldest version that is still spoken. Owner and shim understand each other where the versions that they speak overlap.
pub const OLDEST: u32 = 1;
/// The largest packet an owner sends.
pub const PACKET_MAX: usize = 64 * 1024;
/// The largest packet a shim sends.
pub const MESSAGE_MAX: usize = 16 * 1024;
/// The most input one `write` carries.
pub const WRITE_MAX: usize = 32 * 1024;
/// How many may be connected at once.
pub const CONNECTIONS_MAX: usize = 64;
/// The longest id of a request that sends a signal.
pub const REQUEST_MAX: usize = 256;
/// How many descriptors a shim keeps.
pub const STORED_MAX: usize = 16;

/// From the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the owner; the reply has it.
    pub id: u64,
    /// What is wanted.
    #[serde(flatten)]
    pub verb: Verb,
}

/// What an owner may want.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    /// Open the gate.
    Proceed,
    /// Let it never run.
    Abort,
    /// Send an OS signal to the program; SIGINT to its process group, as Ctrl-C on a terminal does.
    Signal {
        /// Its number.
        number: i32,
        /// The id of the request that sends it. A signal that was sent with this id before is not sent again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
    },
    /// Let the whole tree stand still. `Kept` where some of it still waits in the kernel: asked again, it says when all do.
    Freeze,
    /// Let it go on.
    Thaw,
    /// End the whole tree.
    Kill,
    /// The bytes after the newline are input for the program. Answered when they are in its pipe or terminal; until
    /// then this connection writes no more.
    Write {
        /// Which part of which message this is. A part that was written before, or waits to be, is not written again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<MessagePart>,
    },
    /// There is no more input: its pipe is closed; on a terminal, end of file is typed.
    CloseInput,
    /// The terminal has another size.
    Resize(Size),
    /// Tell this connection how far the log reaches, now and whenever it grows.
    Attach,
    /// This connection has read the log up to here, and the program must not run ahead of it by more than the log is sure
    /// to keep. Asked again as the reader gets on; a connection that ends holds nothing back.
    Hold {
        /// The offset up to which it has read. The largest number there is lets the program run freely.
        read: u64,
    },
    /// Start the daemon: a program of the session needs one and finds none. Done when it was started, not when it serves.
    StartDaemon,
    /// The program may run for so long from now; the time in which its tree stands still does not count. Without a number,
    /// for ever.
    Deadline {
        /// Milliseconds.
        left_ms: Option<u64>,
    },
    /// What is it doing?
    Stat,
    /// Keep the descriptor that comes with this packet, under a name.
    Store {
        /// The name. A descriptor of this name that is there already is replaced.
        name: String,
    },
    /// Give back the descriptor of this name; it is kept no longer.
    Return {
        /// The name.
        name: String,
    },
}

impl Verb {
    /// A signal that is sent as often as it is asked for.
    #[must_use]
    pub fn signal(number: i32) -> Self {
        Self::Signal { number, request: None }
    }

    /// Its name, as it is sent.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Proceed => "proceed",
            Self::Abort => "abort",
            Self::Signal { .. } => "signal",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
            Self::Kill => "kill",
            Self::Write { .. } => "write",
            Self::CloseInput => "close_input",
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

/// A part of a message to a program. The parts of all messages are written in their order, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MessagePart {
    /// The number of the message; a later message has a greater one.
    pub message: u64,
    /// The number of the part in the message.
    pub part: u32,
}

/// The input of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputState {
    /// Whether the program can still read what is written to it.
    pub open: bool,
    /// The last part of a message that was written whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<MessagePart>,
}

/// From the shim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// The answer to a request.
    Reply(Reply),
    /// Something to know.
    Notice(Notice),
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Of which request.
    pub id: u64,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Done.
    Done,
    /// It will be done as soon as its stage is reached.
    Kept,
    /// The answer to `stat`.
    Stat(Box<Stat>),
    /// It has ended: there is no process.
    NoProcess,
    /// Not in this stage, by name, with what the verb would need.
    WrongStage {
        /// For a person.
        message: String,
    },
    /// The system refused.
    Failed {
        /// The call that failed.
        call: String,
        /// The error's name.
        errno: String,
    },
    /// This shim does not know the request, or could not read it.
    Unknown {
        /// For a person.
        message: String,
    },
}

/// What a session is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// The stage and the pids.
    pub snapshot: Snapshot,
    /// Whether its tree stands still.
    pub frozen: bool,
    /// The OS pids of its tree, the shim's not among them. At most a thousand.
    pub members: Vec<i32>,
    /// How far the log reaches.
    pub log_end: u64,
    /// Which descriptors are kept.
    pub stored: Vec<String>,
    /// What became of its input; absent from a shim that does not know numbered messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputState>,
    /// What holds the tree, and what cannot be held, in the words of `doctor`.
    pub rungs: crate::tree::Rungs,
}

/// Something to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum Notice {
    /// The first packet of every connection.
    Hello {
        /// [`VERSION`] of the shim.
        version: u32,
        /// [`OLDEST`] of the shim; its version where it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oldest: Option<u32>,
        /// The version of Relive it is of.
        relive: String,
        /// The shim's own OS pid.
        shim_pid: i32,
        /// Where it stands.
        snapshot: Snapshot,
    },
    /// It stands somewhere else now.
    Moved {
        /// Where.
        snapshot: Snapshot,
    },
    /// The log reaches so far. Sent to those attached; those who are slow get the latest only.
    Grown {
        /// The log's end.
        log_end: u64,
    },
    /// It has ended; the exit record is on the disk and the log is whole. The last packet.
    Ended {
        /// The record.
        record: ExitRecord,
    },
}
