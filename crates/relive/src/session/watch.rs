//! In front of a program: its output as it comes, our input to it, until it ends or we leave.

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
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::input::{AtEnd, Stopped, forward};
use super::output::{Output, plainly, write};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::terminal::key::Key;
use crate::terminal::modes::Modes;
use crate::terminal::raw::{self, Raw};

/// What a program gets that writes to a pipe nobody reads.
const SIGPIPE: i32 = 13;

/// How one is in front of it.
#[derive(Debug)]
pub(crate) struct Manner {
    /// Where in the log to begin.
    pub from: u64,
    /// The terminal is the program's, but for this key.
    pub detach: Option<Key>,
    pub at_end: AtEnd,
    pub pace: Pace,
    pub arrival: Arrival,
}

/// Whether there is something to come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It has just been started. SIGTERM is passed on to it.
    First,
    /// It runs already: its screen has to be drawn again. SIGTERM ends us alone.
    Again,
}

/// Whether the program waits for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// All of its output has to get here: it waits while we write, as it would for the reader of a pipe.
    Held,
    /// It goes on; a gap is told.
    Free,
}

/// How much has to be shown before the shim is told: less than it lets the program be ahead of us.
const TOLD_EVERY_BYTES: u64 = 64 * 1024;
/// What releases the program.
const ALL_THERE_WILL_BE: u64 = u64::MAX;

/// How long a shim may take to change the size of the terminal before one can type.
const SIZED_WITHIN: Duration = Duration::from_secs(1);

/// Why one is in front of it no more.
#[derive(Debug)]
pub(crate) enum Left {
    /// It has ended.
    Ended(ExitRecord),
    /// Its shim went without a word.
    Lost,
    /// The key was pressed.
    Detached,
    /// Ctrl-C, once too often.
    Interrupted,
    /// The terminal was closed.
    HungUp,
    /// A signal, by its number, told us to leave.
    Signaled(u8),
}

/// Stays in front of it. `leave` ends it from outside.
pub(crate) async fn watch(
    context: &Context,
    connection: &Connection,
    folder: &Path,
    manner: &Manner,
    leave: impl Future<Output = ()>,
) -> Outcome<Left> {
    let cannot = |error| CommandError::internal("signals cannot be listened to").because(error);
    // Before the terminal is the program's: whoever is told to leave then gives it back.
    let mut leaving = Leaving::listen(manner).map_err(cannot)?;
    let mut hang_ups = signal(SignalKind::hangup()).map_err(cannot)?;
    let raw = manner.detach.map(|_| Raw::enter()).transpose();
    // Held to the end of this function, however it ends.
    let _raw = raw.map_err(|error| CommandError::internal("the terminal cannot be used").because(error))?;
    // Not before the terminal is the program's: it would add to what is printed.
    let screen = Screen::open(folder, manner).map_err(unreadable)?;
    let mut output = Output::start(folder, manner.from, screen.sink()).map_err(unreadable)?;
    let mut seen = connection.seen();
    // What came before we listened counts as news.
    seen.mark_changed();
    // Before anything can be typed: whoever leaves at once has made it the size of theirs all the same.
    let _ = tokio::time::timeout(SIZED_WITHIN, fit(connection, manner)).await;
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
                    None if now.gone || changed.is_err() => end = Some(Left::Lost),
                    None => output.grown(),
                }
                if end.is_some() {
                    output.end();
                }
            }
            shown = output.finished(), if !all_shown => {
                all_shown = true;
                // Nobody reads any more: what comes now is for the log.
                let _ = connection.request(Verb::Hold { read: ALL_THERE_WILL_BE }).await;
                match shown {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                        // One that has ended, or takes no notice, is as good.
                        let _ = connection.request(Verb::signal(SIGPIPE)).await;
                    }
                    Err(error) => return Err(unreadable(error)),
                    Ok(()) => {}
                }
            }
            () = &mut holding => {}
            () = &mut typing => return Ok(Left::Detached),
            error = &mut sizing => return Err(cannot(error)),
            () = &mut leave => return Ok(Left::Interrupted),
            number = leaving.told() => return Ok(Left::Signaled(number)),
            _ = hang_ups.recv() => return Ok(Left::HungUp),
        }
        if all_shown && let Some(left) = end.take() {
            return Ok(left);
        }
    }
}

/// The signals that end us without the program, so that the terminal is given back. Where the terminal is not the program's
/// there is nothing to give back.
struct Leaving {
    term: Option<Signal>,
    quit: Option<Signal>,
}

impl Leaving {
    /// Listens from now on.
    fn listen(manner: &Manner) -> io::Result<Self> {
        let raw = manner.detach.is_some();
        let comes_back = raw && manner.arrival == Arrival::Again;
        Ok(Self {
            term: comes_back.then(|| signal(SignalKind::terminate())).transpose()?,
            quit: raw.then(|| signal(SignalKind::quit())).transpose()?,
        })
    }

    /// Waits for one; its number.
    async fn told(&mut self) -> u8 {
        const SIGQUIT: u8 = 3;
        const SIGTERM: u8 = 15;
        tokio::select! {
            () = next(&mut self.term) => SIGTERM,
            () = next(&mut self.quit) => SIGQUIT,
        }
    }
}

async fn next(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => {
            signals.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Our terminal while it is the program's. However it is left, the modes that the program switched on are switched off.
struct Screen {
    modes: Option<Arc<Mutex<Modes>>>,
}

impl Screen {
    /// Whoever comes back to a program has the modes that it switched on before.
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

    fn sink(&self) -> impl FnMut(Option<Item>) -> io::Result<()> + Send + 'static {
        let modes = self.modes.clone();
        move |item| {
            if let (Some(modes), Some(Item::Chunk(chunk))) = (&modes, &item) {
                modes.lock().unwrap_or_else(PoisonError::into_inner).see(&chunk.bytes);
            }
            plainly(item)
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

/// Lets the program wait until we have shown what it printed. Never returns.
async fn holding(connection: &Connection, pace: Pace, mut shown: watch::Receiver<u64>) {
    let mut told = *shown.borrow_and_update();
    // A shim of before this was known answers that it does not know it: it goes on as it did.
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

fn unreadable(error: io::Error) -> CommandError {
    CommandError::internal("the output cannot be shown; the program keeps running").because(error)
}

/// Forwards the input. Returns only when the detach key was pressed.
async fn typing(context: &Context, connection: &Connection, manner: &Manner) {
    match forward(connection, manner.detach, manner.at_end).await {
        Stopped::Detached => return,
        Stopped::Refused if manner.at_end == AtEnd::Leave => context.say("the program takes no input"),
        // As with a pipe: the program may have closed its input and keep running.
        Stopped::Refused | Stopped::Finished => {}
    }
    std::future::pending().await
}

/// Keeps the program's terminal at the size of ours. Returns only when that cannot be done.
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

/// Makes the program's terminal the size of ours. A size that changes makes a full-screen program draw its screen.
async fn fit(connection: &Connection, manner: &Manner) {
    if manner.detach.is_none() {
        return;
    }
    let (rows, columns) = raw::size();
    if manner.arrival == Arrival::Again {
        let other = Size { rows: rows.saturating_sub(1).max(1), columns };
        let _ = connection.request(Verb::Resize(other)).await;
    }
    let _ = connection.request(Verb::Resize(Size { rows, columns })).await;
}
