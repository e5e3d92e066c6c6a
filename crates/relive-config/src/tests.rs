//! Good files, bad files, and the agreement of the list of keys with the fields.

use relive_types::Usd;

use super::*;

fn problems(text: &str) -> Vec<String> {
    let found = Config::parse(text).unwrap_err();
    found.into_iter().map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.message)).collect()
}

#[test]
fn an_empty_file_means_all_defaults() {
    for text in ["", "\n", "# only a remark\n", "---\n", "gc:\n", "gc: {}\n", "default_model:\n"] {
        assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text:?}");
    }
    assert_eq!(Config::load(Path::new("/nonexistent/config.yaml")).unwrap(), Config::default());
}

#[test]
fn given_keys_are_read_and_the_others_have_defaults() {
    let text = "gc:\n  retention_days: 7\nrecovery: manual\ndefault_model: script/demo.yaml\n\
                heartbeat: {policy: kill}\non_in_doubt: park\ntool_env: [CI, CARGO_HOME]\n";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.gc, Gc { retention_days: 7, ..Gc::default() });
    assert_eq!(config.recovery, Recovery::Manual);
    assert_eq!(config.default_model.as_deref(), Some("script/demo.yaml"));
    assert_eq!(config.heartbeat.policy, StallPolicy::Kill);
    assert_eq!(config.on_in_doubt, OnInDoubt::Park);
    assert_eq!(config.tool_env, ["CI", "CARGO_HOME"]);
    assert_eq!(Config::parse(&config.to_yaml().unwrap()).unwrap(), config);
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    let text = "recvoery: auto\ngc:\n  retention_days: soon\n  interval_seconds: 59\n  policy: warn\n\
                heartbeat:\n  policy: wrn\nlimits: 7\nretention_days: 3\n";
    assert_eq!(
        problems(text),
        [
            "1:1 no such key: `recvoery` (did you mean `recovery`?)",
            "3:19 `retention_days` must be a whole number, not a text",
            "4:21 `interval_seconds` must be at least 60, not 59",
            "5:3 no such key under `gc`: `policy` (`policy` belongs under `heartbeat`)",
            "7:11 `policy` must be one of warn, pause, kill, not `wrn` (did you mean `warn`?)",
            "8:9 limits must be a list of `key: value`, not a number",
            "9:1 no such key: `retention_days` (`retention_days` belongs under `gc`)",
        ]
    );
    for bad in [
        "gc: {max_entries: 4294967296}",
        "gc: {max_entries: -1}",
        "gc: {max_entries: 1.5}",
        "[]",
        "gc: [1",
        "tool_env: [A=B]",
        "tool_env: A",
    ] {
        assert_eq!(problems(bad).len(), 1, "{bad}");
    }
    assert_eq!(problems("recovery: auto\nrecovery: manual\n").len(), 1);
}

#[test]
fn a_mistake_is_shown_with_its_line_and_a_caret() {
    let problems = Config::parse("gc:\n  interval_seconds: 5\n").unwrap_err();
    let error = ConfigError::Wrong { path: "/c/config.yaml".into(), problems };
    assert_eq!(
        error.to_string(),
        "/c/config.yaml:2:21: `interval_seconds` must be at least 60, not 5\n  \
           |\n2 |   interval_seconds: 5\n  |                     ^"
    );
}

#[test]
fn prices_are_read_by_model_and_their_mistakes_are_reported() {
    let text = "prices:\n  openai/gpt-9: {input: 1.25, output: 10, cache_read: 0.125}\n";
    let config = Config::parse(text).unwrap();
    let price = config.prices["openai/gpt-9"];
    assert_eq!((price.input.nanos(), price.output.nanos()), (1_250_000_000, 10_000_000_000));
    assert_eq!((price.cache_read.map(Usd::nanos), price.cache_write), (Some(125_000_000), None));
    assert_eq!(Config::parse(&config.to_yaml().unwrap()).unwrap(), config);
    let text = "prices:\n  gpt-9: {input: 1, output: 2}\n  a/b: {inptu: 1, output: -2}\n  c/d: 3\n";
    assert_eq!(
        problems(text),
        [
            "2:3 `gpt-9` is not a model: write it as PROVIDER/gpt-9",
            "3:8 the price of `a/b` has no `input`",
            "3:9 no such key in a price: `inptu` (did you mean `input`?)",
            "3:27 `output` must be dollars for a million tokens, from 0 to 10000",
            "4:8 the price of `c/d` must look like `{input: 3, output: 15}`, not a number",
        ]
    );
    assert_eq!(problems("prices: 7\n"), ["1:9 prices must be a list of `key: value`, not a number"]);
    assert_eq!(Config::parse("prices:\n").unwrap(), Config::default());
}

#[test]
fn context_windows_are_read_by_model_and_git_notes_are_on_by_default() {
    let config = Config::parse("context_window: {ollama/qwen3: 8192}\ngit_notes: false\n").unwrap();
    assert_eq!((config.context_window["ollama/qwen3"], config.git_notes), (8192, GitNotes(false)));
    assert_eq!(Config::parse(&config.to_yaml().unwrap()).unwrap(), config);
    assert_eq!(Config::default().git_notes, GitNotes(true));
    assert_eq!(
        problems("context_window:\n  qwen3: 8192\n  a/b: 100\n  c/d: much\ngit_notes: 1\n"),
        [
            "2:3 `qwen3` is not a model: write it as PROVIDER/qwen3",
            "3:8 `a/b` must be at least 4096, not 100",
            "4:8 `c/d` must be a whole number, not a text",
            "5:12 `git_notes` must be true or false, not a number",
        ]
    );
}

/// Checks that the fields of the types and the checked keys are the same.
#[test]
fn the_list_of_keys_matches_the_fields() {
    let yaml = Config::default().to_yaml().unwrap();
    let mut section = "";
    let mut fields = Vec::new();
    for line in yaml.lines() {
        let (key, value) = line.split_once(':').unwrap();
        if let Some(key) = key.strip_prefix("  ") {
            fields.push((section, key.trim_matches(['"', '\''])));
        } else if value.is_empty() {
            section = key;
        } else {
            fields.push(("", key));
        }
    }
    let keys: Vec<(&str, &str)> = check::KEYS.iter().map(|(section, key, _)| (*section, *key)).collect();
    assert_eq!(fields, keys);
}

#[test]
fn a_star_sets_the_permission_of_all_unnamed_tools() {
    let check = |text: &str, expect: &str| {
        let config = Config::parse(text).unwrap();
        let of = |tool: &str| format!("{:?}", config.tools.permissions()[tool]);
        assert_eq!(["shell", "write", "*"].map(of).join(" "), expect, "{text}");
        assert_eq!(Config::parse(&config.to_yaml().unwrap()).unwrap(), config, "{text}");
    };
    check("", "Ask Allow Allow");
    check("tools: {write: deny}", "Ask Deny Allow");
    check("tools: {'*': ask, write: allow}", "Ask Allow Ask");
    check("tools: {'*': allow}", "Allow Allow Allow");
    assert_eq!(
        problems("tools:\n  shel: ask\n  write: maybe\n  read: 1\n"),
        [
            "2:3 no such key under `tools`: `shel` (did you mean `shell`?)",
            "3:10 `write` must be one of allow, ask, deny, not `maybe`",
            "4:9 `read` must be one of allow, ask, deny, not a number",
        ]
    );
}

#[test]
fn a_file_that_is_not_regular_is_refused_without_blocking() {
    let error = Config::load(std::path::Path::new("/dev/zero")).unwrap_err();
    let super::ConfigError::Unreadable { source, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains("/dev/zero") && source.to_string().contains("not a regular file"), "{source}");
}

#[test]
fn snapshots_are_taken_within_limits_unless_the_file_says_no() {
    let text = "workspace: {snapshots: off, max_files: 10, include: [.env], exclude: ['*.iso', 'data/']}\n";
    let workspace = Config::parse(text).unwrap().workspace;
    assert_eq!((workspace.snapshots, workspace.max_files, workspace.max_file_mb), (Snapshots::Off, 10, 100));
    assert_eq!((workspace.include.len(), workspace.exclude.len()), (1, 2));
    assert_eq!(Config::default().workspace.snapshots, Snapshots::Auto);
    let config = Config { workspace, ..Config::default() };
    assert_eq!(Config::parse(&config.to_yaml().unwrap()).unwrap(), config);
    assert_eq!(
        problems("workspace:\n  snapshots: on\n  max_file_mb: 0\n  include: x\n  exclude: [1, '']\n"),
        [
            "2:14 `snapshots` must be one of auto, off, not true or false",
            "3:16 `max_file_mb` must be at least 1, not 0",
            "4:12 `include` must be a list of patterns, not a text",
            "5:13 `exclude` lists patterns, not a number",
            "5:16 `exclude` lists patterns, not a text",
        ]
    );
}

#[test]
fn isolation_is_a_word_and_lists_of_paths() {
    let text = "isolation: {agents: sealed, network: [github.com, '*.crates.io', 10.0.0.0/8], writable: [~/go], hidden: [/srv/keys], git_config: writable}\n";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.isolation.agents, Some(relive_types::Isolation::Sealed));
    assert_eq!((config.isolation.writable.len(), config.isolation.git_config), (1, GitConfig::Writable));
    assert_eq!(config.isolation.network.0.unwrap().to_string(), "allow:github.com,*.crates.io,10.0.0.0/8");
    assert_eq!(Config::default().isolation.agents, None);
    assert_eq!(Config::default().isolation.network.0, None);
    assert_eq!(
        problems("isolation: {network: of}\n"),
        ["1:22 `network` must be full, none or a list of domains, not `of`"]
    );
    assert_eq!(
        problems("isolation: {network: [a/b]}\n"),
        ["1:23 `network`: `a/b` is not a domain like github.com or *.crates.io, nor an address like 10.0.0.0/8"]
    );
    assert_eq!(
        problems("isolation: {hidden: [/srv/a/../keys]}\n"),
        ["1:22 `hidden`: `/srv/a/../keys` must not contain `..`"]
    );
    assert_eq!(
        problems("isolation:\n  agents: confind\n  writable: [keys]\n  hidden: x\n"),
        [
            "2:11 `agents` must be one of none, confined, sealed, not `confind` (did you mean `confined`?)",
            "3:14 `writable`: `keys` must begin with / or ~/",
            "4:11 `hidden` must be a list of paths, not a text",
        ]
    );
}
