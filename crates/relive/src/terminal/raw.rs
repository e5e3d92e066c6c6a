//! The terminal handed over whole: every key is a byte for somebody else.
//!
//! Whatever ends the command, its value is dropped, and the terminal is as it was.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// While it lives, the terminal on stdin is raw.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let guard = Self { before };
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Rows and columns of the terminal on stdin; of a usual one where it has no size.
pub(crate) fn size() -> (u16, u16) {
    const USUAL: (u16, u16) = (24, 80);
    match tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        Ok(_) | Err(_) => USUAL,
    }
}
