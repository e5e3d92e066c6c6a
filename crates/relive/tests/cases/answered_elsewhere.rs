//! The first answer wins, and whoever asks the same elsewhere is told of it at once.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::screen::Screen;
use crate::world::{Begun, World, wait_until};

const ASKS: &str = "turns: [{calls: [{name: ask, args: {question: 'Which branch?', choices: [main, dev]}}]}, \
                    {text: 'got {{result}}'}]";
const RUNS_COMMAND: &str = "turns: [{calls: [{name: shell, args: {command: 'echo hello'}}]}, {text: done}]";

/// A process that waits for a person.
fn waiting(world: &World, script: &str, display: &str) -> Begun {
    let process = world.run_with(script, &["--name", display]);
    world.await_display(&process.uuid, display);
    process
}

#[test]
fn run_stops_asking_also_if_the_process_stays_paused_after_the_answer() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "run_stops_asking_also_if_the_process_stays_paused_after_the_answer")
    else {
        return;
    };
    screen.command(&format!("relive run --model {} 'do it'", world.script(RUNS_COMMAND)));
    screen.await_text("allow? [y]es");
    world.relive(&["pause", "1"]).ok();
    world.relive(&["resolve", "1", "--allow"]).ok();
    screen.await_text("\nanswered elsewhere: allowed at ");
    screen.await_text("paused; resume it with: relive resume ");
    world.relive(&["resume", "1"]).ok();
    let shown = screen.await_code(0);
    assert!(shown.contains("   | hello") && shown.matches("answered elsewhere").count() == 1, "{shown}");
}

/// Events are not synced: a daemon that is killed may never have told of the answer, which is in the journal.
#[test]
fn run_stops_asking_also_if_the_daemon_is_killed_after_the_answer() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "run_stops_asking_also_if_the_daemon_is_killed_after_the_answer") else {
        return;
    };
    screen.command(&format!("relive run --model {} 'do it'", world.script(RUNS_COMMAND)));
    screen.await_text("allow? [y]es");
    world.relive(&["resolve", "1", "--deny"]).ok();
    world.kill_daemon();
    screen.await_text("\nanswered elsewhere: denied at ");
    screen.await_code(0);
}

#[test]
fn attach_says_what_was_answered_and_shows_the_next_question() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "attach_says_what_was_answered_and_shows_the_next_question") else {
        return;
    };
    let asks = |question: &str| json!({"calls": [{"name": "ask", "args": {"question": question}}]});
    let turns = json!({"turns": [asks("First?"), asks("Second?"), {"text": "done"}]});
    let process = waiting(&world, &turns.to_string(), "question");
    screen.command("relive attach question");
    screen.await_text("your answer, then Enter:");
    world.relive(&["resolve", &process.uuid, "--answer", "one"]).ok();
    screen.await_text("\nanswered elsewhere: \"one\" at ");
    screen.await_text("| Second?\nyour answer, then Enter:");
    // What is typed in the first second was begun for the other question.
    let is_answered = || world.records(&process.uuid, "question").len() == 4;
    let refusals = || screen.text().matches("not taken: this question is new").count();
    wait_until("an answer is taken", || {
        let before = refusals();
        screen.line("two");
        wait_until("the line is taken or not", || is_answered() || refusals() > before);
        is_answered()
    });
    let shown = screen.await_code(0);
    assert!(!shown.contains("not sent"), "{shown}");
    assert_eq!(world.records(&process.uuid, "question")[3]["answer"], "two");
}

#[test]
fn a_question_whose_process_is_ended_is_not_said_to_be_answered() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_question_whose_process_is_ended_is_not_said_to_be_answered") else {
        return;
    };
    screen.command(&format!("relive run --model {} 'do it'", world.script(RUNS_COMMAND)));
    screen.await_text("allow? [y]es");
    world.relive(&["kill", "1"]).ok();
    let shown = screen.await_code(1);
    assert!(shown.contains("\nit ended") && !shown.contains("answered elsewhere"), "{shown}");
}

#[test]
fn the_inbox_and_next_withdraw_what_is_answered_elsewhere() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_inbox_and_next_withdraw_what_is_answered_elsewhere") else { return };
    let process = waiting(&world, RUNS_COMMAND, "approval");
    screen.command("relive next");
    screen.await_text("[y] allow");
    world.relive(&["resolve", &process.uuid, "--deny"]).ok();
    screen.await_text("\nanswered elsewhere: denied at ");
    screen.await_code(0);
    world.relive(&["wait", &process.uuid]).ok();
    world.relive(&["inbox", "ack", "--all"]).ok();

    let process = waiting(&world, ASKS, "question");
    screen.command("relive inbox");
    // The key counts after the item was shown for a moment.
    wait_until("a text is asked for", || {
        screen.keys(&["r"]);
        screen.text().contains("your answer, then Enter (Esc: none): ")
    });
    screen.keys(&["m", "a"]);
    world.relive(&["resolve", &process.uuid, "--answer", "dev"]).ok();
    let shown = screen.await_text("\nanswered elsewhere: \"dev\" at ");
    assert!(!shown.contains("error:"), "{shown}");
    // Whoever types on answers nothing by that.
    screen.keys(&["i", "n", "q"]);
    screen.await_text("press Enter inq");
    screen.keys(&["Enter"]);
    screen.await_text("finished PID 2");
    // A key counts after the item was shown for a moment.
    wait_until("the inbox is left", || {
        let is_left = screen.text().contains("\ncode ");
        if !is_left {
            screen.keys(&["q"]);
        }
        is_left
    });
    assert_eq!(world.records(&process.uuid, "acked").len(), 0);
    assert_eq!(world.records(&process.uuid, "question").len(), 2);
}

#[test]
fn the_dashboard_says_what_was_answered_elsewhere() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_dashboard_says_what_was_answered_elsewhere") else { return };
    let process = waiting(&world, RUNS_COMMAND, "approval");
    screen.command("relive top");
    screen.await_text("  | echo hello");
    world.relive(&["resolve", &process.uuid, "--deny"]).ok();
    screen.await_text("approval of PID 1: answered elsewhere: denied at ");
    screen.keys(&["q"]);
    screen.await_code(0);
}

#[test]
fn a_pause_that_is_kept_is_told_where_it_is_answered() {
    let world = World::new();
    let process = waiting(&world, RUNS_COMMAND, "approval");
    assert_eq!(world.relive(&["inbox", "--json"]).ok().json()["items"][0].get("pause_kept"), None);
    world.relive(&["pause", &process.uuid]).ok();
    assert_eq!(world.relive(&["inbox", "--json"]).ok().json()["items"][0]["pause_kept"], true);
    let listed = world.relive(&["inbox"]).ok().stdout;
    assert!(listed.contains(" approval, then paused "), "{listed}");
    for command in [&["next"][..], &["resolve", &process.uuid]] {
        let shown = world.relive(command).ok().stdout;
        assert!(shown.contains("paused once it is answered (to take the pause back: relive resume 1)\n"), "{shown}");
    }
    let shown = world.relive(&["info", &process.uuid]).ok().stdout;
    assert!(shown.contains("THEN       paused, until it is resumed\n"), "{shown}");
}

/// Whoever types an answer means what is on the screen now. It is not kept for a daemon that comes later.
#[test]
fn an_answer_that_cannot_be_delivered_is_refused_and_the_question_asked_again() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "an_answer_that_cannot_be_delivered_is_refused") else { return };
    screen.command(&format!("relive run --name asker --model {} 'do it'", world.script(RUNS_COMMAND)));
    let prompts = || screen.text().matches("allow? [y]es, [n]o, [a]lways this command, then Enter:").count();
    screen.await_text("allow? [y]es");
    let process = world.named("asker");
    world.relive(&["daemon", "stop"]).ok();
    let typed = Instant::now();
    screen.line("y");
    screen.await_text("not sent: ");
    assert!(typed.elapsed() < Duration::from_secs(15), "it is not kept: {:?}", typed.elapsed());
    wait_until("it is asked again", || prompts() == 2);
    screen.await_text("\nthe daemon has stopped: the agent continues with the next one");
    screen.line("y");
    screen.await_text("not sent: the daemon has stopped (to start it: relive daemon start)");
    world.relive(&["daemon", "start"]).ok();
    screen.await_text("the daemon runs again");
    wait_until("it is asked again", || prompts() == 3);
    assert_eq!(world.records(&process.uuid, "approval").len(), 1, "asked, and not answered");
    screen.line("y");
    let shown = screen.await_code(0);
    assert!(shown.contains("   | hello"), "{shown}");
}
