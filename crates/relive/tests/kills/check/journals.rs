//! Each journal by itself, and beside the others.

use std::collections::{HashMap, HashSet};

use relive_core::Uuid;
use relive_journal::History;
use serde_json::Value;

use super::{Journal, Record, Remains};
use crate::oracle::Known;

pub(super) fn parse(uuid: Uuid, bytes: Vec<u8>, history: History) -> Journal {
    let mut records = Vec::new();
    let mut offset = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line)).into_owned();
        let fields = serde_json::from_str(&text).unwrap_or(Value::Null);
        records.push(Record { offset, line: text, fields });
        offset += line.len();
    }
    let is_own = |record: &Record| record.kind() == "spawned" && record.fields["uuid"] == uuid.to_string();
    // `opened` comes before `spawned`.
    let own = records.iter().position(is_own).map_or(0, |place| place.saturating_sub(1));
    Journal { uuid, bytes, records, own, history }
}

/// Checks D and J: intent, then exactly one outcome; a doubt only where nothing could be found out.
pub(super) fn outcomes(journal: &Journal, known: &Known, wrong: &mut Vec<String>) {
    let uuid = journal.uuid;
    let mut open: HashMap<(u64, u64), &Record> = HashMap::new();
    let mut settled: HashMap<(u64, u64), u64> = HashMap::new();
    for record in &journal.records {
        let (seq, call) = (record.number("seq"), record.call());
        let is_retry = record.kind() == "resolved" && record.fields["outcome"] == "retry";
        match record.kind() {
            "call_started" => {
                let again = open.insert(call, record).is_some() || settled.contains_key(&call);
                if again {
                    wrong.push(format!("D: {uuid}: record {seq} intends call {call:?} again"));
                }
            }
            "call_ended" | "doubt" | "resolved" => {
                let intent = open.remove(&call);
                if record.kind() != "call_ended" && intent.is_none() {
                    wrong.push(format!("D: {uuid}: record {seq} is about call {call:?}, which is not open"));
                }
                let could_be_found_out = |intent: &Record| {
                    intent.fields["recovery"]["by"] != "doubt" && !super::sessions::is_lost(journal, intent, known)
                };
                if record.kind() == "doubt" && intent.is_some_and(could_be_found_out) {
                    wrong.push(format!("J: {uuid}: record {seq} doubts what could be found out"));
                }
                if !is_retry && settled.insert(call, seq).is_some() {
                    wrong.push(format!("D: {uuid}: call {call:?} has a second outcome in record {seq}"));
                }
            }
            _ => {}
        }
    }
    for (call, intent) in open {
        wrong.push(format!("D: {uuid}: call {call:?} of record {} has no outcome", intent.number("seq")));
    }
}

/// Check H.
pub(super) fn fork(journal: &Journal, remains: &Remains, wrong: &mut Vec<String>) {
    let uuid = journal.uuid;
    let Some(spawned) = journal.records.get(journal.own + 1) else { return };
    let origin = spawned.fields["origin_uuid"].as_str().and_then(|text| text.parse().ok());
    let Some(origin): Option<Uuid> = origin else {
        if journal.own != 0 {
            wrong.push(format!("H: {uuid} is no fork and begins with somebody else's past"));
        }
        return;
    };
    let Some(original) = remains.journals.get(&origin) else { return };
    let prefix = &journal.bytes[..journal.records[journal.own].offset];
    if !original.bytes.starts_with(prefix) {
        wrong.push(format!("H: the fork {uuid} does not begin with the bytes of {origin}"));
    }
}

/// Whether some process intended to spawn it.
pub(super) fn is_child(journal: &Journal, remains: &Remains) -> bool {
    let Some(spawned) = journal.records.get(journal.own + 1) else { return false };
    let parent = spawned.fields["parent_uuid"].as_str().and_then(|text| text.parse().ok());
    let Some(parent): Option<Uuid> = parent else { return false };
    let Some(parent) = remains.journals.get(&parent) else { return true };
    let child = journal.uuid.to_string();
    parent.records.iter().any(|record| record.fields["recovery"]["child"] == child)
}

/// What a parent was told of its child's end is how an incarnation of the child ended; and every child is there.
pub(super) fn waits(journal: &Journal, remains: &Remains, wrong: &mut Vec<String>) {
    let mut waits = HashSet::new();
    for record in &journal.records {
        if record.kind() == "call_started" && record.fields["name"] == "wait_agent" {
            waits.insert(record.call());
        }
        if record.kind() != "call_ended" {
            continue;
        }
        if record.fields["ok"] != true {
            let text = record.fields["result"].as_str().unwrap_or_default();
            if waits.contains(&record.call()) && !text.contains("collected") {
                wrong.push(format!("A: {} could not wait for its child: {text}", journal.uuid));
            }
            continue;
        }
        let Some(result) = record.fields["result"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok())
        else {
            continue;
        };
        let uuid = result["uuid"].as_str().and_then(|text| text.parse::<Uuid>().ok());
        let Some(child) = uuid.and_then(|uuid| remains.journals.get(&uuid)) else { continue };
        let Some(code) = result["code"].as_u64() else { continue };
        let ends = child.history.incarnations.iter().filter_map(|incarnation| incarnation.ended.as_ref());
        let told =
            |end: &relive_core::End| u64::from(end.exit_code()) == code && result["reason"] == *end.exit().reason;
        if !ends.map(|(_, end)| end).any(told) {
            wrong.push(format!("A: {} was told of an end of {} that never was: {result}", journal.uuid, child.uuid));
        }
    }
}

/// Check F.
pub(super) fn pids(remains: &Remains, wrong: &mut Vec<String>) {
    let mut owners: HashMap<u64, Uuid> = HashMap::new();
    let opened = remains.journals.values().flat_map(|journal| {
        let own = journal.records[journal.own..].iter().filter(|record| record.kind() == "opened");
        own.map(|record| (record.number("pid"), journal.uuid))
    });
    let buried = remains.collected.iter().flat_map(|(uuid, pids)| pids.iter().map(|pid| (*pid, *uuid)));
    for (pid, uuid) in opened.chain(buried) {
        if let Some(other) = owners.insert(pid, uuid) {
            wrong.push(format!("F: PID {pid} was given to {other} and to {uuid}"));
        }
    }
}
