//! Items that are answered elsewhere, and keys that are pressed in that moment.

use relive_api::Process;
use relive_top::{Effect, Finished, Input, Key, Output};
use serde_json::json;

use crate::world::{Dashboard, PLAIN, approval, paused, process};

fn run(words: &[&str]) -> Vec<Effect> {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    vec![Effect::Run { commands: vec![words], output: Output::StatusLine }]
}

fn one(fields: &serde_json::Value) -> Dashboard {
    Dashboard::new(PLAIN, vec![process(1, 0, fields)])
}

/// The same process after its answer.
fn goes_on(asks: Process) -> Process {
    let fields = json!({"name": asks.name});
    process(asks.pid.0, 0, &fields)
}

#[test]
fn an_item_that_is_answered_elsewhere_is_told_with_its_answer() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls"), approval(5, "make")]);
    let found = dashboard.heard(goes_on(approval(4, "ls")));
    let [Effect::FindOutcome { item, .. }] = &found[..] else { panic!("{found:?}") };
    let id = item.id.clone();
    assert!(dashboard.screen(80, 24).contains("approval of PID 4: it is not asked any more"));
    dashboard.apply(Input::Outcome { id, text: "answered elsewhere: allowed at 12:03:04".to_owned() });
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("approval of PID 4: answered elsewhere: allowed at 12:03:04"), "{screen}");
    // The next one is new here: a key that was meant for the other is no answer to it.
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new());
    dashboard.pass(300);
    let answered = dashboard.press(&[Key::Char('y')]);
    assert_eq!(answered, run(&["resolve", "00000005", "--allow", "--question", "7"]));
    assert_eq!(dashboard.heard(goes_on(approval(5, "make"))), Vec::new(), "it was answered here");
}

#[test]
fn one_that_is_not_on_the_screen_goes_silently() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls"), approval(5, "make")]);
    assert_eq!(dashboard.heard(goes_on(approval(5, "make"))), Vec::new());
}

#[test]
fn words_for_a_question_that_was_answered_elsewhere_are_no_commands() {
    let mut fields = paused("question");
    fields["question"] = json!({"id": 9, "text": "Which?", "choices": [], "at": "2026-11-15T12:01:30Z"});
    let mut dashboard = one(&fields);
    dashboard.press(&[Key::Char('r')]);
    dashboard.type_in("ma");
    let found = dashboard.heard(process(1, 0, &json!({})));
    let [Effect::FindOutcome { item, .. }] = &found[..] else { panic!("{found:?}") };
    let id = item.id.clone();
    dashboard.apply(Input::Outcome { id, text: "answered elsewhere: \"dev\" at 12:03:04".to_owned() });
    assert_eq!(dashboard.type_in("p"), Vec::new(), "whoever types on pauses nothing");
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("not sent: question of PID 1: answered elsewhere: \"dev\" at 12:03:04"), "{screen}");
    assert!(screen.contains("map_"), "{screen}");
    assert_eq!(dashboard.press(&[Key::Enter]), Vec::new(), "nothing is sent");
    assert_eq!(dashboard.press(&[Key::Char('p')]), run(&["pause", "--subtree", "00000001"]));
}

#[test]
fn a_call_is_denied_without_reading_all_of_it() {
    let long: String = (0..60).map(|line| format!("echo {line}\n")).collect();
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, &long)]);
    for key in ['y', 'a'] {
        assert_eq!(dashboard.press(&[Key::Char(key)]), Vec::new(), "{key}");
        assert!(dashboard.screen(80, 24).contains("read all of it before you answer: Enter"));
    }
    dashboard.press(&[Key::Enter, Key::Char('y')]);
    assert!(dashboard.screen(80, 24).contains("read all of it before you answer: PgDn, End"));
    dashboard.press(&[Key::Down]);
    assert!(!dashboard.screen(80, 24).contains("read all of it"), "the reason holds until the next key");
    assert_eq!(dashboard.press(&[Key::Char('n')]), run(&["resolve", "00000004", "--deny", "--question", "7"]));
}

#[test]
fn what_came_of_a_command_is_shown_where_both_do_not_fit() {
    let mut dashboard = one(&json!({}));
    let command = "relive resolve 00000001 --answer 'a long answer' --question 6".to_owned();
    let text = "PID 1 resumed: the question is answered".to_owned();
    dashboard.apply(Input::Finished(Finished { command, ok: true, text, output: Output::StatusLine }));
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("relive resolve 00000001"), "{screen}");
    assert!(screen.contains(": PID 1 resumed: the question is answered\n"), "{screen}");
}

#[test]
fn a_key_that_is_pressed_twice_answers_once() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls")]);
    let answer = run(&["resolve", "00000004", "--allow", "--question", "7"]);
    assert_eq!(dashboard.press(&[Key::Char('y')]), answer);
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new());
    assert!(dashboard.screen(80, 24).contains("it is being answered"));
    // One that was refused can be given again.
    let command = "relive resolve 00000004 --allow --question 7".to_owned();
    let text = "error: the daemon does not answer".to_owned();
    dashboard.apply(Input::Finished(Finished { command, ok: false, text, output: Output::StatusLine }));
    dashboard.press(&[Key::Escape]);
    assert_eq!(dashboard.press(&[Key::Char('y')]), answer);
}

#[test]
fn a_signal_is_for_the_process_that_the_menu_was_opened_for() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls"), approval(5, "make")]);
    dashboard.press(&[Key::Char('K')]);
    dashboard.heard(goes_on(approval(4, "ls")));
    dashboard.pass(1_000);
    assert!(dashboard.screen(80, 24).contains("relive kill -s SIGNAL 00000004"));
    assert_eq!(dashboard.press(&[Key::Char('2')]), run(&["kill", "-s", "KILL", "00000004"]));
}

#[test]
fn a_key_is_not_for_a_row_that_has_just_come_under_the_cursor() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls"), approval(5, "make")]);
    dashboard.heard(goes_on(approval(4, "ls")));
    dashboard.settle();
    for key in ['p', 'f', 'K', 's'] {
        assert_eq!(dashboard.press(&[Key::Char(key)]), Vec::new(), "{key}");
        assert!(dashboard.screen(80, 24).contains("the cursor has just moved"), "{key}");
    }
    dashboard.pass(300);
    assert_eq!(dashboard.press(&[Key::Char('p')]), run(&["pause", "--subtree", "00000005"]));
    // Whoever reads about a process stays with it.
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls"), approval(5, "make")]);
    dashboard.press(&[Key::Enter]);
    dashboard.heard(goes_on(approval(4, "ls")));
    assert_eq!(dashboard.press(&[Key::Char('p')]), run(&["pause", "--subtree", "00000004"]));
}
