//! Reads the output of a program from its log on a thread of its own, so that a slow reader of this command delays
//! neither the program nor Ctrl-C.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use relive_session::log::{Chunk, Item, Reader, Stream};
use tokio::sync::{oneshot, watch};

use crate::error::CommandError;

/// The message about output that could not be written to the disk.
pub(crate) const OUTPUT_LOST: &str = "-- some of the output is missing: it could not be written to disk --";

/// Output that is being shown.
#[derive(Debug)]
pub(crate) struct Output {
    /// Absent once the log is complete.
    grown: Option<SyncSender<()>>,
    done: oneshot::Receiver<Result<(), NotShown>>,
    shown: watch::Receiver<u64>,
}

/// The reason why output was not shown: its log, or the place where it was to be shown.
#[derive(Debug)]
pub(crate) enum NotShown {
    Unread(io::Error),
    Unwritten(io::Error),
}

impl From<NotShown> for CommandError {
    fn from(error: NotShown) -> Self {
        match error {
            NotShown::Unwritten(error) => error.into(),
            NotShown::Unread(error) => unreadable(error),
        }
    }
}

/// Returns the error of a log that cannot be read. Unless the disk fails, it was changed: by its program, or by somebody.
pub(crate) fn unreadable(error: io::Error) -> CommandError {
    let is_of_disk = error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    let why = if is_of_disk { "the disk does not return its log" } else { "somebody has changed its log" };
    CommandError::internal(format!("the output cannot be read: {why}")).because(error)
}

impl Output {
    /// Starts to show a log from an offset. `sink` gets all items, and finally `None`.
    pub(crate) fn start(
        folder: &Path,
        from: u64,
        sink: impl FnMut(Option<Item>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let mut reader = Reader::open(folder, from)?;
        let (grown, nudges) = sync_channel(1);
        let (finished, done) = oneshot::channel();
        let (showing, shown) = watch::channel(from);
        thread::Builder::new().name("output".into()).spawn(move || {
            let mut sink = sink;
            let mut sink = |item: Option<Item>| -> Result<(), NotShown> {
                let upto = item.as_ref().map(|item| match item {
                    Item::Chunk(chunk) => chunk.next,
                    Item::Gap { to, .. } => *to,
                });
                sink(item).map_err(NotShown::Unwritten)?;
                if let Some(upto) = upto {
                    showing.send_replace(upto);
                }
                Ok(())
            };
            let mut shown = drain(&mut reader, &mut sink);
            while shown.is_ok() && nudges.recv().is_ok() {
                shown = drain(&mut reader, &mut sink);
            }
            // The log is complete; output after the last read is still read.
            let shown = shown.and_then(|()| drain(&mut reader, &mut sink)).and_then(|()| sink(None));
            // A missing receiver means that the command has left.
            let _ = finished.send(shown);
        })?;
        Ok(Self { grown: Some(grown), done, shown })
    }

    /// Notifies that the log has grown.
    pub(crate) fn grown(&self) {
        if let Some(grown) = &self.grown {
            // A pending notification is enough.
            let _ = grown.try_send(());
        }
    }

    /// Returns the offset up to which everything is shown.
    pub(crate) fn shown(&self) -> watch::Receiver<u64> {
        self.shown.clone()
    }

    /// Notifies that the log is complete.
    pub(crate) fn end(&mut self) {
        self.grown = None;
    }

    /// Waits until everything is shown, or could not be.
    pub(crate) async fn finished(&mut self) -> Result<(), NotShown> {
        let ended = |_| Err(NotShown::Unwritten(io::Error::other("the writing thread has ended")));
        (&mut self.done).await.unwrap_or_else(ended)
    }
}

fn drain(reader: &mut Reader, sink: &mut impl FnMut(Option<Item>) -> Result<(), NotShown>) -> Result<(), NotShown> {
    while let Some(item) = reader.next().map_err(NotShown::Unread)? {
        sink(Some(item))?;
    }
    Ok(())
}

/// Writes the output to the original stream, byte for byte.
pub(crate) fn plainly(item: Option<Item>) -> io::Result<()> {
    match item {
        Some(Item::Chunk(Chunk { stream, bytes, .. })) => write(stream, &bytes),
        Some(Item::Gap { from, to }) => {
            say_gap(from, to);
            Ok(())
        }
        None => Ok(()),
    }
}

pub(crate) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Err => io::stderr().lock().write_all(bytes),
    }
}

/// Reports dropped output: too much output is dropped, but never silently.
pub(crate) fn say_gap(from: u64, to: u64) {
    let _ = writeln!(io::stderr(), "-- about {} bytes of output were dropped --", to - from);
}
