//! Standard output, and whether this command was started with one.
//!
//! The standard library opens `/dev/null` in the place of a descriptor that is closed (`>&-`), before `main`: output
//! would be lost without an error. Coreutils report that, and so does Relive.

use std::future::Future;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::oneshot;

use crate::error::Outcome;

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before the standard library does. Afterwards nothing tells its `/dev/null` from one that the caller chose.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: asks for the flags of a descriptor and changes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    if flags == -1 {
        IS_CLOSED.store(true, Ordering::Relaxed);
    }
}

/// Writes to standard output, and flushes it. Nothing to write needs no output.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    Stdout.write_all(bytes)?;
    Stdout.flush()
}

/// Does some work, unless the reader of standard output goes away: without that, only the next output would tell.
pub(crate) async fn while_read<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let (sender, left) = oneshot::channel();
    // It ends with the command: nothing else ends the wait for a reader that stays.
    std::thread::spawn(move || {
        let stdout = io::stdout();
        let mut ready = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut ready, None) == Err(rustix::io::Errno::INTR) {}
        let _ = sender.send(());
    });
    tokio::select! {
        biased;
        done = work => done,
        Ok(()) = left => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
    }
}

/// Standard output as a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() && IS_CLOSED.load(Ordering::Relaxed) {
            return Err(rustix::io::Errno::BADF.into());
        }
        io::stdout().lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().lock().flush()
    }
}
