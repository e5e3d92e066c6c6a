//! Waiting for the end of a process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use relive_agent::tool::ChildEnd;
use relive_api::WaitAnswer;
use relive_core::{End, ErrorCode, Holder, Pid, Refusal, Rights, State, Uuid, Wait};
use relive_journal::conversation::Message;
use relive_journal::reader::{Cursor, Item, Reader};
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::lookup::{LookedUp, OnDisk};
use crate::runtime::{ProcessRef, Runtime};
use crate::view::exit_of;

/// Those who wait for the end of a process.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    pub(crate) bell: Arc<Notify>,
    /// How many they are.
    pub(crate) count: usize,
}

/// One of them, until it is dropped.
struct Waiter<'a> {
    runtime: &'a Runtime,
    pid: Pid,
    bell: Arc<Notify>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(waiters) = self.runtime.lock().waiting.get_mut(&self.pid) {
            waiters.count = waiters.count.saturating_sub(1);
        }
    }
}

impl Runtime {
    /// Waits for an end. Any number of callers may wait, and all get the same answer.
    pub async fn wait(self: &Arc<Self>, id: &str, timeout: Option<Duration>) -> Result<WaitAnswer> {
        let deadline = timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        let (pid, uuid, note) = match self.look_up_to_change(id).await? {
            LookedUp::OnDisk(found) => return Ok(answer_of_disk(*found)),
            LookedUp::Unrecovered(_) => return Err(gone()),
            LookedUp::Living { process, note } => (process.of.pid, process.uuid, note),
            LookedUp::Remembered(pid) => (pid, self.uuid_of(pid).unwrap_or_default(), None),
        };
        loop {
            let waiter = {
                let mut state = self.lock();
                if let Some(answer) = ended(&state.table, pid, uuid)? {
                    return Ok(WaitAnswer { note, ..answer });
                }
                let waiters = state.waiting.entry(pid).or_default();
                waiters.count += 1;
                Waiter { runtime: self, pid, bell: Arc::clone(&waiters.bell) }
            };
            let rung = waiter.bell.notified();
            tokio::pin!(rung);
            // From here on notifications arrive; an earlier one is covered by checking once more.
            rung.as_mut().enable();
            if ended(&self.lock().table, pid, uuid)?.is_some() {
                continue;
            }
            match deadline {
                None => rung.await,
                Some(deadline) => {
                    if tokio::time::timeout_at(deadline, rung).await.is_err() {
                        return Ok(timed_out(pid, uuid, note));
                    }
                }
            }
        }
    }

    /// Waits for the end of a process that an agent may observe.
    pub(crate) async fn wait_for_child(self: &Arc<Self>, process: ProcessRef, uuid: Uuid) -> Result<ChildEnd> {
        // Unknown and forbidden processes get the same answer.
        let unknown = || Error::from(Refusal::NotFound { what: uuid.to_string(), suggestion: None });
        if let Some(parent) = self.parent_of_forbidden(process, uuid).await
            && !self.has_spawned(process.uuid, parent).await
        {
            return Err(unknown());
        }
        let answer = match self.wait(&uuid.to_string(), None).await {
            // A process may know about a child that its own journal names: it was collected. A fork's journal begins
            // with that of its origin, including children.
            Err(error) if error.code() == ErrorCode::NotFound => {
                let journal = self.directory(process.uuid).steps();
                let known = self.on_disk(move |_| names_child(journal, uuid)).await?;
                return Err(if known { error } else { unknown() });
            }
            answer => answer?,
        };
        let last_text = self.on_disk(move |data| last_text(data, uuid)).await.ok().flatten();
        let reason = answer.exit.map(|exit| exit.reason).unwrap_or_default();
        Ok(ChildEnd { code: answer.exit_code, reason, last_text })
    }

    /// Returns the parent of a process that the table does not let another one observe; `None` if it does, or if there
    /// is no such process.
    async fn parent_of_forbidden(self: &Arc<Self>, process: ProcessRef, uuid: Uuid) -> Option<Option<Uuid>> {
        self.recall_ended().await;
        {
            let state = self.lock();
            if let Some(pid) = state.table.current_pid(uuid) {
                state.table.authorize(Holder::Process(process.of.pid), pid, Rights::Observer).err()?;
                return Some(state.table.view(pid, self.moment()).and_then(|view| view.parent_uuid));
            }
        }
        // It ended too long ago for the table: its journal tells whose child it was.
        match self.current_row(uuid).await {
            Ok(row) => row.map(|row| row.info.parent_uuid),
            Err(_) => Some(None),
        }
    }

    /// Returns whether a child of `parent` was spawned by this process: by an earlier incarnation, whose children went
    /// to PID 0, or by the origin of a fork.
    async fn has_spawned(&self, uuid: Uuid, parent: Option<Uuid>) -> bool {
        let Some(parent) = parent else { return false };
        if parent == uuid {
            return true;
        }
        let lineage = self.on_disk(move |data| data.lineage(uuid)).await;
        matches!(lineage, Ok(Ok(ancestors)) if ancestors.iter().any(|ancestor| ancestor.uuid == parent))
    }
}

/// Returns whether a journal has the intent to spawn this child.
fn names_child(journal: PathBuf, child: Uuid) -> bool {
    let (mut reader, child) = (Reader::new(journal, Cursor::default()), child.to_string());
    while let Ok(Some(item)) = reader.next_item() {
        if let Item::Record(entry) = item
            && entry.kind == "call_started"
            && serde_json::from_str::<serde_json::Value>(&entry.line)
                .is_ok_and(|record| record["recovery"]["child"] == child)
        {
            return true;
        }
    }
    false
}

/// Returns the end of a process that was released.
fn ended(table: &relive_core::Table, pid: Pid, uuid: Uuid) -> Result<Option<WaitAnswer>> {
    let being_released = table.machine(pid).is_some_and(|machine| machine.state() == State::Zombie);
    match table.wait(pid) {
        Ok(Wait::Ended { end, .. }) if !being_released => Ok(Some(answer(pid, uuid, end))),
        Ok(Wait::Ended { .. } | Wait::NotEnded) => Ok(None),
        Err(refusal) => Err(refusal.into()),
    }
}

fn answer(pid: Pid, uuid: Uuid, end: &End) -> WaitAnswer {
    WaitAnswer {
        pid,
        uuid,
        status: Some(end.status.clone()),
        why: end.why(),
        exit: Some(exit_of(end)),
        timed_out: false,
        exit_code: end.exit_code(),
        note: None,
    }
}

fn answer_of_disk(found: OnDisk) -> WaitAnswer {
    let (pid, uuid, note) = (found.pid, found.info.uuid, found.note);
    match &found.end {
        Some(end) => WaitAnswer { note, ..answer(pid, uuid, end) },
        None => WaitAnswer { timed_out: false, exit_code: 1, ..timed_out(pid, uuid, note) },
    }
}

fn timed_out(pid: Pid, uuid: Uuid, note: Option<String>) -> WaitAnswer {
    WaitAnswer { pid, uuid, status: None, why: None, exit: None, timed_out: true, exit_code: 124, note }
}

/// Returns the last text of a model.
pub(crate) fn last_text(data: &relive_journal::DataDirectory, uuid: Uuid) -> Option<String> {
    let directory = data.directory(uuid);
    let (history, _) = data.history(uuid).ok()?;
    let journal = std::fs::File::open(directory.steps()).ok()?;
    let blobs = relive_journal::payload::Blobs::new(data.io().disk.clone(), directory.path());
    let said = history.conversation(&journal).ok()?.into_iter().rev().find_map(|message| match message {
        Message::Model { text, .. } => text,
        Message::User { .. } | Message::Summary { .. } | Message::Tool { .. } => None,
    });
    blobs.text(&said?).ok()
}

/// Returns the error for a process that is gone.
pub(crate) fn gone() -> Error {
    Error::new(ErrorCode::NotFound, "the process no longer exists")
}
