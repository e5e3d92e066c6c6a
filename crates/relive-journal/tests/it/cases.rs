//! The behaviour cases that the journal decides.

use relive_core::{Pid, SuspendReason, Uuid};
use relive_journal::conversation::Message;
use relive_journal::data::{ForkError, ForkPoint, Known};
use relive_journal::payload::Text;
use relive_journal::record::{Body, Decision, OpenedBy, Outcome};
use relive_journal::recovery::Recovery;
use relive_journal::{Durability, Health, Next, ProcessMeta, WriteError, Writer};

use crate::support::{
    Fixture, append, approval, call_ended, call_started, collect_all, compacted, completed, doubt, end, files, input,
    lines, model_ended, model_started, moment, open_journal, opening, paused, put, put_after, remove, resolved,
    resumed, step, uuid, uuid_of,
};

/// Creates a process with this many completed steps, which then ended.
fn dead_after(fixture: &Fixture, steps: u32, checkpoint: bool) -> Uuid {
    let mut writer = fixture.spawn();
    for number in 1..=steps {
        step(&mut writer, &format!("step {number}"), "done");
        if checkpoint && number % 5 == 0 && number + 3 < steps {
            writer.checkpoint().unwrap();
        }
    }
    end(fixture, writer)
}

#[test]
fn case_17_an_interrupted_process_keeps_its_last_step_and_its_old_pid_names_the_new_one() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    for _ in 0..5 {
        step(&mut writer, "text", "result");
    }
    writer.checkpoint().unwrap();
    step(&mut writer, "text", "result");
    step(&mut writer, "text", "result");
    append(&mut writer, vec![model_started()]);
    drop(writer);

    let fixture = fixture.reopen();
    let live = fixture.data.live().unwrap();
    assert_eq!((live.len(), live[0].uuid, &live[0].health), (1, uuid, &Health::Good));
    let plan = live[0].history.plan();
    assert_eq!((plan.last_step, plan.next), (7, Next::Ask { step: 8, again: true }));

    let old = live[0].history.incarnation().unwrap().pid;
    let writer = fixture.resume(uuid);
    let pids: Vec<Pid> = writer.history().incarnations.iter().map(|incarnation| incarnation.pid).collect();
    let place = pids.iter().position(|pid| *pid == old).unwrap();
    assert!(writer.history().incarnations[place].ended.is_none(), "interrupted, not ended");
    assert!(pids[place + 1] > old, "{pids:?}");
}

#[test]
fn case_17_a_process_that_fails_at_every_resume_is_a_crash_loop_until_it_makes_progress() {
    let fixture = Fixture::new();
    let writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    drop(writer);
    let recover = || {
        let opening = opening(fixture.data.next_pid().unwrap(), OpenedBy::Recovery);
        open_journal(&fixture.data, uuid, &opening).unwrap()
    };
    let looping: Vec<bool> = (0..3).map(|_| recover().history().plan().crash_loop).collect();
    assert_eq!(looping, [false, false, true]);
    let mut writer = recover();
    append(&mut writer, vec![model_started()]);
    assert!(!writer.history().plan().crash_loop);
}

#[test]
fn case_18_a_dead_process_of_ten_steps_resumes_at_step_11_with_and_without_a_checkpoint() {
    let fixture = Fixture::new();
    for checkpoint in [false, true] {
        let uuid = dead_after(&fixture, 10, checkpoint);
        assert_eq!(fixture.data.directory(uuid).checkpoint().exists(), checkpoint);
        let mut writer = fixture.resume(uuid);
        let plan = writer.history().plan();
        assert_eq!((plan.last_step, plan.next), (10, Next::Ask { step: 11, again: false }));
        step(&mut writer, "text", "result");
        assert_eq!(writer.history().completed_step, 11);
    }
}

#[test]
fn case_19_a_fork_leaves_its_origin_unchanged_and_continues_after_its_step() {
    let fixture = Fixture::new();
    for checkpoint in [false, true] {
        let original = dead_after(&fixture, 50, checkpoint);
        let before = files(fixture.data.directory(original).path());
        let fork = fixture.fork(original, ForkPoint::Step(30)).unwrap();
        assert_eq!(fork.history().plan().next, Next::Ask { step: 31, again: false });
        let origin = fork.history().identity.as_ref().unwrap().spawned.origin.unwrap();
        assert_eq!((origin.uuid, origin.step), (original, 30));
        assert_ne!(uuid_of(&fork), original);
        assert!(files(fixture.data.directory(original).path()) == before, "the original's files are as they were");
        assert_eq!(fixture.resume(original).history().completed_step, 50, "it can still be resumed");
    }
}

#[test]
fn case_20_a_fork_past_the_end_is_refused_with_the_last_step() {
    let fixture = Fixture::new();
    let original = dead_after(&fixture, 50, true);
    let refused = fixture.fork(original, ForkPoint::Step(999)).unwrap_err();
    assert!(matches!(refused, ForkError::NoSuchStep { asked: 999, last: 50, .. }), "{refused}");
    assert!(refused.to_string().contains("50"));
    assert_eq!(fixture.data.uuids().unwrap(), [original], "nothing of the fork remains");
}

#[test]
fn case_21_unknown_and_collected_processes_are_distinguished_even_after_a_restart() {
    let fixture = Fixture::new();
    let here = dead_after(&fixture, 1, false);
    assert!(matches!(fixture.data.known(here).unwrap(), Known::Here(_)));
    assert_eq!(collect_all(&fixture), [here]);
    let mut fixture = fixture;
    for _ in 0..2 {
        assert!(matches!(fixture.data.known(here).unwrap(), Known::Collected(tombstone) if tombstone.uuid == here));
        assert_eq!(fixture.data.known(uuid()).unwrap(), Known::Never);
        let refused = open_journal(&fixture.data, here, &opening(Pid(99), OpenedBy::Resume)).unwrap_err();
        assert!(matches!(refused, WriteError::Absent { .. }), "{refused}");
        fixture = fixture.reopen();
    }
}

#[test]
fn case_21_a_completed_agent_continues_with_an_input() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, vec![model_started()]);
    append(&mut writer, vec![model_ended("that is all", 0)]);
    assert_eq!(writer.history().plan().next, Next::Input);
    let mut writer = fixture.resume(end(&fixture, writer));
    append(&mut writer, vec![input("more", "go on")]);
    assert_eq!(writer.history().plan().next, Next::Ask { step: 2, again: false });
}

#[test]
fn case_21_only_the_canonical_spelling_of_a_uuid_names_a_directory() {
    for name in ["../../etc/passwd", "0198f3c1/../x", "", "steps", "0198f3c1-0000-7000-8000-00000000000/"] {
        assert!(Uuid::try_parse(name).is_err(), "{name}");
    }
    let fixture = Fixture::new();
    let known = dead_after(&fixture, 1, false);
    // Other spellings of a UUID, and other names, are not directories of a process.
    let steps = fixture.temp.path().join("steps");
    for name in [known.to_string().to_uppercase(), known.simple().to_string(), known.urn().to_string(), "x".to_owned()]
    {
        relive_journal::Disk::new().mkdir(&steps.join(name)).unwrap();
    }
    assert_eq!(fixture.data.uuids().unwrap(), [known]);
}

#[test]
fn case_22_pids_stay_above_every_used_one_even_if_the_highest_was_collected() {
    let fixture = Fixture::new();
    let mut highest = Pid(0);
    for _ in 0..20 {
        highest = fixture.spawn().history().incarnation().unwrap().pid.max(highest);
    }
    let last = end(&fixture, fixture.spawn());
    highest = highest.max(fixture.history(last).incarnation().unwrap().pid);
    assert_eq!(collect_all(&fixture), [last]);
    let fixture = fixture.reopen();
    assert!(fixture.data.next_pid().unwrap() > highest);
    let mut fixture = fixture;
    for damaged in [None, Some(b"".as_slice()), Some(b"12"), Some(b"rubbish\n")] {
        let pids = fixture.temp.path().join("pids");
        damaged.map_or_else(|| remove(&pids), |bytes| put(&pids, bytes));
        fixture = fixture.reopen();
        assert!(fixture.data.next_pid().unwrap() > highest, "{damaged:?}");
    }
}

#[test]
fn case_23_the_prompt_and_tools_of_an_agent_survive_a_new_writer_and_a_fork() {
    let fixture = Fixture::new();
    let original = dead_after(&fixture, 1, false);
    let told = std::fs::read(fixture.data.directory(original).process_meta()).unwrap();
    drop(fixture.resume(original));
    let fork = fixture.fork(original, ForkPoint::End).unwrap();
    for uuid in [original, uuid_of(&fork)] {
        let directory = fixture.data.directory(uuid);
        assert_eq!(std::fs::read(directory.process_meta()).unwrap(), told);
        assert_eq!(ProcessMeta::read(&directory).unwrap().system_prompt, "You are a test.");
    }
    // And they are never reconstructed.
    let directory = fixture.data.directory(original);
    put(&directory.process_meta(), &told[..told.len() - 1]);
    assert_eq!(ProcessMeta::read(&directory).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn case_26_a_torn_line_is_repaired_and_a_flipped_byte_is_reported() {
    let fixture = Fixture::new();
    let uuid = dead_after(&fixture, 3, true);
    let path = fixture.data.directory(uuid).steps();
    put_after(&path, b"{\"v\":1,\"seq\":99,\"ep");
    assert!(matches!(fixture.health(uuid), Health::Torn { bytes: 19, .. }));
    let writer = fixture.resume(uuid);
    assert_eq!((writer.history().completed_step, writer.history().repairs[0].cut_bytes), (3, 19));
    drop(writer);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = lines(&bytes)[..8].concat().len() + 30;
    bytes[middle] ^= 4;
    put(&path, &bytes);
    let refused = open_journal(&fixture.data, uuid, &opening(Pid(99), OpenedBy::Resume)).unwrap_err();
    assert!(refused.to_string().contains("line 9: its bytes do not match its checksum"), "{refused}");
    let refused = fixture.fork(uuid, ForkPoint::Step(3)).unwrap_err();
    assert!(matches!(refused, ForkError::Damaged { last: 1, .. }), "{refused}");
    assert_eq!(fixture.fork(uuid, ForkPoint::Step(1)).unwrap().history().completed_step, 1);
}

#[test]
fn case_27_repeated_misordered_or_older_records_are_never_replayed() {
    let fixture = Fixture::new();
    let uuid = dead_after(&fixture, 3, false);
    let path = fixture.data.directory(uuid).steps();
    let first = std::fs::read(&path).unwrap();
    let mut writer = fixture.resume(uuid);
    step(&mut writer, "four", "4");
    let expected = writer.history().clone();
    drop(writer);
    let both = std::fs::read(&path).unwrap();
    let (old, new) = (lines(&first), lines(&both)[lines(&first).len()..].to_vec());

    let twice: Vec<u8> = lines(&both).iter().flat_map(|line| [*line, *line]).flatten().copied().collect();
    let late_writer = [&first[..], new[0], old[5], new[1], &old[7..].concat(), &new[2..].concat()].concat();
    let again = [&both[..], &both[..]].concat();
    for bytes in [twice, late_writer, again] {
        put(&path, &bytes);
        let (found, health) = fixture.data.history(uuid).unwrap();
        assert_eq!(health, Health::Good);
        assert_eq!((found.seq, found.completed_step, found.spent), (expected.seq, 4, expected.spent));
        assert_eq!(fixture.said(uuid).len(), 9, "one message, and two for each of four steps");
    }
    let swapped = [&old[..4].concat()[..], old[5], old[4], &old[6..].concat()].concat();
    put(&path, &swapped);
    let (found, health) = fixture.data.history(uuid).unwrap();
    assert!(matches!(health, Health::Damaged(hole) if hole.line == 5), "a record that comes too early is a hole");
    assert_eq!(found.seq, 4);
}

#[test]
fn case_28_the_journal_grows_in_proportion_to_steps() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let mut sizes = Vec::new();
    for number in 1..=1000 {
        step(&mut writer, "some text", "some result");
        if number % 500 == 0 {
            writer.checkpoint().unwrap();
            sizes.push(writer.directory().steps().metadata().unwrap().len());
        }
    }
    let per_step = (sizes[1] - sizes[0]) / 500;
    assert!(per_step < 1000, "{per_step} bytes a step");
    assert!(sizes[1] < 2 * sizes[0] + 20_000, "{sizes:?}");
    let checkpoint = writer.directory().checkpoint().metadata().unwrap().len();
    assert!(checkpoint < sizes[1] / 4, "a checkpoint of {checkpoint} bytes holds places, not the conversation");
}

#[test]
fn case_28_a_large_result_and_u2028_are_read_back_unchanged() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let large: String = ('a'..='z').cycle().take(5 << 20).collect();
    step(&mut writer, "a\u{2028}b\u{2029}c\u{85}d\r\ne", &large);
    let uuid = uuid_of(&writer);
    drop(writer);
    let fixture = fixture.reopen();
    let writer = fixture.resume(uuid);
    let journal = std::fs::File::open(writer.directory().steps()).unwrap();
    let mut texts = Vec::new();
    for message in writer.history().conversation(&journal).unwrap() {
        match message {
            Message::Model { text, .. } => texts.extend(text),
            Message::Tool { result, .. } => texts.push(result),
            Message::User { .. } | Message::Summary { .. } => {}
        }
    }
    assert_eq!(texts[0], Text::Inline("a\u{2028}b\u{2029}c\u{85}d\r\ne".to_owned()));
    assert!(writer.blobs().text(&texts[1]).unwrap() == large);
    assert!(journal.metadata().unwrap().len() < 10_000);
}

#[test]
fn a_record_that_does_not_fit_is_refused_and_changes_nothing() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let check = |writer: &mut Writer, wrong: Vec<Body>| {
        let (before, bytes) = (writer.history().clone(), std::fs::read(writer.directory().steps()).unwrap());
        for body in wrong {
            let kind = body.kind();
            // A good record before it in the same batch does not count either.
            let refused = writer.append(moment(), vec![input("x", "y"), body], Durability::Synced).unwrap_err();
            assert!(matches!(refused, WriteError::Misplaced { .. }), "{kind}: {refused}");
            assert_eq!(*writer.history(), before, "{kind}");
        }
        assert!(std::fs::read(writer.directory().steps()).unwrap() == bytes);
    };
    let calls = || vec![call_started(0, Recovery::Join), call_ended(0, "x"), doubt(0), resolved(0, Outcome::Done)];
    let answers = || vec![model_ended("x", 0), crate::support::partial("x")];
    check(&mut writer, [calls(), answers(), vec![resumed(), approval(0, Decision::Asked)]].concat());
    append(&mut writer, vec![model_started()]);
    check(&mut writer, [calls(), vec![compacted(1, "x")]].concat());
    append(&mut writer, vec![model_ended("x", 1)]);
    check(&mut writer, [answers(), vec![model_started(), doubt(0), call_ended(1, "x"), compacted(1, "x")]].concat());
    append(&mut writer, vec![call_started(0, Recovery::Join)]);
    check(&mut writer, vec![call_started(0, Recovery::Join), approval(0, Decision::Asked), model_started()]);
    append(&mut writer, vec![call_ended(0, "x"), compacted(3, "x")]);
    check(&mut writer, [calls(), vec![compacted(99, "x"), compacted(2, "x")]].concat());
    append(&mut writer, vec![paused(SuspendReason::User), resumed(), completed()]);
    check(&mut writer, vec![completed(), model_started(), paused(SuspendReason::User)]);
}
