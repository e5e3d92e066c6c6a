//! What the daemon and its clients say to each other, and where they meet.
//!
//! HTTP with JSON bodies on a unix socket, below `/v1`. Streams are server-sent events whose ids are `epoch.seq`. The
//! types here are the wire: fields are only ever added. There is no behaviour here beyond finding the
//! socket and encoding headers.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/daemon` | | [`DaemonStatus`] |
//! | `POST /v1/daemon/stop` | [`StopQuery`] | [`Stopping`], then the daemon is gone |
//! | `GET /v1/processes?all=BOOL` and the rest of [`ListQuery`] | | [`ProcessList`] |
//! | `POST /v1/processes` | [`RunRequest`] | [`Created`] |
//! | `POST /v1/programs` | [`ExecRequest`] | [`ExecStarted`] |
//! | `POST /v1/flows` | [`FlowRequest`] | [`Created`] |
//! | `GET /v1/processes/ID/flow` | | [`FlowStatus`] |
//! | `POST /v1/processes/ID/node` | [`NodeRequest`] | [`NodeResumed`] |
//! | `GET /v1/processes/ID` | | [`Process`] |
//! | `POST /v1/processes/ID/wait` | [`WaitRequest`] | [`WaitAnswer`] |
//! | `POST /v1/processes/ID/pause` | [`PauseRequest`] | [`Affected`] |
//! | `POST /v1/processes/ID/resume` | [`ResumeRequest`] | [`Resumed`] |
//! | `POST /v1/processes/ID/signal` | [`SignalRequest`] | [`Affected`] |
//! | `POST /v1/processes/ID/proceed` | | [`Affected`] |
//! | `POST /v1/processes/ID/abort` | | [`Affected`] |
//! | `POST /v1/processes/ID/input` | [`InputRequest`] | [`Accepted`] |
//! | `POST /v1/processes/ID/resolve` | [`ResolveRequest`] | [`Affected`] |
//! | `GET /v1/processes/ID/journal?follow=BOOL&after=EPOCH.SEQ` | | server-sent events, the lines of `steps.jsonl` |
//! | `GET /v1/processes/ID/events?follow=BOOL&after=EPOCH.SEQ` | | server-sent events, the lines of `events.jsonl` |
//! | `GET /v1/processes/ID/lineage` | | [`Lineage`] |
//! | `GET /v1/processes/ID/diff` and [`DiffQuery`] | | [`FilesDiff`] |
//! | `POST /v1/processes/ID/rewind` | [`RewindRequest`] | [`Rewound`] |
//! | `POST /v1/processes/ID/restore` | [`RestoreRequest`] | [`FilesChanged`] |
//! | `POST /v1/processes/ID/merge` | [`MergeRequest`] | [`FilesChanged`] |
//! | `POST /v1/blame` | [`BlameRequest`] | [`Blame`] |
//! | `POST /v1/creations/UUID/cancel` | | [`StartCancelled`] |
//! | `GET /v1/workspaces` | | [`OwnWorkspaces`] |
//! | `POST /v1/workspaces/remove` | [`RemoveWorkspaceRequest`] | [`OwnWorkspace`] |
//! | `GET /v1/resumable?limit=N&cursor=TEXT` | | [`ResumableList`] |
//! | `POST /v1/processes/ID/rename` | [`RenameRequest`] | [`Affected`] |
//! | `POST /v1/processes/ID/remove` | | [`Removed`] |
//! | `POST /v1/gc` | [`GcRequest`] | [`GcAnswer`] |
//! | `GET /v1/usage?by=WORDS&since=DAY` | | [`UsageReport`] |
//! | `GET /v1/pool` | | [`PoolReport`] |
//! | `GET /v1/self` | | [`SelfInfo`], to a program inside of a process |
//! | `POST /v1/self/end` | [`EndSelfRequest`] | none: the process, and whoever asked inside of it, ends |
//! | `GET /v1/handles` | | [`HandleList`] |
//! | `POST /v1/handles` | [`GrantRequest`] | [`Handle`] |
//! | `POST /v1/handles/release` | [`ReleaseRequest`] | [`HandleList`], of what was released |
//!
//! `ID` is a PID, a name, a UUID or a unique beginning or end of one, percent-encoded. A request that changes something may
//! carry the header `relive-request-id`: the same id again gets the same answer and changes nothing. A request may carry
//! `relive-data-dir`: a daemon of another data directory refuses it. Every answer carries `relive-version` and
//! `relive-api`. Errors are [`ErrorBody`] with the HTTP status of [`http_status`].

#![forbid(unsafe_code)]

mod authority;
mod daemon;
mod directory;
mod environment;
mod error;
mod files;
mod flow;
mod gc;
mod inbox;
mod list;
mod paths;
pub mod percent;
mod pool;
mod process;
mod program;
mod run;
mod signals;
mod usage;
mod verbs;
mod words;

pub use authority::{
    EndSelfRequest, FOREIGN_SELF, FOREIGN_SELF_HINT, GrantRequest, Handle, HandleList, ReleaseRequest, SelfInfo,
};
pub use daemon::{DaemonStatus, StopQuery, Stopping};
pub use directory::{UnsafeDirectory, check_directory};
pub use environment::Environment;
pub use error::{ErrorBody, ErrorDetail, http_status};
pub use files::{
    Blame, BlameRequest, BlamedLine, DiffQuery, FileChange, FileConflict, FilesChanged, FilesDiff, GcSnapshots,
    MergeRequest, NotKept, OwnWorkspace, OwnWorkspaces, RemoveWorkspaceRequest, RestoreRequest, RewindRequest, Rewound,
    Workspace, WorkspaceKind,
};
pub use flow::{FlowKind, FlowRequest, FlowStatus, NodeRequest, NodeResumed, NodeStatus};
pub use gc::{GcAnswer, GcCandidate, GcRequest};
pub use inbox::{
    AckRequest, Acked, Answer, AnswerKind, Change, INBOX_ENDED_MAX, Inbox, Item, ItemKind, chosen, command_of, item_of,
    numbers_choose, question_id, rule_for_always, sort_items, with_words,
};
pub use list::{Ancestor, Lineage, ListQuery, ProcessList, Resumable, ResumableList};
pub use paths::{OWN_SOCKET, Paths, PathsError};
pub use pool::{PoolLimits, PoolReport, PooledAgent};
pub use process::{Exit, Instructions, PendingCall, PendingQuestion, Process, SuspendedBelow, TreeUsage, reason_word};
pub use program::{
    EnterRequest, ExecRequest, ExecStarted, Inherited, Isolated, Isolation, LastSignal, Namespace, NamespaceKind,
    Network, ResourceLimit, Resources, Session, Stdio, elapsed,
};
pub use run::{Created, RunRequest, StartCancelled, TerminalSize, WaitAnswer, WaitRequest};
pub use signals::{OnSignal, SignalMaskRequest, SignalRequest, SignalState};
pub use usage::{Removed, RenameRequest, UsageQuery, UsageReport, UsageRow};
pub use verbs::{
    ANSWER_MAX, Accepted, Affected, Failed, GateRequest, InputRequest, KeptPause, PauseRequest, Resolution,
    ResolveRequest, ResumeRequest, Resumed,
};
pub use words::{cause_in_words, end_in_words, end_reason, not_started, reached_limit};

/// The version of the wire. A daemon and a client with different ones do not talk.
pub const API_VERSION: u32 = 1;
/// The largest body a request may have.
pub const BODY_MAX: usize = 8 << 20;

/// The most bytes of a program and its arguments, as JSON: they are in one record of its journal.
pub const ARGUMENTS_MAX: usize = 900 << 10;

/// Returns why a program has too many arguments, if it has.
#[must_use]
pub fn too_many_arguments(argv: &[String]) -> Option<String> {
    let size = serde_json::to_vec(argv).map_or(usize::MAX, |json| json.len());
    (size > ARGUMENTS_MAX).then(|| {
        format!(
            "the program and its arguments have {size} bytes as JSON, and at most {ARGUMENTS_MAX} can be recorded: pass them in a \
             file or through the standard input"
        )
    })
}
/// Names the request for the daemon's memory of answers.
pub const REQUEST_ID_HEADER: &str = "relive-request-id";
/// Names the data directory that the client means, [percent-encoded](percent::encode).
pub const DATA_DIR_HEADER: &str = "relive-data-dir";
/// Names the moment, in milliseconds since 1970, after which a request that was not begun with is refused.
pub const EXPIRES_HEADER: &str = "relive-expires";
/// Names the version of the wire of who answers.
pub const API_HEADER: &str = "relive-api";
/// Names the version of who answers.
pub const VERSION_HEADER: &str = "relive-version";
