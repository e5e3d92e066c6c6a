//! The daemon for the command line: when a command starts one, and the messages about it.

mod launch;
mod own;
mod unreached;
mod witness;

use std::future::Future;
use std::ops::Deref;
use std::path::Path;

use relive_api::{
    Accepted, Affected, InputRequest, Lineage, ListQuery, PauseRequest, Process, Removed, RenameRequest,
    ResolveRequest, ResumeRequest, Resumed, SignalMaskRequest, SignalRequest, SignalState,
};
use relive_client::{Error, Retry};
use relive_core::{ErrorCode, Uuid};

use launch::{Launch, is_set};
pub(crate) use own::{OwnSocket, refuse_isolated, refuse_output};
pub(crate) use unreached::{Unreached, chmod, holder_of_socket, holder_without_socket, refuse_unreached};
use witness::LockHolder;

use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// How many names are searched for a suggestion.
const NAMES_MAX: usize = 1_000;

/// Whether a command starts a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Always,
    /// Only if there are processes to report.
    IfHistories,
    /// Only if there are processes, or were.
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

/// Returns whether the data directory contains any process, so that there is something to ask a daemon about. If that
/// cannot be determined, the daemon reports why.
fn has_histories(data: &Path) -> bool {
    match std::fs::read_dir(data.join("steps")) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Returns whether processes were collected, so that a daemon can distinguish collected ones from unknown ones.
fn has_tombstones(data: &Path) -> bool {
    data.join("tombstones.jsonl").exists()
}

/// Returns the expected data directory. A socket that is set alone leads to whatever directory its daemon has.
pub(crate) fn meant_data(context: &Context) -> Option<&Path> {
    (is_set("RELIVE_DATA_DIR") || !is_set("RELIVE_SOCKET")).then_some(&context.paths.data)
}

/// Returns when the daemon does not let this command see a process any more, with its answer: the output of a program is
/// read from a file, not through the daemon. A person sees a process for ever.
pub(crate) async fn loses_sight(client: &Client<'_>, id: &str, uuid: Uuid) -> CommandError {
    let uuid = uuid.to_string();
    if OwnSocket::from_env().is_some()
        && let Err(error) = client.wait(&uuid, &uuid, None).await
        && let error = CommandError::from(error)
        && error.code() == Some(ErrorCode::NotFound)
    {
        // As if it had been asked for now.
        return client.process(id).await.err().unwrap_or(error);
    }
    std::future::pending().await
}

/// A client for a person. It adds messages for people to the requests.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    context: &'a Context,
    start: Start,
    /// Whether the daemon was running before.
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
    /// Returns `None` if there is no daemon, and none should be started.
    pub(crate) async fn open(context: &'a Context, start: Start) -> Outcome<Option<Self>> {
        let daemon_of = |socket: &Path| {
            let mut daemon = relive_client::Client::new(socket);
            if let Some(data) = meant_data(context) {
                daemon = daemon.with_data(data);
            }
            if start != Start::Never {
                daemon = daemon.with_launcher(Launch::new(context));
            }
            daemon
        };
        let own = OwnSocket::from_env();
        if let Some(socket) = own.as_ref().and_then(|own| own.of(&context.paths)) {
            let daemon = daemon_of(socket);
            let is_isolated = own.as_ref().is_some_and(|own| own.is_isolated(&context.paths));
            match daemon.connect().await {
                Ok(()) => return Ok(Some(Self { context, start, was_running: true, daemon })),
                // An isolated program has no other socket: the next daemon opens this one again.
                Err(Error::NotRunning(_)) if is_isolated && start == Start::Never => return Ok(None),
                Err(Error::NotRunning(_)) if is_isolated => {
                    daemon.start().await?;
                    return Ok(Some(Self { context, start, was_running: false, daemon }));
                }
                Err(_) => {}
            }
        }
        // It knows us by the session that we are in as well.
        let daemon = daemon_of(&context.paths.socket).with_witness(LockHolder { data: context.paths.data.clone() });
        let was_running = match daemon.connect().await {
            Ok(()) | Err(Error::Lost(_)) => true,
            Err(Error::NotRunning(_)) => {
                refuse_isolated(&context.paths, own.as_ref())?;
                let is_worth_it = start.is_worth_it(&context.paths.data);
                if is_worth_it {
                    daemon.start().await?;
                } else if !unreached::listens_again(context, &daemon).await {
                    // Where there are no processes, nobody runs inside of one.
                    return if own.is_some() && start != Start::Never { Err(own::foreign()) } else { Ok(None) };
                }
                !is_worth_it
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(own) = own {
            own.check(&daemon, &context.paths).await?;
        }
        Ok(Some(Self { context, start, was_running, daemon }))
    }

    /// Connects to a daemon that runs, for a program that stays beside its process: it starts no daemon, and reports at
    /// once that one went away.
    pub(crate) async fn beside(context: &Context) -> Option<relive_client::Client> {
        let own = OwnSocket::from_env();
        let socket = own.as_ref().and_then(|own| own.of(&context.paths));
        for socket in [socket, Some(context.paths.socket.as_path())].into_iter().flatten() {
            let mut daemon = relive_client::Client::new(socket).with_retry(Retry::NEVER);
            if let Some(data) = meant_data(context) {
                daemon = daemon.with_data(data);
            }
            if daemon.connect().await.is_ok() {
                return Some(daemon);
            }
        }
        None
    }

    /// Opens a client for a command about one process. Without any process there is nothing to ask.
    pub(crate) async fn about(context: &'a Context, id: &str) -> Outcome<Self> {
        if id.is_empty() {
            return Err(CommandError::invalid("the id of the process is empty").with_hint("relive ps -a"));
        }
        Self::open(context, Start::IfRemembered).await?.ok_or_else(|| CommandError::not_found(id))
    }

    pub(crate) fn context(&self) -> &'a Context {
        self.context
    }

    /// Returns whether a daemon was running when this client looked for one.
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

    pub(crate) async fn rename(&self, id: &str, request: &RenameRequest) -> Outcome<Affected> {
        self.told(id, self.daemon.rename(id, request)).await
    }

    pub(crate) async fn remove(&self, id: &str) -> Outcome<Removed> {
        self.told(id, self.daemon.remove(id)).await
    }

    pub(crate) async fn lineage(&self, id: &str) -> Outcome<Lineage> {
        self.told(id, self.daemon.lineage(id)).await
    }

    /// Reports that the requested PID continues as another one; suggests a name if there is no such process.
    async fn told<T: Noted>(&self, id: &str, answer: impl Future<Output = Result<T, Error>>) -> Outcome<T> {
        match answer.await {
            Ok(answer) => {
                if let Some(note) = answer.note().filter(|note| is_continues(note)) {
                    self.context.say(note);
                }
                Ok(answer)
            }
            Err(error) => {
                let error = self.in_words_of(id, CommandError::from(error)).await;
                let is_unknown = error.code() == Some(ErrorCode::NotFound);
                if is_unknown && let Some(name) = self.name_that_begins(id).await {
                    return Err(error.with_hint(format!("did you mean `{name}`?")));
                }
                if !is_unknown || error.hint.is_some() {
                    return Err(error);
                }
                Err(match self.closest_name(id).await {
                    Some(name) => error.with_hint(format!("did you mean `{name}`?")),
                    None => error.with_hint("relive ps -a"),
                })
            }
        }
    }

    /// Names the process of an error as it was typed: a person has not seen its UUID.
    async fn in_words_of(&self, id: &str, error: CommandError) -> CommandError {
        const UUID_LEN: usize = 36;
        let said = error.message.strip_prefix("process ").and_then(|rest| rest.split_at_checked(UUID_LEN));
        let Some((uuid, rest)) = said.and_then(|(uuid, rest)| Some((uuid.parse::<Uuid>().ok()?, rest))) else {
            return error;
        };
        let is_same = self.daemon.process(id).await.is_ok_and(|process| process.uuid == uuid);
        if !is_same || id.parse::<Uuid>().is_ok_and(|typed| typed == uuid) {
            return error;
        }
        let named = if id.bytes().all(|byte| byte.is_ascii_digit()) { format!("PID {id}") } else { format!("`{id}`") };
        CommandError { message: format!("{named}{rest}"), ..error }
    }

    /// Finds the only name that begins with the typed text, which is a better suggestion than a similar name.
    async fn name_that_begins(&self, id: &str) -> Option<String> {
        let is_word = id.len() > 1 && id.chars().all(|letter| letter.is_alphanumeric() || "._-".contains(letter));
        if self.start == Start::Never || !is_word || id.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (name, all) = (Some(format!("{id}*")), true);
        let query = ListQuery { all, name, newest: true, limit: Some(NAMES_MAX), ..ListQuery::default() };
        let list = self.daemon.list(&query).await.ok()?;
        let mut names: Vec<String> = list.processes.into_iter().filter_map(|process| process.name).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() == 1 { names.pop().filter(|name| name != id) } else { None }
    }

    async fn closest_name(&self, id: &str) -> Option<String> {
        if self.start == Start::Never || id.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // The newest of many: a mistyped name is usually that of a recent process.
        let query = ListQuery { all: true, newest: true, limit: Some(NAMES_MAX), ..ListQuery::default() };
        let list = self.daemon.list(&query).await.ok()?;
        let names: Vec<&str> = list.processes.iter().filter_map(|process| process.name.as_deref()).collect();
        relive_types::suggest::closest(id, names.iter().copied()).map(str::to_owned)
    }
}

/// Returns whether a note says that a PID continues as another one.
pub(crate) fn is_continues(note: &str) -> bool {
    note.starts_with("PID ") && note.contains(" continues as ")
}

/// An answer with a note for a person.
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

noted!(Accepted, Affected, Lineage, Process, Removed, Resumed, SignalState);
