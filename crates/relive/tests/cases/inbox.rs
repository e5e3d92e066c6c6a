//! The inbox on a terminal, driven like a person does.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::screen::{Marked, Screen};
use crate::world::{World, wait_for};

const ASKS: &str = "turns: [{calls: [{name: ask, args: {question: 'Which branch?', choices: [main, dev]}}]}, \
                    {text: 'got {{result}}'}]";
const RUNS_COMMAND: &str = "turns: [{calls: [{name: shell, args: {command: 'echo hi'}}]}, {text: done}]";

/// Waits until there are so many items.
#[track_caller]
fn await_items(world: &World, count: usize) {
    let listed = || world.relive(&["inbox", "-q"]).ok().stdout.lines().count();
    wait_for("the items are there", || (listed() == count).then_some(()));
}

#[test]
fn the_inbox_shows_what_came_while_it_was_open() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_inbox_shows_what_came_while_it_was_open") else { return };
    let first = world.run_with(RUNS_COMMAND, &["--name", "first"]);
    world.await_display(&first.uuid, "approval");
    screen.command("relive inbox");
    screen.await_text("[y] allow  [n] deny  [a] always this command  [Space] skip  [q] leave");
    world.run_with(RUNS_COMMAND, &["--name", "second"]);
    await_items(&world, 2);
    screen.keys(&["Space"]);
    screen.await_text("[2/2] approval PID 2 (second)");
    wait_for("it is asked about", || (screen.text().matches("[Space] skip  [q] leave").count() == 2).then_some(()));
    screen.keys(&["Space"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("2 items still wait: relive inbox\n"), "{shown}");
}

/// Nobody has typed anything since: the daemon stays stopped until there is an answer.
#[test]
fn an_open_inbox_does_not_start_a_daemon_that_was_stopped() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "an_open_inbox_does_not_start_a_daemon") else { return };
    let first = world.run_with(RUNS_COMMAND, &["--name", "first"]);
    world.await_display(&first.uuid, "approval");
    for command in ["relive next", "relive inbox"] {
        screen.command(command);
        screen.await_text("[y] allow  [n] deny  [a] always this command  [Space] skip  [q] leave");
        world.relive(&["daemon", "stop"]).ok();
        screen.await_text("the daemon was stopped; an answer starts it");
        assert_eq!(world.daemon_pid(), None, "{command}");
        screen.keys(&[if command == "relive next" { "q" } else { "y" }]);
        if command == "relive next" {
            screen.await_code(0);
            world.relive(&["daemon", "start"]).ok();
            world.await_display(&first.uuid, "approval");
        } else {
            screen.await_text("resumed: the call is allowed");
        }
    }
}

/// Skipping an item is looking, not an answer.
#[test]
fn skipping_an_item_does_not_start_a_daemon_that_was_stopped() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "skipping_an_item_does_not_start_a_daemon") else { return };
    for name in ["first", "second"] {
        let process = world.run_with(RUNS_COMMAND, &["--name", name]);
        world.await_display(&process.uuid, "approval");
    }
    screen.command("relive inbox");
    screen.await_text("[Space] skip  [q] leave");
    world.relive(&["daemon", "stop"]).ok();
    screen.await_text("the daemon was stopped; an answer starts it");
    screen.keys(&["Space"]);
    screen.await_text("the daemon was stopped; to see the next item: relive daemon start  [q] leave");
    assert_eq!(world.daemon_pid(), None);
    world.relive(&["daemon", "start"]).ok();
    screen.await_text("[2/2] approval PID ");
    wait_for("it is asked about", || (screen.text().matches("[Space] skip  [q] leave").count() >= 3).then_some(()));
    world.relive(&["daemon", "stop"]).ok();
    wait_for("it is said again", || {
        (screen.text().matches("the daemon was stopped; an answer starts it").count() == 2).then_some(())
    });
    screen.keys(&["Space"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("the daemon was stopped; to see what still waits, and start it: relive inbox\n"), "{shown}");
    assert_eq!(world.daemon_pid(), None);
}

#[test]
fn leaving_the_inbox_says_what_still_waits() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "leaving_the_inbox_says_what_still_waits") else { return };
    for name in ["first", "second"] {
        let process = world.run_with(RUNS_COMMAND, &["--name", name]);
        world.await_display(&process.uuid, "approval");
    }
    screen.command("relive inbox");
    screen.await_text("[Space] skip  [q] leave");
    screen.keys(&["q"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("2 items still wait: relive inbox\n"), "{shown}");
}

/// Nobody else looks after it: whoever waits for a key starts it, as every other command would.
#[test]
fn an_open_inbox_starts_a_daemon_that_was_killed() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "an_open_inbox_starts_a_daemon_that_was_killed") else { return };
    let first = world.run_with(RUNS_COMMAND, &["--name", "first"]);
    world.await_display(&first.uuid, "approval");
    screen.command("relive next");
    screen.await_text("[y] allow  [n] deny  [a] always this command  [Space] skip  [q] leave");
    let killed = world.kill_daemon();
    screen.await_text("the daemon is gone and is started again");
    wait_for("there is another daemon", || world.daemon_pid().filter(|pid| *pid != killed));
    wait_for("it asks again", || (screen.text().matches("[Space] skip  [q] leave").count() == 2).then_some(()));
    screen.keys(&["y"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("resumed: the call is allowed"), "{shown}");
}

#[test]
fn a_watched_inbox_says_that_the_daemon_was_stopped_and_starts_one_that_was_killed() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_watched_inbox_says_that_the_daemon_was_stopped") else { return };
    let first = world.run_with(RUNS_COMMAND, &["--name", "first"]);
    world.await_display(&first.uuid, "approval");
    screen.command("relive inbox --watch");
    screen.await_text("shell: ech");
    world.relive(&["daemon", "stop"]).ok();
    let shown = screen.await_text("the daemon was stopped; to start it: relive daemon start");
    assert!(shown.contains("shell: ech"), "it shows what it knows: {shown}");
    assert_eq!(world.daemon_pid(), None);
    world.relive(&["daemon", "start"]).ok();
    wait_for("it is shown that it runs", || (!screen.text().contains("the daemon was stopped")).then_some(()));
    let killed = world.kill_daemon();
    wait_for("there is another daemon", || world.daemon_pid().filter(|pid| *pid != killed));
    screen.keys(&["q"]);
    screen.await_code(0);
}

#[test]
fn the_inbox_asks_again_after_it_was_stopped_and_continued() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_inbox_asks_again_after_it_was_stopped_and_continued") else { return };
    let asks = world.run(ASKS);
    world.await_display(&asks.uuid, "question");
    screen.line("set -m");
    screen.line("relive next");
    screen.await_text("[r] reply  [Space] skip  [q] leave");
    screen.keys(&["C-z"]);
    screen.await_text("Stopped");
    screen.line("fg");
    let prompts = || screen.text().matches("[r] reply  [Space] skip  [q] leave").count();
    wait_for("it asks again", || (prompts() == 2).then_some(()));
    assert_eq!(screen.text().matches("  | Which branch?").count(), 2, "with what is asked: {}", screen.text());
    // What was typed so far is shown again, too.
    screen.keys(&["r"]);
    screen.await_text("your answer, then Enter (Esc: none):");
    screen.keys(&["m", "a"]);
    screen.await_text("(Esc: none): ma");
    screen.keys(&["C-z"]);
    wait_for("it is stopped again", || (screen.text().matches("Stopped").count() == 2).then_some(()));
    screen.line("fg");
    wait_for("it asks again", || (screen.text().matches("(Esc: none): ma").count() == 2).then_some(()));
    assert_eq!(screen.text().matches("  | Which branch?").count(), 3, "{}", screen.text());
    screen.keys(&["Escape"]);
    wait_for("it asks for a key", || (prompts() == 3).then_some(()));
    assert_eq!(screen.text().matches("  | Which branch?").count(), 3, "it is still shown: {}", screen.text());
    screen.keys(&["r"]);
    wait_for("it asks for a text", || screen.text().trim_end().ends_with("(Esc: none):").then_some(()));
    screen.line("main");
    screen.await_text("resumed: the question is answered");
    assert_eq!(world.records(&asks.uuid, "question")[1]["answer"], "main");
}

/// What is too long to be shown is not allowed with a key.
#[test]
fn a_command_that_is_not_shown_whole_is_not_allowed_by_a_key() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_command_that_is_not_shown_whole") else { return };
    // Each of these is spelled out in eight characters.
    let command = format!(": {}; touch deed", "\u{3164}".repeat(150_000));
    let call = json!({"name": "shell", "args": {"command": command}});
    let process = world.run(&json!({"turns": [{"calls": [call]}, {"text": "done"}]}).to_string());
    world.await_display(&process.uuid, "approval");
    screen.command("relive next");
    let shown = screen.await_text("\npress: [n] deny  [Space] skip  [q] leave");
    let refusal = "not all of it was shown; once you have seen it: relive resolve ";
    assert!(shown.contains(refusal) && !shown.contains("[y]"), "no key is offered that does nothing: {shown}");
    screen.keys(&["y"]);
    wait_for("the key is refused", || (screen.text().matches(refusal).count() > 1).then_some(()));
    assert_eq!(world.records(&process.uuid, "approval").len(), 1, "asked, and not answered");
    screen.keys(&["n"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("resumed: the call is denied"));
}

#[test]
fn the_inbox_steps_through_its_items() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_inbox_steps_through_its_items") else { return };
    let asks = world.run_with(ASKS, &["--name", "asker"]);
    world.await_display(&asks.uuid, "question");
    let ends = world.run_with("turns: [{text: done}]", &["--name", "ended"]);
    world.await_retired(&ends.uuid);
    screen.command("relive inbox");
    let shown = screen.await_text("[r] reply  [Space] skip  [q] leave");
    assert!(shown.contains("[1/2] question PID 1 (asker)") && shown.contains("  2 | dev\n"), "{shown}");
    screen.keys(&["r"]);
    screen.await_text("your answer, then Enter (Esc: none):");
    screen.line("the old one");
    screen.await_text("resumed: the question is answered");
    screen.await_text("[2/2] finished PID 2 (ended)");
    screen.await_text("[e] seen  [l] show its log  [Space] skip");
    // The first one ends after its answer: it is shown, too.
    await_items(&world, 2);
    screen.keys(&["e"]);
    let shown = screen.await_text("[3/3] finished PID 1 (asker)");
    assert!(shown.contains("acknowledged 1 process"), "{shown}");
    wait_for("it is asked about", || (screen.text().matches("[Space] skip  [q] leave").count() == 3).then_some(()));
    screen.keys(&["Space"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("1 item still waits: relive inbox\n"), "{shown}");
    assert_eq!(world.records(&asks.uuid, "question")[1]["answer"], "the old one");
    assert_eq!(world.records(&ends.uuid, "acked").len(), 1);
}

/// The same keys as in front of `run`: `a` is for every later call like it.
#[test]
fn an_approval_has_the_keys_of_run_in_the_inbox_and_always_stores_the_rule_of_run() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "an_approval_has_the_keys_of_run") else { return };
    let calls = "{calls: [{name: shell, args: {command: echo hi}}]}";
    let process = world.run(&format!("turns: [{calls}, {calls}, {{text: done}}]"));
    world.await_display(&process.uuid, "approval");
    screen.command("relive next");
    screen.await_text("[y] allow  [n] deny  [a] always this command  [Space] skip  [q] leave");
    // The keys of ends and questions are none here, and whoever types a word does not answer by its letters.
    screen.keys(&["e"]);
    screen.await_text("this key does nothing here");
    screen.keys(&["r", "a", "y"]);
    wait_for("it asks again", || (screen.text().matches("[Space] skip  [q] leave").count() >= 2).then_some(()));
    assert_eq!(world.records(&process.uuid, "approval").len(), 1, "asked, and not answered");
    screen.keys(&["a"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("resumed: the call is allowed; stored the rule shell:echo hi"), "{shown}");
    world.await_retired(&process.uuid);
    let approvals = world.records(&process.uuid, "approval");
    assert_eq!(approvals.iter().filter(|record| record["decision"] == "asked").count(), 1, "{approvals:?}");
}

/// A line of an agent that the terminal breaks would have no bar.
#[test]
fn the_inbox_fits_the_terminal_as_it_is_now() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_inbox_fits_the_terminal_as_it_is_now") else { return };
    let first = world.run_with(RUNS_COMMAND, &["--name", "first"]);
    world.await_display(&first.uuid, "approval");
    let question = format!("{}allow? [y]es", "x".repeat(50));
    let call = json!({"name": "ask", "args": {"question": question}});
    let second = world.run(&json!({"turns": [{"calls": [call]}, {"text": "done"}]}).to_string());
    world.await_display(&second.uuid, "question");
    screen.command("relive inbox");
    screen.await_text("[y] allow  [n] deny");
    screen.resize(40, 24);
    // A key counts after the item was shown for a moment.
    wait_for("the next one is shown", || {
        screen.keys(&["Space"]);
        screen.text().contains("\n  | xxx").then_some(())
    });
    let shown = screen.await_text("\n  |>xxx");
    assert!(shown.contains("xxallow? [y]es\n"), "{shown}");
    wait_for("the inbox is left", || {
        screen.keys(&["q"]);
        screen.text().contains("\ncode 0\n").then_some(())
    });
}

#[test]
fn ctrl_d_gives_no_answer() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "ctrl_d_gives_no_answer") else { return };
    let asks = world.run(ASKS);
    world.await_display(&asks.uuid, "question");
    screen.command("relive next");
    screen.await_text("[r] reply  [Space] skip  [q] leave");
    screen.keys(&["r"]);
    screen.await_text("your answer, then Enter (Esc: none):");
    screen.keys(&["C-d"]);
    wait_for("it asks again", || (screen.text().matches("[Space] skip  [q] leave").count() == 2).then_some(()));
    screen.keys(&["q"]);
    screen.await_code(0);
    assert_eq!(world.records(&asks.uuid, "question").len(), 1, "asked, and not answered");
}

#[test]
fn a_key_that_was_typed_ahead_does_not_answer_the_next_item() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_key_that_was_typed_ahead_does_not_answer_the_next_item") else { return };
    let first = world.run_with(RUNS_COMMAND, &["--name", "first"]);
    world.await_display(&first.uuid, "approval");
    let second = world.run_with(RUNS_COMMAND, &["--name", "second"]);
    world.await_display(&second.uuid, "approval");
    screen.command("relive inbox");
    screen.await_text("[y] allow  [n] deny  [a] always this command  [Space] skip  [q] leave");
    screen.keys(&["y"]);
    screen.await_text("[q] leave y");
    screen.keys(&["y"]);
    screen.await_text("[2/2] approval PID 2 (second)");
    world.await_retired(&first.uuid);
    wait_for("the second is asked about", || {
        (screen.text().matches("[Space] skip  [q] leave").count() == 2).then_some(())
    });
    screen.keys(&["q"]);
    screen.await_code(0);
    assert_eq!(world.records(&second.uuid, "approval").len(), 1, "asked, and not answered");
}

/// Types something that may be ignored, again each second until it has its effect.
#[track_caller]
pub(crate) fn until(what: &str, types: impl Fn(), has_effect: impl Fn() -> bool) {
    let mut typed_at: Option<Instant> = None;
    wait_for(what, || {
        if typed_at.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
            types();
            typed_at = Some(Instant::now());
        }
        has_effect().then_some(())
    });
}

/// A terminal may pause within a pasted text, also right after its begin mark.
#[test]
fn a_paste_that_comes_slowly_answers_nothing() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_paste_that_comes_slowly_answers_nothing") else { return };
    let process = world.run("turns: [{calls: [{name: shell, args: {command: 'touch deed'}}]}, {text: done}]");
    world.await_display(&process.uuid, "approval");
    screen.command("relive inbox");
    screen.await_text("[y] allow");
    let refused = || screen.text().matches("pasted text does not answer: press one of the keys above").count();
    // Once it is refused, the paste has begun.
    until("it is refused", || screen.text_keys("\x1b[200~x"), || refused() == 1);
    until("it is refused again", || screen.text_keys("y"), || refused() == 2);
    assert_eq!(world.records(&process.uuid, "approval").len(), 1, "asked, and not answered");
    screen.text_keys("\x1b[201~");
    until("it is left", || screen.keys(&["q"]), || screen.text().contains("\ncode "));
    screen.await_code(0);
    assert!(!world.work().join("deed").exists());
}

#[test]
fn ctrl_c_leaves_while_an_answer_waits_for_the_daemon() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "ctrl_c_leaves_while_an_answer_waits_for_the_daemon") else { return };
    let process = world.run("turns: [{calls: [{name: shell, args: {command: 'touch deed'}}]}, {text: done}]");
    world.await_display(&process.uuid, "approval");
    screen.command("relive inbox");
    screen.await_text("[y] allow");
    let daemon = world.daemon_pid().unwrap();
    crate::world::kill(daemon, rustix::process::Signal::STOP);
    until("the key is taken", || screen.keys(&["n"]), || screen.text().contains("[q] leave n"));
    let pressed = Instant::now();
    screen.keys(&["C-c"]);
    let shown = screen.await_code(130);
    let took = pressed.elapsed();
    crate::world::kill(daemon, rustix::process::Signal::CONT);
    assert!(shown.contains("it is not known whether the answer was given, see: relive inbox"), "{shown}");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn ctrl_c_leaves_while_an_answer_is_typed() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "ctrl_c_leaves_while_an_answer_is_typed") else { return };
    let asks = world.run(ASKS);
    world.await_display(&asks.uuid, "question");
    screen.command("relive next");
    screen.await_text("[r] reply");
    until("it asks for the text", || screen.keys(&["r"]), || screen.text().contains("your answer, then Enter"));
    // A key that was pressed again came late.
    screen.keys(&["C-u"]);
    screen.text_keys("half");
    screen.await_text("(Esc: none): half");
    screen.keys(&["C-c"]);
    let shown = screen.await_code(130);
    assert!(shown.contains("(Esc: none): half\ncode 130\n"), "{shown}");
    assert_eq!(world.records(&asks.uuid, "question").len(), 1, "asked, and not answered");
}

/// The first letter of a pasted text is one of the keys.
#[test]
fn pasted_text_answers_nothing() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "pasted_text_answers_nothing") else { return };
    let process = world.run("turns: [{calls: [{name: shell, args: {command: 'touch deed'}}]}, {text: done}]");
    world.await_display(&process.uuid, "approval");
    for command in ["relive next", "relive inbox"] {
        screen.command(command);
        screen.await_text("[y] allow");
        let refused = || screen.text().matches("pasted text does not answer: press one of the keys above").count();
        let pastes = [("yes, do it", Marked::Never), ("yes, do it", Marked::IfAsked), ("y", Marked::IfAsked)];
        for (count, (text, marked)) in pastes.into_iter().enumerate() {
            // What is typed right after an item was shown, or a text was pasted, is ignored.
            until("it is refused", || screen.paste(text, marked), || refused() > count);
            assert_eq!(world.records(&process.uuid, "approval").len(), 1, "asked, and not answered");
        }
        // A key works as soon as it is quiet.
        until("it is left", || screen.keys(&["q"]), || screen.text().contains("\ncode "));
        screen.await_code(0);
    }
    screen.assert_pastes_unmarked();
    assert!(!world.work().join("deed").exists());
}

#[test]
fn a_pasted_answer_keeps_its_line_breaks() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_pasted_answer_keeps_its_line_breaks") else { return };
    let asks = world.run(ASKS);
    world.await_display(&asks.uuid, "question");
    screen.command("relive next");
    screen.await_text("[r] reply");
    screen.keys(&["r"]);
    screen.await_text("your answer, then Enter (Esc: none):");
    screen.paste("one\ntwo\n", Marked::IfAsked);
    screen.await_text("(Esc: none): one\ntwo\n");
    assert_eq!(world.records(&asks.uuid, "question").len(), 1, "only Enter sends it");
    screen.text_keys("3");
    screen.keys(&["Enter"]);
    screen.await_code(0);
    assert_eq!(world.records(&asks.uuid, "question")[1]["answer"], "one\ntwo\n3");
}

/// It asks only once it has made the first call.
#[test]
fn the_next_item_of_a_process_that_was_answered_is_shown() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_next_item_of_a_process_that_was_answered_is_shown") else { return };
    let call = |command: &str| format!("{{name: shell, args: {{command: '{command}'}}}}");
    let process = world.run(&format!("turns: [{{calls: [{}, {}]}}, {{text: done}}]", call("echo 1"), call("echo 2")));
    world.await_display(&process.uuid, "approval");
    screen.command("relive inbox");
    for place in 1..=2 {
        screen.await_text(&format!("[{place}/{place}] approval PID 1"));
        until("it is answered", || screen.keys(&["y"]), || world.records(&process.uuid, "approval").len() >= 2 * place);
    }
    screen.await_text("[3/3] finished PID 1");
    until("it is seen", || screen.keys(&["e"]), || !world.records(&process.uuid, "acked").is_empty());
    let shown = screen.await_code(0);
    assert!(shown.contains("nothing waits for you\n"), "{shown}");
}

#[test]
fn an_end_that_is_seen_elsewhere_is_said_to_be() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "an_end_that_is_seen_elsewhere_is_said_to_be") else { return };
    let process = world.run("turns: [{text: done}]");
    await_items(&world, 1);
    screen.command("relive next");
    screen.await_text("[Space] skip  [q] leave");
    world.relive(&["inbox", "ack", &process.uuid]).ok();
    screen.await_text("\nseen elsewhere at ");
    screen.await_code(0);
}
