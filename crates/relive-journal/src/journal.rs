//! The journal for async code.
//!
//! [`OpenJournal`] moves a [`Writer`] to a thread of the pool for each job and back. [`Journal`] is the interface for a
//! body: it appends records in one order with all other writers of the same process, and never holds the writer itself.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use relive_core::{Limits, Moment, Timestamp};
use serde_json::Value;

use crate::beside::{PendingSync, SyncedEnd};
use crate::conversation::Cut;
use crate::events;
use crate::history::{Asked, History, Permit};
use crate::payload::PayloadMut;
use crate::plan::Plan;
use crate::pool::{JobLost, Pool};
use crate::record::{Body, Decision};
use crate::writer::{Durability, WriteError, Writer};

/// The longest conversation that is read ahead, in bytes of its records.
const AHEAD_MAX: u64 = 64 * 1024;

/// A future of a trait method.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The reason why a record was not written, or could not be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The conversation cannot be read.
    #[error("the conversation cannot be read: {0}")]
    Read(String),
    /// A disk thread was lost with the writer.
    #[error(transparent)]
    Lost(#[from] JobLost),
    /// The process was asked to stop or to end, so nothing new may begin.
    #[error("the process was told to stop")]
    Held,
}

/// The state of a journal after an append, as far as a body needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub plan: Plan,
    pub limits: Limits,
    pub answers: u64,
    /// The hosts that a person was asked about, with the answers.
    pub hosts: BTreeMap<String, Decision>,
    /// Messages that others recorded since the last time, before the records of this append.
    pub said: Vec<String>,
}

/// The journal of a process, for its body.
pub trait Journal: Send + Sync + std::fmt::Debug {
    /// Appends records in one write. Refused with [`JournalError::Held`] if a batch would begin something new after the
    /// process was asked to stop or to end.
    fn append(&self, batch: Vec<Body>, durability: Durability) -> Pending<'_, Result<Progress, JournalError>>;

    /// Returns the current state of the journal.
    fn state(&self) -> Pending<'_, Result<Progress, JournalError>>;

    /// Syncs the records that were only written so far.
    fn sync(&self) -> Pending<'_, Result<(), JournalError>>;

    /// Returns whether a call of the current step may be made.
    fn permit(&self, call: u32, tool: &str, command: Option<&str>) -> Pending<'_, Result<Permit, JournalError>>;

    /// Returns how far the question of a call of the current step is.
    fn asked(&self, call: u32) -> Pending<'_, Result<Asked, JournalError>>;

    /// Reads the records of the conversation, with their payloads. Messages among them are not reported again.
    fn conversation(&self) -> Pending<'_, Result<Vec<Body>, JournalError>>;

    /// Returns the positions where the conversation can be cut.
    fn cuts(&self) -> Pending<'_, Result<Vec<Cut>, JournalError>>;

    /// Adds an event. It is written soon, and never acknowledged.
    fn event(&self, kind: &'static str, body: Value);

    /// Writes a checkpoint if there are enough new records. A failure costs only speed.
    fn checkpoint(&self) -> Pending<'_, ()>;
}

/// An event that is not written yet.
#[derive(Debug)]
pub struct Event {
    pub at: Timestamp,
    pub kind: &'static str,
    pub body: Value,
}

/// A writer for async code.
#[derive(Debug)]
pub struct OpenJournal {
    /// Absent while a job uses it, and after a job was lost.
    writer: Option<Writer>,
    pool: Pool,
    /// Events that happened before records that were deferred, with their places.
    deferred_events: Vec<((u64, u32), Event)>,
}

impl OpenJournal {
    #[must_use]
    pub fn new(writer: Writer, pool: Pool) -> Self {
        Self { writer: Some(writer), pool, deferred_events: Vec::new() }
    }

    /// Returns a view of how much of the journal is on the disk, which works even while a job uses the writer.
    pub fn watch_synced_end(&self) -> Result<SyncedEnd, JobLost> {
        self.writer.as_ref().map(Writer::watch_synced_end).ok_or(JobLost)
    }

    pub fn history(&self) -> Result<&History, JobLost> {
        self.writer.as_ref().map(Writer::history).ok_or(JobLost)
    }

    /// Runs a job with the writer on a thread that may block.
    pub async fn with<T: Send + 'static>(
        &mut self,
        job: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T, JobLost> {
        let mut writer = self.writer.take().ok_or(JobLost)?;
        let (writer, answer) = self
            .pool
            .run(move || {
                let answer = job(&mut writer);
                (writer, answer)
            })
            .await?;
        self.writer = Some(writer);
        Ok(answer)
    }

    /// Runs a job with the writer on a thread that may block, and, after its answer, the sync that the job returns on
    /// the same thread.
    async fn with_sync_beside<T: Send + 'static>(
        &mut self,
        job: impl FnOnce(&mut Writer) -> (T, Option<PendingSync>) + Send + 'static,
    ) -> Result<T, JobLost> {
        let mut writer = self.writer.take().ok_or(JobLost)?;
        let (writer, answer) = self
            .pool
            .run_then(move || {
                let (answer, pending) = job(&mut writer);
                ((writer, answer), move || {
                    if let Some(pending) = pending {
                        pending.run();
                    }
                })
            })
            .await?;
        self.writer = Some(writer);
        Ok(answer)
    }

    /// Appends records in one write, after the events that happened before them.
    pub async fn append(
        &mut self,
        now: Moment,
        events: Vec<Event>,
        mut batch: Vec<Body>,
        durability: Durability,
    ) -> Result<(), JournalError> {
        let mut events = self.events_before(events);
        let writer = self.writer.as_mut().ok_or(JobLost)?;
        if matches!(batch.first(), Some(Body::ModelEnded(_) | Body::Partial(_))) {
            // The record has the whole answer, of which these are pieces.
            let place = writer.event_place();
            let is_other = |(at, event): &((u64, u32), Event)| *at != place || !events::is_piece(event.kind);
            let pieces = events.split_off(events.iter().rposition(is_other).map_or(0, |last| last + 1));
            writer.events().answer_recorded(pieces.iter().map(|(_, event)| event.kind));
        }
        if durability == Durability::Deferred && writer.can_defer(&mut batch) {
            // Needs no I/O, so it needs no other thread.
            self.deferred_events = events;
            return Ok(writer.append(now, batch, durability)?);
        }
        let written = self.with_sync_beside(move |writer| {
            write_events(writer, events);
            let durability = if durability == Durability::Deferred { Durability::Written } else { durability };
            let appended = writer.append(now, batch, durability);
            if appended.is_ok() {
                let _ = writer.events().cut_pieces();
            }
            if durability == Durability::Beside {
                beside(appended.and_then(|()| writer.sync_beside()))
            } else {
                (appended, None)
            }
        });
        Ok(written.await??)
    }

    /// Writes deferred records, and syncs them concurrently with the next work. Events are written with them.
    pub async fn settle(&mut self, events: Vec<Event>) -> Result<(), JournalError> {
        let events = self.events_before(events);
        let settled = self.with_sync_beside(move |writer| {
            write_events(writer, events);
            let begun = writer.sync_beside();
            if begun.is_ok() {
                let _ = writer.events().cut_pieces();
            }
            beside(begun)
        });
        Ok(settled.await??)
    }

    /// Returns whether everything is on the disk.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.deferred_events.is_empty() && self.writer.as_ref().is_none_or(|writer| !writer.has_unsynced())
    }

    /// Returns the events that are not written, the given ones last, each with its place.
    fn events_before(&mut self, events: Vec<Event>) -> Vec<((u64, u32), Event)> {
        let place = self.writer.as_ref().map(Writer::event_place).unwrap_or_default();
        let mut all = std::mem::take(&mut self.deferred_events);
        all.extend(events.into_iter().map(|event| (place, event)));
        all
    }

    /// Writes events. A failure does not stop the process: the journal will report the same problem.
    pub async fn write_events(&mut self, events: Vec<Event>) {
        let events = self.events_before(events);
        if !events.is_empty() {
            let _ = self.with(move |writer| write_events(writer, events)).await;
        }
    }

    /// Writes events, then runs a job with the writer, both on a thread that may block.
    pub async fn write_events_then<T: Send + 'static>(
        &mut self,
        events: Vec<Event>,
        job: impl FnOnce(&mut Writer) -> T + Send + 'static,
    ) -> Result<T, JobLost> {
        let events = self.events_before(events);
        let written = self.with(move |writer| {
            write_events(writer, events);
            job(writer)
        });
        written.await
    }

    /// Writes a checkpoint if there are enough new records; returns whether there were. A failure costs only speed.
    pub async fn checkpoint_if_due(&mut self) -> bool {
        let is_due = self.writer.as_ref().is_some_and(Writer::is_checkpoint_due);
        if is_due {
            let _ = self.with(|writer| writer.checkpoint()).await;
        }
        is_due
    }

    /// Reads the records of the conversation, with their payloads.
    pub async fn conversation(&mut self) -> Result<Vec<Body>, JournalError> {
        if let Some(records) = self.writer.as_mut().and_then(|writer| writer.ahead.take()) {
            return Ok(records);
        }
        self.with(load).await?.map_err(JournalError::Read)
    }

    /// Returns the positions where the conversation can be cut.
    pub async fn cuts(&mut self) -> Result<Vec<Cut>, JournalError> {
        let cuts = self.with(|writer| {
            writer.write_out().map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>(writer.history().conversation_and_cuts(writer.file())?.1)
        });
        cuts.await?.map_err(|error| JournalError::Read(error.to_string()))
    }

    /// Returns the state for a body.
    pub fn state(&self, said: Vec<String>) -> Result<Progress, JobLost> {
        let history = self.history()?;
        let (plan, hosts) = (history.plan(), history.hosts.clone());
        Ok(Progress { plan, limits: history.limits, answers: history.answers, hosts, said })
    }
}

/// Separates the answer of a job from the sync that follows it.
fn beside(begun: Result<Option<PendingSync>, WriteError>) -> (Result<(), WriteError>, Option<PendingSync>) {
    match begun {
        Ok(pending) => (Ok(()), pending),
        Err(error) => (Err(error), None),
    }
}

fn write_events(writer: &mut Writer, events: Vec<((u64, u32), Event)>) {
    let Some(last) = events.last().map(|(_, event)| event.at) else { return };
    for (place, Event { at, kind, body }) in events {
        let piece = body.get("text").and_then(Value::as_str).filter(|_| events::is_piece(kind));
        let parts = piece.map_or(1, |piece| piece.len() as u64);
        let _ = writer.events().push(at, place, kind, &body, parts);
    }
    let _ = writer.events().flush(last);
}

impl Writer {
    /// Reads a short conversation now, so that its body need not be given a thread for it. One that cannot be read, or has
    /// payloads in `blobs/`, is left to the body.
    pub fn read_ahead(&mut self) {
        let bytes: u64 = self.history().conversation_places().map(|place| u64::from(place.len)).sum();
        if bytes > AHEAD_MAX || self.write_out().is_err() {
            return;
        }
        let Ok(mut records) = self.history().conversation_records(self.file()) else { return };
        let inline = |payload: PayloadMut<'_>| if payload.is_inline() { Ok(()) } else { Err(()) };
        if records.iter_mut().all(|body| body.for_each_payload(&mut |payload| inline(payload)).is_ok()) {
            self.ahead = Some(records);
        }
    }
}

fn load(writer: &mut Writer) -> Result<Vec<Body>, String> {
    // Reading uses the file, which does not contain deferred records yet.
    writer.write_out().map_err(|error| error.to_string())?;
    let mut records = writer.history().conversation_records(writer.file()).map_err(|error| error.to_string())?;
    let blobs = writer.blobs();
    for body in &mut records {
        body.for_each_payload(&mut |payload| payload.load(blobs)).map_err(|error| error.to_string())?;
    }
    Ok(records)
}

/// A journal without an owner: only its body and callers of [`Self::hear`] write to it.
#[derive(Debug)]
pub struct LocalJournal {
    open: tokio::sync::Mutex<OpenJournal>,
    said: std::sync::Mutex<Vec<String>>,
    events: std::sync::Mutex<Vec<Event>>,
    now: fn() -> Moment,
}

impl LocalJournal {
    /// Wraps a writer; `now` returns the time for records.
    #[must_use]
    pub fn new(writer: Writer, pool: Pool, now: fn() -> Moment) -> Self {
        Self {
            open: tokio::sync::Mutex::new(OpenJournal::new(writer, pool)),
            said: std::sync::Mutex::default(),
            events: std::sync::Mutex::default(),
            now,
        }
    }

    /// Returns the history, once the journal is no longer in use.
    pub async fn history(&self) -> Result<History, JobLost> {
        self.open.lock().await.history().cloned()
    }

    /// Records a message to the body.
    pub async fn hear(&self, input: crate::record::Input, text: String) -> Result<(), JournalError> {
        let mut open = self.open.lock().await;
        open.append((self.now)(), self.take_events(), vec![Body::Input(input)], Durability::Synced).await?;
        self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text);
        Ok(())
    }

    fn take_said(&self) -> Vec<String> {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Journal for LocalJournal {
    fn append(&self, batch: Vec<Body>, durability: Durability) -> Pending<'_, Result<Progress, JournalError>> {
        Box::pin(async move {
            let mut open = self.open.lock().await;
            open.append((self.now)(), self.take_events(), batch, durability).await?;
            Ok(open.state(self.take_said())?)
        })
    }

    fn state(&self) -> Pending<'_, Result<Progress, JournalError>> {
        Box::pin(async move {
            let open = self.open.lock().await;
            Ok(open.state(self.take_said())?)
        })
    }

    fn sync(&self) -> Pending<'_, Result<(), JournalError>> {
        Box::pin(async move { Ok(self.open.lock().await.with(Writer::sync).await??) })
    }

    fn permit(&self, call: u32, tool: &str, command: Option<&str>) -> Pending<'_, Result<Permit, JournalError>> {
        let (tool, command) = (tool.to_owned(), command.map(str::to_owned));
        Box::pin(async move { Ok(self.open.lock().await.history()?.permit(call, &tool, command.as_deref())) })
    }

    fn asked(&self, call: u32) -> Pending<'_, Result<Asked, JournalError>> {
        Box::pin(async move { Ok(self.open.lock().await.history()?.asked(call)) })
    }

    fn conversation(&self) -> Pending<'_, Result<Vec<Body>, JournalError>> {
        Box::pin(async move {
            let mut open = self.open.lock().await;
            self.take_said();
            open.conversation().await
        })
    }

    fn cuts(&self) -> Pending<'_, Result<Vec<Cut>, JournalError>> {
        Box::pin(async move { self.open.lock().await.cuts().await })
    }

    fn event(&self, kind: &'static str, body: Value) {
        let event = Event { at: (self.now)().at, kind, body };
        self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(event);
    }

    fn checkpoint(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.open.lock().await.checkpoint_if_due().await;
        })
    }
}
