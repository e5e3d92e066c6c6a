//! The readers of this command's output: if its pipe is closed, so is that of the program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use relive_session::connection::Connection;
use relive_session::log::Stream;
use relive_session::protocol::{Outcome as Answer, Verb};
use rustix::fs::FileType;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::watch::{Arrival, Manner};
use crate::error::Outcome;

/// The signal of a program that writes to a pipe without a reader.
const SIGPIPE: i32 = 13;

/// Reports outputs that nobody reads any more.
pub(super) struct Unread(UnboundedSender<Stream>);

impl Unread {
    pub(super) fn report(&self, stream: Stream) {
        // A missing receiver means that the command has left.
        let _ = self.0.send(stream);
    }
}

/// The readers of both outputs.
pub(super) struct Readers {
    reported: UnboundedReceiver<Stream>,
    /// The pipes that are watched, so that the first write without a reader fails, not the one after it.
    pipes: Vec<(Stream, AsyncFd<OwnedFd>)>,
    closed: Vec<Stream>,
    what: Closes,
}

/// The consequence of an output without a reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closes {
    /// The program's pipe: its next write fails, as it would without Relive.
    Pipe,
    /// Its terminal cannot be closed without ending the session: the program gets the signal.
    Terminal,
    /// The program is not affected, only this command ends: it watches a program that others started.
    Nothing,
}

impl Readers {
    pub(super) fn of(manner: &Manner) -> (Unread, Self) {
        let what = match (manner.arrival, manner.detach) {
            (Arrival::First, None) => Closes::Pipe,
            (Arrival::First, Some(_)) => Closes::Terminal,
            (Arrival::Again, _) => Closes::Nothing,
        };
        let (report, reported) = unbounded_channel();
        let outputs = [(Stream::Out, pipe(io::stdout())), (Stream::Err, pipe(io::stderr()))];
        let pipes = outputs.into_iter().filter_map(|(stream, pipe)| Some((stream, pipe?)));
        let pipes = if what == Closes::Pipe { pipes.collect() } else { Vec::new() };
        (Unread(report), Self { reported, pipes, closed: Vec::new(), what })
    }

    /// Waits until an output has no reader. Each output is returned once.
    pub(super) async fn left(&mut self) -> Stream {
        loop {
            let stream = tokio::select! {
                Some(stream) = self.reported.recv() => stream,
                stream = first_closed(&self.pipes) => stream,
            };
            self.pipes.retain(|(watched, _)| *watched != stream);
            if !self.closed.contains(&stream) {
                self.closed.push(stream);
                return stream;
            }
        }
    }

    /// Closes an output of the program. Fails if this command has nothing left to do.
    pub(super) async fn close(&self, connection: &Connection, stream: Stream) -> Outcome<()> {
        // A program that has ended is fine.
        match self.what {
            Closes::Pipe => {
                let closed = connection.request(Verb::CloseOutput { stream }).await;
                // A shim of an earlier version.
                if matches!(closed, Ok(Answer::Unknown { .. })) {
                    let _ = connection.request(Verb::signal(SIGPIPE)).await;
                }
            }
            Closes::Terminal => drop(connection.request(Verb::signal(SIGPIPE)).await),
            Closes::Nothing => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
        Ok(())
    }
}

/// Watches an output if it is a pipe.
fn pipe(output: impl AsFd) -> Option<AsyncFd<OwnedFd>> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&output).ok()?.st_mode);
    let own = || rustix::io::fcntl_dupfd_cloexec(&output, 3).ok();
    let own = (kind == FileType::Fifo).then(own).flatten()?;
    // SAFETY: the descriptor is owned, and stays the same as long as it is watched.
    unsafe { AsyncFd::register_with_interest(own, Interest::ERROR) }.ok()
}

/// Waits for the first pipe without a reader; for ever if none is watched.
async fn first_closed(pipes: &[(Stream, AsyncFd<OwnedFd>)]) -> Stream {
    let closed = async |wanted: Stream| match pipes.iter().find(|(stream, _)| *stream == wanted) {
        Some((_, pipe)) if pipe.ready(Interest::ERROR).await.is_ok() => wanted,
        Some(_) | None => std::future::pending().await,
    };
    tokio::select! {
        stream = closed(Stream::Out) => stream,
        stream = closed(Stream::Err) => stream,
    }
}
