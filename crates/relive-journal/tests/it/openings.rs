//! Opening a journal: the new incarnation and the caller's records are one write and one sync, or nothing.

use std::convert::Infallible;

use relive_core::{Generation, Pid, Signal, Uuid};
use relive_journal::record::{Body, OpenedBy};
use relive_journal::recovery::Recovery;
use relive_journal::{Counts, Durability, Health, History, OpenFailure, OpenJournal, Pool, WriteError, Writer};

use crate::support::{
    Fixture, append, call_started, completed, end, files, input, lines, max_steps, model_ended, model_started, moment,
    opening, put_after, signalled, step, uuid_of,
};

impl Fixture {
    fn open_as(&self, uuid: Uuid, generation: Option<u32>, records: Vec<Body>) -> Result<Writer, WriteError> {
        let opening = opening(Pid(9), OpenedBy::Resume);
        let decided = |_: &History| Ok::<_, Infallible>(records);
        Ok(self.data.open_journal(uuid, &opening, generation.map(Generation), decided)?)
    }

    /// Opens a journal like a daemon that starts.
    fn recover(&self, uuid: Uuid) -> Writer {
        let live = self.data.read_live(uuid).unwrap().unwrap();
        let known = (live.health == Health::Good).then_some(live.history);
        let opening = opening(self.data.next_pid().unwrap(), OpenedBy::Recovery);
        let nothing = |_: &History| Ok::<_, Infallible>(Vec::new());
        self.data.open_surveyed(uuid, &opening, known, Durability::Written, nothing).unwrap()
    }

    /// The kinds of a journal's records from `first` on.
    fn kinds(&self, uuid: Uuid, first: usize) -> Vec<String> {
        let journal = std::fs::read(self.data.directory(uuid).steps()).unwrap();
        let kind = |line: &&[u8]| {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            line["kind"].as_str().unwrap().to_owned()
        };
        lines(&journal)[first..].iter().map(kind).collect()
    }

    fn records(&self, uuid: Uuid) -> usize {
        lines(&std::fs::read(self.data.directory(uuid).steps()).unwrap()).len()
    }
}

fn writes_and_syncs(counts: Counts) -> (u64, u64) {
    (counts.writes, counts.syncs)
}

#[test]
fn a_new_incarnation_and_its_first_records_are_one_write_and_one_sync() {
    let fixture = Fixture::new();
    for generation in [None, Some(2)] {
        let uuid = uuid_of(&fixture.spawn());
        let (records, before) = (fixture.records(uuid), fixture.disk().counts());
        let writer = fixture.open_as(uuid, generation, vec![max_steps(5), input("more", "more")]).unwrap();
        assert_eq!(writes_and_syncs(fixture.disk().counts().since(before)), (1, 1), "{generation:?}");
        assert_eq!(fixture.kinds(uuid, records), ["opened", "limits", "input"]);
        assert_eq!(writer.history().epoch, Generation(2));
        assert!(!writer.has_unsynced());
    }
}

#[test]
fn a_recovered_incarnation_is_synced_with_its_first_step() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    let uuid = uuid_of(&writer);
    drop(writer);
    let before = fixture.disk().counts();
    let mut writer = fixture.recover(uuid);
    assert_eq!(writes_and_syncs(fixture.disk().counts().since(before)), (1, 0));
    assert!(writer.has_unsynced());
    step(&mut writer, "two", "2");
    assert_eq!(writer.synced_end(), writer.directory().steps().metadata().unwrap().len());
}

/// To settle an open call may be to carry it out, and a torn end is cut off: both are on the disk before.
#[test]
fn an_open_call_and_a_repair_are_on_the_disk_before_a_recovered_incarnation_begins() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, vec![model_started(), model_ended("one", 1), call_started(0, Recovery::Join)]);
    let open_call = uuid_of(&writer);
    drop(writer);
    let torn = uuid_of(&fixture.spawn());
    put_after(&fixture.data.directory(torn).steps(), b"{\"v\":1,\"se");
    for uuid in [open_call, torn] {
        assert!(!fixture.recover(uuid).has_unsynced());
    }
}

#[test]
fn a_dead_process_is_marked_before_its_new_incarnation_begins() {
    let fixture = Fixture::new();
    let uuid = end(&fixture, fixture.spawn());
    let before = fixture.disk().counts();
    let writer = fixture.open_as(uuid, None, vec![input("more", "more")]).unwrap();
    assert_eq!(writes_and_syncs(fixture.disk().counts().since(before)), (1, 2), "the marker and the journal");
    assert!(fixture.temp.path().join("live").join(uuid.to_string()).exists());
    assert!(writer.history().ended().is_none());
}

#[test]
fn an_incarnation_continues_in_its_epoch_with_only_the_callers_records() {
    let fixture = Fixture::new();
    let uuid = uuid_of(&fixture.spawn());
    let (records, before) = (fixture.records(uuid), fixture.disk().counts());
    let writer = fixture.open_as(uuid, Some(1), Vec::new()).unwrap();
    assert_eq!(writes_and_syncs(fixture.disk().counts().since(before)), (0, 0));
    assert!(writer.has_unsynced(), "an earlier writer may have left something");
    drop(writer);
    let writer = fixture.open_as(uuid, Some(1), vec![signalled(Signal::Term)]).unwrap();
    assert_eq!(writes_and_syncs(fixture.disk().counts().since(before)), (1, 1));
    assert_eq!(fixture.kinds(uuid, records), ["signalled"]);
    assert_eq!((writer.history().epoch, writer.has_unsynced()), (Generation(1), false));
    drop(writer);
    let mut writer = fixture.open_as(uuid, Some(2), Vec::new()).unwrap();
    assert_eq!(fixture.kinds(uuid, records), ["signalled", "opened"]);
    step(&mut writer, "one", "1");
}

#[test]
fn another_generation_is_misplaced_and_nothing_is_written() {
    let fixture = Fixture::new();
    let uuid = uuid_of(&fixture.spawn());
    fixture.resume(uuid);
    let refused = |fixture: &Fixture, generation| {
        let before = files(fixture.temp.path());
        let refused = fixture.open_as(uuid, Some(generation), vec![max_steps(1)]).unwrap_err();
        assert!(matches!(refused, WriteError::Misplaced { kind: "opened", .. }), "{generation}: {refused}");
        assert!(files(fixture.temp.path()) == before, "{generation}");
    };
    for generation in [0, 1, 4, u32::MAX] {
        refused(&fixture, generation);
    }
    put_after(&fixture.data.directory(uuid).steps(), b"{\"v\":1,\"se");
    refused(&fixture, 2);
    let mut writer = fixture.open_as(uuid, Some(3), Vec::new()).unwrap();
    assert_eq!(writer.history().repairs.len(), 1, "a new incarnation repairs it");
    append(&mut writer, vec![completed()]);
    drop(writer);
    refused(&fixture, 3);
    assert_eq!(fixture.open_as(uuid, Some(4), Vec::new()).unwrap().history().epoch, Generation(4));
}

#[test]
fn the_caller_sees_the_journal_before_it_is_opened_and_a_refusal_changes_nothing() {
    let fixture = Fixture::new();
    let dead = end(&fixture, fixture.spawn());
    let torn = uuid_of(&fixture.spawn());
    put_after(&fixture.data.directory(torn).steps(), b"{\"v\":1,\"se");
    for (uuid, has_ended) in [(dead, true), (torn, false)] {
        let before = files(fixture.temp.path());
        let decide = |history: &History| {
            assert_eq!((history.epoch, history.ended().is_some()), (Generation(1), has_ended));
            Err::<Vec<Body>, _>("not now")
        };
        let failure = fixture.data.open_journal(uuid, &opening(Pid(9), OpenedBy::Resume), None, decide).unwrap_err();
        assert!(matches!(failure, OpenFailure::Refused("not now")), "{failure}");
        assert!(files(fixture.temp.path()) == before);
        fixture.resume(uuid);
    }
}

#[test]
fn records_that_do_not_fit_open_nothing() {
    let fixture = Fixture::new();
    let uuid = end(&fixture, fixture.spawn());
    let before = files(fixture.temp.path());
    let refused = fixture.open_as(uuid, None, vec![max_steps(1), model_ended("x", 0)]).unwrap_err();
    assert!(matches!(refused, WriteError::Misplaced { kind: "model_ended", .. }), "{refused}");
    assert!(files(fixture.temp.path()) == before, "no marker, no epoch");
}

#[test]
fn a_writer_knows_how_much_of_its_journal_is_synced() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let len = |writer: &Writer| writer.directory().steps().metadata().unwrap().len();
    assert_eq!((writer.synced_end(), writer.has_unsynced()), (len(&writer), false));
    let (end, before) = (len(&writer), fixture.disk().counts());
    writer.sync().unwrap();
    assert_eq!(fixture.disk().counts().since(before).syncs, 0, "there is nothing to sync");
    writer.append(moment(), vec![model_started()], Durability::Written).unwrap();
    assert_eq!((writer.synced_end(), writer.has_unsynced()), (end, true));
    writer.sync().unwrap();
    assert_eq!((writer.synced_end(), writer.has_unsynced()), (len(&writer), false));
    assert_eq!(fixture.disk().counts().since(before).syncs, 1);
    writer.append(moment(), vec![model_ended("one", 1)], Durability::Written).unwrap();
    append(&mut writer, vec![call_started(0, Recovery::Rerun)]);
    assert_eq!(fixture.disk().counts().since(before).syncs, 2, "one sync for all that was written");
    let uuid = uuid_of(&writer);
    drop(writer);
    let mut writer = fixture.open_as(uuid, Some(1), Vec::new()).unwrap();
    assert_eq!((writer.synced_end(), writer.has_unsynced()), (0, true));
    writer.sync().unwrap();
    assert_eq!((writer.synced_end(), writer.has_unsynced()), (len(&writer), false));
}

#[tokio::test]
async fn a_conversation_that_was_read_ahead_needs_no_thread() {
    let (fixture, pool) = (Fixture::new(), Pool::default());
    let mut writer = fixture.spawn();
    step(&mut writer, "one", "1");
    let uuid = uuid_of(&writer);
    drop(writer);
    let mut writer = fixture.recover(uuid);
    writer.read_ahead();
    let mut journal = OpenJournal::new(writer, pool.clone());
    let ahead = journal.conversation().await.unwrap();
    assert_eq!((ahead.len(), pool.jobs()), (3, 0), "the task, an answer and a result");
    assert_eq!((journal.conversation().await.unwrap(), pool.jobs()), (ahead, 1), "it is not kept");
}

#[tokio::test]
async fn a_conversation_that_was_read_ahead_has_what_was_said_since() {
    let (fixture, pool) = (Fixture::new(), Pool::default());
    let uuid = uuid_of(&fixture.spawn());
    let mut writer = fixture.recover(uuid);
    writer.read_ahead();
    let mut journal = OpenJournal::new(writer, pool);
    journal.append(moment(), Vec::new(), vec![input("more", "more")], Durability::Synced).await.unwrap();
    assert_eq!(journal.conversation().await.unwrap().len(), 2, "the task and the message");
}
