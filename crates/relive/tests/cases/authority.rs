//! What a program inside of a process may do: to itself, to what is below it, and to nothing else.

use std::fs;

use serde_json::json;

use crate::world::{Begun, Output, World, wait_for, wait_until};

const RELIVE: &str = env!("CARGO_BIN_EXE_relive");

/// Runs a shell script as a process, in the foreground; `relive` in it is this build's.
fn inside(world: &World, script: &str) -> Output {
    world.relive(&["exec", "--", "sh", "-c", &format!("relive() {{ {RELIVE} \"$@\"; }}; {script}")])
}

/// An agent whose shell tool runs this once it is allowed, and whose next call is put to the person.
fn attacker(world: &World, command: &str) -> Begun {
    let args = json!({ "command": format!("relive() {{ {RELIVE} \"$@\"; }}; {command}") });
    let second = json!({ "command": "echo owned > owned" });
    let calls = format!("{{calls: [{{name: shell, args: {args}}}]}}, {{calls: [{{name: shell, args: {second}}}]}}");
    world.run(&format!("turns: [{calls}, {{text: waiting, hang: true}}]"))
}

/// One approved call leaves a loop behind that answers every later question with yes.
#[test]
fn case_68_an_approved_call_cannot_approve_the_next_ones() {
    let world = World::with_config("tool_env: [RELIVE_DATA_DIR]\n");
    let loops = "(while :; do relive resolve $(cat uuid) --allow >> answers 2>&1; sleep 0.05; done) & \
                 while [ ! -s answers ]; do sleep 0.02; done; sleep 0.3; kill $!; cat answers | head -3";
    let process = attacker(&world, loops);
    fs::write(world.work().join("uuid"), &process.uuid).unwrap();
    world.await_display(&process.uuid, "approval");
    world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    world.await_records(&process, "call_ended", 1);
    let said = world.records(&process.uuid, "call_ended")[0]["result"].to_string();
    assert!(said.contains("is only for a person, and this command runs in PID "), "{said}");
    world.await_display(&process.uuid, "approval");
    assert!(!world.work().join("owned").exists(), "it approved itself");
}

/// The same from outside of the agent, where it is a stranger: what it may not see was never there.
#[test]
fn case_68_a_stranger_is_not_seen_killed_resolved_or_waited_for() {
    let world = World::new();
    let victim = world.run_hanging(&["--name", "victim"]);
    let Begun { pid, uuid } = &victim;
    let said = |verb: &str, id: &str| inside(&world, &format!("relive {verb} {id}"));
    for verb in ["info", "kill", "kill -s KILL", "wait --timeout 1s", "pause", "resume", "send --", "logs", "strace"] {
        let text = if verb.starts_with("send") { " hello" } else { "" };
        for (theirs, never) in [
            (pid.to_string(), "9999".to_owned()),
            ("victim".to_owned(), "nobodyy".to_owned()),
            (uuid.clone(), "01990000-0000-7000-8000-00000000abcd".to_owned()),
        ] {
            let (refused, unknown) = (said(verb, &format!("{theirs}{text}")), said(verb, &format!("{never}{text}")));
            assert_eq!(refused.code, 4, "{verb} {theirs}: {refused:?}");
            let told = |output: &Output, id: &str| format!("{}{}", output.stdout, output.stderr).replace(id, "ID");
            assert_eq!(told(&refused, &theirs), told(&unknown, &never), "{verb} {theirs}");
        }
    }
    said("resolve --allow", uuid).fails(4, &["no process `", "relive ps -a"]);
    assert_eq!(world.info(uuid)["display"], "running", "nothing has happened to it");
    let list = inside(&world, "relive ps -a --json");
    let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
    let names: Vec<_> = list["processes"].as_array().unwrap().iter().map(|it| it["body"].clone()).collect();
    assert_eq!(names, [json!("exec")], "{list}");
    inside(&world, "relive info victin").fails(4, &["no process `victin`", "relive ps -a"]);
}

#[test]
fn case_68_commands_only_for_the_person_are_refused_with_the_reason() {
    let world = World::new();
    for (verb, said) in [
        ("gc --force", "collecting journals is only for a person"),
        ("resume --fork kid", "a fork is only for a person"),
        ("retry kid", "a fork is only for a person"),
        ("rm -y kid", "removing a process is only for a person"),
        ("usage", "the usage of all processes is only for a person"),
        ("blame file", "asking who wrote a file is only for a person"),
        ("inbox", "the inbox is only for a person"),
        ("wait --needs-me", "is only for a person"),
        ("workspace list", "listing workspaces is only for a person"),
        ("workspace rm kid", "removing a workspace is only for a person"),
        ("daemon stop", "stopping the daemon is only for a person"),
        ("daemon restart", "stopping the daemon is only for a person"),
    ] {
        let script = format!("relive exec --name kid -- false; relive {verb}");
        inside(&world, &script).fails(5, &[said, "this command runs in PID "]);
    }
}

#[test]
fn case_68_a_process_makes_children_and_has_power_over_them() {
    let world = World::new();
    let script = "
        relive exec -d --name kid -- sleep 600
        relive ps -q | wc -l
        relive pause kid && relive resume kid && relive kill kid
        relive wait kid
        echo waited $?";
    let output = inside(&world, script);
    assert!(output.stdout.contains("\n2\n"), "itself and its child: {output:?}");
    assert!(output.stdout.contains("waited 143"), "{output:?}");
    let kid = world.info("kid");
    assert_eq!((&kid["why"], &kid["exit"]["reason"]), (&json!("parent"), &json!("interrupted")));
    let parent = kid["parent_uuid"].as_str().unwrap();
    assert_eq!(world.info(parent)["pid"], kid["killed_by"]);
}

/// Whoever is asked before each command does not get a child that is not.
#[test]
fn case_68_a_child_is_allowed_no_more_than_its_parent() {
    let world = World::new();
    let model = world.script("turns: [{calls: [{name: shell, args: {command: 'echo owned > owned'}}]}, {text: done}]");
    let process =
        attacker(&world, &format!("relive run -d --yes --model {model} x; relive run -d --name kid --model {model} x"));
    world.await_display(&process.uuid, "approval");
    world.relive(&["resolve", &process.uuid, "--allow"]).ok();
    world.await_records(&process, "call_ended", 1);
    let said = world.records(&process.uuid, "call_ended")[0]["result"].to_string();
    assert!(said.contains("`shell` would be allowed without asking: only a person allows that"), "{said}");
    let kid = world.await_display("kid", "approval");
    assert_eq!(kid["parent_uuid"], process.uuid);
    assert!(!world.work().join("owned").exists());
}

/// A CLI agent asks by its own rules, and a child of Relive's own does not help it around them.
#[test]
fn case_68_a_child_of_a_cli_agent_that_asks_is_not_created_with_yes() {
    let world = World::new();
    let model = world.hanging();
    let run = |flag: &str| format!("{RELIVE} run -d {flag} --model {model} x < /dev/null >> said 2>&1");
    let script = format!("{}; {}; echo over >> said; sleep 600", run("--yes"), run("--name kid"));
    let agents = world.root().join("config/relive/agents");
    fs::create_dir_all(&agents).unwrap();
    let agent = json!({"command": ["sh", "-c", script], "dialect": "claude"});
    fs::write(agents.join("mine.yaml"), agent.to_string()).unwrap();
    world.relive(&["run", "-d", "--agent", "mine", "task"]).ok();
    let read = || fs::read_to_string(world.work().join("said")).ok().filter(|text| text.ends_with("over\n"));
    let said = wait_for("both were answered", read);
    assert!(said.contains("`shell` would be allowed without asking: only a person allows that"), "{said}");
    assert_eq!(world.info("kid")["display"], "running", "{said}");
}

/// The socket of a process is there while it runs, also after a daemon that was killed, and ends with it.
#[test]
fn case_68_the_socket_of_a_process_survives_the_daemon_and_ends_with_the_process() {
    let world = World::new();
    let script = "echo $RELIVE_SELF > self; while [ ! -e go ]; do sleep 0.02; done; \
                  relive ps -q > seen; while [ ! -e over ]; do sleep 0.02; done";
    let script = format!("relive() {{ {RELIVE} \"$@\"; }}; {script}");
    let begun = world.relive(&["exec", "-d", "--json", "--", "sh", "-c", &script]).ok().json();
    let uuid = begun["uuid"].as_str().unwrap();
    let read = |name: &str| fs::read_to_string(world.work().join(name)).ok().filter(|text| text.ends_with('\n'));
    let socket = wait_for("its socket", || read("self"));
    let socket = std::path::Path::new(socket.trim());
    world.kill_daemon();
    fs::write(world.work().join("go"), "").unwrap();
    let seen = wait_for("it saw itself", || read("seen"));
    assert_eq!(seen.trim(), world.info(uuid)["pid"].to_string());
    wait_until("it is bound again", || std::os::unix::net::UnixStream::connect(socket).is_ok());
    fs::write(world.work().join("over"), "").unwrap();
    world.relive(&["wait", uuid]).ok();
    wait_until("it is gone", || !socket.exists());
}

/// A daemon that finds its data directory under another name knows the programs that were started under the first one.
#[test]
fn case_68_a_program_is_inside_also_after_its_data_directory_has_another_name() {
    let world = World::new();
    let link = world.root().join("link");
    std::os::unix::fs::symlink(world.data(), &link).unwrap();
    let data = link.to_str().unwrap();
    let script = format!(
        "while [ ! -e go ]; do sleep 0.02; done; \
         env -u RELIVE_SESSION -u RELIVE_SELF -u RELIVE_SOCKET RELIVE_DATA_DIR={data} {RELIVE} gc --force > said 2>&1; \
         echo over >> said; sleep 600"
    );
    let program = world.relive(&["exec", "-d", "--json", "--", "sh", "-c", &script]).ok().json();
    world.kill_daemon();
    let other = [("RELIVE_DATA_DIR", data)];
    world.relive_with(&other, &["ps"]).ok();
    fs::write(world.work().join("go"), "").unwrap();
    let read = || fs::read_to_string(world.work().join("said")).ok().filter(|text| text.ends_with("over\n"));
    let said = wait_for("it was answered", read);
    world.relive_with(&other, &["kill", program["uuid"].as_str().unwrap()]).ok();
    world.relive_with(&other, &["daemon", "stop"]).ok();
    assert!(said.contains("collecting journals is only for a person"), "{said}");
}

/// Other rungs of the ladder know who asks, too.
#[test]
fn case_68_without_cgroups_a_program_is_its_process_all_the_same() {
    for ladder in ["pid-namespace", "process-group"] {
        let world = World::new().with_env("RELIVE_LADDER", ladder);
        let victim = world.run_hanging(&["--name", "victim"]);
        // Away from its parents, without an environment, and through the daemon's socket.
        let away = format!(
            "(setsid env -i RELIVE_DATA_DIR={} XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR HOME=$HOME {RELIVE} kill -s KILL victim > said 2>&1; \
             echo $? > code) & while [ ! -s code ]; do sleep 0.02; done; cat code said",
            world.data().display()
        );
        let output = inside(&world, &away);
        assert!(output.stdout.starts_with("4\n"), "{ladder}: {output:?}");
        assert_eq!(world.info(&victim.uuid)["display"], "running", "{ladder}");
    }
}

/// Connects to the socket of another process, and lets a child of the program that connected ask when that one is gone.
const THIEF: &str = r#"
import json, os, socket, sys
answers = []
for _ in range(20):
    go, told = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        s = socket.socket(socket.AF_UNIX)
        s.connect(sys.argv[1])
        if os.fork():
            os._exit(0)
        os.close(go[1])
        os.read(go[0], 1)
        body = json.dumps({"signal": "SIGKILL"})
        head = "POST /v1/processes/%s/signal HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        try:
            s.sendall((head % (sys.argv[2], len(body)) + body).encode())
            answer = s.recv(100)
        except OSError:
            answer = b"refused"
        os.write(told[1], answer[:12] or b"refused")
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(go[1])
    os.close(told[1])
    answers.append(os.read(told[0], 12).decode())
open("answers", "w").write(json.dumps(answers))
"#;

#[test]
fn case_68_a_connection_whose_maker_has_ended_has_no_authority() {
    let world = World::new();
    let victim = world.exec(&[], &["sleep", "1000"]);
    let sockets = world.socket().with_file_name("self");
    let socket = wait_for("the victim's socket", || {
        let name = victim.uuid.replace('-', "");
        Some(sockets.join(name).join("s")).filter(|socket| socket.exists())
    });
    world.relive(&["exec", "-n", "--", "python3", "-c", THIEF, socket.to_str().unwrap(), &victim.uuid]).ok();
    let answers: Vec<String> = serde_json::from_slice(&fs::read(world.work().join("answers")).unwrap()).unwrap();
    assert!(answers.len() == 20 && answers.iter().all(|answer| !answer.ends_with("200")), "{answers:?}");
    assert_eq!(world.info(&victim.uuid)["state"], "running");
}

/// The process `uuid` has ended, and its journal says so once.
#[track_caller]
fn ended_once(world: &World, uuid: &str, status: &serde_json::Value, code: i32, reason: &str) {
    world.relive(&["wait", uuid]).exits(code);
    let info = world.info(uuid);
    assert_eq!(
        (&info["status"], &info["exit"]["reason"], &info["why"]),
        (status, &json!(reason), &json!(null)),
        "{info}"
    );
    assert_eq!(world.records(uuid, "ended").len(), 1);
}

const ENDS: [(&str, i32, &str, &str); 4] = [
    ("terminate --code 3", 3, r#"{"kind":"exited","code":3}"#, "exited"),
    ("terminate --code 0 --reason \"nothing to do\"", 0, r#"{"kind":"exited","code":0}"#, "nothing to do"),
    ("terminate --fault \"no input\"", 1, r#"{"kind":"faulted","fault":"no input"}"#, "no input"),
    ("abandon", 1, r#"{"kind":"abandoned"}"#, "abandoned"),
];

#[test]
fn case_69_a_shell_script_a_python_program_and_an_agent_end_themselves() {
    let world = World::with_config("tools: {shell: allow}\n");
    for (verb, code, status, reason) in ENDS {
        let status: serde_json::Value = serde_json::from_str(status).unwrap();
        let script = format!("{RELIVE} self {verb}; echo returned > returned");
        let python = format!(
            "import subprocess, shlex\nsubprocess.run(shlex.split({:?}))\nopen('returned', 'w')",
            format!("{RELIVE} self {verb}")
        );
        for argv in [["sh", "-c", &script], ["python3", "-c", &python]] {
            let mut args = vec!["exec", "-d", "--json", "--"];
            args.extend(argv);
            let uuid = world.relive(&args).ok().json()["uuid"].as_str().unwrap().to_owned();
            ended_once(&world, &uuid, &status, code, reason);
        }
        // An agent, by its shell tool and by a tool of its own.
        let args = json!({ "command": script });
        let agent = world.run(&format!("turns: [{{calls: [{{name: shell, args: {args}}}]}}, {{text: returned}}]"));
        ended_once(&world, &agent.uuid, &status, code, reason);
        assert!(!world.work().join("returned").exists(), "it returned from `{verb}`");
    }
    let tools = [
        ("terminate, args: {code: 7, reason: enough}", 7, json!({"kind": "exited", "code": 7}), "enough"),
        ("terminate, args: {fault: broken}", 1, json!({"kind": "faulted", "fault": "broken"}), "broken"),
        ("abandon, args: {}", 1, json!({"kind": "abandoned"}), "abandoned"),
    ];
    for (call, code, status, reason) in tools {
        let agent = world.run(&format!("turns: [{{calls: [{{name: {call}}}]}}, {{text: returned}}]"));
        ended_once(&world, &agent.uuid, &status, code, reason);
        assert_eq!(world.records(&agent.uuid, "model_ended").len(), 1, "nothing runs after it");
    }
}

/// The daemon is killed at every moment of the end that can be met from outside.
#[test]
fn case_69_a_kill_in_the_middle_leaves_one_end_of_that_kind() {
    for delay_ms in [0, 5, 10, 20, 40, 80] {
        let world = World::with_config("tools: {shell: allow}\n");
        let script =
            format!("while [ ! -e go ]; do sleep 0.01; done; {RELIVE} self terminate --code 3; echo > returned");
        let program = world.relive(&["exec", "-d", "--json", "--", "sh", "-c", &script]).ok().json();
        let program = program["uuid"].as_str().unwrap().to_owned();
        let python = format!(
            "import os, subprocess, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n\
             subprocess.run(['{RELIVE}', 'self', 'terminate', '--fault', 'no input'])\nopen('returned', 'w')"
        );
        let python = world.relive(&["exec", "-d", "--json", "--", "python3", "-c", &python]).ok().json();
        let python = python["uuid"].as_str().unwrap().to_owned();
        let args = json!({ "command": format!("while [ ! -e go ]; do sleep 0.01; done; {RELIVE} self abandon") });
        let agent = world.run(&format!("turns: [{{calls: [{{name: shell, args: {args}}}]}}, {{text: returned}}]"));
        world.await_records(&agent, "call_started", 1);
        fs::write(world.work().join("go"), "").unwrap();
        // Not a wait for a condition: the moment is what is tried.
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        world.kill_daemon();
        world.relive(&["ps"]).ok();
        ended_once(&world, &program, &json!({"kind": "exited", "code": 3}), 3, "exited");
        ended_once(&world, &python, &json!({"kind": "faulted", "fault": "no input"}), 1, "no input");
        ended_once(&world, &agent.uuid, &json!({"kind": "abandoned"}), 1, "abandoned");
        assert!(!world.work().join("returned").exists());
    }
}

#[test]
fn case_69_self_says_who_it_is_and_what_is_left() {
    let world = World::new();
    let said = inside(&world, "relive self --json; relive exec --timeout 1h -- $0 -c 'true'; relive self").stdout;
    let info: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let process = world.info(info["uuid"].as_str().unwrap());
    assert_eq!((&info["pid"], &info["parent_uuid"]), (&process["pid"], &json!(null)), "{said}");
    assert!(info["limits"].is_object() && info["left"].is_object(), "{info}");
    assert!(said.contains("PARENT   none\nLIMITS   none"), "{said}");
    let below = inside(&world, &format!("relive exec --timeout 1h -- {RELIVE} self --json")).stdout;
    let below: serde_json::Value = serde_json::from_str(&below).unwrap();
    assert_eq!(below["limits"]["timeout_ms"], 3_600_000);
    assert!(below["left"]["timeout_ms"].as_u64().unwrap() <= 3_600_000 && below["parent_uuid"].is_string(), "{below}");
    world.relive(&["self"]).fails(2, &["this command does not run inside a process"]);
    world.relive(&["self", "terminate", "--code", "1"]).fails(2, &["this command does not run inside a process"]);
}

/// A program that waits for the file `go`, in the background.
fn waiting(world: &World, name: &str, script: &str) -> Begun {
    let script = format!("relive() {{ {RELIVE} \"$@\"; }}; while [ ! -e go ]; do sleep 0.02; done; {script}");
    crate::world::begun(&world.relive(&["exec", "-d", "--json", "--name", name, "--", "sh", "-c", &script]).ok().json())
}

#[test]
fn case_68_a_handle_gives_exactly_what_it_says() {
    let world = World::new();
    let victim = world.run_hanging(&["--name", "victim"]);
    let script = "relive info victim > seen; echo $? >> seen; relive kill victim > said 2>&1; echo $? >> said; \
                  while [ ! -e more ]; do sleep 0.02; done; relive pause --now victim; echo $? > paused; \
                  while [ ! -e less ]; do sleep 0.02; done; relive info victim; echo $? > gone; sleep 600";
    let friend = waiting(&world, "friend", script);
    world.relive(&["handle", "grant", "victim", "--to", "friend", "--as", "observer"]).ok();
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    fs::write(world.work().join("go"), "").unwrap();
    let read = |name: &str| fs::read_to_string(world.work().join(name)).ok().filter(|text| text.ends_with('\n'));
    let last = |name: &str| read(name).and_then(|text| text.lines().last().map(str::to_owned));
    let said = wait_for("it was refused", || read("said").filter(|text| text.lines().count() > 1));
    assert_eq!(last("seen").as_deref(), Some("0"), "an observer sees it, also after a crash");
    assert!(said.contains("does not allow this") && said.ends_with("\n5\n"), "{said}");
    world.relive(&["handle", "grant", "victim", "--to", "friend", "--as", "controller"]).ok();
    fs::write(world.work().join("more"), "").unwrap();
    assert_eq!(wait_for("it paused", || read("paused")), "0\n");
    let info = world.await_display("victim", "suspended");
    assert_eq!(info["paused_by"], format!("PID {} (friend)", world.info("friend")["pid"]));
    let list = world.relive(&["handle", "list", "--json"]).ok().json();
    assert_eq!(list["handles"][0]["as"], "controller", "{list}");
    world.relive(&["handle", "release", "victim", "--of", "friend"]).ok();
    fs::write(world.work().join("less"), "").unwrap();
    assert_eq!(wait_for("it is gone", || read("gone")), "4\n");
    let kinds = |kind: &str| world.records(&friend.uuid, kind).len();
    assert_eq!((kinds("granted"), kinds("released")), (2, 1));
    assert_eq!(world.info(&victim.uuid)["display"], "suspended");
}

#[test]
fn case_70_the_end_of_a_child_is_readable_for_its_retention_time_across_a_restart() {
    let world = World::new();
    let script = "kid=$(relive exec -d --json -- sh -c 'exit 7' | sed 's/.*\"uuid\":\"\\([^\"]*\\)\".*/\\1/'); relive wait $kid; \
                  echo $kid > kid; while [ ! -e restarted ]; do sleep 0.02; done; relive wait $kid; echo $? > waited; \
                  relive handle release $kid; relive wait $kid; echo $? > after; sleep 600";
    let parent = waiting(&world, "parent", script);
    fs::write(world.work().join("go"), "").unwrap();
    let read = |name: &str| fs::read_to_string(world.work().join(name)).ok().filter(|text| text.ends_with('\n'));
    let kid = wait_for("its child has ended", || read("kid"));
    world.await_retired(kid.trim());
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    fs::write(world.work().join("restarted"), "").unwrap();
    assert_eq!(wait_for("it waited", || read("waited")), "7\n", "{:?}", read("after"));
    // It is below its parent with and without a handle, for an hour.
    assert_eq!(wait_for("it waited again", || read("after")), "7\n");
    assert_eq!(world.records(&parent.uuid, "granted")[0]["as"], "owner");
    world.relive(&["wait", kid.trim()]).exits(7);
}

#[test]
fn case_07_kills_pauses_and_resumes_say_who_asked() {
    let world = World::new();
    let process = world.run_hanging(&[]);
    world.relive(&["pause", "--now", &process.uuid]).ok();
    let info = world.await_display(&process.uuid, "suspended");
    assert_eq!(info["paused_by"], "you");
    world.kill_daemon();
    assert_eq!(world.info(&process.uuid)["paused_by"], "you", "also after a crash");
    world.relive(&["resume", &process.uuid]).ok();
    world.relive(&["kill", "-s", "INT", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
    assert_eq!(world.info(&process.uuid)["ended_by"], "you (SIGINT)");
    let told = world.relive(&["info", &process.uuid]).ok().stdout;
    assert!(told.contains("WHY        you (SIGINT)\n"), "{told}");
    world.await_retired(&process.uuid);
    let events = world.events(&process.uuid);
    let of = |kind: &str| events.iter().find(|event| event["kind"] == kind).unwrap().clone();
    assert_eq!((&of("paused")["by"], &of("ended")["by"]), (&json!("you"), &json!("you (SIGINT)")));
    assert!(events.iter().any(|event| event["kind"] == "resumed" && event["who"] == "you"), "{events:?}");
    inside(&world, "relive exec -d --name top -- sleep 600; relive kill --subtree top; relive wait top");
    let top = world.info("top");
    let (by, root) = (&top["killed_by"], &top["pid"]);
    // Nothing was below it.
    assert_eq!((&top["ended_by"], &top["killed_from"]), (&json!(format!("PID {by}")), root));
    let told = world.relive(&["info", "top"]).ok().stdout;
    assert!(told.contains(&format!("WHY        PID {by}\n")), "{told}");
}

#[test]
fn case_07_the_resume_of_an_ended_process_says_who_asked() {
    let world = World::new();
    inside(&world, "relive exec -d --name kid -- true; relive wait kid; relive resume kid; relive wait kid");
    let kid = world.info("kid");
    let parent = world.info(kid["parent_uuid"].as_str().unwrap())["pid"].clone();
    assert_eq!((&kid["generation"], &kid["resumed_by"]), (&json!(2), &json!(format!("PID {parent}"))));
    let opened = world.records(kid["uuid"].as_str().unwrap(), "opened");
    assert_eq!((&opened[0]["cause"], &opened[1]["cause"]["by"]), (&json!(null), &parent), "{opened:?}");
    world.relive(&["resume", "kid"]).ok();
    world.relive(&["wait", "kid"]).ok();
    for _ in 0..2 {
        assert_eq!(world.info("kid")["resumed_by"], "you");
        assert!(world.relive(&["info", "kid"]).ok().stdout.contains("RESUMED    by you\n"));
        world.kill_daemon();
    }
    let events = world.events(kid["uuid"].as_str().unwrap());
    let who: Vec<_> = events.iter().filter(|event| event["kind"] == "resumed").map(|event| &event["who"]).collect();
    assert_eq!(who, [&json!(format!("PID {parent}")), &json!("you")]);
}

/// Also when the ancestor itself stands still, and so has no body.
#[test]
fn case_68_ancestors_hear_of_a_suspended_descendant_with_its_reason() {
    let world = World::new();
    let child = world.script("turns: [{hang: true}]");
    let spawn = format!("{{name: spawn_agent, args: {{name: kid, intent: x, model: {child}}}}}");
    let parent = world.run(&format!("turns: [{{calls: [{spawn}]}}, {{text: waiting, hang: true}}]"));
    let kid = world.named("kid");
    world.await_step(&parent, 2);
    world.relive(&["pause", "--now", &parent.uuid]).ok();
    world.await_display(&parent.uuid, "suspended");
    world.relive(&["pause", "--now", &kid.uuid]).ok();
    wait_until("the parent hears of it", || {
        let events = world.events(&parent.uuid);
        events.iter().any(|it| it["kind"] == "suspended_below" && it["pid"] == kid.pid && it["reason"] == "user")
    });
    let info = world.info(&parent.uuid);
    assert_eq!(info["suspended"], json!([{"pid": kid.pid, "name": "kid", "reason": "user"}]), "{info}");
    world.relive(&["resume", &parent.uuid]).ok();
    let id = |it: &serde_json::Value| [&it["epoch"], &it["seq"], &it["part"]].map(ToString::to_string);
    let ids: Vec<_> = world.events(&parent.uuid).iter().map(id).collect();
    let mut unique = ids.clone();
    unique.dedup();
    assert_eq!(ids, unique, "no event has the id of another");
}
