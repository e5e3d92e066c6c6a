//! Records that were written and not synced: a power cut may lose them, so nothing else may depend on them.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use relive_core::{Generation, Uuid};
use relive_journal::data::{ForkError, ForkPoint, ForkRequest};
use relive_journal::faults::{Faults, Injection, PowerCut, Switches};
use relive_journal::record::OpenedBy;
use relive_journal::{DataDirectory, Disk, Durability, Io, WriteError, Writer};

use crate::support::{
    append, fork_request, input, lines, model_ended, model_started, moment, open, open_journal, opening, spawn_request,
    step, temp, uuid, uuid_of,
};

/// A data directory on a disk that can lose power, or fail at the n-th change.
struct Rig {
    temp: tempfile::TempDir,
    faults: Arc<Faults>,
    data: DataDirectory,
}

impl Rig {
    fn new(injection: Injection) -> Self {
        let temp = temp();
        let root = temp.path().join("data");
        Disk::new().mkdir(&root).unwrap();
        let faults = Arc::new(Faults::new(&root, injection, Switches::default()).unwrap());
        let data = open(&root, Io::new(Disk::with_faults(Arc::clone(&faults))));
        Self { temp, faults, data }
    }

    /// Creates a process with a synced step, and one that was only written.
    fn spawn(&self) -> Writer {
        let mut writer = self.data.spawn(spawn_request(uuid(), self.data.next_pid().unwrap())).unwrap();
        step(&mut writer, "one", "1");
        writer.append(moment(), vec![model_started(), model_ended("two", 0)], Durability::Written).unwrap();
        writer
    }

    fn fork(&self, source: Uuid, within: Option<u64>) -> Result<Uuid, ForkError> {
        let opening = opening(self.data.next_pid().unwrap(), OpenedBy::Spawn);
        let request = fork_request(uuid(), source, ForkPoint::End, opening);
        self.data.fork(ForkRequest { within, ..request }).map(|fork| uuid_of(&fork))
    }

    fn journal_after_cut(&self, name: &str, uuid: Uuid) -> Vec<u8> {
        let root = self.temp.path().join(name);
        if !root.exists() {
            self.faults.power_cut(&root, PowerCut::Strict).unwrap();
        }
        std::fs::read(root.join("steps").join(uuid.to_string()).join("steps.jsonl")).unwrap()
    }
}

fn journal(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("steps.jsonl")).unwrap()
}

#[test]
fn after_a_power_cut_a_fork_has_no_record_that_its_origin_lost() {
    for is_written in [true, false] {
        let rig = Rig::new(Injection::None);
        let writer = rig.spawn();
        let (source, within) = (uuid_of(&writer), writer.synced_end());
        // Without a writer all of the origin is synced first; with one, only the synced part is copied.
        let within = if is_written { Some(within) } else { None };
        let kept = if is_written { Some(writer) } else { None };
        let fork = rig.fork(source, within).unwrap();
        let (original, forked) = (rig.journal_after_cut("cut", source), rig.journal_after_cut("cut", fork));
        let own: usize = lines(&forked).iter().rev().take(2).map(|line| line.len()).sum();
        let prefix = &forked[..forked.len() - own];
        assert!(original.starts_with(prefix), "written: {is_written}");
        let has_second_step = memchr::memmem::find(prefix, b"\"text\":\"two\"").is_some();
        assert_eq!(has_second_step, !is_written);
        drop(kept);
    }
}

#[test]
fn an_origin_that_cannot_be_synced_is_neither_forked_nor_opened_again() {
    // Counting finds the change that syncs the origin.
    let rig = Rig::new(Injection::None);
    let source = uuid_of(&rig.spawn());
    rig.data.next_pid().unwrap();
    let sync = rig.faults.count() + 1;
    rig.fork(source, None).unwrap();

    let rig = Rig::new(Injection::Fail(sync, 5));
    let source = uuid_of(&rig.spawn());
    rig.data.next_pid().unwrap();
    let refused = rig.fork(source, None).unwrap_err();
    assert_eq!(rig.faults.injected(), Some(format!("sync steps/{source}/steps.jsonl")));
    assert!(matches!(refused, ForkError::Io { .. }), "{refused}");
    let again = rig.fork(source, None).unwrap_err();
    assert!(matches!(again, ForkError::Write(WriteError::Poisoned { .. })), "{again}");
    let opened = open_journal(&rig.data, source, &opening(rig.data.next_pid().unwrap(), OpenedBy::Resume));
    assert!(matches!(opened, Err(WriteError::Poisoned { .. })));
}

#[test]
fn a_failed_sync_cuts_off_only_the_records_since_the_last_sync() {
    for resumes in [false, true] {
        let mut fail = None;
        for attempt in 0..2 {
            let rig = Rig::new(fail.map_or(Injection::None, |change| Injection::Fail(change, 5)));
            let mut writer = rig.spawn();
            let source = uuid_of(&writer);
            let mut synced = usize::try_from(writer.synced_end()).unwrap();
            if resumes {
                // All of it existed before this writer, which therefore cuts nothing.
                synced = journal(writer.directory().path()).len();
                drop(writer);
                let opening = opening(rig.data.next_pid().unwrap(), OpenedBy::Resume);
                let nothing = |_: &_| Ok::<_, Infallible>(Vec::new());
                writer = rig.data.open_journal(source, &opening, Some(Generation(1)), nothing).unwrap();
            }
            let before = journal(writer.directory().path())[..synced].to_vec();
            writer.append(moment(), vec![input("more", "more")], Durability::Written).unwrap();
            if attempt == 0 {
                fail = Some(rig.faults.count() + 1);
                writer.sync().unwrap();
                continue;
            }
            let failed = writer.sync().unwrap_err();
            assert!(matches!(failed, WriteError::Io { .. }), "{failed}");
            assert!(matches!(writer.sync(), Err(WriteError::Poisoned { .. })));
            assert!(writer.append(moment(), vec![input("x", "x")], Durability::Written).is_err());
            assert!(journal(writer.directory().path()) == before, "resumes: {resumes}");
        }
    }
}

#[test]
fn synced_records_survive_a_power_cut() {
    let rig = Rig::new(Injection::None);
    let mut writer = rig.spawn();
    let (source, synced) = (uuid_of(&writer), usize::try_from(writer.synced_end()).unwrap());
    let all = journal(writer.directory().path());
    assert!(rig.journal_after_cut("before", source) == all[..synced]);
    writer.sync().unwrap();
    assert!(rig.journal_after_cut("after", source) == all);
    append(&mut writer, vec![input("more", "more")]);
}

#[test]
fn a_refused_batch_keeps_records_deferred_before_it() {
    let fixture = crate::support::Fixture::new();
    let mut writer = fixture.spawn();
    let deferred = vec![crate::support::model_started()];
    writer.append(crate::support::moment(), deferred, Durability::Deferred).unwrap();
    let before = writer.history().clone();
    // A call that is in no answer.
    let refused = vec![crate::support::input("m", "hello"), crate::support::call_ended(7, "none")];
    assert!(writer.append(crate::support::moment(), refused, Durability::Synced).is_err());
    assert_eq!(writer.history(), &before);
    crate::support::append(&mut writer, vec![crate::support::model_ended("text", 0)]);
    let (history, _) = fixture.data.history(crate::support::uuid_of(&writer)).unwrap();
    assert_eq!((history.answers, history.seq), (1, before.seq + 1));
}

#[test]
fn a_sync_that_fails_after_its_writer_ended_prevents_reopening() {
    for order in ["the writer goes first", "the sync fails first"] {
        let rig = Rig::new(Injection::None);
        let mut writer = rig.spawn();
        let source = uuid_of(&writer);
        writer.append(moment(), vec![input("more", "more")], Durability::Beside).unwrap();
        let pending = writer.sync_beside().unwrap().unwrap();
        rig.faults.inject_from_here(Injection::Fail(1, 5));
        if order == "the writer goes first" {
            drop(writer);
            pending.run();
        } else {
            pending.run();
            drop(writer);
        }
        assert_eq!(rig.faults.injected(), Some(format!("sync steps/{source}/steps.jsonl")), "{order}");
        let opened = open_journal(&rig.data, source, &opening(rig.data.next_pid().unwrap(), OpenedBy::Resume));
        assert!(matches!(opened, Err(WriteError::Poisoned { .. })), "{order}: {opened:?}");
    }
}
