//! The mistakes of files, each with its place.

use relive_flow::file::Work;
use relive_flow::{ComposeFile, Definition, SupervisorFile};

fn mistakes(text: &str) -> String {
    match ComposeFile::parse("build.yaml", text) {
        Ok(file) => format!("no mistake: {file:?}"),
        Err(error) => error.to_string(),
    }
}

fn check(text: &str, expect: &str) {
    assert_eq!(mistakes(text), expect, "{text}");
}

#[test]
fn a_cycle_is_named_and_has_a_caret() {
    check(
        "nodes:\n  a: {command: [a], depends_on: [c]}\n  b: {command: [b], depends_on: [a]}\n  c: {command: [c], depends_on: [b]}\n",
        "build.yaml:2:34: the nodes depend on each other in a cycle: a -> c -> b -> a\n  |\n2 |   a: {command: [a], depends_on: [c]}\n  |                                  ^",
    );
}

#[test]
fn all_mistakes_are_told_at_once_in_their_order() {
    insta::assert_snapshot!(mistakes(
        "nodes:\n  a: {comand: [a]}\n  b: {command: make, depends_on: [aa, c]}\n  c: {intent: 5, timeout: 10}\n  1st: {command: [x], retries: -1}\n  \
         d: {command: [x], model: m, restart: always}\n  e: {command: [x], intent: y}\n  f: {command: [x], depends_on: {a: done}}\nnode: 5\n"
    ));
}

#[test]
fn results_are_only_of_nodes_that_have_ended_by_then() {
    let text = |on: &str| format!("nodes:\n  a: {{command: [a]}}\n  b: {{intent: 'x {{{{ nodes.a.result }}}}'{on}}}\n");
    assert!(ComposeFile::parse("f", &text(", depends_on: [a]")).is_ok());
    assert!(ComposeFile::parse("f", &text(", depends_on: {a: completed}")).is_ok());
    for on in ["", ", depends_on: {a: started}"] {
        assert!(
            mistakes(&text(on)).contains("3:15: `a` may not have ended by then: add it to `depends_on` of `b`"),
            "{}",
            mistakes(&text(on))
        );
    }
    assert!(
        mistakes("nodes: {a: {intent: '{{ nodes.ab.result }}'}}").contains("there is no node `ab` (did you mean `a`?)")
    );
    assert!(mistakes("nodes: {a: {intent: '{{ nodes.a }}'}}").contains("write `{{ nodes.NAME.result }}`"));
}

#[test]
fn what_is_no_compose_file_is_refused() {
    for (text, expect) in [
        ("", "the file must be a list of `key: value`, not nothing"),
        ("5", "the file must be a list of `key: value`, not a number"),
        ("{}", "the file has no `nodes`"),
        ("nodes: {}", "`nodes` is empty"),
        ("nodes: [a]", "`nodes` must be a list of `key: value`, not a list"),
        ("nodes: {a: }", "`a` must be a list of `key: value`, not nothing"),
        ("nodes: {a: {command: []}}", "`command` is empty"),
        ("nodes: {a: {command: ['']}}", "the program of `command` is empty"),
        (
            "nodes: {a: {command: [x], retries: 99999999999999999999}}",
            "`retries` must be from 0 to 1000, not 99999999999999999999",
        ),
        ("nodes: {a: {command: [x]}, a: {command: [y]}}", "`a` is given twice"),
        ("nodes: {a: {command: [x], restart: {within: 0s}}}", "`within` must be longer than 0s"),
        ("nodes: {a: {command: [x]", "1:"),
    ] {
        assert!(mistakes(text).contains(expect), "{text}: {}", mistakes(text));
    }
}

#[test]
fn a_number_that_is_too_large_is_told_as_it_is_written() {
    let many = "9".repeat(60);
    let said = mistakes(&format!("nodes: {{a: {{intent: x, max_steps: 5000000000, max_tokens: {many}}}}}"));
    assert!(said.contains("`max_steps` must be from 1 to 4294967295, not 5000000000"), "{said}");
    assert!(said.contains(&format!("`max_tokens` must be from 1 to {}, not {many}", u64::MAX)), "{said}");
    let said = mistakes("nodes: {a: {command: [x], timeout: 0s}}");
    assert!(said.contains("`timeout` must be above zero, such as 10m"), "{said}");
    let said = mistakes("nodes: {a: {intent: x, max_steps: 1.5}}");
    assert!(said.contains("`max_steps` must be a whole number, not a fraction"), "{said}");
}

#[test]
fn supervisors_that_are_nested_too_deeply_are_refused() {
    for (levels, expect) in [
        (9, "supervisors are at most 8 levels deep"),
        (30, "the values are nested too deeply: 40 levels are the most"),
        (3000, "the values are nested too deeply: 40 levels are the most"),
    ] {
        let (open, close) = ("{supervisor: {children: {a: ".repeat(levels), "}}}".repeat(levels));
        let text = format!("children: {{a: {open}{{command: [x]}}{close}}}");
        let said = SupervisorFile::parse("f", &text).unwrap_err().to_string();
        assert!(said.contains(expect), "{levels}: {said}");
    }
}

#[test]
fn a_result_is_no_part_of_a_command() {
    let text = |command: &str| {
        let command = command.replace("{}", "{{ nodes.a.result }}");
        format!("nodes: {{a: {{command: [x]}}, b: {{command: [{command}], depends_on: [a]}}}}")
    };
    // Each of these would run it, and there are more of them than anybody can list.
    for command in [
        "'{}', x",
        "nice, '{}'",
        "sh, -c, '$(echo {})'",
        "sh, -c, '`echo {}`'",
        "sh, -c, 'echo {} | sh'",
        "sh, -c, 'eval \"x {}\"'",
        "sh, -c, 'bash <<< \"{}\"'",
        "sh, -c, 'echo $(( {} + 1 ))'",
        "sh, -c, 'echo x | xargs -I% sh -c \"% {}\"'",
        "ssh, host, echo, '{}'",
        "awk, 'BEGIN {print {} }'",
        "perl, '-ne{}'",
        "sed, 's/x/{}/e'",
        "find, ., -exec, sh, -c, '{}', ;",
        "make, 'X={}'",
        "git, -c, 'alias.x=!{}', x",
        "./my-program, '{}'",
        "echo, '{}'",
    ] {
        let said = mistakes(&text(command));
        assert!(
            said.contains("the result of `a` cannot be part of a command, because a program might run it"),
            "{said}"
        );
        assert!(
            said.contains("add `results: [a]`, and the program finds it in the variable RELIVE_RESULT_a"),
            "{said}"
        );
    }
}

#[test]
fn a_command_names_the_results_that_it_is_given() {
    let text = |results: &str| {
        format!(
            "nodes: {{a-b: {{command: [x]}}, a_b: {{command: [x]}}, c: {{command: [x]}},
              d: {{command: [sh, -c, 'echo \"$RELIVE_RESULT_a_b\"'], depends_on: [a-b, a_b], results: {results}}}}}"
        )
    };
    let file = ComposeFile::parse("f", &text("[a-b]")).unwrap();
    assert_eq!(file.nodes[3].task.results, ["a-b"]);
    let check = |results: &str, expect: &str| {
        let said = mistakes(&text(results));
        assert!(said.contains(expect), "{results}: {said}");
    };
    check("a", "`results` must be a list of nodes like [plan], not a text");
    check("[5]", "there is no node `5`");
    check("[a-b, a-b]", "`a-b` is given twice");
    check("[a-b, a_b]", "`a-b` and `a_b` would both be RELIVE_RESULT_a_b: rename one of them");
    check("[a-c]", "there is no node `a-c` (did you mean `a-b`?)");
    check("[c]", "`c` may not have ended by then: add it to `depends_on` of `d`");
    check(&format!("[{}]", vec!["c"; 33].join(", ")), "a command is given at most 32 results, not 33");
    let said = mistakes("nodes: {a: {command: [x]}, b: {intent: x, depends_on: [a], results: [a]}}");
    assert!(said.contains("`results` is for a command: write {{ nodes.NAME.result }} in the intent"), "{said}");
    let said = SupervisorFile::parse("f", "children: {a: {command: [x], results: [a]}}").unwrap_err().to_string();
    assert!(said.contains("no such key in `a`: `results`"), "{said}");
}

#[test]
fn a_result_may_be_that_of_a_node_behind_a_dependency() {
    let text = |on: &str| {
        format!(
            "nodes:\n  a: {{command: [x]}}\n  b: {{command: [x], depends_on: {on}}}\n  \
             c: {{command: [x], results: [a], depends_on: {{b: completed}}}}\n"
        )
    };
    ComposeFile::parse("f", &text("[a]")).unwrap();
    assert!(mistakes(&text("{a: started}")).contains("`a` may not have ended by then: add it to `depends_on` of `c`"));
}

#[test]
fn an_argument_that_is_an_alias_is_the_word_that_it_stands_for() {
    let check = |text: &str, node: usize, expect: &[&str]| {
        let file = ComposeFile::parse("f", text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let Work::Exec { command } = &file.nodes[node].task.work else { panic!("{text}") };
        assert_eq!(command, expect, "{text}");
    };
    check("nodes:\n  c: {command: &k [sleep, 010]}\n  d: {command: *k}\n", 1, &["sleep", "010"]);
    check("nodes:\n  c: {command: [echo, &n 3, *n, &t yes]}\n", 0, &["echo", "3", "3", "yes"]);
    check("nodes:\n  a: &z {command: [echo, 3, true]}\n  b: {<<: *z, depends_on: [a]}\n", 1, &["echo", "3", "true"]);
}

#[test]
fn a_cli_agent_is_named_by_a_word_that_is_known() {
    ComposeFile::parse("f", "nodes: {a: {cli: claude, intent: x, model: opus, max_tokens: 9}}").unwrap();
    SupervisorFile::parse("f", "children: {a: {cli: codex, intent: x, isolation: confined}}").unwrap();
    for (node, expect) in [
        ("cli: claud, intent: x", "`cli` must be one of claude, codex, not `claud` (did you mean `claude`?)"),
        ("cli: claude", "`a` needs an `intent` for an agent"),
        ("cli: claude, command: [x]", "`cli` is for an agent, and `a` runs a command"),
        ("cli: claude, intent: x, allow: [read]", "`allow` cannot be used together with `cli`: claude has its own"),
        ("cli: claude, intent: x, max_steps: 3", "`max_steps` cannot be used together with `cli`: claude decides that"),
        ("cli: codex, intent: x, isolation: sealed", "codex cannot be sealed"),
    ] {
        let said = mistakes(&format!("nodes: {{a: {{{node}}}}}"));
        assert!(said.contains(expect), "{node}: {said}");
    }
}

#[test]
fn a_node_that_waits_for_the_end_of_a_service_is_refused() {
    let text = |on: &str| {
        format!("nodes:\n  db: {{command: [db], restart: permanent}}\n  test: {{command: [t], depends_on: {on}}}\n")
    };
    let refused = "`db` never ends, because it is `restart: permanent`: wait for its start with {db: started}";
    check(
        &text("[db]"),
        &format!(
            "build.yaml:3:37: {refused}\n  |\n3 |   test: {{command: [t], depends_on: [db]}}\n  |                                     ^"
        ),
    );
    for on in ["{db: succeeded}", "{db: completed}"] {
        assert!(mistakes(&text(on)).contains(refused), "{}", mistakes(&text(on)));
    }
    assert!(ComposeFile::parse("f", &text("{db: started}")).is_ok());
    assert!(ComposeFile::parse("f", &text("[db]").replace("permanent", "transient")).is_ok());
}

#[test]
fn services_leave_a_place_for_the_others() {
    let file = |text: &str| Definition::Compose(ComposeFile::parse("f", text).unwrap());
    let service = |name: &str| format!("{name}: {{command: [x], restart: permanent}}");
    let two = format!("nodes: {{{}, {}, test: {{command: [t]}}}}", service("a"), service("b"));
    assert_eq!(file(&two).fits(3), Ok(()));
    assert_eq!(
        file(&two).fits(2).unwrap_err().to_string(),
        "2 services (`restart: permanent`) need 3 places, but limits.max_children is 2"
    );
    assert_eq!(file(&format!("nodes: {{{}, {}}}", service("a"), service("b"))).fits(2), Ok(()));
    assert_eq!(file("nodes: {a: {command: [a]}, b: {command: [b]}}").fits(1), Ok(()));
    let keep = "children: {web: {supervisor: {children: {a: {command: [x]}, b: {command: [x]}}}}}";
    let keep = Definition::Supervisor(SupervisorFile::parse("f", keep).unwrap());
    assert_eq!(keep.fits(2), Ok(()));
    assert_eq!(
        keep.fits(1).unwrap_err().to_string(),
        "2 services (`restart: permanent`) below `web` need 2 places, but limits.max_children is 1"
    );
}

#[test]
fn a_workspace_and_an_isolation_are_words() {
    let text = "nodes:\n  a: {intent: x, workspace: onw}\n  b: {command: [x], isolation: jailed}\n";
    let said = mistakes(text);
    assert!(said.contains("2:29: `workspace` must be one of here, own, not `onw` (did you mean `own`?)"), "{said}");
    assert!(said.contains("3:32: `isolation` must be one of none, confined, sealed, not `jailed`"), "{said}");
}

#[test]
fn a_network_is_a_word_or_a_list_of_domains() {
    let network = |written: &str| {
        let file = ComposeFile::parse("f", &format!("nodes: {{a: {{command: [x], network: {written}}}}}")).unwrap();
        (file.nodes[0].task.network.clone().unwrap().to_string(), file.plan())
    };
    assert_eq!(network("none").0, "none");
    assert_eq!(network("[github.com, '*.crates.io']").0, "allow:github.com,*.crates.io");
    assert_eq!(network("allow:a.com").1, "1. a: exec x, network allow:a.com");
    let check = |written: &str, expect: &str| {
        let said = mistakes(&format!("nodes:\n  a: {{command: [x], network: {written}}}\n"));
        assert!(said.contains(&format!("2:30: {expect}")), "{said}");
    };
    check("of", "`network` must be full, none or a list of domains, not `of`");
    check("[]", "`network` must be full, none or a list of domains, not a list");
    check("7", "`network` must be full, none or a list of domains, not a number");
    check("[a/b]", "`network`: `a/b` is not a domain like github.com");
}

#[test]
fn an_intent_has_a_limited_number_of_results() {
    let file = |count: usize| {
        let results = "{{ nodes.a.result }}".repeat(count);
        ComposeFile::parse("f", &format!("nodes: {{a: {{command: [x]}}, b: {{intent: '{results}', depends_on: [a]}}}}"))
    };
    file(256).unwrap();
    let said = file(257).unwrap_err().to_string();
    assert!(said.contains("`b` has 257 results in it, and 256 are the most"), "{said}");
}

#[test]
fn of_many_mistakes_the_first_are_listed_and_the_others_counted() {
    let keys: String = (0..150).map(|key| format!("  n{key}: {{command: [x], zzz: 1}}\n")).collect();
    let said = mistakes(&format!("nodes:\n{keys}"));
    assert_eq!(said.matches("no such key").count(), 100);
    assert!(said.ends_with("\nand 50 more mistakes"), "{said}");
}

/// Each of these takes minutes if places are searched from the beginning of the file, or names one by one.
#[test]
fn a_file_of_the_largest_size_is_read() {
    let numbers = format!("nodes: {{a: {{command: [x{}]}}}}", ", 010".repeat(150_000));
    let missing = (0..4000).map(|node| {
        let on: Vec<String> = (0..20).map(|other| format!("m{}", node + other)).collect();
        format!("  n{node}: {{command: [x], depends_on: [{}]}}\n", on.join(", "))
    });
    let missing = format!("nodes:\n{}", missing.collect::<String>());
    let numbers = serde_json::to_value(ComposeFile::parse("f", &numbers).unwrap()).unwrap();
    assert_eq!(numbers["nodes"][0]["work"]["exec"]["command"][150_000], "010");
    assert!(mistakes(&missing).ends_with("\nand 79900 more mistakes"));
}

#[test]
fn the_plan_lists_the_nodes_by_the_order_of_their_starts() {
    let text = "nodes:\n  test: {command: [make, test], depends_on: {build: succeeded, db: started}, retries: 2}\n  build: {command: [make]}\n  \
                db: {command: [db], restart: permanent}\n  say: {intent: \"write\\nit down\", depends_on: {test: completed}, workspace: own, isolation: sealed}\n";
    insta::assert_snapshot!(ComposeFile::parse("f", text).unwrap().plan());
    let quoted = ComposeFile::parse("f", "nodes: {a: {command: [sh, -c, 'echo hi']}}").unwrap().plan();
    assert_eq!(quoted, "1. a: exec sh -c 'echo hi'");
}

#[test]
fn the_plan_of_a_supervisor_file_has_the_children_of_supervisors_below_them() {
    let text = "children:\n  db: {command: [./db], isolation: confined}\n  web:\n    supervisor:\n      strategy: one_for_all\n      children:\n        \
                a: {intent: serve, restart: transient}\n        b: {command: [b], fresh: true}\n  once: {command: [x], restart: temporary}\n";
    assert_eq!(
        SupervisorFile::parse("f", text).unwrap().plan(),
        "db: exec ./db, confined\nweb: supervisor, one_for_all\n  a: agent serve, restarted after a failure\n  \
         b: exec b, as a new process each time\nonce: exec x, never restarted"
    );
}

#[test]
fn a_model_that_cannot_exist_is_a_mistake() {
    let said = mistakes("nodes:\n  a: {intent: x, model: antropic/claude}\n");
    assert!(said.contains("2:25: there is no model `antropic/claude`: did you mean anthropic/claude?"), "{said}");
    for model in ["script/x.yaml", "openai/gpt-5", "openai-chat/a/b"] {
        ComposeFile::parse("f", &format!("nodes: {{a: {{intent: x, model: {model}}}}}")).unwrap();
    }
}

#[test]
fn the_mistakes_of_a_supervisor_file_have_their_places() {
    let text = "strategy: one_for_al\nmax_restart: 5\nchildren:\n  a: {command: [a], restart: sometimes}\n  b: {supervisor: {children: {c: {}}}}\n  \
                d: {command: [x], supervisor: {children: {e: {command: [e]}}}}\n  f: {command: ['{{ nodes.a.result }}']}\n";
    insta::assert_snapshot!(SupervisorFile::parse("keep.yaml", text).unwrap_err().to_string());
}

#[test]
fn arguments_are_given_as_they_are_written() {
    let file = ComposeFile::parse(
        "f",
        "nodes:\n  a:\n    command: [x, 010, y, 1.50, true,1e3, no]\n  b:\n    command:\n      - x\n      - 007\n",
    );
    let nodes = serde_json::to_value(file.unwrap()).unwrap();
    assert_eq!(
        nodes["nodes"][0]["work"]["exec"]["command"],
        serde_json::json!(["x", "010", "y", "1.50", "true", "1e3", "no"])
    );
    assert_eq!(nodes["nodes"][1]["work"]["exec"]["command"], serde_json::json!(["x", "007"]));
}

#[test]
fn a_name_that_yaml_reads_as_something_else_is_what_is_written() {
    for name in ["y", "no", "on", "true", "Off"] {
        let text = format!(
            "nodes:\n  {name}: {{command: [x]}}\n  b: {{command: [x], depends_on: [{name}], results: [{name}]}}\n"
        );
        let file = ComposeFile::parse("f", &text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            (file.nodes[1].depends_on[0].node, file.nodes[1].task.results.as_slice()),
            (0, &[name.to_owned()][..])
        );
    }
    let on = |name: &str| mistakes(&format!("nodes:\n  a: {{command: [x], depends_on: [{name}]}}\n"));
    assert!(on("1").starts_with("build.yaml:2:34: there is no node `1`\n"), "{}", on("1"));
    for name in ["null", "~"] {
        let expect =
            "build.yaml:2:34: `depends_on` lists names of nodes, not nothing: put it in quotes if it is a name\n";
        assert!(on(name).starts_with(expect), "{}", on(name));
    }
    let text = "nodes:\n  \"null\": {command: [x]}\n  b: {command: [x], depends_on: [\"null\"]}\n";
    assert!(ComposeFile::parse("f", text).is_ok(), "{}", mistakes(text));
}
