//! Watches a program: shows its output, forwards input, until it ends or the user leaves.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use relive_session::connection::Connection;
use relive_session::exit::ExitRecord;
use relive_session::log::{Item, Reader, Stream};
use relive_session::protocol::{self, Verb};
use relive_session::spec::Size;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::input::{AtEnd, Stopped, forward};
use super::output::{NotShown, Output, plainly, unreadable, write};
use super::readers::{Readers, Unread};
use super::told::{Asked, Told, stop};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::key::Key;
use crate::terminal::modes::Modes;
use crate::terminal::raw::{self, Raw};

/// How a program is watched.
#[derive(Debug)]
pub(crate) struct Manner {
    /// The offset in the log to begin at.
    pub from: u64,
    /// Set if the terminal belongs to the program, except for this key.
    pub detach: Option<Key>,
    pub at_end: AtEnd,
    pub pace: Pace,
    pub arrival: Arrival,
}

/// Whether the program was watched before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It has just been started. SIGTERM is passed on to it.
    First,
    /// It already runs: its screen has to be drawn again. SIGTERM ends only this command.
    Again,
}

/// Whether the program waits for this command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// All of its output has to arrive here: it waits while this command writes, like for the reader of a pipe.
    Held,
    /// It does not wait; a gap is reported.
    Free,
}

/// How much is shown before the shim is told: less than the program may be ahead.
const TOLD_EVERY_BYTES: u64 = 64 * 1024;
/// The position that releases the program.
const ALL_THERE_WILL_BE: u64 = u64::MAX;

/// How long a shim may take to change the size of the terminal before input is accepted.
const SIZED_WITHIN: Duration = Duration::from_secs(1);

/// The reason why watching ended.
#[derive(Debug)]
pub(crate) enum Left {
    Ended(ExitRecord),
    /// Its shim is gone without an exit record. Its output was shown up to this offset.
    Lost {
        shown: u64,
    },
    Detached,
    /// Ctrl-C was pressed too often.
    Interrupted,
    /// The terminal was closed.
    HungUp,
    /// A signal with this number asked this command to end.
    Signaled(u8),
}

/// Watches a program. `leave` ends it from outside.
pub(crate) async fn watch(
    context: &Context,
    connection: &Connection,
    folder: &Path,
    manner: &Manner,
    leave: impl Future<Output = ()>,
) -> Outcome<Left> {
    let cannot = |error| CommandError::internal("cannot listen for signals").because(error);
    // Before the terminal belongs to the program: a signal to end then gives the terminal back.
    let mut told = Told::listen(manner).map_err(cannot)?;
    let mut hang_ups = signal(SignalKind::hangup()).map_err(cannot)?;
    let raw = manner.detach.map(|_| Raw::enter()).transpose();
    // Held to the end of this function, however it ends.
    let raw = raw.map_err(|error| CommandError::internal("the terminal cannot be used").because(error))?;
    // Only when the terminal belongs to the program: otherwise it would add to the output.
    let screen = Screen::open(folder, manner)?;
    let (unread, mut readers) = Readers::of(manner);
    let mut output = Output::start(folder, manner.from, screen.sink(unread)).map_err(unreadable)?;
    let mut seen = connection.seen();
    // Changes from before this point count as new.
    seen.mark_changed();
    // Before anything can be typed: even a user who leaves at once has set the size.
    let _ = tokio::time::timeout(SIZED_WITHIN, fit(connection, manner, manner.arrival)).await;
    let mut typing = pin!(typing(context, connection, manner));
    let mut sizing = pin!(sizing(connection, manner));
    let mut holding = pin!(holding(connection, manner.pace, output.shown()));
    let mut leave = pin!(leave);
    let (mut end, mut all_shown) = (None, false);
    loop {
        tokio::select! {
            changed = seen.changed(), if end.is_none() => {
                let now = seen.borrow_and_update().clone();
                match now.ended {
                    Some(record) => end = Some(Left::Ended(record)),
                    None if now.gone || changed.is_err() => end = Some(Left::Lost { shown: manner.from }),
                    None => output.grown(),
                }
                if end.is_some() {
                    output.end();
                }
            }
            shown = output.finished(), if !all_shown => {
                all_shown = true;
                if end.is_none() {
                    // Nobody reads any more: further output goes to the log only.
                    let _ = connection.request(Verb::Hold { read: ALL_THERE_WILL_BE }).await;
                }
                match shown {
                    Err(NotShown::Unwritten(error)) => return Err(error.into()),
                    Err(NotShown::Unread(error)) => return Err(unreadable(error)),
                    Ok(()) => {}
                }
            }
            stream = readers.left() => readers.close(connection, stream).await?,
            () = &mut holding => {}
            () = &mut typing => return Ok(Left::Detached),
            error = &mut sizing => return Err(cannot(error)),
            () = &mut leave => return Ok(Left::Interrupted),
            asked = told.next() => match asked {
                Asked::Leave(number) => return Ok(Left::Signaled(number)),
                // A program that has ended needs none.
                Asked::PassOn(number) => drop(connection.request(Verb::signal(number)).await),
                Asked::Stop => {
                    screen.away(|| stop(raw.as_ref())).map_err(cannot)?;
                    let redrawn = fit(connection, manner, Arrival::Again);
                    let _ = tokio::time::timeout(SIZED_WITHIN, redrawn).await;
                }
            },
            _ = hang_ups.recv() => return Ok(Left::HungUp),
        }
        if all_shown && let Some(left) = end.take() {
            return Ok(match left {
                Left::Lost { .. } => Left::Lost { shown: *output.shown().borrow() },
                other @ (Left::Ended(_) | Left::Detached | Left::Interrupted | Left::HungUp | Left::Signaled(_)) => {
                    other
                }
            });
        }
    }
}

/// The terminal while it belongs to the program. However it is left, modes that the program enabled are disabled.
struct Screen {
    modes: Option<Arc<Mutex<Modes>>>,
}

impl Screen {
    /// Returning to a program restores the modes that it enabled before.
    fn open(folder: &Path, manner: &Manner) -> io::Result<Self> {
        if manner.detach.is_none() {
            return Ok(Self { modes: None });
        }
        let mut modes = Modes::default();
        if manner.arrival == Arrival::Again {
            let mut reader = Reader::open(folder, 0)?;
            while let Some(item) = reader.next()? {
                match item {
                    Item::Chunk(chunk) if chunk.next <= manner.from => modes.see(&chunk.bytes),
                    Item::Chunk(_) => break,
                    Item::Gap { .. } => {}
                }
            }
            write(Stream::Out, modes.redo().as_bytes())?;
        }
        Ok(Self { modes: Some(Arc::new(Mutex::new(modes))) })
    }

    /// Disables the modes while something else uses the terminal. Nothing is shown meanwhile.
    fn away(&self, then: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some(modes) = &self.modes else { return then() };
        let modes = modes.lock().unwrap_or_else(PoisonError::into_inner);
        write(Stream::Out, modes.undo().as_bytes())?;
        then()?;
        write(Stream::Out, modes.redo().as_bytes())
    }

    /// Returns how output is shown. Output that nobody reads any more is reported to `unread`, and the rest is shown.
    fn sink(&self, unread: Unread) -> impl FnMut(Option<Item>) -> io::Result<()> + Send + 'static {
        let modes = self.modes.clone();
        move |item| {
            if let (Some(modes), Some(Item::Chunk(chunk))) = (&modes, &item) {
                modes.lock().unwrap_or_else(PoisonError::into_inner).see(&chunk.bytes);
            }
            let stream = item.as_ref().and_then(|item| match item {
                Item::Chunk(chunk) => Some(chunk.stream),
                Item::Gap { .. } => None,
            });
            match (plainly(item), stream) {
                (Err(error), Some(stream)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    unread.report(stream);
                    Ok(())
                }
                (shown, _) => shown,
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(modes) = &self.modes {
            let undo = modes.lock().unwrap_or_else(PoisonError::into_inner).undo();
            // A terminal that is gone needs nothing.
            let _ = write(Stream::Out, undo.as_bytes());
        }
    }
}

/// Makes the program wait until its output is shown. Never returns.
async fn holding(connection: &Connection, pace: Pace, mut shown: watch::Receiver<u64>) {
    let mut told = *shown.borrow_and_update();
    // An older shim answers that it does not know this request: the program does not wait.
    let mut heard = pace == Pace::Held;
    while heard {
        let asked = connection.request(Verb::Hold { read: told }).await;
        heard = matches!(asked, Ok(protocol::Outcome::Done));
        match shown.wait_for(|shown| *shown >= told.saturating_add(TOLD_EVERY_BYTES)).await {
            Ok(shown) => told = *shown,
            Err(_) => heard = false,
        }
    }
    std::future::pending().await
}

/// Forwards the input. Returns only when the detach key was pressed.
async fn typing(context: &Context, connection: &Connection, manner: &Manner) {
    match forward(connection, manner.detach, manner.at_end).await {
        Stopped::Detached => return,
        Stopped::Refused if manner.at_end == AtEnd::Leave => {
            context.say("the program has no open input, so what you type is not read")
        }
        // As with a pipe: the program may have closed its input and keep running.
        Stopped::Refused | Stopped::Finished => {}
    }
    std::future::pending().await
}

/// Keeps the program's terminal at the size of this one. Returns only when that fails.
async fn sizing(connection: &Connection, manner: &Manner) -> io::Error {
    if manner.detach.is_none() {
        return std::future::pending().await;
    }
    let mut changes = match signal(SignalKind::window_change()) {
        Ok(changes) => changes,
        Err(error) => return error,
    };
    loop {
        let (rows, columns) = raw::size();
        // A program that has ended has no terminal to change.
        let _ = connection.request(Verb::Resize(Size { rows, columns })).await;
        if changes.recv().await.is_none() {
            return std::future::pending().await;
        }
    }
}

/// Sets the size of the program's terminal to that of this one. A changed size makes a full-screen program redraw.
async fn fit(connection: &Connection, manner: &Manner, arrival: Arrival) {
    if manner.detach.is_none() {
        return;
    }
    let (rows, columns) = raw::size();
    if arrival == Arrival::Again {
        let other = Size { rows: rows.saturating_sub(1).max(1), columns };
        let _ = connection.request(Verb::Resize(other)).await;
    }
    let _ = connection.request(Verb::Resize(Size { rows, columns })).await;
}
