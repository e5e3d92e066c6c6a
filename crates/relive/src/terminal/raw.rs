//! The terminal in raw mode: every key is a byte for the program.
//!
//! However the command ends, dropping the value resets the terminal.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Keeps the terminal on stdin in raw mode while it lives.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    pub(crate) fn enter() -> io::Result<Self> {
        let guard = Self { before: tcgetattr(io::stdin())? };
        guard.enter_again()?;
        Ok(guard)
    }

    pub(crate) fn enter_again(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?)
    }

    /// Resets the terminal.
    pub(crate) fn leave(&self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the rows and columns of the terminal on stdin, or the usual ones if it has no size.
pub(crate) fn size() -> (u16, u16) {
    const USUAL: (u16, u16) = (24, 80);
    match tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        Ok(_) | Err(_) => USUAL,
    }
}
