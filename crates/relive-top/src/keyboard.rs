//! The keyboard: a thread that reads keys, and stops reading while another program has the terminal.

use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use crossterm::event::{self, Event};
use tokio::sync::{mpsc, oneshot};

use crate::key::Key;
use crate::state::{Batch, Input};

/// How long it may take until another program gets the terminal.
const POLL: Duration = Duration::from_millis(100);

/// Nobody presses two keys within this time: keys that come within it were pasted.
pub const AT_ONCE: Duration = Duration::from_millis(10);

/// How many events are taken in at once.
const AT_ONCE_MAX: usize = 4_096;

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
    let mut previous = Batch::Whole;
    loop {
        if let Ok(Hold { held, over }) = asked.try_recv() {
            // What was typed by now is not for the dashboard.
            while event::poll(Duration::ZERO).is_ok_and(|more| more) && event::read().is_ok() {}
            let _ = held.send(());
            let _ = over.recv();
        }
        match event::poll(if previous == Batch::Cut { AT_ONCE } else { POLL }) {
            Ok(true) => {}
            Ok(false) => {
                previous = Batch::Whole;
                continue;
            }
            Err(_) => return,
        }
        let Ok(first) = event::read() else { return };
        let mut events = vec![first];
        while events.len() < AT_ONCE_MAX && event::poll(AT_ONCE).is_ok_and(|more| more) {
            let Ok(next) = event::read() else { return };
            events.push(next);
        }
        let current = if events.len() < AT_ONCE_MAX { Batch::Whole } else { Batch::Cut };
        for heard in together(events, previous, current) {
            if sender.blocking_send(heard).is_err() {
                return;
            }
        }
        previous = current;
    }
}

/// Returns what events that came at once stand for: keys without anything in between belong together, also with those of the
/// batch before, if that was cut.
fn together(events: Vec<Event>, previous: Batch, current: Batch) -> Vec<Heard> {
    let (mut heard, mut keys) = (Vec::new(), Vec::new());
    // Only a paste in between separates the first keys from those of the batch before.
    let mut before = previous;
    for event in events {
        match event {
            Event::Key(key) => keys.extend(Key::of(key)),
            Event::Paste(text) => {
                heard.extend(heard_keys(std::mem::take(&mut keys), before, Batch::Whole));
                heard.push(Heard::Input(Input::Paste(text)));
                before = Batch::Whole;
            }
            Event::Resize(..) => heard.push(Heard::Resized),
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) => {}
        }
    }
    heard.extend(heard_keys(keys, before, current));
    heard
}

/// Returns what keys without anything in between stand for.
fn heard_keys(keys: Vec<Key>, before: Batch, batch: Batch) -> Option<Heard> {
    match keys.as_slice() {
        [] => None,
        [key] if before == Batch::Whole => Some(Heard::Input(Input::Key(*key))),
        _ => Some(Heard::Input(Input::Keys { keys, batch })),
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    #[test]
    fn keys_that_came_at_once_stay_together() {
        let key = |c: char| Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        let check_batch = |events: Vec<Event>, previous, current, expect: &str| {
            let heard = together(events, previous, current).into_iter().map(|heard| match heard {
                Heard::Input(Input::Key(key)) => format!("{key:?}"),
                Heard::Input(Input::Keys { keys, batch: Batch::Whole }) => format!("{keys:?}"),
                Heard::Input(Input::Keys { keys, batch: Batch::Cut }) => format!("{keys:?}..."),
                Heard::Input(input) => format!("{input:?}"),
                Heard::Resized => "resized".to_owned(),
            });
            assert_eq!(heard.collect::<Vec<_>>().join(" "), expect);
        };
        let check = |events, expect: &str| check_batch(events, Batch::Whole, Batch::Whole, expect);
        check(vec![key('y')], "Char('y')");
        check(vec![key('y'), Event::Resize(80, 24), key('e')], "resized [Char('y'), Char('e')]");
        check(vec![key('n'), Event::Paste("y".into()), key('j')], "Char('n') Paste(\"y\") Char('j')");
        // The rest of a long text is no key, and its first part is not all of it.
        check_batch(vec![key('y')], Batch::Cut, Batch::Whole, "[Char('y')]");
        check_batch(vec![key('y'), key('e')], Batch::Whole, Batch::Cut, "[Char('y'), Char('e')]...");
        check_batch(vec![Event::Resize(80, 24), key('y')], Batch::Cut, Batch::Whole, "resized [Char('y')]");
        check_batch(vec![Event::Paste("y".into()), key('j')], Batch::Cut, Batch::Whole, "Paste(\"y\") Char('j')");
    }
}
