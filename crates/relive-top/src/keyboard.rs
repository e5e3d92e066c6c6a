//! The keyboard: a thread that reads keys, and stops reading while another program has the terminal.

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use crossterm::event::{self, Event};
use tokio::sync::{mpsc, oneshot};

use crate::key::Key;
use crate::state::Input;

/// How long it may take until another program gets the terminal.
const POLL: Duration = Duration::from_millis(100);

/// What the loop hears.
pub(crate) enum Heard {
    Input(Input),
    Resized,
}

/// The thread that reads keys. It ends with the program.
pub(crate) struct Keyboard {
    holds: std_mpsc::Sender<Hold>,
}

/// The keyboard is not read until this is dropped.
pub(crate) struct Held {
    _over: std_mpsc::Sender<()>,
}

/// Another program gets the terminal.
struct Hold {
    /// Told when nothing is read any more.
    held: oneshot::Sender<()>,
    /// Dropped when the terminal is ours again.
    over: std_mpsc::Receiver<()>,
}

impl Keyboard {
    pub(crate) fn open(sender: mpsc::Sender<Heard>) -> Self {
        let (holds, asked) = std_mpsc::channel();
        std::thread::spawn(move || read_keys(&sender, &asked));
        Self { holds }
    }

    /// Waits until no key is read any more. It is read again when the returned value is dropped.
    pub(crate) async fn hold(&self) -> Held {
        let ((held, is_held), (over, waits)) = (oneshot::channel(), std_mpsc::channel());
        if self.holds.send(Hold { held, over: waits }).is_ok() {
            let _ = is_held.await;
        }
        Held { _over: over }
    }
}

fn read_keys(sender: &mpsc::Sender<Heard>, asked: &std_mpsc::Receiver<Hold>) {
    loop {
        if let Ok(Hold { held, over }) = asked.try_recv() {
            // What was typed by now is not for the dashboard.
            while event::poll(Duration::ZERO).is_ok_and(|more| more) && event::read().is_ok() {}
            let _ = held.send(());
            let _ = over.recv();
        }
        match event::poll(POLL) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => return,
        }
        let heard = match event::read() {
            Ok(Event::Key(key)) => Key::of(key).map(|key| Heard::Input(Input::Key(key))),
            Ok(Event::Resize(..)) => Some(Heard::Resized),
            Ok(Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_)) => None,
            Err(_) => return,
        };
        if let Some(heard) = heard
            && sender.blocking_send(heard).is_err()
        {
            return;
        }
    }
}
