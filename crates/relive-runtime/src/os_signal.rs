//! Signals of the operating system, which programs accept besides Relive's own.

use std::sync::Arc;

use relive_api::{Affected, SignalRequest};
use relive_core::{Body as Kind, Cause, ErrorCode, OsSignal, Signal, Why};
use relive_session::protocol::{Outcome, REQUEST_MAX, Verb};

use crate::error::{Error, Result};
use crate::gate::{not_done, sender};
use crate::lookup::LookedUp;
use crate::runtime::Runtime;
use crate::signal::earlier::{Resend, ended_already};

impl Runtime {
    /// Sends a signal by its name: one of Relive's, or to a program any of the operating system's.
    pub async fn signal_by_name(
        self: &Arc<Self>,
        id: &str,
        request: SignalRequest,
        request_id: Option<String>,
    ) -> Result<Affected> {
        self.signal_by_name_for(Cause::runtime(Why::User), id, request, request_id).await
    }

    pub(crate) async fn signal_by_name_for(
        self: &Arc<Self>,
        cause: Cause,
        id: &str,
        request: SignalRequest,
        request_id: Option<String>,
    ) -> Result<Affected> {
        // Names that both have are Relive's: they end the process, with a cause.
        match OsSignal::from_name(&request.signal).filter(|_| Signal::from_name(&request.signal).is_none()) {
            None => self.signal_for(cause, id, request, request_id).await,
            Some(_) if request.subtree => {
                let message = format!("{} can be sent to one program only, not to a subtree", request.signal);
                Err(Error::new(ErrorCode::Invalid, message)
                    .with_hint(format!("relive kill -s {} {id}", request.signal)))
            }
            Some(signal) => {
                let (runtime, id) = (Arc::clone(self), id.to_owned());
                self.to_the_end(async move { runtime.signal_program(cause, &id, signal, request_id).await }).await
            }
        }
    }

    async fn signal_program(
        self: &Arc<Self>,
        cause: Cause,
        id: &str,
        signal: OsSignal,
        request_id: Option<String>,
    ) -> Result<Affected> {
        let found = self.look_up_to_change(id).await?;
        let LookedUp::Living { process, note } = found else {
            let (uuid, _) = self.identity_of(&found)?;
            return self.ended_earlier(id, uuid, &Resend::of_program(signal));
        };
        let pid = process.of.pid;
        let kind = self.lock().table.view(pid, self.moment()).map(|view| view.body);
        if kind != Some(Kind::Exec) {
            let known = Signal::ALL.map(Signal::name).join(", ");
            let message = format!("PID {pid} is not a program and does not accept {signal}: it accepts {known}");
            let error = Error::new(ErrorCode::Invalid, message);
            // What people send these for has a command of its own; the others have nothing like them.
            return Err(match signal.name().as_ref() {
                "SIGSTOP" | "SIGTSTP" => error.with_hint(format!("relive pause {pid}")),
                "SIGCONT" => error.with_hint(format!("relive resume {pid}")),
                _ => error,
            });
        }
        // Always with an id: a shim that hangs up is asked again, and the program must get the signal once.
        let request = request_id.unwrap_or_else(|| self.clock.new_uuid().to_string());
        let request = named_request(signal, &request)?;
        // Whoever sent the signal that ends the program has ended it; the shim remembers that across a restart.
        let by = sender(cause);
        let verb = Verb::Signal { number: i32::from(signal.number()), request: Some(request), by };
        let note = note.or(self.note_os_while_frozen(cause.by, process, signal));
        let affected = Affected { affected: 1, pids: vec![pid], note, ..Affected::default() };
        // Before the program can end because of it: an ended process has no more events.
        let by = self.in_words_now(cause, None);
        self.tell(pid, "signal", serde_json::json!({"signal": signal.name(), "by": by}));
        match self.ask_shim(process, verb).await? {
            Outcome::Done => Ok(affected),
            Outcome::Kept => {
                let kept = format!("PID {pid} does not run yet: {signal} waits until it does");
                Ok(Affected { note: Some(kept), ..affected })
            }
            Outcome::NoProcess => Ok(ended_already(id)),
            refused @ (Outcome::WrongStage { .. }
            | Outcome::Unknown { .. }
            | Outcome::Failed { .. }
            | Outcome::Stat(_)) => Err(not_done(pid, &format!("did not get {signal}"), refused)),
        }
    }
}

/// Returns the id of a request for this signal, for the shim. An id that is too long is refused: without it, a repeated
/// request would look like a new one.
fn named_request(signal: OsSignal, id: &str) -> Result<String> {
    let request = format!("{signal}:{id}");
    if request.len() > REQUEST_MAX {
        let most = REQUEST_MAX + id.len() - request.len();
        return Err(Error::new(ErrorCode::Invalid, format!("a request id for {signal} has at most {most} bytes")));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_that_is_too_long_is_refused() {
        let named = |length: usize| named_request(OsSignal::from_name("HUP").unwrap(), &"x".repeat(length));
        assert_eq!(named(249).unwrap().len(), REQUEST_MAX);
        let refused = named(250).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Invalid);
        assert_eq!(refused.to_string(), "a request id for SIGHUP has at most 249 bytes");
    }
}
