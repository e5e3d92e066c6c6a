//! Snapshots of tables, JSON and errors, so that a change of their words is seen and read.
//!
//! After a change: `INSTA_UPDATE=always cargo test -p relive --test it snapshots`, then read the diff as prose.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::fake::{Fake, Reply, Request};
use crate::support::{Place, process};
use crate::terminal::shown_on_a_terminal;

const COLUMNS: [u16; 2] = [80, 200];
const MINUTES: u64 = 60;
const HOURS: u64 = 60 * MINUTES;
const DAYS: u64 = 24 * HOURS;

pub(crate) fn check(name: &str, text: &str) {
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

/// Compares what a command shows on a narrow and on a wide terminal, both of which its lines have to fit.
pub(crate) fn check_table(name: &str, place: &Place, args: &[&str]) {
    for columns in COLUMNS {
        let shown = shown_on_a_terminal(place.command(args), columns);
        let widest = shown.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= usize::from(columns), "{name}: {widest} columns on a terminal with {columns}:\n{shown}");
    }
    check_widths(name, place, args);
}

pub(crate) fn check_widths(name: &str, place: &Place, args: &[&str]) {
    let mut text = String::new();
    for columns in COLUMNS {
        let mut command = place.command(args);
        command.env("TZ", "UTC");
        let shown = shown_on_a_terminal(command, columns);
        writeln!(text, "### relive {}, {columns} columns\n\n{shown}", args.join(" ")).unwrap();
    }
    check(name, &text);
}

/// Returns a time that was so many seconds ago, in the middle of the unit that is shown.
fn ago(seconds: u64) -> Value {
    let at = SystemTime::now() - Duration::from_secs(seconds);
    let at = i64::try_from(at.duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    json!(jiff::Timestamp::from_second(at).unwrap())
}

pub(crate) fn with(mut process: Value, fields: &Value) -> Value {
    process.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    process
}

/// One process of each kind that people see.
fn several() -> Vec<Value> {
    let long = "rewrite the whole documentation, and make it shorter, clearer and more correct than it is today";
    let suspended = json!({ "state": "running", "paused": true, "display": "suspended" });
    vec![
        with(
            process(1, 0),
            &json!({ "name": null, "intent": long, "doing": "asking the model 12s",
            "cost_usd": 1.234_5, "tokens_in": 123_456, "created_at": ago(30 * MINUTES) }),
        ),
        with(
            process(2, 1),
            &json!({ "doing": "shell: cargo test --workspace --all-features 41s",
            "created_at": ago(25 * MINUTES) }),
        ),
        with(
            with(process(3, 1), &suspended),
            &json!({ "suspend_reason": "approval", "display": "approval",
            "created_at": ago(20 * MINUTES) }),
        ),
        with(
            with(process(4, 0), &suspended),
            &json!({ "suspend_reason": "in_doubt", "display": "in_doubt",
            "created_at": ago(150 * MINUTES) }),
        ),
        with(with(process(5, 0), &suspended), &json!({ "suspend_reason": "user", "created_at": ago(36 * HOURS) })),
        with(
            process(6, 0),
            &json!({ "name": "server", "body": "exec", "model": null, "step": 0, "max_steps": null,
            "tokens_in": 0, "tokens_out": 0, "created_at": ago(60 * HOURS) }),
        ),
        with(
            process(7, 0),
            &json!({ "state": "dead", "display": "dead", "dead_at": ago(2 * DAYS),
            "created_at": ago(60 * HOURS), "status": { "kind": "exited", "code": 1 },
            "exit": { "code": 1, "reason": "max steps exceeded", "err": null } }),
        ),
    ]
}

fn listing(place: &Place) -> Fake {
    place.daemon(|_, reply| reply.json(&json!({ "processes": several() })))
}

#[test]
fn ps_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = listing(&place);
    check_table("ps", &place, &["ps", "-a"]);
    check_table("ps-tree", &place, &["ps", "-a", "--tree"]);
}

#[test]
fn list_resumable_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|_, reply| {
        let intent = "compare the two parsers and write down every difference that a user can notice";
        let uuid = |pid: u32| json!({ "uuid": format!("0198f3c1-0000-7000-8000-0000000000a{pid}") });
        let suspended = |pid, reason: &str| {
            let paused = json!({ "intent": intent, "state": "running", "paused": true, "display": "suspended",
                "suspend_reason": reason, "paused_at": ago(90 * MINUTES), "resumable": true });
            with(with(process(pid, 0), &paused), &uuid(pid))
        };
        let ended = json!({ "intent": intent, "name": null, "state": "dead", "display": "dead",
            "dead_at": ago(90 * MINUTES), "resumable": true, "status": { "kind": "exited", "code": 1 }, "max_steps": 20,
            "exit": { "code": 1, "reason": "max steps exceeded", "err": null }, "reached_limit": "max_steps" });
        let reached = json!({ "max_steps": 3, "reached_limit": "max_steps" });
        let quota = json!({ "resume_at": "2026-11-15T22:00:00Z" });
        reply.json(&json!({ "processes": [suspended(1, "user"), with(with(process(2, 0), &ended), &uuid(2)), with(process(3, 0), &json!({ "resumable": false })),
            with(suspended(4, "budget_exceeded"), &reached), with(suspended(5, "quota"), &quota)] }));
    });
    check_table("list-resumable", &place, &["list-resumable"]);
}

#[test]
fn gc_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|request, reply| {
        if !request.names("gc") {
            let ended = json!({ "uuid": "0198f3c1-0000-7000-8000-0000000000a1", "display": "dead", "state": "dead",
                "dead_at": "2026-01-01T00:00:00Z" });
            return reply.json(&json!({ "processes": [with(process(7, 0), &ended)] }));
        }
        let one = |pid: u32, reason: &str| {
            json!({ "uuid": format!("0198f3c1-0000-7000-8000-0000000000a{pid}"), "dead_at": "2026-01-01T00:00:00Z",
                "bytes": 1_234_567, "reason": reason })
        };
        reply.json(&json!({ "collected": false, "candidates": [one(1, "older than 30 days"),
            one(2, "more than 500 entries")], "removed": [], "freed_bytes": 0, "warnings": [] }));
    });
    check_table("gc", &place, &["gc", "--dry-run"]);
}

#[test]
fn usage_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|_, reply| {
        let row = |day: &str, model: &str, cost: Value| {
            json!({ "day": day, "model": model, "cwd": "/home/someone/src/a-rather-long-name-of-a-project",
                "tokens_in": 1_234_567, "tokens_out": 8_910, "cost_usd": cost, "processes": 12 })
        };
        reply.json(&json!({ "rows": [row("2026-11-15", "anthropic/claude-opus", json!(12.5)),
            row("2026-11-16", "ollama/qwen3", Value::Null)] }));
    });
    check_table("usage", &place, &["usage"]);
}

/// Answers about one process; its journal has two steps.
fn one_process(request: &Request, reply: Reply) {
    if !request.names("journal?") {
        let ended = json!({ "state": "dead", "display": "dead", "status": { "kind": "exited", "code": 1 },
            "dead_at": "2026-11-15T12:05:00Z", "exit": { "code": 1, "reason": "max steps exceeded", "err": null },
            "started_at": "2026-11-15T12:00:01Z", "cost_usd": 0.5,
            "tree": { "processes": 3, "tokens_in": 100, "tokens_out": 20, "cost_usd": 0.75 },
            "intent": "compare the two parsers, and write down every difference that a user of either can notice" });
        return reply.json(&with(process(5, 1), &ended));
    }
    let call = json!({ "id": "c", "name": "shell", "args": { "command": "cargo test" } });
    let usage = json!({ "tokens_in": 1234, "tokens_out": 56 });
    let text = "I run the tests first, so that I know which of them fail, and then look at the parser.";
    reply
        .events()
        .send("1.3", "model_ended", &json!({ "text": text, "calls": [call], "usage": usage }))
        .send("1.4", "model_ended", &json!({ "text": "Done.", "step": 2, "calls": [], "usage": usage }))
        .end();
}

#[test]
fn info_and_steps_read_as_in_their_snapshots() {
    let place = Place::new();
    let _daemon = place.daemon(one_process);
    check_widths("info", &place, &["info", "5"]);
    check_table("steps", &place, &["steps", "5", "--utc"]);
}

#[test]
fn info_has_local_times_unless_asked_for_utc() {
    let place = Place::new();
    let _daemon = place.daemon(one_process);
    let created = |args: &[&str]| {
        let output = place.command(args).env("TZ", "Asia/Kolkata").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find_map(|line| line.strip_prefix("CREATED    ")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    // A machine without the data of time zones has only UTC.
    let local = created(&["info", "5"]);
    assert!(local == "2026-11-15 17:30:00 +05:30" || !std::path::Path::new("/usr/share/zoneinfo").exists(), "{local}");
    assert_eq!(created(&["info", "--utc", "5"]), "2026-11-15 12:00:00Z");
}

#[test]
fn json_has_the_fields_of_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|request, reply| {
        if request.names("processes?") {
            reply.json(&json!({ "processes": [process(5, 1)] }))
        } else {
            one_process(request, reply)
        }
    });
    let pretty = |args: &[&str]| serde_json::to_string_pretty(&place.relive(args).exits(0).json()).unwrap();
    check("ps-json", &pretty(&["ps", "--json"]));
    check("info-json", &pretty(&["info", "5", "--json"]));
}

/// Describes how each of these commands fails.
fn failures(place: &Place, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in commands {
        let ran = place.relive(args);
        let said = (ran.stdout + &ran.stderr).replace(place.dir.path().to_str().unwrap(), "[DIR]");
        let quoted = args.iter().map(|arg| if arg.trim().is_empty() { format!("'{arg}'") } else { (*arg).to_owned() });
        let typed = quoted.collect::<Vec<_>>().join(" ");
        writeln!(text, "$ relive {typed}\n{said}exit code {}\n", ran.code.unwrap()).unwrap();
    }
    text
}

#[test]
fn errors_without_a_daemon_read_as_in_their_snapshot() {
    let place = Place::new();
    let text = failures(
        &place,
        &[
            &["pss"],
            &["ps", "--tre"],
            &["ps", "--state", "sleeping"],
            &["info"],
            &["info", "5"],
            &["info", "5", "--json"],
            &["kill", "-s", "TREM", "5"],
            &["kill", "-s", "33", "5"],
            &["kill", "-HPU", "5"],
            &["kill", "-FOO", "5"],
            &["wait", "5", "--timeout", "10"],
            &["resume", "--from-step", "3", "fixer"],
            &["resume", "--fork", "--from-step", "-1", "fixer"],
            &["resume", "--name", "other", "fixer"],
            &["resume", "--name", "other", "--from-step", "3", "fixer"],
            &["resolve", "5", "--always"],
            &["run", " "],
            &["run", "--max-cost", "cheap", "x"],
            &["run", "--ask", "write", "--deny", "write", "x"],
            &["run", "--allow", "", "x"],
            &["exec", "--memory", "much", "--", "true"],
            &["exec", "-t", "--", "true"],
            &["exec", "--json", "--", "true"],
            &["logs", "--since", "yesterday", "5"],
            &["logs", "--since", "10m ago", "5"],
            &["config", "edit"],
            &["self"],
            &["daemon", "status"],
        ],
    );
    check("errors-offline", &text);
}

#[test]
fn errors_of_a_daemon_read_as_in_their_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|request, reply| {
        if request.names("processes?") {
            reply.json(&json!({ "processes": [process(5, 0)] }));
        } else if request.names("processes/5") {
            reply.json(&process(5, 0));
        } else if request.names("/v1/run") || request.method == "POST" && request.path == "/v1/processes" {
            reply.error(400, "INVALID", "no model is set");
        } else {
            reply.error(404, "NOT_FOUND", "no process `fixr5`");
        }
    });
    let text = failures(
        &place,
        &[
            &["info", "fixr5"],
            &["info", "fixr5", "--json"],
            &["info", ""],
            &["kill", "fixr5"],
            &["resolve", "5"],
            &["retry", "5"],
            &["run", "-d", "-n", "fix the test"],
        ],
    );
    check("errors-daemon", &text);
}

#[test]
fn the_error_about_a_foreign_server_matches_its_snapshot() {
    let place = Place::new();
    let daemon = place.daemon(|_, reply| reply.raw("SSH-2.0-OpenSSH_9.6\r\n"));
    let mut text = failures(&place, &[&["ps"]]);
    drop(daemon);
    let _daemon = place.daemon(|_, reply| reply.version("9.9.9", 99).error(404, "NOT_FOUND", "no such route"));
    text += &failures(&place, &[&["ps"]]);
    check("errors-foreign", &text.replace(env!("CARGO_PKG_VERSION"), "[VERSION]"));
}
