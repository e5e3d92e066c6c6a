//! The verdict on a round, from what the clients were told, what is shown, and what is on the disk.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use relive_client::BlockingClient;
use relive_core::Uuid;
use serde_json::Value;

use crate::daemon::Places;
use crate::explain::{Known, explain};
use crate::freezer::is_frozen;
use crate::ledger::{Book, Entry, Kind};
use crate::observe::{Shown, all_records, items, own_records};
use crate::verb::Seen;

/// How long a program may take to stand still, or to go on.
const FREEZES_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Adds every contradiction to the book.
pub(crate) fn all(places: &Places, book: &mut Book, last: &Shown) {
    let mut wrong = Vec::new();
    let mut journals: BTreeMap<Uuid, Vec<Value>> = BTreeMap::new();
    for (uuid, _) in &book.processes {
        let all = all_records(places, *uuid);
        let records = own_records(&all, *uuid);
        let entries: Vec<&Entry> = book.entries.iter().filter(|entry| entry.uuid == *uuid).collect();
        let known = Known {
            entries: &entries,
            items: &items(records, &book.texts),
            last: last.get(uuid).unwrap_or(&Seen::Absent),
        };
        if let Err(text) = explain(&known) {
            wrong.push(format!("{uuid}: no order of its verbs explains it:{text}"));
        }
        wrong.extend(stops(records).into_iter().map(|text| format!("{uuid}: {text}")));
        journals.insert(*uuid, all);
    }
    for uuid in last.keys().filter(|uuid| !journals.contains_key(uuid)) {
        wrong.push(format!("{uuid}: nobody asked for it"));
    }
    effects(places, book, &journals, &mut wrong);
    sessions(places, &mut wrong);
    plans(places, &mut wrong);
    book.contradictions.append(&mut wrong);
}

/// After an accepted signal or a pause nothing new is begun; a process is begun once, and never after its end by the
/// daemon.
fn stops(records: &[Value]) -> Vec<String> {
    let (mut wrong, mut stopped, mut ended) = (Vec::new(), None, false);
    for record in records {
        let kind = record["kind"].as_str().unwrap_or_default();
        match kind {
            "signalled" if record["pending"] != true => stopped = Some("signalled"),
            "paused" => stopped = Some("paused"),
            "opened" | "resumed" => {
                if ended && record["by"] == "recovery" {
                    wrong.push(format!("the daemon itself began it again after its end: {record}"));
                }
                (stopped, ended) = (None, false);
            }
            "ended" => ended = true,
            "call_started" | "model_started" => begins(record, stopped, &mut wrong),
            "flow" if record["event"]["event"] == "starting" => begins(record, stopped, &mut wrong),
            _ => {}
        }
    }
    let begun = records.iter().filter(|record| record["kind"] == "spawned").count();
    if begun > 1 {
        wrong.push(format!("it was begun {begun} times"));
    }
    wrong
}

fn begins(record: &Value, stopped: Option<&str>, wrong: &mut Vec<String>) {
    if let Some(by) = stopped {
        wrong.push(format!("after `{by}` something was begun: {record}"));
    }
}

/// A program stands still if and only if it is shown as suspended. What follows from a verb may take a moment.
pub(crate) fn freezers(client: &BlockingClient, book: &mut Book) {
    let programs = book.processes.iter().filter(|(_, kind)| *kind == Kind::Program);
    for uuid in programs.map(|(uuid, _)| *uuid) {
        let (begun, id) = (Instant::now(), uuid.to_string());
        let differs = || {
            let info = client.call(|client| client.process(&id)).ok()?;
            let frozen = is_frozen(u64::try_from(info.session.as_ref()?.host_pid?).ok()?);
            let seen = Seen::of(&info);
            (seen != Seen::Dead && frozen != (seen == Seen::Suspended)).then_some((seen, frozen))
        };
        while let Some((seen, frozen)) = differs() {
            if begun.elapsed() > FREEZES_WITHIN {
                book.contradictions.push(format!("{uuid}: a program is shown as {seen:?}, and is frozen: {frozen}"));
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Each effect once, and only those that were allowed where somebody was asked.
fn effects(places: &Places, book: &Book, journals: &BTreeMap<Uuid, Vec<Value>>, wrong: &mut Vec<String>) {
    let world = fs::read_to_string(&places.world).unwrap_or_default();
    let mut seen = HashSet::new();
    for line in world.lines() {
        let mut words = line.split(' ');
        let (Some(uuid), Some(_key), Some(text)) = (words.next(), words.next(), words.next()) else {
            wrong.push(format!("the effects have a line that is none: {line}"));
            continue;
        };
        if !seen.insert((uuid, text)) {
            wrong.push(format!("{uuid}: the effect {text} happened twice"));
        }
        let Ok(uuid) = uuid.parse::<Uuid>() else { continue };
        let asks = book.processes.iter().any(|(other, kind)| *other == uuid && *kind == Kind::Asker);
        let step = text.strip_prefix('e').and_then(|step| step.parse::<u64>().ok());
        // A fork may have the answer from its original.
        let answers = journals.get(&uuid).into_iter().flatten().filter(|record| {
            record["kind"] == "approval" && record["decision"] != "asked" && record["step"].as_u64() == step
        });
        let answer = answers.map(|record| &record["decision"]).next_back();
        if asks && answer.is_none_or(|answer| answer != "allowed") {
            wrong.push(format!("{uuid}: the effect {text} happened, and the answer was {answer:?}"));
        }
    }
}

/// Nothing that was to happen to files is left half done.
fn plans(places: &Places, wrong: &mut Vec<String>) {
    let listed = |path: &std::path::Path| {
        let entries = fs::read_dir(path).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
    };
    let states = listed(&places.data.join("snapshots/workspaces"));
    for state in states.iter().filter(|state| state.join("plan").exists()) {
        wrong.push(format!("a plan was not settled: {}", state.display()));
    }
    let mut own = places.data.as_os_str().to_owned();
    own.push("-workspaces");
    let copies = listed(own.as_ref());
    for path in copies.iter().chain([&places.work]).flat_map(|directory| listed(directory)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Those of the file tools have no number.
        if name.strip_prefix(".relive-").is_some_and(|rest| rest.contains('-')) {
            wrong.push(format!("a restore left something behind: {}", path.display()));
        }
    }
}

/// No session runs its program twice.
fn sessions(places: &Places, wrong: &mut Vec<String>) {
    let text = fs::read_to_string(&places.lines).unwrap_or_default();
    let mut seen = HashSet::new();
    for session in text.lines().filter(|session| !seen.insert(*session)) {
        wrong.push(format!("the program of session {session} was begun twice"));
    }
}
