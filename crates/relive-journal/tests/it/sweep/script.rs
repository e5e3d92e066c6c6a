//! A script that uses every part of a data directory like a sensible caller: an error is not an acknowledgement, a full
//! disk is relieved and tried again, a poisoned writer is dropped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_core::{Generation, Pid, Signal, SuspendReason, Timestamp, Uuid, uuid_v7};
use relive_journal::data::{ClockReading, Collected, ForkPoint, ForkRequest, GcRules, Known, SpaceRules, SpawnRequest};
use relive_journal::faults::Faults;
use relive_journal::record::{Body, OpenedBy, Paused};
use relive_journal::recovery::Recovery;
use relive_journal::{
    DataDirectory, Disk, Durability, Health, History, Io, Opening, PendingSync, ProcInfo, WriteError, Writer,
};

use super::oracle::{Fact, Oracle};
use crate::support::{
    at_moment, call_ended, call_started, completed, fork_request, input, kept, model_ended, model_started,
    open_journal, resumed, signal_mask, signalled, spawn_request, with_request,
};

pub(crate) const SPACE: SpaceRules = SpaceRules { reserve_bytes: 4096, floor_bytes: 0 };

/// More than fits into a line.
const BIG: usize = 66_000;

/// Returns the same UUID for the same name in every run, so that every run makes the same changes.
pub(crate) fn uuid_of(name: &str) -> Uuid {
    let mut random = [0; 10];
    random[..name.len()].copy_from_slice(name.as_bytes());
    uuid_v7(Timestamp::from_millisecond(1_700_000_000_000).unwrap(), random)
}

/// Tells whether a process of the script is a program, which has a journal and nothing else.
pub(crate) fn is_program(name: &str) -> bool {
    name.starts_with("program")
}

/// When the caller takes records with a concurrent sync as acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// At the end of the sync.
    Sync,
    /// At the write: wrong, and the sweep has to notice.
    Write,
}

/// Which life is lived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// One that touches everything.
    Whole,
    /// Programs that begin and end, and nothing else.
    Programs,
}

/// How a journal is opened.
enum Open {
    /// For a verb, by this generation or the next one: it is on the disk at once.
    Now(Option<Generation>),
    /// For the next incarnation of a process that a start has read: it is on the disk before anything depends on it.
    Surveyed(Option<Box<History>>),
}

pub(crate) struct Script {
    trust: Trust,
    root: PathBuf,
    faults: Arc<Faults>,
    disk: Disk,
    ticks: i64,
    data: Option<DataDirectory>,
    writers: BTreeMap<&'static str, Writer>,
    oracle: Oracle,
    violations: Vec<String>,
    /// Whether the call that failed has returned.
    returned: bool,
}

/// The result of a script.
pub(crate) struct Outcome {
    pub(crate) oracle: Oracle,
    /// The violations that the script itself found.
    pub(crate) violations: Vec<String>,
    /// Whether it was stopped inside the call that had failed.
    pub(crate) stopped_inside: bool,
}

impl Script {
    /// Runs the script to its end or until it is stopped.
    pub(crate) fn run(root: &Path, faults: &Arc<Faults>, life: Life, trust: Trust) -> Outcome {
        let disk = Disk::with_faults(Arc::clone(faults));
        let (oracle, violations) = (Oracle::default(), Vec::new());
        let (root, faults) = (root.to_owned(), Arc::clone(faults));
        let (data, writers, returned) = (None, BTreeMap::new(), false);
        let mut script = Self { trust, root, faults, disk, ticks: 0, data, writers, oracle, violations, returned };
        match life {
            Life::Whole => script.live(),
            Life::Programs => script.run_programs(),
        }
        let stopped_inside = script.over() && !script.returned;
        Outcome { oracle: script.oracle, violations: script.violations, stopped_inside }
    }

    fn live(&mut self) {
        self.start();
        self.spawn("a");
        self.spawn("b");
        self.spawn("program");
        self.two_calls("a", &"x".repeat(BIG));
        self.events("a", 12);
        self.checkpoint("a");
        self.append("a", vec![model_ended("done", 0)]);
        self.step("b", "small");
        self.pause("a");
        self.end("b");
        self.step("program", "small");
        self.end("program");
        self.fork("f", "b", ForkPoint::End);
        self.fork("c", "a", ForkPoint::Step(1));
        self.written_step("a");
        self.fork("d", "a", ForkPoint::End);
        self.sync("a");
        self.step_beside("a", "small");
        self.step("c", &"y".repeat(BIG));
        self.step_beside("c", &"v".repeat(BIG));
        self.end("d");
        self.put_away("a", &[with_request(kept(Signal::Int), "int")]);
        self.written_step("a");
        self.sync("a");
        self.reopen("a");
        self.step("a", "again");
        self.signals("f");
        self.put_away("f", &[]);
        self.checkpoint("a");
        self.collect("b");
        self.written_with_snapshot("c");
        self.restart();
        self.step("a", &"z".repeat(BIG));
        self.spawn("e");
        self.events("e", 2);
        self.end("c");
        self.collect("d");
        self.written_intent("e");
        self.restart();
        self.end("f");
        self.append("e", vec![call_ended(0, "found")]);
        self.two_calls("e", "last");
        self.reopen_ended("c");
        self.written_with_snapshot("a");
    }

    fn run_programs(&mut self) {
        self.start();
        self.spawn("program");
        self.spawn("program2");
        self.step("program", "small");
        self.end("program");
        self.spawn("program3");
        self.collect("program");
        self.restart();
        self.end("program2");
        self.reopen_ended("program2");
        self.spawn("program4");
        self.restart();
        self.end("program3");
    }

    /// Returns the time of the next call: the previous one has returned.
    fn now(&mut self) -> Timestamp {
        self.returned |= self.faults.injected().is_some() && !self.over();
        self.ticks += 1;
        Timestamp::from_millisecond(1_700_000_000_000 + self.ticks).unwrap()
    }

    fn over(&self) -> bool {
        self.faults.stopped()
    }

    fn violation(&mut self, text: String) {
        if !self.over() {
            self.violations.push(text);
        }
    }

    /// Returns whether the failed change was the sync of this process's journal.
    fn journal_sync_failed(&self, uuid: Uuid) -> bool {
        self.faults.injected().is_some_and(|change| change == format!("sync steps/{uuid}/steps.jsonl"))
    }

    fn start(&mut self) {
        for _ in 0..2 {
            if self.data.is_none() && !self.over() {
                self.now();
                let io = Io::new(self.disk.clone());
                self.data = DataDirectory::open(&self.root, io, SPACE).ok();
            }
        }
        if self.data.is_none() {
            self.violation("the data directory cannot be opened".to_owned());
        }
    }

    fn restart(&mut self) {
        self.writers.clear();
        self.data = None;
        self.start();
        let Some(data) = &self.data else { return };
        let Ok(live) = data.live().or_else(|_| data.live()) else {
            return self.violation("what is live cannot be told".to_owned());
        };
        for live in live {
            let Some(name) = self.oracle.processes.get(&live.uuid).map(|process| process.name) else { continue };
            let has_open_effect = live.history.open_calls().any(|open| open.recovery != Recovery::Rerun);
            let known = (live.health == Health::Good).then(|| Box::new(live.history));
            self.open_as(name, OpenedBy::Recovery, Open::Surveyed(known), &[]);
            if let (true, Some(writer)) = (has_open_effect, self.writers.get(name)) {
                // The call may be carried out now, so its intent has to be on the disk.
                self.oracle.acknowledge(live.uuid, journal(writer));
            }
        }
    }

    fn opening(&mut self, by: OpenedBy) -> Option<Opening> {
        let data = self.data.as_ref()?;
        let pid: Pid = data.next_pid().or_else(|_| data.next_pid()).ok()?;
        if self.oracle.pids.contains(&pid) {
            self.violations.push(format!("PID {pid} was given out twice"));
        }
        self.oracle.pids.push(pid);
        Some(Opening {
            pid,
            by,
            boot_id: "boot".to_owned(),
            now: at_moment(self.now()),
            req: None,
            seen: None,
            cause: None,
        })
    }

    /// Opens a journal for a new incarnation.
    fn open(&mut self, name: &'static str, by: OpenedBy) {
        self.open_with(name, by, None, &[]);
    }

    fn open_with(&mut self, name: &'static str, by: OpenedBy, generation: Option<Generation>, records: &[Body]) {
        self.open_as(name, by, Open::Now(generation), records);
    }

    /// Opens a journal, with these records first; a sensible caller tries twice.
    fn open_as(&mut self, name: &'static str, by: OpenedBy, how: Open, records: &[Body]) {
        let uuid = uuid_of(name);
        let mut poisoned = false;
        for _ in 0..2 {
            let Some(opening) = self.opening(by) else { return };
            let wrong_before = self.faults.injected().is_some();
            let Some(data) = &self.data else { return };
            let decide = |_: &History| Ok::<_, Infallible>(records.to_vec());
            let opened = match &how {
                Open::Now(generation) => data.open_journal(uuid, &opening, *generation, decide),
                Open::Surveyed(known) => {
                    data.open_surveyed(uuid, &opening, known.as_deref().cloned(), Durability::Written, decide)
                }
            };
            match opened.map_err(WriteError::from) {
                Ok(_) if poisoned => break,
                Ok(writer) => {
                    match how {
                        Open::Now(None) => self.oracle.reopen(uuid, journal(&writer)),
                        Open::Now(Some(_)) if !records.is_empty() => self.oracle.reopen(uuid, journal(&writer)),
                        // What a start writes is acknowledged with what follows it.
                        Open::Now(Some(_)) | Open::Surveyed(_) => {}
                    }
                    self.writers.insert(name, writer);
                    return;
                }
                Err(WriteError::Poisoned { .. }) if poisoned => return,
                Err(_) => poisoned = !wrong_before && self.journal_sync_failed(uuid),
            }
        }
        self.violation(format!("{name} cannot be opened again, or is in spite of a failed sync ({poisoned})"));
    }

    fn begun(&mut self, name: &'static str, writer: Result<Writer, String>) -> bool {
        match writer {
            Ok(mut writer) => {
                writer.events().set_max(1200);
                self.oracle.acknowledge(uuid_of(name), journal(&writer));
                self.writers.insert(name, writer);
                true
            }
            Err(error) => {
                let known = self.data.as_ref().map(|data| data.known(uuid_of(name)));
                if !matches!(known, Some(Ok(Known::Never))) {
                    self.violation(format!("{name} was refused ({error}), and is there"));
                }
                false
            }
        }
    }

    fn spawn(&mut self, name: &'static str) {
        let uuid = uuid_of(name);
        for _ in 0..2 {
            let Some(opening) = self.opening(OpenedBy::Spawn) else { return };
            let Some(data) = &self.data else { return };
            self.oracle.begin(uuid, name, None);
            let mut request = SpawnRequest { opening, ..spawn_request(uuid, Pid(0)) };
            if is_program(name) {
                request.meta = None;
            }
            let writer = data.spawn(request).map_err(|error| error.to_string());
            if self.begun(name, writer) || self.over() {
                return;
            }
        }
        self.violation(format!("{name} cannot be begun"));
    }

    fn fork(&mut self, name: &'static str, source: &'static str, point: ForkPoint) {
        let uuid = uuid_of(name);
        for _ in 0..2 {
            let Some(opening) = self.opening(OpenedBy::Spawn) else { return };
            let Some(data) = &self.data else { return };
            let Ok(original) = fs::read(data.directory(uuid_of(source)).steps()) else { return };
            let within = self.writers.get(source).map(Writer::synced_end);
            let source = uuid_of(source);
            self.oracle.begin(uuid, name, Some((source, original)));
            let request = ForkRequest { within, ..fork_request(uuid, source, point, opening) };
            match data.fork(request).map_err(|error| error.to_string()) {
                // A poisoned origin has lost the step.
                Err(_) if self.journal_sync_failed(source) => return,
                writer => {
                    if self.begun(name, writer) || self.over() {
                        return;
                    }
                }
            }
        }
        self.violation(format!("{name} cannot be forked"));
    }

    fn append(&mut self, name: &'static str, batch: Vec<Body>) {
        self.append_as(name, &batch, Durability::Synced);
    }

    fn append_as(&mut self, name: &'static str, batch: &[Body], durability: Durability) {
        let uuid = uuid_of(name);
        let Some(mut writer) = self.writers.remove(name) else { return };
        let mut full = false;
        for _ in 0..2 {
            let at = self.now();
            let wrong_before = self.faults.injected().is_some();
            let error = match writer.append(at_moment(at), batch.to_vec(), durability) {
                Ok(()) => {
                    if durability == Durability::Synced {
                        self.oracle.acknowledge(uuid, journal(&writer));
                    }
                    self.writers.insert(name, writer);
                    return;
                }
                Err(error) => error,
            };
            if !wrong_before && self.journal_sync_failed(uuid) {
                return self.check_poisoned(name, writer);
            }
            if wrong_before && matches!(error, WriteError::Misplaced { .. }) {
                // The record before it was refused.
                self.writers.insert(name, writer);
                return;
            }
            full = matches!(error, WriteError::DiskFull { .. });
            if matches!(&error, WriteError::Io { source, .. } if source.kind() == ErrorKind::StorageFull) {
                self.violation(format!("{name}: a full disk is not said to be one: {error}"));
            }
            if let (true, Some(data)) = (full, &self.data) {
                // Even if the reserve cannot be released, there may be space by now.
                let _ = data.release_reserve();
            } else if matches!(error, WriteError::Poisoned { .. } | WriteError::Misplaced { .. }) {
                self.violation(format!("{name}: {error}"));
            }
        }
        self.violation(format!("{name} takes nothing more after an error that is no poison (full: {full})"));
    }

    fn check_poisoned(&mut self, name: &'static str, mut writer: Writer) {
        let at = self.now();
        let again = writer.append(at_moment(at), vec![input("more", "more")], Durability::Synced);
        if !matches!(again, Err(WriteError::Poisoned { .. })) {
            self.violation(format!("{name}: a sync failed and the writer goes on: {again:?}"));
        }
        drop(writer);
        let Some(opening) = self.opening(OpenedBy::Resume) else { return };
        let Some(data) = &self.data else { return };
        let opened = open_journal(data, uuid_of(name), &opening);
        if !matches!(opened, Err(WriteError::Poisoned { .. })) {
            self.violation(format!("{name}: a sync failed and the journal is opened again: {opened:?}"));
        }
    }

    /// One step with one call.
    fn step(&mut self, name: &'static str, result: &str) {
        self.append_as(name, &[model_started()], Durability::Written);
        self.append(name, vec![model_ended("text", 1), call_started(0, Recovery::Rerun)]);
        self.append(name, vec![call_ended(0, result)]);
    }

    /// Writes one step with a call that only reads: deferred records, and a sync that runs while more are written.
    fn step_beside(&mut self, name: &'static str, result: &str) {
        self.append_as(name, &[model_started()], Durability::Deferred);
        self.append_as(name, &[model_ended("text", 1), call_started(0, Recovery::Rerun)], Durability::Beside);
        let Some(mut writer) = self.writers.remove(name) else { return };
        let pending = writer.sync_beside();
        if self.trust == Trust::Write {
            self.oracle.acknowledge(uuid_of(name), journal(&writer));
        }
        self.writers.insert(name, writer);
        self.append_as(name, &[call_ended(0, result)], Durability::Written);
        self.append_as(name, &[model_started()], Durability::Deferred);
        if let Ok(Some(pending)) = pending {
            self.run_beside(name, pending);
        }
        self.append_as(name, &[model_ended("text", 0)], Durability::Written);
    }

    /// Runs a sync: the records it covers are acknowledged, and if it fails the writer is poisoned.
    fn run_beside(&mut self, name: &'static str, pending: PendingSync) {
        let uuid = uuid_of(name);
        let wrong_before = self.faults.injected().is_some();
        self.now();
        pending.run();
        if !wrong_before && self.journal_sync_failed(uuid) {
            let Some(mut writer) = self.writers.remove(name) else { return };
            if writer.sync().is_ok() {
                self.violation(format!("{name}: the sync after one that failed succeeds"));
            }
            return self.check_poisoned(name, writer);
        }
        let Some(writer) = self.writers.get(name) else { return };
        let (mut bytes, end) = (journal(writer), usize::try_from(writer.synced_end()).unwrap());
        bytes.truncate(end);
        self.oracle.acknowledge(uuid, bytes);
    }

    /// Writes one step with two calls, and the beginning of the next.
    fn two_calls(&mut self, name: &'static str, result: &str) {
        self.append_as(name, &[model_started()], Durability::Written);
        self.append(name, vec![model_ended("text", 2), call_started(0, Recovery::Join)]);
        self.append(name, vec![call_ended(0, "one"), call_started(1, Recovery::Doubt)]);
        self.append(name, vec![call_ended(1, result), model_started()]);
    }

    fn events(&mut self, name: &'static str, count: usize) {
        for number in 0..count {
            let at = self.now();
            if let Some(writer) = self.writers.get_mut(name) {
                // Events are never acknowledged.
                let _ = writer.append_event(at, 1, "open", &serde_json::json!({"number": number}));
            }
        }
    }

    fn checkpoint(&mut self, name: &'static str) {
        if let Some(writer) = self.writers.get_mut(name) {
            let _ = writer.checkpoint();
        }
    }

    fn snapshot(&mut self, name: &'static str) {
        if let Some(writer) = self.writers.get(name)
            && let Some(info) = ProcInfo::of(writer.history())
        {
            let _ = info.write(&self.disk, writer.directory());
        }
    }

    /// Writes derived files that contain more than the disk does.
    fn written_with_snapshot(&mut self, name: &'static str) {
        self.append_as(name, &[model_started()], Durability::Written);
        self.snapshot(name);
        self.checkpoint(name);
    }

    fn pause(&mut self, name: &'static str) {
        let asked_at = self.now();
        let paused = Paused { reason: SuspendReason::User, asked_at, resume_at: None, cause: None, req: None };
        self.append(name, vec![Body::Paused(paused)]);
        self.snapshot(name);
        self.append(name, vec![resumed()]);
    }

    fn end(&mut self, name: &'static str) {
        let uuid = uuid_of(name);
        if !self.writers.contains_key(name) {
            return;
        }
        self.oracle.set_ended(uuid, Fact::Asked);
        self.append(name, vec![completed()]);
        if let (Some(writer), Some(data)) = (self.writers.remove(name), &self.data) {
            self.oracle.set_ended(uuid, Fact::Acknowledged);
            // The next start completes what is interrupted here.
            let _ = data.retire(uuid, writer.history());
        }
    }

    /// Starts a new incarnation that begins with the records of its request.
    fn reopen(&mut self, name: &'static str) {
        if self.writers.remove(name).is_some() {
            let mask = signal_mask(&[Signal::Pause], &[Signal::Int]);
            self.open_with(name, OpenedBy::Resume, None, &[with_request(mask, "mask"), input("resume", "more")]);
        }
    }

    /// Closes the writer, and continues the same incarnation with these records.
    fn put_away(&mut self, name: &'static str, records: &[Body]) {
        if let Some(writer) = self.writers.remove(name) {
            let generation = writer.history().epoch;
            drop(writer);
            self.open_with(name, OpenedBy::Resume, Some(generation), records);
        }
    }

    fn signals(&mut self, name: &'static str) {
        self.append(name, vec![signal_mask(&[Signal::Pause], &[]), with_request(kept(Signal::Pause), "pause")]);
        self.append(name, vec![with_request(signalled(Signal::Term), "term")]);
        self.append(name, vec![with_request(signalled(Signal::Kill), "kill")]);
    }

    /// Writes a step, record by record, without acknowledgement.
    fn written_step(&mut self, name: &'static str) {
        self.append_as(name, &[model_started()], Durability::Written);
        self.append_as(name, &[model_ended("text", 0)], Durability::Written);
    }

    /// Writes the intent of a call with an effect, without acknowledgement: the writer dies before the sync, and the effect
    /// has not happened.
    fn written_intent(&mut self, name: &'static str) {
        self.append_as(name, &[model_started()], Durability::Written);
        self.append_as(name, &[model_ended("text", 1), call_started(0, Recovery::Join)], Durability::Written);
    }

    /// Acknowledges everything that was written.
    fn sync(&mut self, name: &'static str) {
        let Some(mut writer) = self.writers.remove(name) else { return };
        self.now();
        let wrong_before = self.faults.injected().is_some();
        match writer.sync() {
            Ok(()) => {
                self.oracle.acknowledge(uuid_of(name), journal(&writer));
                self.writers.insert(name, writer);
            }
            Err(_) if !wrong_before && self.journal_sync_failed(uuid_of(name)) => self.check_poisoned(name, writer),
            Err(error) => self.violation(format!("{name} cannot be synced: {error}")),
        }
    }

    fn reopen_ended(&mut self, name: &'static str) {
        let process = self.oracle.processes.get(&uuid_of(name));
        if !self.over() && process.is_some_and(|process| process.ended == Fact::Acknowledged) {
            // From here on it is unknown whether it counts as ended, until the new writer is acknowledged.
            self.oracle.set_ended(uuid_of(name), Fact::Asked);
            self.open(name, OpenedBy::Resume);
        }
    }

    fn collect(&mut self, name: &'static str) {
        let uuid = uuid_of(name);
        for _ in 0..2 {
            let wall = self.now();
            let Some(data) = &self.data else { return };
            let clock = ClockReading { wall, since_boot_ms: 1000, boot_id: "boot".to_owned() };
            let rules = GcRules { retention_days: None, max_entries: Some(0), older_than_ms: None };
            let Ok(survey) = data.survey(rules, &clock) else { continue };
            let Some(candidate) = survey.candidates.iter().find(|candidate| candidate.uuid == uuid) else { return };
            self.oracle.set_collected(uuid, Fact::Asked);
            if let Ok(Collected::Gone) = data.collect(candidate, wall) {
                return self.oracle.set_collected(uuid, Fact::Acknowledged);
            }
        }
    }
}

fn journal(writer: &Writer) -> Vec<u8> {
    fs::read(writer.directory().steps()).unwrap()
}
