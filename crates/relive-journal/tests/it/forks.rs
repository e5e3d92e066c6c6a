//! A fork is a prefix of its origin, and does not affect the origin.

use relive_core::Uuid;
use relive_journal::conversation::TOLD_PENDING;
use relive_journal::data::{ForkError, ForkPoint, ForkRequest};
use relive_journal::history::Phase;
use relive_journal::record::OpenedBy;
use relive_journal::recovery::Recovery;
use relive_journal::{Durability, Health, History, Next, Writer};

use crate::support::{
    Fixture, append, call_ended, call_started, collect_all, completed, end, files, fork_request, input, lines,
    max_steps, model_ended, model_started, moment, opening, put, put_after, remove, step, uuid, uuid_of, varied,
};

/// Forks at a point, compares the fork with a journal that ends there, and returns the fork.
fn check(fixture: &Fixture, source: Uuid, point: ForkPoint) -> Uuid {
    let directory = fixture.data.directory(source);
    let before = files(directory.path());
    let fork = fixture.fork(source, point).unwrap();
    let uuid = uuid_of(&fork);
    let left = fork.history().clone();
    drop(fork);
    assert!(files(directory.path()) == before, "{point:?}: the original's files are as they were");

    let (journal, forked) = (&before[&directory.steps()], std::fs::read(fixture.data.directory(uuid).steps()).unwrap());
    let shared = forked.len() - lines(&forked).iter().rev().take(2).map(|line| line.len()).sum::<usize>();
    assert!(forked[..shared] == journal[..shared], "{point:?}: the prefix is the original's, byte for byte");

    let here = fixture.fork_free_copy(source, &journal[..shared]);
    let prefix = fixture.history(here);
    let (mine, its) = (fixture.history(uuid), &prefix);
    assert_eq!(mine, left, "{point:?}");
    assert_eq!((mine.completed_step, &mine.phase), (its.completed_step, &Phase::Boundary), "{point:?}");
    assert_eq!(mine.answered, its.answered, "{point:?}");
    assert_eq!(fixture.said(uuid), fixture.said(here), "{point:?}");
    assert!(mine.spent.tokens_in == 0 && mine.incarnations.len() == 1 && mine.ended().is_none(), "a life of its own");
    let blobs = |uuid: Uuid| fixture.data.directory(uuid).path().join("blobs");
    if blobs(uuid).exists() {
        for (path, bytes) in files(&blobs(uuid)) {
            assert_eq!(before[&blobs(source).join(path.file_name().unwrap())], bytes);
        }
    }
    uuid
}

impl Fixture {
    /// Creates a process with these bytes as its journal, and no other files.
    fn fork_free_copy(&self, source: Uuid, journal: &[u8]) -> Uuid {
        let uuid = crate::support::uuid();
        let directory = self.data.directory(uuid);
        crate::support::copy_tree(self.data.directory(source).path(), directory.path());
        for derived in [directory.checkpoint(), directory.previous_checkpoint(), directory.proc_info()] {
            remove(&derived);
        }
        put(&directory.steps(), journal);
        uuid
    }
}

#[test]
fn a_fork_at_any_step_equals_its_origin_up_to_that_step() {
    let fixture = Fixture::new();
    let uuid = varied(&fixture);
    let last = fixture.history(uuid).completed_step;
    for point in (0..=last).map(ForkPoint::Step).chain([ForkPoint::End]) {
        check(&fixture, uuid, point);
    }
    // Also a fork of a fork, from before and after its own fork point.
    let fork = check(&fixture, uuid, ForkPoint::Step(3));
    let mut writer = fixture.resume(fork);
    step(&mut writer, "another way", "x");
    drop(writer);
    for point in [ForkPoint::Step(2), ForkPoint::Step(4), ForkPoint::End] {
        let second = check(&fixture, fork, point);
        let lineage: Vec<Uuid> = fixture.data.lineage(second).unwrap().iter().map(|one| one.uuid).collect();
        assert_eq!(lineage, [fork, uuid]);
    }
}

#[test]
fn a_fork_of_a_living_process_excludes_its_open_step() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let source = uuid_of(&writer);
    step(&mut writer, "one", &"large ".repeat(12_000));
    writer.checkpoint().unwrap();
    check(&fixture, source, ForkPoint::End);
    append(&mut writer, vec![input("said", "between steps")]);
    append(&mut writer, vec![model_started()]);
    writer.checkpoint().unwrap();
    check(&fixture, source, ForkPoint::End);
    append(&mut writer, vec![model_ended("two", 2), call_started(0, Recovery::Join)]);
    let fork = check(&fixture, source, ForkPoint::End);
    assert_eq!(fixture.history(fork).plan().next, Next::Ask { step: 2, again: false });
    assert_eq!(fixture.said(fork).last().unwrap(), "user said");
    assert_eq!(
        fixture.said(source).last().unwrap(),
        &format!("tool 2 1 false {}", &TOLD_PENDING[..TOLD_PENDING.len()])
    );
    append(&mut writer, vec![call_ended(0, "x"), call_ended(1, "y")]);
    assert_eq!(fixture.history(check(&fixture, source, ForkPoint::End)).completed_step, 2);
}

#[test]
fn a_lost_model_call_of_the_origin_is_not_charged_to_the_fork() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let source = uuid_of(&writer);
    append(&mut writer, vec![model_started()]);
    drop(writer);
    let mut writer = fixture.resume(source);
    append(&mut writer, vec![input("said", "after the crash"), model_started()]);
    append(&mut writer, vec![model_ended("one", 1)]);
    assert_eq!(writer.history().spent.tokens_in, 110, "the original pays for the call it lost");
    let mut fork = fixture.fork(source, ForkPoint::End).unwrap();
    assert_eq!(fork.history().plan().next, Next::Ask { step: 1, again: false });
    append(&mut fork, vec![model_started(), model_ended("one", 0)]);
    assert_eq!((fork.history().spent.tokens_in, fork.history().spent.estimated), (10, false));
    assert_eq!(fixture.said(uuid_of(&fork)), ["user first", "user said", "model 1 0"]);
}

#[test]
fn a_fork_before_the_damage_works_and_one_after_it_reports_the_line() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    for _ in 0..4 {
        step(&mut writer, "text", "result");
    }
    let source = end(&fixture, writer);
    let path = fixture.data.directory(source).steps();
    let good = std::fs::read(&path).unwrap();
    let newer = |text: &str, instead: &str| {
        let bytes = String::from_utf8(good.clone()).unwrap();
        let split: Vec<&str> = bytes.split_inclusive('\n').collect();
        let changed = split[12].replacen(text, instead, 1);
        crate::open_and_repair::reseal(
            [&split[..12].concat(), changed.as_str(), &split[13..].concat()].concat().as_bytes(),
        )
    };
    let mut flipped = good.clone();
    flipped[lines(&good)[..12].concat().len() + 40] ^= 1;
    let versions = [
        flipped,
        newer("\"v\":1", "\"v\":2"),
        newer("\"kind\":\"", "\"kind\":\"un"),
        newer("\"text\":", "\"text\":7,\"x\":"),
    ];
    for bytes in versions {
        put(&path, &bytes);
        let refused = fixture.fork(source, ForkPoint::End).unwrap_err();
        assert!(
            matches!(&refused, ForkError::Damaged { hole, .. } | ForkError::ReadOnly { hole, .. } if hole.line == 13),
            "{refused}"
        );
        for last in 0..=2 {
            assert_eq!(fixture.fork(source, ForkPoint::Step(last)).unwrap().history().completed_step, last);
        }
        assert!(fixture.fork(source, ForkPoint::Step(3)).is_err());
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
    put(&path, &good[..good.len() - 5]);
    assert!(matches!(fixture.health(source), Health::Torn { .. }));
    assert_eq!(fixture.fork(source, ForkPoint::End).unwrap().history().completed_step, 4, "torn is no hindrance");
}

#[test]
fn a_fork_outlives_its_origin_and_keeps_its_lineage() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", &"large ".repeat(12_000));
    let source = end(&fixture, writer);
    let mut fork = fixture.fork(source, ForkPoint::Step(1)).unwrap();
    assert_eq!(collect_all(&fixture), [source]);
    step(&mut fork, "two", "2");
    let uuid = uuid_of(&fork);
    drop(fork);
    let fixture = fixture.reopen();
    let lineage = fixture.data.lineage(uuid).unwrap();
    assert_eq!((lineage[0].uuid, lineage[0].step, lineage[0].gone), (source, 1, true));
    let fork = fixture.resume(uuid);
    let blob = files(&fork.directory().path().join("blobs"));
    assert_eq!(blob.len(), 1);
    assert_eq!(fixture.said(uuid).len(), 5);
    drop(fork);
    let refused = fixture.fork(source, ForkPoint::End).unwrap_err();
    assert!(matches!(refused, ForkError::Collected { .. }), "{refused}");
    put_after(&fixture.data.directory(uuid).steps(), b"torn");
    check(&fixture, uuid, ForkPoint::Step(2));
    assert!(matches!(fixture.health(uuid), Health::Torn { bytes: 4, .. }), "a fork repairs nothing");
    let mut writer = fixture.resume(uuid);
    append(&mut writer, vec![completed()]);
}

#[test]
fn a_fork_and_its_first_records_are_one_write() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    append(&mut writer, vec![model_started(), model_ended("two", 0)]);
    let source = uuid_of(&writer);
    drop(writer);
    let request = |hash: &str| {
        let opening = opening(fixture.data.next_pid().unwrap(), OpenedBy::Spawn);
        ForkRequest { request: Some(hash.to_owned()), ..fork_request(uuid(), source, ForkPoint::End, opening) }
    };
    let count = |fork: &dyn Fn() -> Writer| {
        let before = fixture.disk().counts();
        let fork = fork();
        let counts = fixture.disk().counts().since(before);
        (fork, (counts.writes, counts.syncs))
    };
    let (_, plain) = count(&|| fixture.data.fork(request("a")).unwrap());
    let decide = |history: &History| {
        assert_eq!(history.identity.as_ref().unwrap().spawned.request.as_deref(), Some("b"));
        assert_eq!((history.plan().next, history.incarnations.len()), (Next::Input, 1), "the fork, as it starts");
        Ok::<_, ForkError>(vec![max_steps(history.completed_step + 5), input("more", "more")])
    };
    let (fork, with_records) = count(&|| fixture.data.fork_with(request("b"), decide).unwrap());
    assert_eq!(with_records, plain, "no write and no sync more than without");
    assert_eq!((fork.history().limits.max_steps, fork.history().completed_step), (Some(7), 2));
    assert_eq!(fixture.said(uuid_of(&fork)).last().unwrap(), "user more");
    assert!(!fork.has_unsynced());
}

#[test]
fn a_refused_fork_leaves_nothing() {
    let fixture = Fixture::new();
    let source = uuid_of(&fixture.spawn());
    let opening = opening(fixture.data.next_pid().unwrap(), OpenedBy::Spawn);
    let before = files(fixture.temp.path());
    let refuse = |_: &History| Err(ForkError::NoSuchStep { source_uuid: source, asked: 1, last: 0 });
    fixture.data.fork_with(fork_request(uuid(), source, ForkPoint::End, opening), refuse).unwrap_err();
    assert!(files(fixture.temp.path()) == before);
}

#[test]
fn a_fork_whose_origin_is_collected_during_the_copy_is_refused() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    let source = end(&fixture, writer);
    let fork = uuid();
    let opening = opening(fixture.data.next_pid().unwrap(), OpenedBy::Spawn);
    let collect = |_: &History| {
        assert_eq!(collect_all(&fixture), [source]);
        Ok::<_, ForkError>(Vec::new())
    };
    let refused = fixture.data.fork_with(fork_request(fork, source, ForkPoint::End, opening), collect).unwrap_err();
    assert!(matches!(refused, ForkError::Collected { source_uuid } if source_uuid == source), "{refused}");
    assert!(!fixture.data.directory(fork).path().exists(), "no fork without what its original was told");
}

#[test]
fn a_fork_of_a_journal_in_use_contains_only_synced_records() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let source = uuid_of(&writer);
    step(&mut writer, "one", "1");
    append(&mut writer, vec![input("said", "between steps")]);
    let within = writer.synced_end();
    for body in [model_started(), model_ended("two", 0), input("later", "unsynced")] {
        writer.append(moment(), vec![body], Durability::Written).unwrap();
    }
    writer.checkpoint().unwrap();
    assert_eq!((writer.synced_end(), writer.history().completed_step), (within, 2));
    let fork = |point, within| {
        let opening = opening(fixture.data.next_pid().unwrap(), OpenedBy::Spawn);
        let before = fixture.disk().counts();
        let request = ForkRequest { within, ..fork_request(uuid(), source, point, opening) };
        (fixture.data.fork(request), fixture.disk().counts().since(before).syncs)
    };
    let (end, syncs) = fork(ForkPoint::End, Some(within));
    let end = end.unwrap();
    assert_eq!(end.history().completed_step, 1);
    assert_eq!(fixture.said(uuid_of(&end)).last().unwrap(), "user said");
    let forked = std::fs::read(end.directory().steps()).unwrap();
    let journal = std::fs::read(writer.directory().steps()).unwrap();
    assert_eq!(lines(&forked).len(), lines(&journal[..usize::try_from(within).unwrap()]).len() + 2);
    assert_eq!(fork(ForkPoint::Step(1), Some(within)).0.unwrap().history().completed_step, 1);
    assert_eq!(fork(ForkPoint::Step(0), Some(within)).0.unwrap().history().completed_step, 0);
    let refused = fork(ForkPoint::Step(2), Some(within)).0.unwrap_err();
    assert!(matches!(refused, ForkError::NoSuchStep { asked: 2, last: 1, .. }), "{refused}");
    let (whole, more_syncs) = fork(ForkPoint::Step(2), None);
    assert_eq!((whole.unwrap().history().completed_step, more_syncs), (2, syncs + 1), "the original is synced first");
    // A limit inside a record ends before that record.
    let (inside, _) = fork(ForkPoint::End, Some(within - 1));
    assert_eq!(fixture.said(uuid_of(&inside.unwrap())).last().unwrap(), "tool 1 0 true 1");
}
