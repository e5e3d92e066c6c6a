//! The journal for async code.
//!
//! [`OpenJournal`] moves a [`Writer`] to a thread of the pool for each job and back. [`Journal`] is what a body gets:
//! it appends records in one order with everybody else who writes to the same process, and never holds the writer
//! itself.

use std::future::Future;
use std::pin::Pin;

use relive_core::{Limits, Moment, Timestamp};
use serde_json::Value;

use crate::beside::{PendingSync, SyncedEnd};
use crate::conversation::Cut;
use crate::history::{History, Permit};
use crate::plan::Plan;
use crate::pool::{JobLost, Pool};
use crate::record::Body;
use crate::regular;
use crate::writer::{Durability, WriteError, Writer};

/// A future of a trait method.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why something was not recorded, or could not be read back.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The journal cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The conversation cannot be read.
    #[error("the conversation cannot be read: {0}")]
    Read(String),
    /// A disk thread was lost with the writer.
    #[error(transparent)]
    Lost(#[from] JobLost),
    /// The process was told to stop or to end, so nothing new may begin.
    #[error("the process was told to stop")]
    Held,
}

/// What a journal amounts to after an append, as far as a body needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What is to be done next.
    pub plan: Plan,
    /// What the process may spend.
    pub limits: Limits,
    /// How often a model has answered.
    pub answers: u64,
    /// Messages that others recorded since the last time, before the records of this append.
    pub said: Vec<String>,
}

/// A process's journal as its body sees it.
pub trait Journal: Send + Sync + std::fmt::Debug {
    /// Appends records in one write. Refused with [`JournalError::Held`] if a batch would begin something new after the
    /// process was told to stop or to end.
    fn append(&self, batch: Vec<Body>, durability: Durability) -> Pending<'_, Result<Progress, JournalError>>;

    /// Returns what the journal amounts to now.
    fn state(&self) -> Pending<'_, Result<Progress, JournalError>>;

    /// Syncs what was only written so far.
    fn sync(&self) -> Pending<'_, Result<(), JournalError>>;

    /// Tells whether a call of the step under way may be made.
    fn permit(&self, call: u32, tool: &str) -> Pending<'_, Result<Permit, JournalError>>;

    /// Reads the records that the conversation is made of, with their payloads. Messages among them are not told again.
    fn conversation(&self) -> Pending<'_, Result<Vec<Body>, JournalError>>;

    /// Tells where the conversation can be cut.
    fn cuts(&self) -> Pending<'_, Result<Vec<Cut>, JournalError>>;

    /// Notes an event. It is written soon, and never acknowledged.
    fn event(&self, kind: &'static str, body: Value);

    /// Writes a checkpoint if there is enough that is new. A failure costs only speed.
    fn checkpoint(&self) -> Pending<'_, ()>;
}

/// An event that is not written yet.
#[derive(Debug)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub kind: &'static str,
    /// Its fields.
    pub body: Value,
}

/// A writer for async code.
#[derive(Debug)]
pub struct OpenJournal {
    /// Absent while a job has it, and after a job was lost.
    writer: Option<Writer>,
    pool: Pool,
    /// Events that happened before records that were deferred, with their steps.
    deferred_events: Vec<(u32, Event)>,
}

impl OpenJournal {
    /// Wraps a writer.
    #[must_use]
    pub fn new(writer: Writer, pool: Pool) -> Self {
        Self { writer: Some(writer), pool, deferred_events: Vec::new() }
    }

    /// Tells how much of the journal is on the disk, also while a job has the writer.
    pub fn watch_synced_end(&self) -> Result<SyncedEnd, JobLost> {
        self.writer.as_ref().map(Writer::watch_synced_end).ok_or(JobLost)
    }

    /// Returns what the journal amounts to.
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

    /// Runs a job with the writer on a thread that may block, and on the same thread, once it has answered, the sync that
    /// the job returns.
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
        if durability == Durability::Deferred {
            let writer = self.writer.as_mut().ok_or(JobLost)?;
            if writer.can_defer(&mut batch) {
                // No I/O, so no other thread.
                let step = writer.history().step;
                self.deferred_events.extend(events.into_iter().map(|event| (step, event)));
                return Ok(writer.append(now, batch, durability)?);
            }
        }
        let events = self.events_before(events);
        let written = self.with_sync_beside(move |writer| {
            write_events(writer, events);
            let durability = if durability == Durability::Deferred { Durability::Written } else { durability };
            let appended = writer.append(now, batch, durability);
            if durability == Durability::Beside {
                beside(appended.and_then(|()| writer.sync_beside()))
            } else {
                (appended, None)
            }
        });
        Ok(written.await??)
    }

    /// Writes what was deferred, and has it synced beside what comes next. Events are written with it.
    pub async fn settle(&mut self, events: Vec<Event>) -> Result<(), JournalError> {
        let events = self.events_before(events);
        let settled = self.with_sync_beside(move |writer| {
            write_events(writer, events);
            beside(writer.sync_beside())
        });
        Ok(settled.await??)
    }

    /// Tells whether there is anything that is not on the disk.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.deferred_events.is_empty() && self.writer.as_ref().is_none_or(|writer| !writer.has_unsynced())
    }

    /// Returns the events that are not written, the given ones last, each with its step.
    fn events_before(&mut self, events: Vec<Event>) -> Vec<(u32, Event)> {
        let step = self.writer.as_ref().map_or(0, |writer| writer.history().step);
        let mut all = std::mem::take(&mut self.deferred_events);
        all.extend(events.into_iter().map(|event| (step, event)));
        all
    }

    /// Writes events. That they could not be written is no reason to stop: the journal beside them will say so.
    pub async fn write_events(&mut self, events: Vec<Event>) {
        let events = self.events_before(events);
        if !events.is_empty() {
            let _ = self.with(move |writer| write_events(writer, events)).await;
        }
    }

    /// Writes a checkpoint if there is enough that is new. A failure costs only speed.
    pub async fn checkpoint_if_due(&mut self) {
        if self.writer.as_ref().is_some_and(Writer::is_checkpoint_due) {
            let _ = self.with(|writer| writer.checkpoint()).await;
        }
    }

    /// Reads the records that the conversation is made of, with their payloads.
    pub async fn conversation(&mut self) -> Result<Vec<Body>, JournalError> {
        self.with(load).await?.map_err(JournalError::Read)
    }

    /// Tells where the conversation can be cut.
    pub async fn cuts(&mut self) -> Result<Vec<Cut>, JournalError> {
        let cuts = self.with(|writer| {
            writer.write_out().map_err(std::io::Error::other)?;
            let journal = regular::open(&writer.directory().steps())?;
            Ok::<_, std::io::Error>(writer.history().conversation_and_cuts(&journal)?.1)
        });
        cuts.await?.map_err(|error| JournalError::Read(error.to_string()))
    }

    /// What a body is told of it.
    pub fn state(&self, said: Vec<String>) -> Result<Progress, JobLost> {
        let history = self.history()?;
        Ok(Progress { plan: history.plan(), limits: history.limits, answers: history.answers, said })
    }
}

/// Parts the answer of a job from the sync that follows it.
fn beside(begun: Result<Option<PendingSync>, WriteError>) -> (Result<(), WriteError>, Option<PendingSync>) {
    match begun {
        Ok(pending) => (Ok(()), pending),
        Err(error) => (Err(error), None),
    }
}

fn write_events(writer: &mut Writer, events: Vec<(u32, Event)>) {
    let Some(last) = events.last().map(|(_, event)| event.at) else { return };
    for (step, Event { at, kind, body }) in events {
        let _ = writer.events().push(at, step, kind, &body);
    }
    let _ = writer.events().flush(last);
}

fn load(writer: &mut Writer) -> Result<Vec<Body>, String> {
    // It is read from the file, and the file has not got what was deferred.
    writer.write_out().map_err(|error| error.to_string())?;
    let journal = regular::open(&writer.directory().steps()).map_err(|error| error.to_string())?;
    let mut records = writer.history().conversation_records(&journal).map_err(|error| error.to_string())?;
    let blobs = writer.blobs();
    for body in &mut records {
        body.for_each_payload(&mut |payload| payload.load(blobs)).map_err(|error| error.to_string())?;
    }
    Ok(records)
}

/// A journal without an owner: nobody but its body writes to it, and whoever calls [`Self::hear`].
#[derive(Debug)]
pub struct LocalJournal {
    open: tokio::sync::Mutex<OpenJournal>,
    said: std::sync::Mutex<Vec<String>>,
    events: std::sync::Mutex<Vec<Event>>,
    now: fn() -> Moment,
}

impl LocalJournal {
    /// Wraps a writer; records get the time that `now` tells.
    #[must_use]
    pub fn new(writer: Writer, pool: Pool, now: fn() -> Moment) -> Self {
        Self {
            open: tokio::sync::Mutex::new(OpenJournal::new(writer, pool)),
            said: std::sync::Mutex::default(),
            events: std::sync::Mutex::default(),
            now,
        }
    }

    /// Returns the history, once nobody uses the journal any more.
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

    fn permit(&self, call: u32, tool: &str) -> Pending<'_, Result<Permit, JournalError>> {
        let tool = tool.to_owned();
        Box::pin(async move { Ok(self.open.lock().await.history()?.permit(call, &tool)) })
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
