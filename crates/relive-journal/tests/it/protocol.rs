//! The cost of the protocol in system calls, and the files it leaves on the disk.

use std::os::unix::fs::PermissionsExt as _;

use relive_journal::conversation::Message;
use relive_journal::recovery::Recovery;
use relive_journal::{Counts, Durability, Health, Next};

use crate::support::{
    Fixture, append, call_ended, call_started, completed, model_ended, model_started, moment, now, step, uuid_of,
};

/// Writes one step with `calls` calls, in the batches that the agent loop uses from the second step on.
fn steady_step(fixture: &Fixture, calls: u32) -> Counts {
    let mut writer = fixture.spawn();
    append(&mut writer, vec![model_started()]);
    let before = fixture.disk().counts();
    let mut batch = vec![model_ended("text", calls)];
    for call in 0..calls {
        batch.push(call_started(call, Recovery::Rerun));
        append(&mut writer, batch);
        batch = vec![call_ended(call, "result")];
    }
    batch.push(model_started());
    append(&mut writer, batch);
    fixture.disk().counts().since(before)
}

#[test]
fn a_step_of_n_calls_costs_n_plus_1_writes_and_syncs_and_opens_nothing() {
    let fixture = Fixture::new();
    for calls in 0..5 {
        let counts = steady_step(&fixture, calls);
        let each = u64::from(calls) + 1;
        assert_eq!(
            (counts.writes, counts.syncs, counts.opens, counts.renames, counts.unlinks),
            (each, each, 0, 0, 0),
            "{calls} calls"
        );
    }
}

#[test]
fn creating_an_agent_costs_four_syncs_and_one_descriptor() {
    let fixture = Fixture::new();
    drop(fixture.spawn()); // reserves a block of PIDs
    let open_files = || {
        std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter(|fd| {
                let target = std::fs::read_link(fd.as_ref().unwrap().path()).unwrap_or_default();
                target.starts_with(fixture.temp.path())
            })
            .count()
    };
    let (before, files_before) = (fixture.disk().counts(), open_files());
    let writer = fixture.spawn();
    assert_eq!(fixture.disk().counts().since(before).syncs, 4);
    assert_eq!(open_files() - files_before, 1);
    drop(writer);
    assert_eq!(open_files(), files_before);
}

#[test]
fn files_and_directories_are_private_to_their_owner() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    step(&mut writer, "text", &"x".repeat(100_000));
    writer.append_event(now(), 1, "open", &serde_json::json!({"path": "a"})).unwrap();
    writer.checkpoint().unwrap();
    append(&mut writer, vec![completed()]);
    fixture.data.retire(uuid_of(&writer), writer.history()).unwrap();
    let mut directories = vec![fixture.temp.path().join("steps"), fixture.temp.path().join("live")];
    let mut seen = 0;
    while let Some(directory) = directories.pop() {
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{directory:?}");
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 6, "journal, events, checkpoint, meta, snapshot, blob");
}

#[test]
fn a_new_writer_finds_the_state_of_the_previous_one() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    step(&mut writer, "one", "1");
    writer.append(moment(), vec![model_started()], Durability::Written).unwrap();
    append(&mut writer, vec![model_ended("two", 2), call_started(0, Recovery::Join)]);
    let left = writer.history().clone();
    drop(writer);

    let fixture = fixture.reopen();
    let (found, health) = fixture.data.history(uuid).unwrap();
    assert_eq!((&found, &health), (&left, &Health::Good));
    let plan = found.plan();
    assert_eq!((plan.last_step, plan.next), (1, Next::Calls { step: 2, call: 0 }));
    assert_eq!(plan.open.len(), 1);

    let writer = fixture.resume(uuid);
    assert_eq!(writer.history().epoch.0, 2);
    let journal = std::fs::File::open(writer.directory().steps()).unwrap();
    let conversation = writer.history().conversation(&journal).unwrap();
    let shape: Vec<&str> = conversation
        .iter()
        .map(|message| match message {
            Message::User { .. } => "user",
            Message::Summary { .. } => "summary",
            Message::Model { .. } => "model",
            Message::Tool { .. } => "tool",
        })
        .collect();
    assert_eq!(shape, ["user", "model", "tool", "model", "tool", "tool"]);
}
