//! Messages to a program: recorded by the sender, and written to its standard input by its body, each once.
//!
//! A message has the number of its record. The shim remembers what it has written, and outlives the daemon: a body that
//! adopts a session sends it every message of the run again, and only missing ones are written.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use relive_core::program::Stdio;
use relive_core::{ErrorCode, Uuid};
use relive_journal::Journal;
use relive_journal::payload::Blobs;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::Input;
use relive_session::protocol::{InputState, Outcome, Verb};
use relive_session::stage::Stage;
use serde_json::json;

use super::ExecBody;
use super::attend::{Attended, Beginning};
use crate::bodies::{DeliveryTime, OTHER_VERSION, Shim, found_session};
use crate::drive::BodyOwner;
use crate::error::{Error, Result};
use crate::send::EOF_ID;

/// How many messages are read at a time.
const READ_AT_ONCE: usize = 16;

/// The key that ends the input of a program with a terminal.
const END_OF_FILE_KEY: &str = "\x04";

/// How soon a shim that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A recorded message.
struct Recorded {
    number: u64,
    text: String,
    kind: MessageKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Line,
    /// The end of the input.
    Eof,
}

impl ExecBody {
    /// Refuses messages that a program cannot read.
    pub(super) async fn check_message(&self, uuid: Uuid, when: DeliveryTime) -> Result<()> {
        let (live, is_next_run) = match when {
            DeliveryTime::Now(Some(mut session)) => (found_session(&mut session).await, false),
            DeliveryTime::Now(None) => (None, false),
            DeliveryTime::NextRun => (None, true),
        };
        let program = match &live {
            Some(live) => Arc::clone(&live.program),
            None => self.facts(uuid).await?.program,
        };
        if program.stdio == Stdio::Null {
            let message = format!("process {uuid} accepts no messages: it was started without an open input");
            let hint = format!("relive exec -d -i -- {}", program.command_line());
            return Err(Error::new(ErrorCode::Invalid, message).with_hint(hint));
        }
        if is_next_run {
            return Ok(());
        }
        let refused = |why: &str| Error::new(ErrorCode::Conflict, format!("process {uuid} accepts no messages: {why}"));
        let Some(live) = live else { return Err(refused("its session cannot be reached")) };
        let Shim::Answers { connection, rungs: _ } = live.shim else { return Err(refused(OTHER_VERSION)) };
        match self.sessions.order(&live.folder, &connection, Verb::Stat).await {
            Ok(Outcome::Stat(stat)) => match stat.input {
                Some(InputState { open: true, .. }) => Ok(()),
                Some(InputState { open: false, .. }) => Err(refused("it has closed its input")),
                // It would not recognize a repeated message.
                None => {
                    Err(refused("an earlier version of Relive started it").with_hint(format!("relive attach {uuid}")))
                }
            },
            Ok(_) | Err(_) => Err(refused("its session does not answer")),
        }
    }

    /// Writes the messages of a run to its program as they are recorded. Returns when no more can be written.
    pub(super) async fn deliver(
        &self,
        uuid: Uuid,
        owner: BodyOwner,
        journal: Arc<dyn Journal>,
        session: &Attended<'_>,
    ) {
        if session.program.stdio == Stdio::Null {
            // Nobody can send it any.
            return;
        }
        let mut bell = owner.follow();
        let connection = &session.connection;
        if connection.wait_for(|seen| seen.snapshot.stage != Stage::Starting).await.is_err() {
            return;
        }
        let written = match session.beginning {
            // Nobody can have written to it yet.
            Beginning::Launched { .. } => Some(0),
            Beginning::Found => written_before(session).await,
        };
        let Some(written) = written else { return };
        // On a terminal a line is ended by the key that ends one.
        let enter = if connection.seen().borrow().snapshot.pty { '\r' } else { '\n' };
        let directory = self.data.directory(uuid);
        let mut reader = None;
        loop {
            bell.borrow_and_update();
            // Records that are not on the disk may be lost, and their numbers reused.
            let synced_end = owner.synced_end().unwrap_or(0);
            let blobs = Blobs::new(self.data.io().disk.clone(), directory.path());
            let (path, known) = (directory.steps(), reader.take());
            let read = self.pool.run(move || {
                let mut reader = match known {
                    Some(reader) => reader,
                    None => Reader::new(path.clone(), beginning_of_run(path)?),
                };
                reader.set_limit(synced_end);
                let found = read_messages(&mut reader, &blobs, written)?;
                io::Result::Ok((reader, found))
            });
            let messages = match read.await.map_err(io::Error::other).and_then(|read| read) {
                Ok((back, found)) => {
                    reader = Some(back);
                    found
                }
                Err(error) => return owner.warn(format!("the messages to {uuid} cannot be read: {error}")),
            };
            if messages.is_empty() && bell.changed().await.is_err() {
                return;
            }
            for message in messages {
                if message.kind == MessageKind::Eof && enter == '\n' {
                    // An earlier daemon may have closed it, or the program itself.
                    match connection.request(Verb::CloseInput).await {
                        Ok(Outcome::NoProcess) | Err(_) => return,
                        Ok(_) => continue,
                    }
                }
                let line = match message.kind {
                    MessageKind::Line => line_of(message.text, enter),
                    // Numbered like a message: typed twice, it would end two inputs.
                    MessageKind::Eof => END_OF_FILE_KEY.to_owned(),
                };
                match connection.write_message(message.number, line.as_bytes()).await {
                    Ok(Outcome::Done) => {}
                    // It has ended; the task that attends it reports that.
                    Ok(Outcome::NoProcess) | Err(_) => return,
                    // It closed its input after the message was recorded.
                    Ok(refused) => {
                        journal.event("message_unread", json!({"message": message.number}));
                        owner.warn(format!("process {uuid} did not read message {}: {refused:?}", message.number));
                    }
                }
            }
        }
    }
}

/// Returns the number of the last message that is written, at least in part; `None` if the shim is gone or does not
/// know messages.
async fn written_before(session: &Attended<'_>) -> Option<u64> {
    loop {
        match session.order(Verb::Stat).await {
            Ok(Outcome::Stat(stat)) => return Some(stat.input?.written.map_or(0, |part| part.message)),
            // It does not answer now.
            Ok(_) => tokio::time::sleep(ASK_AGAIN).await,
            Err(_) => return None,
        }
    }
}

/// Returns the last record before the run: messages to earlier runs, and to the origin of a fork, are not for this one.
fn beginning_of_run(journal: PathBuf) -> io::Result<Cursor> {
    let mut reader = Reader::new(journal, Cursor::default());
    let mut begun = Cursor::default();
    while let Some(item) = reader.next_item()? {
        if let Item::Record(entry) = item
            && matches!(entry.kind.as_str(), "spawned" | "ended")
        {
            begun = entry.id;
        }
    }
    Ok(begun)
}

/// Reads the next messages, skipping those before this number.
fn read_messages(reader: &mut Reader, blobs: &Blobs, from: u64) -> io::Result<Vec<Recorded>> {
    let mut messages = Vec::new();
    while messages.len() < READ_AT_ONCE
        && let Some(item) = reader.next_item()?
    {
        let Item::Record(entry) = item else { continue };
        if entry.kind == "input" && entry.id.seq >= from {
            let input: Input = serde_json::from_str(&entry.line)?;
            let text = blobs.text(&input.text).map_err(io::Error::other)?;
            let kind = if input.id.starts_with(EOF_ID) { MessageKind::Eof } else { MessageKind::Line };
            messages.push(Recorded { number: entry.id.seq, text, kind });
        }
    }
    Ok(messages)
}

/// Returns a message as one line.
fn line_of(text: String, enter: char) -> String {
    if text.ends_with(['\n', '\r']) { text } else { format!("{text}{enter}") }
}
