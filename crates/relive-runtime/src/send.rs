//! Messages to agents.

use std::sync::Arc;

use relive_api::{Accepted, InputRequest};
use relive_core::ErrorCode;
use relive_journal::record::{Body, Input};

use crate::bodies::Verb;
use crate::error::{Error, Result};
use crate::lookup::Meant;
use crate::owner::{Lane, Turn};
use crate::runtime::Runtime;

/// The longest id of a message.
const ID_MAX: usize = 200;

impl Runtime {
    /// Hands a message to an agent. On return it is on the disk.
    pub async fn send(self: &Arc<Self>, id: &str, request: InputRequest) -> Result<Accepted> {
        if request.id.is_empty() || request.id.len() > ID_MAX {
            return Err(Error::new(ErrorCode::Invalid, format!("a message id has 1 to {ID_MAX} bytes")));
        }
        let (runtime, id) = (Arc::clone(self), id.to_owned());
        self.to_the_end(async move {
            let ended = || {
                let message = format!("`{id}` has ended, so it hears nothing");
                Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resume {id} --input TEXT"))
            };
            let Meant::Living { process, note } = runtime.look_up(&id).await? else { return Err(ended()) };
            let mut turn = runtime.turn(process.uuid, Lane::Verb).await?;
            let accepted = turn.hear(request).await?.ok_or_else(ended)?;
            Ok(Accepted { accepted, note })
        })
        .await
    }
}

impl Turn {
    /// Records a message; `false` if it was recorded before, `None` if the process has ended.
    async fn hear(&mut self, request: InputRequest) -> Result<Option<bool>> {
        let Some(machine) = self.machine().filter(|machine| machine.told_to_end().is_none()) else { return Ok(None) };
        let of = machine.incarnation();
        if let Some(body) = self.runtime.body_of(of.pid) {
            body.accepts(Verb::Send)?;
        }
        let id = request.id.clone();
        if self.look(move |history| history.has_heard(&id)).await? {
            return Ok(Some(false));
        }
        let input = Input { id: request.id, from: None, text: request.text.clone().into() };
        self.write(of, vec![Body::Input(input)]).await?;
        self.desk.said.push(request.text);
        Ok(Some(true))
    }
}
