//! Messages to agents, and to programs that read them from their standard input.

use std::sync::Arc;
use std::time::Duration;

use relive_api::{Accepted, InputRequest, ResumeRequest};
use relive_core::{Body as Kind, Cause, ErrorCode, Pid, Uuid, Why};
use relive_journal::record::{Body, Input};
use relive_types::program::quote;

use crate::bodies::DeliveryTime;
use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::own_workspace::WORKSPACE_ID;
use crate::owner::{Lane, Turn};
use crate::runtime::Runtime;
use crate::signal::is_being_ended;

/// The longest id of a message.
const ID_MAX: usize = 200;
/// How long a message waits for the end of an idle agent: longer than its grace period, and less long than a client waits.
const ENDS_WITHIN: Duration = Duration::from_secs(15);
/// How often it looks, at least.
const ENDS_AGAIN: Duration = Duration::from_millis(200);
/// A longer message is not repeated in a hint.
const HINTED_MAX: usize = 200;
/// The ids of the messages by which a process and a fork begin.
pub(crate) const INTENT_ID: &str = "intent";
pub(crate) const FORK_ID: &str = "fork";
/// How the id of the message begins that ends the input of a program.
pub(crate) const EOF_ID: &str = "eof:";

/// How the id of the message begins that a resume brings.
const RESUME_ID: &str = "resume:";

/// Tells whether the runtime records messages or requests under such an id. A message that had it would pass for heard, or
/// a verb for answered.
fn is_reserved(id: &str) -> bool {
    let verb = id.split_once(':').map(|(verb, _)| verb);
    matches!(id, INTENT_ID | FORK_ID | WORKSPACE_ID)
        || verb.is_some_and(|verb| {
            matches!(verb, "eof" | "resume" | "resolve" | "restart" | "signals" | "rename" | "rewind")
                || verb.starts_with("SIG")
        })
}

impl Runtime {
    /// Hands a message to a process. On return it is on the disk.
    pub async fn send(self: &Arc<Self>, id: &str, request: InputRequest) -> Result<Accepted> {
        self.send_from(None, id, request).await
    }

    /// Hands over a message of a process, or of a person.
    pub(crate) async fn send_from(
        self: &Arc<Self>,
        from: Option<Uuid>,
        id: &str,
        request: InputRequest,
    ) -> Result<Accepted> {
        if request.id.is_empty() || request.id.len() > ID_MAX {
            return Err(Error::new(ErrorCode::Invalid, format!("a message id has 1 to {ID_MAX} bytes")));
        }
        if request.text.is_empty() != request.eof {
            if request.eof {
                let message = "the end of an input has no text: send the text before it";
                return Err(Error::new(ErrorCode::Invalid, message));
            }
            return Err(empty_message(id));
        }
        if is_reserved(&request.id) {
            let message =
                format!("`{}` cannot be the id of a message: Relive uses it itself", request.id.escape_debug());
            return Err(Error::new(ErrorCode::Invalid, message).with_hint("choose another id, such as a UUID"));
        }
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let mut found = runtime.look_up_to_change(&id).await?;
            let (uuid, note) = runtime.identity_of(&found)?;
            if runtime.has_ended_idly(uuid).await {
                // The message begins its next run.
                found = runtime.look_up_to_change(&id).await?;
            }
            // To a program, spaces are keys or a line as good as any other.
            if !request.eof && request.text.trim().is_empty() && !runtime.is_program(&found) {
                return Err(empty_message(&id));
            }
            let refused = match runtime.accepts_message(uuid).await {
                Ok(()) if request.eof => runtime.accepts_eof(uuid).err(),
                answer => answer.err(),
            };
            let said = in_hint(&request.text);
            let request = recorded(request);
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            let accepted = match &found {
                LookedUp::Living { .. } => turn.hear(from, request.clone(), refused).await?,
                // Sent again: it was heard before the end.
                LookedUp::Remembered(_) | LookedUp::OnDisk(_) | LookedUp::Unrecovered(_) => {
                    let resumed = format!("{RESUME_ID}{}", request.id);
                    let heard = turn.has_received(request.id.clone()).await? || turn.has_received(resumed).await?;
                    heard.then_some(false)
                }
            };
            if accepted.is_none() && !request.eof && runtime.ended_idle(&found) {
                drop(turn);
                return runtime.continue_with(uuid, request).await;
            }
            let ended = || {
                let hint = match runtime.body_found(&found) {
                    // Most programs have no input that a message could be written to.
                    Some(Kind::Exec) => format!("relive resume {id}"),
                    Some(Kind::Compose | Kind::Supervisor) => {
                        format!("relive compose resume {id} --node NODE --input {said}")
                    }
                    Some(Kind::Agent | Kind::Cli) | None => format!("relive resume {id} --input {said}"),
                };
                Error::new(ErrorCode::Conflict, format!("`{id}` has ended and receives no messages")).with_hint(hint)
            };
            Ok(Accepted { accepted: accepted.ok_or_else(ended)?, note })
        })
        .await
    }
}

/// Returns a message as it is typed in a command, or a word in its place if it is long or has several lines.
fn in_hint(text: &str) -> String {
    if text.len() > HINTED_MAX || text.contains(char::is_control) { "TEXT".to_owned() } else { quote(text) }
}

impl Runtime {
    /// Tells whether a CLI agent was only ended because nobody needed it.
    fn ended_idle(&self, found: &LookedUp) -> bool {
        let (body, why) = match found {
            LookedUp::Remembered(pid) => {
                let state = self.lock();
                let Some(view) = state.table.view(*pid, self.moment()) else { return false };
                (Some(view.body), view.why)
            }
            LookedUp::OnDisk(found) => {
                let why = found.end.as_ref().and_then(|end| end.cause).map(|cause| cause.why);
                (crate::spec::body_of(&found.info.body), why)
            }
            LookedUp::Living { .. } | LookedUp::Unrecovered(_) => return false,
        };
        body == Some(Kind::Cli) && why == Some(Why::Idle)
    }

    /// Waits for the end of a CLI agent that is being ended because nobody needed it; `false` if it is not.
    async fn has_ended_idly(&self, uuid: Uuid) -> bool {
        let Some(process) = self.living(uuid) else { return false };
        let is_idle = {
            let state = self.lock();
            let body = state.table.view(process.of.pid, self.moment()).map(|view| view.body);
            let ending = state.table.machine(process.of.pid).and_then(|machine| machine.ending());
            body == Some(Kind::Cli) && ending.is_some_and(|(_, cause)| cause.why == Why::Idle)
        };
        let is_over = async {
            let mut bell = self.follow(uuid);
            while self.living(uuid).is_some_and(|living| living.of == process.of) {
                let _ = tokio::time::timeout(ENDS_AGAIN, bell.changed()).await;
            }
        };
        is_idle && tokio::time::timeout(ENDS_WITHIN, is_over).await.is_ok()
    }

    /// Begins the next run of a CLI agent with a message: the conversation is the same.
    async fn continue_with(self: &Arc<Self>, uuid: Uuid, request: InputRequest) -> Result<Accepted> {
        let resume = ResumeRequest { input: Some(request.text), ..ResumeRequest::default() };
        let cause = Cause::runtime(Why::User);
        let resumed = self.resume_for(cause, &uuid.to_string(), resume, Some(request.id)).await?;
        let note = format!("it had ended because it was idle, and continues as PID {}", resumed.pid);
        Ok(Accepted { accepted: true, note: Some(note) })
    }
}

/// Returns the refusal of a message without any text.
pub(crate) fn empty_message(id: &str) -> Error {
    Error::new(ErrorCode::Invalid, format!("the message to `{id}` is empty"))
}

impl Runtime {
    fn is_program(&self, found: &LookedUp) -> bool {
        self.body_found(found) == Some(Kind::Exec)
    }

    fn body_found(&self, found: &LookedUp) -> Option<Kind> {
        let of_table = |pid| self.lock().table.view(pid, self.moment()).map(|view| view.body);
        match found {
            LookedUp::Living { process, .. } => of_table(process.of.pid),
            LookedUp::Remembered(pid) => of_table(*pid),
            LookedUp::OnDisk(found) => crate::spec::body_of(&found.info.body),
            LookedUp::Unrecovered(_) => None,
        }
    }

    /// Refuses a message that a living process cannot take in.
    pub(crate) async fn accepts_message(&self, uuid: Uuid) -> Result<()> {
        let Some(process) = self.living(uuid) else { return Ok(()) };
        let session = self.owners.find(uuid).and_then(|owner| owner.session());
        match self.body_of(process.of.pid) {
            Some(body) => body.accepts_message(uuid, DeliveryTime::Now(session)).await,
            None => Ok(()),
        }
    }
}

impl Runtime {
    /// Refuses the end of an input for a process that is no program.
    fn accepts_eof(&self, uuid: Uuid) -> Result<()> {
        let Some(process) = self.living(uuid) else { return Ok(()) };
        let pid = process.of.pid;
        match self.lock().table.view(pid, self.moment()).map(|view| view.body) {
            Some(Kind::Exec) | None => Ok(()),
            Some(_) => {
                let message = format!("PID {pid} is not a program: it has no input to close");
                Err(Error::new(ErrorCode::Invalid, message))
            }
        }
    }
}

/// Returns a request as it is recorded: the end of an input is a message without a text, whose id says so.
fn recorded(request: InputRequest) -> InputRequest {
    let id = if request.eof { format!("{EOF_ID}{}", request.id) } else { request.id };
    InputRequest { id, ..request }
}

impl Turn {
    /// Records a message; `false` if it was recorded before, `None` if the process has ended without it.
    async fn hear(
        &mut self,
        from: Option<Uuid>,
        request: InputRequest,
        refused: Option<Error>,
    ) -> Result<Option<bool>> {
        let heard = self.has_received(request.id.clone()).await?;
        let Some(machine) = self.machine().filter(|_| !heard) else { return Ok(heard.then_some(false)) };
        let of = machine.incarnation();
        if let Some((signal, _)) = machine.told_to_end() {
            let message = format!("{} and receives no messages", is_being_ended(of.pid, signal));
            let hint = format!("relive wait {0}; relive resume {0} --input {1}", of.pid, in_hint(&request.text));
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let input = Input { id: request.id, from, text: request.text.clone().into() };
        self.write(of, self.runtime.moment(), vec![Body::Input(input)]).await?;
        self.hand_over(of.pid, Some(request.text));
        Ok(Some(true))
    }

    /// Keeps a message that was recorded until the body takes it in.
    pub(crate) fn hand_over(&mut self, pid: Pid, text: Option<String>) {
        if !self.runtime.body_of(pid).is_some_and(|body| body.reads_journal()) {
            self.state.said.extend(text);
        }
    }

    /// Tells whether a message with this id was recorded before.
    async fn has_received(&mut self, id: String) -> Result<bool> {
        self.look(move |history| history.has_received(&id)).await
    }
}
