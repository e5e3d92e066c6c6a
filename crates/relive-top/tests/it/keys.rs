//! What each key asks for.

use relive_top::{Effect, Finished, Input, Key, Line, Part, Tab};
use serde_json::json;

use crate::world::{Dashboard, PLAIN, approval, finished, paused, process};

fn run(words: &[&str]) -> Vec<Effect> {
    vec![Effect::Run { words: words.iter().map(|word| (*word).to_owned()).collect(), wanted: false }]
}

fn shown(words: &[&str]) -> Vec<Effect> {
    vec![Effect::Run { words: words.iter().map(|word| (*word).to_owned()).collect(), wanted: true }]
}

fn one(fields: &serde_json::Value) -> Dashboard {
    Dashboard::new(PLAIN, vec![process(1, 0, fields)])
}

#[test]
fn p_pauses_and_resumes_the_subtree() {
    let press = |fields| one(&fields).press(&[Key::Char('p')]);
    assert_eq!(press(json!({})), run(&["pause", "--subtree", "00000001"]));
    assert_eq!(press(paused("user")), run(&["resume", "--subtree", "00000001"]));
    assert_eq!(Dashboard::new(PLAIN, Vec::new()).press(&[Key::Char('p')]), Vec::new());
}

#[test]
fn an_answer_is_for_the_question_that_is_shown() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls")]);
    assert_eq!(dashboard.press(&[Key::Char('a')]), run(&["resolve", "00000004", "--allow", "--question", "7"]));
    assert_eq!(dashboard.press(&[Key::Char('n')]), run(&["resolve", "00000004", "--deny", "--question", "7"]));
    // Another one in its place, in the moment of the answer: what is on the screen is answered.
    let mut other = approval(4, "rm -rf /");
    other.paused_at = Some("2026-11-15T12:09:00Z".parse().unwrap());
    other.approval.as_mut().unwrap().id = 8;
    dashboard.heard(other);
    let answered = dashboard.apply(Input::Key(Key::Char('a')));
    assert_eq!(answered, run(&["resolve", "00000004", "--allow", "--question", "7"]));
    dashboard.state.settle();
    assert_eq!(dashboard.press(&[Key::Char('a')]), Vec::new(), "nobody has seen it");
    dashboard.pass(299);
    assert_eq!(dashboard.press(&[Key::Char('a')]), Vec::new());
    dashboard.pass(1);
    assert_eq!(dashboard.press(&[Key::Char('a')]), run(&["resolve", "00000004", "--allow", "--question", "8"]));
}

#[test]
fn questions_are_answered_by_a_choice_or_by_words() {
    let mut fields = paused("question");
    fields["question"] = json!({"id": 9, "text": "Which?", "choices": ["the main one"], "at": "2026-11-15T12:01:30Z"});
    let mut dashboard = one(&fields);
    let chosen = run(&["resolve", "00000001", "--answer", "the main one", "--question", "9"]);
    assert_eq!(dashboard.press(&[Key::Char('1')]), chosen);
    assert_eq!(dashboard.press(&[Key::Char('a')]), Vec::new());
    dashboard.type_in("it's q?");
    let typed = run(&["resolve", "00000001", "--answer", "it's q?", "--question", "9"]);
    assert_eq!(dashboard.press(&[Key::Enter]), typed);
}

#[test]
fn an_end_is_acknowledged_by_its_item() {
    let mut dashboard = Dashboard::new(PLAIN, vec![finished(3, 1)]);
    let item = "00000003:failed:1794744120000";
    assert_eq!(dashboard.press(&[Key::Char('a')]), run(&["inbox", "ack", item]));
    assert_eq!(dashboard.press(&[Key::Char('r')]), run(&["resume", "00000003"]), "the answer, not the rewind");
}

#[test]
fn the_timeline_says_which_step_is_meant() {
    let mut dashboard = one(&json!({}));
    assert_eq!(dashboard.press(&[Key::Char('f')]), run(&["resume", "--fork", "00000001"]));
    assert_eq!(dashboard.press(&[Key::Char('r')]), Vec::new(), "no step is shown");
    dashboard.press(&[Key::Tab]);
    assert_eq!(dashboard.press(&[Key::Char('f')]), Vec::new(), "nobody knows yet from where");
    let uuid = dashboard.state.selected().unwrap();
    let line = |step| Line { text: format!("{step}"), step: Some(step) };
    dashboard.apply(Input::Lines { uuid, tab: Tab::Timeline, part: Part::All(vec![line(1), line(2), line(3)]) });
    dashboard.press(&[Key::Enter, Key::Char('k')]);
    assert_eq!(dashboard.press(&[Key::Char('f')]), run(&["resume", "--fork", "--from-step", "2", "00000001"]));
    assert_eq!(dashboard.press(&[Key::Char('r')]), run(&["rewind", "00000001", "--to-step", "2", "-y"]));
    assert_eq!(dashboard.press(&[Key::Char('d')]), shown(&["diff", "00000001", "2"]));
    assert_eq!(dashboard.press(&[Key::Enter]), [Effect::Attach { words: vec!["attach".into(), "00000001".into()] }]);
}

#[test]
fn lines_of_another_tab_or_process_are_not_shown() {
    let mut dashboard = one(&json!({}));
    let uuid = dashboard.state.selected().unwrap();
    let late = |uuid, tab| Input::Lines { uuid, tab, part: Part::More(vec![Line::plain("late")]) };
    dashboard.apply(late(uuid, Tab::Events));
    dashboard.apply(late(process(2, 0, &json!({})).uuid, Tab::Log));
    assert!(!dashboard.screen(80, 24).contains("late"));
    dashboard.apply(late(uuid, Tab::Log));
    assert!(dashboard.screen(80, 24).contains("late"));
}

#[test]
fn tagged_processes_are_meant_together() {
    let mut dashboard = Dashboard::new(PLAIN, (1..=3).map(|pid| process(pid, 0, &json!({}))).collect());
    dashboard.press(&[Key::Char(' '), Key::Char('j'), Key::Char('j'), Key::Char(' ')]);
    assert_eq!(dashboard.press(&[Key::Char('p')]), run(&["pause", "--subtree", "00000001", "00000003"]));
    dashboard.press(&[Key::Char('K')]);
    assert_eq!(dashboard.press(&[Key::Char('1')]), run(&["kill", "-s", "TERM", "00000001", "00000003"]));
}

#[test]
fn the_cursor_stays_on_its_process_when_rows_come_and_go() {
    let mut dashboard = Dashboard::new(PLAIN, (1..=3).map(|pid| process(pid, 0, &json!({}))).collect());
    dashboard.press(&[Key::Char('j')]);
    let second = dashboard.state.selected();
    dashboard.heard(approval(9, "ls"));
    dashboard.state.settle();
    assert_eq!(dashboard.state.selected(), second);
}

#[test]
fn a_folded_tree_counts_what_is_below() {
    let below = |pid, ppid| process(pid, ppid, &json!({}));
    let mut dashboard = Dashboard::new(PLAIN, vec![below(1, 0), below(2, 1), below(3, 2)]);
    dashboard.press(&[Key::Char('-')]);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("1 agent-1 +2") && !screen.contains("agent-3"), "{screen}");
    dashboard.press(&[Key::Char('*')]);
    assert!(dashboard.screen(80, 24).contains("    3 agent-3"), "below its parent");
    dashboard.press(&[Key::Char('t')]);
    assert!(dashboard.screen(80, 24).contains("> 1 agent-1"));
}

#[test]
fn what_is_gone_after_a_reset_is_not_shown_any_more() {
    let mut dashboard = Dashboard::new(PLAIN, vec![process(1, 0, &json!({})), process(2, 0, &json!({}))]);
    dashboard.apply(Input::Reset);
    assert!(dashboard.screen(80, 24).contains("PROCESSES 2"), "until all is known it shows what it knew");
    dashboard.heard(process(2, 0, &json!({})));
    dashboard.apply(Input::Ready);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("PROCESSES 1") && screen.contains("agent-2"), "{screen}");
}

#[test]
fn only_the_last_ends_are_kept_and_every_item() {
    let ended = |pid, unseen: bool| {
        let mut process = finished(pid, 0);
        process.unseen = unseen;
        process
    };
    let mut dashboard = Dashboard::new(PLAIN, vec![ended(1, true)]);
    (2..=700).for_each(|pid| dashboard.heard(ended(pid, false)));
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("INBOX 1") && screen.contains("PROCESSES 501"), "{screen}");
}

#[test]
fn every_action_is_shown_as_the_command_that_does_the_same() {
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char('s')]);
    dashboard.type_in("go on");
    assert_eq!(dashboard.press(&[Key::Enter]), run(&["send", "00000001", "go on"]));
    assert!(dashboard.screen(80, 24).contains("relive send 00000001 'go on'"));
    let command = "relive send 00000001 'go on'".to_owned();
    let output = "error: it has ended\n".to_owned();
    dashboard.apply(Input::Finished(Finished { command, ok: false, output, wanted: false }));
    assert!(dashboard.screen(80, 24).contains("relive send 00000001 'go on': error: it has ended"));
    dashboard.press(&[Key::Char(':')]);
    dashboard.type_in("ps -a");
    assert_eq!(dashboard.press(&[Key::Enter]), shown(&["ps", "-a"]));
    assert_eq!(dashboard.press(&[Key::Char('q')]), [Effect::Quit]);
    assert_eq!(dashboard.press(&[Key::Char('?'), Key::Interrupt]), [Effect::Quit]);
}
