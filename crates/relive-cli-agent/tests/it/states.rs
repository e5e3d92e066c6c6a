//! Every state and every event: the table in `docs/cli-agents.md`.

use std::fmt::Write as _;

use relive_cli_agent::{
    Activity, ApprovalRequest, Event, EventKind, Lifecycle, Machine, Parser, TurnOutcome, Usage, UsageScope,
};

use crate::support::{IDLE_TIMEOUT, at, word};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli-agents.md");
const BEGIN: &str =
    "<!-- The table of states, written by a test: RELIVE_BLESS=1 cargo test -p relive-cli-agent states -->\n";
const END: &str = "<!-- The end of the table of states -->\n";

pub(crate) fn thinking() -> EventKind {
    EventKind::Thinking { text: "hmm".into(), delta: true }
}

pub(crate) fn text() -> EventKind {
    EventKind::Text { text: "hi".into(), delta: true }
}

pub(crate) fn tool_started(id: &str) -> EventKind {
    EventKind::ToolStarted { id: id.into(), name: "Bash".into(), input: None }
}

pub(crate) fn tool_ended(id: &str) -> EventKind {
    EventKind::ToolEnded { id: id.into(), failed: false }
}

pub(crate) fn done() -> EventKind {
    EventKind::TurnEnded { outcome: TurnOutcome::Completed, message: None }
}

pub(crate) fn error() -> EventKind {
    EventKind::Error { message: "no".into() }
}

pub(crate) fn unknown() -> EventKind {
    EventKind::Unknown { name: "new".into() }
}

pub(crate) fn background_started() -> EventKind {
    EventKind::BackgroundStarted { id: "b".into(), description: None }
}

/// A request as a dialect makes it: ids are pieces of JSON, which only a parser builds.
fn requests() -> (ApprovalRequest, EventKind) {
    let lines = [
        r#"{"method":"item/commandExecution/requestApproval","id":1,"params":{"itemId":"a","command":"ls"}}"#,
        r#"{"method":"serverRequest/resolved","params":{"requestId":1}}"#,
    ];
    let mut parser = Parser::new(Some("codex-app-server".parse().unwrap()));
    let mut kinds =
        lines.map(|line| parser.read(relive_cli_agent::Line::Whole(line.as_bytes())).remove(0).kind).into_iter();
    let (Some(EventKind::ApprovalAsked(request)), Some(answered)) = (kinds.next(), kinds.next()) else {
        unreachable!("codex asks and resolves");
    };
    (request, answered)
}

pub(crate) fn approval_asked() -> EventKind {
    EventKind::ApprovalAsked(requests().0)
}

pub(crate) fn answered() -> EventKind {
    requests().1
}

/// One sample of every kind of event. A new kind does not compile until it is here.
fn samples() -> Vec<(&'static str, EventKind)> {
    let usage = Usage {
        scope: UsageScope::Turn,
        input_tokens: None,
        output_tokens: None,
        cache_read_tokens: None,
        cache_write_tokens: None,
        cost_usd: None,
    };
    let request_id = requests().0.request_id;
    let samples = vec![
        EventKind::SessionStarted { session_id: "s".into(), model: None },
        EventKind::TurnStarted { turn_id: None },
        thinking(),
        text(),
        EventKind::UserText { text: "go".into() },
        tool_started("a"),
        tool_ended("a"),
        background_started(),
        EventKind::BackgroundEnded { id: "b".into() },
        EventKind::SubagentStarted { id: "x".into(), name: None },
        EventKind::SubagentEnded { id: "x".into() },
        approval_asked(),
        EventKind::Question { request_id, tool_id: None, text: "which?".into() },
        answered(),
        EventKind::Usage(usage),
        EventKind::Retry { attempt: None, max_attempts: None, delay_ms: None, status: None, message: "again".into() },
        EventKind::Quota { resets_at: None, resets_in_ms: None, message: "used up".into() },
        EventKind::Warning { message: "careful".into() },
        EventKind::Malformed { reason: "half".into(), excerpt: "{".into() },
        unknown(),
        EventKind::Other { name: "status".into() },
        error(),
        done(),
    ];
    samples.into_iter().map(|kind| (label(&kind), kind)).collect()
}

fn label(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::SessionStarted { .. } => "session started",
        EventKind::TurnStarted { .. } => "turn started",
        EventKind::TurnEnded { .. } => "turn ended",
        EventKind::Thinking { .. } => "thinking",
        EventKind::Text { .. } => "text",
        EventKind::UserText { .. } => "text of the user",
        EventKind::ToolStarted { .. } => "tool A started",
        EventKind::ToolEnded { .. } => "tool A ended",
        EventKind::BackgroundStarted { .. } => "background command started",
        EventKind::BackgroundEnded { .. } => "background command ended",
        EventKind::SubagentStarted { .. } => "subagent X started",
        EventKind::SubagentEnded { .. } => "subagent X ended",
        EventKind::ApprovalAsked(_) => "approval asked",
        EventKind::Question { .. } => "question",
        EventKind::Answered { .. } => "answered",
        EventKind::Usage(_) => "usage",
        EventKind::Retry { .. } => "retry",
        EventKind::Quota { .. } => "quota",
        EventKind::Warning { .. } => "warning",
        EventKind::Error { .. } => "error",
        EventKind::Malformed { .. } => "malformed line",
        EventKind::Unknown { .. } => "unknown line",
        EventKind::Other { .. } => "other line",
    }
}

/// Every state that the machine can be in, with the events that lead to it.
fn situations() -> Vec<(&'static str, Machine)> {
    let without_tool = || EventKind::ApprovalAsked(ApprovalRequest { tool_id: None, ..requests().0 });
    let of_subagent = Event { kind: without_tool(), subagent: Some("x".into()) };
    let paths: [(&str, Vec<Event>); 11] = [
        ("idle", vec![done().into()]),
        ("turn open", vec![EventKind::TurnStarted { turn_id: None }.into()]),
        ("thinking", vec![thinking().into()]),
        ("tool A runs", vec![tool_started("a").into()]),
        ("tools A and B run", vec![tool_started("a").into(), tool_started("b").into()]),
        ("responding", vec![text().into()]),
        ("waits for approval of A", vec![tool_started("a").into(), approval_asked().into()]),
        ("waits, no turn", vec![without_tool().into()]),
        ("subagent X waits", vec![text().into(), of_subagent]),
        ("background command in a turn", vec![text().into(), background_started().into()]),
        ("background command, no turn", vec![text().into(), background_started().into(), done().into()]),
    ];
    let mut situations = vec![("spawning", Machine::new(IDLE_TIMEOUT, at(0)))];
    for (name, path) in paths {
        let mut machine = Machine::new(IDLE_TIMEOUT, at(0));
        path.iter().for_each(|event| machine.apply(event, at(0)));
        situations.push((name, machine));
    }
    let mut killed = Machine::new(IDLE_TIMEOUT, at(0));
    killed.mark_killed();
    situations.push(("killed", killed));
    situations
}

type Mark = (&'static str, fn(&mut Machine));

const MARKS: [Mark; 3] = [
    ("`mark_idle`", |machine| machine.mark_idle()),
    ("`mark_killed`", |machine| machine.mark_killed()),
    ("`mark_spawning`", |machine| machine.mark_spawning(at(9))),
];

/// Lifecycle and activity, and what keeps the agent from being idle.
fn describe(machine: &Machine) -> String {
    let mut text = format!("{} {}", word(machine.lifecycle()), word(machine.activity()));
    let mut open = Vec::new();
    if machine.is_turn_open() {
        open.push("turn".to_owned());
    }
    if machine.open_tools() > 0 {
        open.push(format!("{} tools", machine.open_tools()).replace("1 tools", "1 tool"));
    }
    if machine.background_commands() > 0 {
        open.push("background".into());
    }
    open.extend(machine.waiting().map(word));
    if !open.is_empty() {
        write!(text, " ({})", open.join(", ")).unwrap();
    }
    text
}

fn after(machine: &Machine, event: &Event) -> Machine {
    let mut machine = machine.clone();
    machine.apply(event, at(9));
    machine
}

fn table() -> String {
    let mut text = String::new();
    for (name, machine) in situations() {
        write!(text, "\n### {name}: {}\n\n| event | becomes |\n|---|---|\n", describe(&machine)).unwrap();
        let mut unchanged = Vec::new();
        for (label, kind) in samples() {
            let machine_after = after(&machine, &kind.into());
            if describe(&machine_after) == describe(&machine) {
                unchanged.push(label);
            } else {
                writeln!(text, "| {label} | {} |", describe(&machine_after)).unwrap();
            }
        }
        for (label, mark) in MARKS {
            let mut marked = machine.clone();
            mark(&mut marked);
            if describe(&marked) == describe(&machine) {
                unchanged.push(label);
            } else {
                writeln!(text, "| {label} | {} |", describe(&marked)).unwrap();
            }
        }
        writeln!(text, "| {} | unchanged |", unchanged.join(", ")).unwrap();
    }
    text
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test reads the page, and writes it when it is told to")]
fn the_table_of_states_is_what_the_machine_does() {
    let page = String::from_utf8(std::fs::read(PATH).unwrap()).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, behind) = rest.split_once(END).unwrap();
    let expected = format!("{before}{BEGIN}{}\n{END}{behind}", table());
    if std::env::var("RELIVE_BLESS").is_ok() {
        std::fs::write(PATH, &expected).unwrap();
        return;
    }
    assert!(page == expected, "docs/cli-agents.md is stale: run RELIVE_BLESS=1 cargo test -p relive-cli-agent states");
}

/// The table of events in the same page has a row for every kind, and no other.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test reads the page")]
fn the_table_of_events_has_every_kind() {
    let page = String::from_utf8(std::fs::read(PATH).unwrap()).unwrap();
    let (_, section) = page.split_once("\n## Events\n").unwrap();
    let (table, _) = section.split_once("\nA field without a value").unwrap();
    let first_cells = table.lines().filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
    let mut documented: Vec<String> =
        first_cells.flat_map(|cell| cell.split(", ")).map(|kind| kind.replace('`', "")).collect();
    let mut kinds: Vec<String> = samples()
        .iter()
        .map(|(_, kind)| serde_json::to_value(kind).unwrap()["kind"].as_str().unwrap().into())
        .collect();
    documented.sort();
    kinds.sort();
    assert_eq!(documented, kinds);
}

/// The rules of every pair, which the table cannot show at a glance.
#[test]
fn every_pair_of_state_and_event_keeps_the_rules() {
    for (name, before) in situations() {
        for (label, kind) in samples() {
            let machine = after(&before, &kind.clone().into());
            let pair = format!("{name}, {label}");
            if before.lifecycle() == Lifecycle::Killed {
                assert_eq!(machine.lifecycle(), Lifecycle::Killed, "{pair}");
                assert_eq!(machine.last_active(), at(0), "{pair}");
                continue;
            }
            assert_eq!(machine.last_active(), at(9), "{pair}");
            let is_junk = matches!(kind, EventKind::Malformed { .. } | EventKind::Unknown { .. });
            let stays_spawning = before.lifecycle() == Lifecycle::Spawning && is_junk;
            assert_eq!(machine.lifecycle() == Lifecycle::Spawning, stays_spawning, "{pair}");
            assert_ne!(machine.lifecycle(), Lifecycle::Killed, "{pair}");
            let is_idle = machine.lifecycle() == Lifecycle::Idle;
            assert_eq!(machine.idle_kill_at().is_some(), is_idle, "{pair}");
            if is_idle {
                assert_eq!(machine.activity(), Activity::Idle, "{pair}");
                let open =
                    (machine.is_turn_open(), machine.open_tools(), machine.background_commands(), machine.waiting());
                assert_eq!(open, (false, 0, 0, None), "{pair}");
            }
            let by_subagent = Event { kind, subagent: Some("x".into()) };
            let expected = if before.lifecycle() == Lifecycle::Spawning { Activity::Idle } else { before.activity() };
            let moves_anyway = ["background command started", "background command ended"].contains(&label);
            assert!(moves_anyway || after(&before, &by_subagent).activity() == expected, "{pair}, of a subagent");
        }
    }
}
