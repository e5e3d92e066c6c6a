//! Tables and trees, by eye.

use relive_core::{SuspendReason, Usd};
use serde_json::json;

use super::*;

/// A process with nothing special about it.
pub(crate) fn process(pid: u32, ppid: u32) -> Process {
    let uuid = format!("0198f3c1-0000-7000-8000-{pid:012}");
    serde_json::from_value(json!({
        "pid": pid, "ppid": ppid, "uuid": uuid, "parent_uuid": null, "origin_uuid": null, "origin_step": null,
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

/// A table of these processes, drawn at once.
fn drawn(processes: &[Process], order: Order, look: &Look) -> String {
    table().draw(&rows(processes, order, look), look)
}

fn sample() -> Vec<Process> {
    let mut list = vec![process(1, 0), process(2, 1), process(3, 2), process(4, 1), process(15, 0)];
    list[1].paused = true;
    list[1].display = "suspended".into();
    list[1].suspend_reason = Some(SuspendReason::BudgetExceeded);
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
PID  STATE          NAME                          BODY   STEP  TOKENS     COST  ELAPSED
  1  running        p1                            agent  3/20    1234  $0.0123    1m05s
  2  [P] suspended  p2                            agent  3/20    1234  $0.0123    1m05s
  3  running        p3                            agent  3/20    1234  $0.0123    1m05s
  4  running        p4                            agent  3/20    1234  $0.0123    1m05s
 15  running        rewrite all of the ?[31mdocs  agent     3    1234        -    1m05s
";
    assert_eq!(drawn(&list, Order::Pid, &Look { ascii: true, ..Look::plain() }), expected);
}

#[test]
fn on_a_terminal_it_fits_80_columns() {
    let look = Look { is_terminal: true, width: Some(80), ..Look::plain() };
    let expected = "\
PID  STATE        NAME                     BODY   STEP  TOKENS     COST  ELAPSED
  1  running      p1                       agent  3/20    1234  $0.0123    1m05s
  2  ⏸ suspended  ├─ p2                    agent  3/20    1234  $0.0123    1m05s
  3  running      │  └─ p3                 agent  3/20    1234  $0.0123    1m05s
  4  running      └─ p4                    agent  3/20    1234  $0.0123    1m05s
 15  running      rewrite the whole of t…  agent     3    1234        -    1m05s
";
    assert_eq!(drawn(&sample(), Order::Tree, &look), expected);
    let ascii = "\
PID  STATE          NAME                   BODY   STEP  TOKENS     COST  ELAPSED
  1  running        p1                     agent  3/20    1234  $0.0123    1m05s
  2  [P] suspended  |- p2                  agent  3/20    1234  $0.0123    1m05s
  3  running        |  `- p3               agent  3/20    1234  $0.0123    1m05s
  4  running        `- p4                  agent  3/20    1234  $0.0123    1m05s
 15  running        rewrite the whole ...  agent     3    1234        -    1m05s
";
    assert_eq!(drawn(&sample(), Order::Tree, &Look { ascii: true, ..look }), ascii);
}

#[test]
fn a_tree_shows_everyone_once_whatever_the_parents_say() {
    let mut list = sample();
    list[0].ppid = Pid(4);
    list[4].ppid = Pid(99);
    let drawn = tree(&list, &Look::plain());
    let mut pids: Vec<u32> = drawn.iter().map(|(_, process)| process.pid.0).collect();
    pids.sort_unstable();
    assert_eq!(pids, [1, 2, 3, 4, 15]);
}

#[test]
fn no_processes_is_only_the_headers() {
    let drawn = drawn(&[], Order::Pid, &Look::plain());
    assert_eq!(drawn, "PID  STATE  NAME  BODY  STEP  TOKENS  COST  ELAPSED\n");
}

#[test]
fn colour_is_around_the_text_and_outside_the_width() {
    let look = Look { color: true, ..Look::plain() };
    let drawn = drawn(&[process(1, 0)], Order::Pid, &look);
    assert!(drawn.contains("  1  \u{1b}[32mrunning\u{1b}[0m  p1  "), "{drawn:?}");
}

#[test]
fn details_name_the_reason_and_leave_out_what_is_not_there() {
    let shown = details(&sample()[1], &Look { ascii: true, ..Look::plain() });
    assert!(shown.contains("STATE      [P] suspended (budget_exceeded)\n"), "{shown}");
    assert!(shown.contains("TOKENS     1234 (1000 in, 234 out)\n"), "{shown}");
    assert!(!shown.contains("FORK OF") && !shown.contains("EXIT"), "{shown}");
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
