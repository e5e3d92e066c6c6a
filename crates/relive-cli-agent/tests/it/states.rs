//! Every state and every event, written as the table in `docs/cli-agents.md`.

use std::fmt::Write as _;

use relive_cli_agent::{
    Activity, Capabilities, Event, EventKind, Lifecycle, Line, Machine, Parser, ReportedUsage, TurnOutcome, UsageScope,
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
    EventKind::ToolStarted { id: id.into(), name: "Bash".into(), input: None, preparing: false }
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

/// Requests and answers as a dialect makes them: ids are pieces of JSON, which only a parser builds.
fn of_codex(line: &str) -> EventKind {
    let mut parser = Parser::new(Some("codex-app-server".parse().unwrap()));
    parser.read(Line::Whole(line.as_bytes())).remove(0).kind
}

pub(crate) fn approval_asked() -> EventKind {
    of_codex(r#"{"method":"item/commandExecution/requestApproval","id":1,"params":{"itemId":"a","command":"ls"}}"#)
}

fn approval_without_tool() -> EventKind {
    of_codex(r#"{"method":"item/commandExecution/requestApproval","id":1,"params":{"command":"ls"}}"#)
}

fn question() -> EventKind {
    of_codex(
        r#"{"method":"item/tool/requestUserInput","id":2,"params":{"questions":[{"id":"a","question":"which?"}]}}"#,
    )
}

/// Closes the approval.
pub(crate) fn answered() -> EventKind {
    of_codex(r#"{"method":"serverRequest/resolved","params":{"requestId":1}}"#)
}

fn question_answered() -> EventKind {
    of_codex(r#"{"method":"serverRequest/resolved","params":{"requestId":2}}"#)
}

fn capabilities() -> EventKind {
    EventKind::Capabilities(Capabilities { version: 1, load: true, resume: false, fork: false })
}

fn unsupported_request() -> EventKind {
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{"sessionId":"s"}}"#;
    let events = Parser::new(Some("acp".parse().unwrap())).read(Line::Whole(line.as_bytes()));
    events.into_iter().next_back().unwrap().kind
}

fn usage() -> EventKind {
    EventKind::Usage(ReportedUsage {
        scope: UsageScope::Turn,
        input_tokens: None,
        output_tokens: None,
        cache_read_tokens: None,
        cache_write_tokens: None,
        cost_usd: None,
    })
}

fn retry() -> EventKind {
    EventKind::Retry { attempt: None, max_attempts: None, delay_ms: None, status: None, message: "again".into() }
}

/// Defines `label` and `kinds`. The patterns are one `match`, so a new kind does not compile until it has a row here, and
/// with its row a sample.
macro_rules! rows {
    ($($pattern:pat => $label:literal, $sample:expr;)*) => {
        fn label(kind: &EventKind) -> &'static str {
            match kind { $($pattern => $label,)* }
        }

        /// One sample of every kind of event.
        fn kinds() -> Vec<(&'static str, EventKind)> {
            vec![$(($label, $sample),)*]
        }
    };
}

rows! {
    EventKind::SessionStarted { .. } => "session started",
        EventKind::SessionStarted { session_id: "s".into(), model: None };
    EventKind::Capabilities(_) => "capabilities", capabilities();
    EventKind::SessionFailed { .. } => "session failed", EventKind::SessionFailed { message: "no".into() };
    EventKind::SessionEnded { .. } => "session ended", EventKind::SessionEnded { reason: None };
    EventKind::TurnStarted { .. } => "turn started", EventKind::TurnStarted { turn_id: None };
    EventKind::Thinking { .. } => "thinking", thinking();
    EventKind::Text { .. } => "text", text();
    EventKind::UserText { .. } => "text of the user", EventKind::UserText { text: "go".into() };
    EventKind::MessageTaken { .. } => "message taken", EventKind::MessageTaken { id: "m".into() };
    EventKind::MessageDropped { .. } => "message dropped", EventKind::MessageDropped { id: "m".into() };
    EventKind::ToolStarted { .. } => "tool A started", tool_started("a");
    EventKind::ToolEnded { .. } => "tool A ended", tool_ended("a");
    EventKind::BackgroundStarted { .. } => "background command started", background_started();
    EventKind::BackgroundEnded { .. } => "background command ended", EventKind::BackgroundEnded { id: "b".into() };
    EventKind::SubagentStarted { .. } => "subagent X started",
        EventKind::SubagentStarted { id: "x".into(), name: None };
    EventKind::SubagentEnded { .. } => "subagent X ended", EventKind::SubagentEnded { id: "x".into() };
    EventKind::ApprovalAsked(_) => "approval asked", approval_asked();
    EventKind::Question { .. } => "question", question();
    EventKind::UnsupportedRequest { .. } => "unsupported request", unsupported_request();
    EventKind::Answered { .. } => "approval answered", answered();
    EventKind::Usage(_) => "usage", usage();
    EventKind::Retry { .. } => "retry", retry();
    EventKind::Quota { .. } => "quota",
        EventKind::Quota { resets_at: None, resets_in_ms: None, resets_clock: None, message: "used up".into() };
    EventKind::Warning { .. } => "warning", EventKind::Warning { message: "careful".into() };
    EventKind::Malformed { .. } => "malformed line",
        EventKind::Malformed { reason: "half".into(), excerpt: "{".into() };
    EventKind::Unknown { .. } => "unknown line", unknown();
    EventKind::Other { .. } => "other line", EventKind::Other { name: "status".into() };
    EventKind::Error { .. } => "error", error();
    EventKind::TurnEnded { .. } => "turn ended", done();
    EventKind::Idle => "no turn is open", EventKind::Idle;
}

#[test]
fn every_sample_has_the_kind_of_its_row() {
    for (row, kind) in kinds() {
        assert_eq!(label(&kind), row);
    }
}

/// The events of the table: one of every kind, and the answer to the other request.
fn samples() -> Vec<(&'static str, EventKind)> {
    let mut samples = kinds();
    samples.push(("question answered", question_answered()));
    samples
}

/// The states that react differently to some event, each with the events that lead to it.
fn situations() -> Vec<(&'static str, Machine)> {
    let of_subagent = Event { kind: approval_without_tool(), subagent: Some("x".into()) };
    let paths: [(&str, Vec<Event>); 14] = [
        ("idle", vec![done().into()]),
        ("turn open", vec![EventKind::TurnStarted { turn_id: None }.into()]),
        ("thinking", vec![thinking().into()]),
        ("tool A runs", vec![tool_started("a").into()]),
        ("tools A and B run", vec![tool_started("a").into(), tool_started("b").into()]),
        ("text while tool A runs", vec![tool_started("a").into(), text().into()]),
        ("responding", vec![text().into()]),
        ("waits for approval of A", vec![tool_started("a").into(), approval_asked().into()]),
        ("waits for approval, no turn", vec![approval_without_tool().into()]),
        ("waits for an answer to a question", vec![text().into(), question().into()]),
        ("subagent X waits", vec![text().into(), of_subagent]),
        ("background command in a turn", vec![text().into(), background_started().into()]),
        ("tool A beside a background command", vec![background_started().into(), tool_started("a").into()]),
        ("background command, no turn", vec![text().into(), background_started().into(), done().into()]),
    ];
    let mut written_turn = Machine::new(IDLE_TIMEOUT, at(0));
    written_turn.apply_input(&EventKind::TurnStarted { turn_id: None }.into(), at(0));
    let mut situations =
        vec![("spawning", Machine::new(IDLE_TIMEOUT, at(0))), ("spawning, a turn was written", written_turn)];
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

/// Describes lifecycle and activity, and the open work.
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
fn the_documented_table_of_states_matches_the_machine() {
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
fn the_documented_table_of_events_lists_every_kind() {
    let page = String::from_utf8(std::fs::read(PATH).unwrap()).unwrap();
    let (_, section) = page.split_once("\n## Events\n").unwrap();
    let (table, _) = section.split_once("\nA field without a value").unwrap();
    let first_cells = table.lines().filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
    let mut documented: Vec<String> =
        first_cells.flat_map(|cell| cell.split(", ")).map(|kind| kind.replace('`', "")).collect();
    let mut kinds: Vec<String> =
        kinds().iter().map(|(_, kind)| serde_json::to_value(kind).unwrap()["kind"].as_str().unwrap().into()).collect();
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
