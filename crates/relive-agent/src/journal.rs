//! A journal's writer for async code: every write happens on a thread of the pool, and the caller waits without
//! blocking.

use std::sync::Arc;

use relive_journal::conversation::Cut;
use relive_journal::payload::Text;
use relive_journal::record::Body;
use relive_journal::{Durability, History, JobLost, Pool, WriteError, Writer};
use relive_llm::{Message, ToolCall};
use relive_types::Timestamp;
use serde::Serialize;

/// Why something could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The journal refused it.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its thread was lost, and the writer with it.
    #[error(transparent)]
    Lost(#[from] JobLost),
    /// It could not be read back.
    #[error("the journal cannot be read back: {0}")]
    Read(String),
}

/// The writer of a journal, and the history it keeps.
pub struct Journal {
    /// Absent only while a job has it, and for ever after a job that was lost.
    writer: Option<Writer>,
    pool: Pool,
    /// Called after each write, so that whoever follows the files looks again.
    changed: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl Journal {
    /// For async code.
    #[must_use]
    pub fn new(writer: Writer, pool: Pool, changed: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { writer: Some(writer), pool, changed }
    }

    /// What the journal amounts to; absent if its thread was lost.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        self.writer.as_ref().map(Writer::history)
    }

    /// The writer itself; absent if its thread was lost.
    #[must_use]
    pub fn into_writer(self) -> Option<Writer> {
        self.writer
    }

    async fn with<T: Send + 'static>(
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

    /// Records; see [`Writer::append`].
    pub async fn append(
        &mut self,
        at: Timestamp,
        batch: Vec<Body>,
        durability: Durability,
    ) -> Result<(), JournalError> {
        let written = self.with(move |writer| writer.append(at, batch, durability)).await?;
        (self.changed)();
        Ok(written?)
    }

    /// Writes an event. That it could not be written is no reason to stop: the journal beside it will say so.
    pub async fn event(&mut self, at: Timestamp, kind: &'static str, body: impl Serialize + Send + 'static) {
        let step = self.history().map_or(0, |history| history.step);
        let _ = self.with(move |writer| writer.events().append(at, step, kind, &body)).await;
        (self.changed)();
    }

    /// Writes a checkpoint. That it could not be written costs only speed.
    pub async fn checkpoint(&mut self) {
        let _ = self.with(|writer| writer.checkpoint()).await;
    }

    /// The conversation, with all payloads loaded.
    pub async fn conversation(&mut self) -> Result<Vec<Message>, JournalError> {
        Ok(self.conversation_and_cuts().await?.0)
    }

    /// The same, and where it can be cut.
    pub async fn conversation_and_cuts(&mut self) -> Result<(Vec<Message>, Vec<Cut>), JournalError> {
        self.with(|writer| load(writer)).await?.map_err(JournalError::Read)
    }
}

fn load(writer: &Writer) -> Result<(Vec<Message>, Vec<Cut>), String> {
    use relive_journal::conversation::Message as Recorded;
    let failed = |error: &dyn std::error::Error| error.to_string();
    let journal = std::fs::File::open(writer.folder().steps()).map_err(|error| failed(&error))?;
    let (recorded, cuts) = writer.history().conversation_and_cuts(&journal).map_err(|error| failed(&error))?;
    let blobs = writer.blobs();
    let text = |text: &Text| blobs.text(text).map_err(|error| failed(&error));
    let convert = |message: Recorded| match message {
        Recorded::User { id: _, text: said } => Ok(Message::User { text: text(&said)? }),
        Recorded::Summary { text: said } => Ok(Message::Summary { text: text(&said)? }),
        Recorded::Tool { id, ok, result, .. } => Ok(Message::Tool { id, ok, result: text(&result)? }),
        Recorded::Model { step: _, thinking, text: said, calls, carry } => Ok(Message::Model {
            thinking: thinking.as_ref().map(text).transpose()?,
            text: said.as_ref().map(text).transpose()?,
            calls: calls
                .into_iter()
                .map(|call| {
                    let args = blobs.json(&call.args).map_err(|error| failed(&error))?;
                    Ok(ToolCall { id: call.id, name: call.name, args })
                })
                .collect::<Result<_, String>>()?,
            carry: carry.map(|carry| blobs.json(&carry).map_err(|error| failed(&error))).transpose()?,
        }),
    };
    let messages = recorded.into_iter().map(convert).collect::<Result<_, String>>()?;
    Ok((messages, cuts))
}
