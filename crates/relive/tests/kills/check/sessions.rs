//! What commands and programs did to the world, and what is said of it.
//!
//! Every line of the world begins with the name of the session that wrote it: `call-SEQ-UUID` of a command, `EPOCH-UUID`
//! of a program.

use std::collections::{HashMap, HashSet};
use std::fs;

use super::{Journal, Record, Remains};
use crate::daemon::Places;
use crate::oracle::{Asked, Known, Trait};
use crate::programs::MESSAGES;
use crate::scripts;

/// The lines of the world, by session: what each wrote itself, not in the background.
type Lines = HashMap<String, String>;

/// Checks B and C on the lines; returns how many there are.
pub(super) fn lines(places: &Places, known: &Known, remains: &Remains, wrong: &mut Vec<String>) -> usize {
    let text = fs::read_to_string(&places.lines).unwrap_or_default();
    let (mut lines, mut texts, mut count) = (Lines::new(), HashSet::new(), 0);
    for line in text.lines() {
        let Some((session, text)) = line.split_once(' ') else {
            wrong.push(format!("C: the world has a line that is none: {line}"));
            continue;
        };
        count += 1;
        // The scripts never ask for the same text twice, so this is the same call in another session. A program that is
        // resumed after its end runs again: see below.
        let owner = session
            .split_once('-')
            .filter(|(number, _)| *number == "call")
            .map_or(session, |(_, rest)| rest.split_once('-').map_or(rest, |(_, uuid)| uuid));
        if !texts.insert((owner, text)) {
            wrong.push(format!("B: the shell line `{line}` happened twice"));
        }
        if !text.starts_with('b') {
            lines.insert(session.to_owned(), text.to_owned());
        }
    }
    for journal in remains.journals.values() {
        let asked = known.asked.get(&journal.uuid).cloned().unwrap_or_default();
        match asked.program {
            Some(code) => {
                program(journal, code, &asked, &lines, known, wrong);
                if asked.trait_of == Some(Trait::Listens) {
                    heard(journal, &text, wrong);
                }
            }
            None => commands(journal, &asked, &lines, known, wrong),
        }
    }
    let intended = intended(remains);
    for session in lines.keys().filter(|session| !intended.contains(*session)) {
        let is_here = remains.journals.keys().any(|uuid| session.ends_with(&uuid.to_string()));
        if is_here {
            wrong.push(format!("C: the session {session} has no intent"));
        }
    }
    count
}

/// The sessions that journals allow.
fn intended(remains: &Remains) -> HashSet<String> {
    let mut names = HashSet::new();
    for journal in remains.journals.values() {
        for record in &journal.records[journal.own..] {
            if record.kind() == "call_started" && record.fields["name"] == "shell" {
                names.insert(format!("call-{}-{}", record.number("seq"), journal.uuid));
            } else if record.kind() == "opened" {
                names.insert(format!("{}-{}", record.number("epoch"), journal.uuid));
            }
        }
    }
    names
}

/// Each result of a command is what its session did.
fn commands(journal: &Journal, asked: &Asked, lines: &Lines, known: &Known, wrong: &mut Vec<String>) {
    let mut intents: HashMap<(u64, u64), String> = HashMap::new();
    for record in &journal.records[journal.own..] {
        if record.kind() == "call_started" && record.fields["name"] == "shell" {
            intents.insert(record.call(), format!("call-{}-{}", record.number("seq"), journal.uuid));
        }
        let Some(session) = intents.get(&record.call()).filter(|_| record.kind() == "call_ended") else { continue };
        let result = record.fields["result"].as_str().unwrap_or_default();
        let line = lines.get(session).map(String::as_str);
        let is_wrong = match told(record, result) {
            Told::Exited(code) => line.is_none_or(|line| {
                let output = format!("begun {line}\nover {line}\n");
                let rest = if code == 0 { String::new() } else { format!("exit code {code}") };
                let turn = line.trim_start_matches('q').parse::<u64>().ok();
                result != output + &rest || turn.map(|turn| turn % scripts::CODES) != Some(code)
            }),
            Told::Ended => !asked.signalled,
            Told::NeverRan => line.is_some() || !known.shims_lost.contains(session),
        };
        if is_wrong {
            wrong.push(format!("K: the session {session} wrote {line:?} and has the result {result:?}"));
        }
    }
}

/// What a result says.
enum Told {
    Exited(u64),
    Ended,
    NeverRan,
}

fn told(record: &Record, result: &str) -> Told {
    let last = result.lines().last().unwrap_or_default();
    if record.fields["ok"] == true {
        Told::Exited(0)
    } else if let Some(code) = last.strip_prefix("exit code ").and_then(|code| code.parse().ok()) {
        Told::Exited(code)
    } else if last.starts_with("killed: ") || last.starts_with("ended by signal ") {
        Told::Ended
    } else {
        Told::NeverRan
    }
}

/// Each run of a program has one end, and its line where it came so far.
fn program(journal: &Journal, code: u64, asked: &Asked, lines: &Lines, known: &Known, wrong: &mut Vec<String>) {
    let mut sessions = Vec::new();
    for record in &journal.records {
        if record.kind() == "opened" {
            sessions.push(format!("{}-{}", record.number("epoch"), journal.uuid));
        }
        if record.kind() != "ended" {
            continue;
        }
        let written = sessions.iter().filter(|session| lines.contains_key(*session)).count();
        let lost = sessions.iter().any(|session| known.shims_lost.contains(session))
            || asked.trait_of == Some(Trait::StopsItsShim);
        let (status, cause) = (&record.fields["status"], &record.fields["cause"]);
        let is_right = match status["kind"].as_str() {
            Some("exited") => status["code"] == code && written == 1,
            Some("killed") if cause["why"] == "shim_lost" => lost && written <= 1,
            Some("killed") => asked.signalled && written <= 1,
            Some("startup_failed") => lost && written == 0,
            _ => false,
        };
        if !is_right {
            wrong.push(format!(
                "K: the program {} exits with {code}, wrote {written} lines in {sessions:?} and ended as {status} by \
                 {cause}",
                journal.uuid
            ));
        }
        sessions.clear();
    }
    if !sessions.is_empty() {
        wrong.push(format!("K: the program {} has no end", journal.uuid));
    }
}

/// A program that listens and has exited has read the first messages of its run, in order and each once.
fn heard(journal: &Journal, text: &str, wrong: &mut Vec<String>) {
    let (mut sessions, mut sent) = (Vec::new(), Vec::new());
    for record in &journal.records {
        match record.kind() {
            "opened" => sessions.push(format!("{}-{} b ", record.number("epoch"), journal.uuid)),
            "input" => sent.push(record.fields["text"].as_str().unwrap_or_default()),
            "ended" => {
                let told =
                    |line: &'_ str| sessions.iter().find_map(|session| line.strip_prefix(session)).map(str::to_owned);
                let read: Vec<String> = text.lines().filter_map(told).collect();
                let exited = record.fields["status"]["kind"] == "exited";
                if !sent.starts_with(&read.iter().map(String::as_str).collect::<Vec<_>>())
                    || exited && read.len() != MESSAGES
                {
                    wrong.push(format!("K: the program {} was sent {sent:?} and read {read:?}", journal.uuid));
                }
                (sessions, sent) = (Vec::new(), Vec::new());
            }
            _ => {}
        }
    }
}

/// A call whose session's shim was killed: nobody knows what became of it.
pub(super) fn is_lost(journal: &Journal, intent: &Record, known: &Known) -> bool {
    let session = format!("call-{}-{}", intent.number("seq"), journal.uuid);
    // What a fork has from its original was checked there.
    let is_own = journal.records[journal.own..].iter().any(|record| std::ptr::eq(record, intent));
    intent.fields["recovery"]["by"] == "join" && (!is_own || known.shims_lost.contains(&session))
}
