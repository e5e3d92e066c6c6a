//! The published schemas name the same keys as the parser.

use relive_flow::{COMPOSE_SCHEMA, ComposeFile, SUPERVISOR_SCHEMA, SupervisorFile};
use serde_json::Value;

/// A value that the parser accepts for a key.
fn example(key: &str) -> &'static str {
    match key {
        "command" => "[x]",
        "cli" => "codex",
        "allow" => "[read]",
        "depends_on" | "results" => "[z]",
        "timeout" | "within" | "backoff" => "10s",
        "max_steps" | "max_tokens" | "max_cost_usd" | "retries" | "max_restarts" => "1",
        "restart" => "permanent",
        "strategy" => "one_for_all",
        "fresh" => "true",
        "workspace" => "own",
        "isolation" => "confined",
        "model" => "openai/gpt-5",
        "network" => "[github.com]",
        "supervisor" => "{children: {y: {command: [y]}}}",
        _ => "text",
    }
}

fn keys(schema: &str, pointer: &str) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).unwrap();
    schema.pointer(pointer).unwrap().as_object().unwrap().keys().cloned().collect()
}

/// The keys that the parser lists when it meets one that it does not know.
fn parsed(message: &str) -> Vec<String> {
    let list = message.split("(expected one of ").nth(1).unwrap().split(')').next().unwrap();
    list.split(", ").map(str::to_owned).collect()
}

fn check(schema: Vec<String>, mut parsed: Vec<String>) {
    let mut schema = schema;
    schema.sort();
    parsed.sort();
    assert_eq!(schema, parsed);
}

#[test]
fn the_schemas_have_the_keys_of_the_parser() {
    let error = ComposeFile::parse("f", "nodes: {a: {command: [x], zzzzzzzz: 1}}").unwrap_err().to_string();
    check(keys(COMPOSE_SCHEMA, "/$defs/node/properties"), parsed(&error));
    let error = SupervisorFile::parse("f", "children: {a: {command: [x], zzzzzzzz: 1}}").unwrap_err().to_string();
    check(keys(SUPERVISOR_SCHEMA, "/$defs/child/properties"), parsed(&error));
    let error = SupervisorFile::parse("f", "zzzzzzzz: 1\nchildren: {a: {command: [x]}}").unwrap_err().to_string();
    check(keys(SUPERVISOR_SCHEMA, "/$defs/supervisor/properties"), parsed(&error));
}

#[test]
fn every_key_of_a_node_is_read() {
    for key in keys(COMPOSE_SCHEMA, "/$defs/node/properties") {
        let of_agent = ["cli", "model", "agent", "allow", "max_steps", "max_tokens", "max_cost_usd", "intent"];
        let work = if of_agent.contains(&key.as_str()) { "intent: i" } else { "command: [x]" };
        let plain = format!("nodes: {{z: {{command: [z]}}, a: {{{work}}}}}");
        let given = if work.starts_with(&key) {
            format!("nodes: {{z: {{command: [z]}}, a: {{{key}: {}}}}}", if key == "intent" { "other" } else { "[y]" })
        } else {
            // Only what has ended has a result.
            let on = if key == "results" { ", depends_on: [z]" } else { "" };
            format!("nodes: {{z: {{command: [z]}}, a: {{{work}{on}, {key}: {}}}}}", example(&key))
        };
        assert_ne!(ComposeFile::parse("f", &given), ComposeFile::parse("f", &plain), "{key} does nothing");
        assert!(ComposeFile::parse("f", &given).is_ok(), "{:?}", ComposeFile::parse("f", &given));
    }
}
