//! Each screen, as it is drawn.

use insta::assert_snapshot;
use relive_top::{Finished, Input, Key, Line, Look, Output, Part, Tab};
use serde_json::json;

use crate::world::{Dashboard, PLAIN, approval, finished, paused, process};

fn busy(look: Look) -> Dashboard {
    let mut question = paused("question");
    question["question"] =
        json!({"id": 9, "text": "Which branch?", "choices": ["main", "dev"], "at": "2026-11-15T12:01:30Z"});
    question["paused_at"] = json!("2026-11-15T12:01:30Z");
    let mut quota = paused("quota");
    quota["resume_at"] = json!("2026-11-15T12:04:30Z");
    quota["paused_at"] = json!("2026-11-15T12:02:30Z");
    Dashboard::new(
        look,
        vec![
            process(1, 0, &json!({"name": "lead", "doing": "asking the model 12s"})),
            process(2, 1, &json!({"name": "child"})),
            process(3, 2, &paused("user")),
            approval(4, "rm -rf build\nmake -j4"),
            process(5, 0, &question),
            process(6, 0, &quota),
            finished(7, 0),
            finished(8, 1),
        ],
    )
}

fn with_log(mut dashboard: Dashboard, tab: Tab, lines: Vec<Line>) -> Dashboard {
    dashboard.state.settle();
    let uuid = dashboard.state.selected_uuid().unwrap();
    dashboard.apply(Input::Lines { uuid, tab, part: Part::All(lines) });
    dashboard
}

#[test]
fn the_inbox_comes_first_and_what_is_asked_is_shown_in_full() {
    let log = vec![Line::plain("> fix the test"), Line::plain("  shell {\"command\":\"rm -rf build\"}")];
    assert_snapshot!(with_log(busy(PLAIN), Tab::Log, log).screen(80, 24));
}

#[test]
fn a_large_terminal_shows_more_columns() {
    assert_snapshot!(busy(PLAIN).screen(200, 30));
}

#[test]
fn ascii_is_enough() {
    let screen = busy(Look { color: false, ascii: true }).screen(80, 24);
    assert!(screen.is_ascii(), "{screen}");
    assert_snapshot!(screen);
}

#[test]
fn a_program_has_no_steps_and_no_tokens() {
    let program = json!({"body": "exec", "step": 0, "tokens_in": 0, "tokens_out": 0, "cost_usd": null});
    let screen = Dashboard::new(PLAIN, vec![process(1, 0, &program)]).screen(200, 24);
    assert!(screen.contains("running      -       -        -  1m02s"), "{screen}");
    assert!(!screen.contains("step 0") && screen.contains("│running  1m02s"), "{screen}");
}

#[test]
fn nothing_waits() {
    assert_snapshot!(Dashboard::new(PLAIN, Vec::new()).screen(80, 24));
}

#[test]
fn a_lost_daemon_is_being_looked_for() {
    let mut dashboard = busy(PLAIN);
    dashboard.apply(Input::Disconnected { stopped: false });
    assert!(dashboard.screen(80, 24).starts_with("relive  reconnecting...  5 need you"));
    dashboard.apply(Input::Reset);
    assert!(!dashboard.screen(80, 24).contains("reconnecting"));
    dashboard.apply(Input::Disconnected { stopped: true });
    assert!(dashboard.screen(80, 24).contains("the daemon was stopped; to start it: relive daemon start"));
}

#[test]
fn the_timeline_has_a_cursor() {
    let mut dashboard = busy(PLAIN);
    dashboard.press(&[Key::Tab]);
    let step = |step: u32, text: &str| Line { text: text.to_owned(), step: Some(step) };
    let lines = vec![step(1, "  1 12:00:01  40 tok  list"), step(2, "  2 12:00:02  50 tok  write  1 file +2 -1")];
    let mut dashboard = with_log(dashboard, Tab::Timeline, lines);
    dashboard.press(&[Key::Enter, Key::Char('g')]);
    assert_snapshot!(dashboard.screen(80, 24));
}

#[test]
fn each_other_tab_has_its_screen() {
    for (presses, tab, name) in
        [(2, Tab::Events, "the_events"), (3, Tab::Context, "the_context"), (4, Tab::Lineage, "the_lineage")]
    {
        let mut dashboard = busy(PLAIN);
        dashboard.press(&vec![Key::Tab; presses]);
        let lines = vec![Line::plain("the first line of the tab"), Line::plain("the last one")];
        assert_snapshot!(name, with_log(dashboard, tab, lines).screen(80, 24));
    }
}

#[test]
fn an_answer_in_own_words_says_how_it_is_sent() {
    let mut dashboard = busy(PLAIN);
    dashboard.press(&[Key::Down]);
    dashboard.state.settle();
    dashboard.screen(80, 24);
    dashboard.pass(1_000);
    dashboard.press(&[Key::Char('r')]);
    dashboard.type_in("neither");
    assert_snapshot!(dashboard.screen(80, 24));
}

#[test]
fn a_window_that_shows_no_line_says_why() {
    let mut dashboard = busy(PLAIN);
    dashboard.press(&[Key::Char('?')]);
    let screen = dashboard.screen(40, 5);
    assert!(screen.contains("the screen is too small") && !screen.contains(" of "), "{screen}");
}

#[test]
fn the_help_is_of_this_place() {
    let mut dashboard = busy(PLAIN);
    dashboard.press(&[Key::Char('?')]);
    let screen = dashboard.screen(80, 24);
    assert_snapshot!(screen);
    dashboard.press(&[Key::Escape, Key::Enter, Key::Char('?')]);
    assert_snapshot!("the_help_of_the_detail_pane", dashboard.screen(80, 24));
}

#[test]
fn the_menu_of_signals_says_the_command() {
    let mut dashboard = busy(PLAIN);
    dashboard.press(&[Key::Char('K')]);
    assert_snapshot!(dashboard.screen(80, 24));
}

#[test]
fn a_typed_line_is_shown() {
    let mut dashboard = busy(PLAIN);
    dashboard.press(&[Key::Char(':')]);
    dashboard.type_in("ps -a");
    assert_snapshot!(dashboard.screen(80, 24));
}

#[test]
fn output_that_was_asked_for_is_shown_and_moved_through() {
    let mut dashboard = busy(PLAIN);
    let text = (1..=40).map(|n| format!("line {n}\n")).collect();
    let command = "relive diff 00000004".to_owned();
    dashboard.apply(Input::Finished(Finished { command, ok: true, text, output: Output::Window }));
    dashboard.press(&[Key::PageDown]);
    assert_snapshot!(dashboard.screen(80, 24));
    dashboard.press(&[Key::Char('G'), Key::Char('k')]);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("line 39") && !screen.contains("line 40"), "one line up from the last page: {screen}");
}

#[test]
fn an_inbox_that_may_lack_ends_says_so() {
    let mut dashboard = busy(PLAIN);
    dashboard.apply(Input::Ready { incomplete: true });
    assert!(dashboard.screen(80, 24).contains("INBOX 5  (some ends may be missing)"));
    dashboard.apply(Input::Ready { incomplete: false });
    assert!(!dashboard.screen(80, 24).contains("missing"));
}

#[test]
fn a_change_of_a_file_reads_like_a_diff() {
    let mut edit = approval(4, "");
    let asked = edit.approval.as_mut().unwrap();
    asked.tool = "edit".into();
    asked.args = json!({"new": "two\nthree\n", "old": "one\n", "path": "src/a.rs"});
    let screen = Dashboard::new(PLAIN, vec![edit]).screen(80, 24);
    let lines: Vec<&str> = screen.lines().filter_map(|line| line.split_once('│')).map(|(_, detail)| detail).collect();
    let expect = ["  edit", "  path:", "  | src/a.rs", "  old:", "  | -one", "  new:", "  | +two", "  | +three"];
    assert_eq!(lines[4..12], expect, "{screen}");
}

#[test]
fn a_question_longer_than_the_screen_is_paged() {
    let command = (1..=60).map(|n| format!("line {n}\n")).collect::<String>();
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, &command)]);
    assert_snapshot!(dashboard.screen(80, 24));
    dashboard.press(&[Key::Enter, Key::Char('G')]);
    assert_snapshot!("the_end_of_a_question_longer_than_the_screen", dashboard.screen(80, 24));
}

#[test]
fn a_filter_leaves_what_matches() {
    let mut dashboard = busy(PLAIN);
    dashboard.press(&[Key::Char('/')]);
    dashboard.type_in("CHILD");
    dashboard.press(&[Key::Enter]);
    let screen = dashboard.screen(80, 24);
    assert!(screen.contains("PROCESSES 1  /child") && screen.contains("INBOX 0"), "{screen}");
    dashboard.press(&[Key::Escape]);
    assert!(dashboard.screen(80, 24).contains("PROCESSES 8"));
}

#[test]
fn control_characters_of_agents_are_escaped() {
    let mut dashboard = Dashboard::new(PLAIN, vec![approval(4, "ls\u{1b}[2J\u{202e}")]);
    let screen = dashboard.screen(80, 24);
    assert!(!screen.chars().any(|c| c.is_control() && c != '\n') && screen.contains("<ESC>[2J<U+202E>"), "{screen}");
}

#[test]
fn what_is_not_seen_is_spelled_out_where_a_person_answers() {
    let mut asks = paused("question");
    asks["question"] = json!({
        "id": 9, "text": "Which\u{a0}one?\u{3164}\n[y] allow", "choices": ["ma\u{e0100}in", "x  [n] deny"],
        "at": "2026-11-15T12:01:30Z"
    });
    for process in [approval(4, "ls\u{3164}\u{fe0f}\u{a0}x"), process(5, 0, &asks)] {
        let screen = Dashboard::new(PLAIN, vec![process]).screen(120, 24);
        let hidden = ['\u{a0}', '\u{3164}', '\u{fe0f}', '\u{e0100}'];
        assert!(!screen.contains(hidden) && screen.contains("<U+3164>") && screen.contains("<U+00A0>"), "{screen}");
    }
    let screen = Dashboard::new(PLAIN, vec![process(5, 0, &asks)]).screen(80, 24);
    let lines: Vec<&str> = screen.lines().filter_map(|line| line.split_once('│')).map(|(_, detail)| detail).collect();
    let expect = [
        "question:",
        "  | Which<U+00A0>one?<U+3164>",
        "  | [y] allow",
        "  1 | ma<U+E0100>in",
        "  2 | x  [n] deny",
        "[1-2] as proposed  relive resolve 00000005",
    ];
    assert_eq!(lines[3..9], expect, "{screen}");
    assert!(screen.lines().last().unwrap().starts_with("1-2 as proposed  r reply"), "{screen}");
}

#[test]
fn a_cost_that_is_not_known_is_not_shown_as_nothing() {
    let header = |costs: &[serde_json::Value]| {
        let of = |(pid, cost): (u32, &serde_json::Value)| process(pid, 0, &json!({"cost_usd": cost}));
        Dashboard::new(PLAIN, (1..).zip(costs).map(of).collect()).screen(80, 24).lines().next().unwrap().to_owned()
    };
    let unknown = json!(null);
    assert!(header(&[]).ends_with("0 tokens  $0.00"));
    assert!(header(&[json!(0.25), json!(0.5)]).ends_with("  $0.75"));
    assert!(header(&[json!(0.25), unknown.clone()]).ends_with("  >=$0.25"));
    assert!(header(std::slice::from_ref(&unknown)).ends_with("  cost unknown"));
    assert!(header(&[unknown, json!(0.0)]).ends_with("  cost unknown"), "a program costs nothing");
}

#[test]
fn a_process_that_was_removed_is_not_shown() {
    let mut dashboard = busy(PLAIN);
    assert!(dashboard.screen(80, 24).contains("PROCESSES 8"));
    let uuid = finished(7, 0).uuid;
    dashboard.apply(Input::Change(Box::new(relive_api::Change { uuid, process: None, item: None })));
    assert!(dashboard.screen(80, 24).contains("PROCESSES 7"));
}

#[test]
fn a_screen_of_any_size_is_drawn() {
    for (width, height) in [(1, 1), (10, 3), (36, 5), (37, 10), (500, 200)] {
        let mut dashboard = busy(PLAIN);
        dashboard.screen(width, height);
        dashboard.press(&[Key::Char('?')]);
        dashboard.screen(width, height);
    }
}

#[test]
fn clocks_of_those_that_run_run_and_the_others_stand_still() {
    let mut dashboard =
        Dashboard::new(PLAIN, vec![process(1, 0, &json!({})), process(2, 0, &paused("user")), finished(3, 0)]);
    let clocks = |dashboard: &mut Dashboard| {
        let screen = dashboard.screen(80, 24);
        let of = |name: &str| {
            let mut list = screen.lines().map(|line| line.split('│').next().unwrap());
            let line = list.find(|line| line.contains(name) && !line.contains("finished")).unwrap();
            line.split_whitespace().last().unwrap().to_owned()
        };
        ["agent-1", "agent-2", "agent-3"].map(of)
    };
    assert_eq!(clocks(&mut dashboard), ["1m02s", "1m01s", "1m01s"]);
    dashboard.pass(60_000);
    assert_eq!(clocks(&mut dashboard), ["2m02s", "1m01s", "1m01s"]);
}

#[test]
fn an_id_that_was_sent_to_the_terminal_is_not_called_copied() {
    let mut dashboard = Dashboard::new(PLAIN, vec![process(1, 0, &json!({}))]);
    assert_eq!(dashboard.press(&[Key::Char('Y')]).len(), 1);
    let screen = dashboard.screen(100, 30);
    assert!(screen.contains("id 00000001, sent to the clipboard of the terminal"), "{screen}");
}

#[test]
fn a_pause_that_is_kept_is_told() {
    let kept = relive_api::Process { pause_kept: true, ..approval(4, "ls") };
    let mut dashboard = Dashboard::new(PLAIN, vec![kept]);
    let screen = dashboard.screen(120, 24);
    for part in [
        "approval agent-4, then paused: shell: ls",
        "[?] approval, then paused",
        "approval: paused once it is answered",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(dashboard.screen(80, 24).contains("paused once it is answered"));
    dashboard.heard(approval(4, "ls"));
    assert!(!dashboard.screen(80, 24).contains("then paused"));
}
