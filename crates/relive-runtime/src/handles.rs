//! Handles: what a process may do to processes that are not below it, and what keeps a completion record.
//!
//! A handle is a record in the journal of its holder, so it is true after a crash; only a living holder has one. The
//! table has those of the processes in it. A handle to a process that ended before this daemon comes back with the record
//! of its end, when a process asks for the first time (`recall`): a start reads what lives, not what ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use relive_api::{GrantRequest, Handle, HandleList, ReleaseRequest};
use relive_core::{ErrorCode, Holder, Pid, Rights, Uuid};
use relive_journal::record::{Body, Granted, Released};
use relive_types::short_id;

use crate::error::{Error, Result};
use crate::lookup::LookedUp;
use crate::owner::{Lane, Turn};
use crate::recall::NamedHandle;
use crate::runtime::{ProcessRef, Runtime};

/// Returns by which id the journal knows a request to release a handle: it tells what a repeat is answered.
fn release_id(rights: Rights, target: Uuid, id: &str) -> String {
    let rights = match rights {
        Rights::Observer => "observer",
        Rights::Controller => "controller",
        Rights::Owner => "owner",
    };
    format!("release:{rights}:{target}:{id}")
}

impl Turn {
    /// Returns the rights of the handle to a process that this request has released before, if it has.
    async fn was_released(&mut self, target: Uuid, request: Option<&str>) -> Result<Option<Rights>> {
        let Some(id) = request else { return Ok(None) };
        for rights in [Rights::Observer, Rights::Controller, Rights::Owner] {
            if self.was_answered(Some(&release_id(rights, target, id))).await? {
                return Ok(Some(rights));
            }
        }
        Ok(None)
    }
}

impl Runtime {
    /// Gives a process a handle to another one. `by` is the process that gives it, or nobody for a person.
    pub(crate) async fn grant(
        self: &Arc<Self>,
        by: Option<ProcessRef>,
        request: GrantRequest,
        request_id: Option<String>,
    ) -> Result<Handle> {
        let rights = match request.rights {
            Rights::Observer | Rights::Controller => request.rights,
            Rights::Owner => {
                let message = "a handle is given as `observer` or as `controller`: only who spawns a process owns it";
                return Err(Error::new(ErrorCode::Invalid, message));
            }
        };
        let LookedUp::Living { process: holder, .. } = self.look_up_to_change(&request.to).await? else {
            let message = format!("`{}` has ended: it can hold no handle", request.to);
            return Err(Error::new(ErrorCode::Conflict, message));
        };
        let (target, pid) = self.listed_target(&request.target).await?;
        let runtime = Arc::clone(self);
        self.to_the_end(async move {
            let answer =
                Handle { holder: holder.of.pid, holder_uuid: holder.uuid, target: pid, target_uuid: target, rights };
            let giver = by.map_or(Holder::Person, |by| Holder::Process(by.of.pid));
            let req = request_id.map(|id| format!("grant:{id}"));
            let mut turn = runtime.turn(holder.uuid, Lane::Verb).await?;
            // The journal tells: it is what is true after a crash.
            let held = turn.look(move |history| history.handles.get(&target).copied()).await?;
            if let Some(held) = held.filter(|held| *held >= rights) {
                runtime.lock().table.restore_handle(holder.of.pid, pid, held);
                return Ok(Handle { rights: held, ..answer });
            }
            if turn.was_answered(req.as_deref()).await? {
                return Ok(answer);
            }
            // Before the record: what is refused is not written.
            runtime.lock().table.check_hand(giver, holder.of.pid, pid)?;
            let granted = Granted { target, rights, by: by.map(|by| by.uuid), req };
            turn.write(holder.of, runtime.moment(), vec![Body::Granted(granted)]).await?;
            runtime.lock().table.restore_handle(holder.of.pid, pid, rights);
            Ok(answer)
        })
        .await
    }

    /// Finds a process that a handle can be to: one that the table knows.
    async fn listed_target(self: &Arc<Self>, id: &str) -> Result<(Uuid, Pid)> {
        let found = self.look_up(id).await?;
        let (uuid, _) = self.identity_of(&found)?;
        match found {
            LookedUp::Living { process, .. } => Ok((uuid, process.of.pid)),
            LookedUp::Remembered(pid) => Ok((uuid, pid)),
            LookedUp::OnDisk(_) | LookedUp::Unrecovered(_) => {
                let message = format!("`{id}` ended too long ago for a handle: its journal is all that is left");
                Err(Error::new(ErrorCode::Conflict, message).with_hint(format!("relive logs {id}")))
            }
        }
    }

    /// Takes the handle of a process to another one away.
    pub(crate) async fn release_handle(
        self: &Arc<Self>,
        holder: ProcessRef,
        request: ReleaseRequest,
        request_id: Option<String>,
    ) -> Result<HandleList> {
        let target = match self.look_up(&request.target).await {
            Ok(found) => self.identity_of(&found)?.0,
            // It was removed, and the handle is left.
            Err(error) if error.code() == ErrorCode::NotFound => {
                self.held_by_part(holder, &request.target).await?.ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        let runtime = Arc::clone(self);
        self.to_the_end(async move {
            let mut turn = runtime.turn(holder.uuid, Lane::Verb).await?;
            if let Some(rights) = turn.was_released(target, request_id.as_deref()).await? {
                // A repeat. What was granted since stays.
                return Ok(runtime.released(holder, target, rights));
            }
            let held = turn.look(move |history| history.handles.get(&target).copied()).await?;
            let Some(rights) = held else { return Ok(HandleList::default()) };
            let req = request_id.map(|id| release_id(rights, target, &id));
            turn.write(holder.of, runtime.moment(), vec![Body::Released(Released { target, req })]).await?;
            runtime.forget_handle(holder, target).await;
            Ok(runtime.released(holder, target, rights))
        })
        .await
    }

    /// Takes the handle of a process to another one out of the table, once that is recorded.
    pub(crate) async fn forget_handle(&self, holder: ProcessRef, target: Uuid) {
        let recalls = self.to_recall.forget(holder.uuid, target).await;
        let mut state = self.lock();
        let pids = state.table.handles_of(holder.of.pid).into_keys().collect::<Vec<Pid>>();
        for pid in pids {
            if state.table.view(pid, self.moment()).is_some_and(|view| view.uuid == target) {
                state.table.release_handles(holder.of.pid, pid);
            }
        }
        drop(state);
        drop(recalls);
        // Whoever waits for it, or follows it, by that handle does so no longer.
        self.sight_changed.notify_waiters();
    }

    fn released(&self, holder: ProcessRef, target_uuid: Uuid, rights: Rights) -> HandleList {
        let target = self.lock().table.current_pid(target_uuid).unwrap_or(Pid::RUNTIME);
        let (holder, holder_uuid, rights) = (holder.of.pid, holder.uuid, rights);
        HandleList { handles: vec![Handle { holder, holder_uuid, target, target_uuid, rights }] }
    }

    /// Tells whether this request has released the handle of a process to another one before.
    pub(crate) async fn was_released(
        self: &Arc<Self>,
        holder: ProcessRef,
        target: Uuid,
        request: Option<&str>,
    ) -> Result<bool> {
        let mut turn = self.turn(holder.uuid, Lane::Own).await?;
        Ok(turn.was_released(target, request).await?.is_some())
    }

    /// Finds a process that was removed, among those that another one has a handle to: by its PID, by its UUID, or by the
    /// first or last digits of that.
    pub(crate) async fn held_by_part(self: &Arc<Self>, holder: ProcessRef, part: &str) -> Result<Option<Uuid>> {
        let by_pid = match part.parse().map(Pid) {
            Ok(pid) => self.catalog.by_pid(pid).await?.map(|entry| entry.uuid),
            Err(_) => None,
        };
        let mut turn = self.turn(holder.uuid, Lane::Verb).await?;
        let held = turn.look(|history| history.handles.keys().copied().collect::<Vec<Uuid>>()).await?;
        let has_part = |uuid: Uuid| short_id::is_part(part) && short_id::has_part(uuid, part);
        let matches = |uuid: &&Uuid| by_pid == Some(**uuid) || part.parse() == Ok(**uuid) || has_part(**uuid);
        let mut found = held.iter().filter(matches);
        Ok(found.next().copied().filter(|_| found.next().is_none()))
    }

    /// Lists the handles to a process that was removed by its UUID from now on, until they are released.
    pub(crate) async fn keep_handles_to_removed(&self, target: Uuid) {
        let recalls = self.to_recall.note_removed(target).await;
        let mut state = self.lock();
        for (holder_pid, target_pid, rights) in state.table.holders_of(target) {
            let holder = state.table.view(holder_pid, self.moment()).map(|view| view.uuid);
            state.table.release_handles(holder_pid, target_pid);
            if let Some(holder) = holder {
                self.to_recall.note_gone(NamedHandle { holder, target, rights });
            }
        }
        drop(state);
        drop(recalls);
        self.sight_changed.notify_waiters();
    }

    /// Lists the handles of these processes, or of all: one for each holder and target, whatever incarnations these had.
    pub(crate) fn handles(&self, of: Option<&BTreeSet<Pid>>) -> HandleList {
        let gone = self.to_recall.gone();
        let (state, now) = (self.lock(), self.moment());
        let mut handles: BTreeMap<(Pid, Uuid), Handle> = BTreeMap::new();
        let mut add = |handle: Handle| {
            let listed = handles.entry((handle.holder, handle.target_uuid)).or_insert(handle);
            listed.target = listed.target.max(handle.target);
            if handle.rights > listed.rights {
                listed.rights = handle.rights;
            }
        };
        let living: Vec<(Pid, Uuid)> = state.table.processes(now).map(|view| (view.pid, view.uuid)).collect();
        for (holder, holder_uuid) in living.into_iter().filter(|(pid, _)| of.is_none_or(|of| of.contains(pid))) {
            for (target, rights) in state.table.handles_of(holder) {
                let Some(target_uuid) = state.table.view(target, now).map(|view| view.uuid) else { continue };
                add(Handle { holder, holder_uuid, target, target_uuid, rights });
            }
            for handle in gone.iter().filter(|handle| handle.holder == holder_uuid) {
                let (target_uuid, rights) = (handle.target, handle.rights);
                add(Handle { holder, holder_uuid, target: Pid::RUNTIME, target_uuid, rights });
            }
        }
        let mut handles: Vec<Handle> = handles.into_values().collect();
        handles.sort_by_key(|handle| (handle.holder, handle.target));
        HandleList { handles }
    }

    /// Returns whether a process that has not ended has a handle to this one. Whoever asks has recalled before.
    pub(crate) fn is_held(&self, target: Uuid) -> bool {
        self.lock().table.is_held(target) || self.to_recall.names(target)
    }

    /// Records that a process owns the child that it is about to have, before anything of the child is written.
    pub(crate) async fn own_child(self: &Arc<Self>, parent: ProcessRef, child: Uuid) -> Result<()> {
        let mut turn = self.turn(parent.uuid, Lane::Verb).await?;
        if turn.look(move |history| history.handles.contains_key(&child)).await? {
            return Ok(());
        }
        let granted = Granted { target: child, rights: Rights::Owner, by: None, req: None };
        turn.write(parent.of, self.moment(), vec![Body::Granted(granted)]).await
    }

    /// Tells whether the journal of a process has a handle to another one.
    pub(crate) async fn holds(self: &Arc<Self>, holder: ProcessRef, target: Uuid) -> Result<bool> {
        let mut turn = self.turn(holder.uuid, Lane::Own).await?;
        turn.look(move |history| history.handles.contains_key(&target)).await
    }

    /// Puts the handles that journals name into the table, once all that lives is there. Those to ended processes
    /// follow when somebody asks.
    pub(crate) fn restore_handles(&self, named: Vec<(Uuid, Vec<(Uuid, Rights)>)>) {
        let (mut state, mut ended) = (self.lock(), Vec::new());
        for (holder, handles) in named {
            let Some(holder_pid) = state.table.current_pid(holder) else { continue };
            for (target, rights) in handles {
                match state.table.current_pid(target) {
                    Some(target) => state.table.restore_handle(holder_pid, target, rights),
                    None => ended.push(NamedHandle { holder, target, rights }),
                }
            }
        }
        drop(state);
        self.to_recall.add(ended);
    }
}
