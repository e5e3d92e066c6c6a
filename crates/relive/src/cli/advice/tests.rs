use super::*;

#[track_caller]
fn check(typed: &str, message: Option<&str>, hint: Option<&str>) {
    let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
    let error = crate::cli::parse(&words).unwrap_err();
    let advice = advise(&error, &words);
    assert_eq!((advice.message.as_deref(), advice.hint.as_deref()), (message, hint), "{typed}: {error}");
}

#[test]
fn options_of_other_tools_are_replaced_by_ours() {
    check("relive rm -f prog", None, Some("relive rm -y prog"));
    check("relive rm --force prog", None, Some("relive rm -y prog"));
    check("relive ps -a --filter name=x", None, Some("relive ps -a --name x"));
    check("relive ps --filter state=dead", None, Some("relive ps --state dead"));
    check("relive ps --filter=name=x", None, Some("relive ps --name x"));
    check("relive logs --tail 10 x", None, Some("relive logs -n 10 x"));
    check("relive logs --tail=10 x", None, Some("relive logs -n=10 x"));
    check("relive ps -A", None, Some("relive ps -a"));
    check("relive logs --tail x", None, Some("relive logs -f x"));
    check("relive ps aux", None, Some("relive ps -a"));
    check("relive ps -ef", None, Some("relive ps -a"));
    check("relive ps work", None, Some("relive info work"));
    check("relive run --max-steps -1 x", Some("--max-steps needs a number of at least 1"), None);
    check("relive run --name -x y", Some("--name needs a value, and `-x` looks like an option"), None);
    check("relive run --name --all y", Some("--name needs a value, and `--all` looks like an option"), None);
    check("relive ps --tre", None, None);
    check("relive ps -l", None, Some("relive ps -a"));
    check("relive ps --format json -a", None, Some("relive ps --json -a"));
    check("relive ps --format=json", None, Some("relive ps --json"));
    check("relive run -it fix", None, Some("relive run fix"));
    check("relive run -dt fix", None, Some("relive run -d fix"));
    check("relive run --rm fix", None, Some("relive run fix"));
    check("relive -v", None, Some("relive --version"));
}

#[test]
fn commands_of_other_tools_are_replaced_by_ours() {
    let check = |typed: &str, command: &str, hint: &str| {
        check(typed, Some(&format!("there is no command `{command}`")), Some(hint));
    };
    check("relive stop 3", "stop", "`relive pause 3` or `relive kill 3`");
    check("relive --json start a b", "start", "relive resume a b");
    check("relive status 3", "status", "relive info 3");
    check("relive status", "status", "relive ps");
    check("relive inspect", "inspect", "relive info ID");
    check("relive ls", "ls", "relive ps");
    check("relive tail web", "tail", "relive logs -f web");
    check("relive fork work", "fork", "relive resume --fork work");
    check("relive suspend work", "suspend", "relive pause work");
    check("relive tree", "tree", "relive ps --tree");
    check("relive log work", "log", "relive logs work");
    check("relive answer 5 the second ID", "answer", "relive resolve 5 --answer 'the second ID'");
    check("relive message 5", "message", "relive send 5 TEXT");
    for (typed, hint) in [
        ("freeze", "relive pause ID"),
        ("tasks", "relive ps"),
        ("jobs", "relive ps"),
        ("bg 5", "relive resume 5"),
        ("fg 5", "relive attach 5"),
        ("suspend", "relive pause ID"),
        ("events x", "relive strace x"),
        ("history x", "relive logs x"),
        ("models", "relive config show"),
        ("model", "relive config show"),
        ("export x", "relive logs --json x"),
        ("create fix the test", "relive run 'fix the test'"),
        ("new", "relive run TEXT"),
    ] {
        check(&format!("relive {typed}"), typed.split(' ').next().unwrap(), hint);
    }
    for (typed, hint) in [
        ("daemon logs", "relive paths"),
        ("daemon reload", "relive daemon restart"),
        ("daemon enable", "relive daemon install"),
        ("inbox ls", "relive inbox --list"),
        ("config get", "relive config show"),
        ("config set", "relive config edit"),
        ("workspace ls", "relive workspace list"),
    ] {
        check(&format!("relive {typed}"), typed, hint);
    }
    check("relive compose ps", "compose ps", "relive compose status RUN");
    check("relive compose stop 5", "compose stop", "relive compose down 5");
    check("relive journalctl 5", "journalctl", "relive logs 5");
    check("relive daemon-reload", "daemon-reload", "relive daemon restart");
    check("relive compose start", "compose start", "relive compose up FILE");
}

#[test]
fn a_missing_process_is_named_as_such() {
    let check = |command: &str, hint: &str| {
        check(&format!("relive {command}"), Some(&format!("`relive {command}` needs a process")), Some(hint));
    };
    check("info", "`relive info ID`; `relive ps -a` lists the processes");
    check("diff", "`relive diff ID`; `relive ps -a` lists the processes");
    check("rename", "`relive rename ID ...`; `relive ps -a` lists the processes");
    check("restore", "`relive restore ID ...`; `relive ps -a` lists the processes");
    check("rewind", "`relive rewind ID ...`; `relive ps -a` lists the processes");
}

#[test]
fn a_mistyped_command_is_hinted_at_with_all_that_was_typed() {
    let check = |typed: &str, command: &str, hint: Option<&str>| {
        check(typed, Some(&format!("there is no command `{command}`")), hint);
    };
    check("relive loggs work", "loggs", Some("relive logs work"));
    check("relive --json pss", "pss", Some("relive --json ps"));
    check("relive daemon stopp", "daemon stopp", Some("relive daemon stop"));
    check("relive help loggs", "loggs", Some("relive help logs"));
    check("relive help kill extra", "kill extra", Some("relive help kill"));
    check("relive help daemon strat", "daemon strat", Some("relive help daemon start"));
    check("relive help nonsense", "nonsense", Some("relive help"));
    // Nothing is near: clap would propose something far.
    check("relive nonsense", "nonsense", None);
}

#[test]
fn the_commands_that_are_proposed_exist() {
    let groups = GROUPS.iter().flat_map(|(group, table)| table.iter().map(move |row| (Some(*group), row)));
    for (group, (habits, meant)) in COMMANDS.iter().map(|row| (None, row)).chain(groups) {
        for part in meant.replace("; ", "` or `").split("` or `") {
            let part = part.replace("ID", "x");
            let words: Vec<OsString> = part.split(' ').map(OsString::from).collect();
            let parsed = crate::cli::parse(&words).map(|_| ()).map_err(|error| error.kind());
            assert!(matches!(parsed, Ok(()) | Err(ErrorKind::DisplayHelp)), "{habits}: {part}");
        }
        let root = Cli::command();
        let commands = group.map_or(Some(&root), |group| root.find_subcommand(group)).unwrap();
        let is_ours = |habit: &str| commands.find_subcommand(habit).is_some();
        assert!(!habits.split(' ').any(is_ours), "{group:?}: {habits}");
    }
}

#[test]
fn missing_arguments_are_named_with_every_form_that_works() {
    let all = "`relive pause ID` or `relive pause --all`; `relive ps` lists the processes";
    check("relive pause", Some("`relive pause` needs a process"), Some(all));
    let ended = "`relive rm ID` or `relive rm --all`; `relive ps -a` lists the processes";
    check("relive rm", Some("`relive rm` needs a process"), Some(ended));
    let rewind = "`relive rewind 5 --to-step N`, or `relive rewind 5 --undo` for the last rewind";
    check("relive rewind 5 -y", Some("`relive rewind` needs --to-step N or --undo"), Some(rewind));
    let quote = Some("the intent is more than one word: quote it");
    check("relive run hi there", quote, Some("relive run \"hi there\""));
    check("relive run -d --name a hi there you", quote, Some("relive run -d --name a \"hi there you\""));
    check("relive run it's $HOME", quote, Some("relive run 'it'\\''s $HOME'"));
}

#[test]
fn numbers_are_asked_for_in_plain_words() {
    let about = |value: &str| format!("invalid value '{value}' for '--max-steps <N>': ");
    let check = |value: &str, wanted: &str| {
        check(&format!("relive run --max-steps {value} x"), Some(&(about(value) + wanted)), None);
    };
    check("0", "use a whole number of at least 1");
    check("abc", "use a whole number");
    check("99999999999999999999999", "the number is too large");
    check("4294967296", "the number is too large, use at most 4294967295");
}
