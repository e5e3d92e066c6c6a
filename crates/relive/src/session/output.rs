//! Reads the output of a program from its log on a thread of its own, so that a slow reader of this command delays
//! neither the program nor Ctrl-C.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use relive_api::Session;
use relive_session::exit::ExitRecord;
use relive_session::log::{Chunk, Item, Reader, Stream};
use relive_session::stage::SessionResult;
use serde::Deserialize as _;
use tokio::sync::{oneshot, watch};

use crate::error::CommandError;
use crate::render::size::bytes;

/// Why output is missing from the log of a program that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingOutput {
    /// It could not be written.
    Unwritten,
    /// Nobody was left to write it, so it is not known whether there was some.
    Unknown,
}

impl MissingOutput {
    fn of(output_lost: bool, result: Option<&SessionResult>) -> Option<Self> {
        let shim_was_lost = result.is_some_and(SessionResult::shim_was_lost);
        output_lost.then_some(if shim_was_lost { Self::Unknown } else { Self::Unwritten })
    }

    pub(crate) fn of_record(record: &ExitRecord) -> Option<Self> {
        Self::of(record.output_lost, Some(&record.result))
    }

    /// Returns the same for a session as the daemon shows it.
    pub(crate) fn of_session(session: &Session) -> Option<Self> {
        let result = session.result.as_ref().and_then(|result| SessionResult::deserialize(result).ok());
        Self::of(session.output_lost, result.as_ref())
    }

    /// Returns the message that follows the output.
    pub(crate) fn after_output(self) -> &'static str {
        match self {
            Self::Unwritten => "-- some of the output is missing: it could not be written to disk --",
            Self::Unknown => "-- the end of the output may be missing: it was not written to disk in time --",
        }
    }

    /// Returns the words for a row about the output.
    pub(crate) fn in_row(self) -> &'static str {
        match self {
            Self::Unwritten => "some is missing: it could not be written to disk",
            Self::Unknown => "its end may be missing: it was not written to disk in time",
        }
    }
}

/// Output that is being shown.
pub(crate) struct Output {
    /// Until there is something to show.
    idle: Option<Idle>,
    /// Absent once the log is complete.
    grown: Option<SyncSender<()>>,
    done: oneshot::Receiver<Result<(), NotShown>>,
    shown: watch::Receiver<u64>,
}

/// A log of which nothing is shown yet. Most programs that end at once write nothing: they need no thread.
struct Idle {
    reader: Reader,
    sink: Sink,
    nudges: Receiver<()>,
    finished: oneshot::Sender<Result<(), NotShown>>,
    showing: watch::Sender<u64>,
}

/// Gets all items, and finally `None`.
type Sink = Box<dyn FnMut(Option<Item>) -> io::Result<()> + Send>;

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

/// Opens the log of a session. An error names the directory that this user may not read.
pub(crate) fn open_log(folder: &Path, from: u64) -> io::Result<Reader> {
    Reader::open(folder, from).map_err(|error| {
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        let named = || io::Error::new(error.kind(), format!("{}: permission denied", folder.display()));
        if is_denied { named() } else { error }
    })
}

/// Returns the error of a log that cannot be read. Unless the disk fails, or this user may not read it, it was changed: by its
/// program, or by somebody.
pub(crate) fn unreadable(error: io::Error) -> CommandError {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return CommandError::internal("the output cannot be read").because(error);
    }
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
        let reader = open_log(folder, from)?;
        let (grown, nudges) = sync_channel(1);
        let (finished, done) = oneshot::channel();
        let (showing, shown) = watch::channel(from);
        let idle = Idle { reader, sink: Box::new(sink), nudges, finished, showing };
        let mut output = Self { idle: Some(idle), grown: Some(grown), done, shown };
        output.grown();
        Ok(output)
    }

    /// Notifies that the log has grown.
    pub(crate) fn grown(&mut self) {
        if let Some(idle) = self.idle.take() {
            self.idle = idle.look();
        } else if let Some(grown) = &self.grown {
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
        if let Some(Idle { mut sink, finished, .. }) = self.idle.take().and_then(Idle::look) {
            let _ = finished.send(sink(None).map_err(NotShown::Unwritten));
        }
    }

    /// Waits until everything is shown, or could not be.
    pub(crate) async fn finished(&mut self) -> Result<(), NotShown> {
        let ended = |_| Err(NotShown::Unwritten(io::Error::other("the writing thread has ended")));
        (&mut self.done).await.unwrap_or_else(ended)
    }
}

impl Idle {
    /// Shows the log on a thread of its own, if there is anything in it.
    fn look(mut self) -> Option<Self> {
        match self.reader.next() {
            Ok(None) => Some(self),
            first => {
                let (give, take) = sync_channel::<(Self, io::Result<Option<Item>>)>(1);
                let show = move || {
                    if let Ok((idle, first)) = take.recv() {
                        idle.show(first);
                    }
                };
                match thread::Builder::new().name("output".into()).spawn(show) {
                    Ok(_) => drop(give.send((self, first))),
                    Err(error) => drop(self.finished.send(Err(NotShown::Unwritten(error)))),
                }
                None
            }
        }
    }

    /// Shows the log until it is complete.
    fn show(self, first: io::Result<Option<Item>>) {
        let Self { mut reader, mut sink, nudges, finished, showing } = self;
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
        let mut shown = first.map_err(NotShown::Unread).and_then(&mut sink);
        shown = shown.and_then(|()| drain(&mut reader, &mut sink));
        while shown.is_ok() && nudges.recv().is_ok() {
            shown = drain(&mut reader, &mut sink);
        }
        // The log is complete; output after the last read is still read.
        let shown = shown.and_then(|()| drain(&mut reader, &mut sink)).and_then(|()| sink(None));
        // A missing receiver means that the command has left.
        let _ = finished.send(shown);
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
        Stream::Out => crate::stdout::write(bytes),
        Stream::Err => io::stderr().lock().write_all(bytes),
    }
}

/// Reports dropped output: too much output is dropped, but never silently.
pub(crate) fn say_gap(from: u64, to: u64) {
    let _ = writeln!(io::stderr(), "-- about {} of output were dropped --", bytes(to - from));
}
