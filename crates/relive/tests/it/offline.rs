//! What needs no daemon.

use std::os::unix::net::UnixListener;

use serde_json::json;

use crate::support::Place;

#[test]
fn case_01_ps_with_no_daemon_is_an_empty_list() {
    let place = Place::new();
    let table = place.relive(&["ps"]).exits(0);
    assert_eq!(
        table.stdout,
        "PID  STATE  NAME  INTENT  BODY  STEP  TOKENS  COST  ELAPSED  AGE  ID  MODEL  DIRECTORY  DETAIL\n"
    );
    assert_eq!(place.relive(&["ps", "--json"]).exits(0).json(), json!({ "processes": [] }));
    assert_eq!(place.relive(&["ps", "-q"]).exits(0).stdout, "");
    assert_eq!(place.relive(&["list-resumable", "--json"]).exits(0).json(), json!({ "processes": [] }));
    let nothing = json!({ "removed": 0, "freed_bytes": 0, "uuids": [] });
    assert_eq!(place.relive(&["gc", "--json"]).exits(0).json(), nothing);
    assert!(!place.data().exists(), "nothing was created for it");
    // What a dead daemon left behind is no daemon.
    drop(UnixListener::bind(place.socket()).unwrap());
    assert_eq!(place.relive(&["ps", "--json"]).exits(0).json(), json!({ "processes": [] }));
}

#[test]
fn case_02_without_histories_there_is_no_such_process() {
    let place = Place::new();
    for args in [
        &["info", "5"][..],
        &["wait", "5"],
        &["logs", "abc"],
        &["strace", "5"],
        &["steps", "5"],
        &["lineage", "5"],
        &["kill", "abc"],
        &["kill", "999"],
        &["pause", "5"],
        &["resume", "../../etc/passwd"],
        &["send", "5", "hello"],
        &["resolve", "5"],
        &["resolve", "5", "--done"],
    ] {
        place.relive(args).exits(4).says("no process `").says("hint: relive ps -a");
    }
    let error = place.relive(&["info", "x", "--json"]).exits(4).json();
    assert_eq!(error["error"]["code"], "NOT_FOUND");
}

#[test]
fn case_20_options_of_a_fork_are_refused_without_fork() {
    let place = Place::new();
    let hint = "hint: relive resume --fork --from-step 3 fixer";
    place
        .relive(&["resume", "--from-step", "3", "fixer"])
        .exits(2)
        .says("--from-step cannot be used without --fork")
        .says(hint);
    let both = place.relive(&["resume", "--from-step", "3", "--name", "n", "fixer"]).exits(2);
    both.says("--from-step and --name cannot be used without --fork");
    let error = place.relive(&["resume", "--from-step", "3", "fixer", "--json"]).exits(2).json();
    assert_eq!(error["error"]["code"], "INVALID");
    place.relive(&["resume", "--fork", "--from-step", "-1", "fixer"]).exits(2).says("invalid value '-1'");
    place.relive(&["resume", "--fork", "--from-step=-1", "fixer"]).exits(2).says("invalid value '-1'");
}

#[test]
fn wrong_arguments_are_named_and_exit_with_2() {
    let place = Place::new();
    place.relive(&["pss"]).exits(2).says("hint: relive ps\n");
    place.relive(&["ps", "--tre"]).exits(2).says("hint: a similar argument exists: '--tree'");
    place.relive(&["wait", "5", "--timeout", "10"]).exits(2).says("a duration needs a unit");
    for command in [&["run", "--timeout", "0s", "x"][..], &["resume", "5", "--timeout", "0ms"]] {
        place.relive(command).exits(2).says("use a duration above zero");
    }
    place.relive(&["run", "--detach-key", "ctrl-c", "x"]).exits(2).says("the terminal uses Ctrl-C itself");
    place
        .relive(&["run", "-n", "-"])
        .exits(2)
        .says("`-` reads the intent from standard input, and -n does not read it");
    place.relive(&["kill", "-s", "TREM", "5"]).exits(2).says("did you mean `TERM`?");
    place.relive(&["kill", "-s", "99", "5"]).exits(2).says("unknown signal");
    place.relive(&["resolve", "5", "--always"]).exits(2).says("--allow|--deny|--done|--not-done|--retry");
    place.relive(&["resolve", "5", "--done", "--reason", "x"]).exits(2).says("cannot be used with");
    place
        .relive(&["run", "--ask", "write", "--deny", "write", "x"])
        .exits(2)
        .says("--ask and --deny cannot be used together");
    place.relive(&["run", "--max-steps", "0", "x"]).exits(2).says("invalid value '0'");
    place.relive(&["run", " "]).exits(2).says("the intent is empty");
    place.relive(&["run", "--system", "@nowhere.md", "x"]).exits(2).says("cannot read nowhere.md: no such file");
    place.relive(&["gc", "--dry-run", "--force"]).exits(2);
    assert!(place.relive(&[]).exits(0).stdout.contains("Usage: relive"), "no command is a question for help");
    let error = place.relive(&["pss", "--json"]).exits(2).json();
    let message = "there is no command `pss`";
    let expected = json!({ "code": "INVALID", "message": message, "hint": "relive ps --json" });
    assert_eq!(error["error"], expected);
    assert!(place.relive(&["--json"]).exits(0).json()["help"].as_str().unwrap().contains("Usage: relive"));
    assert_eq!(place.relive(&["--version", "--json"]).exits(0).json(), place.relive(&["version", "--json"]).json());
    assert!(
        place.relive(&["ps", "--help", "--json"]).exits(0).json()["help"]
            .as_str()
            .unwrap()
            .contains("Usage: relive ps")
    );
    assert!(
        place.relive(&["completions", "bash", "--json"]).exits(0).json()["script"].as_str().unwrap().contains("relive")
    );
    assert_eq!(place.relive(&["demo", "--json"]).exits(2).json()["error"]["hint"], "relive demo");
    assert_eq!(place.relive(&["--json", "ps", "--foo"]).exits(2).json()["error"]["hint"], "relive ps --help");
    assert!(place.relive(&["help", "--json"]).exits(0).json()["help"].as_str().unwrap().contains("Usage: relive"));
    place.relive(&["run", "--env", "FOO", "x"]).exits(2).says("hint: relive run --env NAME=VALUE");
    let exec = place.relive(&["exec", "--env", "FOO", "--", "echo", "a b"]).exits(2);
    exec.says("hint: relive exec --env NAME=VALUE -- echo 'a b'\n");
    let enter = place.relive(&["enter", "5", "--env", "FOO", "--", "ls"]).exits(2);
    enter.says("hint: relive enter 5 --env NAME=VALUE -- ls\n");
    let nodes = place.dir.path().join("my nodes.yaml");
    place.write(&nodes, "nodes: {a: {command: [true]}}\n");
    let compose = place.relive(&["compose", "up", "--env", "FOO", nodes.to_str().unwrap()]).exits(2);
    compose.says(&format!("hint: relive compose up --env NAME=VALUE '{}'\n", nodes.display()));
    place.write(&nodes, "children: {a: {command: [true]}}\n");
    let supervise = place.relive(&["supervise", "--env", "FOO", nodes.to_str().unwrap()]).exits(2);
    supervise.says(&format!("hint: relive supervise --env NAME=VALUE '{}'\n", nodes.display()));
}

#[test]
fn a_current_directory_that_was_removed_is_named() {
    let place = Place::new();
    let gone = place.dir.path().join("gone");
    for args in ["run x", "exec -- true", "compose up nodes.yaml", "ps --here"] {
        let script = format!("mkdir gone && cd gone && rmdir ../gone && exec {} {args}", env!("CARGO_BIN_EXE_relive"));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).current_dir(place.dir.path()).env_clear().env("HOME", place.dir.path());
        shell.env("PATH", "/usr/bin:/bin").env("RELIVE_DATA_DIR", place.data()).env("RELIVE_SOCKET", place.socket());
        let output = shell.env("XDG_CONFIG_HOME", place.dir.path()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {told}");
        assert!(told.contains(&format!("does not exist any more: {}\n", gone.display())), "{args}: {told}");
    }
}

#[test]
fn files_that_are_given_are_regular_and_small() {
    let place = Place::new();
    let pipe = place.dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    place.write(&place.dir.path().join("large"), &"A=1\n".repeat(1 << 18).replacen("A=1", "A=12", 1));
    for (path, said) in [
        ("/dev/zero", "error: /dev/zero is a device, not a file\n"),
        ("pipe", "error: pipe is a pipe, not a file\n"),
        ("large", "error: large is larger than 1 MiB\n"),
    ] {
        place.relive(&["exec", "--env-file", path, "--", "true"]).exits(2).says(said);
        // Instructions may be longer.
        if path != "large" {
            place.relive(&["run", "--system", &format!("@{path}"), "x"]).exits(2).says(said);
        }
        place.relive(&["compose", "up", path]).exits(2).says(said);
    }
    assert!(!place.data().exists(), "no daemon was started for it");
}

#[test]
fn habits_of_other_tools_are_answered_with_our_commands() {
    let place = Place::new();
    let stop = place.relive(&["stop", "3"]).exits(2);
    assert_eq!(stop.stderr, "error: there is no command `stop`\n\nhint: `relive pause 3` or `relive kill 3`\n");
    let force = place.relive(&["rm", "-f", "prog"]).exits(2);
    assert_eq!(force.stderr, "error: unexpected argument '-f' found\n\nhint: relive rm -y prog\n");
    let steps = place.relive(&["run", "--max-steps", "-1", "x"]).exits(2);
    assert!(steps.stderr.starts_with("error: --max-steps needs a number of at least 1\n\nFor more "), "{steps:?}");
    let steps = place.relive(&["run", "--max-steps", "0", "x"]).exits(2);
    steps.says("error: invalid value '0' for '--max-steps <N>': use a whole number of at least 1\n");
    let name = place.relive(&["run", "--name", "--all", "y"]).exits(2);
    assert!(!name.stderr.contains("--allow"), "{name:?}");
    assert!(!place.relive(&["ps", "-Z"]).exits(2).stderr.contains("'-- -Z'"));
    let error = place.relive(&["tail", "web", "--json"]).exits(2).json();
    let expected = json!({ "code": "INVALID", "message": "there is no command `tail`", "hint": "relive logs -f web" });
    assert_eq!(error["error"], expected);
    place.relive(&["usage", "--by", "modle"]).exits(2).says("there is no key `modle` (did you mean `model`?)");
    assert_eq!(place.relive(&["ps", "--state", "paused", "--json"]).exits(0).json(), json!({ "processes": [] }));
}

#[test]
fn a_config_that_cannot_be_read_is_not_called_invalid() {
    let place = Place::new();
    place.write(&place.config().join("file"), "");
    let refused = place.relive(&["config", "show"]).exits(2);
    let expected = format!("error: cannot read {}: not a regular file\n", place.config().display());
    assert_eq!(refused.stderr, expected);
}

#[test]
fn help_is_short_or_long_and_goes_to_stdout() {
    let place = Place::new();
    let short = place.relive(&["run", "-h"]).exits(0).stdout;
    let long = place.relive(&["run", "--help"]).exits(0).stdout;
    assert!(short.starts_with("Run an agent\n\nUsage: relive run [OPTIONS] [INTENT]\n"), "{short}");
    assert!(long.starts_with("Examples:\n  relive run \"fix the failing test\""), "{long}");
    assert!(!place.relive(&["--help"]).exits(0).stdout.contains("demo-writer"));
    let version = format!("relive {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(place.relive(&["--version"]).exits(0).stdout, version);
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let place = Place::new();
    for args in [&["--help"][..], &["--version"], &["ps", "-h"], &["help", "run"], &[]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.command(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: cannot write to stdout\n"), "{args:?}");
    }
}

#[test]
fn a_document_that_cannot_be_written_is_told_on_stderr() {
    let place = Place::new();
    for args in [&["ps", "--json"][..], &["paths", "--json"], &["demo", "--json"], &["pss", "--json"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.command(args).stdout(full).output().unwrap();
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: "), "{args:?}");
    }
}

#[test]
fn an_error_without_a_stdout_is_told_on_stderr() {
    let place = Place::new();
    let relive = place.command(&["kill"]);
    let told = |redirected: &str| {
        let script = format!("\"$0\" kill nosuch --json {redirected}");
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &script]).arg(relive.get_program()).env_clear();
        shell.envs(relive.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = shell.output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(told(">&-").starts_with("error: no process `nosuch`"));
    assert_eq!(told("> /dev/null"), "");
}

/// The standard library puts `/dev/null` in the place of a closed descriptor, so that writing succeeds.
#[test]
fn a_closed_stdout_is_a_failure_unless_nothing_is_printed() {
    let place = Place::new();
    let check = |args: &str, redirected: &str, code: i32| {
        let relive = place.command(&[] as &[&str]);
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &format!("\"$0\" {args} {redirected}")]).arg(relive.get_program()).env_clear();
        shell.envs(relive.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = shell.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args} {redirected}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let expect = if code == 125 { "error: cannot write to stdout\n  bad file descriptor\n" } else { "" };
        assert_eq!(said, expect, "{args} {redirected}");
    };
    for args in ["", "ps", "ps --json", "--help", "--version", "version", "paths", "config show", "completions bash"] {
        check(args, ">&-", 125);
        // Python and node open it like this for a child whose output nobody wants.
        check(args, "1<>/dev/null", 0);
    }
    check("ps -q", ">&-", 0);
    check("agent-events /dev/null", ">&-", 0);
}

#[test]
fn paths_follow_the_environment() {
    let place = Place::new();
    let json = place.relive(&["paths", "--json"]).exits(0).json();
    assert_eq!(json["data"], place.data().to_str().unwrap());
    assert_eq!(json["config"], place.config().to_str().unwrap());
    assert_eq!(json["socket"], place.socket().to_str().unwrap());
    let mut homeless = place.command(&["ps"]);
    homeless.env_remove("HOME").env_remove("XDG_CONFIG_HOME").env_remove("RELIVE_DATA_DIR");
    let output = homeless.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("neither RELIVE_DATA_DIR nor HOME is set"));
    for args in [&["version"][..], &["completions", "bash"], &["help"], &["--version"]] {
        let mut homeless = place.command(args);
        homeless.env_remove("HOME").env_remove("XDG_CONFIG_HOME").env_remove("RELIVE_DATA_DIR");
        let output = homeless.output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?} {output:?}");
    }
}

#[test]
fn a_config_is_shown_whole_or_refused_with_all_its_mistakes() {
    let place = Place::new();
    let shown = place.relive(&["config", "show"]).exits(0).stdout;
    assert!(
        shown.contains("(no such file: all settings have their defaults)\n")
            && shown.contains("\n  interval_seconds: 3600\n"),
        "{shown}"
    );

    place.write(&place.config(), "gc:\n  retention_days: 7\n");
    let json = place.relive(&["config", "show", "--json"]).exits(0).json();
    assert_eq!(json["config"]["gc"], json!({ "retention_days": 7, "max_entries": 500, "interval_seconds": 3600 }));
    assert_eq!(json["exists"], true);

    place.write(&place.config(), "gc:\n  interval_secs: 90\nrecovery: automatic\n");
    let refused = place.relive(&["config", "show"]).exits(2);
    let refused = refused.says("config.yaml:2:3: no such key under `gc`: `interval_secs`");
    let refused = refused.says("2 |   interval_secs: 90").says("|   ^");
    refused.says("config.yaml:3:11: `recovery` must be one of auto, manual, not `automatic`");
}

#[test]
fn a_daemon_that_is_not_running_is_said_to_be() {
    let place = Place::new();
    assert_eq!(place.relive(&["daemon", "status"]).exits(3).stdout, "the daemon is not running\n");
    assert_eq!(place.relive(&["daemon", "status", "--json"]).exits(3).json(), json!({ "running": false }));
    assert_eq!(place.relive(&["daemon", "stop"]).exits(0).stderr, "the daemon is not running\n");
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let place = Place::new();
    place.write(&place.dir.path().join("file"), "");
    let mut command = place.command(&["run", "-d", "x"]);
    let output = command.env("RELIVE_DATA_DIR", place.dir.path().join("file/data")).output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("the daemon cannot be started") && stderr.contains("file/data: cannot be written to"),
        "{stderr}"
    );
}

#[test]
fn the_demo_works() {
    let place = Place::new();
    let demo = place.relive(&["demo"]).exits(0);
    for shown in ["suspended", "kill -9", "written in step 8", "forked at step 4", "Finished."] {
        assert!(demo.stdout.contains(shown), "{shown}: {demo:?}");
    }
    assert!(demo.stderr.is_empty(), "{demo:?}");
    // Its tables are read on a terminal of 80 columns.
    let rows: Vec<&str> = demo.stdout.lines().filter(|line| line.contains(" PID  ") || line.contains("─ ")).collect();
    assert!(rows.len() >= 6 && rows.iter().all(|row| row.chars().count() <= 80), "{rows:#?}");
}

#[test]
fn doctor_looks_at_everything_without_a_daemon_and_leaves_nothing() {
    let place = Place::new();
    let json = place.relive(&["doctor", "--json"]).exits(0).json();
    let rows = json["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let all = [
        "data",
        "config",
        "daemon",
        "kernel",
        "user namespaces",
        "tree",
        "pause",
        "kill",
        "pids",
        "memory",
        "cpu",
        "isolation",
    ];
    assert_eq!(names, all);
    assert!(["full", "degraded", "none"].iter().any(|grade| json["isolation"]["confined"] == *grade), "{json}");
    for row in rows {
        assert_eq!(row["state"] == "ok", row.get("hint").is_none(), "{row}");
    }
    let text = place.relive(&["doctor"]).exits(0).stdout;
    // A path is one word, and is not broken.
    assert!(text.lines().all(|line| line.len() <= 80 || line.contains('/')), "{text}");
    assert_eq!(std::fs::read_dir(place.dir.path()).unwrap().count(), 0, "nothing was created for it");
}

#[test]
fn doctor_names_the_lower_rungs_with_a_remedy() {
    let place = Place::new();
    let output = place.command(&["doctor"]).env("RELIVE_LADDER", "process-group").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("weak    tree            process-group: "), "{text}");
    assert!(text.contains("hint: run the daemon as root"), "{text}");
}

#[test]
fn doctor_fails_where_nothing_would_work() {
    let place = Place::new();
    place.write(&place.config(), "nonsense: true\n");
    place.write(&place.dir.path().join("file"), "");
    let mut command = place.command(&["doctor", "--json"]);
    let output = command.env("RELIVE_DATA_DIR", place.dir.path().join("file/data")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed =
        |name: &str| json["rows"].as_array().unwrap().iter().any(|row| row["name"] == name && row["state"] == "failed");
    assert!(failed("data") && failed("config"), "{json}");
    assert_eq!(json["ok"], false);
}
