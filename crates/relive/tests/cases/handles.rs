//! What a process may name after a restart, across ended processes, and after the release of a handle.

use std::fs;

use serde_json::{Value, json};

use crate::world::{Begun, World, begun, wait_for, wait_until};

const RELIVE: &str = env!("CARGO_BIN_EXE_relive");

/// A program that does what is written into the file `do`, line by line; each answer is in a file of its own.
struct Inside<'a> {
    world: &'a World,
    begun: Begun,
    asked: std::cell::Cell<u32>,
}

/// Waits for `ask.N`, runs it, and writes its output and exit code to `answer.N`.
const SERVANT: &str = r#"
relive() { "$RELIVE_BIN" "$@"; }
n=1
while :; do
    while [ ! -e "$HERE/ask.$n" ]; do sleep 0.02; done
    { . "$HERE/ask.$n"; } > "$HERE/out.$n" 2>&1
    echo $? >> "$HERE/out.$n"
    mv "$HERE/out.$n" "$HERE/answer.$n"
    n=$((n + 1))
done
"#;

impl<'a> Inside<'a> {
    fn begin(world: &'a World, name: &str) -> Self {
        let here = world.work().join(name);
        fs::create_dir(&here).unwrap();
        let script = format!("RELIVE_BIN={RELIVE} HERE={}\n{SERVANT}", here.display());
        let args = ["exec", "-d", "--json", "--name", name, "--", "sh", "-c", &script];
        Self { world, begun: begun(&world.relive(&args).ok().json()), asked: std::cell::Cell::new(0) }
    }

    /// Begins a command, and returns where its answer will be.
    fn ask(&self, command: &str) -> std::path::PathBuf {
        let number = self.asked.get() + 1;
        self.asked.set(number);
        let here = self.world.work().join(self.world.info(&self.begun.uuid)["name"].as_str().unwrap());
        fs::write(here.join("ask.new"), command).unwrap();
        fs::rename(here.join("ask.new"), here.join(format!("ask.{number}"))).unwrap();
        here.join(format!("answer.{number}"))
    }

    /// Runs a command inside of the process, and returns its exit code and output.
    fn says(&self, command: &str) -> (i32, String) {
        let answer = self.ask(command);
        parse(&wait_for(command, || fs::read_to_string(&answer).ok()))
    }

    fn sees(&self) -> Vec<String> {
        let (code, list) = self.says("relive ps -a --json");
        assert_eq!(code, 0, "{list}");
        let list: Value = serde_json::from_str(&list).unwrap();
        let uuids = list["processes"].as_array().unwrap().iter().map(|it| it["uuid"].as_str().unwrap().to_owned());
        uuids.filter(|uuid| *uuid != self.begun.uuid).collect()
    }
}

fn parse(answer: &str) -> (i32, String) {
    let (said, code) = answer.trim_end().rsplit_once('\n').unwrap_or(("", answer.trim_end()));
    (code.parse().unwrap(), said.to_owned())
}

fn restart(world: &World) {
    world.kill_daemon();
    world.relive(&["ps"]).ok();
}

#[test]
fn case_70_a_process_reaches_its_ended_children_after_a_crash() {
    let world = World::new();
    let parent = Inside::begin(&world, "parent");
    let (code, kid) = parent.says("relive exec -d --json --name kid -- sh -c 'exit 7'");
    assert_eq!(code, 0, "{kid}");
    let kid = begun(&serde_json::from_str(&kid).unwrap());
    world.await_retired(&kid.uuid);
    restart(&world);
    assert_eq!(parent.sees(), [kid.uuid.as_str()]);
    assert_eq!(parent.says("relive wait kid").0, 7);
    assert_eq!(parent.says("relive info kid").0, 0);
    assert_eq!(parent.says("relive kill kid").0, 0, "nothing to do, which is no error");
    assert_eq!(parent.says("relive rename kid child").0, 0);
    restart(&world);
    let (code, said) = parent.says("relive resume child");
    assert_eq!(code, 0, "{said}");
    world.relive(&["wait", &kid.uuid]).exits(7);
    assert_eq!(world.info(&kid.uuid)["generation"], 2);
}

#[test]
fn case_70_a_handle_to_an_ended_process_is_the_same_after_a_crash() {
    let world = World::new();
    let friend = Inside::begin(&world, "friend");
    let target = world.exec(&["--name", "target"], &["sh", "-c", "exit 9"]);
    world.relive(&["handle", "grant", "target", "--to", "friend", "--as", "controller"]).ok();
    world.await_retired(&target.uuid);
    restart(&world);
    assert_eq!(friend.sees(), [target.uuid.as_str()]);
    assert_eq!(friend.says("relive wait target").0, 9);
    let (code, said) = friend.says("relive rename target mine");
    assert_eq!(code, 5, "a controller is no owner: {said}");
    assert_eq!(friend.says("relive kill target").0, 0);
    let list = world.relive(&["handle", "list", "--json"]).ok().json();
    let held = |it: &&Value| it["target_uuid"] == target.uuid.as_str();
    let held = list["handles"].as_array().unwrap().iter().find(held).map(|it| it["as"].clone());
    assert_eq!(held, Some(json!("controller")), "{list}");
    let (code, said) = friend.says("relive resume target");
    assert_eq!(code, 0, "{said}");
    world.relive(&["wait", &target.uuid]).exits(9);
    world.await_field(&target.uuid, "generation", 2);
    let released = friend.says("relive handle release target");
    assert_eq!(released.0, 0, "{released:?}");
    assert_eq!(friend.says("relive info target").0, 4);
    restart(&world);
    assert_eq!(friend.says("relive info target").0, 4, "also after a restart");
    assert_eq!(friend.sees(), [""; 0]);
}

/// Nothing is left of the process but the handle to it.
#[test]
fn case_70_a_handle_to_a_removed_process_is_listed_and_released() {
    let world = World::new();
    let friend = Inside::begin(&world, "friend");
    let targets = ["one", "two"].map(|name| {
        let target = world.exec(&["--name", name], &["true"]);
        world.relive(&["handle", "grant", name, "--to", "friend", "--as", "observer"]).ok();
        world.await_retired(&target.uuid);
        world.relive(&["rm", "-y", name]).ok();
        target.uuid
    });
    restart(&world);
    let held = || {
        let list = world.relive(&["handle", "list", "--json"]).ok().json();
        list["handles"].as_array().unwrap().iter().map(|it| it["target_uuid"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(held().len(), 2, "{:?}", held());
    let short = relive_types::short_id::short(targets[0].parse().unwrap());
    assert!(world.relive(&["handle", "list"]).ok().stdout.contains(&short));
    let said = world.relive(&["handle", "release", &short, "--of", "friend"]).ok().stderr;
    assert!(said.contains("released the handle of PID"), "{said}");
    assert_eq!(held(), [json!(targets[1])]);
    let (code, said) = friend.says(&format!("relive handle release {}", targets[1]));
    assert_eq!(code, 0, "by the holder itself: {said}");
    restart(&world);
    assert_eq!(held(), [json!(null); 0], "also after a restart");
    world.relive(&["handle", "release", &short, "--of", "friend"]).exits(4);
}

/// The same without a restart in between.
#[test]
fn case_70_a_handle_to_a_process_that_was_just_removed_is_released_by_its_uuid_and_its_pid() {
    let world = World::new();
    let friend = Inside::begin(&world, "friend");
    let targets = ["one", "two", "three"].map(|name| {
        let target = world.exec(&["--name", name], &["true"]);
        world.relive(&["handle", "grant", name, "--to", "friend", "--as", "observer"]).ok();
        world.await_retired(&target.uuid);
        world.relive(&["rm", "-y", name]).ok();
        target
    });
    let list = || world.relive(&["handle", "list", "--json"]).ok().json()["handles"].as_array().unwrap().clone();
    assert!(list().len() == 3 && list().iter().all(|handle| handle["target"] == 0), "{:?}", list());
    let short = relive_types::short_id::short(targets[0].uuid.parse().unwrap());
    let said = world.relive(&["handle", "list"]).ok().stdout;
    assert!(said.contains(&short), "{said}");
    world.relive(&["handle", "release", &short, "--of", "friend"]).ok();
    world.relive(&["handle", "release", &targets[1].pid.to_string(), "--of", "friend"]).ok();
    let (code, said) = friend.says(&format!("relive handle release {}", targets[2].pid));
    assert_eq!(code, 0, "by the holder itself: {said}");
    assert_eq!(list(), [json!(null); 0]);
    restart(&world);
    assert_eq!(list(), [json!(null); 0], "also after a restart");
}

#[test]
fn case_70_a_process_with_several_incarnations_is_one_line_in_the_list_of_handles() {
    let world = World::new();
    let friend = Inside::begin(&world, "friend");
    let target = world.exec(&["--name", "target"], &["true"]);
    world.relive(&["handle", "grant", "target", "--to", "friend", "--as", "observer"]).ok();
    for generation in 2..4 {
        world.await_retired(&target.uuid);
        world.relive(&["resume", &target.uuid]).ok();
        world.relive(&["wait", &target.uuid]).ok();
        world.await_field(&target.uuid, "generation", generation);
    }
    for _ in 0..2 {
        let list = world.relive(&["handle", "list", "--json"]).ok().json();
        let handles = list["handles"].as_array().unwrap();
        assert_eq!(handles.len(), 1, "{list}");
        assert_eq!(
            (&handles[0]["target_uuid"], &handles[0]["target"]),
            (&json!(target.uuid), &world.info(&target.uuid)["pid"])
        );
        restart(&world);
    }
    assert_eq!(friend.sees(), [target.uuid.as_str()]);
}

#[test]
fn case_68_an_ancestor_reaches_what_is_below_an_ended_process() {
    let world = World::new();
    let top = Inside::begin(&world, "top");
    let make = "relive exec -d --name between -- sh -c '\"$0\" exec -d --name below -- sleep 1000' $RELIVE_BIN";
    let (code, said) = top.says(make);
    assert_eq!(code, 0, "{said}");
    let below = world.named("below");
    world.relive(&["wait", "between"]).ok();
    world.await_field(&below.uuid, "ppid", 0);
    assert!(top.sees().contains(&below.uuid));
    restart(&world);
    assert!(top.sees().contains(&below.uuid), "also after a crash");
    assert_eq!(top.says("relive info below").0, 0);
    assert_eq!(top.says("relive kill below").0, 0);
    let top_pid = world.info("top")["pid"].to_string();
    wait_until("it has ended", || world.info(&below.uuid)["state"] == "dead");
    assert_eq!(world.info(&below.uuid)["ended_by"], format!("PID {top_pid} (top)"));
}

/// Whatever began before a release ends with it, and says what an unknown process would get.
#[test]
fn case_70_what_waits_and_follows_ends_with_the_handle() {
    let world = World::new();
    let victim = world.exec(&["--name", "victim"], &["sh", "-c", "while :; do echo tick; sleep 0.05; done"]);
    let agent = world.run_hanging(&["--name", "agent"]);
    let friends = [
        "relive wait victim",
        "relive logs -f victim",
        "relive attach victim < /dev/zero",
        "relive wait agent",
        "relive logs -f agent",
    ];
    let mut open = Vec::new();
    for (number, command) in friends.iter().enumerate() {
        let name = format!("friend{number}");
        let friend = Inside::begin(&world, &name);
        for target in ["victim", "agent"] {
            world.relive(&["handle", "grant", target, "--to", &name, "--as", "observer"]).ok();
        }
        let answer = friend.ask(command);
        let out = world.work().join(&name).join("out.1");
        wait_until("it is under way", || fs::metadata(&out).is_ok_and(|it| command.contains("wait") || it.len() > 0));
        open.push((friend, answer, *command));
    }
    for (friend, answer, command) in open {
        let name = world.info(&friend.begun.uuid)["name"].as_str().unwrap().to_owned();
        for target in ["victim", "agent"] {
            world.relive(&["handle", "release", target, "--of", &name]).ok();
        }
        let (code, said) = parse(&wait_for(command, || fs::read_to_string(&answer).ok()));
        let id = if command.contains("victim") { "victim" } else { "agent" };
        assert_eq!(code, 4, "{command}: {said}");
        // A follower asks by the UUID.
        let said = said.replace(if id == "victim" { &victim.uuid } else { &agent.uuid }, id);
        let unknown = friend.says("relive info nobodyy").1.replace("nobodyy", id);
        assert!(said.ends_with(&unknown), "{command}: `{said}`, not `{unknown}`");
    }
    for process in [&victim, &agent] {
        assert_eq!(world.info(&process.uuid)["state"], "running");
    }
}

/// Whoever may see a process is not told of those that it may not see.
#[test]
fn case_68_an_observer_is_shown_no_id_of_a_stranger() {
    let world = World::new();
    let parent = Inside::begin(&world, "parent");
    let made = parent.says("relive exec -d --json --name kid -- sleep 1000");
    let kid = begun(&serde_json::from_str(&made.1).unwrap());
    let observer = Inside::begin(&world, "observer");
    world.relive(&["handle", "grant", "kid", "--to", "observer", "--as", "observer"]).ok();
    let seen = |inside: &Inside<'_>| -> Vec<Value> {
        let info: Value = serde_json::from_str(&inside.says("relive info kid --json").1).unwrap();
        let list: Value = serde_json::from_str(&inside.says("relive ps -a --json").1).unwrap();
        let listed = list["processes"].as_array().unwrap().iter().find(|it| it["uuid"] == kid.uuid.as_str());
        vec![info, listed.unwrap().clone()]
    };
    let names = |process: &Value| process.to_string().contains(&parent.begun.uuid) || process["ppid"] != 0;
    assert!(seen(&parent).iter().all(names), "its parent is itself");
    assert!(!seen(&observer).iter().any(names), "{:?}", seen(&observer));
    assert_eq!(parent.says("relive pause --now kid").0, 0);
    world.await_display(&kid.uuid, "suspended");
    assert_eq!(seen(&parent)[0]["paused_by"], format!("PID {} (parent)", parent.begun.pid));
    assert_eq!(seen(&observer)[0]["paused_by"], "another process");
    assert_eq!(parent.says("relive kill -s KILL kid").0, 0);
    world.relive(&["wait", &kid.uuid]);
    assert_eq!(seen(&parent)[0]["ended_by"], format!("PID {} (parent)", parent.begun.pid));
    let ended = &seen(&observer)[0];
    let none = &Value::Null;
    assert_eq!((&ended["ended_by"], &ended["killed_by"]), (&json!("another process"), none), "{ended}");
}

/// Asks the daemon by HTTP from inside of a process, and prints the answer.
const ASK: &str = r#"
import os, socket, sys
body = open(sys.argv[2]).read()
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["RELIVE_SELF"])
head = "POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
s.sendall((head % (sys.argv[1], len(body)) + body).encode())
answer = b""
while True:
    part = s.recv(65536)
    if not part:
        break
    answer += part
print(answer.decode().split("\r\n\r\n", 1)[1])
"#;

#[test]
fn case_68_the_uuid_of_a_stranger_is_unknown_also_to_whoever_creates_a_process() {
    let world = World::new();
    let model = world.hanging();
    let stranger = world.run_hanging(&[]);
    let inside = Inside::begin(&world, "inside");
    let ask = world.work().join("ask.py");
    fs::write(&ask, ASK).unwrap();
    let run = |uuid: &str| {
        let body = world.work().join(format!("{uuid}.json"));
        fs::write(&body, world.run_request(uuid, &model, "x")).unwrap();
        let command = format!("python3 {} /v1/processes {}", ask.display(), body.display());
        let (code, said) = inside.says(&command);
        assert_eq!(code, 0, "{said}");
        serde_json::from_str::<Value>(&said).unwrap()
    };
    let refused = run(&stranger.uuid);
    let (_, unknown) = inside.says("relive info 01990000-0000-7000-8000-00000000abcd --json");
    let unknown = unknown.replace("01990000-0000-7000-8000-00000000abcd", &stranger.uuid);
    assert_eq!(refused["error"]["code"], "NOT_FOUND", "{refused}");
    assert!(unknown.contains(refused["error"]["message"].as_str().unwrap()), "{refused} is not {unknown}");
    let body = world.work().join("flow.json");
    let flow = json!({
        "uuid": stranger.uuid, "kind": "compose", "file": "f", "text": "nodes: {a: {command: [x]}}", "cwd": "/",
    });
    fs::write(&body, flow.to_string()).unwrap();
    let (_, said) = inside.says(&format!("python3 {} /v1/flows {}", ask.display(), body.display()));
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), refused, "nor as a run");
    let own = "01990000-0000-7000-8000-00000000abce";
    let made = run(own);
    assert_eq!(made["uuid"], own, "{made}");
    assert_eq!(run(own), made, "a repeat of its own request is answered as before");
}

fn rights_of(list: &Value, target: &Begun) -> Vec<Value> {
    let handles = list["handles"].as_array().unwrap().iter();
    handles.filter(|it| it["target_uuid"] == target.uuid.as_str()).map(|it| it["as"].clone()).collect()
}

/// The first to ask after a crash is the person: nothing was recalled for a process yet.
#[test]
fn case_70_the_person_changes_handles_to_ended_processes_right_after_a_crash() {
    let world = World::new();
    let friend = Inside::begin(&world, "friend");
    let target = world.exec(&["--name", "target"], &["sh", "-c", "exit 9"]);
    let grant = |rights| world.relive(&["handle", "grant", "target", "--to", "friend", "--as", rights]);
    let list = || world.relive(&["handle", "list", "--json"]).ok().json();
    grant("observer").ok();
    world.await_retired(&target.uuid);
    restart(&world);
    assert_eq!(rights_of(&list(), &target), [json!("observer")], "the person sees it at once");
    restart(&world);
    world.relive(&["handle", "release", "target", "--of", "friend"]).ok();
    assert_eq!(friend.says("relive logs target").0, 4, "a release is a release");
    assert_eq!(rights_of(&list(), &target), [Value::Null; 0]);
    restart(&world);
    grant("controller").ok();
    assert_eq!(friend.says("relive wait target").0, 9, "it ended only a moment before the restart");
    restart(&world);
    assert_eq!(friend.says("relive wait target").0, 9, "also after the next restart");
    let kept = grant("observer").ok();
    assert!(kept.stderr.contains("already"), "{}", kept.stderr);
    assert_eq!(rights_of(&list(), &target), [json!("controller")]);
}

#[test]
fn case_68_a_list_of_handles_names_no_stranger() {
    let world = World::new();
    let observer = Inside::begin(&world, "observer");
    let watched = Inside::begin(&world, "watched");
    let stranger = world.exec(&["--name", "stranger"], &["sleep", "1000"]);
    world.relive(&["handle", "grant", "watched", "--to", "observer", "--as", "observer"]).ok();
    world.relive(&["handle", "grant", "stranger", "--to", "watched", "--as", "observer"]).ok();
    let below = watched.says("relive exec -d --json --name below -- sleep 1000").1;
    let below = begun(&serde_json::from_str(&below).unwrap());
    let list = |of: &Inside<'_>| of.says("relive handle list --json").1;
    assert!(list(&watched).contains(&stranger.uuid) && list(&watched).contains(&below.uuid));
    let seen = list(&observer);
    assert!(seen.contains(&watched.begun.uuid), "{seen}");
    assert!(!seen.contains(&stranger.uuid) && !seen.contains(&below.uuid), "{seen}");
    world.relive(&["pause", "--now", "below"]).ok();
    world.await_display(&below.uuid, "suspended");
    let info = |of: &Inside<'_>| serde_json::from_str::<Value>(&of.says("relive info watched --json").1).unwrap();
    assert_eq!(info(&watched)["suspended_below"], 1);
    assert_ne!(info(&watched)["tree"], Value::Null);
    let seen = info(&observer);
    assert!(seen["suspended_below"].as_u64().unwrap_or_default() == 0 && seen["tree"].is_null(), "{seen}");
}

#[test]
fn case_70_gc_keeps_what_a_process_has_a_handle_to() {
    let world = World::new();
    let friend = Inside::begin(&world, "friend");
    let kept = world.exec(&["--name", "kept"], &["sh", "-c", "exit 9"]);
    let free = world.exec(&["--name", "free"], &["true"]);
    world.relive(&["handle", "grant", "kept", "--to", "friend", "--as", "observer"]).ok();
    world.await_retired(&kept.uuid);
    world.await_retired(&free.uuid);
    restart(&world);
    let planned = world.relive(&["gc", "--dry-run", "--older-than", "0s", "--json"]).ok();
    assert!(planned.stderr.contains("1 process is kept"), "{}", planned.stderr);
    let planned = planned.json();
    let is_planned = |of: &Begun| planned["candidates"].to_string().contains(&of.uuid);
    assert!(is_planned(&free) && !is_planned(&kept), "{planned}");
    let answer = world.relive(&["gc", "--older-than", "0s", "--force", "--json"]).ok().json();
    assert!(answer["uuids"].to_string().contains(&free.uuid), "{answer}");
    assert_eq!(friend.says("relive wait kept").0, 9);
    restart(&world);
    assert_eq!(friend.says("relive wait kept").0, 9);
    world.relive(&["handle", "release", "kept", "--of", "friend"]).ok();
    let answer = world.relive(&["gc", "--older-than", "0s", "--force", "--json"]).ok().json();
    assert!(answer["uuids"].to_string().contains(&kept.uuid), "{answer}");
}

#[test]
fn case_68_an_ancestor_reaches_what_is_below_a_removed_process_after_a_crash() {
    let world = World::new();
    let top = Inside::begin(&world, "top");
    let make = "relive exec -d --name between -- sh -c '\"$0\" exec -d --name below -- sleep 1000' $RELIVE_BIN";
    let (code, said) = top.says(make);
    assert_eq!(code, 0, "{said}");
    let between = world.named("between");
    world.relive(&["wait", "between"]).ok();
    world.await_retired(&between.uuid);
    world.relive(&["rm", &between.uuid, "-y"]).ok();
    assert_eq!(top.says("relive info below").0, 0);
    restart(&world);
    assert_eq!(top.says("relive info below").0, 0, "also after a crash");
    assert_eq!(top.says("relive kill below").0, 0);
}

/// Both pause their target first.
#[test]
fn case_68_whoever_rewinds_a_process_has_paused_it_and_nobody_rewinds_itself() {
    let world = World::new();
    for (verb, rest) in [("rewind", "--to-step 0 -y"), ("restore", "--step 0 file")] {
        let parent = Inside::begin(&world, verb);
        let model = world.script("turns: [{calls: [{name: write, args: {path: file, content: x}}]}, {hang: true}]");
        let made = parent
            .says(&format!("mkdir -p kid && cd kid && relive run -d -y --json --model {model} write 2>/dev/null"));
        let kid = begun(&serde_json::from_str(&made.1).unwrap_or_else(|_| panic!("{made:?}")));
        world.await_records(&kid, "snapshot", 1);
        let (code, said) = parent.says(&format!("relive {verb} {verb} {rest}"));
        assert!(code == 3 && said.contains(&format!("cannot {verb} its own files")), "{code} {said}");
        let (code, said) = parent.says(&format!("relive {verb} {} {rest}", kid.uuid));
        assert_eq!(code, 0, "{said}");
        world.await_display(&kid.uuid, "suspended");
        let paused_by = world.info(&kid.uuid)["paused_by"].to_string();
        assert!(paused_by.contains(&format!("PID {} ({verb})", parent.begun.pid)), "{paused_by}");
        assert_eq!(world.info(verb)["state"], "running");
    }
}

#[test]
fn case_68_a_taken_name_leads_nobody_to_a_stranger() {
    let world = World::new();
    world.exec(&["--name", "stranger"], &["sleep", "1000"]);
    let inside = Inside::begin(&world, "inside");
    world.file("tree.yaml", "nodes: {a: {command: [sleep, '1000']}}");
    for command in ["exec -d --name NAME -- true", "compose up -d --name NAME tree.yaml", "rename inside NAME"] {
        let (code, said) = inside.says(&format!("relive {}", command.replace("NAME", "stranger")));
        assert!(code == 3 && said.contains("is taken by another process"), "{code} {said}");
        assert!(!said.contains("hint"), "{said}");
    }
    let (code, said) = inside.says("relive exec -d --name inside -- true");
    assert!(code == 3 && said.contains("hint: relive info inside"), "of one that it sees: {code} {said}");
}

/// An observer counts those of the suspended that it may see, in lists as in `info`.
#[test]
fn case_70_an_observer_counts_the_suspended_below_that_it_sees() {
    let world = World::new();
    let parent = Inside::begin(&world, "parent");
    let observer = Inside::begin(&world, "observer");
    for kid in ["seen", "unseen"] {
        assert_eq!(parent.says(&format!("relive exec -d --name {kid} -- sleep 600; relive pause {kid}")).0, 0);
        world.await_display(kid, "suspended");
    }
    for target in ["parent", "seen"] {
        world.relive(&["handle", "grant", target, "--to", "observer", "--as", "observer"]).ok();
    }
    let counts = |inside: &Inside<'_>| {
        let (_, list) = inside.says("relive ps --json");
        let list: Value = serde_json::from_str(&list).unwrap();
        let listed = list["processes"].as_array().unwrap().iter().find(|it| it["name"] == "parent").unwrap();
        let (_, info) = inside.says("relive info --json parent");
        let info: Value = serde_json::from_str(&info).unwrap();
        (
            listed["suspended_below"].clone(),
            info["suspended_below"].clone(),
            info["suspended"].as_array().unwrap().len(),
        )
    };
    assert_eq!(counts(&observer), (json!(1), json!(1), 1));
    assert_eq!(counts(&parent), (json!(2), json!(2), 2));
}

#[test]
fn case_03_a_process_blocks_only_what_can_be_blocked_and_loses_no_signal_of_another_command() {
    let world = World::new();
    let inside = Inside::begin(&world, "inside");
    for verb in ["mask", "unmask", "off"] {
        let (code, said) = inside.says(&format!("relive self {verb} TREM"));
        assert!(code == 2 && said.contains("`TREM` is not a signal"), "{verb}: {code} {said}");
        let (code, said) = inside.says(&format!("relive self {verb} KILL"));
        assert!(code == 2 && said.contains("SIGKILL can be neither blocked nor handled"), "{verb}: {code} {said}");
    }
    let all = json!(["SIGTERM", "SIGINT", "SIGPAUSE", "SIGRESUME"]);
    for (verb, expect) in [("mask", all), ("unmask", Value::Null)] {
        let at_once = "for it in TERM INT PAUSE RESUME; do relive self VERB $it & done; wait";
        inside.says(&at_once.replace("VERB", verb));
        assert_eq!(world.info(&inside.begun.uuid)["blocked_signals"], expect, "{verb}");
    }
}

#[test]
fn case_68_whoever_sees_a_frozen_program_does_not_learn_whose_session_it_entered() {
    let world = World::new();
    crate::enter::target(&world, "held");
    if world.info("held")["session"]["pause"] == "sigstop" {
        return;
    }
    world.relive(&["enter", "-d", "--name", "guest", "held", "--", "sleep", "1000"]).ok();
    wait_until("the program to run", || world.info("guest")["session"]["stage"] == "running");
    let friend = Inside::begin(&world, "friend");
    world.relive(&["handle", "grant", "guest", "--to", "friend", "--as", "controller"]).ok();
    world.relive(&["pause", "held"]).ok();
    world.await_display("held", "suspended");
    world.relive(&["handle", "grant", "held", "--to", "friend", "--as", "observer"]).ok();
    let (code, said) = friend.says("relive resume guest");
    assert!(code == 3 && said.contains("(held)") && said.contains("relive resume"), "{said}");
    world.relive(&["handle", "release", "held", "--of", "friend"]).ok();
    let check = |command: &str, code: i32, text: &str| {
        let (exited, said) = friend.says(command);
        assert!(exited == code && said.contains(text), "{command}: {exited} {said}");
        let resume = format!("relive resume {}", world.info("held")["pid"]);
        assert!(!said.contains("held") && !said.contains(&resume), "{command}: {said}");
    };
    check("relive info guest", 0, "suspended");
    check("relive info --json guest", 0, "another process");
    check("relive ps --json", 0, "suspended");
    check("relive resume guest", 3, "is paused with another process, whose session it entered");
    check("relive kill -s INT guest", 0, "SIGINT takes effect when that is resumed");
    world.relive(&["resume", "held"]).ok();
    world.relive(&["wait", "guest"]).exits(130);
    fs::write(world.work().join("go"), "").unwrap();
    world.relive(&["wait", "held"]).exits(7);
}
