//! What a journal says of the files of its process: `snapshot` and `rewound`.

use relive_core::{Moment, SuspendReason, Timestamp};
use relive_journal::data::{ForkPoint, ForkRequest, ForkWorkspace};
use relive_journal::files::Activity::{AtRest, Running};
use relive_journal::files::{NoUndo, StepFiles};
use relive_journal::record::{Body, FilesId, FilesVerb, Grade, OpenedBy, OwnWorkspace, Rewound, Snapshot};
use relive_journal::recovery::Recovery;
use relive_journal::{Hash, JournalState, ProcInfo, WriteError};

use crate::additions::{journal, spawn, uuid};
use crate::support::{
    Fixture, append, call_ended, call_started, end, fork_request, input, lines, model_ended, model_started, opening,
    paused, resumed,
};

pub(crate) fn id(name: &str) -> FilesId {
    FilesId { tree: Hash::of(name.as_bytes()), extras: None, grade: Grade::Exact }
}

fn snapshot(after: u32, name: &str, base: Option<&str>) -> Body {
    Body::Snapshot(Box::new(Snapshot {
        base: base.map(|base| id(base).tree),
        changed: u64::from(base.is_some()),
        added: 3,
        removed: 1,
        ..Snapshot::new(after, id(name))
    }))
}

fn rewound(verb: FilesVerb, to_step: u32, name: &str, done: bool) -> Body {
    let (into, req) = (None, Some(format!("rewind:{to_step}")));
    Body::Rewound(Box::new(Rewound {
        left_paths: Vec::new(),
        verb,
        done,
        to_step: Some(to_step),
        after: None,
        files: id(name),
        into,
        merged: None,
        changed: 2,
        left: 0,
        untold: done,
        undo: false,
        req,
    }))
}

/// A step with a call that changes files; the snapshot stands in the next one.
fn changing_step(number: u32) -> Vec<Body> {
    let calls =
        vec![model_ended("change", 1), call_started(0, Recovery::Doubt), call_ended(0, "done"), model_started()];
    if number == 1 { [vec![model_started()], calls].concat() } else { calls }
}

/// A process with three steps that changed files, which was put back to the first.
pub(crate) fn make(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    append(&mut writer, vec![snapshot(0, "base", None)]);
    append(&mut writer, changing_step(1));
    append(&mut writer, vec![snapshot(1, "one", Some("base"))]);
    append(&mut writer, changing_step(2));
    writer.checkpoint().unwrap();
    let Body::Snapshot(mut two) = snapshot(2, "two", Some("one")) else { unreachable!() };
    two.files.extras = Some(Hash::of(b"extras"));
    two.files.grade = Grade::Partial;
    (two.skipped, two.foreign, two.foreign_count) = (4, vec!["a file".to_owned()], 1);
    append(&mut writer, vec![Body::Snapshot(two)]);
    append(&mut writer, changing_step(3));
    append(&mut writer, vec![rewound(FilesVerb::Rewind, 1, "one", false), rewound(FilesVerb::Rewind, 1, "one", true)]);
}

pub(crate) fn check(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!((history.files.first, history.files.last), (Some(id("base")), Some(id("one"))));
    assert_eq!((history.files.unfinished, history.files.untold), (None, Some(1)));
    assert!(history.request("rewind:1").is_some());
    let files = fixture.data.file_history(uuid()).unwrap();
    assert_eq!((files.after(0, AtRest), files.after(1, AtRest)), (Some(id("base")), Some(id("one"))));
    assert_eq!(files.after(2, AtRest).map(|files| files.grade), Some(Grade::Partial));
    assert_eq!(files.after(3, AtRest), None, "nobody looked after the third step");
    assert_eq!(files.step(1, AtRest), Some(StepFiles { first: 1, from: id("base"), to: id("one") }));
    for line in lines(&journal(fixture)) {
        let line = std::str::from_utf8(line).unwrap();
        let is_about_files = line.contains("\"kind\":\"snapshot\"") || line.contains("\"kind\":\"rewound\"");
        assert_eq!(line.contains(",\"skip\":true,\"up\":"), is_about_files, "{line}");
    }
}

/// A process beside others, and a merge of its work.
pub(crate) fn make_shared(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    append(&mut writer, vec![snapshot(0, "base", None)]);
    append(&mut writer, changing_step(1));
    let Body::Snapshot(mut one) = snapshot(1, "one", Some("base")) else { unreachable!() };
    one.taken = Some(Timestamp::from_second(1_763_000_000).unwrap());
    one.since = Some(id("others"));
    append(&mut writer, vec![Body::Snapshot(one)]);
    let Body::Rewound(mut merge) = rewound(FilesVerb::Merge, 1, "one", true) else { unreachable!() };
    (merge.to_step, merge.into, merge.merged) = (None, Some("/there".to_owned()), Some(id("merged")));
    append(&mut writer, vec![Body::Rewound(merge)]);
}

pub(crate) fn check_shared(fixture: &Fixture) {
    let files = fixture.data.file_history(uuid()).unwrap();
    assert_eq!(files.named, ["base", "one", "others", "one", "merged"].map(id), "what is named is not collected");
    let last = files.snapshots().last().unwrap();
    assert_eq!((last.taken, last.since), (Timestamp::from_second(1_763_000_000).ok(), Some(id("others"))));
    assert_eq!(files.merges.iter().map(|merge| merge.merged).collect::<Vec<_>>(), [Some(id("merged"))]);
    assert_eq!(fixture.history(uuid()).files.merged, Some(id("one")));
}

#[test]
fn a_line_that_cannot_be_read_is_reported_because_it_may_name_snapshots() {
    let fixture = Fixture::new();
    make(&fixture);
    let path = fixture.data.directory(uuid()).steps();
    let whole = journal(&fixture);
    let all = lines(&whole);
    let unread = |bytes: &[u8]| {
        crate::support::put(&path, bytes);
        fixture.data.file_history(uuid()).unwrap().unread
    };
    assert_eq!(unread(&whole), None);
    // A write that is under way.
    assert_eq!(unread(&[&*whole, b"{\"v\":1"].concat()), None);
    let at = all.iter().position(|line| std::str::from_utf8(line).unwrap().contains("\"kind\":\"snapshot\"")).unwrap();
    let number = Some(at as u64 + 1);
    let mut damaged = whole.clone();
    damaged[all[..at].concat().len() + 20] ^= 1;
    assert_eq!(unread(&damaged), number);
    assert_eq!(unread(&[all[..at].concat(), all[at + 1..].concat()].concat()), number, "it is missing");
    assert_eq!(unread(&[&*whole, b"rubbish\n"].concat()), Some(all.len() as u64 + 1));
}

#[test]
fn a_fork_with_files_of_its_own_knows_them_and_not_those_of_its_original() {
    let fixture = Fixture::new();
    make(&fixture);
    let fork = fork_request(
        relive_core::Uuid::max(),
        uuid(),
        ForkPoint::Step(1),
        opening(fixture.data.next_pid().unwrap(), OpenedBy::Spawn),
    );
    let workspace = Some(ForkWorkspace { cwd: "/own".to_owned(), own: OwnWorkspace { from: "/".to_owned() } });
    let fork = ForkRequest { workspace, ..fork };
    let writer = fixture
        .data
        .fork_with(fork, |_| Ok::<_, relive_journal::data::ForkError>(vec![snapshot(1, "one", None)]))
        .unwrap();
    let spawned = &writer.history().identity.as_ref().unwrap().spawned;
    assert_eq!((spawned.cwd.as_str(), spawned.workspace.as_ref().unwrap().from.as_str()), ("/own", "/"));
    assert_eq!((writer.history().files.first, writer.history().files.last), (Some(id("one")), Some(id("one"))));
    let files = fixture.data.file_history(relive_core::Uuid::max()).unwrap();
    assert_eq!(files.states.iter().filter(|state| state.is_of_origin).count(), 1, "the base is copied");
    assert_eq!(files.after(1, AtRest), Some(id("one")));
}

#[test]
fn a_process_that_has_ended_can_be_put_back_and_stays_ended() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    append(&mut writer, vec![snapshot(0, "base", None)]);
    append(&mut writer, changing_step(1));
    append(&mut writer, vec![snapshot(1, "one", Some("base"))]);
    let refused = fixture.data.annotate(uuid(), now(), vec![rewound(FilesVerb::Rewind, 0, "base", true)]);
    assert!(matches!(refused, Err(WriteError::Busy { .. })), "{refused:?}");
    end(&fixture, writer);
    let before = fixture.history(uuid());
    let history = fixture.data.annotate(uuid(), now(), vec![rewound(FilesVerb::Rewind, 0, "base", true)]).unwrap();
    assert_eq!(history, fixture.history(uuid()));
    assert_eq!((history.ended(), history.epoch), (before.ended(), before.epoch));
    assert_eq!(history.files.last, Some(id("base")));
    let info = ProcInfo::read(&fixture.data.directory(uuid())).unwrap().unwrap();
    assert_eq!(
        (info.state, info.journal_bytes()),
        (JournalState::Dead, history.files.last.map_or(0, |_| fixture_len(&fixture)))
    );
    let said = fixture.data.annotate(uuid(), now(), vec![input("x", "x")]);
    assert!(matches!(said, Err(WriteError::Misplaced { .. })), "it hears nothing: {said:?}");
    // It is resumed as if nothing had been added.
    fixture.resume(uuid());
}

fn fixture_len(fixture: &Fixture) -> u64 {
    journal(fixture).len() as u64
}

fn now() -> Moment {
    Moment { at: Timestamp::from_millisecond(1_700_000_100_000).unwrap(), up_ms: 100_000 }
}

#[test]
fn steps_without_a_change_have_the_files_of_the_step_before_or_after() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    // Two steps that only read, then a base, then a change.
    let reading =
        || vec![model_ended("read", 1), call_started(0, Recovery::Rerun), call_ended(0, "text"), model_started()];
    append(&mut writer, [vec![model_started()], reading(), reading()].concat());
    append(&mut writer, vec![snapshot(2, "base", None)]);
    append(&mut writer, changing_step(3));
    append(&mut writer, vec![snapshot(3, "three", Some("base"))]);
    append(&mut writer, reading());
    let files = fixture.data.file_history(uuid()).unwrap();
    let after: Vec<_> = (0..=4).map(|step| files.after(step, AtRest)).collect();
    let (base, three) = (Some(id("base")), Some(id("three")));
    assert_eq!(after, [base, base, base, three, three]);
    assert_eq!(files.step(3, AtRest), Some(StepFiles { first: 3, from: id("base"), to: id("three") }));
    assert_eq!(files.step(2, AtRest), Some(StepFiles { first: 2, from: id("base"), to: id("base") }));
}

/// Nothing is recorded where nothing changed, so whether anybody looked is told from what followed.
#[test]
fn a_step_that_changed_nothing_is_told_from_one_that_nobody_looked_at() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    append(&mut writer, vec![snapshot(0, "base", None)]);
    append(&mut writer, changing_step(1));
    let known = |step, activity| fixture.data.file_history(uuid()).unwrap().after(step, activity);
    assert_eq!((known(1, AtRest), known(0, Running)), (None, Some(id("base"))), "it may still be looked at");
    append(&mut writer, changing_step(2));
    assert_eq!((known(1, Running), known(2, AtRest)), (Some(id("base")), None), "the second waited for the first look");
    append(&mut writer, vec![paused(SuspendReason::User)]);
    assert_eq!((known(2, Running), known(2, AtRest)), (None, Some(id("base"))), "the body has stopped");
    append(&mut writer, vec![resumed()]);
    append(&mut writer, changing_step(3));
    drop(writer);
    let writer = fixture.resume(uuid());
    assert_eq!(known(3, AtRest), None, "its writer was lost before anybody looked");
    drop(writer);
}

/// Puts files back after the steps so far.
fn put_back(after: u32, to_step: u32, name: &str) -> Body {
    let Body::Rewound(record) = rewound(FilesVerb::Rewind, to_step, name, true) else { unreachable!() };
    Body::Rewound(Box::new(Rewound { after: Some(after), req: None, ..*record }))
}

fn two_steps(fixture: &Fixture) -> relive_journal::Writer {
    let mut writer = spawn(fixture);
    append(&mut writer, vec![snapshot(0, "base", None)]);
    append(&mut writer, changing_step(1));
    append(&mut writer, vec![snapshot(1, "one", Some("base"))]);
    append(&mut writer, changing_step(2));
    append(&mut writer, vec![snapshot(2, "two", Some("one"))]);
    writer
}

#[test]
fn steps_after_a_rewind_begin_with_the_files_that_were_put_back() {
    let fixture = Fixture::new();
    let mut writer = two_steps(&fixture);
    append(&mut writer, vec![put_back(2, 0, "base")]);
    let known = |step, activity| fixture.data.file_history(uuid()).unwrap().after(step, activity);
    assert_eq!((known(1, AtRest), known(2, AtRest)), (Some(id("one")), Some(id("two"))));
    append(&mut writer, changing_step(3));
    append(&mut writer, vec![paused(SuspendReason::User)]);
    assert_eq!(known(3, AtRest), Some(id("base")), "it changed nothing");
    append(&mut writer, vec![resumed()]);
    append(&mut writer, changing_step(4));
    append(&mut writer, vec![snapshot(4, "four", Some("base"))]);
    assert_eq!((known(3, AtRest), known(4, AtRest)), (Some(id("base")), Some(id("four"))));
    let files = fixture.data.file_history(uuid()).unwrap();
    assert_eq!(files.step(4, AtRest), Some(StepFiles { first: 4, from: id("base"), to: id("four") }));
}

#[test]
fn a_step_that_could_not_be_seen_has_no_files() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    append(&mut writer, vec![snapshot(0, "base", None)]);
    append(&mut writer, changing_step(1));
    append(&mut writer, vec![Body::Snapshot(Box::new(Snapshot::unseen(1, id("base"))))]);
    append(&mut writer, changing_step(2));
    append(&mut writer, vec![snapshot(2, "two", Some("base"))]);
    let files = fixture.data.file_history(uuid()).unwrap();
    let after: Vec<_> = (0..=2).map(|step| files.after(step, AtRest)).collect();
    assert_eq!(after, [Some(id("base")), None, Some(id("two"))]);
    assert_eq!((files.step(1, AtRest), files.step_with(id("two"))), (None, Some(2)));
}

#[test]
fn the_last_rewind_can_be_undone_until_a_step_changes_files() {
    let fixture = Fixture::new();
    let mut writer = two_steps(&fixture);
    let undo = || fixture.data.file_history(uuid()).unwrap().before_last_verb();
    assert_eq!(undo(), Err(NoUndo::NothingToUndo));
    append(&mut writer, vec![put_back(2, 0, "base")]);
    assert_eq!(undo(), Ok(id("two")));
    append(&mut writer, vec![put_back(2, 1, "one")]);
    assert_eq!(undo(), Ok(id("base")), "of the second one");
    let before = Snapshot { before_verb: true, base: Some(id("one").tree), ..Snapshot::new(2, id("theirs")) };
    append(&mut writer, vec![Body::Snapshot(Box::new(before)), put_back(2, 0, "base")]);
    assert_eq!(undo(), Ok(id("theirs")), "what was forced over");
    let files = fixture.data.file_history(uuid()).unwrap();
    assert_eq!(files.after(2, AtRest), Some(id("two")), "it is no state of a step");
    append(&mut writer, changing_step(3));
    append(&mut writer, vec![snapshot(3, "three", Some("base"))]);
    assert_eq!(undo(), Err(NoUndo::ChangedSince));
}

/// The system's words for it name neither of the two files.
#[test]
fn a_rename_to_another_file_system_names_both_files() {
    use std::os::unix::fs::MetadataExt as _;
    let (here, there) = (tempfile::tempdir().unwrap(), std::path::Path::new("/dev/shm"));
    let device = |path: &std::path::Path| std::fs::metadata(path).map(|metadata| metadata.dev());
    if device(here.path()).unwrap() == device(there).unwrap_or_default() || !there.is_dir() {
        eprintln!("skipped: there is no second file system");
        return;
    }
    let (from, to) = (here.path().join("from"), there.join(format!("relive-test-{}", std::process::id())));
    crate::support::put(&from, b"x");
    let error = relive_journal::Disk::new().rename(&from, &to).unwrap_err();
    let said = format!("{} and {} are not on the same file system", from.display(), to.display());
    assert_eq!((error.kind(), error.to_string()), (std::io::ErrorKind::CrossesDevices, said));
}

#[test]
fn the_changes_of_a_step_that_nobody_saw_are_not_only_those_of_the_next() {
    let fixture = Fixture::new();
    let mut writer = two_steps(&fixture);
    let unseen = |step| Body::Snapshot(Box::new(Snapshot::unseen(step, id("two"))));
    append(&mut writer, changing_step(3));
    append(&mut writer, vec![unseen(3)]);
    append(&mut writer, changing_step(4));
    append(&mut writer, vec![unseen(4)]);
    append(&mut writer, changing_step(5));
    append(&mut writer, vec![snapshot(5, "five", Some("two"))]);
    let files = fixture.data.file_history(uuid()).unwrap();
    let five = files.step(5, AtRest).unwrap();
    assert_eq!((five.first, five.from.tree, five.to), (3, id("two").tree, id("five")));
    assert_eq!(files.step(2, AtRest).unwrap().first, 2);
    let known = ProcInfo::of(&fixture.history(uuid())).unwrap().files.unwrap();
    assert!(known.has_unknown_step && !known.is_unknown_now);
}

#[test]
fn a_look_that_is_not_recorded_yet_can_be_added() {
    let fixture = Fixture::new();
    let mut writer = two_steps(&fixture);
    append(&mut writer, changing_step(3));
    let mut files = fixture.data.file_history(uuid()).unwrap();
    assert_eq!((files.unseen_until(2), files.unseen_until(3)), (None, Some(3)));
    assert_eq!(files.after(3, Running), None);
    let mut without = files.clone();
    without.add_look(now().at, 3, None);
    assert_eq!((without.after(3, Running), without.unseen_until(3)), (Some(id("two")), None), "nothing had changed");
    let three = || Some(Snapshot { base: Some(id("two").tree), ..Snapshot::new(3, id("three")) });
    files.add_look(now().at, 3, three());
    files.add_look(now().at, 3, three());
    assert_eq!((files.after(3, Running), files.after(2, Running)), (Some(id("three")), Some(id("two"))));
    assert_eq!((files.last(), files.states.len()), (Some(id("three")), 4), "it is added once");
}

#[test]
fn a_snapshot_that_was_taken_before_a_merge_and_recorded_after_it_is_not_what_was_seen_last() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    append(&mut writer, vec![snapshot(0, "base", None)]);
    append(&mut writer, changing_step(1));
    append(&mut writer, vec![rewound(FilesVerb::Merge, 1, "hand", false), rewound(FilesVerb::Merge, 1, "hand", true)]);
    let one = |name: &str, second| {
        let Body::Snapshot(mut one) = snapshot(1, name, Some("base")) else { unreachable!() };
        one.taken = Timestamp::from_second(second).ok();
        vec![Body::Snapshot(one)]
    };
    let seen_last = || fixture.data.file_history(uuid()).unwrap().seen_last();
    append(&mut writer, one("before", 1));
    assert_eq!(seen_last(), Some(id("hand")));
    append(&mut writer, one("after", 100_000_000_000));
    assert_eq!(seen_last(), Some(id("after")));
}
