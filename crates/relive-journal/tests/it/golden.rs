//! Files as version 1 writes them. They are never written again: a change of the format that cannot read them fails.
//!
//! `RELIVE_BLESS_GOLDEN=1 cargo test -p relive-journal -- --ignored bless_golden` makes them, and prints their hashes.

use std::path::{Path, PathBuf};

use relive_core::{End, Limits, Pid, ProcessStatus, Timestamp, Uuid};
use relive_journal::data::{ClockReading, ForkPoint, GcReason, GcRules, Known};
use relive_journal::events::Gap;
use relive_journal::history::{CallState, Phase};
use relive_journal::payload::Blobs;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::Body;
use relive_journal::recovery::Recovery;
use relive_journal::{Disk, Hash, Health, Io, JournalState, Next, ProcInfo, ProcessMeta};

use crate::support::{
    Fixture, append, call_started, completed, copy_tree, every_kind, files, input, lines, model_ended, model_started,
    now, open, put, put_after, remove, spawn_request, step, temp, uuid_of,
};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// Every golden journal, for tests that mutate them.
pub(crate) fn journals() -> Vec<Vec<u8>> {
    let journals = files(&golden()).into_iter().filter(|(path, _)| path.ends_with("steps.jsonl"));
    journals.map(|(_, bytes)| bytes).collect()
}

fn uuid_at(millisecond: i64) -> Uuid {
    relive_core::uuid_v7(Timestamp::from_millisecond(millisecond).unwrap(), [7; 10])
}

const ORIGINAL: i64 = 1_700_000_000_000;
const COLLECTED: i64 = 1_700_000_000_001;
const FORK: i64 = 1_700_000_000_002;

/// The hash of the list of hashes.
const GOLDEN: &str = "cfe9a5547ce81b758552be9dc5bfcb448cfefedacec9886efd12e8da3737edc5";

#[test]
#[ignore = "makes the golden files, once for each version of the format"]
fn bless_golden() {
    assert!(std::env::var_os("RELIVE_BLESS_GOLDEN").is_some(), "say RELIVE_BLESS_GOLDEN=1 to make them anew");
    let fixture = Fixture::new();
    let spawn = |millisecond| {
        let mut request = spawn_request(uuid_at(millisecond), fixture.data.next_pid().unwrap());
        request.spawned.name = Some("golden".to_owned());
        request.spawned.limits = Limits { max_tokens: Some(9000), ..Limits::default() };
        fixture.data.spawn(request).unwrap()
    };
    let mut writer = spawn(ORIGINAL);
    writer.events().set_max(1200);
    for number in 0..12 {
        writer.events().append(now(), 1, "open", &serde_json::json!({"path": "/f", "number": number})).unwrap();
    }
    every_kind(&mut writer);
    writer.checkpoint().unwrap();
    append(&mut writer, vec![completed()]);
    drop(writer);
    put_after(&fixture.data.folder(uuid_at(ORIGINAL)).steps(), b"{\"v\":1,\"se");
    let mut writer = fixture.resume(uuid_at(ORIGINAL));
    append(&mut writer, vec![input("third", "more")]);
    step(&mut writer, "five", "5");
    writer.checkpoint().unwrap();
    append(&mut writer, vec![completed()]);
    fixture.data.retire(uuid_at(ORIGINAL), writer.history()).unwrap();

    let mut writer = spawn(COLLECTED);
    append(&mut writer, vec![completed()]);
    fixture.data.retire(uuid_at(COLLECTED), writer.history()).unwrap();
    drop(writer);
    let clock = ClockReading { wall: now(), since_boot_ms: 5, boot_id: "boot".to_owned() };
    let rules = GcRules { retention_days: None, max_entries: Some(0) };
    let survey = fixture.data.survey(rules, &clock).unwrap();
    let candidate = survey.candidates.iter().find(|candidate| candidate.uuid == uuid_at(COLLECTED)).unwrap();
    fixture.data.collect(candidate, now()).unwrap();

    let opening = crate::support::opening(fixture.data.next_pid().unwrap(), relive_journal::record::OpenedBy::Spawn);
    let (uuid, source, point) = (uuid_at(FORK), uuid_at(ORIGINAL), ForkPoint::Step(2));
    let (name, parent_uuid, limits, input) = (None, None, None, None);
    let fork = relive_journal::data::ForkRequest { uuid, opening, source, point, name, parent_uuid, limits, input };
    let mut writer = fixture.data.fork(fork).unwrap();
    append(&mut writer, vec![model_started()]);
    append(&mut writer, vec![model_ended("three, otherwise", 2), call_started(0, Recovery::Join)]);
    drop(writer);

    remove(&fixture.temp.path().join("lock"));
    copy_tree(fixture.temp.path(), &golden());
    put(&golden().with_extension("sha256"), sums().as_bytes());
    println!("{}", Hash::of(sums().as_bytes()));
}

#[test]
fn the_golden_files_are_the_ones_that_were_written() {
    assert_eq!(std::fs::read_to_string(golden().with_extension("sha256")).unwrap(), sums());
    assert_eq!(Hash::of(sums().as_bytes()).to_string(), GOLDEN);
}

/// Every golden file and its hash, as `sha256sum` prints them in their folder.
fn sums() -> String {
    let line = |(path, bytes): (PathBuf, Vec<u8>)| {
        format!("{}  {}\n", Hash::of(&bytes), path.strip_prefix(golden()).unwrap().display())
    };
    files(&golden()).into_iter().map(line).collect()
}

/// A copy of the golden data folder, opened.
fn opened() -> Fixture {
    let temp = temp();
    copy_tree(&golden(), temp.path());
    let data = open(temp.path(), Io::default());
    Fixture { temp, data }
}

#[test]
fn the_golden_journals_hold_every_kind_and_say_what_they_said() {
    let fixture = opened();
    let (history, health) = fixture.data.history(uuid_at(ORIGINAL)).unwrap();
    assert_eq!(health, Health::Good);
    let journal = journals().concat();
    for kind in Body::KINDS {
        assert!(memchr::memmem::find(&journal, format!("\"kind\":\"{kind}\"").as_bytes()).is_some(), "no {kind}");
    }
    assert_eq!((history.step, history.completed_step, history.epoch.0), (5, 5, 2));
    assert_eq!(history.limits.max_steps, Some(20));
    assert_eq!((history.spent.tokens_in, history.spent.tokens_out, history.spent.estimated), (60, 26, true));
    let pids: Vec<Pid> = history.incarnations.iter().map(|incarnation| incarnation.pid).collect();
    assert_eq!(pids, [Pid(1), Pid(2)]);
    assert_eq!(history.repairs[0].cut_bytes, 10);
    assert_eq!(history.plan().next, Next::Ask { step: 6, again: false });
    assert_eq!(
        fixture.said(uuid_at(ORIGINAL)),
        [
            "summary what happened",
            "model 3 1",
            "tool 3 0 true 3",
            "model 4 0",
            "user third",
            "model 5 1",
            "tool 5 0 true 5"
        ]
    );
    let folder = fixture.data.folder(uuid_at(ORIGINAL));
    let blobs = Blobs::new(Disk::new(), folder.path());
    let large = "large ".repeat(12_000);
    assert_eq!(blobs.get(Hash::of(large.as_bytes())).unwrap(), large.into_bytes());
    assert_eq!(blobs.get(history.repairs[0].blob).unwrap(), b"{\"v\":1,\"se");

    let fork = fixture.history(uuid_at(FORK));
    let Phase::Calling { calls } = &fork.phase else { panic!("{:?}", fork.phase) };
    assert!(matches!(calls.as_slice(), [CallState::Open(open), CallState::Waiting] if open.recovery == Recovery::Join));
    assert_eq!((fork.completed_step, fork.spent.tokens_in), (2, 10));
    assert_eq!(fork.plan().next, Next::Calls { step: 3, call: 0 });
}

#[test]
fn the_golden_files_beside_the_journals_are_read_and_agree_with_them() {
    let fixture = opened();
    let folder = fixture.data.folder(uuid_at(ORIGINAL));
    let meta = ProcessMeta::read(&folder).unwrap();
    let told = (meta.model.as_str(), meta.system_prompt.as_str(), meta.tools.get());
    assert_eq!(told, ("script/test", "You are a test.", r#"[{"name":"read"}]"#));

    let info = ProcInfo::read(&folder).unwrap().unwrap();
    assert_eq!((info.name.as_deref(), info.state, info.step), (Some("golden"), JournalState::Dead, 5));
    assert_eq!(info.end, Some(End::of(ProcessStatus::Exited { code: 0 })));
    let snapshot = std::fs::read(folder.proc_info()).unwrap();
    info.write(&Disk::new(), &folder).unwrap();
    assert!(std::fs::read(folder.proc_info()).unwrap() == snapshot, "it is still written as it was");
    assert_eq!(ProcInfo::of(&fixture.history(uuid_at(ORIGINAL))), Some(info.clone()), "the journal says the same");

    let journal = std::fs::read(folder.steps()).unwrap();
    let last = lines(&journal).len() - 1;
    for (path, covered) in [(folder.checkpoint(), last), (folder.previous_checkpoint(), 30)] {
        let text = std::fs::read_to_string(path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["history"]["lines"], covered, "the number of records it covers");
    }
    let with = fixture.history(uuid_at(ORIGINAL));
    remove(&folder.checkpoint());
    remove(&folder.previous_checkpoint());
    assert_eq!(fixture.history(uuid_at(ORIGINAL)), with);
}

#[test]
fn the_golden_events_begin_with_their_gap() {
    let fixture = opened();
    let mut reader = Reader::new(fixture.data.folder(uuid_at(ORIGINAL)).events(), Cursor::default());
    let Some(Item::Record(first)) = reader.next_item().unwrap() else { panic!("nothing there") };
    let gap: Gap = serde_json::from_str(&first.line).unwrap();
    assert_eq!(first.kind, "gap");
    assert_eq!((gap.first.to_string(), gap.last, first.id), ("1.1".to_owned(), first.id, gap.last));
    assert_eq!(gap.dropped, gap.last.seq);
    let mut expected = gap.last.seq;
    while let Some(Item::Record(entry)) = reader.next_item().unwrap() {
        expected += 1;
        assert_eq!((entry.id.to_string(), entry.kind.as_str()), (format!("1.{expected}"), "open"));
    }
    assert_eq!(expected, 12);
}

#[test]
fn the_golden_data_folder_knows_what_is_live_and_what_is_gone() {
    let fixture = opened();
    let live = fixture.data.live().unwrap();
    assert_eq!(live.iter().map(|live| live.uuid).collect::<Vec<_>>(), [uuid_at(FORK)]);
    let Known::Collected(tombstone) = fixture.data.known(uuid_at(COLLECTED)).unwrap() else { panic!("not collected") };
    assert_eq!((tombstone.name.as_deref(), tombstone.pids.as_slice()), (Some("golden"), [Pid(3)].as_slice()));
    let lineage = fixture.data.lineage(uuid_at(FORK)).unwrap();
    assert_eq!((lineage.len(), lineage[0].uuid, lineage[0].step), (1, uuid_at(ORIGINAL), 2));
    assert_eq!(fixture.data.next_pid().unwrap(), Pid(17));
    let clock = ClockReading { wall: now(), since_boot_ms: 5, boot_id: "boot".to_owned() };
    let rules = GcRules { retention_days: None, max_entries: Some(0) };
    let survey = fixture.data.survey(rules, &clock).unwrap();
    assert_eq!((survey.candidates.len(), survey.candidates[0].reason), (1, GcReason::MaxEntries));
    let fork = fixture.resume(uuid_at(FORK));
    assert_eq!(uuid_of(&fork), uuid_at(FORK));
}
