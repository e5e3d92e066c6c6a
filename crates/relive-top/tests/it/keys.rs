//! What each key asks for.

use relive_api::Process;
use relive_top::{Batch, Effect, Erase, Finished, Input, Key, Line, Output, Part, State, Tab};
use serde_json::json;

use crate::world::{Dashboard, PLAIN, approval, finished, paused, process};

fn effect(words: &[&str], output: Output) -> Vec<Effect> {
    vec![Effect::Run { commands: vec![words.iter().map(|word| (*word).to_owned()).collect()], output }]
}

pub(crate) fn run(words: &[&str]) -> Vec<Effect> {
    effect(words, Output::StatusLine)
}

fn each(count: usize, words: &[&str]) -> Vec<Effect> {
    effect(words, Output::Each { count })
}

fn shown(words: &[&str]) -> Vec<Effect> {
    effect(words, Output::Window)
}

/// The same process after a person has seen its end.
fn seen(process: Process) -> Process {
    Process { unseen: false, ..process }
}

pub(crate) fn one(fields: &serde_json::Value) -> Dashboard {
    Dashboard::new(PLAIN, vec![process(1, 0, fields)])
}

#[test]
fn p_pauses_and_resumes_the_subtree() {
    assert_eq!(Dashboard::new(PLAIN, vec![seen(finished(3, 0))]).press(&[Key::Char('p')]), Vec::new(), "it has ended");
    let press = |fields| one(&fields).press(&[Key::Char('p')]);
    assert_eq!(press(json!({})), run(&["pause", "--subtree", "00000001"]));
    assert_eq!(press(paused("user")), run(&["resume", "--subtree", "00000001"]));
    // One that asks waits for its answer, and is paused only if somebody paused it.
    let asks = || vec![approval(4, "ls")];
    assert_eq!(Dashboard::new(PLAIN, asks()).press(&[Key::Char('p')]), run(&["pause", "--subtree", "00000004"]));
    let kept = asks().into_iter().map(|process| Process { pause_kept: true, ..process }).collect();
    assert_eq!(Dashboard::new(PLAIN, kept).press(&[Key::Char('p')]), run(&["resume", "--subtree", "00000004"]));
    assert_eq!(Dashboard::new(PLAIN, Vec::new()).press(&[Key::Char('p')]), Vec::new());
}

#[test]
fn an_answer_is_for_the_question_that_is_shown() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls")]);
    assert_eq!(dashboard.press(&[Key::Char('y')]), run(&["resolve", "00000004", "--allow", "--question", "7"]));
    for (key, words) in [('a', &["--allow", "--always"][..]), ('n', &["--deny"])] {
        let words = [&["resolve", "00000004"], words, &["--question", "7"]].concat();
        assert_eq!(Dashboard::new(PLAIN, vec![approval(4, "ls")]).press(&[Key::Char(key)]), run(&words));
    }
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls")]);
    // Another one in its place, in the moment of the answer: what is on the screen is answered.
    let mut other = approval(4, "rm -rf /");
    other.paused_at = Some("2026-11-15T12:09:00Z".parse().unwrap());
    other.approval.as_mut().unwrap().id = 8;
    dashboard.heard(other);
    let answered = dashboard.apply(Input::Key(Key::Char('y')));
    assert_eq!(answered, run(&["resolve", "00000004", "--allow", "--question", "7"]));
    dashboard.settle();
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new(), "nobody has seen it");
    dashboard.pass(299);
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new());
    dashboard.pass(1);
    assert_eq!(dashboard.press(&[Key::Char('y')]), run(&["resolve", "00000004", "--allow", "--question", "8"]));
}

#[test]
fn questions_are_answered_by_a_choice_or_by_words() {
    let mut fields = paused("question");
    fields["question"] = json!({"id": 9, "text": "Which?", "choices": ["the main one"], "at": "2026-11-15T12:01:30Z"});
    let mut dashboard = one(&fields);
    let chosen = run(&["resolve", "00000001", "--answer", "the main one", "--question", "9"]);
    assert_eq!(dashboard.press(&[Key::Char('1')]), chosen);
    let mut dashboard = one(&fields);
    assert_eq!(dashboard.press(&[Key::Char('r')]), Vec::new());
    dashboard.type_in("it's q?");
    let typed = run(&["resolve", "00000001", "--answer", "it's q?", "--question", "9"]);
    assert_eq!(dashboard.press(&[Key::Enter]), typed);
}

/// A choice is sent by its text: its number may be the text of another one.
#[test]
fn a_choice_that_is_a_number_is_sent_as_it_is_shown() {
    let mut fields = paused("question");
    fields["question"] = json!({"id": 9, "text": "How many?", "choices": ["2", "1"], "at": "2026-11-15T12:01:30Z"});
    let mut dashboard = one(&fields);
    let chosen = run(&["resolve", "00000001", "--answer", "2", "--question", "9"]);
    assert_eq!(dashboard.press(&[Key::Char('1')]), chosen);
    let screen = dashboard.screen(120, 24);
    assert!(screen.contains("as proposed  relive resolve 00000001 --answer TEXT"), "{screen}");
    // Numbers that are no number of another choice do not stand in its way.
    fields["question"]["choices"] = json!(["10", "20"]);
    let screen = one(&fields).screen(120, 24);
    assert!(screen.contains("as proposed  relive resolve 00000001 --answer N"), "{screen}");
}

#[test]
fn the_cursor_begins_on_what_waits_and_stays_where_a_person_put_it() {
    let running = || (1..=3).map(|pid| process(pid, 0, &json!({})));
    let begin = |key: Option<Key>| {
        let mut dashboard = Dashboard { state: State::new(PLAIN), now_ms: 0 };
        dashboard.apply(Input::Reset);
        for process in running() {
            dashboard.heard(process);
            // A screen is drawn before everything was told.
            dashboard.settle();
        }
        dashboard.press(key.as_slice());
        dashboard.heard(approval(4, "ls"));
        dashboard.apply(Input::Ready { incomplete: false });
        dashboard.settle();
        dashboard.state.selected_uuid().map(|uuid| uuid.as_u128() & 0xff)
    };
    assert_eq!(begin(None), Some(4));
    assert_eq!(begin(Some(Key::Char('j'))), Some(2));
}

/// The index of ended processes is rebuilt after an upgrade: the inbox comes after the processes that run.
#[test]
fn the_cursor_begins_on_what_waits_also_if_ends_are_told_of_later() {
    let begin = |key: Option<Key>| {
        let mut dashboard = Dashboard { state: State::new(PLAIN), now_ms: 0 };
        dashboard.apply(Input::Reset);
        (1..=3).for_each(|pid| drop(dashboard.heard(process(pid, 0, &json!({})))));
        dashboard.apply(Input::Ready { incomplete: true });
        dashboard.settle();
        dashboard.press(key.as_slice());
        (4..=40).for_each(|pid| drop(dashboard.heard(finished(pid, 0))));
        dashboard.apply(Input::Ready { incomplete: false });
        dashboard.settle();
        dashboard.screen(80, 24)
    };
    let screen = begin(None);
    assert!(screen.contains("INBOX 37") && screen.contains("> finished"), "{screen}");
    let screen = begin(Some(Key::Char('j')));
    assert!(screen.contains("> 2 ") || screen.contains(">   2 "), "{screen}");
}

#[test]
fn a_filter_does_not_say_that_nothing_waits() {
    let mut dashboard = Dashboard::new(PLAIN, vec![process(1, 0, &json!({})), approval(4, "ls")]);
    let filter = |dashboard: &mut Dashboard, text: &str| {
        dashboard.press(&[Key::Char('/')]);
        dashboard.type_in(text);
        dashboard.press(&[Key::Enter]);
        dashboard.screen(80, 24)
    };
    let screen = filter(&mut dashboard, "agent-1");
    assert!(screen.contains("1 needs you") && screen.contains("INBOX 0 of 1"), "{screen}");
    assert!(screen.contains("none of them matches the filter") && !screen.contains("nothing waits"), "{screen}");
    let mut dashboard = Dashboard::new(PLAIN, vec![process(1, 0, &json!({})), approval(4, "ls")]);
    let screen = filter(&mut dashboard, "agent-4");
    assert!(screen.contains("INBOX 1 ") && !screen.contains("INBOX 1 of"), "{screen}");
}

#[test]
fn a_tree_and_an_ended_process_say_that_there_is_nothing_to_attach_to() {
    let attach = Effect::Attach { words: vec!["attach".to_owned(), "00000001".to_owned()] };
    let enter = |process| {
        let mut dashboard = Dashboard::new(PLAIN, vec![process]);
        let effects = dashboard.press(&[Key::Enter, Key::Enter]);
        (effects, dashboard.screen(80, 24))
    };
    assert_eq!(enter(process(1, 0, &json!({}))).0, [attach]);
    for body in ["compose", "supervisor"] {
        let (effects, screen) = enter(process(1, 0, &json!({"body": body})));
        assert!(effects.is_empty() && screen.contains("PID 1: there is nothing to attach to"), "{screen}");
    }
    let ended = json!({"state": "dead", "display": "dead", "dead_at": "2026-11-15T12:02:00Z"});
    let (effects, screen) = enter(process(1, 0, &ended));
    assert!(effects.is_empty() && screen.contains("PID 1 has ended: there is nothing to attach to"), "{screen}");
}

/// A question with an id and no choices.
fn question(id: u64, text: &str) -> Process {
    let mut fields = paused("question");
    fields["paused_at"] = json!(format!("2026-11-15T12:01:{id:02}Z"));
    fields["question"] = json!({"id": id, "text": text, "choices": [], "at": "2026-11-15T12:01:30Z"});
    process(1, 0, &fields)
}

#[test]
fn a_typed_answer_is_only_for_the_question_that_was_shown_when_typing_began() {
    let mut dashboard = Dashboard::new(PLAIN, vec![question(9, "Which?")]);
    dashboard.press(&[Key::Char('r')]);
    dashboard.type_in("the first");
    // It was answered elsewhere, and something else is asked.
    dashboard.heard(question(10, "Delete everything?"));
    dashboard.settle();
    assert!(dashboard.screen(80, 24).contains("not sent: question of PID 1: it is not asked any more"));
    assert_eq!(dashboard.press(&[Key::Enter]), Vec::new());
}

#[test]
fn a_command_that_does_not_fit_is_allowed_only_after_its_end_was_shown() {
    let command: String = (1..=60).map(|n| format!("echo harmless {n}\n")).collect::<String>() + "rm -rf ~";
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, &command)]);
    let allowed = run(&["resolve", "00000004", "--allow", "--question", "7"]);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("more lines: Enter") && !screen.contains("rm -rf ~"), "{screen}");
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new(), "nobody has seen the end");
    assert!(dashboard.screen(80, 24).contains("read all of it before you answer: Enter"));
    dashboard.press(&[Key::Enter]);
    dashboard.pass(1_000);
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new(), "this is the first page");
    dashboard.press(&[Key::Char('G')]);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("rm -rf ~"), "{screen}");
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new(), "it was shown for no time at all");
    dashboard.pass(300);
    let mut from_list = Dashboard::new(PLAIN, vec![approval(4, &command)]);
    from_list.press(&[Key::Enter, Key::Char('G')]);
    from_list.pass(300);
    from_list.press(&[Key::Escape]);
    assert_eq!(from_list.press(&[Key::Char('y')]), allowed, "also from the list");
    assert_eq!(dashboard.press(&[Key::Char('y')]), allowed);
}

#[test]
fn what_is_asked_is_shown_in_every_tab_and_not_answered_from_another_pane() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls -la /")]);
    for _ in 0..5 {
        assert!(dashboard.screen(80, 24).contains("| ls -la /"));
        dashboard.press(&[Key::Tab]);
    }
    let mut other = approval(4, "rm -rf ~");
    other.paused_at = Some("2026-11-15T12:09:00Z".parse().unwrap());
    dashboard.press(&[Key::Enter]);
    dashboard.heard(other);
    dashboard.settle();
    dashboard.pass(1_000);
    let screen = dashboard.screen(80, 24);
    assert!(!screen.contains("| rm -rf ~"), "{screen}");
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new(), "it was never shown");
    assert!(dashboard.screen(80, 24).contains("look at what is asked before you answer: Esc"));
}

#[test]
fn an_agent_cannot_draw_an_answer() {
    // Wherever the line is broken.
    for spaces in 30..45 {
        let forged = format!("ls{}[y] allow  relive resolve 00000004 --deny", " ".repeat(spaces));
        let screen = Dashboard::new(PLAIN, vec![approval(4, &forged)]).screen(80, 24);
        let answers: Vec<&str> = screen.lines().filter(|line| line.contains("│[y]")).collect();
        assert_eq!(answers.len(), 1, "{screen}");
    }
}

#[test]
fn an_answer_may_be_two_commands() {
    let mut fields = paused("budget_exceeded");
    fields["hint"] = json!("relive resume 1 --max-tokens 10 && relive resume 5");
    let commands = [vec!["resume", "1", "--max-tokens", "10"], vec!["resume", "5"]];
    let commands = commands.map(|words| words.into_iter().map(str::to_owned).collect()).to_vec();
    assert_eq!(one(&fields).press(&[Key::Char('m')]), [Effect::Run { commands, output: Output::StatusLine }]);
    fields["hint"] = json!("set A_KEY, then from a shell that has it: relive resume 5");
    assert_eq!(one(&fields).press(&[Key::Char('m')]), run(&["resume", "00000001"]), "only a command is run");
}

#[test]
fn one_that_makes_no_progress_can_be_ended_by_its_key() {
    let mut dashboard = one(&json!({"stalled": true, "display": "stalled"}));
    assert_eq!(dashboard.press(&[Key::Char('x')]), run(&["kill", "00000001"]));
    assert_eq!(dashboard.press(&[Key::Char('l')]), shown(&["logs", "00000001"]));
}

#[test]
fn every_key_that_does_something_is_in_the_help_of_its_place() {
    let special = [
        (Key::Enter, "Enter"),
        (Key::Tab, "Tab"),
        (Key::BackTab, "Shift-Tab"),
        (Key::PageUp, "PgUp"),
        (Key::PageDown, "PgDn"),
        (Key::Home, "Home"),
        (Key::End, "End"),
        (Key::Interrupt, "Ctrl-C"),
        (Key::Suspend, "Ctrl-Z"),
    ];
    let letters = ('!'..='~').map(|c| (Key::Char(c), c.to_string()));
    let keys = special.map(|(key, name)| (key, name.to_owned())).into_iter().chain(letters);
    let keys: Vec<(Key, String)> = keys.chain([(Key::Char(' '), "Space".to_owned())]).collect();
    // On an item, on a process, and in the detail pane of one.
    for place in [&[][..], &[Key::Char('j'); 2], &[Key::Char('j'), Key::Char('j'), Key::Enter]] {
        let fresh = || {
            let below = |pid, ppid| process(pid, ppid, &json!({}));
            let mut dashboard = Dashboard::new(PLAIN, vec![approval(1, "ls"), below(2, 0), below(3, 2), below(4, 0)]);
            for key in place {
                dashboard.apply(Input::Key(*key));
                dashboard.state.settle();
            }
            let uuid = dashboard.state.selected_uuid().unwrap();
            let lines = (1..=50).map(|n| Line::plain(format!("line {n}"))).collect();
            dashboard.apply(Input::Lines { uuid, tab: Tab::Log, part: Part::All(lines) });
            dashboard.state.settle();
            dashboard
        };
        let mut dashboard = fresh();
        dashboard.press(&[Key::Char('?')]);
        let help = dashboard.screen(80, 24);
        let listed: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix('│')).collect();
        let listed: Vec<&str> = listed.iter().flat_map(|line| line[..27].split_whitespace()).collect();
        for (key, name) in &keys {
            let mut dashboard = fresh();
            let before = format!("{:?}", dashboard.state);
            let effects = dashboard.apply(Input::Key(*key));
            dashboard.state.settle();
            let acts = !effects.is_empty() || format!("{:?}", dashboard.state) != before;
            assert!(!acts || listed.contains(&name.as_str()), "{name} is not in the help:\n{help}");
        }
    }
}

#[test]
fn an_end_is_acknowledged_by_its_item() {
    let mut dashboard = Dashboard::new(PLAIN, vec![finished(3, 1)]);
    let item = "00000003:failed:1794744120000";
    assert_eq!(dashboard.press(&[Key::Char('e')]), run(&["inbox", "ack", item]));
    let mut dashboard = Dashboard::new(PLAIN, vec![finished(3, 1)]);
    assert_eq!(dashboard.press(&[Key::Char('u')]), run(&["resume", "00000003"]));
}

/// Whoever clears ends, or replies, by one key again and again allows nothing by it.
#[test]
fn no_key_that_clears_or_replies_allows_a_call_and_no_key_allows_once_in_one_place_and_always_in_another() {
    let mut question = paused("question");
    question["question"] = json!({"id": 9, "text": "Which?", "choices": ["a", "b"], "at": "2026-11-15T12:01:30Z"});
    let keys = |process: Process| -> Vec<char> {
        let item = relive_api::item_of(&process).unwrap();
        item.answers.iter().map(|answer| answer.key).collect()
    };
    assert_eq!(keys(approval(4, "ls")), ['y', 'n', 'a']);
    let others = [keys(process(1, 0, &question)), keys(finished(3, 0)), keys(finished(3, 1))].concat();
    assert_eq!(others, ['1', '2', 'r', 'e', 'l', 'e', 'u', 'l']);
    assert!(others.iter().all(|key| !['y', 'a'].contains(key)));
    // A command that is too long for a rule can be allowed, but not for ever.
    assert_eq!(keys(approval(4, &"x".repeat(5_000))), ['y', 'n']);
}

#[test]
fn a_key_that_answers_a_process_does_so_in_the_list_of_processes_too() {
    let mut dashboard = Dashboard::new(PLAIN, vec![finished(3, 1)]);
    dashboard.press(&[Key::Char('j')]);
    assert_eq!(dashboard.press(&[Key::Char('e')]), run(&["inbox", "ack", "00000003:failed:1794744120000"]));
}

/// It fails while somebody is about to rewind it or to send it a message.
#[test]
fn a_process_that_has_just_failed_is_not_resumed_or_seen_by_the_keys_of_other_actions() {
    let mut dashboard = Dashboard::new(PLAIN, vec![finished(3, 1)]);
    dashboard.press(&[Key::Char('j')]);
    assert_eq!(dashboard.press(&[Key::Char('r')]), Vec::new(), "it asks for a step");
    assert_eq!(dashboard.press(&[Key::Char('s')]), Vec::new(), "a message is typed");
}

#[test]
fn the_timeline_says_which_step_is_meant() {
    let mut dashboard = one(&json!({}));
    assert_eq!(dashboard.press(&[Key::Char('f')]), run(&["resume", "--fork", "00000001"]));
    assert_eq!(dashboard.press(&[Key::Char('r')]), Vec::new(), "no step is shown");
    dashboard.press(&[Key::Tab]);
    assert_eq!(dashboard.press(&[Key::Char('f')]), Vec::new(), "nobody knows yet from where");
    let uuid = dashboard.state.selected_uuid().unwrap();
    let line = |step| Line { text: format!("{step}"), step: Some(step) };
    dashboard.apply(Input::Lines { uuid, tab: Tab::Timeline, part: Part::All(vec![line(1), line(2), line(3)]) });
    dashboard.press(&[Key::Enter, Key::Char('k')]);
    assert_eq!(dashboard.press(&[Key::Char('f')]), run(&["resume", "--fork", "--from-step", "2", "00000001"]));
    let then = ["rewind", "00000001", "--to-step", "2", "-y"].map(str::to_owned).to_vec();
    let plan = effect(&["rewind", "00000001", "--to-step", "2", "--dry-run"], Output::Plan { then });
    assert_eq!(dashboard.press(&[Key::Char('r')]), plan, "it is asked first");
    assert_eq!(dashboard.press(&[Key::Char('d')]), shown(&["diff", "00000001", "2"]));
    assert_eq!(dashboard.press(&[Key::Enter]), [Effect::Attach { words: vec!["attach".into(), "00000001".into()] }]);
}

/// A dashboard that was told what a rewind would change.
fn planned() -> Dashboard {
    let mut dashboard = one(&json!({}));
    let then = ["rewind", "00000001", "--to-step", "2", "-y"].map(str::to_owned).to_vec();
    let (text, command) = (" a.txt | 2 +-\n1 file would change\n".into(), "relive rewind ... --dry-run".into());
    dashboard.apply(Input::Finished(Finished { command, ok: true, text, output: Output::Plan { then } }));
    dashboard.settle();
    dashboard
}

#[test]
fn a_rewind_is_done_only_after_what_it_changes_was_shown_and_agreed_to() {
    let mut dashboard = planned();
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("a.txt | 2 +-") && screen.contains("relive rewind 00000001 --to-step 2 -y?"), "{screen}");
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new(), "it was typed before this was shown");
    dashboard.pass(300);
    assert_eq!(dashboard.press(&[Key::Char('y')]), run(&["rewind", "00000001", "--to-step", "2", "-y"]));
    for key in [Key::Char('n'), Key::Escape, Key::Char('q'), Key::Enter] {
        let mut dashboard = planned();
        dashboard.pass(300);
        assert_eq!(dashboard.press(&[key]), Vec::new());
        assert!(dashboard.screen(80, 24).contains("nothing was changed"));
        assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new(), "nothing is asked any more");
        assert_eq!(dashboard.press(&[Key::Char('Y')]).len(), 1, "it is the key of another place again: copy");
    }
    let mut dashboard = one(&json!({}));
    let (command, text) = ("relive rewind".into(), "nothing to do: the files are already in step 2\n".into());
    let output = Output::Plan { then: vec!["rewind".into()] };
    dashboard.apply(Input::Finished(Finished { command, ok: true, text, output }));
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("relive rewind: nothing to do: ") && !screen.contains("[y] yes"), "{screen}");
    // In the middle of typing no key agrees to anything.
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char('/')]);
    let output = Output::Plan { then: vec!["rewind".into()] };
    dashboard.apply(Input::Finished(Finished { command: "relive".into(), ok: true, text: "x".into(), output }));
    dashboard.pass(300);
    assert_eq!(dashboard.press(&[Key::Char('y')]), Vec::new());
    assert!(dashboard.screen(80, 24).contains("PROCESSES 0  /y"));
}

#[test]
fn the_palette_takes_double_quotes() {
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char(':')]);
    dashboard.type_in(r#"send 1 "it's two words""#);
    assert_eq!(dashboard.press(&[Key::Enter]), shown(&["send", "1", "it's two words"]));
}

/// An agent that asks to write a file.
fn write(pid: u32, content: &str) -> Process {
    let mut process = approval(pid, "");
    let asked = process.approval.as_mut().unwrap();
    asked.tool = "write".into();
    asked.args = json!({"content": content, "path": "a.txt"});
    process
}

#[test]
fn what_is_asked_to_be_written_is_compared_with_the_disk_once() {
    let mut dashboard = Dashboard::new(PLAIN, Vec::new());
    dashboard.heard(write(4, "one\nthree\n"));
    let compares = |effects: Vec<Effect>| {
        effects.into_iter().find_map(|effect| if let Effect::Compare { id, .. } = effect { Some(id) } else { None })
    };
    let id = compares(dashboard.state.settle()).unwrap();
    assert_eq!(compares(dashboard.state.settle()), None);
    assert!(dashboard.screen(80, 24).contains("  | +one"), "all of it is new until it was compared");
    let lines = Some(vec![" one".to_owned(), "-two\u{3164}".to_owned(), "+three".to_owned()]);
    dashboard.apply(Input::Compared { id: "another".into(), lines: Some(vec!["other".into()]) });
    dashboard.apply(Input::Compared { id, lines });
    let screen = dashboard.screen(80, 24);
    for part in ["changes:", "  |  one", "  | -two<U+3164>", "  | +three"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(!screen.contains("other") && !screen.contains("+one"), "{screen}");
}

#[test]
fn lines_of_another_tab_or_process_are_not_shown() {
    let mut dashboard = one(&json!({}));
    let uuid = dashboard.state.selected_uuid().unwrap();
    let late = |uuid, tab| Input::Lines { uuid, tab, part: Part::More(vec![Line::plain("late")]) };
    dashboard.apply(late(uuid, Tab::Events));
    dashboard.apply(late(process(2, 0, &json!({})).uuid, Tab::Log));
    assert!(!dashboard.screen(80, 24).contains("late"));
    dashboard.apply(late(uuid, Tab::Log));
    assert!(dashboard.screen(80, 24).contains("late"));
}

#[test]
fn pause_and_signal_act_on_all_tagged_processes() {
    let mut processes: Vec<Process> = (1..=3).map(|pid| process(pid, 0, &json!({}))).collect();
    processes.extend([process(4, 0, &paused("user")), seen(finished(5, 0))]);
    let mut dashboard = Dashboard::new(PLAIN, processes);
    dashboard.press(&[Key::Char(' '), Key::Char('j'), Key::Char('j'), Key::Char(' ')]);
    // The cursor on another one changes nothing, whatever that does.
    for _ in 0..3 {
        assert_eq!(dashboard.press(&[Key::Char('p')]), each(2, &["pause", "--subtree", "00000001", "00000003"]));
        dashboard.press(&[Key::Char('j')]);
    }
    dashboard.press(&[Key::Char('K')]);
    assert!(
        dashboard.screen(80, 24).contains("relive kill -s SIGNAL 00000001 00000003 "),
        "those that get it are named"
    );
    assert_eq!(dashboard.press(&[Key::Char('1')]), each(2, &["kill", "-s", "TERM", "00000001", "00000003"]));
}

#[test]
fn the_cursor_stays_on_its_process_when_rows_come_and_go() {
    let mut dashboard = Dashboard::new(PLAIN, (1..=3).map(|pid| process(pid, 0, &json!({}))).collect());
    dashboard.press(&[Key::Char('j')]);
    let second = dashboard.state.selected_uuid();
    dashboard.heard(approval(9, "ls"));
    dashboard.settle();
    assert_eq!(dashboard.state.selected_uuid(), second);
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
    dashboard.apply(Input::Ready { incomplete: false });
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
    (2..=700).for_each(|pid| drop(dashboard.heard(ended(pid, false))));
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("INBOX 1") && screen.contains("PROCESSES 501"), "{screen}");
}

#[test]
fn a_message_that_begins_with_a_hyphen_is_no_option() {
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char('s')]);
    dashboard.type_in("--eof");
    assert_eq!(dashboard.press(&[Key::Enter]), run(&["send", "--", "00000001", "--eof"]));
}

#[test]
fn every_action_is_shown_as_the_command_that_does_the_same() {
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char('s')]);
    dashboard.type_in("go on");
    assert_eq!(dashboard.press(&[Key::Enter]), run(&["send", "00000001", "go on"]));
    assert!(dashboard.screen(80, 24).contains("relive send 00000001 'go on'"));
    let command = "relive send 00000001 'go on'".to_owned();
    let text = "error: it has ended\n".to_owned();
    dashboard.apply(Input::Finished(Finished { command, ok: false, text, output: Output::StatusLine }));
    assert!(dashboard.screen(80, 24).contains("relive send 00000001 'go on': error: it has ended"));
    dashboard.press(&[Key::Char(':')]);
    dashboard.type_in("ps -a");
    assert_eq!(dashboard.press(&[Key::Enter]), shown(&["ps", "-a"]));
    assert_eq!(dashboard.press(&[Key::Char('q')]), [Effect::Quit]);
    assert_eq!(dashboard.press(&[Key::Char('?'), Key::Interrupt]), [Effect::Quit]);
}

#[test]
fn text_that_comes_at_once_is_no_key() {
    let keys = |text: &str| Input::Keys { keys: text.chars().map(Key::Char).collect(), batch: Batch::Whole };
    for input in [keys("yes"), keys("jy"), keys("Kk"), keys("qq"), Input::Paste("y".into()), Input::Paste("K".into())] {
        let mut dashboard = Dashboard::new(PLAIN, vec![approval(1, "make")]);
        dashboard.pass(1_000);
        let said = format!("{input:?}");
        assert_eq!(dashboard.apply(input), [], "{said}");
        let screen = dashboard.screen(80, 24);
        assert!(
            screen.contains("do nothing: press one") || screen.contains("pasted text is no key"),
            "{said}: {screen}"
        );
        assert!(!screen.contains("kill -s"), "{said}: {screen}");
    }
    let mut dashboard = Dashboard::new(PLAIN, vec![process(1, 0, &json!({})), process(2, 0, &json!({}))]);
    dashboard.apply(keys("jj"));
    assert_eq!(
        dashboard.state.selected_uuid().map(|uuid| uuid.to_string().ends_with("02")),
        Some(true),
        "keys that move"
    );
    assert_eq!(
        dashboard.apply(Input::Keys { keys: vec![Key::Char('x'), Key::Interrupt], batch: Batch::Whole }),
        [Effect::Quit]
    );
}

#[test]
fn pasted_text_is_typed_where_a_text_is_expected() {
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char('s')]);
    dashboard.apply(Input::Paste("one\r\ntwo\r".into()));
    dashboard.apply(Input::Keys { keys: vec![Key::Char('3'), Key::Enter, Key::Char('4')], batch: Batch::Whole });
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("one ") && screen.contains("two ") && screen.contains("4_ "), "{screen}");
    let cut = Input::Keys { keys: vec![Key::Char('5'), Key::Enter], batch: Batch::Cut };
    assert_eq!(dashboard.apply(cut), [], "a line break where the text was cut does not send it");
    let sent = dashboard.apply(Input::Keys { keys: vec![Key::Char('!'), Key::Enter], batch: Batch::Whole });
    assert_eq!(sent, run(&["send", "00000001", "one\ntwo\n3\n45\n!"]));
    dashboard.press(&[Key::Char('s')]);
    dashboard.apply(Input::Paste("é".repeat(40_000)));
    dashboard.apply(Input::Key(Key::Char('x')));
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("the text is longer than 64 KiB: the rest is left out"), "{screen}");
    let sent = dashboard.press(&[Key::Enter]);
    assert_eq!(sent, run(&["send", "00000001", &"é".repeat(32_768)]), "what fits");
    dashboard.press(&[Key::Char('/')]);
    dashboard.apply(Input::Paste("agent-1\n".into()));
    assert!(dashboard.screen(80, 24).contains("agent-1 _"));
}

#[test]
fn that_the_daemon_was_stopped_is_shown_until_there_is_one() {
    let mut dashboard = one(&json!({}));
    dashboard.apply(Input::Disconnected { stopped: true });
    dashboard.settle();
    dashboard.pass(600_000);
    assert!(dashboard.screen(80, 24).contains("the daemon was stopped"));
    dashboard.apply(Input::Reset);
    assert!(!dashboard.screen(80, 24).contains("the daemon was stopped"));
}

#[test]
fn ctrl_u_and_ctrl_w_erase_as_in_a_shell() {
    let check = |erase, expect: &str| {
        let mut dashboard = one(&json!({}));
        dashboard.press(&[Key::Char('s')]);
        dashboard.type_in("to be ");
        dashboard.press(&[Key::Erase(erase)]);
        dashboard.type_in("x");
        assert_eq!(dashboard.press(&[Key::Enter]), run(&["send", "00000001", expect]));
    };
    check(Erase::Word, "to x");
    check(Erase::Line, "x");
}

#[test]
fn where_nothing_is_selected_no_key_is_offered_that_does_nothing() {
    let mut dashboard = one(&json!({}));
    dashboard.press(&[Key::Char('/')]);
    dashboard.type_in("nobody");
    dashboard.press(&[Key::Enter]);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("Esc clear the filter  / filter  : type a command  ? keys  q quit"), "{screen}");
    assert_eq!(dashboard.press(&[Key::Char('K')]), []);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("nothing is selected") && !screen.contains("kill -s"), "{screen}");
    for key in "frds Yp lSct+-*jkgG".chars().map(Key::Char).chain([Key::Tab, Key::BackTab, Key::Enter, Key::Down]) {
        dashboard.pass(60_000);
        assert!(!dashboard.screen(80, 24).contains("nothing is selected"));
        assert_eq!(dashboard.press(&[key]), []);
        assert!(dashboard.screen(80, 24).contains("nothing is selected"), "{key:?}");
    }
    dashboard.press(&[Key::Char('?')]);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("clear the filter") && !screen.contains("diff"), "{screen}");
    dashboard.press(&[Key::Char('q'), Key::Enter, Key::Escape]);
    assert!(dashboard.screen(80, 24).contains("PROCESSES 1"), "the filter is cleared at once");
    let screen = Dashboard::new(PLAIN, Vec::new()).screen(80, 24);
    assert!(screen.contains("\n: type a command  ? keys  q quit"), "{screen}");
}

#[test]
fn a_daemon_that_does_not_answer_is_named_and_the_clocks_stop() {
    let mut dashboard = one(&json!({"name": "worker"}));
    let before = dashboard.screen(80, 24);
    dashboard.apply(Input::Silent { os_pid: Some(7) });
    dashboard.pass(90_000);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("not answering...") && screen.contains("waiting for the daemon, OS pid 7, which does not"));
    let row = |screen: &str| screen.lines().find(|line| line.starts_with("> 1 worker")).map(str::to_owned);
    assert_eq!(row(&screen), row(&before), "{screen}");
    dashboard.apply(Input::Answers);
    let screen = dashboard.screen(80, 24);
    assert!(!screen.contains("answer") && row(&screen) != row(&before), "{screen}");
}
