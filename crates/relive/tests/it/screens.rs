//! Snapshots of what commands about one process, its files and the daemon show, on two widths and as JSON.

use serde_json::{Value, json};

use crate::snapshots::{check, check_table, check_widths, with};
use crate::support::{Place, UUID, process};

const OTHER: &str = "0198f3c1-0000-7000-8000-0000000000a1";

/// Compares the JSON of a command.
fn check_json(name: &str, place: &Place, args: &[&str]) {
    let json = place.relive(args).exits(0).json();
    check(name, &serde_json::to_string_pretty(&json).unwrap());
}

#[test]
fn daemon_status_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|_, reply| {
        let broken = "the configuration has changed and is invalid, so the previous one stays in force: \
                      /home/someone/.config/relive/config.yaml:1:7: `gc` must be a list of `key: value`, not a text";
        reply.json(
            &json!({ "api": 1, "version": "0.1.0", "os_pid": 4242, "data_dir": "/home/someone/.local/share/relive",
            "socket": "/run/user/1000/relive/0123456789abcdef/socket", "started_at": "2026-11-15T12:00:00Z",
            "running": 3, "suspended": 1, "free_bytes": 123_456_789_000_u64, "warnings": [broken] }),
        );
    });
    check_widths("daemon-status", &place, &["daemon", "status"]);
    check_json("daemon-status-json", &place, &["daemon", "status", "--json"]);
}

#[test]
fn lineage_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|_, reply| {
        reply.json(&json!({ "uuid": UUID, "ancestors": [{ "uuid": OTHER, "step": 5, "gone": false },
            { "uuid": "0198f3c1-0000-7000-8000-0000000000a2", "step": 2, "gone": true }] }));
    });
    check_table("lineage", &place, &["lineage", "5"]);
    check_json("lineage-json", &place, &["lineage", "5", "--json"]);
}

#[test]
fn handle_list_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|_, reply| {
        let handle = |holder: u32, target: u32, rights: &str| {
            json!({ "holder": holder, "holder_uuid": UUID, "target": target, "target_uuid": OTHER, "as": rights })
        };
        reply.json(&json!({ "handles": [handle(5, 12, "owner"), handle(7, 12, "observer"),
            handle(12, 103, "controller")] }));
    });
    check_table("handle-list", &place, &["handle", "list"]);
    check_json("handle-list-json", &place, &["handle", "list", "--json"]);
}

#[test]
fn diff_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|request, reply| {
        if !request.names("diff") {
            return reply.json(&process(5, 1));
        }
        let file = |path: &str, change: &str, lines: Option<(u64, u64)>| {
            json!({ "path": path, "change": change, "added": lines.map(|(added, _)| added),
                "removed": lines.map(|(_, removed)| removed), "binary": lines.is_none() })
        };
        let long =
            "crates/a-rather-long-name/src/deeply/nested/directories/of/an/unusual/project/module_with_a_name.rs";
        let diff = "diff --git a/src/main.rs b/src/main.rs\n--- a/src/main.rs\n+++ b/src/main.rs\n@@ -1,2 +1,2 @@\n\
                    -fn main() {}\n+fn main() { run() }\n // the end\n";
        reply.json(&json!({ "from": 0, "to": 4, "trees": ["aaaa", "bbbb"], "diff": diff,
            "files": [file("src/main.rs", "modified", Some((1, 1))), file(long, "added", Some((120, 0))),
                file("old.txt", "deleted", Some((0, 3))), file("logo.png", "added", None),
                file("run.sh", "mode", Some((0, 0)))] }));
    });
    check_widths("diff", &place, &["diff", "5"]);
    check_json("diff-json", &place, &["diff", "5", "--json"]);
}

#[test]
fn blame_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|_, reply| {
        let line = |line: u64, by: Option<(&str, u32)>, text: &str| {
            json!({ "line": line, "uuid": by.map(|(uuid, _)| uuid), "step": by.map(|(_, step)| step),
                "at": by.map(|_| "2026-11-15T12:00:00Z"), "intent": by.map(|_| "fix the parser that fails on Mondays"),
                "text": text })
        };
        let long =
            "    let answer = a_function_with_a_long_name(and_arguments, that_do_not_fit, on_a_narrow_terminal);";
        reply.json(&json!({ "changed_since": true, "lines": [line(1, None, "fn main() {"),
            line(2, Some(("0198f3c1-0000-7000-8000-0000000000b5", 3)), long), line(3, Some((OTHER, 12)), "}")] }));
    });
    check_table("blame", &place, &["blame", "src/main.rs"]);
    check_json("blame-json", &place, &["blame", "src/main.rs", "--json"]);
}

fn waiting(fields: &Value) -> Value {
    let suspended = json!({ "state": "running", "paused": true, "display": "suspended" });
    with(with(process(5, 0), &suspended), fields)
}

fn call(args: &Value) -> Value {
    json!({ "id": 6, "call": 0, "tool": "shell", "args": args, "at": "2026-11-15T12:00:00Z" })
}

#[test]
fn resolve_reads_as_in_its_snapshot() {
    let place = Place::new();
    let _daemon = place.daemon(|request, reply| {
        let asked = call(&json!({ "command": "cd src\ncargo test --workspace --all-features -- --test-threads 1 \
                                              the_name_of_one_test_that_is_long" }));
        let mut doubtful = call(&json!({ "command": "git push" }));
        doubtful["looked"] = json!("the session has no exit record");
        reply.json(&if request.names("processes/5") {
            waiting(&json!({ "suspend_reason": "approval", "display": "approval", "approval": asked }))
        } else {
            waiting(&json!({ "suspend_reason": "in_doubt", "display": "in_doubt", "in_doubt": [doubtful] }))
        });
    });
    check_widths("resolve-approval", &place, &["resolve", "5"]);
    check_widths("resolve-in-doubt", &place, &["resolve", "6"]);
    check_json("resolve-json", &place, &["resolve", "5", "--json"]);
}
