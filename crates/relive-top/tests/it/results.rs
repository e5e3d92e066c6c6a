//! What is said of the end of a command.

use relive_top::{Effect, Finished, Input, Key, Output};
use serde_json::json;

use crate::keys::{one, run};
use crate::world::{Dashboard, PLAIN, paused, process};

#[test]
fn an_error_is_read_in_full() {
    let failed = |text: &str| Finished {
        command: "relive pause 00000001".into(),
        ok: false,
        text: text.into(),
        output: Output::StatusLine,
    };
    let long = format!("error: cannot pause it: {}the very end\n", "it is long, ".repeat(20));
    let mut dashboard = one(&json!({}));
    dashboard.apply(Input::Finished(failed(&long)));
    let screen = dashboard.screen(80, 24);
    assert!(screen.replace(['\n', '│'], "").contains("the very end"), "{screen}");
    dashboard.press(&[Key::Escape]);
    dashboard.apply(Input::Finished(failed("error: no\n\nhint: relive ps\n")));
    assert!(dashboard.screen(80, 24).contains("hint: relive ps"));
    // What is typed is not lost for it.
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char(':')]);
    dashboard.type_in("ps -a");
    dashboard.apply(Input::Finished(failed(&long)));
    assert!(dashboard.screen(80, 24).contains("ps -a_"));
}

#[test]
fn a_message_is_shown_for_a_time_and_a_command_until_it_has_ended() {
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char('s')]);
    dashboard.type_in("hi");
    dashboard.press(&[Key::Enter]);
    let command = "relive send 00000001 hi".to_owned();
    dashboard.pass(59_000);
    assert!(dashboard.screen(80, 24).contains(&command), "it runs");
    let finished = Finished { command: command.clone(), ok: true, text: "sent".into(), output: Output::StatusLine };
    dashboard.apply(Input::Finished(finished));
    dashboard.settle();
    dashboard.pass(19_000);
    assert!(dashboard.screen(80, 24).contains("hi: sent"));
    dashboard.pass(1_000);
    assert!(!dashboard.screen(80, 24).contains(&command));
}

#[test]
fn a_text_that_was_refused_is_not_typed_again() {
    let finish = |dashboard: &mut Dashboard, command: &str, ok| {
        let (command, text) = (command.to_owned(), "error: no\n".to_owned());
        dashboard.apply(Input::Finished(Finished { command, ok, text, output: Output::StatusLine }));
    };
    let assert_typed = |dashboard: &mut Dashboard, expect: &str| {
        let screen = dashboard.screen(80, 24);
        assert!(screen.contains(&format!("│{expect}_ ")), "{expect}: {screen}");
    };
    let mut fields = paused("question");
    fields["question"] = json!({"id": 9, "text": "Which?", "choices": [], "at": "2026-11-15T12:01:30Z"});
    let mut dashboard = one(&fields);
    dashboard.press(&[Key::Char('r')]);
    dashboard.type_in("main");
    let words = ["resolve", "00000001", "--answer", "main", "--question", "9"];
    assert_eq!(dashboard.press(&[Key::Enter]), run(&words));
    finish(&mut dashboard, "relive ps", false);
    finish(&mut dashboard, &format!("relive {}", words.join(" ")), false);
    dashboard.press(&[Key::Char('s')]);
    assert_typed(&mut dashboard, "");
    dashboard.press(&[Key::Escape, Key::Char('r')]);
    assert_typed(&mut dashboard, "main");
    // Whoever leaves it has no use for it.
    dashboard.press(&[Key::Escape, Key::Char('r')]);
    assert_typed(&mut dashboard, "");

    let sent = |ended: Option<bool>| {
        let mut dashboard = one(&json!({}));
        dashboard.press(&[Key::Char('s')]);
        dashboard.type_in("hi");
        dashboard.press(&[Key::Enter]);
        ended.into_iter().for_each(|ok| finish(&mut dashboard, "relive send 00000001 hi", ok));
        dashboard.press(&[Key::Char('s')]);
        dashboard
    };
    assert_typed(&mut sent(None), "");
    assert_typed(&mut sent(Some(true)), "");
    assert_typed(&mut sent(Some(false)), "hi");

    // Nothing was sent to one that was not there in that moment.
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char('s')]);
    dashboard.type_in("hi");
    dashboard.apply(Input::Reset);
    dashboard.apply(Input::Ready { incomplete: false });
    assert_eq!(dashboard.press(&[Key::Enter]), []);
    dashboard.heard(process(1, 0, &json!({})));
    dashboard.settle();
    dashboard.pass(1_000);
    dashboard.press(&[Key::Char('s')]);
    assert_typed(&mut dashboard, "hi");
}

#[test]
fn of_several_processes_it_is_said_for_how_many_something_was_done() {
    let tagged = || {
        let mut dashboard = Dashboard::new(PLAIN, (1..=3).map(|pid| process(pid, 0, &json!({}))).collect());
        let tag = [Key::Char(' '), Key::Down];
        dashboard.press(&[&tag[..], &tag, &tag, &[Key::Char('p')]].concat());
        dashboard
    };
    let effects = || {
        let mut dashboard = tagged();
        dashboard.press(&[Key::Char('p')])
    };
    let Effect::Run { commands, output } = effects().remove(0) else { panic!("{:?}", effects()) };
    let command = format!("relive {}", commands[0].join(" "));
    let check = |ok, text: &str, expect: &str| {
        let mut dashboard = tagged();
        let finished = Finished { command: command.clone(), ok, text: text.into(), output: output.clone() };
        dashboard.apply(Input::Finished(finished));
        let screen = dashboard.screen(120, 24);
        assert!(screen.contains(&format!("{command}: {expect}")), "{screen}");
    };
    let done = "PID 1 paused (undo: relive resume 1)\n";
    check(true, &done.repeat(3), "done for all 3");
    let already = "PID 2 is already paused: nothing changed";
    check(true, &format!("{done}{already}\n{done}"), &format!("done for 2 of 3; {already}"));
    let error = "error: PID 3 has ended, so it cannot be paused";
    check(false, &format!("{done}{error}\nhint: relive ps\n{done}"), &format!("done for 2 of 3; {error}"));
    // One error for all of them.
    let error = "error: no daemon is running";
    check(false, &format!("{error}\nhint: relive daemon start\n"), error);
}

/// It is shown to be typed again.
#[test]
fn the_id_of_a_command_stays_when_its_result_is_long() {
    let mut dashboard = one(&json!({}));
    dashboard.screen(80, 24);
    let finish = |dashboard: &mut Dashboard, command: &str, text: &str| {
        let (command, text) = (command.to_owned(), text.to_owned());
        dashboard.apply(Input::Finished(Finished { command, ok: true, text, output: Output::StatusLine }));
        dashboard.screen(80, 24)
    };
    let forked = "forking 0c9d1e77 at step 5 -> 5f6a7b8c\nPID 6 running (anthropic/claude) | forked from 0c9d1e77\n";
    let screen = finish(&mut dashboard, "relive resume --fork --from-step 5 0c9d1e77", forked);
    assert!(screen.contains("relive resume --fork --from-step 5 0c9d1e77: forking 0c9d1e77 at"), "{screen}");
    let paused = "PID 19 is already paused: nothing changed\npaused 1 process\n";
    let screen = finish(&mut dashboard, "relive pause --subtree 00000001 00000002", paused);
    assert!(screen.contains("relive pause --subtree 00000001 00000002: paused 1 process"), "{screen}");
}
