//! What the agents did to the world.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

use relive_core::Uuid;

use super::{Journal, Record, Remains};
use crate::daemon::Places;

/// Checks B and C on the file outside; returns how many effects there were.
pub(super) fn effects(places: &Places, remains: &Remains, wrong: &mut Vec<String>) -> usize {
    let world = fs::read_to_string(&places.world).unwrap_or_default();
    let (mut keys, mut texts) = (HashSet::new(), HashSet::new());
    for line in world.lines() {
        let mut parts = line.splitn(3, ' ');
        let (Some(uuid), Some(key), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
            wrong.push(format!("C: the world has a line that is none: {line}"));
            continue;
        };
        if !keys.insert(key) {
            wrong.push(format!("B: the effect {key} ({text}) happened twice"));
        }
        // The scripts never ask for the same text twice, so this is the same call under another key.
        if !texts.insert((uuid, text)) {
            wrong.push(format!("B: {uuid}: the effect `{text}` happened twice"));
        }
        let Some(journal) = uuid.parse::<Uuid>().ok().and_then(|uuid| remains.journals.get(&uuid)) else { continue };
        let seq = key.strip_prefix(uuid).and_then(|rest| rest.strip_prefix(':')?.parse::<u64>().ok());
        let intended = |record: &Record| {
            record.kind() == "call_started"
                && Some(record.number("seq")) == seq
                && record.fields["name"] == "append_outside"
        };
        if !journal.records[journal.own..].iter().any(intended) {
            wrong.push(format!("C: the effect {key} ({text}) has no intent"));
        }
        if text == "after done" && !was_told_to_go_on(journal, seq) {
            wrong.push(format!("B: {uuid} went on after it had said that it was done"));
        }
    }
    results_without_effect(remains, &keys, wrong);
    keys.len()
}

/// Whether somebody said something to it between its `done` and this record.
fn was_told_to_go_on(journal: &Journal, seq: Option<u64>) -> bool {
    let before = journal.records.iter().take_while(|record| Some(record.number("seq")) != seq);
    let last = before.filter(|record| record.kind() == "input" || record.fields["done"] == true).last();
    last.is_some_and(|record| record.kind() == "input")
}

/// A result that says that it happened, and it did not.
fn results_without_effect(remains: &Remains, keys: &HashSet<&str>, wrong: &mut Vec<String>) {
    for journal in remains.journals.values() {
        let mut intents = HashMap::new();
        for record in &journal.records[journal.own..] {
            if record.kind() == "call_started" && record.fields["name"] == "append_outside" {
                intents.insert(record.call(), format!("{}:{}", journal.uuid, record.number("seq")));
            } else if record.kind() == "call_ended"
                && record.fields["ok"] == true
                && let Some(key) = intents.get(&record.call())
                && !keys.contains(key.as_str())
            {
                wrong.push(format!("A: the effect {key} has a result and is not in the world"));
            }
        }
    }
}

/// Files that were edited step by step: as many edits as there are results, none of them twice or lost.
pub(super) fn counts(places: &Places, remains: &Remains, wrong: &mut Vec<String>) {
    for journal in remains.journals.values() {
        let mut edits = 0;
        let mut editing = HashSet::new();
        for record in &journal.records[journal.own..] {
            if record.kind() == "call_started" && record.fields["name"] == "edit" {
                editing.insert(record.call());
            } else if record.kind() == "call_ended" && record.fields["ok"] == true && editing.contains(&record.call()) {
                edits += 1;
            }
        }
        if edits == 0 {
            continue;
        }
        let text = fs::read_to_string(directory(places, journal).join(format!("count-{}.txt", journal.uuid)));
        let text = text.unwrap_or_default();
        if text != format!("n={} ", edits + 1) {
            wrong.push(format!("B: {}: {edits} edits have a result and the file has `{text}`", journal.uuid));
        }
    }
}

/// Where it worked: a fork may have had a copy of the files.
fn directory(places: &Places, journal: &Journal) -> PathBuf {
    let spawned = journal.records[journal.own..].iter().find(|record| record.kind() == "spawned");
    spawned.and_then(|record| record.fields["cwd"].as_str()).map_or_else(|| places.work.clone(), PathBuf::from)
}
