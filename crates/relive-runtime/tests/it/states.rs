//! Every verb on every state: the answer, the records, and what `ps` shows when the verb has taken effect.

use relive_api::{GcRequest, Resolution};
use relive_core::Uuid;
use relive_journal::record::{Approval, Body, CallStarted, Decision, OpenedBy, Resumed, ResumedBy};
use relive_journal::recovery::Recovery;
use relive_runtime::Result;

use crate::world::{Daemon, PAUSE, World, answer, is_of, mask, message, new_uuid, resume, signal};

const REQUEST: &str = "request-1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Pause,
    Resume,
    Term,
    Int,
    Kill,
    Send,
    Allow,
    Done,
    Mask,
    Fork,
}

/// A verb, its answer, the records it wrote (`*`: with the request's id), and what `ps` shows then.
type Row = (Verb, &'static str, &'static str, &'static str);

use Verb::{Allow, Done, Fork, Int, Kill, Mask, Pause, Resume, Send, Term};

/// Asks for a verb and returns the answer in short.
fn ask(daemon: &Daemon, verb: Verb, id: &str) -> String {
    let (runtime, request) = (&daemon.runtime, Some(REQUEST.to_owned()));
    let changed = |answer: Result<usize>| match answer {
        Ok(affected) => format!("affected {affected}"),
        Err(error) => format!("{:?}", error.code()),
    };
    let signalled = |name: &str| {
        let sent = runtime.signal(id, signal(name), request.clone());
        changed(daemon.block(sent).map(|affected| affected.affected))
    };
    let answered = |outcome: Resolution| {
        let answered = runtime.answer(id, answer(outcome), request.clone());
        changed(daemon.block(answered).map(|affected| affected.affected))
    };
    match verb {
        Pause => changed(daemon.block(runtime.pause(id, PAUSE, request)).map(|affected| affected.affected)),
        Resume => changed(daemon.block(runtime.resume(id, resume(), request)).map(|resumed| resumed.affected)),
        Term => signalled("TERM"),
        Int => signalled("INT"),
        Kill => signalled("KILL"),
        Send => changed(daemon.block(runtime.send(id, message(REQUEST, "hello"))).map(|it| usize::from(it.accepted))),
        Allow => answered(Resolution::Allow),
        Done => answered(Resolution::Done),
        Mask => changed(daemon.block(runtime.set_signal_mask(id, mask(&["INT"], &[]), request)).map(|_| 1)),
        Fork => {
            let mut forked = resume();
            forked.fork = Some(new_uuid());
            changed(daemon.block(runtime.resume(id, forked, request)).map(|resumed| resumed.affected))
        }
    }
}

/// Returns the kinds of the records from the `skip`-th on, marking those that carry the request's id.
fn written(world: &World, uuid: Uuid, skip: usize) -> String {
    let show = |record: &serde_json::Value| {
        let mark = if is_of(record, REQUEST) { "*" } else { "" };
        format!("{}{mark}", record["kind"].as_str().unwrap())
    };
    world.records(uuid).iter().skip(skip).map(show).collect::<Vec<_>>().join(" ")
}

/// Brings a process of its own into a state for each verb, and checks what the verb does.
fn check(world: &World, daemon: &Daemon, state: &str, make: impl Fn(&Daemon) -> Uuid, rows: &[Row]) {
    for (verb, answer, records, display) in rows {
        let uuid = make(daemon);
        assert_eq!(daemon.display(uuid), state, "before {verb:?}");
        let before = world.records(uuid).len();
        let pid = daemon.listed(uuid).map(|process| process.pid);
        let said = ask(daemon, *verb, &uuid.to_string());
        let last = records.rsplit(' ').next().unwrap();
        let shown = || daemon.display(uuid) == *display && written(world, uuid, before).ends_with(last);
        daemon.until(&format!("{state}, {verb:?}: {last} and {display}"), || shown().then_some(()));
        let found = (said.as_str(), written(world, uuid, before));
        assert_eq!(found, (*answer, (*records).to_owned()), "{state}, {verb:?}");
        if let Some(now) = daemon.listed(uuid)
            && let Some(pid) = pid
        {
            assert_eq!(now.pid, pid, "{state}, {verb:?}: one PID in one daemon");
        }
        // Nothing of it disturbs the next one.
        let _ = daemon.try_signal(uuid, signal("KILL"), None);
        daemon.until_display(uuid, "dead");
    }
}

#[test]
fn verbs_on_a_process_that_is_being_created() {
    let world = World::new();
    let daemon = world.start();
    let create = |daemon: &Daemon| daemon.run(world.hanging()).uuid;
    let rows = [
        (Pause, "affected 1", "paused*", "suspended"),
        (Term, "affected 1", "signalled* ended", "dead"),
        (Int, "affected 1", "signalled* ended", "dead"),
        (Kill, "affected 1", "signalled* ended", "dead"),
        (Allow, "Conflict", "model_started", "running"),
        (Done, "Conflict", "model_started", "running"),
        (Resume, "affected 0", "model_started", "running"),
        (Send, "affected 1", "input* model_started", "running"),
        (Mask, "affected 1", "signal_mask* model_started", "running"),
    ];
    check(&world, &daemon, "loading", create, &rows);
}

#[test]
fn verbs_on_a_process_that_runs() {
    let world = World::new();
    let daemon = world.start();
    let rows = [
        (Pause, "affected 1", "paused*", "pausing"),
        (Resume, "affected 0", "", "running"),
        (Term, "affected 1", "signalled* partial ended", "dead"),
        (Int, "affected 1", "signalled* partial ended", "dead"),
        (Kill, "affected 1", "signalled* partial ended", "dead"),
        (Send, "affected 1", "input*", "running"),
        (Allow, "Conflict", "", "running"),
        (Done, "Conflict", "", "running"),
        (Mask, "affected 1", "signal_mask*", "running"),
        (Fork, "affected 1", "", "running"),
    ];
    check(&world, &daemon, "running", |daemon| daemon.run_hanging(&world).uuid, &rows);
}

#[test]
fn verbs_on_a_process_that_is_pausing() {
    let world = World::new();
    let daemon = world.start();
    let pause = |daemon: &Daemon| {
        let uuid = daemon.run_hanging(&world).uuid;
        daemon.pause(uuid, PAUSE, None);
        uuid
    };
    let rows = [
        (Pause, "affected 0", "", "pausing"),
        (Resume, "affected 1", "resumed*", "running"),
        (Term, "affected 1", "signalled* partial ended", "dead"),
        (Int, "affected 1", "signalled* partial ended", "dead"),
        (Kill, "affected 1", "signalled* partial ended", "dead"),
        (Send, "affected 1", "input*", "pausing"),
        (Allow, "Conflict", "", "pausing"),
        (Done, "Conflict", "", "pausing"),
        (Mask, "affected 1", "signal_mask*", "pausing"),
        (Fork, "affected 1", "", "pausing"),
    ];
    check(&world, &daemon, "pausing", pause, &rows);
}

#[test]
fn verbs_on_a_process_that_is_suspended() {
    let world = World::new();
    let daemon = world.start();
    let rows = [
        (Pause, "affected 0", "", "suspended"),
        (Resume, "affected 1", "resumed* model_started", "running"),
        (Term, "affected 1", "ended*", "dead"),
        (Int, "affected 1", "ended*", "dead"),
        (Kill, "affected 1", "ended*", "dead"),
        (Send, "affected 1", "input*", "suspended"),
        (Allow, "Conflict", "", "suspended"),
        (Done, "Conflict", "", "suspended"),
        (Mask, "affected 1", "signal_mask*", "suspended"),
        (Fork, "affected 1", "", "suspended"),
    ];
    check(&world, &daemon, "suspended", |daemon| daemon.run_suspended(&world).uuid, &rows);
}

#[test]
fn verbs_on_a_process_that_waits_for_an_approval() {
    let world = World::new();
    let daemon = world.start();
    let after = "approval* resumed snapshot call_started call_ended model_started";
    let rows = [
        (Pause, "affected 1", "signalled*", "approval"),
        (Resume, "Conflict", "", "approval"),
        (Term, "affected 1", "ended*", "dead"),
        (Int, "affected 1", "ended*", "dead"),
        (Kill, "affected 1", "ended*", "dead"),
        (Send, "affected 1", "input*", "approval"),
        (Allow, "affected 1", after, "running"),
        (Done, "Conflict", "", "approval"),
        (Mask, "affected 1", "signal_mask*", "approval"),
        (Fork, "affected 1", "", "approval"),
    ];
    check(&world, &daemon, "approval", |daemon| daemon.run_asking(&world, "file").uuid, &rows);
}

/// Leaves so many processes whose call nobody can look up, as a daemon does that dies in the middle of it.
fn left_in_doubt(world: &World, count: usize) -> Vec<Uuid> {
    let daemon = world.start();
    let mut request = world.asking("file");
    request.on_in_doubt = Some("park".to_owned());
    let one = |_| {
        let uuid = daemon.run(relive_api::RunRequest { uuid: new_uuid(), ..request.clone() }).uuid;
        daemon.until_display(uuid, "approval");
        uuid
    };
    let all: Vec<Uuid> = (0..count).map(one).collect();
    drop(daemon);
    for uuid in &all {
        let name = Some("write".to_owned());
        let allowed = Approval {
            call: 0,
            name,
            decision: Decision::Allowed,
            always: false,
            rule: None,
            host: None,
            reason: None,
            req: None,
            key: None,
        };
        let resumed = Resumed { by: ResumedBy::User, cause: None, req: None };
        let started = CallStarted { call: 0, name: "write".to_owned(), recovery: Recovery::Doubt, rule: None };
        let records = vec![Body::Approval(allowed), Body::Resumed(resumed), Body::CallStarted(started)];
        world.append(*uuid, OpenedBy::Resume, records);
    }
    all
}

#[test]
fn verbs_on_a_process_with_a_call_in_doubt() {
    let world = World::new();
    let rows = [
        (Pause, "affected 1", "signalled*", "in_doubt"),
        (Resume, "Conflict", "", "in_doubt"),
        (Term, "affected 1", "signalled* ended", "dead"),
        (Int, "affected 1", "signalled* ended", "dead"),
        (Kill, "affected 1", "signalled* ended", "dead"),
        (Send, "affected 1", "input*", "in_doubt"),
        (Allow, "Conflict", "", "in_doubt"),
        (Done, "affected 1", "resolved* resumed model_started", "running"),
        (Mask, "affected 1", "signal_mask*", "in_doubt"),
        (Fork, "affected 1", "", "in_doubt"),
    ];
    let left = std::cell::RefCell::new(left_in_doubt(&world, rows.len()));
    let daemon = world.start();
    let next = |daemon: &Daemon| {
        let uuid = left.borrow_mut().pop().unwrap();
        daemon.until_display(uuid, "in_doubt");
        uuid
    };
    check(&world, &daemon, "in_doubt", next, &rows);
}

#[test]
fn verbs_on_a_process_that_has_ended() {
    let world = World::new();
    let daemon = world.start();
    let model = world.script("turns: [{text: done}, {hang: true}]");
    let end = |daemon: &Daemon| {
        let uuid = daemon.run(world.request(&model)).uuid;
        daemon.wait(uuid);
        uuid
    };
    let rows = [
        (Pause, "affected 0", "", "dead"),
        (Resume, "affected 1", "opened* input* model_started", "running"),
        (Term, "affected 0", "", "dead"),
        (Int, "affected 0", "", "dead"),
        (Kill, "affected 0", "", "dead"),
        (Send, "Conflict", "", "dead"),
        (Allow, "Conflict", "", "dead"),
        (Done, "Conflict", "", "dead"),
        (Mask, "Conflict", "", "dead"),
        (Fork, "affected 1", "", "dead"),
    ];
    check(&world, &daemon, "dead", end, &rows);
}

const ALL: [Verb; 10] = [Pause, Resume, Term, Int, Kill, Send, Allow, Done, Mask, Fork];

#[test]
fn every_verb_says_of_a_process_that_never_existed_that_it_never_did() {
    let world = World::new();
    let daemon = world.start();
    let uuid = new_uuid().to_string();
    for verb in ALL {
        assert_eq!(ask(&daemon, verb, &uuid), "NotFound", "{verb:?}");
        assert_eq!(ask(&daemon, verb, "4711"), "NotFound", "{verb:?}");
    }
    let error = daemon.block(daemon.runtime.process(&uuid)).unwrap_err().to_string();
    assert_eq!(error, format!("process {uuid} never existed"));
}

#[test]
fn every_verb_says_of_a_collected_process_that_it_was_collected() {
    let world = World::with(|config| config.gc.max_entries = 1);
    let daemon = world.start();
    let model = world.script("turns: [{text: done}]");
    let first = daemon.run(world.request(&model));
    daemon.wait(first.uuid);
    let second = daemon.run(world.request(&model));
    daemon.wait(second.uuid);
    let collected = daemon.block(daemon.runtime.gc(GcRequest::default())).unwrap();
    assert_eq!(collected.removed, [first.uuid]);
    let check = |daemon: &Daemon| {
        for verb in ALL {
            assert_eq!(ask(daemon, verb, &first.uuid.to_string()), "NotFound", "{verb:?}");
            assert_eq!(ask(daemon, verb, &first.pid.to_string()), "NotFound", "{verb:?}");
        }
        let error = daemon.block(daemon.runtime.process(&first.uuid.to_string())).unwrap_err().to_string();
        assert_eq!(error, format!("process {} was removed (by `relive rm`, or garbage collected)", first.uuid));
        let again = daemon.block(daemon.runtime.run(relive_api::RunRequest { uuid: first.uuid, ..world.hanging() }));
        assert_eq!(format!("{:?}", again.unwrap_err().code()), "Conflict", "its UUID is not given out again");
    };
    check(&daemon);
    drop(daemon);
    check(&world.start());
}

#[test]
fn a_running_process_that_was_never_paused_has_a_snapshot() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let path = world.data().join("steps").join(process.uuid.to_string()).join("proc-info.json");
    daemon.until("a snapshot", || path.exists().then_some(()));
    let info = world.info_file(process.uuid);
    assert_eq!((&info["uuid"], &info["state"]), (&serde_json::json!(process.uuid), &serde_json::json!("running")));
}
