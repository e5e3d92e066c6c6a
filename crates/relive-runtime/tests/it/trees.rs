//! Verbs on subtrees: whom they reach, in which order, and what the journals say of it.

use relive_api::{Created, PauseRequest, ResumeRequest, SignalRequest};
use relive_core::{Pid, SuspendReason, Uuid, Why};

use crate::world::{Daemon, PAUSE_NOW, World, resume, signal};

const PAUSE_TREE: PauseRequest = PauseRequest { subtree: true, now: true };

fn kill_tree() -> SignalRequest {
    SignalRequest { subtree: true, ..signal("KILL") }
}

fn resume_tree() -> ResumeRequest {
    ResumeRequest { subtree: true, ..resume() }
}

/// Returns a script that spawns an agent on each of these models, and then never answers.
fn parent_of(world: &World, models: &[String]) -> String {
    let spawn = |model: &String| format!("{{name: spawn_agent, args: {{intent: help, model: {model}}}}}");
    let spawns: Vec<String> = models.iter().map(spawn).collect();
    world.script(&format!("turns: [{{calls: [{}]}}, {{hang: true}}]", spawns.join(", ")))
}

fn children(daemon: &Daemon, parent: Uuid) -> Vec<Uuid> {
    let list = futures_util::FutureExt::now_or_never(daemon.runtime.processes(false)).unwrap().unwrap();
    list.processes.into_iter().filter(|it| it.parent_uuid == Some(parent)).map(|it| it.uuid).collect()
}

/// Runs an agent with so many children, all of which ask models that never answer.
pub(crate) fn family(world: &World, daemon: &Daemon, count: usize) -> (Created, Vec<Uuid>) {
    let child = world.script("turns: [{hang: true}]");
    let mut request = world.request(&parent_of(world, &vec![child; count]));
    request.yes = true;
    let parent = daemon.run(request);
    daemon.until_records(world, parent.uuid, "model_started", 2);
    let children = children(daemon, parent.uuid);
    assert_eq!(children.len(), count);
    for child in &children {
        daemon.until_records(world, *child, "model_started", 1);
    }
    (parent, children)
}

/// Runs an agent, its child and its grandchild.
fn three_generations(world: &World, daemon: &Daemon) -> [Uuid; 3] {
    let last = world.script("turns: [{hang: true}]");
    let middle = parent_of(world, &[last]);
    let mut request = world.request(&parent_of(world, &[middle]));
    request.yes = true;
    let first = daemon.run(request).uuid;
    let below = |of: Uuid| daemon.until("a child", || children(daemon, of).first().copied());
    let second = below(first);
    let third = below(second);
    for (uuid, asked) in [(first, 2), (second, 2), (third, 1)] {
        daemon.until_records(world, uuid, "model_started", asked);
    }
    [first, second, third]
}

fn pids(daemon: &Daemon, uuids: &[Uuid]) -> Vec<Pid> {
    uuids.iter().map(|uuid| daemon.pid(*uuid)).collect()
}

#[test]
fn a_subtree_is_paused_and_resumed_parents_first() {
    let world = World::new();
    let daemon = world.start();
    let family = three_generations(&world, &daemon);
    let pids = pids(&daemon, &family);
    assert_eq!(daemon.pause(family[0], PAUSE_TREE, None).pids, pids);
    for uuid in family {
        daemon.until_display(uuid, "suspended");
        assert_eq!(daemon.listed(uuid).unwrap().suspend_reason, Some(SuspendReason::User));
    }
    assert_eq!(daemon.resume(family[0], resume_tree(), None).pids, pids);
    for uuid in family {
        daemon.until_display(uuid, "running");
    }
}

#[test]
fn a_paused_subtree_is_suspended_in_the_next_daemon_as_well() {
    let world = World::new();
    let daemon = world.start();
    let family = three_generations(&world, &daemon);
    daemon.pause(family[0], PAUSE_TREE, None);
    drop(daemon);
    let daemon = world.start();
    for uuid in family {
        assert_eq!(daemon.display(uuid), "suspended");
    }
    assert_eq!(daemon.listed(family[2]).unwrap().ppid, daemon.pid(family[1]), "parents are recovered first");
    assert_eq!(daemon.resume(family[0], resume_tree(), None).affected, 3);
}

#[test]
fn the_end_of_each_process_of_a_killed_subtree_names_its_root() {
    let world = World::new();
    let daemon = world.start();
    let family = three_generations(&world, &daemon);
    let pids = pids(&daemon, &family);
    assert_eq!(daemon.try_signal(family[0], kill_tree(), None).unwrap().pids, pids);
    for uuid in family {
        daemon.wait(uuid);
        let info = daemon.info(uuid);
        assert_eq!((info.why, info.killed_by), (Some(Why::User), Some(Pid::RUNTIME)));
        assert_eq!(info.killed_from, Some(pids[0]));
    }
}

#[test]
fn a_signal_to_one_process_names_no_root_and_spares_those_below() {
    let world = World::new();
    let daemon = world.start();
    let [first, second, third] = three_generations(&world, &daemon);
    daemon.signal(second, "TERM", None);
    daemon.wait(second);
    let info = daemon.info(second);
    assert_eq!((info.why, info.killed_from), (Some(Why::User), None));
    assert_eq!((daemon.display(first), daemon.display(third)), ("running".to_owned(), "running".to_owned()));
}

#[test]
fn a_killed_subtree_stays_dead_also_where_only_the_signal_was_recorded() {
    let world = World::new();
    let daemon = world.start();
    let family = three_generations(&world, &daemon);
    daemon.try_signal(family[0], kill_tree(), None).unwrap();
    drop(daemon);
    let daemon = world.start();
    for (uuid, asked) in family.into_iter().zip([2, 2, 1]) {
        daemon.wait(uuid);
        assert_eq!(world.of_kind(uuid, "model_started").len(), asked, "no step ran since");
    }
}

/// Runs an agent until the creation of its child is under way and cannot get on, asks for a verb, and lets both go.
fn while_a_child_is_created(world: &World, verb: impl FnOnce(&Daemon, Uuid)) -> (Daemon, Uuid, Uuid) {
    let daemon = world.start();
    let child = world.script("turns: [{hang: true}]");
    let mut request = world.request(&parent_of(world, &[child]));
    request.yes = true;
    let parent = daemon.run(request).uuid;
    daemon.catch("the call", || world.of_kind(parent, "call_started").pop());
    let held = daemon.hold_disk();
    assert!(children(&daemon, parent).is_empty());
    verb(&daemon, parent);
    drop(held);
    let child = world.of_kind(parent, "call_started")[0]["recovery"]["child"].as_str().unwrap().parse().unwrap();
    (daemon, parent, child)
}

#[test]
fn a_child_whose_creation_is_under_way_is_killed_with_its_parents_subtree() {
    let world = World::new();
    let (daemon, parent, child) = while_a_child_is_created(&world, |daemon, parent| {
        daemon.hang_up(daemon.runtime.signal(&parent.to_string(), kill_tree(), None));
    });
    let pid = daemon.pid(parent);
    daemon.wait(parent);
    daemon.until("the end of the child", || world.of_kind(child, "ended").pop());
    daemon.until_display(child, "dead");
    let info = daemon.info(child);
    assert_eq!((info.why, info.killed_from), (Some(Why::User), Some(pid)));
    assert_eq!(world.of_kind(child, "model_started").len(), 0, "it does not run a step");
}

#[test]
fn a_child_whose_creation_is_under_way_is_paused_with_its_parents_subtree() {
    let world = World::new();
    let (daemon, parent, child) = while_a_child_is_created(&world, |daemon, parent| {
        daemon.hang_up(daemon.runtime.pause(&parent.to_string(), PAUSE_TREE, None));
    });
    daemon.until("the child", || daemon.listed(child));
    daemon.until_display(parent, "suspended");
    daemon.until_display(child, "suspended");
    assert_eq!(world.of_kind(child, "model_started").len(), 0);
    assert_eq!(daemon.resume(parent, resume_tree(), None).affected, 2);
    daemon.until_records(&world, child, "model_started", 1);
}

/// Asks for a verb while a child is being written, and kills the daemon right after the answer. The child, if it was
/// created, has a record of the kind that says so.
fn check_while_a_child_is_written(kinds: &[&str], verb: impl Fn(&Daemon, Uuid)) {
    let world = World::new();
    let daemon = world.start();
    let child = world.script("turns: [{hang: true}]");
    let mut request = world.request(&parent_of(&world, &[child]));
    request.yes = true;
    let parent = daemon.run(request).uuid;
    let call = daemon.catch("the call", || world.of_kind(parent, "call_started").pop());
    let child: Uuid = call["recovery"]["child"].as_str().unwrap().parse().unwrap();
    let in_data = |name: &str| world.data().join(name).join(child.to_string());
    let (written, there) = (in_data("tmp"), in_data("steps"));
    daemon.catch("the child is being written", || (written.exists() || there.exists()).then_some(()));
    verb(&daemon, parent);
    drop(daemon);
    world.let_go();
    let recorded = world.kinds(child, 0);
    assert!(!there.exists() || recorded.iter().any(|kind| kinds.contains(&kind.as_str())), "{recorded:?}");
}

#[test]
fn a_child_that_is_being_written_is_reached_before_the_answer() {
    let kill = |daemon: &Daemon, parent| drop(daemon.try_signal(parent, kill_tree(), None).unwrap());
    let term = |daemon: &Daemon, parent| {
        drop(daemon.try_signal(parent, SignalRequest { subtree: true, ..signal("TERM") }, None).unwrap());
    };
    let pause = |daemon: &Daemon, parent| drop(daemon.pause(parent, PAUSE_TREE, None));
    for _ in 0..10 {
        check_while_a_child_is_written(&["signalled", "ended"], kill);
        check_while_a_child_is_written(&["signalled", "ended"], term);
        check_while_a_child_is_written(&["paused"], pause);
    }
}

/// Leaves the journals of some as a daemon does that died while it signalled their subtree.
fn interrupted(world: &World, root: Pid, name: &str, signalled: &[Uuid]) {
    world.let_go();
    for uuid in signalled {
        let signal = relive_core::Signal::from_name(name).unwrap();
        let cause = relive_core::Cause { root: Some(root), ..relive_core::Cause::runtime(Why::User) };
        let req = Some(format!("{signal}:request-1"));
        let record = relive_journal::record::Signalled { signal, cause, end: None, pending: false, req };
        let record = relive_journal::record::Body::Signalled(record);
        world.append(*uuid, relive_journal::record::OpenedBy::Resume, vec![record]);
    }
}

#[test]
fn an_interrupted_signal_to_a_subtree_is_completed_when_it_is_sent_again() {
    for (name, reached) in [("KILL", 1), ("TERM", 1), ("KILL", 2), ("TERM", 2)] {
        let world = World::new();
        let daemon = world.start();
        let family = three_generations(&world, &daemon);
        let stranger = daemon.run_hanging(&world).uuid;
        let root = daemon.pid(family[0]);
        drop(daemon);
        interrupted(&world, root, name, &family[..reached]);
        let daemon = world.start();
        for uuid in &family[..reached] {
            daemon.until_display(*uuid, "dead");
        }
        daemon.until_display(family[2], "running");
        let again = |daemon: &Daemon| {
            let signal = SignalRequest { subtree: true, ..signal(name) };
            daemon.try_signal(family[0], signal, Some("request-1")).unwrap().affected
        };
        assert_eq!(again(&daemon), 3, "{name} after {reached}: what it has done in all");
        for uuid in family {
            daemon.until_display(uuid, "dead");
        }
        assert_eq!(again(&daemon), 3, "{name} after {reached}: once more");
        assert_eq!(daemon.display(stranger), "running");
    }
}

#[test]
fn an_interrupted_pause_of_a_subtree_is_completed_when_it_is_asked_for_again() {
    let world = World::new();
    let daemon = world.start();
    let family = three_generations(&world, &daemon);
    drop(daemon);
    world.let_go();
    let (reason, asked_at) = (SuspendReason::User, relive_core::Timestamp::now());
    let req = Some("SIGPAUSE:request-1".to_owned());
    let paused = relive_journal::record::Paused { reason, asked_at, resume_at: None, cause: None, req };
    let paused = vec![relive_journal::record::Body::Paused(paused)];
    world.append(family[0], relive_journal::record::OpenedBy::Resume, paused);
    let daemon = world.start();
    assert_eq!(daemon.display(family[0]), "suspended");
    daemon.until_display(family[2], "running");
    for _ in 0..2 {
        assert_eq!(daemon.pause(family[0], PAUSE_TREE, Some("request-1")).affected, 3);
    }
    for uuid in family {
        daemon.until_display(uuid, "suspended");
    }
    assert_eq!(world.of_kind(family[0], "paused").len(), 1, "the first is known");
}

#[test]
fn a_signal_to_a_subtree_names_those_that_could_not_be_recovered_and_reaches_them_when_they_are() {
    let world = World::new();
    let daemon = world.start();
    let (root, children) = family(&world, &daemon, 1);
    drop(daemon);
    world.let_go();
    let journal = world.data().join("steps").join(children[0].to_string()).join("steps.jsonl");
    let busy = std::fs::File::open(journal).unwrap();
    rustix::fs::flock(&busy, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let daemon = world.start();
    let kill = || daemon.try_signal(root.uuid, kill_tree(), Some("request-1")).unwrap();
    let first = kill();
    assert_eq!((first.affected, first.failed.len()), (1, 1), "{first:?}");
    drop(busy);
    let second = kill();
    assert_eq!((second.affected, second.failed.len()), (2, 0), "{second:?}");
    daemon.until_display(children[0], "dead");
}

#[test]
fn a_kill_of_a_subtree_that_is_sent_again_spares_what_was_created_since() {
    let world = World::new();
    let daemon = world.start();
    let child = world.script("turns: [{hang: true}]");
    let spawn = format!("{{name: spawn_agent, args: {{intent: help, model: {child}}}}}");
    let mut request =
        world.request(&world.script(&format!("turns: [{{text: done}}, {{calls: [{spawn}]}}, {{hang: true}}]")));
    request.yes = true;
    let root = daemon.run(request);
    daemon.wait(root.uuid);
    drop(daemon);
    interrupted(&world, root.pid, "KILL", &[root.uuid]);
    let daemon = world.start();
    daemon.until_display(root.uuid, "dead");
    daemon.resume(root.uuid, ResumeRequest { input: Some("go".to_owned()), ..resume() }, None);
    let child = daemon.until("a child", || children(&daemon, root.uuid).first().copied());
    daemon.until_display(child, "running");
    assert_eq!(daemon.try_signal(root.uuid, kill_tree(), Some("request-1")).unwrap().affected, 1);
    assert_eq!((daemon.display(root.uuid).as_str(), daemon.display(child).as_str()), ("running", "running"));
}

#[test]
fn resuming_a_process_resumes_the_ancestors_that_the_user_paused_nearest_first() {
    let world = World::new();
    let daemon = world.start();
    let family = three_generations(&world, &daemon);
    let [first, second, third] = family;
    daemon.pause(first, PAUSE_TREE, None);
    family.iter().for_each(|uuid| daemon.until_display(*uuid, "suspended"));
    let resumed = daemon.resume(third, resume(), None);
    assert_eq!(resumed.pids, pids(&daemon, &[third, second, first]));
    assert_eq!(world.of_kind(third, "resumed")[0]["by"], "user");
    for ancestor in [first, second] {
        assert_eq!(world.of_kind(ancestor, "resumed")[0]["by"], "descendant");
        daemon.until_display(ancestor, "running");
    }
}

#[test]
fn the_signal_resume_reaches_ancestors_like_the_verb() {
    let world = World::new();
    let daemon = world.start();
    let [first, second, third] = three_generations(&world, &daemon);
    daemon.pause(first, PAUSE_TREE, None);
    daemon.until_display(third, "suspended");
    let affected = daemon.signal(second, "RESUME", None);
    assert_eq!(affected.pids, pids(&daemon, &[second, first]));
    assert_eq!(daemon.display(third), "suspended", "what is below is not found");
}

#[test]
fn an_ancestor_that_waits_for_a_person_is_not_resumed_from_below() {
    let world = World::new();
    let daemon = world.start();
    let child = world.script("turns: [{hang: true}]");
    let spawn = format!("{{name: spawn_agent, args: {{intent: help, model: {child}}}}}");
    let write = "{name: write, args: {path: file, content: text}}";
    let mut request = world.request(&world.script(&format!("turns: [{{calls: [{spawn}, {write}]}}]")));
    request.policy = [("spawn_agent", "allow"), ("write", "ask")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let parent = daemon.run(request).uuid;
    daemon.until_display(parent, "approval");
    let child = children(&daemon, parent)[0];
    daemon.pause(child, PAUSE_NOW, None);
    daemon.until_display(child, "suspended");
    assert_eq!(daemon.resume(child, resume(), None).pids, pids(&daemon, &[child]));
    assert_eq!(daemon.display(parent), "approval");
    let refused = daemon.block(daemon.runtime.resume(&parent.to_string(), resume_tree(), None)).unwrap_err();
    assert_eq!(refused.code(), relive_core::ErrorCode::Conflict, "a refusal of the root is the answer");
}

#[test]
fn a_child_that_had_ended_is_resumed_with_the_paused_ones_above_it() {
    let world = World::new();
    let daemon = world.start();
    let [first, second, third] = three_generations(&world, &daemon);
    daemon.signal(third, "KILL", None);
    daemon.wait(third);
    daemon.pause(first, PAUSE_TREE, None);
    daemon.until_display(second, "suspended");
    let resumed = daemon.resume(third, resume(), None);
    assert_eq!(resumed.pids, pids(&daemon, &[third, second, first]));
    for uuid in [first, second] {
        daemon.until_display(uuid, "running");
    }
}

#[test]
fn the_resume_of_a_child_says_how_many_others_stay_paused() {
    let world = World::new();
    let daemon = world.start();
    let (parent, children) = family(&world, &daemon, 3);
    daemon.pause(parent.uuid, PAUSE_TREE, None);
    children.iter().for_each(|uuid| daemon.until_display(*uuid, "suspended"));
    let resumed = daemon.resume(children[0], resume(), None);
    let pid = parent.pid;
    let note = format!("2 processes below PID {pid} stay paused; to resume all: relive resume --subtree {pid}");
    assert_eq!((resumed.pids, resumed.note), (pids(&daemon, &[children[0], parent.uuid]), Some(note)));
}

#[test]
fn taking_back_the_pause_of_a_child_that_waits_for_an_answer_resumes_the_ones_above_it() {
    let world = World::new();
    let daemon = world.start();
    let asking = world.script("turns: [{calls: [{name: write, args: {path: file, content: text}}]}, {text: done}]");
    let mut request = world.request(&parent_of(&world, &[asking]));
    request.policy = [("spawn_agent", "allow"), ("write", "ask")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let parent = daemon.run(request).uuid;
    let child = daemon.until("a child", || children(&daemon, parent).first().copied());
    daemon.until_display(child, "approval");
    daemon.pause(parent, PAUSE_TREE, None);
    daemon.until_display(parent, "suspended");
    assert_eq!(daemon.resume(child, resume(), None).pids, pids(&daemon, &[child, parent]));
    assert_eq!(daemon.display(child), "approval", "a resume is no answer");
    daemon.until_display(parent, "running");
}

#[test]
fn a_parent_shows_how_many_below_it_are_suspended() {
    let world = World::new();
    let daemon = world.start();
    let (parent, children) = family(&world, &daemon, 2);
    daemon.pause(children[0], PAUSE_NOW, None);
    daemon.until_display(children[0], "suspended");
    assert_eq!(daemon.listed(parent.uuid).unwrap().suspended_below, 1);
    daemon.until("the event", || world.events(parent.uuid, "suspended_below").pop());
}

#[test]
fn a_fork_is_told_that_a_child_of_its_original_was_collected() {
    let world = World::with(|config| config.gc.max_entries = 1);
    let daemon = world.start();
    let child = world.script("turns: [{text: done}]");
    let spawn = format!("{{name: spawn_agent, args: {{intent: help, model: {child}}}}}");
    let wait = "{name: wait_agent, args: {uuid: \"{{child}}\"}}";
    let turns = format!(
        "turns: [{{calls: [{spawn}]}}, {{calls: [{wait}]}}, {{text: done}}, {{calls: [{wait}]}}, {{text: end}}]"
    );
    let mut request = world.request(&world.script(&turns));
    request.policy = [("*".to_owned(), "allow".to_owned())].into();
    let parent = daemon.run(request);
    daemon.wait(parent.uuid);
    let collected = daemon.block(daemon.runtime.gc(relive_api::GcRequest::default())).unwrap();
    assert_eq!(collected.removed.len(), 1, "the child");
    let mut fork = crate::world::resume();
    (fork.fork, fork.input) = (Some(crate::world::new_uuid()), Some("wait again".to_owned()));
    let fork = daemon.resume(parent.uuid, fork, None);
    daemon.wait(fork.uuid);
    let told = world.of_kind(fork.uuid, "call_ended").last().unwrap()["result"].as_str().unwrap().to_owned();
    assert!(told.contains("or garbage collected"), "{told}");
}
