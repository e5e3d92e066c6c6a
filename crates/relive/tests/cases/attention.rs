//! What waits for a person: questions, the inbox, the stream of all processes, and the command that hears of it.

use std::time::{Duration, Instant};

use relive_types::program::relive_commands;
use serde_json::{Value, json};

use crate::world::{Begun, World, wait_for};

/// An agent that asks a question, and ends with what it was told.
const ASKS: &str = "turns: [{calls: [{name: ask, args: {question: 'Which branch?', choices: [main, dev]}}]}, \
                    {text: 'got {{result}}'}]";
const RUNS_COMMAND: &str = "turns: [{calls: [{name: shell, args: {command: 'echo hi'}}]}, {text: done}]";
const ENDS: &str = "turns: [{text: done}]";
/// A process that is paused while it sleeps stands still at once.
const SLEEPS: &str = "turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]";
const FAILS: &str = "turns: [{fail: 'no way'}]";

fn inbox(world: &World) -> Vec<Value> {
    let (code, body) = world.http("GET", "/v1/inbox", "", "");
    assert_eq!(code, 200, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["items"].as_array().unwrap().clone()
}

fn item_of(world: &World, process: &Begun) -> Option<Value> {
    let mut items = inbox(world).into_iter().filter(|item| item["uuid"] == process.uuid.as_str());
    let item = items.next();
    assert_eq!(items.next(), None, "a process is in the inbox once");
    item
}

#[track_caller]
fn await_item(world: &World, process: &Begun, kind: &str) -> Value {
    wait_for(&format!("it is in the inbox as {kind}"), || item_of(world, process).filter(|item| item["kind"] == kind))
}

#[track_caller]
fn await_gone(world: &World, process: &Begun) {
    wait_for("it has left the inbox", || item_of(world, process).is_none().then_some(()));
}

#[test]
fn case_79_what_waits_for_a_person_is_in_the_inbox_once_and_leaves_it_when_answered() {
    let world = World::new();
    let asks = world.run(ASKS);
    let question = await_item(&world, &asks, "question");
    assert_eq!((&question["text"], &question["answers"][0]["text"]), (&json!("Which branch?"), &json!("main")));
    let allows = world.run(RUNS_COMMAND);
    let approval = await_item(&world, &allows, "approval");
    assert_eq!(approval["text"], "shell: echo hi");
    let fails = world.run(FAILS);
    await_item(&world, &fails, "failed");
    let ends = world.run(ENDS);
    await_item(&world, &ends, "finished");
    let kinds = |world: &World| inbox(world).iter().map(|item| item["kind"].clone()).collect::<Vec<_>>();
    let order = ["question", "approval", "failed", "finished"];
    assert_eq!(kinds(&world), order, "the oldest that blocks a process comes first");
    let listed = world.relive(&["inbox"]).ok().stdout;
    assert!(listed.starts_with("PID  NAME  KIND"), "{listed}");

    world.kill_daemon();
    let before = world.relive(&["inbox", "--json"]).ok().json();
    assert_eq!(kinds(&world), order, "the next daemon knows the same");
    assert_eq!(before["items"].as_array().unwrap().len(), 4);

    let answer = approval["answers"][0]["command"].as_str().unwrap().strip_prefix("relive ").unwrap().to_owned();
    world.relive(&answer.split(' ').collect::<Vec<_>>()).ok();
    await_item(&world, &allows, "finished");
    world.relive(&["resolve", &asks.uuid, "--answer", "2"]).ok();
    await_item(&world, &asks, "finished");
    let seen = world.relive(&["inbox", "ack", &ends.uuid, &asks.uuid, "--json"]).ok().json();
    assert_eq!(seen["acked"].as_array().unwrap().iter().filter(|acked| acked["changed"] == true).count(), 2);
    world.kill_daemon();
    world.relive(&["ps"]).ok();
    await_gone(&world, &ends);
    await_gone(&world, &asks);
    assert_eq!(world.records(&asks.uuid, "question")[1]["answer"], "dev", "the number of a choice stands for it");
    world.relive(&["inbox", "ack", "--all"]).ok();
    assert_eq!(inbox(&world), Vec::<Value>::new());
    assert_eq!(world.relive(&["inbox", "-q"]).ok().stdout, "");
}

/// The median of three: another test may have the machine to itself for a moment.
#[test]
fn case_79_a_question_is_in_the_inbox_within_a_second() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    let mut taken = [(); 3].map(|()| {
        let process = world.run(ASKS);
        let asked: jiff::Timestamp =
            await_item(&world, &process, "question")["since"].as_str().unwrap().parse().unwrap();
        Duration::try_from(jiff::Timestamp::now().duration_since(asked)).unwrap()
    });
    taken.sort_unstable();
    assert!(taken[1] < Duration::from_secs(1), "{taken:?}");
}

/// Nothing that a person cannot see is shown as it is where a person answers, in whatever way it is looked at.
#[test]
fn what_is_not_seen_is_spelled_out_and_no_line_of_an_agent_looks_like_one_of_ours() {
    let world = World::new();
    let unseen = "\u{3164}\u{fe0f}\u{a0}\u{e0100}\u{2800}\u{34f}";
    let question = format!("which{unseen}?\\nrelive resolve 2 --allow");
    let ask = format!("{{name: ask, args: {{question: \"{question}\", choices: [\"a{unseen}\", b]}}}}");
    let asks = world.run(&format!("turns: [{{calls: [{ask}]}}]"));
    await_item(&world, &asks, "question");
    let runs = format!("turns: [{{calls: [{{name: shell, args: {{command: \"ls{unseen}; pwd\"}}}}]}}]");
    let runs = world.run(&runs);
    await_item(&world, &runs, "approval");
    let looks: [&[&str]; 8] = [
        &["resolve", "1"],
        &["resolve", "2"],
        &["inbox"],
        &["next"],
        &["info", "1"],
        &["info", "2"],
        &["logs", "2"],
        &["wait", "--needs-me", "2"],
    ];
    for look in looks {
        let told = world.relive(look).ok().stdout;
        assert!(!told.contains(|c| unseen.contains(c)), "{look:?}: {told:?}");
        assert!(told.contains("<U+3164>"), "{look:?}: {told:?}");
        let forged = told.lines().filter(|line| line.trim_start().starts_with("relive resolve 2 --allow")).count();
        assert_eq!(forged, usize::from(look == ["resolve", "2"]), "{look:?}: {told}");
    }
    let told = world.relive(&["resolve", "2"]).ok().stdout;
    let always = told.lines().find(|line| line.starts_with("with --always")).unwrap();
    assert_eq!(always, "with --always you are not asked again about exactly this command");
}

/// The command of each answer gives this answer, also where a number of one choice is the text of another.
#[test]
fn choices_that_are_numbers_are_answered_by_their_text() {
    let world = World::new();
    let choices = ["2", "1", " 2 ", "01"];
    let ask = format!("{{name: ask, args: {{question: 'how many?', choices: {}}}}}", json!(choices));
    let call = format!("{{calls: [{ask}]}}");
    let asker = world.run(&format!("turns: [{}, {{text: done}}]", [call.as_str(); 4].join(", ")));
    for (place, choice) in choices.iter().enumerate() {
        let asked = 2 * place + 1;
        wait_for("it asks", || (world.records(&asker.uuid, "question").len() == asked).then_some(()));
        let item = await_item(&world, &asker, "question");
        let commands = relive_commands(item["answers"][place]["command"].as_str().unwrap()).unwrap();
        world.relive(&commands[0].iter().map(String::as_str).collect::<Vec<_>>()).ok();
        assert_eq!(world.records(&asker.uuid, "question")[asked]["answer"], *choice);
    }
    world.relive(&["wait", &asker.uuid]).ok();
}

/// Whatever comes after a long line, or many of them, is seen before it is allowed.
#[test]
fn a_long_command_or_question_is_shown_to_its_end() {
    let world = World::new();
    let line = format!("echo harmless; : {}; touch deed", "y".repeat(20_000));
    let lines = format!("{}touch deed", "# nothing\n".repeat(3_000));
    for (tool, field) in [("shell", "command"), ("ask", "question")] {
        for text in [&line, &lines] {
            let call = json!({"name": tool, "args": {field: text}});
            let asker = world.run(&json!({"turns": [{"calls": [call]}, {"text": "done"}]}).to_string());
            world.await_display(&asker.uuid, if tool == "ask" { "question" } else { "approval" });
            for command in [&["resolve", &asker.uuid][..], &["next"]] {
                let told = world.relive(command).ok().stdout;
                let last = told.lines().rfind(|line| line.starts_with("  | ")).unwrap();
                assert!(last.ends_with("touch deed") && !told.contains("not shown"), "{command:?}: {last}");
            }
            world.relive(&["kill", &asker.uuid]).ok();
            world.await_retired(&asker.uuid);
        }
    }
}

#[test]
fn an_approval_says_that_a_file_is_overwritten_whatever_it_holds() {
    let world = World::new();
    let call = json!({"name": "write", "args": {"path": "target.txt", "content": "new\n"}});
    let script = json!({"turns": [{"calls": [call]}, {"text": "done"}]}).to_string();
    let check = |before: Option<&[u8]>, expect: &str| {
        let target = world.work().join("target.txt");
        match before {
            Some(before) => std::fs::write(&target, before).unwrap(),
            None => std::fs::remove_file(&target).unwrap(),
        }
        let writer = world.run_with(&script, &["--ask", "write"]);
        world.await_display(&writer.uuid, "approval");
        let told = world.relive(&["resolve", &writer.uuid]).ok().stdout;
        assert!(told.contains(expect), "{told}");
        world.relive(&["kill", &writer.uuid]).ok();
        world.await_retired(&writer.uuid);
    };
    let hidden = |size: &str| format!("asks to overwrite target.txt ({size}, not shown):\n  | +new\n");
    check(Some(b"caf\xe9 latin1 precious\n"), &hidden("21 bytes"));
    check(Some(&vec![b'x'; (1 << 20) + 1]), &hidden("1.0 MiB"));
    check(Some(b"old\n"), "asks to overwrite target.txt:\n  | -old\n  | +new\n");
    check(None, "asks to write target.txt:\n  | +new\n");
}

#[test]
fn an_answer_may_begin_with_a_hyphen() {
    let world = World::new();
    let ask = "{name: ask, args: {question: which, choices: [-blue, --red]}}";
    let asker = world.run(&format!("turns: [{{calls: [{ask}]}}, {{text: done}}]"));
    world.await_display(&asker.uuid, "question");
    world.relive(&["resolve", &asker.uuid, "--answer", "-blue"]).ok();
    world.relive(&["wait", &asker.uuid]).ok();
    let said = world.records(&asker.uuid, "call_ended")[0]["result"].to_string();
    assert!(said.contains("-blue"), "{said}");
}

#[test]
fn a_question_waits_for_its_answer_whatever_becomes_of_the_daemon_and_the_first_answer_wins() {
    let world = World::new();
    let process = world.run_with(ASKS, &["--name", "asker"]);
    let info = world.await_display(&process.uuid, "question");
    assert_eq!((&info["suspend_reason"], &info["question"]["choices"]), (&json!("question"), &json!(["main", "dev"])));
    world.kill_daemon();
    let info = world.await_display("asker", "question");
    assert_eq!(info["question"]["text"], "Which branch?");
    world.relive(&["resume", "asker"]).fails(3, &["hint: relive resolve"]);
    world.relive(&["resolve", "asker", "--allow"]).fails(3, &["asks a question"]);
    world.relive(&["resolve", "asker", "--answer", " "]).fails(2, &["the answer is empty"]);
    world
        .relive(&["resolve", "asker", "--answer", "x", "--question", "999"])
        .fails(3, &[" does not ask question 999: it asks something else now", "hint: relive resolve "]);
    assert_eq!(world.records(&process.uuid, "question").len(), 1, "no refused answer is recorded");
    let told = world.relive(&["resolve", "asker"]).ok().stdout;
    assert!(told.contains("asks:\n  | Which branch?\nit proposes:\n  1 | main\n  2 | dev\n"), "{told}");
    // Two at once: one of them is told of the other.
    let answers = ["left", "right"].map(|answer| world.start(&["resolve", "asker", "--answer", answer]));
    let answers = answers.map(crate::world::finish);
    assert_eq!(answers.iter().filter(|answer| answer.code == 0).count(), 1, "{answers:?}");
    world.relive(&["wait", "asker"]).ok();
    let given = world.records(&process.uuid, "question")[1]["answer"].clone();
    let log = world.relive(&["logs", "asker"]).ok().stdout;
    assert!(log.contains(&format!("got {}", given.as_str().unwrap())), "{log}");
}

#[test]
fn a_later_answer_is_told_of_the_first_also_when_the_agent_works_on() {
    let world = World::new().with_env("TZ", "JST-9");
    let ask = |question: &str| format!("{{calls: [{{name: ask, args: {{question: '{question}'}}}}]}}");
    let works = "{calls: [{name: shell, args: {command: 'while [ ! -e go ]; do sleep 0.01; done'}}]}";
    let script = format!("turns: [{}, {works}, {}, {{text: done}}]", ask("Which branch?"), ask("And which tag?"));
    let process = world.run_with(&script, &["-y"]);
    let first = world.await_display(&process.uuid, "question")["question"]["id"].to_string();
    world.relive(&["resolve", &process.uuid, "--answer", "main"]).ok();
    world.await_records(&process, "call_started", 1);
    let told = [" has its answer already: main (at 20", " +09:00)"];
    world.relive(&["resolve", &process.uuid, "--answer", "dev"]).fails(3, &told);
    world.relive(&["resolve", &process.uuid, "--answer", "dev", "--question", &first]).fails(3, &told);
    world.kill_daemon();
    world.relive(&["resolve", &process.uuid, "--answer", "dev"]).fails(3, &told);
    world.file("go", "");
    // The next question is another one, and the first one can still be told apart from it.
    world.await_display(&process.uuid, "question");
    world.relive(&["resolve", &process.uuid, "--answer", "dev", "--question", &first]).fails(3, &told);
    world.relive(&["resolve", &process.uuid, "--answer", "v1"]).ok();
    world.relive(&["wait", &process.uuid]).ok();
    let answers: Vec<Value> =
        world.records(&process.uuid, "question").into_iter().map(|record| record["answer"].clone()).collect();
    assert_eq!(answers, [Value::Null, json!("main"), Value::Null, json!("v1")]);
}

#[test]
fn a_later_answer_is_told_of_the_first_also_when_the_process_has_ended() {
    let world = World::new().with_env("TZ", "JST-9");
    let asked = world.run(ASKS);
    let question = world.await_display(&asked.uuid, "question")["question"]["id"].to_string();
    world.relive(&["resolve", &asked.uuid, "--answer", "main"]).ok();
    world.relive(&["wait", &asked.uuid]).ok();
    let told = [" has its answer already: main (at 20", " +09:00); it has ended since\n"];
    world.relive(&["resolve", &asked.uuid, "--answer", "dev"]).fails(3, &told);
    world.relive(&["resolve", &asked.uuid, "--answer", "dev", "--question", &question]).fails(3, &told);
    let allowed = world.run(RUNS_COMMAND);
    let call = world.await_display(&allowed.uuid, "approval")["approval"]["id"].to_string();
    world.relive(&["resolve", &allowed.uuid, "--allow"]).ok();
    world.relive(&["wait", &allowed.uuid]).ok();
    let told = [" has its answer already: the call of shell was allowed (at 20", " +09:00); it has ended since\n"];
    world.relive(&["resolve", &allowed.uuid, "--deny"]).fails(3, &told);
    world.kill_daemon();
    world.relive(&["resolve", &allowed.uuid, "--deny", "--question", &call]).fails(3, &told);
    // One that was ended before anybody answered has no answer, whatever was asked before.
    let ask = |question: &str| format!("{{calls: [{{name: ask, args: {{question: '{question}'}}}}]}}");
    let ended = world.run(&format!("turns: [{}, {}]", ask("Which branch?"), ask("And which tag?")));
    world.await_display(&ended.uuid, "question");
    world.relive(&["resolve", &ended.uuid, "--answer", "main"]).ok();
    world.await_records(&ended, "question", 3);
    world.relive(&["kill", &ended.uuid]).ok();
    world.await_retired(&ended.uuid);
    let told = [" does not wait for an answer: it has ended\n"];
    world.relive(&["resolve", &ended.uuid, "--answer", "v1"]).fails(3, &told);
}

#[test]
fn an_end_is_only_an_item_if_nobody_was_there() {
    let world = World::new();
    let model = world.script(ENDS);
    world.relive(&["run", "--model", &model, "in the foreground"]).ok();
    world.relive(&["exec", "--", "false"]).exits(1);
    let killed = world.run_hanging(&[]);
    world.relive(&["kill", &killed.uuid]).ok();
    world.relive(&["wait", &killed.uuid]).exits(1);
    let parent = world.run("turns: [{calls: [{name: spawn_agent, args: {intent: x, model: script/none}}]}, {text: x}]");
    await_item(&world, &parent, "finished");
    assert_eq!(inbox(&world).len(), 1, "{:?}", inbox(&world));
    let program = crate::world::begun(&world.relive(&["exec", "-d", "--json", "--", "false"]).ok().json());
    await_item(&world, &program, "failed");
}

#[test]
fn only_the_person_looks_into_the_inbox() {
    let world = World::new();
    let ends = world.run(ENDS);
    await_item(&world, &ends, "finished");
    let inside = |args: &[&str]| {
        let relive = env!("CARGO_BIN_EXE_relive");
        world.relive(&[&["exec", "--", relive], args].concat())
    };
    inside(&["inbox"]).fails(5, &["the inbox is only for a person"]);
    inside(&["inbox", "ack", &ends.uuid]).fails(5, &["the inbox is only for a person"]);
    inside(&["wait", "--needs-me", "--timeout", "5s"]).fails(5, &["only for a person"]);
    assert!(item_of(&world, &ends).is_some());
}

#[test]
fn acknowledging_is_refused_for_what_has_not_ended_and_for_what_is_another_end_by_now() {
    let world = World::new();
    let asks = world.run(ASKS);
    await_item(&world, &asks, "question");
    world.relive(&["inbox", "ack", &asks.uuid]).fails(3, &["has not ended", "hint: relive resolve"]);
    world.relive(&["inbox", "ack", "nobody"]).fails(4, &[]);
    let fails = world.run(FAILS);
    let id = await_item(&world, &fails, "failed")["id"].as_str().unwrap().to_owned();
    world.relive(&["resume", &fails.uuid]).ok();
    wait_for("it has failed again", || item_of(&world, &fails).filter(|item| item["id"] != id.as_str()));
    world.relive(&["inbox", "ack", &id]).fails(3, &["no longer in the inbox"]);
    // One document, also where some fail.
    let told = world.relive(&["inbox", "ack", "--json", &id]).exits(3).json();
    assert_eq!(told["error"]["code"], "CONFLICT");
    let ends = world.run(ENDS);
    await_item(&world, &ends, "finished");
    let told = world.relive(&["inbox", "ack", "--json", &id, &ends.uuid]).exits(3).json();
    assert_eq!((&told["failed"][0]["id"], &told["acked"][0]["uuid"]), (&json!(id), &json!(ends.uuid)));
    assert_eq!(told["failed"][0]["error"]["code"], "CONFLICT");
    assert!(item_of(&world, &fails).is_some());
}

#[test]
fn the_command_of_notify_hears_of_each_item_once_and_nothing_waits_for_it() {
    let world = World::new();
    let heard = world.root().join("heard");
    let line = r#"printf '%s|%s|%s|%s\n' "$RELIVE_TITLE" "$RELIVE_TEXT" "$RELIVE_UUID" "$RELIVE_LINK""#;
    world.configure(&format!("notify: |\n  {line} >>{}; sleep 60\n", heard.display()));
    let begun = Instant::now();
    let process = world.run_with(ASKS, &["--name", "asker"]);
    let lines = || std::fs::read_to_string(&heard).unwrap_or_default();
    wait_for("it has heard", || lines().contains('\n').then_some(()));
    let link = format!("file://{}", world.directory(&process.uuid).canonicalize().unwrap().display());
    assert_eq!(lines(), format!("asker: question|Which branch?|{}|{link}\n", process.uuid));
    world.relive(&["resolve", "asker", "--answer", "x"]).ok();
    world.relive(&["wait", "asker"]).ok();
    assert!(begun.elapsed() < Duration::from_secs(60), "the command still sleeps");
    // What is approved has its line breaks: as one word `arm` nobody would know it.
    let line_breaks = r#"turns: [{calls: [{name: shell, args: {command: "ls a\nrm -rf b"}}]}]"#;
    world.run(line_breaks);
    wait_for("it hears of a command", || lines().contains("|shell: ls a<LF>rm -rf b|").then_some(()));
    let failed = world.run(FAILS);
    wait_for("it hears of the next", || lines().contains(&failed.uuid).then_some(()));
    for once in ["asker: question|", &failed.uuid] {
        assert_eq!(lines().lines().filter(|line| line.contains(once)).count(), 1, "{once}: {}", lines());
    }
}

#[test]
fn a_command_of_notify_that_is_not_there_is_said_to_be() {
    let world = World::new();
    world.configure("notify: notify-sent \"$RELIVE_TITLE\"\n");
    let asks = world.run(ASKS);
    world.await_display(&asks.uuid, "question");
    let warning = |part: &str| {
        wait_for("it is said", || {
            let status = world.relive(&["daemon", "status"]).ok().stdout;
            status.lines().find(|line| line.contains("`notify`") && line.contains(part)).map(str::to_owned)
        })
    };
    let told = warning("exit code 127: a command in it was not found");
    assert!(told.contains("the command of `notify` failed at 20") && told.contains(" UTC: "), "{told}");
    // Of several failures the last is told, which its time shows.
    let second = || jiff::Timestamp::now().as_second();
    let now = second();
    wait_for("the clock shows another second", || (second() > now).then_some(()));
    world.run(ASKS);
    wait_for("the later one is said", || (warning("exit code 127") != told).then_some(()));
    let status = world.relive(&["daemon", "status"]).ok().stdout;
    assert_eq!(status.matches("the command of `notify` failed").count(), 1, "{status}");
}

/// Nobody but its own parent is left to end it.
#[test]
fn the_command_of_notify_is_ended_in_time_also_if_the_daemon_is_killed() {
    check_notify_is_ended(|pid| format!("sleep 600 & echo $! >{pid}; sleep 600; true"));
}

/// In a session of its own, and of a command that has ended long since.
#[test]
fn what_the_command_of_notify_left_behind_is_ended_in_time() {
    check_notify_is_ended(|pid| format!("setsid sh -c 'echo $$ >{pid}; exec sleep 600' &"));
}

fn check_notify_is_ended(command: impl FnOnce(&str) -> String) {
    let world = World::new();
    let began = world.root().join("began");
    world.configure(&format!("notify: |\n  {}\n", command(began.to_str().unwrap())));
    world.run(ASKS);
    let pid = wait_for("it runs", || std::fs::read_to_string(&began).ok()?.trim().parse::<u32>().ok());
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    assert!(lives());
    world.kill_daemon();
    wait_for("it is ended", || (!lives()).then_some(()));
}

#[test]
fn the_command_of_notify_hears_of_a_program_that_ended_while_there_was_no_daemon() {
    let world = World::new();
    let heard = world.root().join("heard");
    world.configure(&format!("notify: |\n  echo \"$RELIVE_KIND $RELIVE_UUID\" >>{}\n", heard.display()));
    let lines = || std::fs::read_to_string(&heard).unwrap_or_default();
    let gate = world.root().join("gate");
    let script = format!("while ! [ -e {} ]; do sleep 0.02; done; exit 3", gate.display());
    let program = world.relive(&["exec", "-d", "--json", "--", "sh", "-c", &script]).ok().json();
    let program = crate::world::begun(&program);
    let before = world.run(FAILS);
    let told = |uuid: &str| lines().lines().filter(|line| *line == format!("failed {uuid}")).count();
    wait_for("it has heard of the first", || (told(&before.uuid) == 1).then_some(()));
    let shell = world.info(&program.uuid)["session"]["host_pid"].as_u64().unwrap();
    world.kill_daemon();
    std::fs::write(&gate, "").unwrap();
    wait_for("the program has ended", || (!std::path::Path::new(&format!("/proc/{shell}")).exists()).then_some(()));
    world.relive(&["ps"]).ok();
    wait_for("it hears of it", || (told(&program.uuid) == 1).then_some(()));
    assert_eq!(told(&before.uuid), 1, "and not again of what was told: {}", lines());
}

#[test]
fn wait_needs_me_returns_the_first_item() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    world.relive(&["wait", "--needs-me", "--timeout", "100ms"]).fails(124, &["nothing needs you"]);
    let waiting = world.start(&["wait", "--needs-me", "--json"]);
    let process = world.run(ASKS);
    let told = crate::world::finish(waiting).ok().json();
    world.relive(&["kill", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
    let over = world.relive(&["wait", "--needs-me", &process.uuid]).ok();
    assert!(over.stderr.contains("all of them have ended, and nothing needs you"), "{}", over.stderr);
    assert_eq!((&told["item"]["kind"], &told["item"]["uuid"]), (&json!("question"), &json!(process.uuid)));
}

/// Of one that ended before somebody asked, however it is named.
#[test]
fn wait_needs_me_returns_the_item_of_a_process_that_has_ended() {
    let world = World::new();
    let failed = world.run_with(FAILS, &["--name", "gone"]);
    let item = await_item(&world, &failed, "failed");
    for id in ["gone", &item["pid"].to_string(), &failed.uuid] {
        let told = world.relive(&["wait", "--needs-me", "--json", id]).ok().json();
        assert_eq!((&told["item"]["id"], &told["item"]["kind"]), (&item["id"], &json!("failed")), "{id}: {told}");
    }
    world.relive(&["inbox", "ack", item["id"].as_str().unwrap()]).ok();
    let told = world.relive(&["wait", "--needs-me", "--json", "gone"]).ok().json();
    assert_eq!(told, json!({"item": null}), "it was seen");
}

/// The events of a stream: its names, the processes it tells of, and its last id.
fn stream(world: &World, after: Option<&str>) -> (Vec<String>, Vec<String>, String) {
    let header = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    let (code, body) = world.http("GET", "/v1/stream", &header, "");
    assert_eq!(code, 200, "{body}");
    let field = |name: &str| {
        let lines = body.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let told = field("data")
        .into_iter()
        .filter_map(|data| serde_json::from_str::<Value>(&data).unwrap()["uuid"].as_str().map(str::to_owned));
    (field("event"), told.collect(), field("id").pop().unwrap())
}

/// Waits until nothing changes any more: events are written a moment after what they tell of.
fn await_calm(world: &World, mut id: String) -> String {
    wait_for("nothing changes", || {
        let (_, told, next) = stream(world, Some(&id));
        id = next;
        told.is_empty().then_some(())
    });
    id
}

#[test]
fn what_is_removed_leaves_the_stream_and_a_wait_for_it() {
    let world = World::new();
    let (kept, gone) = (world.run(SLEEPS), world.run(ENDS));
    await_item(&world, &gone, "finished");
    let (_, told, id) = stream(&world, None);
    assert!(told.contains(&gone.uuid), "{told:?}");
    let id = await_calm(&world, id);
    world.relive(&["rm", "-y", &gone.uuid]).ok();
    let (code, body) = world.http("GET", &format!("/v1/stream?after={id}"), "", "");
    assert_eq!(code, 200, "{body}");
    let changes = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let changes: Vec<Value> = changes.filter_map(|data| serde_json::from_str(data).ok()).collect();
    let of_gone: Vec<&Value> = changes.iter().filter(|change| change["uuid"] == gone.uuid.as_str()).collect();
    let is_gone = |change: &&Value| change["process"].is_null() && change["item"].is_null();
    assert!(of_gone.last().is_some_and(is_gone), "{body}");
    // What `gc` removes is told as well.
    world.relive(&["kill", &kept.uuid]).ok();
    world.relive(&["wait", &kept.uuid]).exits(1);
    world.await_retired(&kept.uuid);
    let id = await_calm(&world, stream(&world, None).2);
    world.relive(&["gc", "--older-than", "0s", "--force"]).ok();
    let (_, told, _) = stream(&world, Some(&id));
    assert!(told.contains(&kept.uuid), "{told:?}");
}

#[test]
fn the_stream_of_all_processes_continues_after_an_id_also_in_the_next_daemon() {
    let world = World::new();
    let (first, second) = (world.run(SLEEPS), world.run(ASKS));
    await_item(&world, &second, "question");
    let (names, told, id) = stream(&world, None);
    assert_eq!((names.first().unwrap().as_str(), names.last().unwrap().as_str()), ("reset", "ready"));
    assert_eq!(told.len(), 2);
    let id = await_calm(&world, id);
    world.relive(&["pause", &first.uuid]).ok();
    world.await_display(&first.uuid, "suspended");
    let (names, told, id) = stream(&world, Some(&id));
    assert!(!names.contains(&"reset".to_owned()), "{names:?}");
    assert!(told.contains(&first.uuid), "what has changed: {told:?}");

    world.kill_daemon();
    world.relive(&["resolve", &second.uuid, "--answer", "x"]).ok();
    world.relive(&["wait", &second.uuid]).ok();
    let (names, told, _) = stream(&world, Some(&id));
    assert_eq!(names.first().unwrap(), "reset", "its position is of another daemon: everything is told again");
    assert!(told.contains(&first.uuid) && told.contains(&second.uuid), "also what has ended meanwhile: {told:?}");
}
