//! The daemon, seen from the command line: whether a command is worth starting one, and what people are told of it.

mod launch;

use std::future::Future;
use std::ops::Deref;
use std::path::Path;

use relive_api::{
    Accepted, Affected, InputRequest, Lineage, ListQuery, PauseRequest, Process, ResolveRequest, ResumeRequest,
    Resumed, SignalMaskRequest, SignalRequest, SignalState,
};
use relive_client::Error;
use relive_core::ErrorCode;

use launch::{Launch, is_set};

use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Among how many names a name that was mistyped is looked for.
const NAMES_MAX: usize = 1_000;

/// Whether a command is worth a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Always,
    /// Only if there are histories it could tell about.
    IfHistories,
    /// Only if there are histories, or were.
    IfRemembered,
    Never,
}

impl Start {
    fn is_worth_it(self, data: &Path) -> bool {
        match self {
            Self::Always => true,
            Self::IfHistories => has_histories(data),
            Self::IfRemembered => has_histories(data) || has_tombstones(data),
            Self::Never => false,
        }
    }
}

/// Tells whether the data directory holds any history, so that there is something to ask a daemon about. Where that cannot
/// be told, the daemon says why.
fn has_histories(data: &Path) -> bool {
    match std::fs::read_dir(data.join("steps")) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Tells whether histories were collected, so that a daemon can tell what is gone from what never was.
fn has_tombstones(data: &Path) -> bool {
    data.join("tombstones.jsonl").exists()
}

/// Returns the data directory that is meant. A socket that is named alone leads to whatever its daemon has.
pub(crate) fn meant_data(context: &Context) -> Option<&Path> {
    (is_set("RELIVE_DATA_DIR") || !is_set("RELIVE_SOCKET")).then_some(&context.paths.data)
}

/// A client whose user reads what it says. What it adds to the requests is for people.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    context: &'a Context,
    start: Start,
    /// The daemon was there before us.
    was_running: bool,
    daemon: relive_client::Client,
}

impl Deref for Client<'_> {
    type Target = relive_client::Client;

    fn deref(&self) -> &Self::Target {
        &self.daemon
    }
}

impl<'a> Client<'a> {
    /// Returns `None` when there is no daemon, and none is to be started.
    pub(crate) async fn open(context: &'a Context, start: Start) -> Outcome<Option<Self>> {
        let mut daemon = relive_client::Client::new(&context.paths.socket);
        if let Some(data) = meant_data(context) {
            daemon = daemon.with_data(data);
        }
        if start != Start::Never {
            daemon = daemon.with_launcher(Launch::new(context));
        }
        let was_running = match daemon.connect().await {
            Ok(()) | Err(Error::Lost(_)) => true,
            Err(Error::NotRunning(_)) if start.is_worth_it(&context.paths.data) => {
                daemon.start().await?;
                false
            }
            Err(Error::NotRunning(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(Self { context, start, was_running, daemon }))
    }

    /// For a command about one process. Without histories there is none.
    pub(crate) async fn about(context: &'a Context, id: &str) -> Outcome<Self> {
        if id.is_empty() {
            return Err(CommandError::invalid("the id of a process is not empty").with_hint("relive ps -a"));
        }
        Self::open(context, Start::IfRemembered).await?.ok_or_else(|| CommandError::not_found(id))
    }

    pub(crate) fn context(&self) -> &'a Context {
        self.context
    }

    /// Tells whether a daemon was running when this client looked for one.
    pub(crate) fn was_running(&self) -> bool {
        self.was_running
    }

    pub(crate) async fn process(&self, id: &str) -> Outcome<Process> {
        self.told(id, self.daemon.process(id)).await
    }

    pub(crate) async fn proceed(&self, id: &str) -> Outcome<Affected> {
        self.told(id, self.daemon.proceed(id)).await
    }

    pub(crate) async fn abort(&self, id: &str) -> Outcome<Affected> {
        self.told(id, self.daemon.abort(id)).await
    }

    pub(crate) async fn signals(&self, id: &str) -> Outcome<SignalState> {
        self.told(id, self.daemon.signals(id)).await
    }

    pub(crate) async fn set_signals(&self, id: &str, request: &SignalMaskRequest) -> Outcome<SignalState> {
        self.told(id, self.daemon.set_signals(id, request)).await
    }

    pub(crate) async fn pause(&self, id: &str, request: &PauseRequest) -> Outcome<Affected> {
        self.told(id, self.daemon.pause(id, request)).await
    }

    pub(crate) async fn resume(&self, id: &str, request: &ResumeRequest) -> Outcome<Resumed> {
        self.told(id, self.daemon.resume(id, request)).await
    }

    pub(crate) async fn signal(&self, id: &str, request: &SignalRequest) -> Outcome<Affected> {
        self.told(id, self.daemon.signal(id, request)).await
    }

    pub(crate) async fn input(&self, id: &str, request: &InputRequest) -> Outcome<Accepted> {
        self.told(id, self.daemon.input(id, request)).await
    }

    pub(crate) async fn resolve(&self, id: &str, request: &ResolveRequest) -> Outcome<Affected> {
        self.told(id, self.daemon.resolve(id, request)).await
    }

    pub(crate) async fn lineage(&self, id: &str) -> Outcome<Lineage> {
        self.told(id, self.daemon.lineage(id)).await
    }

    /// Says that the PID which was asked for continues as another; names the process that was meant where there is none.
    async fn told<T: Noted>(&self, id: &str, answer: impl Future<Output = Result<T, Error>>) -> Outcome<T> {
        match answer.await {
            Ok(answer) => {
                if let Some(note) = answer.note().filter(|note| is_continues(note)) {
                    self.context.say(note);
                }
                Ok(answer)
            }
            Err(error) => {
                let error = CommandError::from(error);
                if error.code() != Some(ErrorCode::NotFound) || error.hint.is_some() {
                    return Err(error);
                }
                Err(match self.closest_name(id).await {
                    Some(name) => error.with_hint(format!("did you mean `{name}`?")),
                    None => error.with_hint("relive ps -a"),
                })
            }
        }
    }

    async fn closest_name(&self, id: &str) -> Option<String> {
        if self.start == Start::Never || id.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // Of many the newest: whoever mistypes a name means one that they know.
        let query = ListQuery { all: true, newest: true, limit: Some(NAMES_MAX), ..ListQuery::default() };
        let list = self.daemon.list(&query).await.ok()?;
        let names: Vec<&str> = list.processes.iter().filter_map(|process| process.name.as_deref()).collect();
        relive_types::suggest::closest(id, names.iter().copied()).map(str::to_owned)
    }
}

/// Tells whether a note says that a PID continues as another.
pub(crate) fn is_continues(note: &str) -> bool {
    note.starts_with("PID ") && note.contains(" continues as ")
}

/// An answer with a line for a person.
trait Noted {
    fn note(&self) -> Option<&str>;
}

macro_rules! noted {
    ($($answer:ty),*) => {
        $(impl Noted for $answer {
            fn note(&self) -> Option<&str> {
                self.note.as_deref()
            }
        })*
    };
}

noted!(Accepted, Affected, Lineage, Process, Resumed, SignalState);
