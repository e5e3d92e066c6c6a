//! The execution time of a process: from records, from the pulse, and despite clock changes.

use proptest::prelude::*;
use relive_core::{Moment, Pid, SuspendReason, Timestamp, Uuid};
use relive_journal::data::{Beat, ForkPoint};
use relive_journal::record::{Body, CliRecord, OpenedBy, Proceeded};
use relive_journal::{Durability, History, Opening, ProcInfo, Seen, Writer};

use crate::additions;
use crate::open_and_repair::reseal;
use crate::support::{
    Fixture, cases, completed, fork_request, input, lines, model_ended, model_started, open_journal, opening, paused,
    put, remove, resumed, spawn_request, uuid, uuid_of,
};

/// Returns a moment of a boot, with an arbitrary wall clock time.
fn up(up_ms: u64) -> Moment {
    let anything = i64::try_from(up_ms.wrapping_mul(7_919) % 1_000_000).unwrap();
    Moment { at: Timestamp::from_second(1_700_000_000 + anything).unwrap(), up_ms }
}

fn open_at(pid: Pid, by: OpenedBy, boot_id: &str, up_ms: u64) -> Opening {
    Opening { boot_id: boot_id.to_owned(), now: up(up_ms), ..opening(pid, by) }
}

fn spawn_at(fixture: &Fixture, up_ms: u64) -> Writer {
    let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
    request.opening.now = up(up_ms);
    fixture.data.spawn(request).unwrap()
}

fn append_at(writer: &mut Writer, up_ms: u64, body: Body) {
    writer.append(up(up_ms), vec![body], Durability::Synced).unwrap();
}

/// Returns the time from the journal, and checks that a new reader agrees, also from a checkpoint.
fn ran_ms(fixture: &Fixture, writer: &mut Writer) -> u64 {
    let (uuid, history) = (uuid_of(writer), writer.history().clone());
    remove(&writer.directory().checkpoint());
    assert_eq!(fixture.history(uuid), history);
    writer.checkpoint().unwrap();
    assert_eq!(fixture.history(uuid), history, "from its checkpoint");
    assert_eq!(ProcInfo::of(&history).unwrap().elapsed_ms(), history.ran_ms());
    history.ran_ms()
}

/// Opens a journal whose daemon was killed, like the next daemon.
fn recover_at(fixture: &Fixture, uuid: Uuid, boot_id: &str, up_ms: u64) -> Writer {
    let opening = open_at(fixture.data.next_pid().unwrap(), OpenedBy::Recovery, boot_id, up_ms);
    open_journal(&fixture.data, uuid, &opening).unwrap()
}

fn beat(fixture: &Fixture, boot_id: &str, from_ms: u64, up_ms: u64) {
    fixture.data.beat(&Beat { boot_id: boot_id.to_owned(), from_ms, up_ms }).unwrap();
}

#[test]
fn only_time_between_start_or_resume_and_pause_or_end_counts() {
    let fixture = Fixture::new();
    let mut writer = spawn_at(&fixture, 1_000);
    assert_eq!(ran_ms(&fixture, &mut writer), 0);
    append_at(&mut writer, 1_200, model_started());
    assert_eq!(ran_ms(&fixture, &mut writer), 200);
    append_at(&mut writer, 1_300, paused(SuspendReason::User));
    append_at(&mut writer, 5_000, model_ended("one", 0));
    assert_eq!(ran_ms(&fixture, &mut writer), 300, "what follows an early pause does not count");
    append_at(&mut writer, 6_000, paused(SuspendReason::Quota));
    append_at(&mut writer, 7_000, resumed());
    append_at(&mut writer, 7_050, input("more", "more"));
    assert_eq!(ran_ms(&fixture, &mut writer), 350);
    append_at(&mut writer, 7_100, completed());
    assert_eq!(ran_ms(&fixture, &mut writer), 400);
    let uuid = uuid_of(&writer);
    drop(writer);

    let mut writer = recover_at(&fixture, uuid, "boot", 90_000);
    assert_eq!(ran_ms(&fixture, &mut writer), 400, "dead, nothing runs");
    append_at(&mut writer, 90_007, input("again", "more"));
    assert_eq!(ran_ms(&fixture, &mut writer), 407);
}

/// Returns a program that waits at its gate.
fn spawn_at_gate(fixture: &Fixture, up_ms: u64) -> Writer {
    let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
    request.opening.now = up(up_ms);
    request.spawned.body = "exec".to_owned();
    let program = serde_json::json!({ "argv": ["make"], "gate": true });
    request.spawned.program = Some(serde_json::from_value(program).unwrap());
    (request.meta, request.input) = (None, None);
    fixture.data.spawn(request).unwrap()
}

fn proceeded() -> Body {
    Body::Proceeded(Proceeded {})
}

#[test]
fn time_at_a_gate_does_not_count() {
    let fixture = Fixture::new();
    let mut writer = spawn_at_gate(&fixture, 1_000);
    append_at(&mut writer, 2_000, paused(SuspendReason::User));
    append_at(&mut writer, 3_000, resumed());
    append_at(&mut writer, 4_000, input("more", "more"));
    assert_eq!(ran_ms(&fixture, &mut writer), 0, "nor does a resume start the time");
    assert!(!writer.history().stopwatch().is_running());
    let uuid = uuid_of(&writer);
    drop(writer);
    beat(&fixture, "boot", 900, 5_000);

    let fixture = fixture.reopen();
    let mut writer = recover_at(&fixture, uuid, "boot", 6_000);
    append_at(&mut writer, 7_000, input("even", "more"));
    assert_eq!(ran_ms(&fixture, &mut writer), 0, "it still waits after a restart");
    append_at(&mut writer, 8_000, proceeded());
    append_at(&mut writer, 8_300, completed());
    assert_eq!(ran_ms(&fixture, &mut writer), 300);
    drop(writer);

    let mut writer =
        open_journal(&fixture.data, uuid, &open_at(fixture.data.next_pid().unwrap(), OpenedBy::Resume, "boot", 20_000))
            .unwrap();
    append_at(&mut writer, 21_000, paused(SuspendReason::User));
    append_at(&mut writer, 22_000, proceeded());
    append_at(&mut writer, 23_000, resumed());
    append_at(&mut writer, 23_050, input("again", "more"));
    assert_eq!(ran_ms(&fixture, &mut writer), 350, "a program that is started again waits at its gate again");
}

#[test]
fn time_until_the_last_pulse_of_a_killed_daemon_counts() {
    for (pulse, expected, why) in [
        (None, 200, "nothing but the last record is known"),
        (Some(("boot", 900, 1_900)), 900, "until the pulse"),
        (Some(("boot", 900, 1_100)), 200, "a pulse before the last record says nothing"),
        (Some(("another", 900, 1_900)), 200, "the clock of another boot says nothing"),
        (Some(("boot", 1_500, 1_900)), 200, "a daemon that started later never ran it"),
    ] {
        let fixture = Fixture::new();
        let mut writer = spawn_at(&fixture, 1_000);
        append_at(&mut writer, 1_200, model_started());
        let uuid = uuid_of(&writer);
        drop(writer);
        if let Some((boot_id, from, up)) = pulse {
            beat(&fixture, boot_id, from, 10 * up);
            beat(&fixture, boot_id, from, up);
        }
        let fixture = fixture.reopen();
        beat(&fixture, "boot", 49_000, 49_000);
        let mut writer = recover_at(&fixture, uuid, "boot", 50_000);
        assert_eq!(ran_ms(&fixture, &mut writer), expected, "{why}");
        let history = fixture.history(uuid);
        assert_eq!(history.stopwatch().elapsed_ms(50_300), expected + 300, "and it runs again");
    }
}

#[test]
fn after_a_reboot_time_counts_until_the_last_record() {
    let fixture = Fixture::new();
    let mut writer = spawn_at(&fixture, 1_000);
    append_at(&mut writer, 1_200, model_started());
    let uuid = uuid_of(&writer);
    drop(writer);
    beat(&fixture, "boot", 900, 1_900);
    let fixture = fixture.reopen();
    let mut writer = recover_at(&fixture, uuid, "another", 50);
    assert_eq!(ran_ms(&fixture, &mut writer), 200, "a pulse that was never synced may be any");
    append_at(&mut writer, 60, input("more", "more"));
    assert_eq!(ran_ms(&fixture, &mut writer), 210);
}

#[test]
fn a_pulse_adds_no_time_to_a_paused_process() {
    for still in [paused(SuspendReason::User), completed()] {
        let fixture = Fixture::new();
        let mut writer = spawn_at(&fixture, 1_000);
        append_at(&mut writer, 1_200, still);
        let uuid = uuid_of(&writer);
        drop(writer);
        beat(&fixture, "boot", 900, 9_000);
        let fixture = fixture.reopen();
        assert_eq!(ran_ms(&fixture, &mut recover_at(&fixture, uuid, "boot", 50_000)), 200);
    }
}

#[test]
fn time_does_not_count_while_suspended_across_a_restart() {
    let fixture = Fixture::new();
    let mut writer = spawn_at(&fixture, 1_000);
    append_at(&mut writer, 1_200, paused(SuspendReason::User));
    let uuid = uuid_of(&writer);
    drop(writer);
    let mut writer = recover_at(&fixture, uuid, "boot", 50_000);
    append_at(&mut writer, 51_000, input("more", "more"));
    assert_eq!(ran_ms(&fixture, &mut writer), 200);
    append_at(&mut writer, 52_000, resumed());
    append_at(&mut writer, 52_003, model_started());
    assert_eq!(ran_ms(&fixture, &mut writer), 203);
}

#[test]
fn an_observed_time_overrides_the_pulse() {
    for (seen, expected) in [(("boot", 4_000), 3_000), (("boot", 1_100), 200), (("another", 4_000), 200)] {
        let fixture = Fixture::new();
        let mut writer = spawn_at(&fixture, 1_000);
        append_at(&mut writer, 1_200, input("more", "more"));
        let uuid = uuid_of(&writer);
        drop(writer);
        beat(&fixture, "boot", 900, 9_000);
        let fixture = fixture.reopen();
        let seen = Some(Seen { boot_id: seen.0.to_owned(), up_ms: seen.1 });
        let opening = Opening { seen, ..open_at(Pid(7), OpenedBy::Recovery, "boot", 50_000) };
        assert_eq!(ran_ms(&fixture, &mut open_journal(&fixture.data, uuid, &opening).unwrap()), expected);
    }
}

#[test]
fn a_fork_has_not_run_yet() {
    let fixture = Fixture::new();
    let mut writer = spawn_at(&fixture, 1_000);
    append_at(&mut writer, 1_200, model_started());
    append_at(&mut writer, 1_300, model_ended("one", 0));
    let opening = open_at(Pid(9), OpenedBy::Spawn, "boot", 2_000);
    let mut fork = fixture.data.fork(fork_request(uuid(), uuid_of(&writer), ForkPoint::Step(1), opening)).unwrap();
    assert_eq!(ran_ms(&fixture, &mut fork), 0);
    append_at(&mut fork, 2_040, input("more", "more"));
    assert_eq!((ran_ms(&fixture, &mut fork), ran_ms(&fixture, &mut writer)), (40, 300));
}

/// Removes `up` from a journal, as older versions of Relive wrote it.
fn without_up(fixture: &Fixture, uuid: Uuid) {
    let path = fixture.data.directory(uuid).steps();
    let text = String::from_utf8(std::fs::read(&path).unwrap()).unwrap();
    let mut old = String::new();
    for line in text.lines() {
        let (head, rest) = line.split_once(",\"up\":").unwrap();
        let (_, rest) = rest.split_once(',').unwrap();
        let rest = rest
            .split_once(",\"ran_ms\":")
            .map_or(rest.to_owned(), |(before, after)| format!("{before},{}", after.split_once(',').unwrap().1));
        old.push_str(&format!("{head},{rest}\n"));
    }
    put(&path, &reseal(old.as_bytes()));
    remove(&fixture.data.directory(uuid).checkpoint());
}

#[test]
fn a_journal_without_up_keeps_its_time_and_counts_from_its_next_opening() {
    let fixture = Fixture::new();
    let at =
        |ms: u64| Moment { at: Timestamp::from_millisecond(1_700_000_000_000 + ms.cast_signed()).unwrap(), up_ms: ms };
    let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
    request.opening.now = at(0);
    let mut writer = fixture.data.spawn(request).unwrap();
    let pause = |ms: u64| {
        let Body::Paused(pause) = paused(SuspendReason::User) else { panic!("no pause") };
        Body::Paused(relive_journal::record::Paused { asked_at: at(ms).at, ..pause })
    };
    writer.append(at(1_000), vec![pause(1_000)], Durability::Synced).unwrap();
    writer.append(at(5_000), vec![resumed()], Durability::Synced).unwrap();
    writer.append(at(5_500), vec![input("more", "more")], Durability::Synced).unwrap();
    let uuid = uuid_of(&writer);
    drop(writer);
    without_up(&fixture, uuid);
    let history = fixture.history(uuid);
    assert_eq!((history.ran_ms(), ProcInfo::of(&history).unwrap().ran_ms), (1_500, None));
    assert_eq!(ProcInfo::of(&history).unwrap().elapsed_ms(), 1_500);

    let opening = Opening { now: at(90_000), ..opening(Pid(9), OpenedBy::Recovery) };
    let mut writer = open_journal(&fixture.data, uuid, &opening).unwrap();
    writer.append(at(90_020), vec![model_started()], Durability::Synced).unwrap();
    assert_eq!(ran_ms(&fixture, &mut writer), 1_520, "the time without a daemon does not count");
}

#[test]
fn an_older_relive_in_between_loses_no_time() {
    let fixture = Fixture::new();
    let mut writer = spawn_at(&fixture, 1_000);
    append_at(&mut writer, 1_200, input("more", "more"));
    let uuid = uuid_of(&writer);
    drop(writer);
    let directory = fixture.data.directory(uuid);
    let new = std::fs::read(directory.steps()).unwrap();
    let mut writer = recover_at(&fixture, uuid, "boot", 7_000);
    append_at(&mut writer, 8_000, input("old", "old"));
    append_at(&mut writer, 8_100, paused(SuspendReason::User));
    append_at(&mut writer, 9_000, resumed());
    drop(writer);
    without_up(&fixture, uuid);
    let all = std::fs::read(directory.steps()).unwrap();
    let old = lines(&all)[lines(&new).len()..].concat();
    put(&directory.steps(), &reseal(&[new, old].concat()));
    assert_eq!(fixture.history(uuid).ran_ms(), 200);
    let mut writer = recover_at(&fixture, uuid, "boot", 20_000);
    append_at(&mut writer, 20_030, input("new", "new"));
    assert_eq!(ran_ms(&fixture, &mut writer), 230);
}

#[test]
fn a_pulse_is_overwritten_in_place_and_garbage_is_ignored() {
    let fixture = Fixture::new();
    let path = fixture.temp.path().join("pulse");
    beat(&fixture, "a boot with a long name", 1, 1_000_000);
    let long = std::fs::metadata(&path).unwrap().len();
    let before = fixture.disk().counts();
    beat(&fixture, "boot", 1, 9_000);
    let counts = fixture.disk().counts().since(before);
    assert_eq!((counts.writes, counts.syncs, counts.renames, counts.opens), (1, 0, 0, 0));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), long, "the end of the longer one is still there");

    let mut writer = spawn_at(&fixture, 1_000);
    append_at(&mut writer, 1_200, model_started());
    let uuid = uuid_of(&writer);
    drop(writer);
    let pulse = std::fs::read(&path).unwrap();
    let ran_with = |fixture: Fixture, pulse: &[u8]| {
        put(&path, pulse);
        let fixture = fixture.reopen();
        let journal = std::fs::read(fixture.data.directory(uuid).steps()).unwrap();
        let ran = recover_at(&fixture, uuid, "boot", 50_000).history().ran_ms();
        put(&fixture.data.directory(uuid).steps(), &journal);
        (fixture, ran)
    };
    let (mut fixture, ran) = ran_with(fixture, &pulse);
    assert_eq!(ran, 8_000);
    for rubbish in [&b""[..], b"\n", b"{}\n", &pulse[1..], &[0; 128]] {
        let (again, ran) = ran_with(fixture, rubbish);
        assert_eq!(ran, 200, "{}", String::from_utf8_lossy(rubbish));
        fixture = again;
    }
}

#[test]
fn up_adds_at_most_20_bytes_to_a_record() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    // A machine that was started a year ago.
    let now = up(365 * 24 * 3600 * 1000);
    writer.append(now, vec![input("more", "more")], Durability::Synced).unwrap();
    let bytes = std::fs::read(writer.directory().steps()).unwrap();
    let line = String::from_utf8(lines(&bytes).last().unwrap().to_vec()).unwrap();
    assert!(line.contains("\"up\":31536000000,"), "{line}");
    assert!("\"up\":31536000000,".len() <= 20);
}

/// An event in the life of a process, after this many milliseconds.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Record,
    Pause,
    Resume,
    /// It waits for a place in the pool, or has one.
    Queue(bool),
    End,
    /// The daemon is killed this long after its last pulse, and the next one starts this much later.
    Kill {
        after_pulse: u64,
        down: u64,
    },
    Reboot {
        down: u64,
    },
}

fn happens() -> impl Strategy<Value = (u64, Happens)> {
    let kind = prop_oneof![
        4 => Just(Happens::Record),
        3 => Just(Happens::Pause),
        3 => Just(Happens::Resume),
        3 => any::<bool>().prop_map(Happens::Queue),
        1 => Just(Happens::End),
        2 => (0_u64..1_000, 0_u64..10_000).prop_map(|(after_pulse, down)| Happens::Kill { after_pulse, down }),
        1 => (0_u64..10_000).prop_map(|down| Happens::Reboot { down }),
    ];
    (0_u64..5_000, kind)
}

fn cli(record: CliRecord) -> Body {
    Body::Cli(record)
}

/// A process, and an independent stopwatch.
struct Watched {
    fixture: Option<Fixture>,
    writer: Option<Writer>,
    uuid: Uuid,
    up: u64,
    boot: u64,
    started: u64,
    ran: u64,
}

impl Watched {
    fn history(&self) -> &History {
        self.writer.as_ref().unwrap().history()
    }

    fn runs(&self) -> bool {
        let history = self.history();
        history.paused.is_none() && history.ended().is_none() && !history.is_queued()
    }

    fn reopen(&mut self, by: OpenedBy) {
        self.writer = None;
        let mut fixture = self.fixture.take().unwrap();
        if by == OpenedBy::Recovery {
            fixture = fixture.reopen();
            self.started = self.up;
        }
        let opening = open_at(fixture.data.next_pid().unwrap(), by, &self.boot.to_string(), self.up);
        self.writer = Some(open_journal(&fixture.data, self.uuid, &opening).unwrap());
        self.fixture = Some(fixture);
    }

    fn happen(&mut self, after: u64, what: Happens) {
        let last_record = self.up;
        self.up += after;
        let runs = self.runs();
        if runs {
            self.ran += after;
        }
        match what {
            Happens::Record | Happens::Pause | Happens::Resume | Happens::Queue(_) | Happens::End
                if self.history().ended().is_some() =>
            {
                self.reopen(OpenedBy::Resume);
                assert!(!self.history().is_queued(), "a new run waits only if it says so");
            }
            Happens::Queue(queued) => self.append(cli(CliRecord { queued: Some(queued), ..CliRecord::default() })),
            Happens::Resume if self.history().paused.is_none() => self.append(input("more", "more")),
            Happens::Record => self.append(input("more", "more")),
            Happens::Pause => self.append(paused(SuspendReason::User)),
            Happens::Resume => self.append(resumed()),
            Happens::End => self.append(completed()),
            Happens::Kill { after_pulse, down } => {
                let pulse = Beat { boot_id: self.boot.to_string(), from_ms: self.started, up_ms: self.up };
                self.fixture.as_ref().unwrap().data.beat(&pulse).unwrap();
                self.up += after_pulse + down;
                self.reopen(OpenedBy::Recovery);
            }
            Happens::Reboot { down } => {
                if runs {
                    self.ran -= self.up - last_record;
                }
                (self.boot, self.up) = (self.boot + 1, down);
                self.reopen(OpenedBy::Recovery);
            }
        }
    }

    fn append(&mut self, body: Body) {
        append_at(self.writer.as_mut().unwrap(), self.up, body);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn the_execution_time_matches_a_stopwatch_after_any_events(
        all in proptest::collection::vec(happens(), 1..25),
    ) {
        let fixture = Fixture::new();
        let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
        (request.opening.now, request.opening.boot_id) = (up(77), "0".to_owned());
        let writer = fixture.data.spawn(request).unwrap();
        let uuid = uuid_of(&writer);
        let mut watched = Watched {
            fixture: Some(fixture), writer: Some(writer), uuid, up: 77, boot: 0, started: 0, ran: 0,
        };
        let agent = Some(Box::new(relive_types::CliAgent::default()));
        watched.append(cli(CliRecord { agent, ..CliRecord::default() }));
        for (after, what) in all {
            watched.happen(after, what);
            let stopwatch = watched.history().stopwatch();
            prop_assert_eq!(stopwatch.elapsed_ms(watched.up), watched.ran, "after {:?}", what);
            prop_assert_eq!(stopwatch.is_running(), watched.runs());
        }
        ran_ms(watched.fixture.as_ref().unwrap(), watched.writer.as_mut().unwrap());
    }
}

/// A program that waited at its gate for a minute and was paused 0.2 s after it began.
pub(crate) fn make_gate(fixture: &Fixture) {
    let mut request = spawn_request(additions::uuid(), fixture.data.next_pid().unwrap());
    request.opening.now = additions::at(0);
    request.spawned.body = "exec".to_owned();
    request.spawned.program = serde_json::from_value(serde_json::json!({ "argv": ["make"], "gate": true })).unwrap();
    (request.meta, request.input) = (None, None);
    let mut writer = fixture.data.spawn(request).unwrap();
    writer.append(additions::at(60_000), vec![Body::Proceeded(Proceeded {})], Durability::Synced).unwrap();
    writer.checkpoint().unwrap();
    writer.append(additions::at(60_200), vec![paused(SuspendReason::User)], Durability::Synced).unwrap();
}

pub(crate) fn check_gate(fixture: &Fixture) {
    let history = fixture.history(additions::uuid());
    assert_eq!(history.ran_ms(), 200);
    let journal = additions::journal(fixture);
    assert!(memchr::memmem::find(&journal, b"\"kind\":\"proceeded\",\"step\":0,\"skip\":true").is_some());
    assert!(memchr::memmem::find(&journal, b"\"held\":true").is_some());
}
