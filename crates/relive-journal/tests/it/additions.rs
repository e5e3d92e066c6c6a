//! What was added to format 1 since Relive 0.1: each addition has golden files of its own, which are never written
//! again, and a reader of 0.1 finds in them what it is meant to find.
//!
//! `RELIVE_BLESS_GOLDEN=<name> cargo test -p relive-journal -- --ignored bless_golden` makes those of a new addition,
//! and prints their hash.

use std::path::{Path, PathBuf};

use relive_core::{Cause, End, Limits, Moment, Rights, Signal, SuspendReason, Timestamp, Uuid, Why};
use relive_journal::data::{Beat, ForkPoint};
use relive_journal::history::Permit;
use relive_journal::policy::{Permission, Policy};
use relive_journal::record::{
    Approval, Body, CallStarted, CliLaunch, CliRead, CliRecord, CliSession, CliStart, CliTurn, CliTurnState, Decision,
    FlowRecord, Granted, OpenedBy, Outcome, Partial, Released, Signalled,
};
use relive_journal::recovery::Recovery;
use relive_journal::{Durability, Hash, Health, Next, Opening, Problem, Seen, Writer};
use relive_types::{CliAgent, CommandRule, Isolated, Isolation};

use crate::golden::{KINDS_OF_0_1, check_sums, opened_copy, sums};
use crate::open_and_repair::reseal;
use crate::support::{
    Fixture, append, approval, call_ended, call_started, collect_all, completed, copy_tree, end, input, kept, lines,
    max_steps, model_ended, model_started, new_model, open_journal, opening, partial, paused, put, remove, renamed,
    resolved, resumed, signal_mask, signalled, spawn_request, step, with_request,
};

struct Addition {
    name: &'static str,
    /// The hash of the list of hashes.
    sums: &'static str,
    make: fn(&Fixture),
    check: fn(&Fixture),
    /// The line at which a reader of 0.1 finds the journal read-only, and the kind or the value it does not know; absent
    /// where it reads all of it.
    unknown: Option<(u64, &'static str)>,
}

const ADDITIONS: &[Addition] = &[
    Addition {
        name: "v1-signalled",
        sums: "463c16d736c8fa7e029bd35b7c4b7b7ddc6d7b1ab8c555c0f8ec45a95f5f5ee0",
        make: make_signalled,
        check: check_signalled,
        unknown: Some((8, "signalled")),
    },
    Addition {
        name: "v1-signal-mask",
        sums: "0ee32306dfab62038ddc2bdd1d5a186aa1968c266b7447f9a199940729e102f6",
        make: make_signal_mask,
        check: check_signal_mask,
        unknown: Some((4, "signal_mask")),
    },
    Addition {
        name: "v1-requests",
        sums: "b23f8cf8773e281a13a2ac61c1c3d8f1cda03ba59a1182f7fdb03cca42aeb4fe",
        make: make_requests,
        check: check_requests,
        unknown: None,
    },
    Addition {
        name: "v1-skip",
        sums: "cf6ec18548ad8537942e754326e39a52999a59bad6213510198d11f789698c10",
        make: make_skip,
        check: check_skip,
        unknown: Some((8, "tinted")),
    },
    Addition {
        name: "v1-time",
        sums: "0bd6b959004c4da9a3a19e29ed97de76a5e83a4818754cf2c25c94faf447bb26",
        make: make_time,
        check: check_time,
        unknown: None,
    },
    Addition {
        name: "v1-stalled",
        sums: "c56929acdd1b73a912699ae6c241a1b487552e2ac8da4a56ce4e797db3812891",
        make: make_stalled,
        check: check_stalled,
        unknown: Some((10, "stalled")),
    },
    Addition {
        name: "v1-budget",
        sums: "72c2b0e7bc3e25d1adc483d39bd09bb0648203c8d003e7332525de790b2c8c1f",
        make: make_budget,
        check: check_budget,
        unknown: None,
    },
    Addition {
        name: "v1-renamed",
        sums: "aef81b852f5127b423022d559137efdbb336d8e51608aeb11b9b23d9f1131dfd",
        make: make_renamed,
        check: check_renamed,
        unknown: Some((8, "renamed")),
    },
    Addition {
        name: "v1-rules",
        sums: "bcd8fdc15426aba6064391dddbf1f3ca0673ae0680d1d235152a32128af794fe",
        make: make_rules,
        check: check_rules,
        unknown: None,
    },
    Addition {
        name: "v1-handles",
        sums: "ba7eb68ac7e132c8345a9d93a9b41d6963157e6437723695e72b606f6e3485e7",
        make: make_handles,
        check: check_handles,
        unknown: Some((8, "granted")),
    },
    Addition {
        name: "v1-own-end",
        sums: "20860682af17141c6d4c9fdf284e0c24068f4369c64e6b1feeb33cc32db701c7",
        make: make_own_end,
        check: check_own_end,
        unknown: Some((10, "signalled")),
    },
    Addition {
        name: "v1-files",
        sums: "6e4081a5e3a1be28d3d12837075b6dcd353e283099f635dc707bac9694d3c473",
        make: crate::files::make,
        check: crate::files::check,
        unknown: Some((4, "snapshot")),
    },
    Addition {
        name: "v1-files-shared",
        sums: "a229fa269ae1787a321cfb073755eb6fea06eb0282d2a5f20527fb335c40b3ca",
        make: crate::files::make_shared,
        check: crate::files::check_shared,
        unknown: Some((4, "snapshot")),
    },
    Addition {
        name: "v1-events",
        sums: "2849675ff0de0accd3c5bca5a4de239952bc96c8a81bafb43009a60ae42b14ab",
        make: crate::derived_events::make_golden,
        check: crate::derived_events::check_golden,
        unknown: None,
    },
    Addition {
        name: "v1-flow",
        sums: "740bd36d150caa7608152e398a25c4a05e5238eac72f474e8d2d8b4bfd1ea3e3",
        make: make_flow,
        check: check_flow,
        unknown: Some((4, "flow")),
    },
    Addition {
        name: "v1-network",
        sums: "efab5722ddd1c6ba98b0cd249b88401403c4e251776a83ebacf8bf94839c1dc2",
        make: make_network,
        check: check_network,
        unknown: None,
    },
    Addition {
        name: "v1-opened-cause",
        sums: "9925796eb3bb492bddfaa71e36e7ca93d488b7d078f3be7739425230a8b48e77",
        make: make_opened_cause,
        check: check_opened_cause,
        unknown: None,
    },
    Addition {
        name: "v1-question",
        sums: "5dbf019a18bf9a6bf5c7f423e6879d6a8ca0c7bc78de644938a1aa7d54e69982",
        make: crate::attention::make_question,
        check: crate::attention::check_question,
        unknown: Some((6, "question")),
    },
    Addition {
        name: "v1-cli-question",
        sums: "98c3edbc616e3fb2796fe1d3d6ffc12ce13901123bd4c77bc13e8c81547cc9a7",
        make: crate::attention::make_cli_question,
        check: crate::attention::check_cli_question,
        unknown: Some((6, "question")),
    },
    Addition {
        name: "v1-unseen",
        sums: "187af2cca2f4110d74365e8dde95f8a457d39bd4596c77fe423a2fcfdd6cfaa6",
        make: crate::attention::make_unseen,
        check: crate::attention::check_unseen,
        unknown: Some((9, "acked")),
    },
    Addition {
        name: "v1-cli",
        sums: "75ca010a3a019a981cbe8fab715898317d9f5ba396ccc7b529ea8ccd9703a2ae",
        make: make_cli,
        check: check_cli,
        unknown: Some((4, "cli")),
    },
    Addition {
        name: "v1-denied",
        sums: "d6706fc659a6fc93dcb58a1209487a67bbe5fe61fb167c7f949f2a8d86e8e4a4",
        make: crate::attention::make_denied,
        check: crate::attention::check_denied,
        unknown: None,
    },
    Addition {
        name: "v1-cli-calls",
        sums: "4edc445f169303a34020765b2089791115080074e44975fc1f98bbbd7370f75e",
        make: crate::cli_calls::make,
        check: crate::cli_calls::check,
        unknown: Some((4, "cli")),
    },
    Addition {
        name: "v1-cli-crashed",
        sums: "3393908a982b1b52782e7fe7dd90010458db5efa89408864fc156980e398a815",
        make: crate::cli_calls::make_crashed,
        check: crate::cli_calls::check_crashed,
        unknown: Some((4, "cli")),
    },
    Addition {
        name: "v1-gate",
        sums: "511476c2d1c7154b52c22e321970716b6239cb313810970766564eae6ceb9041",
        make: crate::time::make_gate,
        check: crate::time::check_gate,
        unknown: Some((3, "proceeded")),
    },
    Addition {
        name: "v1-withdrawn",
        sums: "23fcd051f5f8f0c61dd910f9560ee4d8ef7611315739656a075d3fc4233dac58",
        make: crate::attention::make_withdrawn,
        check: crate::attention::check_withdrawn,
        unknown: Some((8, "withdrawn")),
    },
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

pub(crate) fn uuid() -> Uuid {
    relive_core::uuid_v7(Timestamp::from_millisecond(1_700_000_000_000).unwrap(), [7; 10])
}

pub(crate) fn spawn(fixture: &Fixture) -> Writer {
    fixture.data.spawn(spawn_request(uuid(), fixture.data.next_pid().unwrap())).unwrap()
}

pub(crate) fn journal(fixture: &Fixture) -> Vec<u8> {
    std::fs::read(fixture.data.directory(uuid()).steps()).unwrap()
}

#[test]
#[ignore = "makes the golden files of an addition, once"]
fn bless_golden() {
    let name = std::env::var("RELIVE_BLESS_GOLDEN").unwrap();
    let addition = ADDITIONS.iter().find(|addition| addition.name == name).unwrap();
    assert!(!golden(&name).exists(), "they are never written again");
    let fixture = Fixture::new();
    (addition.make)(&fixture);
    remove(&fixture.temp.path().join("lock"));
    copy_tree(fixture.temp.path(), &golden(&name));
    let sums = sums(&golden(&name));
    put(&golden(&name).with_extension("sha256"), sums.as_bytes());
    println!("{}", Hash::of(sums.as_bytes()));
}

#[test]
fn the_golden_files_of_every_addition_are_the_ones_that_were_written_and_say_what_they_said() {
    for addition in ADDITIONS {
        check_sums(&golden(addition.name), addition.sums);
        let fixture = opened_copy(&golden(addition.name));
        assert_eq!(fixture.health(uuid()), Health::Good, "{}", addition.name);
        (addition.check)(&fixture);
        let with = fixture.history(uuid());
        remove(&fixture.data.directory(uuid()).checkpoint());
        assert_eq!(fixture.history(uuid()), with, "{}: without its checkpoint", addition.name);
        step(&mut fixture.resume(uuid()), "more", "more");
    }
}

/// The lines of a journal as a reader of 0.1 sees them: it knows neither later kinds and fields nor that some may be
/// skipped.
fn as_of_0_1(journal: &[u8]) -> Vec<u8> {
    let mut seen = Vec::new();
    for line in lines(journal) {
        let line = std::str::from_utf8(line).unwrap();
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let kind = value["kind"].as_str().unwrap();
        let line = line.replacen(",\"up\":", ",\"new_up\":", 1).replacen(",\"ran_ms\":", ",\"new_ran_ms\":", 1);
        let line = line.replace(":\"stalled\"", ":\"new_stalled\"").replace(":\"withdrawn\"", ":\"new_withdrawn\"");
        if KINDS_OF_0_1.contains(&kind) {
            seen.push(line);
        } else {
            let unknown = line.replacen(&format!("\"kind\":\"{kind}\""), &format!("\"kind\":\"new_{kind}\""), 1);
            seen.push(unknown.replacen("\"skip\":true,", "", 1));
        }
    }
    reseal(seen.concat().as_bytes())
}

#[test]
fn a_reader_of_0_1_finds_a_journal_read_only_at_the_first_kind_or_value_it_does_not_know() {
    for addition in ADDITIONS {
        let fixture = opened_copy(&golden(addition.name));
        let directory = fixture.data.directory(uuid());
        put(&directory.steps(), &as_of_0_1(&journal(&fixture)));
        let (history, health) = fixture.data.history(uuid()).unwrap();
        match (addition.unknown, health) {
            (None, Health::Good) => assert!(history.identity.is_some()),
            (Some((line, kind)), Health::ReadOnly(hole)) => {
                // The reader says which kind or which value it is.
                let unknown = match &hole.problem {
                    Problem::Kind(kind) => kind.as_str(),
                    Problem::Fields(error) => error.split('`').nth(1).unwrap_or_default(),
                    Problem::Checksum
                    | Problem::TooLong
                    | Problem::Gap { .. }
                    | Problem::Unopened(_)
                    | Problem::Version(_) => "",
                };
                assert_eq!((hole.line, unknown), (line, format!("new_{kind}").as_str()), "{}", addition.name);
                let live = fixture.data.live().unwrap();
                assert_eq!(live.iter().map(|live| live.uuid).collect::<Vec<_>>(), [uuid()], "it is listed");
            }
            (unknown, health) => panic!("{}: {health:?}, and unknown is {unknown:?}", addition.name),
        }
    }
}

#[test]
fn every_kind_is_in_a_golden_journal() {
    let journals = crate::golden::journals().concat();
    for kind in Body::KINDS {
        assert!(memchr::memmem::find(&journals, format!("\"kind\":\"{kind}\"").as_bytes()).is_some(), "no {kind}");
    }
}

fn make_signalled(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    step(&mut writer, "one", "1");
    append(&mut writer, vec![with_request(kept(Signal::Pause), "pause"), kept(Signal::Int)]);
    writer.checkpoint().unwrap();
    append(&mut writer, vec![model_started()]);
    append(&mut writer, vec![signalled(Signal::Term), with_request(signalled(Signal::Kill), "kill")]);
}

fn check_signalled(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.ending.as_ref().map(|ending| ending.signal), Some(Signal::Kill));
    assert_eq!(history.ending.as_ref().and_then(|ending| ending.req.as_deref()), Some("kill"));
    assert_eq!(history.pending.iter().map(|(signal, _)| *signal).collect::<Vec<_>>(), [Signal::Pause, Signal::Int]);
    assert_eq!(history.request("pause").map(|answered| answered.kind), Some("signalled"));
}

fn make_signal_mask(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    let mask = signal_mask(&[Signal::Term, Signal::Int, Signal::Pause, Signal::Resume], &[]);
    append(&mut writer, vec![with_request(mask, "mask")]);
    writer.checkpoint().unwrap();
    append(&mut writer, vec![signal_mask(&[Signal::Pause, Signal::Int], &[Signal::Term])]);
}

fn check_signal_mask(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.mask, [Signal::Int, Signal::Pause].into_iter().collect());
    assert_eq!(history.handlers, [Signal::Term].into_iter().collect());
    assert_eq!(history.request("mask").map(|answered| (answered.kind, answered.seq)), Some(("signal_mask", 4)));
}

fn make_requests(fixture: &Fixture) {
    let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
    request.spawned.request = Some(Hash::of(b"the request").to_string());
    let mut writer = fixture.data.spawn(request).unwrap();
    append(&mut writer, vec![model_started(), model_ended("one", 2), approval(0, Decision::Asked)]);
    append(&mut writer, vec![with_request(approval(0, Decision::Allowed), "allow")]);
    append(&mut writer, vec![call_started(0, Recovery::Doubt), with_request(paused(SuspendReason::User), "pause")]);
    append(&mut writer, vec![with_request(resolved(0, Outcome::Done), "resolve")]);
    append(&mut writer, vec![with_request(resumed(), "resume"), with_request(max_steps(9), "resume")]);
    append(&mut writer, vec![input("resume", "more"), call_ended(1, "x")]);
    writer.checkpoint().unwrap();
    append(&mut writer, vec![with_request(completed(), "kill")]);
}

fn check_requests(fixture: &Fixture) {
    let history = fixture.history(uuid());
    let spawned = &history.identity.as_ref().unwrap().spawned;
    assert_eq!(spawned.request, Some(Hash::of(b"the request").to_string()));
    for (id, kind) in
        [("allow", "approval"), ("pause", "paused"), ("resolve", "resolved"), ("resume", "resumed"), ("kill", "ended")]
    {
        assert_eq!(history.request(id).map(|answered| answered.kind), Some(kind), "{id}");
    }
    assert_eq!((history.limits.max_steps, history.plan().next), (Some(9), Next::Ask { step: 2, again: false }));
    // A reader of 0.1 takes these lines for the bare types.
    let bytes = journal(fixture);
    for line in lines(&bytes) {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        match value["kind"].as_str().unwrap() {
            "limits" => assert_eq!(serde_json::from_slice::<Limits>(line).unwrap(), history.limits),
            "ended" => assert_eq!(serde_json::from_slice::<End>(line).unwrap(), history.ended().unwrap().1),
            _ => {}
        }
    }
}

/// A process that had ended, and that another process had continue.
fn make_opened_cause(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    step(&mut writer, "one", "1");
    append(&mut writer, vec![completed()]);
    drop(writer);
    let pid = fixture.data.next_pid().unwrap();
    let cause = Some(Cause { root: Some(relive_core::Pid(3)), ..Cause::process(Why::Parent, relive_core::Pid(4)) });
    let opening = Opening { cause, ..opening(pid, OpenedBy::Resume) };
    let mut writer = open_journal(&fixture.data, uuid(), &opening).unwrap();
    append(&mut writer, vec![input("more", "more")]);
    writer.checkpoint().unwrap();
    step(&mut writer, "two", "2");
}

fn check_opened_cause(fixture: &Fixture) {
    let history = fixture.history(uuid());
    let cause = Cause { root: Some(relive_core::Pid(3)), ..Cause::process(Why::Parent, relive_core::Pid(4)) };
    assert_eq!(history.resumed_by, Some(cause));
    assert_eq!(history.incarnations.len(), 2);
}

/// Nothing writes a record that may be skipped yet: this one is made by hand.
fn make_skip(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    step(&mut writer, "one", "1");
    append(&mut writer, vec![input("tinted", "x")]);
    step(&mut writer, "two", "2");
    drop(writer);
    let text = String::from_utf8(journal(fixture)).unwrap();
    let by_hand = "\"kind\":\"tinted\",\"step\":1,\"skip\":true,\"id\":\"tinted\"";
    let changed = text.replacen("\"kind\":\"input\",\"step\":1,\"id\":\"tinted\"", by_hand, 1);
    put(&fixture.data.directory(uuid()).steps(), &reseal(changed.as_bytes()));
}

fn check_skip(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!((history.seq, history.completed_step), (12, 2));
    assert!(!history.has_received("tinted"));
    assert_eq!(fixture.fork(uuid(), ForkPoint::Step(2)).unwrap().history().completed_step, 2);
}

/// Returns a moment of the second day of a boot.
pub(crate) fn at(ms: u64) -> Moment {
    let wall = Timestamp::from_millisecond(1_700_000_000_000 + ms.cast_signed()).unwrap();
    Moment { at: wall, up_ms: 86_400_000 + ms }
}

/// A process that ran, was paused, ran, and was last seen 300 ms after its last record; then it ran again.
fn make_time(fixture: &Fixture) {
    let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
    request.opening.now = at(0);
    let mut writer = fixture.data.spawn(request).unwrap();
    writer.append(at(1_000), vec![model_started(), paused(SuspendReason::User)], Durability::Synced).unwrap();
    writer.append(at(3_000), vec![model_ended("one", 0)], Durability::Synced).unwrap();
    writer.append(at(60_000), vec![resumed(), input("more", "more")], Durability::Synced).unwrap();
    writer.checkpoint().unwrap();
    writer.append(at(60_200), vec![model_started()], Durability::Synced).unwrap();
    drop(writer);
    let seen = Some(Seen { boot_id: "boot".to_owned(), up_ms: at(60_500).up_ms });
    let pid = fixture.data.next_pid().unwrap();
    let opening = Opening { now: at(90_000), seen, ..opening(pid, OpenedBy::Recovery) };
    let mut writer = open_journal(&fixture.data, uuid(), &opening).unwrap();
    writer.append(at(90_040), vec![model_started()], Durability::Synced).unwrap();
    let (from_ms, up_ms) = (at(90_000).up_ms, at(91_000).up_ms);
    fixture.data.beat(&Beat { boot_id: "boot".to_owned(), from_ms, up_ms }).unwrap();
}

fn check_time(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.ran_ms(), 1_000 + 500 + 40);
    assert_eq!(fixture.data.ran_ms(&history, "boot"), 1_000 + 500 + 1_000, "with the pulse");
    let opened: Vec<serde_json::Value> = lines(&journal(fixture))
        .into_iter()
        .map(|line| serde_json::from_slice(line).unwrap())
        .filter(|line: &serde_json::Value| line["kind"] == "opened")
        .collect();
    assert_eq!((&opened[0]["ran_ms"], &opened[1]["ran_ms"]), (&serde_json::Value::Null, &1_500.into()));
    assert_eq!((&opened[0]["up"], &opened[1]["up"]), (&86_400_000.into(), &86_490_000.into()));
    let pulse = std::fs::read_to_string(fixture.temp.path().join("pulse")).unwrap();
    assert!(pulse.starts_with("{\"boot_id\":\"boot\",\"from\":86490000,\"up\":86491000,\"crc\":\""), "{pulse}");
}

/// A process that the stall monitor paused, and after its resume ended.
fn make_stalled(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    step(&mut writer, "one", "1");
    append(&mut writer, vec![model_started()]);
    append(&mut writer, vec![partial(""), paused(SuspendReason::Stalled)]);
    writer.checkpoint().unwrap();
    append(&mut writer, vec![resumed(), model_started()]);
    let cause = Cause::runtime(Why::Stalled);
    append(
        &mut writer,
        vec![Body::Signalled(Signalled { signal: Signal::Term, cause, end: None, pending: false, req: None })],
    );
}

fn check_stalled(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.ending.as_ref().map(|ending| ending.cause), Some(Cause::runtime(Why::Stalled)));
    let lines = journal(fixture);
    assert!(memchr::memmem::find(&lines, b"\"reason\":\"stalled\"").is_some());
    assert!(memchr::memmem::find(&lines, b"\"why\":\"stalled\"").is_some());
}

/// The UUID of one that draws from the budget of another.
fn collected_uuid() -> Uuid {
    relive_core::uuid_v7(Timestamp::from_millisecond(1_700_000_000_001).unwrap(), [8; 10])
}

/// A process that draws from the budget of another which is not its parent, and one more that was collected.
fn make_budget(fixture: &Fixture) {
    for process in [collected_uuid(), uuid()] {
        let mut request = spawn_request(process, fixture.data.next_pid().unwrap());
        request.spawned.budget_uuid = Some(Uuid::max());
        let mut writer = fixture.data.spawn(request).unwrap();
        step(&mut writer, "one", "1");
        writer.checkpoint().unwrap();
        if process == collected_uuid() {
            assert_eq!(end(fixture, writer), process);
            assert_eq!(collect_all(fixture), [process]);
        }
    }
}

fn check_budget(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.identity.as_ref().unwrap().spawned.budget_uuid, Some(Uuid::max()));
    let tombstones = fixture.data.tombstones().unwrap();
    let [tombstone] = &tombstones[..] else { panic!("{tombstones:?}") };
    assert_eq!((tombstone.uuid, tombstone.budget_uuid), (collected_uuid(), Some(Uuid::max())));
    assert_eq!(tombstone.spent.as_ref().map(|spent| spent.tokens_in), Some(history.spent.tokens_in));
    assert!(history.spent.tokens_in > 0);
}

/// A process that got another name and another model, and a name once more after its end. Then it was resumed.
fn make_renamed(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    step(&mut writer, "one", "1");
    append(&mut writer, vec![with_request(renamed("second"), "rename"), new_model("script/second.yaml")]);
    step(&mut writer, "two", "2");
    end(fixture, writer);
    let third = relive_journal::record::Renamed { name: "third".to_owned(), req: None };
    fixture.data.rename_ended(uuid(), third, crate::support::moment()).unwrap();
    drop(fixture.resume(uuid()));
}

fn check_renamed(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.identity.as_ref().unwrap().spawned.name.as_deref(), Some("third"));
    assert_eq!(history.model.as_deref(), Some("script/second.yaml"));
    assert!(history.request("rename").is_some());
    assert_eq!((history.completed_step, history.incarnations.len()), (2, 2));
    assert!(history.incarnations[0].ended.is_some(), "a name after the end changes nothing about the end");
    let text = String::from_utf8(journal(fixture)).unwrap();
    assert_eq!(text.matches("\"skip\":true").count(), 3);
    let forked = fixture.fork(uuid(), ForkPoint::Step(1)).unwrap();
    assert_eq!(forked.history().model, None, "what came after the step is not the fork's");
}

/// A process that may run some commands from its start, and another one by an answer; a model call that failed.
fn make_rules(fixture: &Fixture) {
    let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
    let allowed = [("shell:git status*".to_owned(), Permission::Allow), ("shell".to_owned(), Permission::Ask)];
    request.spawned.policy = Policy::default().with(&allowed.into());
    let mut writer = fixture.data.spawn(request).unwrap();
    append(&mut writer, vec![model_started()]);
    let cause = Some("the connection was lost".to_owned());
    append(&mut writer, vec![Body::Partial(Partial { cause, ..Partial::default() })]);
    append(&mut writer, vec![model_started(), model_ended("two commands", 2)]);
    let call_started = |call, rule: &str| {
        let (name, rule) = ("shell".to_owned(), rule.parse().ok());
        Body::CallStarted(CallStarted { call, name, recovery: Recovery::Join, rule })
    };
    append(&mut writer, vec![call_started(0, "shell:git status*"), call_ended(0, "clean")]);
    let name = Some("shell".to_owned());
    let asked = Approval {
        call: 1,
        name,
        decision: Decision::Asked,
        always: false,
        rule: None,
        host: None,
        reason: None,
        req: None,
        key: None,
    };
    let rule = CommandRule::exactly("ls *; pwd").ok();
    append(&mut writer, vec![Body::Approval(asked.clone()), paused(SuspendReason::Approval)]);
    append(&mut writer, vec![Body::Approval(Approval { decision: Decision::Allowed, rule, ..asked }), resumed()]);
    writer.checkpoint().unwrap();
    append(&mut writer, vec![call_started(1, r"shell:ls \*; pwd"), call_ended(1, "/")]);
}

fn check_rules(fixture: &Fixture) {
    let history = fixture.history(uuid());
    let permit = |command| history.permit(9, "shell", Some(command));
    let by_rule = |rule: &str| Permit::ByRule(rule.parse().unwrap());
    assert_eq!(permit("git status -s"), by_rule("shell:git status*"));
    assert_eq!(permit("ls *; pwd"), by_rule(r"shell:ls \*; pwd"));
    assert_eq!(permit("ls a; pwd"), Permit::Needed);
    assert!(history.always.is_empty(), "a reader that does not know the rule takes the answer for one call");
    let lines = journal(fixture);
    assert!(memchr::memmem::find(&lines, b"\"rule\":\"shell:git status*\"").is_some());
    assert!(memchr::memmem::find(&lines, b"\"cause\":\"the connection was lost\"").is_some());
}

/// A process whose network is a list, and answers about two hosts of a command under way.
fn make_network(fixture: &Fixture) {
    let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
    request.spawned.isolated = Some(Isolated {
        isolation: Isolation::Confined,
        network: "allow:a.com,*.b.com".parse().ok(),
        ..Isolated::default()
    });
    let mut writer = fixture.data.spawn(request).unwrap();
    append(&mut writer, vec![model_started(), model_ended("a command", 1)]);
    let (name, recovery) = ("shell".to_owned(), Recovery::Join);
    append(&mut writer, vec![Body::CallStarted(CallStarted { call: 0, name, recovery, rule: None })]);
    for (host, decision) in [("c.com", Decision::Allowed), ("d.com", Decision::Denied)] {
        let asked = Approval {
            call: 0,
            name: Some("network".to_owned()),
            decision: Decision::Asked,
            always: false,
            rule: None,
            host: Some(host.to_owned()),
            reason: None,
            req: None,
            key: None,
        };
        append(&mut writer, vec![Body::Approval(asked.clone()), paused(SuspendReason::Approval)]);
        append(&mut writer, vec![Body::Approval(Approval { decision, ..asked }), resumed()]);
    }
    writer.checkpoint().unwrap();
    append(&mut writer, vec![call_ended(0, "reached")]);
}

fn check_network(fixture: &Fixture) {
    let history = fixture.history(uuid());
    let isolated = history.identity.as_ref().unwrap().spawned.isolated.clone().unwrap();
    assert_eq!(isolated.network.unwrap().to_string(), "allow:a.com,*.b.com");
    let hosts: Vec<_> = history.hosts.iter().map(|(host, decision)| (host.as_str(), *decision)).collect();
    assert_eq!(hosts, [("c.com", Decision::Allowed), ("d.com", Decision::Denied)]);
    assert!(history.question().is_none() && history.always.is_empty());
    // An answer about a host is none about a call.
    assert_eq!(history.permit(0, "shell", Some("curl c.com")), Permit::Needed);
}

fn other(number: u8) -> Uuid {
    relive_core::uuid_v7(Timestamp::from_millisecond(1_700_000_000_000).unwrap(), [number; 10])
}

/// A process that got handles, gave one up, and was forked.
fn make_handles(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    step(&mut writer, "one", "1");
    let granted = |number, rights, by| Body::Granted(Granted { target: other(number), rights, by, req: None });
    append(&mut writer, vec![granted(1, Rights::Owner, None), granted(2, Rights::Observer, Some(other(9)))]);
    append(&mut writer, vec![granted(2, Rights::Controller, None), granted(3, Rights::Observer, None)]);
    append(&mut writer, vec![Body::Released(Released { target: other(3), req: Some("grant:r".to_owned()) })]);
    step(&mut writer, "two", "2");
}

fn check_handles(fixture: &Fixture) {
    let history = fixture.history(uuid());
    let held: Vec<(Uuid, Rights)> = history.handles.clone().into_iter().collect();
    assert_eq!(held, [(other(1), Rights::Owner), (other(2), Rights::Controller)]);
    assert_eq!(history.children, [other(1)]);
    assert!(history.request("grant:r").is_some());
    // A fork observes the children of its prefix, and has nothing else of its original.
    let fork = fixture.fork(uuid(), ForkPoint::Step(2)).unwrap();
    let held: Vec<(Uuid, Rights)> = fork.history().handles.clone().into_iter().collect();
    assert_eq!((held, fork.history().children.len()), (vec![(other(1), Rights::Observer)], 0));
}

/// A process that was paused and resumed by another one, and then ended itself.
fn make_own_end(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    step(&mut writer, "one", "1");
    let cause = Some(Cause::process(Why::Parent, relive_core::Pid(4)));
    let (Body::Paused(pause), Body::Resumed(resume)) = (paused(SuspendReason::User), resumed()) else { return };
    append(&mut writer, vec![Body::Paused(relive_journal::record::Paused { cause, ..pause })]);
    append(&mut writer, vec![Body::Resumed(relive_journal::record::Resumed { cause, ..resume })]);
    let end = End { reason: Some("enough".into()), ..End::of(relive_core::ProcessStatus::Exited { code: 3 }) };
    let (signal, cause) = (Signal::Kill, Cause::process(Why::User, relive_core::Pid(1)));
    let signalled = Signalled { signal, cause, end: Some(Box::new(end)), pending: false, req: None };
    append(&mut writer, vec![Body::Signalled(signalled)]);
}

fn check_own_end(fixture: &Fixture) {
    let history = fixture.history(uuid());
    let ending = history.ending.unwrap();
    assert_eq!(ending.signal, Signal::Kill, "older readers end it all the same");
    let end = ending.end.unwrap();
    assert_eq!((end.exit().code, &*end.exit().reason), (3, "enough"));
    let journal = journal(fixture);
    let names_parent = |line: &&[u8]| memchr::memmem::find(line, b"\"why\":\"parent\"").is_some();
    assert_eq!(lines(&journal).into_iter().filter(names_parent).count(), 2);
}

/// A tree whose definition is in a blob.
fn make_flow(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    let json = |text: &str| Some(relive_journal::payload::Json::parse(text).unwrap());
    let definition = json(&format!("{{\"kind\":\"compose\",\"note\":\"{}\"}}", "x".repeat(70_000)));
    append(&mut writer, vec![Body::Flow(FlowRecord { definition, event: None, req: None })]);
    let event = json("{\"event\":\"starting\",\"slot\":\"a\"}");
    append(&mut writer, vec![Body::Flow(FlowRecord { definition: None, event, req: Some("node:n".to_owned()) })]);
    step(&mut writer, "one", "1");
}

fn check_flow(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.request("node:n").map(|answered| (answered.kind, answered.seq)), Some(("flow", 5)));
    let bytes = journal(fixture);
    let records: Vec<FlowRecord> = lines(&bytes)
        .into_iter()
        .filter(|line| memchr::memmem::find(line, b"\"kind\":\"flow\"").is_some())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let directory = fixture.data.directory(uuid());
    let blobs = relive_journal::payload::Blobs::new(fixture.data.io().disk.clone(), directory.path());
    let definition = blobs.json(records[0].definition.as_ref().unwrap()).unwrap();
    assert_eq!(definition.len(), 70_000 + "{\"kind\":\"compose\",\"note\":\"\"}".len());
    assert_eq!(blobs.json(records[1].event.as_ref().unwrap()).unwrap(), "{\"event\":\"starting\",\"slot\":\"a\"}");
}

/// A CLI agent that asked for a permission, and whose second turn is open.
fn make_cli(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let agent = CliAgent {
        agent: "claude".to_owned(),
        dialect: "claude".to_owned(),
        command: words("claude -p"),
        start: words("--session-id {session}"),
        resume: words("--resume {session}"),
        fork: words("--resume {origin} --fork-session"),
        with_model: words("--model {model}"),
        model: Some("opus".to_owned()),
        yes: false,
        until_idle: true,
        no_gateway: false,
        terminal: false,
        ..CliAgent::default()
    };
    append(&mut writer, vec![Body::Cli(CliRecord { agent: Some(Box::new(agent)), ..CliRecord::default() })]);
    let launched = Some(CliLaunch { argv: words("claude -p --session-id 7"), how: CliStart::New, gateway: None });
    append(&mut writer, vec![Body::Cli(CliRecord { launched, ..CliRecord::default() })]);
    append(&mut writer, vec![Body::Cli(CliRecord { sent: Some(3), ..CliRecord::default() })]);
    let session = Some(CliSession { id: "7".to_owned(), model: Some("claude-opus-5".to_owned()) });
    let turn = |state, input| Some(CliTurn { state, input, message: None, reported: Some((10, 2)) });
    let read = |offset| Some(CliRead { session: 1, offset });
    let open = CliRecord { session, turn: turn(CliTurnState::Open, Some(3)), read: read(20), ..CliRecord::default() };
    append(&mut writer, vec![Body::Cli(open), model_started(), model_ended("one", 1)]);
    let (name, key) = (Some("Bash".to_owned()), Some("\"f624\"".to_owned()));
    let asked = Approval {
        call: 0,
        name,
        decision: Decision::Asked,
        always: false,
        rule: None,
        host: None,
        reason: None,
        req: None,
        key,
    };
    append(&mut writer, vec![Body::Approval(asked.clone()), paused(SuspendReason::Approval)]);
    append(&mut writer, vec![Body::Approval(Approval { decision: Decision::Denied, ..asked }), resumed()]);
    writer.checkpoint().unwrap();
    let done = CliRecord { turn: turn(CliTurnState::Completed, None), read: read(900), ..CliRecord::default() };
    append(&mut writer, vec![call_ended(0, "no"), Body::Cli(done), input("more", "more")]);
    let open = CliRecord { turn: turn(CliTurnState::Open, Some(15)), ..CliRecord::default() };
    append(&mut writer, vec![Body::Cli(open)]);
}

fn check_cli(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.last_answer.as_ref().and_then(|answer| answer.key.as_deref()), Some("\"f624\""));
    let facts = history.cli.as_deref().unwrap();
    assert_eq!((facts.agent.agent.as_str(), facts.agent.until_idle), ("claude", true));
    assert_eq!((facts.session_id.as_deref(), facts.model.as_deref()), (Some("7"), Some("claude-opus-5")));
    assert_eq!((facts.heard, facts.reported, facts.is_turn_open()), (15, (10, 2), true));
    assert_eq!((facts.read, facts.launches.len()), (Some(CliRead { session: 1, offset: 900 }), 1));
    // A fork continues a copy of the conversation, and has one of its own only when the CLI has named it.
    let fork = fixture.fork(uuid(), ForkPoint::End).unwrap();
    let facts = fork.history().cli.as_deref().unwrap();
    assert_eq!((facts.session_id.as_deref(), facts.origin_session.as_deref()), (None, Some("7")));
    assert_eq!((facts.is_turn_open(), facts.read, facts.launches.len()), (false, None, 0));
}
