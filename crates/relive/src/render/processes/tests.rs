//! Tables and trees as text.

use relive_core::{SuspendReason, Usd, Why};
use relive_types::LimitKind;
use serde_json::json;

use super::*;

/// Returns an ordinary process.
pub(crate) fn process(pid: u32, ppid: u32) -> Process {
    let uuid = format!("0198f3c1-0000-7000-8000-{pid:012}");
    serde_json::from_value(json!({
        "pid": pid, "ppid": ppid, "uuid": uuid, "short": "0c9d1e77", "parent_uuid": null, "origin_uuid": null, "origin_step": null,
        "generation": 1, "successor_pid": null, "name": format!("p{pid}"), "body": "agent", "intent": "do it",
        "cwd": "/w", "state": "running", "paused": false, "paused_at": null, "display": "running",
        "suspend_reason": null, "ending": null, "status": null, "why": null, "killed_by": null, "killed_from": null,
        "exit": null, "step": 3, "max_steps": 20, "tokens_in": 1000, "tokens_out": 234, "max_tokens": null,
        "cost_usd": 0.01234, "model": "script/x", "suspended_below": 0, "resumable": true, "stalled": false,
        "created_at": "2026-11-15T12:00:00Z", "started_at": null, "dead_at": null, "elapsed_ms": 65_000,
        "session": null, "agent": null,
    }))
    .unwrap()
}

#[test]
fn a_cost_that_is_an_estimate_is_marked() {
    let check = |estimated: bool, expect: &str| {
        let process = Process { estimated, ..process(1, 0) };
        assert_eq!(cost(&process), expect);
    };
    check(false, "$0.0123");
    check(true, "~$0.0123");
}

/// A table of these processes, drawn at once.
fn drawn(processes: &[Process], order: Order, look: &Look) -> String {
    let columns = Column::fitting(look);
    let now = "2026-11-15T14:00:00Z".parse().unwrap();
    table(&columns).draw(&rows(processes, order, &columns, now, look), look)
}

fn sample() -> Vec<Process> {
    let mut list = vec![process(1, 0), process(2, 1), process(3, 2), process(4, 1), process(15, 0)];
    list[1].paused = true;
    list[1].display = "suspended".into();
    list[1].suspend_reason = Some(SuspendReason::BudgetExceeded);
    list[0].doing = Some("shell: make -j4 41s".into());
    list[3].display = "dead".into();
    list[3].exit = serde_json::from_value(json!({ "code": 1, "reason": "max steps exceeded", "err": null })).unwrap();
    list[4].name = None;
    list[4].intent = "rewrite the whole of the documentation\nand make it \u{1b}[31mshorter than it is today".into();
    list[4].cost_usd = None;
    list[4].max_steps = None;
    list
}

#[test]
fn piped_nothing_is_cut_or_coloured() {
    let mut list = sample();
    list[4].intent = "rewrite all\nof the \u{1b}[31mdocs".into();
    let expected = "\
PID  STATE      NAME  INTENT                            BODY   STEP  TOKENS     COST  ELAPSED  AGE  ID        MODEL     DIRECTORY  DETAIL
  1  running    p1    do it                             agent  3/20    1234  $0.0123    1m05s   2h  0c9d1e77  script/x  /w         shell: make -j4 41s
  2  suspended  p2    do it                             agent  3/20    1234  $0.0123    1m05s   2h  0c9d1e77  script/x  /w         budget exceeded
  3  running    p3    do it                             agent  3/20    1234  $0.0123    1m05s   2h  0c9d1e77  script/x  /w         -
  4  dead       p4    do it                             agent  3/20    1234  $0.0123    1m05s   2h  0c9d1e77  script/x  /w         exit 1, max steps exceeded
 15  running    -     rewrite all of the <ESC>[31mdocs  agent     3    1234  unknown    1m05s   2h  0c9d1e77  script/x  /w         -
";
    assert_eq!(drawn(&list, Order::Listed, &Look { ascii: true, ..Look::plain() }), expected);
}

#[test]
fn on_a_terminal_the_table_fits_80_columns() {
    let look = Look { is_terminal: true, width: Some(80), ..Look::plain() };
    let expected = "\
PID  STATE        NAME      INTENT           STEP     COST  AGE  DETAIL
  1  running      p1        do it            3/20  $0.0123   2h  shell: mak… 41s
  2  ⏸ suspended  ├─ p2     do it            3/20  $0.0123   2h  budget exceeded
  3  running      │  └─ p3  do it            3/20  $0.0123   2h  -
  4  dead         └─ p4     do it            3/20  $0.0123   2h  exit 1, max st…
 15  running      -         rewrite the wh…     3  unknown   2h  -
";
    assert_eq!(drawn(&sample(), Order::Tree, &look), expected);
    let ascii = "\
PID  STATE          NAME      INTENT          STEP     COST  AGE  DETAIL
  1  running        p1        do it           3/20  $0.0123   2h  shell: ... 41s
  2  [P] suspended  |- p2     do it           3/20  $0.0123   2h  budget exce...
  3  running        |  `- p3  do it           3/20  $0.0123   2h  -
  4  dead           `- p4     do it           3/20  $0.0123   2h  exit 1, max...
 15  running        -         rewrite the...     3  unknown   2h  -
";
    assert_eq!(drawn(&sample(), Order::Tree, &Look { ascii: true, ..look }), ascii);
}

#[test]
fn on_a_narrow_terminal_an_unnamed_process_shows_its_intent_and_the_detail_has_room() {
    let check = |width, expected: &str| {
        let look = Look { is_terminal: true, width: Some(width), ..Look::plain() };
        assert_eq!(drawn(&sample(), Order::Tree, &look), expected);
    };
    let narrow = "\
PID  NAME            DETAIL
  1  p1              shell: make -j4 41s
  2  ├─ p2           ⏸ budget exceeded
  3  │  └─ p3        running
  4  └─ p4           exit 1, max steps …
 15  rewrite the w…  running
";
    check(40, narrow);
    let wider = "\
PID  STATE        NAME            AGE  DETAIL
  1  running      p1               2h  shell: make -j4 41s
  2  ⏸ suspended  ├─ p2            2h  budget exceeded
  3  running      │  └─ p3         2h  -
  4  dead         └─ p4            2h  exit 1, max steps ex…
 15  running      rewrite the w…   2h  -
";
    check(60, wider);
}

#[test]
fn a_cut_intent_ends_with_a_sign_and_info_shows_its_lines() {
    let look = Look { ascii: true, ..Look::plain() };
    let mut list = sample();
    list[0].intent_cut = true;
    assert!(drawn(&list, Order::Listed, &look).contains("  do it...  "));
    list[0].intent = "fix\n  the \u{1b}[31mtest\n".into();
    list[0].intent_cut = false;
    let shown = details(&list[0], &Clock::utc(), &look);
    assert!(shown.contains("\nINTENT     fix\n             the <ESC>[31mtest\nTYPE "), "{shown}");
}

#[test]
fn the_columns_follow_the_width_and_no_line_is_wider() {
    for width in [30, 40, 50, 60, 79, 80, 109, 110, 159, 160, 200] {
        let look = Look { is_terminal: true, width: Some(width), ..Look::plain() };
        let mut list = sample();
        list[0].cwd = format!("/home/someone/{}", "long/".repeat(30));
        list[0].doing = Some("shell: cargo test --workspace ".repeat(9));
        let drawn = drawn(&list, Order::Listed, &look);
        let widest = drawn.lines().map(unicode_width::UnicodeWidthStr::width).max();
        assert!(widest <= Some(width), "{width}:\n{drawn}");
        assert_eq!(drawn.contains("DIRECTORY"), width >= 160, "{width}");
        assert_eq!(drawn.contains("TOKENS"), width >= 110, "{width}");
    }
}

#[test]
fn processes_are_sorted_by_what_is_asked_for() {
    let mut list = sample();
    list[2].cost_usd = Some(Usd::from_nanos(9_000_000_000));
    list[3].tokens_in = 99_999;
    let pids = |key: SortKey| {
        let mut sorted = list.clone();
        key.sort(&mut sorted);
        sorted.iter().map(|process| process.pid.0).collect::<Vec<_>>()
    };
    assert_eq!(pids(SortKey::Cost)[0], 3);
    assert_eq!(pids(SortKey::Cost)[4], 15, "a cost that is not known comes last");
    assert_eq!(pids(SortKey::Tokens)[0], 4);
    assert_eq!(pids(SortKey::State), [4, 1, 3, 15, 2]);
    assert_eq!(pids(SortKey::Name), [1, 2, 3, 4, 15]);
}

#[test]
fn why_names_a_person_or_a_pid() {
    let ended = |why, by: Option<u32>, signal: &str| {
        let mut process = process(1, 0);
        process.why = Some(why);
        process.killed_by = by.map(Pid);
        process.status = serde_json::from_value(json!({ "kind": "killed", "signal": signal })).unwrap();
        super::why(&process).unwrap()
    };
    assert_eq!(ended(Why::User, Some(0), "SIGINT"), "you (SIGINT)");
    assert_eq!(ended(Why::User, Some(7), "SIGTERM"), "PID 7");
    assert_eq!(ended(Why::Parent, Some(3), "SIGTERM"), "PID 3");
    assert_eq!(ended(Why::Timeout, Some(0), "SIGTERM"), "Relive (timeout)");
    assert_eq!(ended(Why::DaemonStop, None, "SIGTERM"), "Relive (the daemon stopped)");
}

#[test]
fn a_tree_shows_every_process_once_for_any_parents() {
    let mut list = sample();
    list[0].ppid = Pid(4);
    list[4].ppid = Pid(99);
    let drawn = tree(&list, &Look::plain());
    let pid = |listed: &Listed<'_>| match listed {
        Listed::Process(process) => Some(process.pid.0),
        Listed::Observed(_) => None,
    };
    let mut pids: Vec<u32> = drawn.iter().filter_map(|(_, listed)| pid(listed)).collect();
    pids.sort_unstable();
    assert_eq!(pids, [1, 2, 3, 4, 15]);
}

#[test]
fn a_child_with_a_lower_pid_than_its_parent_is_below_it() {
    let list = [process(5, 9), process(9, 0), process(7, 5), process(2, 3), process(3, 2)];
    let look = Look { ascii: true, ..Look::plain() };
    let branches: Vec<(String, u32)> = tree(&list, &look)
        .into_iter()
        .filter_map(|(branch, listed)| match listed {
            Listed::Process(process) => Some((branch, process.pid.0)),
            Listed::Observed(_) => None,
        })
        .collect();
    let expect = [("", 9), ("`- ", 5), ("   `- ", 7), ("", 3), ("`- ", 2)];
    assert_eq!(branches, expect.map(|(branch, pid)| (branch.to_owned(), pid)));
}

#[test]
fn without_processes_only_the_headers_are_shown() {
    let drawn = drawn(&[], Order::Listed, &Look::plain());
    assert_eq!(
        drawn,
        "PID  STATE  NAME  INTENT  BODY  STEP  TOKENS  COST  ELAPSED  AGE  ID  MODEL  DIRECTORY  DETAIL\n"
    );
}

#[test]
fn colour_is_around_the_text_and_outside_the_width() {
    let look = Look { color: true, ..Look::plain() };
    let drawn = drawn(&[process(1, 0)], Order::Listed, &look);
    assert!(drawn.contains("  1  \u{1b}[32mrunning\u{1b}[0m  p1  "), "{drawn:?}");
}

#[test]
fn details_show_the_reason_and_leave_out_absent_fields() {
    let shown = details(&sample()[1], &Clock::utc(), &Look { ascii: true, ..Look::plain() });
    assert!(shown.contains("STATE      suspended (budget exceeded)\n"), "{shown}");
    assert!(shown.contains("TOKENS     1234 (1000 in, 234 out)\n"), "{shown}");
    assert!(!shown.contains("FORK OF") && !shown.contains("EXIT"), "{shown}");
}

#[test]
fn tokens_that_nobody_has_counted_are_marked() {
    let mut claimed = process(1, 0);
    claimed.agent = Some(serde_json::json!({"usage": "claimed"}));
    let look = Look { ascii: true, ..Look::plain() };
    let shown = details(&claimed, &Clock::utc(), &look);
    assert!(shown.contains("TOKENS     1234 (1000 in, 234 out, as the CLI claims)\n"), "{shown}");
    let listed = drawn(&[claimed], Order::Listed, &look);
    assert!(listed.contains(" ~1234 "), "{listed}");
    let mut cut = process(1, 0);
    cut.estimated = true;
    let shown = details(&cut, &Clock::utc(), &look);
    assert!(shown.contains("TOKENS     1234 (1000 in, 234 out, partly estimated)\n"), "{shown}");
    assert!(drawn(&[cut], Order::Listed, &look).contains(" ~1234 "));
}

#[test]
fn an_end_names_the_limit_that_was_reached() {
    let check = |why: &str, reason: &str, limit: Option<LimitKind>, expect: &str| {
        let mut ended = process(1, 0);
        ended.display = "dead".into();
        ended.why = serde_json::from_value(json!(why)).unwrap();
        ended.status = serde_json::from_value(json!({ "kind": "killed", "signal": "SIGTERM" })).unwrap();
        ended.exit = serde_json::from_value(json!({ "code": 2, "reason": reason, "err": null })).unwrap();
        (ended.hint, ended.reached_limit) = (limit.map(|_| "relive resume 1 --more".to_owned()), limit);
        (ended.max_steps, ended.max_tokens, ended.timeout_ms) = (Some(20), Some(1000), Some(60_000));
        assert_eq!(exit(&ended), Some((2, expect.to_owned())));
        let shown = details(&ended, &Clock::utc(), &Look::plain());
        assert!(shown.contains(&format!("EXIT       2 ({expect})\n")), "{shown}");
        assert_eq!(shown.contains("HINT       relive resume 1 "), limit.is_some(), "{shown}");
    };
    let steps = "max steps exceeded";
    check("user", steps, Some(LimitKind::MaxSteps), "max steps exceeded: --max-steps 20");
    check("budget", "budget_exceeded", Some(LimitKind::MaxTokens), "budget exceeded: --max-tokens 1000");
    check("budget", "budget_exceeded", Some(LimitKind::MaxCost), "budget exceeded: --max-cost");
    check("budget", "budget_exceeded", None, "budget exceeded: the budget of an ancestor");
    check("timeout", "timed out", Some(LimitKind::Timeout), "timed out: --timeout 1m00s");
    check("user", "interrupted", Some(LimitKind::MaxSteps), "ended by SIGTERM");
}

#[test]
fn money_is_rounded_to_a_tenth_of_a_mill() {
    let check = |nanos, text: &str| {
        let process = Process { cost_usd: Some(Usd::from_nanos(nanos)), ..process(1, 0) };
        assert_eq!(cost(&process), text);
    };
    check(0, "$0.0000");
    check(49_999, "$0.0000");
    check(50_000, "$0.0001");
    check(12_345_678_901, "$12.3457");
}

#[test]
fn a_cost_is_a_dash_before_the_first_answer_and_unknown_without_a_price() {
    let check = |cost_usd, tokens_in, text: &str| {
        assert_eq!(cost(&Process { cost_usd, tokens_in, tokens_out: 0, ..process(1, 0) }), text);
    };
    check(Some(Usd::default()), 0, "-");
    check(None, 0, "-");
    check(None, 5, "unknown");
    // A model that costs nothing.
    check(Some(Usd::default()), 5, "$0.0000");
    check(Some(Usd::from_nanos(1_000_000)), 0, "$0.0010");
}
