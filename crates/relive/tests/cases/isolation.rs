//! Isolated programs: what they reach, what those below them reach, and what is said of them.

use std::fs;

use serde_json::{Value, json};

use crate::world::{World, wait_for, wait_until};

/// It may have been built in `/tmp`, which is empty for a confined program except for this.
pub(crate) const RELIVE: &str = env!("CARGO_BIN_EXE_relive");

/// Worlds of a machine that can isolate.
pub(crate) fn worlds() -> Vec<World> {
    let rows = World::new().relive(&["doctor", "--json"]).json()["rows"].clone();
    let row = rows.as_array().unwrap().iter().find(|row| row["name"] == "isolation").unwrap().clone();
    if !row["value"].as_str().unwrap().starts_with("namespaces, Landlock") {
        eprintln!("skipped: {row}");
        return Vec::new();
    }
    World::of_each_kind()
}

fn text(world: &World, name: &str) -> Option<String> {
    fs::read_to_string(world.work().join(name)).ok().filter(|text| text.ends_with('\n'))
}

#[test]
fn case_76_a_confined_program_writes_in_its_directory_only_and_info_says_so() {
    for world in worlds() {
        let data = world.data().display().to_string();
        let elsewhere = format!("/tmp/relive-outside-{}", std::process::id());
        let script = format!("echo x > here; echo x > ../outside; echo x > {elsewhere}; ls -A {data}");
        let shown = world.relive(&["exec", "--isolation", "confined", "--name", "held", "--", "sh", "-c", &script]);
        assert_eq!(shown.stdout, "", "the data directory is empty for it: {shown:?}");
        assert_eq!(text(&world, "here").as_deref(), Some("x\n"));
        assert!(!world.root().join("outside").exists() && !fs::exists(&elsewhere).unwrap());
        let session = world.info("held")["session"].clone();
        assert_eq!(session["isolation"], "confined");
        assert!(!session["degraded"].to_string().contains("isolation:"), "{session}");
        let namespaces: Vec<&str> =
            session["namespaces"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert!(["pid", "mount", "ipc"].iter().all(|name| namespaces.contains(name)), "{namespaces:?}");
        let info = world.relive(&["info", "held"]).ok().stdout;
        assert!(info.contains("ISOLATION  confined"), "{info}");

        world.relive(&["exec", "--", "sh", "-c", "echo x > ../outside"]).ok();
        assert!(world.root().join("outside").exists(), "at none it is written");
    }
}

#[test]
fn a_child_of_a_confined_program_reaches_no_more_than_its_parent() {
    for world in worlds() {
        let script = format!(
            "{RELIVE} exec -d --name kid -- sh -c 'echo x > ../outside; echo x > kid'; {RELIVE} wait kid; \
             {RELIVE} exec -d --name away --cwd .. -- sh -c 'echo x > outside'"
        );
        let shown = world.relive(&["exec", "--isolation", "confined", "--", "sh", "-c", &script]);
        assert!(shown.code != 0 && shown.stderr.contains("is outside of"), "{shown:?}");
        assert_eq!(world.info("kid")["session"]["isolation"], "confined");
        assert_eq!(text(&world, "kid").as_deref(), Some("x\n"));
        assert!(!world.root().join("outside").exists());
    }
}

#[test]
fn a_confined_program_reaches_its_own_socket_also_after_the_daemon_was_killed() {
    for world in worlds() {
        let script = format!(
            "{RELIVE} self --json > before; while [ ! -e go ]; do sleep 0.02; done; {RELIVE} self --json > after"
        );
        let begun = world.relive(&["exec", "-d", "--json", "--isolation", "confined", "--", "sh", "-c", &script]);
        let begun = begun.ok().json();
        let about = |name: &str| {
            let said = wait_for(name, || text(&world, name));
            serde_json::from_str::<Value>(&said).unwrap()["uuid"].clone()
        };
        assert_eq!(about("before"), begun["uuid"]);
        world.kill_daemon();
        world.relive(&["ps"]).ok();
        fs::write(world.work().join("go"), "").unwrap();
        assert_eq!(about("after"), begun["uuid"]);
    }
}

#[test]
fn a_confined_program_waits_for_the_daemon_that_somebody_else_starts() {
    for world in worlds() {
        let script = format!(
            "touch ready; while [ ! -e go ]; do sleep 0.02; done; echo > asking; {RELIVE} self --json > after 2>&1"
        );
        let begun = world.relive(&["exec", "-d", "--json", "--isolation", "confined", "--", "sh", "-c", &script]);
        let begun = begun.ok().json();
        wait_until("the program to run", || world.work().join("ready").exists());
        world.kill_daemon();
        fs::write(world.work().join("go"), "").unwrap();
        wait_for("the program to ask", || text(&world, "asking"));
        world.relive(&["ps"]).ok();
        let after = wait_for("the answer", || text(&world, "after"));
        let after = serde_json::from_str::<Value>(&after).unwrap_or_else(|error| panic!("{error}: {after}"));
        assert_eq!(after["uuid"], begun["uuid"]);
    }
}

/// An agent that runs one command and then says that it is done.
fn shell(command: &str) -> String {
    format!("turns: [{{calls: [{{name: shell, args: {}}}]}}, {{text: done}}]", json!({ "command": command }))
}

#[test]
fn the_isolation_of_an_agent_comes_from_the_command_its_file_or_the_configuration() {
    for world in worlds() {
        let model = world.script(&shell("echo x > here; echo x > ../outside"));
        fs::create_dir_all(world.work().join("agents")).unwrap();
        fs::write(world.work().join("agents/held.yaml"), "isolation: confined\n").unwrap();
        let run = |flags: &[&str]| {
            let begun = world.run_model(&model, &[&["--yes"], flags].concat());
            world.relive(&["wait", &begun.uuid]).ok();
            world.info(&begun.uuid)["isolation"].clone()
        };
        assert_eq!(run(&["--isolation", "confined"]), "confined");
        assert_eq!(run(&["--agent", "held"]), "confined");
        world.configure("isolation: {agents: sealed}\n");
        assert_eq!(run(&[]), "sealed");
        assert!(!world.root().join("outside").exists());
        assert_eq!(run(&["--isolation", "none"]), json!(null));
        assert!(world.root().join("outside").exists(), "at none it is written");
    }
}

#[test]
fn a_sealed_agent_works_on_a_copy_unless_it_is_told_to_work_here() {
    for world in worlds() {
        let model = world.script(&shell("echo sealed > made"));
        let flags = ["--yes", "--isolation", "sealed"];
        let run = |more: &[&str]| {
            let begun = world.run_model(&model, &[&flags as &[&str], more].concat());
            world.relive(&["wait", &begun.uuid]).ok();
            world.await_retired(&begun.uuid);
            (world.info(&begun.uuid)["workspace"]["kind"].clone(), begun)
        };
        let (kind, begun) = run(&[]);
        assert_eq!((kind, text(&world, "made")), (json!("own"), None));
        world.relive(&["merge", &begun.uuid]).ok();
        assert_eq!(text(&world, "made").as_deref(), Some("sealed\n"));
        world.relive(&["workspace", "rm", "-y", &begun.uuid]).ok();
        world.relive(&["exec", "--", "rm", "made"]).ok();
        assert_eq!(
            (run(&["--workspace", "here"]).0, text(&world, "made").as_deref()),
            (json!("here"), Some("sealed\n"))
        );
        // Nothing stays of one that cannot begin.
        let args = ["run", "-d", "--model", "script/nothing.yaml", "--isolation", "sealed", "do it"];
        assert_ne!(world.relive(&args).code, 0);
        assert_eq!(world.relive(&["workspace", "list", "--json"]).ok().json(), json!({ "workspaces": [] }));
    }
}

#[test]
fn the_file_tools_of_a_confined_agent_do_not_write_what_its_commands_may_not() {
    for world in worlds() {
        // As the user of the world.
        world.relive(&["exec", "--", "sh", "-c", "echo before > .mcp.json"]).ok();
        let call = json!({ "path": ".mcp.json", "content": "after\n" });
        let turns = format!("turns: [{{calls: [{{name: write, args: {call}}}]}}, {{text: done}}]");
        for (isolation, expect) in [("confined", "before\n"), ("none", "after\n")] {
            let begun = world.run_with(&turns, &["--yes", "--isolation", isolation]);
            world.relive(&["wait", &begun.uuid]).ok();
            assert_eq!(text(&world, ".mcp.json").as_deref(), Some(expect), "{isolation}");
        }
    }
}
