//! Signals, pauses and messages from clients.

use std::sync::Arc;

use relive_agent::Letter;
use relive_api::{Accepted, Affected, InputRequest, PauseRequest, SignalRequest};
use relive_core::{Caller, Cause, ErrorCode, Pid, Reached, Signal, State as Life, Urgency, Why};
use relive_journal::Durability;
use relive_journal::record::{Body, Input};
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::runtime::{Runtime, State, Who};

impl Runtime {
    /// Sends a signal.
    pub async fn signal(self: &Arc<Self>, id: &str, request: SignalRequest) -> Result<Affected> {
        let signal = Signal::from_name(&request.signal).ok_or_else(|| {
            let message = format!("`{}` is no signal", request.signal);
            Error::new(ErrorCode::Invalid, message).with_hint("one of: TERM, KILL, INT, PAUSE, RESUME")
        })?;
        let Some(pid) = self.find_or_ended(id).await? else { return Ok(ended_already(id)) };
        let (now, cause) = (self.now(), Cause::kernel(Why::User));
        let mut state = self.lock();
        let reached = if request.subtree {
            state.table.signal_tree(pid, signal, cause, now)?
        } else {
            state.table.signal(pid, signal, cause, now)?
        };
        Ok(self.reached(&mut state, pid, reached))
    }

    /// Pauses.
    pub async fn pause(self: &Arc<Self>, id: &str, request: PauseRequest) -> Result<Affected> {
        let Some(pid) = self.find_or_ended(id).await? else { return Ok(ended_already(id)) };
        let (now, urgency) = (self.now(), if request.now { Urgency::Now } else { Urgency::Boundary });
        let mut state = self.lock();
        let reached = if request.subtree {
            state.table.pause_subtree(pid, urgency, now)?
        } else {
            state.table.pause(pid, urgency, now)?
        };
        Ok(self.reached(&mut state, pid, reached))
    }

    pub(crate) fn reached(self: &Arc<Self>, state: &mut State, pid: Pid, reached: Reached) -> Affected {
        let Reached { pids, effects } = reached;
        let ended =
            state.table.view(pid, self.now()).is_none_or(|view| matches!(view.state, Life::Zombie | Life::Dead));
        self.carry_out(state, effects);
        let note = (pids.is_empty() && ended).then(|| format!("process {pid} has ended already: nothing to do"));
        Affected { affected: pids.len(), pids, note }
    }

    /// The PID of a process in the table, or `None` for one that ended before this daemon and is only on the disk.
    pub(crate) async fn find_or_ended(&self, id: &str) -> Result<Option<Pid>> {
        match self.resolve(id).await? {
            crate::query::Target::Listed(pid) => Ok(Some(pid)),
            crate::query::Target::OnDisk(_) => Ok(None),
        }
    }

    /// Hands a message to an agent. On return it is on the disk.
    pub async fn send(self: &Arc<Self>, id: &str, request: InputRequest) -> Result<Accepted> {
        let ended = || {
            let message = format!("`{id}` has ended, so it hears nothing");
            Error::new(ErrorCode::Conflict, message).with_hint(format!("relive resume {id} --input TEXT"))
        };
        let pid = self.find_or_ended(id).await?.ok_or_else(ended)?;
        if request.id.is_empty() || request.id.len() > 200 {
            return Err(Error::new(ErrorCode::Invalid, "a message id has 1 to 200 bytes"));
        }
        loop {
            let input = Input { id: request.id.clone(), from: None, text: request.text.clone().into() };
            let (recorded, answer) = oneshot::channel();
            let handed = {
                let state = self.lock();
                let view = state.table.view(pid, self.now()).ok_or_else(ended)?;
                if view.dead_at.is_some() {
                    return Err(ended());
                }
                match state.bodies.get(&pid) {
                    Some(body) => body.inbox.try_send(Letter::Input { input, recorded }).map_err(|error| match error {
                        tokio::sync::mpsc::error::TrySendError::Full(_) => Some(Error::new(
                            ErrorCode::Exhausted,
                            format!("process {pid} has {} messages waiting", crate::runtime::INBOX_MAX),
                        )),
                        tokio::sync::mpsc::error::TrySendError::Closed(_) => None,
                    }),
                    None => Err(None),
                }
            };
            match handed {
                Ok(()) => match answer.await {
                    Ok(Ok(accepted)) => return Ok(Accepted { accepted }),
                    Ok(Err(text)) => return Err(Error::new(ErrorCode::Internal, text)),
                    // The body stopped with the message unread: it is there no more, so the next turn finds out.
                    Err(_) => tokio::task::yield_now().await,
                },
                Err(Some(error)) => return Err(error),
                Err(None) => {
                    if let Some(answer) = self.send_to_suspended(pid, &request).await? {
                        return Ok(answer);
                    }
                }
            }
        }
    }

    /// Writes a message into the journal of a process that has no body; `None` if it has one again, or has ended.
    async fn send_to_suspended(self: &Arc<Self>, pid: Pid, request: &InputRequest) -> Result<Option<Accepted>> {
        let who = self.who(pid)?;
        let _turn = self.turn(who.uuid).lock().await;
        {
            let state = self.lock();
            let ended = state.table.view(pid, self.now()).is_none_or(|view| view.dead_at.is_some());
            if ended || state.bodies.contains_key(&pid) {
                return Ok(None);
            }
        }
        let writer = self.writer_of_suspended(who).await?;
        if writer.history().has_heard(&request.id) {
            return Ok(Some(Accepted { accepted: false }));
        }
        let mut journal = self.journal(who.uuid, writer);
        let input = Input { id: request.id.clone(), from: None, text: request.text.clone().into() };
        journal.append(self.now(), vec![Body::Input(input)], Durability::Synced).await?;
        Ok(Some(Accepted { accepted: true }))
    }

    pub(crate) fn who(&self, pid: Pid) -> Result<Who> {
        let state = self.lock();
        let view = state.table.view(pid, self.now());
        let view = view.ok_or_else(|| Error::new(ErrorCode::NotFound, format!("no process `{pid}`")))?;
        let of = relive_core::Incarnation { pid, generation: view.generation };
        Ok(Who { of, uuid: view.uuid })
    }

    /// May be named by the person who owns the socket.
    pub(crate) fn listed(&self, id: &str) -> Result<Pid, relive_core::Refusal> {
        self.lock().table.resolve(Caller::Person, id)
    }
}

fn ended_already(id: &str) -> Affected {
    Affected { affected: 0, pids: Vec::new(), note: Some(format!("`{id}` has ended already: nothing to do")) }
}
