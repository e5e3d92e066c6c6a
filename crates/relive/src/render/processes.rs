//! Processes as a table, as a tree, and one of them in detail.

use std::collections::{BTreeMap, HashSet};

use relive_api::{
    PendingCall, PendingQuestion, Process, Session, TreeUsage, Workspace, WorkspaceKind, cause_in_words, end_in_words,
    reason_word,
};
use relive_core::{Body, Cause, Pid, ProcessStatus, Timestamp, Usd};

mod columns;
mod observed;

use super::approval::exact;
use super::files::not_kept;
use super::parked;
use super::table::{Cell, Table};
use super::time::{Clock, elapsed};
use crate::session::output::MissingOutput;
use crate::terminal::{Look, Paint, one_line, without_controls};

pub(crate) use columns::{Column, SortKey, suspension, suspension_of, wanted_from_you};
use observed::{Listed, Observed};

/// The width of the labels of `info`.
const LABEL_WIDTH: usize = 10;

/// Shown for a cost if the price of the model is not known.
pub(crate) const COST_UNKNOWN: &str = "unknown";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Listed,
    Tree,
}

/// Returns the table of `ps` without rows.
pub(crate) fn table(columns: &[Column]) -> Table {
    let heads: Vec<_> = columns.iter().map(|column| column.head()).collect();
    let cuts: Vec<usize> = (0..columns.len()).filter(|place| columns[*place].is_cut()).collect();
    Table::cutting(&heads, &cuts)
}

/// Returns the rows of `ps`.
pub(crate) fn rows(
    processes: &[Process],
    order: Order,
    columns: &[Column],
    now: Timestamp,
    look: &Look,
) -> Vec<Vec<Cell>> {
    let placed = match order {
        Order::Listed => processes.iter().map(|process| (String::new(), Listed::Process(process))).collect(),
        Order::Tree => tree(processes, look),
    };
    let row = |(branch, listed): (String, Listed<'_>)| match listed {
        Listed::Process(process) => columns.iter().map(|column| column.cell(&branch, process, now, look)).collect(),
        Listed::Observed(subagent) => columns.iter().map(|column| subagent.cell(*column, &branch, now)).collect(),
    };
    placed.into_iter().map(row).collect()
}

/// A program takes no steps and spends no tokens.
fn of_agent(process: &Process, shown: impl FnOnce() -> String) -> String {
    match process.body {
        Body::Exec => "-".into(),
        Body::Agent | Body::Cli | Body::Compose | Body::Supervisor => shown(),
    }
}

/// Returns a name for a table.
pub(crate) fn name(name: Option<&str>) -> String {
    name.map_or("-".to_owned(), one_line)
}

fn state(process: &Process, look: &Look) -> String {
    // A script compares the word.
    let has_sign = process.paused && look.is_terminal;
    if has_sign { format!("{} {}", look.pause_sign(), process.display) } else { process.display.clone() }
}

fn state_paint(display: &str) -> Option<Paint> {
    match display {
        "running" => Some(Paint::Green),
        "ready" => Some(Paint::Cyan),
        "pausing" | "suspended" | "stalled" => Some(Paint::Yellow),
        "in_doubt" | "approval" | "question" => Some(Paint::Red),
        "zombie" | "dead" => Some(Paint::Dim),
        _ => None,
    }
}

fn body(body: Body) -> &'static str {
    match body {
        Body::Agent => "agent",
        Body::Exec => "exec",
        Body::Cli => "cli",
        Body::Compose => "compose",
        Body::Supervisor => "supervisor",
    }
}

/// Returns what a process is, in words.
fn kind(body: Body) -> &'static str {
    match body {
        Body::Agent => "agent",
        Body::Exec => "program",
        Body::Cli => "CLI agent",
        Body::Compose => "compose run",
        Body::Supervisor => "supervisor",
    }
}

fn out_of(count: impl ToString, max: Option<impl ToString>) -> String {
    match max {
        Some(max) => format!("{}/{}", count.to_string(), max.to_string()),
        None => count.to_string(),
    }
}

/// Returns the exit code and the reason of the end.
fn exit(process: &Process) -> Option<(i32, String)> {
    let exit = process.exit.as_ref()?;
    Some((super::exit::code(process, exit), one_line(&end_in_words(process)?)))
}

fn cost(process: &Process) -> String {
    spent(process.cost_usd, process.tokens_in.saturating_add(process.tokens_out), process.estimated)
}

/// Returns a number of tokens, marked if some of them are an estimate.
pub(crate) fn about(tokens: u64, estimated: bool) -> String {
    let mark = if estimated && tokens > 0 { "~" } else { "" };
    format!("{mark}{tokens}")
}

/// Returns a cost: `-` before the first answer of a model, `unknown` if the price of the model is not known. It is marked if it
/// is that of an estimate.
pub(crate) fn spent(cost: Option<Usd>, tokens: u64, estimated: bool) -> String {
    if !has_spent(cost, tokens) {
        return "-".to_owned();
    }
    let mark = if estimated { "~" } else { "" };
    cost.map_or_else(|| COST_UNKNOWN.to_owned(), |cost| format!("{mark}{}", dollars(cost)))
}

/// Returns whether a model has answered: before that, nothing is spent.
pub(crate) fn has_spent(cost: Option<Usd>, tokens: u64) -> bool {
    tokens > 0 || cost.is_some_and(|cost| cost != Usd::default())
}

pub(crate) fn dollars(cost: Usd) -> String {
    const NANOS_PER_TENTH_OF_MILL: u64 = 100_000;
    let tenths = cost.nanos().saturating_add(NANOS_PER_TENTH_OF_MILL / 2) / NANOS_PER_TENTH_OF_MILL;
    format!("${}.{:04}", tenths / 10_000, tenths % 10_000)
}

/// Returns the processes depth first, children by PID, each with the branch that leads to it. A process whose parent is
/// not listed is a root. A child may have a lower PID than its parent, if that was resumed later.
fn tree<'a>(processes: &'a [Process], look: &Look) -> Vec<(String, Listed<'a>)> {
    let (tee, corner, through, blank) =
        if look.ascii { ("|- ", "`- ", "|  ", "   ") } else { ("├─ ", "└─ ", "│  ", "   ") };
    let listed: HashSet<Pid> = processes.iter().map(|process| process.pid).collect();
    let mut children: BTreeMap<Option<Pid>, Vec<&Process>> = BTreeMap::new();
    for process in processes {
        let parent = Some(process.ppid).filter(|parent| listed.contains(parent) && *parent != process.pid);
        children.entry(parent).or_default().push(process);
    }
    for siblings in children.values_mut() {
        siblings.sort_by_key(|process| std::cmp::Reverse(process.pid));
    }
    let mut out = Vec::new();
    // A stack, so the next one is last: the branch to print, and the one that its children continue.
    let root = |root| (String::new(), String::new(), root);
    let mut open: Vec<(String, String, &Process)> = children.remove(&None).into_iter().flatten().map(root).collect();
    loop {
        let Some((branch, below, process)) = open.pop() else {
            // What is left descends from itself, as only a damaged journal can say: the first one is a root then.
            let Some(mut siblings) = children.first_entry() else { return out };
            open.extend(siblings.get_mut().pop().map(root));
            if siblings.get().is_empty() {
                siblings.remove();
            }
            continue;
        };
        let its = children.remove(&Some(process.pid)).unwrap_or_default();
        out.push((branch, Listed::Process(process)));
        let mut observed = observed::of(process).filter(Observed::is_running).peekable();
        while let Some(subagent) = observed.next() {
            let is_last = its.is_empty() && observed.peek().is_none();
            out.push((format!("{below}{}", if is_last { corner } else { tee }), Listed::Observed(subagent)));
        }
        for (place, child) in its.into_iter().enumerate() {
            let (last, go_on) = if place == 0 { (corner, blank) } else { (tee, through) };
            open.push((format!("{below}{last}"), format!("{below}{go_on}"), child));
        }
    }
}

/// Returns the output of `info`.
pub(crate) fn details(process: &Process, clock: &Clock, look: &Look) -> String {
    let mut rows: Vec<(&str, String)> = vec![
        ("PID", process.pid.to_string()),
        ("UUID", process.uuid.to_string()),
        ("ID", one_line(&process.short)),
        ("STATE", state_in_words(process, clock, look)),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("HINT", process.hint.as_deref().map(one_line));
    add("NAME", process.name.as_deref().map(one_line));
    add("INTENT", Some(intent(process, look)));
    add("TYPE", Some(kind(process.body).into()));
    add("MODEL", process.model.as_deref().map(one_line));
    for file in &process.instructions {
        let cut = if file.cut { ", only the beginning was read" } else { "" };
        add("PROMPT", Some(format!("{} ({}{cut})", one_line(&file.path), super::size::bytes(file.bytes))));
    }
    add("DIRECTORY", Some(one_line(&process.cwd)));
    add("WORKSPACE", process.workspace.as_ref().map(workspace));
    add("NOT KEPT", process.workspace.as_ref().and_then(|files| not_kept(&files.not_kept, &files.skipped)));
    add("DOING", process.doing.as_deref().map(one_line));
    for subagent in observed::of(process) {
        add("SUBAGENT", Some(subagent.in_words(clock)));
    }
    add("PARENT", Some(parent(process)));
    add("FORK OF", process.origin_uuid.map(|uuid| format!("{uuid} at step {}", process.origin_step.unwrap_or(0))));
    add("SUCCESSOR", process.successor_pid.map(|pid| format!("PID {pid}")));
    add("EXIT", exit(process).map(|(code, reason)| format!("{code} ({reason})")));
    add("WHY", why(process));
    match process.body {
        Body::Exec => {}
        Body::Agent | Body::Cli | Body::Compose | Body::Supervisor => {
            add("STEP", Some(out_of(process.step, process.max_steps)));
            add("TOKENS", Some(tokens(process)));
            add("COST", Some(cost(process)));
        }
    }
    add("ELAPSED", Some(elapsed(process.elapsed_ms)));
    add("CREATED", Some(clock.second(process.created_at)));
    let paused_by = process.paused_by.as_deref().map(|by| format!(" by {}", one_line(by))).unwrap_or_default();
    add("PAUSED", process.paused_at.map(|at| format!("{}{paused_by}", clock.second(at))));
    add("THEN", process.pause_kept.then(|| "paused, until it is resumed".to_owned()));
    add("RESUMED", process.resumed_by.as_deref().map(|by| format!("by {}", one_line(by))));
    add("ENDED", process.dead_at.map(|at| clock.second(at)));
    add("APPROVAL", process.approval.as_ref().map(|asked| decision(process, asked)));
    let question = |asked: &PendingQuestion| format!("{} (answer: relive resolve {})", exact(&asked.text), process.pid);
    add("QUESTION", process.question.as_ref().map(question));
    add("IN DOUBT", process.in_doubt.first().map(|open| decision(process, open)));
    add("TREE", process.tree.map(tree_usage));
    let below = process.suspended_below;
    add("BELOW", (below > 0).then(|| format!("{below} suspended")));
    for below in &process.suspended {
        let name = below.name.as_deref().map(|name| format!(" ({})", one_line(name))).unwrap_or_default();
        add("", Some(format!("PID {}{name}: {}", below.pid, reason_word(below.reason))));
    }
    add("BLOCKED", (!process.blocked_signals.is_empty()).then(|| process.blocked_signals.join(", ")));
    add("HANDLED", (!process.handled_signals.is_empty()).then(|| process.handled_signals.join(", ")));
    add("PENDING", (!process.pending_signals.is_empty()).then(|| process.pending_signals.join(", ")));
    add("RESUMABLE", Some(if process.resumable { "yes" } else { "no" }.into()));
    let waits_for_program = process.body == Body::Cli && process.session.is_none();
    if process.body == Body::Agent || waits_for_program {
        rows.push(("ISOLATION", process.isolation.unwrap_or_default().name().to_owned()));
    }
    rows.extend(process.network.as_ref().map(|network| ("NETWORK", one_line(&network.to_string()))));
    if let Some(session) = &process.session {
        rows.extend(session_rows(session));
    }
    let line = |(name, value): (&str, String)| {
        format!("{} {value}\n", look.paint(Paint::Bold, &format!("{name:<LABEL_WIDTH$}")))
    };
    rows.into_iter().map(line).collect()
}

/// Returns the whole intent, its lines below each other.
fn intent(process: &Process, look: &Look) -> String {
    let text = without_controls(process.intent.trim_end());
    let lines = text.lines().map(str::trim_end).collect::<Vec<_>>().join(&format!("\n{}", " ".repeat(LABEL_WIDTH + 1)));
    lines + if process.intent_cut { look.ellipsis() } else { "" }
}

/// `a copy of its own; every change is recorded; 3 files changed`.
fn workspace(workspace: &Workspace) -> String {
    let place = match workspace.kind {
        WorkspaceKind::Own => "a copy of its own",
        WorkspaceKind::Here => "its directory",
    };
    let grade = workspace.grade.as_deref().map(|grade| match grade {
        _ if workspace.all_ignored => "all files here are ignored, so no change is recorded".to_owned(),
        // Snapshots are off now, or the last one failed.
        _ if workspace.unknown_now => "changes are not recorded now: relive steps says why".to_owned(),
        "exact" if workspace.unknown_steps => "the files of some steps were not recorded: relive steps".to_owned(),
        "exact" => "every change is recorded".to_owned(),
        "partial" => "some files are not recorded".to_owned(),
        "moving" => "files changed while they were recorded".to_owned(),
        other => one_line(other),
    });
    let changed = workspace.changed.map(|changed| format!("{} changed", super::files::count(changed)));
    [Some(place.to_owned()), grade, changed].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Returns OS pids as a list.
pub(crate) fn pids(pids: &[i32]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the rows of `info` about a session: its stage, and the isolation and limits that are really in force.
fn session_rows(session: &Session) -> Vec<(&'static str, String)> {
    let mut rows = vec![("SESSION", in_words(session))];
    rows.extend(session.host_pid.map(|pid| ("HOST PID", pid.to_string())));
    let inner = session.child_pid.filter(|pid| Some(*pid) != session.host_pid);
    rows.extend(inner.map(|pid| ("OWN PID", pid.to_string())));
    rows.extend(session.init_pid.map(|pid| ("INIT PID", pid.to_string())));
    rows.push(("FROZEN", if session.frozen { "yes" } else { "no" }.into()));
    rows.push(("CONTROL", control(session)));
    rows.push(("ISOLATION", session.isolation.clone()));
    rows.push(("NETWORK", one_line(&session.network)));
    if !session.namespaces.is_empty() {
        rows.push(("NAMESPACES", session.namespaces.join(" ")));
    }
    let limits = [
        session.memory.map(|bytes| format!("memory {}", super::size::bytes(bytes))),
        session.pids.map(|count| format!("pids {count}")),
        session.cpu.map(|cores| format!("cpu {}", f64::from(cores) / 1000.0)),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if !limits.is_empty() {
        rows.push(("LIMITS", limits.join(", ")));
    }
    if !session.degraded.is_empty() {
        rows.push(("DEGRADED", one_line(&session.degraded.join("; "))));
    }
    let dropped = session.output_dropped;
    let missing = [
        (dropped > 0)
            .then(|| format!("about {} at the beginning were dropped to make room", super::size::bytes(dropped))),
        MissingOutput::of_session(session).map(|missing| missing.in_row().to_owned()),
    ];
    let missing: Vec<String> = missing.into_iter().flatten().collect();
    if !missing.is_empty() {
        rows.push(("OUTPUT", missing.join("; ")));
    }
    if session.oom_kills > 0 {
        rows.push(("MEMORY", killed_for_memory(session.oom_kills)));
    }
    if !session.left.is_empty() {
        rows.push(("LEFT", format!("OS pids that could not be ended: {}", pids(&session.left))));
    }
    rows.push(("FILES", one_line(&session.folder)));
    rows
}

/// Returns the stage of a session, and what is special about it: `running, with a terminal of its own`.
fn in_words(session: &Session) -> String {
    let stage = match session.stage.as_str() {
        "starting" | "spawned" => "starting",
        "ready" => "waits at its gate",
        "signaled" => "ended by a signal",
        "aborted" => "aborted at its gate",
        "errored" => "the program could not be started",
        stage => stage,
    };
    let terminal = session.pty.then(|| "with a terminal of its own".to_owned());
    let place = (session.mode == "enter").then(|| "entered the session of another program".to_owned());
    [Some(one_line(stage)), place, terminal].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns by what its processes are found, paused and killed: one word if that is the kernel's own way.
fn control(session: &Session) -> String {
    match [&session.tree, &session.pause, &session.kill].map(String::as_str) {
        ["cgroup2", "cgroup2-freeze", "cgroup-kill"] => "cgroup v2".to_owned(),
        [tree, pause, kill] => format!("tree {tree}, pause {pause}, kill {kill}"),
    }
}

/// Says how many processes the kernel killed because of memory.
pub(crate) fn killed_for_memory(count: u64) -> String {
    match count {
        1 => "the kernel killed one of its processes: out of memory".to_owned(),
        count => format!("the kernel killed {count} of its processes: out of memory"),
    }
}

fn state_in_words(process: &Process, clock: &Clock, look: &Look) -> String {
    let mut text = state(process, look);
    if let Some(reason) = process.suspend_reason {
        text = format!("{text} ({})", suspension_of(process, reason));
    }
    if let Some(moment) = process.resume_at {
        text = format!("{text} until {}", clock.second(moment));
    }
    if let Some(signal) = process.ending {
        text = format!("{text}, ending by {signal}");
    }
    text
}

fn decision(process: &Process, call: &PendingCall) -> String {
    format!("{} (answer: relive resolve {})", parked::call(call), process.pid)
}

fn tree_usage(tree: TreeUsage) -> String {
    let tokens = tree.tokens_in.saturating_add(tree.tokens_out);
    let shown = about(tokens, tree.estimated);
    format!("{} processes, {shown} tokens, cost {}", tree.processes, spent(tree.cost_usd, tokens, tree.estimated))
}

fn parent(process: &Process) -> String {
    match process.parent_uuid {
        Some(uuid) => format!("PID {} ({uuid})", process.ppid),
        None if process.ppid == Pid::RUNTIME => "none".to_owned(),
        None => format!("PID {}", process.ppid),
    }
}

/// Returns who ended it: `you (SIGINT)`, `PID 3`, `Relive (timeout)`. `info` has it with names, from the daemon.
fn why(process: &Process) -> Option<String> {
    if let Some(by) = &process.ended_by {
        return Some(one_line(by));
    }
    let Some(why) = process.why else { return exited_after(process) };
    let root = process.killed_from.filter(|pid| *pid != process.pid);
    let cause = Cause { why, by: process.killed_by.unwrap_or(Pid::RUNTIME), root };
    let signal = match &process.status {
        Some(ProcessStatus::Killed { signal }) => Some(signal.name()),
        Some(_) | None => None,
    };
    let named = |pid: Pid| format!("PID {pid}");
    Some(cause_in_words(cause, signal.as_deref(), &named(cause.by), &named(root.unwrap_or(Pid::RUNTIME))))
}

/// Says which signal somebody sent to a program before it exited by itself, where a daemon of an earlier version does not.
fn exited_after(process: &Process) -> Option<String> {
    let sent = process.session.as_ref()?.last_signal.as_ref()?;
    Some(one_line(&sent.in_words()))
}

fn tokens(process: &Process) -> String {
    let sum = process.tokens_in.saturating_add(process.tokens_out);
    let how = match (is_claimed(process), process.estimated) {
        (true, _) => ", as the CLI claims",
        (false, true) => ", partly estimated",
        (false, false) => "",
    };
    format!("{} ({} in, {} out{how})", out_of(sum, process.max_tokens), process.tokens_in, process.tokens_out)
}

/// Tells whether nobody has counted the tokens of a process: they are what its CLI says.
pub(crate) fn is_claimed(process: &Process) -> bool {
    process.agent.as_ref().is_some_and(|agent| agent["usage"] == "claimed")
}

#[cfg(test)]
pub(crate) mod tests;
