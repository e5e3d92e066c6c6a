//! In front of an agent on a terminal: approvals, Ctrl-C, leaving and coming back.

use serde_json::{Value, json};

use crate::screen::{Marked, Screen};
use crate::world::{World, wait_until};

fn shell(command: &str) -> Value {
    json!({"calls": [{"name": "shell", "args": {"command": command}}]})
}

fn write(path: &str, content: &str) -> Value {
    json!({"calls": [{"name": "write", "args": {"path": path, "content": content}}]})
}

fn script(world: &World, turns: &[Value]) -> String {
    let mut turns = turns.to_vec();
    turns.push(json!({"text": "All done."}));
    world.script(&json!({ "turns": turns }).to_string())
}

/// The one process there is.
fn only(world: &World) -> Value {
    world.relive(&["ps", "-a", "--json"]).ok().json()["processes"][0].clone()
}

#[test]
fn approvals_are_shown_once_and_answered_by_a_key() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "approvals_are_shown_once_and_answered_by_a_key") else { return };
    let twice = "echo 'a  b'\necho second line";
    let turns = [shell(twice), shell(twice), write("notes", "one\n2\n3\n"), write("notes", "never\n")];
    std::fs::write(world.work().join("notes"), "one\ntwo\n3\n").unwrap();
    screen.command(&format!("relive run --ask write --model {} 'do it'", script(&world, &turns)));
    let shown = screen.await_text("allow? [y]es, [n]o, [a]lways this command");
    assert!(shown.contains("Ctrl-] detaches, Ctrl-C asks it to stop"), "{shown}");
    assert!(shown.contains("PID 1 asks to run a command:\n  | echo 'a  b'\n  | echo second line\nallow?"), "{shown}");
    screen.line("what?");
    screen.await_text("\n[y]es, [n]o, [a]lways, then Enter:");
    screen.line("a");
    let shown = screen.await_text("PID 1 asks to overwrite notes:\n  |  one\n  | -two\n  | +2\n  |  3\nallow?");
    assert!(shown.contains("stored the rule for PID 1: shell:echo 'a  b'<LF>echo second line"), "{shown}");
    assert!(shown.contains("(allowed by a rule for this command)"), "{shown}");
    assert_eq!(shown.matches("asks to run a command").count(), 1, "{shown}");
    assert_eq!(shown.matches("   | second line\n").count(), 2, "the output is shown once for each run: {shown}");
    screen.line("y");
    screen.await_text("| +never\nallow?");
    screen.line("n");
    let shown = screen.await_code(0);
    assert!(shown.contains("All done.\nPID 1 completed: 5 steps, "), "{shown}");
    assert_eq!(std::fs::read_to_string(world.work().join("notes")).unwrap(), "one\n2\n3\n");
}

#[test]
fn a_model_cannot_draw_on_the_screen() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_model_cannot_draw_on_the_screen") else { return };
    let forged = format!("ls{}allow? [y]es\r\u{1b}[2J\u{1b}[H\u{202e}", " ".repeat(90));
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[shell(&forged)])));
    let shown = screen.await_text("allow? [y]es, [n]o, [a]lways this command");
    assert!(shown.contains("<CR><ESC>[2J<ESC>[H<U+202E>"), "{shown}");
    let below = shown.split_once("asks to run a command:\n").unwrap().1;
    let forged: Vec<&str> = below.lines().take_while(|line| !line.starts_with("allow?")).collect();
    assert!(forged.len() > 1 && forged.iter().all(|line| line.starts_with("  |")), "{shown}");
    screen.line("n");
    screen.await_code(0);
}

#[test]
fn ctrl_c_does_not_take_a_recovered_process_for_its_own_child() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "ctrl_c_does_not_take_a_recovered_process_for_its_own_child") else {
        return;
    };
    screen.command(&format!("relive run --model {} 'do it'", world.hanging()));
    screen.await_text("Ctrl-] detaches");
    world.kill_daemon();
    wait_until("it has another PID", || only(&world)["pid"] != 1);
    screen.keys(&["C-c"]);
    let shown = screen.await_code(130);
    assert!(!shown.contains("below it"), "{shown}");
}

/// A shell that brings a job to the foreground which runs in the background sends it no signal.
#[test]
#[cfg(feature = "faults")]
fn the_detach_key_works_after_bg_and_fg() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_detach_key_works_after_bg_and_fg") else { return };
    screen.line("PS1=bash: bash --norc --noprofile");
    screen.await_text("\nbash:");
    screen.line(&format!("relive run --model {} 'do it'", world.hanging()));
    screen.await_text("Ctrl-] detaches");
    wait_until("the key ends a line", || screen.stty().contains("eol = ^]"));
    screen.keys(&["C-z"]);
    screen.await_text("Stopped");
    screen.line("bg");
    screen.await_text("relive run --model");
    screen.line("jobs");
    screen.await_text("Running");
    assert!(!screen.stty().contains("eol = ^]"), "the shell has the terminal");
    screen.line("fg");
    wait_until("the key ends a line again", || screen.stty().contains("eol = ^]"));
    screen.keys(&["C-]"]);
    screen.await_text("detached, PID 1 keeps running: relive attach 1");
    wait_until("the key is reset", || !screen.stty().contains("eol = ^]"));
}

#[test]
fn ctrl_c_asks_it_to_stop() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "ctrl_c_asks_it_to_stop") else { return };
    screen.command(&format!("relive run --model {} 'do it'", world.hanging()));
    screen.await_text("Ctrl-] detaches");
    screen.keys(&["C-c"]);
    let shown = screen.await_code(130);
    assert!(shown.contains("asking PID 1 to stop (SIGINT); press Ctrl-C again to kill it"), "{shown}");
    assert!(shown.contains("PID 1 ended by SIGINT ("), "{shown}");
    assert_eq!(only(&world)["status"], json!({"kind": "killed", "signal": "SIGINT"}));
}

#[test]
fn a_second_ctrl_c_kills_it() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_second_ctrl_c_kills_it") else { return };
    let stubborn = shell("trap '' INT; echo deaf; while :; do sleep 1; done");
    screen.command(&format!("relive run -y --model {} 'do it'", script(&world, &[stubborn])));
    screen.await_text("   | deaf");
    screen.keys(&["C-c"]);
    screen.await_text("press Ctrl-C again to kill it");
    screen.keys(&["C-c"]);
    let shown = screen.await_code(130);
    assert!(shown.contains("killing PID 1 (SIGKILL)"), "{shown}");
    assert_eq!(only(&world)["status"], json!({"kind": "killed", "signal": "SIGKILL"}));
}

#[test]
fn a_person_detaches_attaches_again_and_sends_a_message() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_person_detaches_attaches_again_and_sends_a_message") else { return };
    let wait = json!({"calls": [{"name": "sleep", "args": {"duration": "1h"}}]});
    screen.command(&format!("relive run --name one --model {} 'do it'", script(&world, &[wait])));
    screen.await_text("-> sleep {\"duration\":\"1h\"}");
    screen.keys(&["h", "a", "l", "f", "C-]"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("keeps running: relive attach 1"), "{shown}");
    assert!(shown.contains("\nnot sent: what you were typing\n"), "{shown}");
    screen.command("relive attach one");
    screen.await_text("attached to PID 1; a line you type is sent to it, Ctrl-] detaches");
    screen.await_text("-> sleep {\"duration\":\"1h\"}");
    screen.line("y");
    screen.await_text("the agent has no open question");
    screen.line("look at the docs too");
    screen.await_text("look at the docs too\nsent");
    // Typed at once: none is given up for the next.
    let many: Vec<String> = (1..=9).map(|number| format!("message {number}")).collect();
    screen.line(&many.join("\n"));
    wait_until("all were sent", || {
        // The echo of a typed line may stand before the word.
        let is_sent = |line: &&str| line.ends_with("sent") && !line.ends_with("not sent");
        screen.text().lines().filter(is_sent).count() == 10
    });
    screen.keys(&["C-d"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("keeps running: relive attach 1"), "{shown}");
    screen.command("relive attach one");
    screen.await_text("attached to PID 1");
    screen.keys(&["C-c"]);
    screen.await_code(130);
    let process = only(&world);
    assert_eq!(process["display"], "running", "nobody stopped it");
    let said = world.records(process["uuid"].as_str().unwrap(), "input");
    let said: Vec<&Value> = said.iter().map(|record| &record["text"]).collect();
    assert_eq!(said[..2], ["do it", "look at the docs too"]);
    assert_eq!(json!(said[2..]), json!(many));
}

#[test]
fn the_end_of_input_at_a_question_leaves_it_waiting() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_end_of_input_at_a_question_leaves_it_waiting") else { return };
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[shell("echo hello")])));
    screen.await_text("allow? [y]es");
    screen.keys(&["C-d"]);
    let shown = screen.await_code(2);
    let said = "error: PID 1 waits for your approval, and the input has ended; it keeps waiting";
    assert!(shown.contains(said) && shown.contains("hint: relive resolve 1\n"), "{shown}");
    assert_eq!(only(&world)["display"], "approval");
    screen.command("relive attach 1");
    screen.await_text("allow? [y]es");
    screen.line("y");
    let shown = screen.await_code(0);
    assert!(shown.contains("   | hello"), "{shown}");
}

#[test]
fn a_question_fits_the_terminal_as_it_is_now() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_question_fits_the_terminal_as_it_is_now") else { return };
    let long = format!("echo {}", "0123456789".repeat(6));
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[shell("true"), shell(&long)])));
    screen.await_text("allow? [y]es");
    screen.resize(40, 20);
    screen.line("y");
    let shown = screen.await_text("  |>12345678901234567890123456789\nallow?");
    assert!(shown.contains("\n  | echo 0123456789012345678901234567890\n  |>12345678"), "{shown}");
    screen.resize(80, 24);
    screen.line("y");
    screen.await_code(0);
}

#[test]
fn piped_text_is_context_and_approvals_are_read_from_the_terminal() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "piped_text_is_context_and_approvals_are_read_from_the_terminal") else {
        return;
    };
    let model = script(&world, &[shell("echo hello")]);
    screen.command(&format!("echo some context | relive run --model {model} 'review this'"));
    screen.await_text("allow? [y]es");
    screen.line("y");
    let shown = screen.await_code(0);
    assert!(shown.contains("read 13 bytes of context from stdin"), "{shown}");
    let process = only(&world);
    assert_eq!(process["intent"], "review this");
    let told = world.records(process["uuid"].as_str().unwrap(), "input")[0]["text"].as_str().unwrap().to_owned();
    assert!(told.starts_with("review this\n\n") && told.contains(">\nsome context\n</stdin-"), "{told}");
}

#[test]
fn run_shows_a_child_and_asks_for_its_approval() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "run_shows_a_child_and_asks_for_its_approval") else { return };
    let child = script(&world, &[shell("echo from below")]);
    let spawn =
        json!({"calls": [{"name": "spawn_agent", "args": {"intent": "help", "name": "helper", "model": child}}]});
    let wait = json!({"calls": [{"name": "wait_agent", "args": {"uuid": "{{child}}"}}]});
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[spawn, wait])));
    screen.await_text("PID 2 (helper) asks to run a command:\n  | echo from below\nallow? [y]es");
    screen.line("y");
    let shown = screen.await_code(0);
    assert!(shown.contains("[helper]    | from below\n"), "{shown}");
    assert!(shown.contains("[helper] All done."), "{shown}");
    assert!(shown.contains(", including 1"), "{shown}");
}

#[test]
fn an_answer_from_elsewhere_takes_the_question_away() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "an_answer_from_elsewhere_takes_the_question_away") else { return };
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[shell("echo hello")])));
    screen.await_text("allow? [y]es");
    world.relive(&["resolve", "1", "--allow"]).ok();
    let shown = screen.await_code(0);
    assert!(shown.contains("answered elsewhere") && shown.contains("   | hello"), "{shown}");
    wait_until("it has ended", || only(&world)["exit"]["code"] == 0);
}

#[test]
fn what_is_typed_in_front_of_run_is_a_message_as_in_front_of_attach() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "what_is_typed_in_front_of_run_is_a_message") else { return };
    let wait = json!({"calls": [{"name": "sleep", "args": {"duration": "1h"}}]});
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[wait])));
    screen.await_text("a line you type is sent to it, Ctrl-] detaches, Ctrl-C asks it to stop");
    screen.await_text("-> sleep {\"duration\":\"1h\"}");
    screen.line("look at the docs too");
    screen.await_text("look at the docs too\nsent");
    screen.line("y");
    screen.await_text("the agent has no open question: the line was not sent");
    screen.keys(&["C-d"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("detached, PID 1 keeps running: relive attach 1"), "{shown}");
    let said = world.records(only(&world)["uuid"].as_str().unwrap(), "input");
    let said: Vec<&Value> = said.iter().map(|record| &record["text"]).collect();
    assert_eq!(said, ["do it", "look at the docs too"]);
}

/// The shell would take it for the beginning of the next command.
#[test]
fn a_line_that_was_not_ended_is_not_left_to_the_shell() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_line_that_was_not_ended_is_not_left_to_the_shell") else { return };
    for front in ["run", "attach"] {
        let gate = world.work().join(format!("gate-{front}"));
        let wait = shell(&format!("echo waits; while ! [ -e {} ]; do sleep 0.02; done", gate.display()));
        let model = script(&world, &[wait]);
        if front == "run" {
            screen.command(&format!("relive run -y --model {model} 'do it'"));
        } else {
            world.run_model(&model, &["-y", "--name", "watched"]);
            screen.command("relive attach watched");
        }
        screen.await_text("   | waits");
        screen.text_keys("echo leaked #");
        screen.await_text("echo leaked #");
        std::fs::write(&gate, "").unwrap();
        let shown = screen.await_code(0);
        assert!(shown.contains("\nnot sent: what you were typing"), "{shown}");
        screen.line("echo next");
        let shown = screen.await_text("\nnext\n");
        assert!(!shown.contains("\nleaked"), "{shown}");
    }
}

#[test]
fn a_line_that_is_being_typed_when_a_question_comes_is_said_not_to_be_sent() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_line_that_is_being_typed_when_a_question_comes") else { return };
    let gate = world.work().join("gate");
    let wait = shell(&format!("echo waits; while ! [ -e {} ]; do sleep 0.02; done", gate.display()));
    let turns = [wait, write("notes", "new\n")];
    screen.command(&format!("relive run --allow shell --ask write --model {} 'do it'", script(&world, &turns)));
    screen.await_text("   | waits");
    screen.text_keys("y and so on");
    screen.await_text("y and so on");
    std::fs::write(&gate, "").unwrap();
    screen.await_text("not sent: what you were typing when the question came");
    screen.await_text("allow? [y]es");
    screen.keys(&["Enter"]);
    screen.await_text("\n[y]es, [n]o, [a]lways, then Enter:");
    screen.line("n");
    screen.await_code(0);
    assert!(!world.work().join("notes").exists());
}

/// Only Enter ends a line, and Ctrl-D detaches.
#[test]
fn text_before_ctrl_d_is_not_taken() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "text_before_ctrl_d_is_not_taken") else { return };
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[shell("touch deed")])));
    screen.await_text("allow? [y]es");
    screen.keys(&["y", "C-d"]);
    let shown = screen.await_code(2);
    assert!(shown.contains("\nnot sent: what you were typing\n"), "{shown}");
    let uuid = only(&world)["uuid"].as_str().unwrap().to_owned();
    assert_eq!(world.records(&uuid, "approval").len(), 1, "asked, and not answered");
    let wait = json!({"calls": [{"name": "sleep", "args": {"duration": "1h"}}]});
    let waits = world.run_model(&script(&world, &[wait]), &["--name", "waits"]);
    screen.command("relive attach waits");
    screen.await_text("-> sleep");
    screen.keys(&["h", "a", "l", "f", "C-d"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("\nnot sent: what you were typing\n") && shown.contains("keeps running"), "{shown}");
    assert_eq!(world.records(&waits.uuid, "input").len(), 1, "only its task");
}

/// A later line of a pasted text may be `y`.
#[test]
fn several_lines_at_once_answer_no_question() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "several_lines_at_once_answer_no_question") else { return };
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[shell("touch deed")])));
    screen.await_text("allow? [y]es");
    let uuid = only(&world)["uuid"].as_str().unwrap().to_owned();
    screen.paste("please do first\ny\n", Marked::IfAsked);
    screen.await_text("not taken: several lines at once answer nothing; type one line, then Enter\nallow? [y]es");
    assert_eq!(world.records(&uuid, "approval").len(), 1, "asked, and not answered");
    screen.line("n");
    screen.await_code(0);
    assert_eq!(world.records(&uuid, "approval")[1]["decision"], "denied");
    assert!(!world.work().join("deed").exists());
}

/// A line that acts later could answer something that its writer does not see any more.
#[test]
fn a_line_for_a_daemon_that_does_not_answer_is_refused_and_does_not_act_later() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_line_for_a_daemon_that_does_not_answer") else { return };
    screen.command(&format!("relive run --model {} 'do it'", script(&world, &[shell("echo hello")])));
    screen.await_text("allow? [y]es");
    let uuid = only(&world)["uuid"].as_str().unwrap().to_owned();
    let daemon = world.daemon_pid().unwrap();
    crate::world::kill(daemon, rustix::process::Signal::STOP);
    screen.line("y");
    screen.await_text("the daemon has not answered for 2 s: it is not known whether the line was sent");
    wait_until("it asks again", || screen.text().matches("allow? [y]es").count() == 2);
    crate::world::kill(daemon, rustix::process::Signal::CONT);
    world.relive(&["ps"]).ok();
    assert_eq!(world.records(&uuid, "approval").len(), 1, "asked, and not answered");
    screen.line("n");
    screen.await_code(0);
    assert_eq!(world.records(&uuid, "approval")[1]["decision"], "denied");
}
