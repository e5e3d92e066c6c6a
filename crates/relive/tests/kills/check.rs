//! The checks, from the files alone, against what the oracle remembers.
//!
//! A every acknowledged record is on the disk, same bytes · B each effect at most once in the world · C every effect has
//! an intent · D each intent has exactly one outcome · E no gaps, checksums good · F no PID twice · G derived files say
//! what the journal says · H forks begin with the bytes of their original · I a second daemon is refused (while the
//! run goes on) · J a doubt only where nothing can be found out · K every end of a program, and every result of a command, is
//! what its session did · L nothing is left behind (at the end of the run).

mod journals;
mod sessions;
mod world;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use relive_core::{Pid, Uuid};
use relive_journal::data::{Known as OnDisk, SpaceRules};
use relive_journal::{DataDirectory, Health, History, Io, ProcInfo};
use serde_json::Value;

use crate::daemon::Places;
use crate::oracle::{Asked, Known};

/// One record of a journal.
pub(crate) struct Record {
    /// Of its line in the file.
    offset: usize,
    line: String,
    fields: Value,
}

impl Record {
    fn kind(&self) -> &str {
        self.fields["kind"].as_str().unwrap_or_default()
    }

    fn number(&self, field: &str) -> u64 {
        self.fields[field].as_u64().unwrap_or(0)
    }

    /// The call it is about.
    fn call(&self) -> (u64, u64) {
        (self.number("step"), self.number("call"))
    }
}

/// One history.
pub(crate) struct Journal {
    uuid: Uuid,
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// Where its own records begin: those before are its original's.
    own: usize,
    history: History,
}

/// Everything that is left after a run.
pub(crate) struct Remains {
    journals: BTreeMap<Uuid, Journal>,
    collected: HashMap<Uuid, Vec<u64>>,
    /// The PIDs that daemons know besides those in the journals.
    noted: HashSet<(Pid, Uuid)>,
}

/// Checks everything; what is wrong is added to what is known. Returns what there was, for a person.
pub(crate) fn all(places: &Places, known: &mut Known) -> String {
    let mut wrong = Vec::new();
    // A shim that was killed before it greeted is told of.
    let of_lost_shim = |warning: &String| {
        let mut lost = known.shims_lost.iter().filter_map(|session| session.get(session.len().checked_sub(36)?..));
        let is_told = warning.contains("cannot be launched") || warning.contains("its shim was lost");
        is_told && lost.any(|uuid| warning.contains(uuid))
    };
    // One that has read all it wants.
    let of_message = |warning: &String| warning.contains("did not read message");
    for warning in places.warnings().into_iter().filter(|warning| !of_lost_shim(warning) && !of_message(warning)) {
        wrong.push(format!("the daemon warned: {warning}"));
    }
    let remains = match read(places, known, &mut wrong) {
        Ok(remains) => remains,
        Err(error) => {
            known.violations.push(format!("the files cannot be read: {error}"));
            return String::new();
        }
    };
    for (uuid, asked) in &known.asked {
        acknowledged(*uuid, asked, &remains, &mut wrong);
    }
    for journal in remains.journals.values() {
        journals::outcomes(journal, known, &mut wrong);
        journals::fork(journal, &remains, &mut wrong);
        journals::waits(journal, &remains, &mut wrong);
        if !known.asked.contains_key(&journal.uuid) && !journals::is_child(journal, &remains) {
            wrong.push(format!("nobody asked for {}", journal.uuid));
        }
    }
    journals::pids(&remains, &mut wrong);
    let effects = world::effects(places, &remains, &mut wrong);
    let lines = sessions::lines(places, known, &remains, &mut wrong);
    world::counts(places, &remains, &mut wrong);
    let (mut settled, mut doubts, mut repairs) = (0, 0, 0);
    for record in remains.journals.values().flat_map(|journal| &journal.records[journal.own..]) {
        settled += usize::from(record.fields["settled"].is_string());
        doubts += usize::from(record.kind() == "doubt");
        repairs += usize::from(record.kind() == "repair");
    }
    known.violations.append(&mut wrong);
    let given = |asked: &Asked| asked.answers.values().filter(|acknowledged| **acknowledged).count();
    let answers: usize = known.asked.values().map(given).sum();
    let seen: usize = known.asked.values().map(|asked| asked.seen).sum();
    format!(
        "{} histories and {} collected, {effects} effects, {lines} lines, {answers} answers, {seen} ends seen, {settled} settled by looking, {doubts} in doubt, {} \
         shims lost, {repairs} repairs",
        remains.journals.len(),
        remains.collected.len(),
        known.shims_lost.len()
    )
}

/// Reads what is on the disk, and compares it with what is there without any derived file (E, G).
fn read(places: &Places, known: &Known, wrong: &mut Vec<String>) -> std::io::Result<Remains> {
    let open =
        |path: &Path| DataDirectory::open(path, Io::default(), SpaceRules::default()).map_err(std::io::Error::other);
    let bare = places.root.join("bare");
    for entry in fs::read_dir(places.data.join("steps"))? {
        let from = entry?.path();
        if !from.is_dir() {
            wrong.push(format!("G: {} is left in the directory of histories", from.display()));
            continue;
        }
        let to = bare.join("steps").join(from.file_name().unwrap_or_default());
        fs::create_dir_all(&to)?;
        fs::copy(from.join("steps.jsonl"), to.join("steps.jsonl"))?;
    }
    for entry in fs::read_dir(places.data.join("live"))? {
        wrong.push(format!("G: {:?} has ended and is still marked as live", entry?.file_name()));
    }
    let (data, bare) = (open(&places.data)?, open(&bare)?);
    let mut remains = Remains {
        journals: BTreeMap::new(),
        collected: HashMap::new(),
        noted: data.noted_pids().into_iter().collect(),
    };
    for uuid in data.uuids()? {
        let (history, health) = bare.history(uuid)?;
        if health != Health::Good {
            wrong.push(format!("E: {uuid}: {health:?}"));
        }
        if data.history(uuid)?.0 != history {
            wrong.push(format!("G: {uuid}: its checkpoint says something else than its journal"));
        }
        let snapshot = ProcInfo::read(&data.directory(uuid))?;
        if snapshot != ProcInfo::of(&history) {
            wrong.push(format!("G: {uuid}: proc-info.json says something else than its journal"));
        }
        let bytes = fs::read(data.directory(uuid).steps())?;
        remains.journals.insert(uuid, journals::parse(uuid, bytes, history));
    }
    for uuid in known.asked.keys().filter(|uuid| !remains.journals.contains_key(uuid)) {
        if let OnDisk::Collected(tombstone) = data.known(*uuid)? {
            remains.collected.insert(*uuid, tombstone.pids.iter().map(|pid| u64::from(pid.0)).collect());
        }
    }
    Ok(remains)
}

/// Checks A and B for answers to questions, and for ends that were seen.
fn questions(uuid: Uuid, asked: &Asked, journal: &Journal, wrong: &mut Vec<String>) {
    let own = &journal.records[journal.own..];
    let answered = |words: &str| {
        own.iter().filter(|record| record.kind() == "question" && record.fields["answer"] == *words).count()
    };
    for (words, was_acknowledged) in &asked.answers {
        match (answered(words), was_acknowledged) {
            (1, _) | (0, false) => {}
            (0, true) => wrong.push(format!("A: {uuid}: the answer {words} was acknowledged and is gone")),
            (times, _) => wrong.push(format!("B: {uuid}: the answer {words} was recorded {times} times")),
        }
    }
    let seen = own.iter().filter(|record| record.kind() == "acked").count();
    if seen < asked.seen {
        wrong.push(format!("A: {uuid}: its end was seen {} times, and {seen} are recorded", asked.seen));
    }
    // An answer binds: the model is told the words that were recorded for this call, and no others.
    for answer in own.iter().filter(|record| record.kind() == "question" && record.fields["answer"].is_string()) {
        let told = own.iter().find(|record| record.kind() == "call_ended" && record.call() == answer.call());
        let words = answer.fields["answer"].as_str().unwrap_or_default();
        if told.is_some_and(|told| !told.fields["result"].to_string().contains(words)) {
            wrong.push(format!(
                "B: {uuid}: the answer was {words}, and the model was told {:?}",
                told.map(|it| &it.line)
            ));
        }
    }
}

/// Check A: what was acknowledged is there.
fn acknowledged(uuid: Uuid, asked: &Asked, remains: &Remains, wrong: &mut Vec<String>) {
    let Some(journal) = remains.journals.get(&uuid) else {
        if !asked.pids.is_empty() && !remains.collected.contains_key(&uuid) {
            wrong.push(format!("A: {uuid} was acknowledged and is gone"));
        }
        return;
    };
    let on_disk: HashMap<(u64, u64), &str> = journal
        .records
        .iter()
        .map(|record| ((record.number("epoch"), record.number("seq")), record.line.as_str()))
        .collect();
    for (id, line) in &asked.records {
        match on_disk.get(id) {
            Some(found) if found == line => {}
            Some(_) => wrong.push(format!("A: {uuid}: record {id:?} has changed since it was shown")),
            None => wrong.push(format!("A: {uuid}: record {id:?} was shown and is gone: {line}")),
        }
    }
    let heard = |id: &str| {
        journal.records.iter().filter(|record| record.kind() == "input" && record.fields["id"] == *id).count()
    };
    for (id, was_acknowledged) in &asked.messages {
        match (heard(id), was_acknowledged) {
            (1, _) | (0, false) => {}
            (0, true) => wrong.push(format!("A: {uuid}: message {id} was acknowledged and is gone")),
            (times, _) => wrong.push(format!("B: {uuid}: message {id} was recorded {times} times")),
        }
    }
    questions(uuid, asked, journal, wrong);
    let origin = journal.history.identity.as_ref().and_then(|identity| identity.spawned.origin);
    if let Some(asked) = asked.from_step
        && origin.is_none_or(|origin| origin.step != asked)
    {
        wrong.push(format!("H: {uuid} was to be forked at step {asked} and is a fork of {origin:?}"));
    }
    let incarnations = &journal.history.incarnations;
    for pid in &asked.pids {
        // A process whose request is repeated may be suspended by then: it has a PID in each daemon, and is not opened for
        // it. The daemons after that know this PID from `pids.log`.
        let is_later = |record: &Record| record.kind() == "opened" && record.number("pid") > u64::from(pid.0);
        let next = journal.records[journal.own..]
            .iter()
            .position(is_later)
            .map_or(journal.records.len(), |next| journal.own + next);
        // A signal that is blocked can be recorded after the pause, by an incarnation that stays suspended.
        let begins_or_ends_a_pause = |record: &&Record| ["paused", "resumed", "ended"].contains(&record.kind());
        let latest = journal.records[..next].iter().rev().find(begins_or_ends_a_pause);
        let was_suspended = latest.is_some_and(|record| record.kind() == "paused");
        let is_known = was_suspended && remains.noted.contains(&(*pid, uuid));
        if !is_known && !incarnations.iter().any(|incarnation| incarnation.pid == *pid) {
            wrong.push(format!("A: {uuid}: PID {pid} was acknowledged and never had the journal"));
        }
    }
    for (pid, status) in &asked.ends {
        let found = incarnations.iter().find(|incarnation| incarnation.pid == *pid);
        let recorded = found.and_then(|incarnation| incarnation.ended.as_ref()).map(|(_, end)| &end.status);
        if recorded != Some(status) {
            let answered = format!("the end of PID {pid} was answered as {status:?}");
            wrong.push(format!("A: {uuid}: {answered} and recorded as {recorded:?}"));
        }
    }
}
