//! Messages to agents, and to programs that read them from their standard input.

use std::sync::Arc;

use relive_api::{Accepted, InputRequest};
use relive_core::{ErrorCode, Pid, Uuid};
use relive_journal::record::{Body, Input};

use crate::bodies::Hearing;
use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::owner::{Lane, Turn};
use crate::runtime::Runtime;
use crate::signal::is_being_ended;

/// The longest id of a message.
const ID_MAX: usize = 200;
/// The ids of the messages by which a process and a fork begin.
pub(crate) const INTENT_ID: &str = "intent";
pub(crate) const FORK_ID: &str = "fork";

/// Tells whether the runtime records messages or requests under such an id. A message that had it would pass for heard, or
/// a verb for answered.
fn is_reserved(id: &str) -> bool {
    let verb = id.split_once(':').map(|(verb, _)| verb);
    matches!(id, INTENT_ID | FORK_ID)
        || verb.is_some_and(|verb| matches!(verb, "resume" | "resolve" | "signals") || verb.starts_with("SIG"))
}

impl Runtime {
    /// Hands a message to a process. On return it is on the disk.
    pub async fn send(self: &Arc<Self>, id: &str, request: InputRequest) -> Result<Accepted> {
        if request.id.is_empty() || request.id.len() > ID_MAX {
            return Err(Error::new(ErrorCode::Invalid, format!("a message id has 1 to {ID_MAX} bytes")));
        }
        if is_reserved(&request.id) {
            let message =
                format!("`{}` cannot be the id of a message: Relive uses it itself", request.id.escape_debug());
            return Err(Error::new(ErrorCode::Invalid, message).with_hint("choose another id, such as a UUID"));
        }
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let ended = || {
                let message = format!("`{id}` has ended, so it hears nothing");
                Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resume {id} --input TEXT"))
            };
            let found = runtime.look_up_to_change(&id).await?;
            let (uuid, note) = runtime.identity_of(&found)?;
            let refused = runtime.hears(uuid).await.err();
            let mut turn = runtime.turn(uuid, Lane::Verb).await?;
            let accepted = match found {
                LookedUp::Living { .. } => turn.hear(request, refused).await?,
                // Sent again: it was heard before the end.
                LookedUp::Remembered(_) | LookedUp::OnDisk(_) | LookedUp::Unrecovered(_) => {
                    turn.has_heard(request.id).await?.then_some(false)
                }
            };
            Ok(Accepted { accepted: accepted.ok_or_else(ended)?, note })
        })
        .await
    }
}

impl Runtime {
    /// Refuses a message that a living process cannot take in.
    pub(crate) async fn hears(&self, uuid: Uuid) -> Result<()> {
        let Some(process) = self.living(uuid) else { return Ok(()) };
        let session = self.owners.find(uuid).and_then(|owner| owner.session());
        match self.body_of(process.of.pid) {
            Some(body) => body.hears(uuid, Hearing::Now(session)).await,
            None => Ok(()),
        }
    }
}

impl Turn {
    /// Records a message; `false` if it was recorded before, `None` if the process has ended without it.
    async fn hear(&mut self, request: InputRequest, refused: Option<Error>) -> Result<Option<bool>> {
        let heard = self.has_heard(request.id.clone()).await?;
        let Some(machine) = self.machine().filter(|_| !heard) else { return Ok(heard.then_some(false)) };
        let of = machine.incarnation();
        if let Some((signal, _)) = machine.told_to_end() {
            let message = format!("{}, so it hears nothing", is_being_ended(of.pid, signal));
            let hint = format!("relive wait {0}; relive resume {0} --input TEXT", of.pid);
            return Err(Error::new(ErrorCode::Conflict, message).with_hint(hint));
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        let input = Input { id: request.id, from: None, text: request.text.clone().into() };
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
    async fn has_heard(&mut self, id: String) -> Result<bool> {
        self.look(move |history| history.has_heard(&id)).await
    }
}
