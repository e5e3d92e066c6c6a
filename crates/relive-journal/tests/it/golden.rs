//! Files as Relive 0.1 wrote them. They are never rewritten: a change of the format that cannot read them fails. Later
//! additions to the format are in `additions.rs`.

use std::path::{Path, PathBuf};

use relive_core::{End, Pid, ProcessStatus, Timestamp, Uuid};
use relive_journal::data::{ClockReading, GcReason, GcRules, Known};
use relive_journal::events::Gap;
use relive_journal::history::{CallState, Phase};
use relive_journal::payload::Blobs;
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::recovery::Recovery;
use relive_journal::{Disk, Hash, Health, Io, JournalState, Next, ProcInfo, ProcessMeta};

use crate::support::{Fixture, copy_tree, files, lines, now, open, remove, temp, uuid_of};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// Every golden journal, for tests that mutate them.
pub(crate) fn journals() -> Vec<Vec<u8>> {
    let journals = files(golden().parent().unwrap()).into_iter().filter(|(path, _)| path.ends_with("steps.jsonl"));
    journals.map(|(_, bytes)| bytes).collect()
}

fn uuid_at(millisecond: i64) -> Uuid {
    relive_core::uuid_v7(Timestamp::from_millisecond(millisecond).unwrap(), [7; 10])
}

const ORIGINAL: i64 = 1_700_000_000_000;
const COLLECTED: i64 = 1_700_000_000_001;
const FORK: i64 = 1_700_000_000_002;

/// The kinds that a reader of 0.1 knows.
pub(crate) const KINDS_OF_0_1: [&str; 17] = [
    "opened",
    "spawned",
    "input",
    "model_started",
    "model_ended",
    "partial",
    "call_started",
    "call_ended",
    "doubt",
    "resolved",
    "approval",
    "compacted",
    "paused",
    "resumed",
    "limits",
    "ended",
    "repair",
];

/// The hash of the list of hashes.
const GOLDEN: &str = "cfe9a5547ce81b758552be9dc5bfcb448cfefedacec9886efd12e8da3737edc5";

#[test]
fn the_golden_files_are_unchanged() {
    check_sums(&golden(), GOLDEN);
}

/// Compares golden files with the list of their hashes next to them, and that list with its own hash.
pub(crate) fn check_sums(golden: &Path, expected: &str) {
    assert_eq!(std::fs::read_to_string(golden.with_extension("sha256")).unwrap(), sums(golden));
    assert_eq!(Hash::of(sums(golden).as_bytes()).to_string(), expected, "{}", golden.display());
}

/// Returns every golden file and its hash, as `sha256sum` prints them in their directory.
pub(crate) fn sums(golden: &Path) -> String {
    let line = |(path, bytes): (PathBuf, Vec<u8>)| {
        format!("{}  {}\n", Hash::of(&bytes), path.strip_prefix(golden).unwrap().display())
    };
    files(golden).into_iter().map(line).collect()
}

fn opened() -> Fixture {
    opened_copy(&golden())
}

/// Opens a copy of a golden data directory.
pub(crate) fn opened_copy(golden: &Path) -> Fixture {
    let temp = temp();
    copy_tree(golden, temp.path());
    let data = open(temp.path(), Io::default());
    Fixture { temp, data }
}

#[test]
fn the_golden_journals_contain_every_kind_and_read_the_same() {
    let fixture = opened();
    let (history, health) = fixture.data.history(uuid_at(ORIGINAL)).unwrap();
    assert_eq!(health, Health::Good);
    let journal: Vec<u8> = files(&golden()).into_values().flatten().collect();
    for kind in KINDS_OF_0_1 {
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
    let directory = fixture.data.directory(uuid_at(ORIGINAL));
    let blobs = Blobs::new(Disk::new(), directory.path());
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
fn the_derived_golden_files_agree_with_the_journals() {
    let fixture = opened();
    let directory = fixture.data.directory(uuid_at(ORIGINAL));
    let meta = ProcessMeta::read(&directory).unwrap();
    let told = (meta.model.as_str(), meta.system_prompt.as_str(), meta.tools.get());
    assert_eq!(told, ("script/test", "You are a test.", r#"[{"name":"read"}]"#));

    let info = ProcInfo::read(&directory).unwrap().unwrap();
    assert_eq!((info.name.as_deref(), info.state, info.step), (Some("golden"), JournalState::Dead, 5));
    assert_eq!(info.end, Some(End::of(ProcessStatus::Exited { code: 0 })));
    let snapshot = std::fs::read(directory.proc_info()).unwrap();
    info.write(&Disk::new(), &directory).unwrap();
    assert!(std::fs::read(directory.proc_info()).unwrap() == snapshot, "it is still written as it was");
    let told = ProcInfo::of(&fixture.history(uuid_at(ORIGINAL))).unwrap();
    assert!(told.ledger.is_some() && told.model.is_some() && info.ledger.is_none(), "added since");
    let mut told = serde_json::to_value(told).unwrap();
    told.as_object_mut().unwrap().retain(|key, _| !["ledger", "model"].contains(&key.as_str()));
    assert_eq!(told, serde_json::to_value(info).unwrap(), "the journal says the same");

    let journal = std::fs::read(directory.steps()).unwrap();
    let last = lines(&journal).len() - 1;
    for (path, covered) in [(directory.checkpoint(), last), (directory.previous_checkpoint(), 30)] {
        let text = std::fs::read_to_string(path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["history"]["lines"], covered, "the number of records it covers");
    }
    let with = fixture.history(uuid_at(ORIGINAL));
    remove(&directory.checkpoint());
    remove(&directory.previous_checkpoint());
    assert_eq!(fixture.history(uuid_at(ORIGINAL)), with);
}

#[test]
fn the_golden_events_begin_with_their_gap() {
    let fixture = opened();
    let mut reader = Reader::new(fixture.data.directory(uuid_at(ORIGINAL)).events(), Cursor::default());
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
fn the_golden_data_directory_lists_living_and_collected_processes() {
    let fixture = opened();
    let live = fixture.data.live().unwrap();
    assert_eq!(live.iter().map(|live| live.uuid).collect::<Vec<_>>(), [uuid_at(FORK)]);
    let Known::Collected(tombstone) = fixture.data.known(uuid_at(COLLECTED)).unwrap() else { panic!("not collected") };
    assert_eq!((tombstone.name.as_deref(), tombstone.pids.as_slice()), (Some("golden"), [Pid(3)].as_slice()));
    let lineage = fixture.data.lineage(uuid_at(FORK)).unwrap();
    assert_eq!((lineage.len(), lineage[0].uuid, lineage[0].step), (1, uuid_at(ORIGINAL), 2));
    assert_eq!(fixture.data.next_pid().unwrap(), Pid(17));
    let clock = ClockReading { wall: now(), since_boot_ms: 5, boot_id: "boot".to_owned() };
    let rules = GcRules { retention_days: None, max_entries: Some(0), older_than_ms: None };
    let survey = fixture.data.survey(rules, &clock).unwrap();
    assert_eq!((survey.candidates.len(), survey.candidates[0].reason), (1, GcReason::MaxEntries));
    let fork = fixture.resume(uuid_at(FORK));
    assert_eq!(uuid_of(&fork), uuid_at(FORK));
}
