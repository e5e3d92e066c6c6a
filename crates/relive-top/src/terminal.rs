//! The terminal: taken for the screen, and given back.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use ratatui::DefaultTerminal;
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// Whether the screen and the modes of the terminal are those of the dashboard.
static HAS_TERMINAL: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back.
pub(crate) struct RestoreTerminal;

impl Drop for RestoreTerminal {
    fn drop(&mut self) {
        // The hook of a panic has done so, and a second time would put the cursor back, over the message.
        if !std::thread::panicking() {
            give_terminal_back();
        }
    }
}

/// Takes the terminal, which marks pasted text from now on.
pub(crate) fn take_terminal() -> io::Result<DefaultTerminal> {
    HAS_TERMINAL.store(true, Ordering::Relaxed);
    let terminal = ratatui::try_init()?;
    let mut modes = tcgetattr(io::stdin())?;
    modes.local_modes.insert(LocalModes::ISIG);
    tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
    // One that cannot do so hands pasted text over as keys that come at once.
    let _ = execute!(io::stdout(), EnableBracketedPaste);
    Ok(terminal)
}

/// Gives the terminal back, unless another command has it.
pub(crate) fn give_terminal_back() {
    if HAS_TERMINAL.swap(false, Ordering::Relaxed) {
        unmark_pastes();
        ratatui::restore();
    }
}

/// Sets the modes that the terminal had. Doing so from its background would stop us.
pub(crate) fn restore_modes(modes: &Termios) {
    let is_foreground = tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp());
    if is_foreground {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
    }
}

/// A terminal that is gone needs nothing.
fn unmark_pastes() {
    let _ = execute!(io::stdout(), DisableBracketedPaste);
}

/// Has the hook of a panic, which resets the terminal, also reset this.
pub(crate) fn unmark_pastes_at_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        unmark_pastes();
        before(info);
    }));
}
