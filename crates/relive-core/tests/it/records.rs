//! Completion records: how long they are kept, and what they answer.

use relive_core::{
    Cause, End, ErrorCode, Generation, Holder, Past, Pid, ProcessStatus, Rights, Settings, Signal, Spec, Table, Wait,
    Why,
};

use crate::support::{World, uuid};

const RETENTION_MS: i64 = 3_600_000;

fn ended(world: &mut World) -> Pid {
    let pid = world.run_named(Pid::RUNTIME, "ended");
    world.finish(pid);
    world.release(pid);
    pid
}

#[test]
fn a_record_is_dropped_after_its_retention_time() {
    let mut world = World::new();
    let pid = ended(&mut world);
    world.ms += RETENTION_MS - 1;
    assert_eq!(world.table.sweep(world.now()), []);
    world.ms += 1;
    assert_eq!(world.table.sweep(world.now()), [pid]);
    assert_eq!(world.table.wait(pid).unwrap_err().code(), ErrorCode::NotFound);
    for gone in ["ended", &uuid(pid.0).to_string()] {
        assert_eq!(world.table.look_up(Holder::Person, gone).unwrap_err().code(), ErrorCode::NotFound);
    }
    assert!(world.table.spawn(Spec { pid, ..world.spec(Pid::RUNTIME) }).is_err(), "its PID is not used again");
    assert_eq!(world.table.sweep(world.now()), []);
}

#[test]
fn a_record_is_kept_until_its_last_handle_closes() {
    for opened_before_the_end in [true, false] {
        let mut world = World::new();
        let pid = world.run(Pid::RUNTIME);
        let early = opened_before_the_end.then(|| world.table.open(Holder::Person, pid, Rights::Observer).unwrap());
        world.finish(pid);
        world.release(pid);
        let first = early.unwrap_or_else(|| world.table.open(Holder::Person, pid, Rights::Observer).unwrap());
        world.ms += RETENTION_MS;
        assert_eq!(world.table.sweep(world.now()), []);
        let second = world.table.open(Holder::Person, pid, Rights::Owner).unwrap();
        world.ms += RETENTION_MS;
        world.table.close(first);
        world.table.close(first);
        assert_eq!(world.table.sweep(world.now()), []);
        assert!(matches!(world.table.wait(pid).unwrap(), Wait::Ended { .. }));
        world.table.close(second);
        assert_eq!(world.table.sweep(world.now()), [pid]);
    }
}

#[test]
fn a_handle_held_by_an_ended_process_keeps_no_record() {
    let mut world = World::new();
    let (holder, pid) = (world.run(Pid::RUNTIME), ended(&mut world));
    world.hand(Holder::Person, holder, pid, Rights::Observer).unwrap();
    world.ms += RETENTION_MS;
    assert_eq!(world.table.sweep(world.now()), []);
    world.finish(holder);
    assert_eq!(world.table.sweep(world.now()), [pid]);
}

#[test]
fn a_wait_for_an_interrupted_pid_names_its_successor() {
    let mut world = World::new();
    world.table = Table::new(Settings::default(), Pid(7));
    let end = End {
        cause: Some(Cause::runtime(Why::HostLost)),
        ..End::of(ProcessStatus::Killed { signal: Signal::Kill.into() })
    };
    let spec = Spec::new(Pid(5), uuid(5), Pid::RUNTIME, world.now());
    let past = Past {
        spec: spec.clone(),
        started_at: world.now().at,
        ended_at: world.now().at,
        end: end.clone(),
        elapsed_ms: 700,
    };
    world.table.recall(past.clone(), world.now()).unwrap();
    assert!(world.view(Pid(5)).resumable);
    assert_eq!(world.view(Pid(5)).elapsed_ms, 700);
    let before = world.table.clone();
    assert_eq!(world.table.recall(past.clone(), world.now()).unwrap_err().code(), ErrorCode::Internal);
    let unborn = Past { spec: Spec { pid: Pid(8), ..spec.clone() }, ..past };
    assert_eq!(world.table.recall(unborn, world.now()).unwrap_err().code(), ErrorCode::Internal);
    assert!(world.table == before);

    let next = Spec { pid: Pid(8), generation: spec.generation.next(), ..spec };
    let successor = world.spawn_as(next);
    assert_eq!(world.table.wait(Pid(5)).unwrap(), Wait::Ended { end: &end, successor: Some(successor) });
    let view = world.view(Pid(5));
    assert_eq!((view.successor_pid, view.resumable, view.display.word()), (Some(successor), false, "dead"));
    assert_eq!(world.view(successor).generation, Generation(2));
}

#[test]
fn a_view_has_the_published_fields() {
    let mut world = World::new();
    let pid = ended(&mut world);
    let json = serde_json::to_value(world.view(pid)).unwrap();
    let published = "pid ppid uuid parent_uuid origin_uuid origin_step generation successor_pid name body intent cwd \
                     state paused paused_at display suspend_reason status why exit step max_steps tokens_in \
                     tokens_out max_tokens cost_usd model suspended_below resumable stalled created_at started_at \
                     dead_at elapsed_ms";
    for field in published.split_whitespace() {
        assert!(json.get(field).is_some(), "{field}");
    }
    assert_eq!(json["state"], "dead");
    assert_eq!(json["display"], "dead");
    assert_eq!(json["status"], serde_json::json!({"kind": "exited", "code": 0}));
    assert_eq!(json["exit"], serde_json::json!({"code": 0, "reason": "completed", "err": null}));
    assert_eq!(json["created_at"], "1970-01-01T00:16:40Z");
    assert_eq!(world.table.processes(world.now()).count(), 0);
    assert_eq!(world.table.ended().map(|view| view.pid).collect::<Vec<_>>(), [pid]);
}
