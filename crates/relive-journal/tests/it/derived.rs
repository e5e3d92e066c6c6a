//! All files except journals, metadata and blobs can be deleted or wrong without changing any answer.

use relive_core::{Pid, Signal, SuspendReason, Uuid};
use relive_journal::data::{Ancestor, ForkPoint, Known};
use relive_journal::recovery::Recovery;
use relive_journal::{Health, History, Io, Plan, ProcInfo};

use crate::support::{
    Fixture, append, call_started, collect_all, copy_tree, end, files, input, kept, model_ended, model_started, now,
    open, paused, put, remove, signal_mask, signalled, step, temp, uuid, uuid_of, varied, with_request,
};

/// Every answer about a data directory.
#[derive(Debug, PartialEq)]
struct Answers {
    live: Vec<(Uuid, History, Health)>,
    each: Vec<(Uuid, Known, Option<Details>)>,
}

#[derive(Debug, PartialEq)]
struct Details {
    history: History,
    health: Health,
    plan: Plan,
    info: Option<ProcInfo>,
    said: Vec<String>,
    lineage: Vec<Ancestor>,
}

fn answers(fixture: &Fixture, uuids: &[Uuid]) -> Answers {
    let live = fixture.data.live().unwrap().into_iter();
    let details = |uuid: Uuid| {
        let (history, health) = fixture.data.history(uuid).ok()?;
        let info = ProcInfo::read(&fixture.data.directory(uuid)).unwrap();
        let lineage = fixture.data.lineage(uuid).unwrap();
        Some(Details { plan: history.plan(), said: fixture.said(uuid), history, health, info, lineage })
    };
    // The path differs between data directories, and is not part of the answer.
    let known = |uuid| match fixture.data.known(uuid).unwrap() {
        Known::Here(_) => Known::Here(relive_journal::ProcessDirectory::new(uuid.to_string().into())),
        other @ (Known::Collected(_) | Known::Never) => other,
    };
    Answers {
        live: live.map(|live| (live.uuid, live.history, live.health)).collect(),
        each: uuids.iter().map(|uuid| (*uuid, known(*uuid), details(*uuid))).collect(),
    }
}

/// Creates processes in every condition.
fn populate(fixture: &Fixture) -> Vec<Uuid> {
    let gone = end(fixture, fixture.spawn());
    collect_all(fixture);
    let varied = varied(fixture);
    fixture.data.retire(varied, &fixture.history(varied)).unwrap();
    let mut uuids = vec![gone, varied, uuid()];
    for leave in 0..5 {
        let mut writer = fixture.spawn();
        step(&mut writer, "one", "1");
        writer.checkpoint().unwrap();
        step(&mut writer, "two", "2");
        writer.checkpoint().unwrap();
        writer.append_event(now(), 1, "open", &serde_json::json!({})).unwrap();
        uuids.push(uuid_of(&writer));
        match leave {
            0 => append(&mut writer, vec![paused(SuspendReason::User)]),
            1 => append(&mut writer, vec![model_started(), model_ended("three", 2), call_started(0, Recovery::Join)]),
            2 => append(&mut writer, vec![model_started()]),
            3 => {
                let told = vec![signal_mask(&[Signal::Pause], &[Signal::Int]), kept(Signal::Pause)];
                append(&mut writer, told);
                writer.checkpoint().unwrap();
                append(&mut writer, vec![with_request(signalled(Signal::Term), "term")]);
            }
            _ => drop(end(fixture, writer)),
        }
    }
    let fork = fixture.fork(varied, ForkPoint::Step(2)).unwrap();
    let second = fixture.fork(uuid_of(&fork), ForkPoint::End).unwrap();
    for writer in [fork, second] {
        ProcInfo::of(writer.history()).unwrap().write(fixture.disk(), writer.directory()).unwrap();
        uuids.push(uuid_of(&writer));
    }
    uuids
}

fn remove_all_that_is_derived(fixture: &Fixture) {
    for (path, _) in files(&fixture.temp.path().join("steps")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_blob = path.parent().unwrap().ends_with("blobs");
        if !is_blob && !["steps.jsonl", "process-meta.json"].contains(&name) {
            remove(&path);
        }
    }
}

#[test]
fn deleting_derived_files_changes_no_answer() {
    let fixture = Fixture::new();
    let uuids = populate(&fixture);
    let used = fixture.data.next_pid().unwrap();
    let before = answers(&fixture, &uuids);
    remove_all_that_is_derived(&fixture);
    assert_eq!(answers(&fixture, &uuids), before, "without restart");
    for parts in [&["live"][..], &["pids"], &["clock", "reserve", "lock"], &["live", "pids", "clock", "tmp"]] {
        for part in parts {
            remove(&fixture.temp.path().join(part));
        }
        remove_all_that_is_derived(&fixture);
        let copy = temp();
        copy_tree(fixture.temp.path(), copy.path());
        let data = open(copy.path(), Io::default());
        let restarted = Fixture { temp: copy, data };
        assert_eq!(answers(&restarted, &uuids), before, "without {parts:?}");
        let next = restarted.data.next_pid().unwrap();
        // The last one was assigned to no process: only the file knew it.
        assert!(next >= used, "{next} without {parts:?}, and {used} was the next");
    }
}

#[test]
fn pids_reserved_together_cost_no_more_syncs_and_are_used_once() {
    let fixture = Fixture::new();
    fixture.data.reserve_pids(100).unwrap();
    let before = fixture.data.io().disk.counts();
    let given: Vec<Pid> = (0..100).map(|_| fixture.data.next_pid().unwrap()).collect();
    assert_eq!(fixture.data.io().disk.counts(), before);
    assert!(given.is_sorted_by(|one, next| one < next));
    fixture.data.reserve_pids(1).unwrap();
    assert!(fixture.data.next_pid().unwrap() > given[99]);
}

#[test]
fn a_directory_without_a_journal_does_not_prevent_a_start() {
    let fixture = Fixture::new();
    let known = uuid_of(&fixture.spawn());
    let empty = fixture.data.directory(uuid());
    relive_journal::Disk::new().mkdir(empty.path()).unwrap();
    put(&fixture.data.directory(known).path().join("notes.txt"), b"mine");
    remove(&fixture.temp.path().join("live"));
    remove(&fixture.temp.path().join("pids"));
    let fixture = fixture.reopen();
    assert_eq!(fixture.data.live().unwrap()[0].uuid, known);
    assert!(fixture.data.next_pid().unwrap() > Pid(1));
}

#[test]
fn a_checkpoint_that_does_not_match_is_ignored() {
    let fixture = Fixture::new();
    let mut other = fixture.spawn();
    step(&mut other, "of another", "process");
    other.checkpoint().unwrap();
    let foreign = std::fs::read(other.directory().checkpoint()).unwrap();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    let directory = writer.directory().clone();
    step(&mut writer, "one", "1");
    writer.checkpoint().unwrap();
    let first = std::fs::read(directory.checkpoint()).unwrap();
    step(&mut writer, "two", "2");
    writer.checkpoint().unwrap();
    let second = std::fs::read(directory.checkpoint()).unwrap();
    assert_eq!(std::fs::read(directory.previous_checkpoint()).unwrap(), first);
    step(&mut writer, "three", "3");
    let expected = (writer.history().clone(), Health::Good);
    let mut ahead_writer = writer;
    let journal = std::fs::read(directory.steps()).unwrap();
    step(&mut ahead_writer, "four", "4");
    ahead_writer.checkpoint().unwrap();
    let ahead = std::fs::read(directory.checkpoint()).unwrap();
    drop(ahead_writer);
    put(&directory.steps(), &journal);

    let flipped = |at: usize| {
        let mut bytes = second.clone();
        bytes[at] ^= 1;
        bytes
    };
    // A changed past in a checkpoint, instead of that in the journal.
    let told = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap().replacen("\"tokens_out\":", "\"tokens_out\":1000", 1);
        crate::open_and_repair::reseal(text.as_bytes())
    };
    let of_version = |version: &str| {
        let text = String::from_utf8(second.clone()).unwrap();
        assert!(text.starts_with("{\"v\":6,"), "{text}");
        told(text.replacen("\"v\":6", version, 1).as_bytes())
    };
    let (older, newer) = (of_version("\"v\":5"), of_version("\"v\":7"));
    let bad = [ahead, foreign, Vec::new(), second[..second.len() / 2].to_vec(), second[..second.len() - 1].to_vec()];
    let bad = bad.into_iter().chain((0..second.len()).step_by(97).map(flipped)).chain([older, newer, b"{}".to_vec()]);
    for bytes in bad {
        for previous in [&first, &bytes] {
            put(&directory.checkpoint(), &bytes);
            put(&directory.previous_checkpoint(), previous);
            assert_eq!(fixture.data.history(uuid).unwrap(), expected, "{}", String::from_utf8_lossy(&bytes));
        }
    }
    // Matching ones are used: their account of the past is trusted.
    for (current, previous) in [(told(&second), first.clone()), (b"rubbish".to_vec(), told(&first))] {
        put(&directory.checkpoint(), &current);
        put(&directory.previous_checkpoint(), &previous);
        assert!(fixture.history(uuid).spent.tokens_out > 1000, "a checkpoint is read where there is one");
    }
}

#[test]
fn a_stale_or_wrong_snapshot_is_derived_again() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let directory = writer.directory().clone();
    let write = |history: &History| ProcInfo::of(history).unwrap().write(fixture.disk(), &directory).unwrap();
    write(writer.history());
    step(&mut writer, "one", "1");
    assert_eq!(ProcInfo::read(&directory).unwrap(), ProcInfo::of(writer.history()));
    write(writer.history());
    let snapshot = std::fs::read(directory.proc_info()).unwrap();
    for bytes in [&snapshot[..snapshot.len() - 2], b"", b"{}\n"] {
        put(&directory.proc_info(), bytes);
        assert_eq!(ProcInfo::read(&directory).unwrap(), ProcInfo::of(writer.history()));
    }
}

#[test]
fn a_snapshot_of_an_incomplete_last_record_is_derived_again() {
    let fixture = Fixture::new();
    for text in ["short".to_owned(), "long ".repeat(3_000)] {
        let mut writer = fixture.spawn();
        let directory = writer.directory().clone();
        step(&mut writer, "one", "1");
        let before = ProcInfo::of(writer.history());
        append(&mut writer, vec![input("more", &text)]);
        ProcInfo::of(writer.history()).unwrap().write(fixture.disk(), &directory).unwrap();
        let begins = before.as_ref().unwrap().journal_bytes();
        drop(writer);
        assert_eq!(
            ProcInfo::read(&directory).unwrap().unwrap().journal_bytes(),
            std::fs::metadata(directory.steps()).unwrap().len()
        );
        // As after a power cut that kept the last page of the record, and not the one before.
        let mut journal = std::fs::read(directory.steps()).unwrap();
        let begins = usize::try_from(begins).unwrap();
        journal[begins + 20..begins + 60].fill(0);
        put(&directory.steps(), &journal);
        assert_eq!(ProcInfo::read(&directory).unwrap(), before);
    }
}
