//! The events of an end that the daemon before could not write any more.
//!
//! An end is acknowledged when its record is on the disk, and the events of the release follow. Where the daemon dies in
//! between, the next one finds the marker of the process and writes what is missing, before it removes the marker.

use relive_journal::journal::Event;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::{DataDirectory, History};
use serde_json::{Value, json};

use crate::attribution;
use crate::drive::release::{STEPS, ended_event};

/// Writes the events of an end that are missing. Nothing depends on them: what cannot be written is left out.
pub(super) fn complete_events(data: &DataDirectory, history: &History) {
    let Some((at, end)) = history.ended() else { return };
    let Some(identity) = &history.identity else { return };
    let uuid = identity.spawned.uuid;
    let written = Written::read(Reader::new(data.directory(uuid).events(), Cursor::default()), history);
    let by = end.cause.map(|cause| attribution::words_of_pids(cause, attribution::signal_of(end).as_deref()));
    let ended = (!written.ended).then(|| Event { at: *at, kind: "ended", body: ended_event(end, by) });
    let steps =
        STEPS.iter().skip(written.steps).map(|step| Event { at: *at, kind: "release", body: json!({"phase": step}) });
    let events: Vec<Event> = ended.into_iter().chain(steps).collect();
    let _ = data.append_events(uuid, events);
}

/// What is there of the events of the last incarnation's end.
#[derive(Default)]
struct Written {
    ended: bool,
    /// How many steps of the release, which come in order.
    steps: usize,
}

impl Written {
    fn read(mut events: Reader, history: &History) -> Self {
        let mut written = Self::default();
        while let Ok(Some(item)) = events.next_item() {
            let Item::Record(entry) = item else { continue };
            if entry.id.epoch != history.epoch {
                continue;
            }
            match entry.kind.as_str() {
                "ended" => written.ended = true,
                "release" => {
                    let event: Value = serde_json::from_str(&entry.line).unwrap_or_default();
                    let step = STEPS.iter().position(|step| event["phase"] == *step);
                    written.steps = written.steps.max(step.map_or(0, |step| step + 1));
                }
                _ => {}
            }
        }
        written
    }
}
