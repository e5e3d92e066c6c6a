//! Ways out of an isolation through the daemon, which itself reaches everything of the user's. Each is first shown to succeed at
//! `none`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::isolation::{RELIVE, worlds};
use crate::world::{Output, World, begun, kill, wait_until};

/// Secrets of the user, who works in another directory.
fn secrets(world: &World) -> PathBuf {
    let script = "mkdir -p ../home/.ssh ../home/.config/gcloud ../home/sub; echo secret > ../home/.ssh/id; \
                  echo secret > ../home/.config/gcloud/cred";
    world.relive(&["exec", "--", "sh", "-c", script]).ok();
    world.root().join("home/.ssh")
}

fn inside(world: &World, isolation: &str, script: &str) -> Output {
    world.relive(&["exec", "--isolation", isolation, "--", "sh", "-c", script])
}

/// An agent that makes these calls of tools, each in a turn of its own.
fn calls(world: &World, calls: &[(&str, Value)]) -> String {
    let turn = |(name, args): &(&str, Value)| format!("{{calls: [{{name: {name}, args: {args}}}]}}");
    let turns: Vec<String> = calls.iter().map(turn).collect();
    world.script(&format!("turns: [{}, {{text: done}}]", turns.join(", ")))
}

fn planted(directory: &Path) -> bool {
    let planted = directory.join("planted");
    let found = planted.exists();
    if found {
        fs::remove_file(planted).unwrap();
    }
    found
}

#[test]
fn an_agent_below_an_isolated_program_works_in_the_directory_of_that_one() {
    for world in worlds() {
        let ssh = secrets(&world);
        let model = calls(&world, &[("write", json!({"path": "planted", "content": "x"}))]);
        let script = format!(
            "mkdir -p {ssh}; cd {ssh}; {RELIVE} run -d -y --name bad --model {model} x > {work}/said 2>&1; \
             {RELIVE} wait bad",
            ssh = ssh.display(),
            work = world.work().display()
        );
        let said = || fs::read_to_string(world.work().join("said")).unwrap();
        for isolation in ["confined", "sealed"] {
            inside(&world, isolation, &script);
            assert!(!planted(&ssh), "{isolation}");
            assert!(said().contains("is outside of"), "{}", said());
        }
        let shell = calls(&world, &[("shell", json!({ "command": script }))]);
        let agent = world.run_model(&shell, &["--yes"]);
        world.relive(&["wait", &agent.uuid]).ok();
        assert!(!planted(&ssh) && said().contains("is outside of"), "by the shell of an agent: {}", said());
        world.configure("isolation: {agents: none}\n");
        inside(&world, "none", &script).ok();
        assert!(planted(&ssh), "at none it is written: {}", said());
    }
}

#[test]
fn a_node_of_a_tree_below_an_isolated_program_works_in_the_directory_of_that_one() {
    for world in worlds() {
        let ssh = secrets(&world);
        let model = calls(&world, &[("write", json!({"path": "planted", "content": "x"}))]);
        let node = format!("nodes: {{a: {{intent: x, model: {model}, allow: [write], cwd: {}}}}}", ssh.display());
        fs::write(world.work().join("tree.yaml"), node).unwrap();
        let script = format!("{RELIVE} compose up -d --name tree tree.yaml; {RELIVE} wait tree");
        inside(&world, "confined", &script);
        assert!(!planted(&ssh));
        world.configure("isolation: {agents: none}\n");
        inside(&world, "none", &format!("{RELIVE} compose up -d --name open tree.yaml; {RELIVE} wait open")).ok();
        assert!(planted(&ssh), "at none it is written");
    }
}

#[test]
fn a_link_in_place_of_the_directory_of_a_confined_agent_is_not_followed() {
    for world in worlds() {
        let ssh = secrets(&world);
        let wait = json!({"command": "echo > begun; while [ ! -e go ]; do sleep 0.02; done"});
        let model = calls(&world, &[("shell", wait), ("write", json!({"path": "planted", "content": "x"}))]);
        let script = format!(
            "mkdir sub; cd sub; {RELIVE} run -d -y --name swapped --model {model} x; cd ..; \
             while [ ! -e sub/begun ]; do sleep 0.02; done; mv sub old; ln -s {} sub; echo > old/go; \
             {RELIVE} wait swapped; rm sub; rm -r old",
            ssh.display()
        );
        inside(&world, "confined", &script);
        assert!(!planted(&ssh));
        inside(&world, "none", &script.replace("swapped", "open").replace("run -d", "run -d --isolation none"));
        assert!(planted(&ssh), "at none it is written");
    }
}

#[test]
fn the_file_tools_of_a_confined_agent_do_not_read_what_is_hidden_from_its_commands() {
    for world in worlds() {
        secrets(&world);
        let model = calls(&world, &[("read", json!({"path": ".ssh/id"})), ("search", json!({"pattern": "secret"}))]);
        for (isolation, expect) in [("confined", false), ("none", true)] {
            let mut command =
                world.command(&["run", "-d", "--json", "-y", "--isolation", isolation, "--model", &model, "x"]);
            let begun = command.current_dir(world.root().join("home")).output().unwrap();
            let begun: Value = serde_json::from_slice(&begun.stdout).unwrap();
            let uuid = begun["uuid"].as_str().unwrap();
            world.relive(&["wait", uuid]).ok();
            let results = json!(world.records(uuid, "call_ended")).to_string();
            assert_eq!(results.contains("id:1"), expect, "{isolation}: {results}");
            assert_eq!(results.contains("is hidden"), !expect, "{isolation}: {results}");
        }
    }
}

#[test]
fn the_commands_of_an_agent_on_a_copy_work_below_a_confined_program() {
    for world in worlds() {
        let model = calls(&world, &[("shell", json!({"command": "echo x > made; echo x > ../outside"}))]);
        let script = format!("{RELIVE} run -d -y --name kid --workspace own --model {model} x; {RELIVE} wait kid");
        inside(&world, "confined", &script).ok();
        let kid = world.info("kid");
        let copy = PathBuf::from(kid["workspace"]["path"].as_str().unwrap());
        assert_eq!(fs::read_to_string(copy.join("made")).unwrap(), "x\n", "{kid}");
        assert!(!copy.parent().unwrap().join("outside").exists());
    }
}

#[test]
fn no_copy_is_made_of_what_is_hidden_from_a_confined_agent() {
    for world in worlds() {
        world.relive(&["exec", "--", "sh", "-c", "mkdir keys; echo secret > keys/id"]).ok();
        world.configure(&format!("isolation: {{hidden: [{}]}}\n", world.work().join("keys").display()));
        let model = calls(&world, &[("shell", json!({"command": "cat keys/id"}))]);
        let run = |isolation: &str| {
            world.relive(&["run", "-d", "-y", "--isolation", isolation, "--workspace", "own", "--model", &model, "x"])
        };
        for isolation in ["confined", "sealed"] {
            let shown = run(isolation);
            assert!(shown.code != 0 && shown.stderr.contains("would contain"), "{isolation}: {shown:?}");
        }
        run("none").ok();
    }
}

#[test]
fn a_confined_program_merges_into_its_own_directory_only() {
    for world in worlds() {
        let ssh = secrets(&world);
        world.relive(&["exec", "--", "git", "init", "-q", "."]).ok();
        let model = calls(&world, &[("write", json!({"path": "planted", "content": "x"}))]);
        let merge = |name: &str| {
            format!(
                "{RELIVE} run -d -y --name {name} --workspace own --model {model} x; {RELIVE} wait {name}; \
                 mkdir -p {ssh}; {RELIVE} merge {name} --into {ssh}; {RELIVE} merge {name} --into .git/hooks",
                ssh = ssh.display()
            )
        };
        let hooks = world.work().join(".git/hooks");
        let shown = inside(&world, "confined", &merge("held"));
        assert!(!planted(&ssh) && !planted(&hooks), "{shown:?}");
        let words = ["is outside of", "a Git repository's own directory"];
        assert!(words.iter().all(|words| shown.stderr.contains(words)), "{shown:?}");
        let shown = inside(&world, "confined", &format!("{RELIVE} merge held"));
        assert!(shown.code != 0, "it is not below this one: {shown:?}");
        world.configure("isolation: {agents: none}\n");
        let shown = inside(&world, "none", &merge("open"));
        assert!(planted(&ssh), "at none it is written: {shown:?}");
        assert!(!planted(&hooks), "nobody merges into a repository: {shown:?}");
    }
}

#[test]
fn a_confined_program_puts_no_file_back_that_other_programs_run_commands_from() {
    for world in worlds() {
        let model = calls(&world, &[("write", json!({"path": "made", "content": "x"}))]);
        let settings = world.work().join(".claude/settings.json");
        let has_settings = |text: &str| fs::read_to_string(&settings).is_ok_and(|found| found == text);
        world.configure("isolation: {agents: none}\n");
        for (isolation, verb) in
            [("confined", "rewind"), ("confined", "restore"), ("none", "rewind"), ("none", "restore")]
        {
            world
                .relive(&[
                    "exec",
                    "--",
                    "sh",
                    "-c",
                    "rm -f ready go; mkdir -p .claude; printf one > .claude/settings.json",
                ])
                .ok();
            let arguments = match verb {
                "rewind" => "--to-step 1 --force",
                _ => "--step 1 --force .claude/settings.json",
            };
            let kid = format!("{isolation}-{verb}");
            let script = format!(
                "{RELIVE} run -d -y --isolation {isolation} --name {kid} --model {model} x; {RELIVE} wait {kid}; touch ready; \
                 until [ -e go ]; do sleep 0.05; done; {RELIVE} {verb} {kid} {arguments}"
            );
            let running = world.start(&["exec", "--isolation", isolation, "--", "sh", "-c", &script]);
            crate::world::wait_until("its child has ended", || world.work().join("ready").exists());
            world.relive(&["exec", "--", "sh", "-c", "printf two > .claude/settings.json; touch go"]).ok();
            let shown = crate::world::finish(running);
            let is_confined = isolation == "confined";
            assert!(has_settings(if is_confined { "two" } else { "one" }), "{kid}: {shown:?}");
            assert_eq!(shown.stderr.contains("names commands"), is_confined, "{kid}: {shown:?}");
        }
    }
}

#[test]
fn a_confined_program_on_a_copy_does_not_merge_into_the_directory_that_was_copied() {
    for world in worlds() {
        let merge = format!("echo x > planted; {RELIVE} merge held --force > said 2>&1");
        let model = calls(&world, &[("shell", json!({ "command": merge }))]);
        let begun = world.run_model(&model, &["--yes", "--isolation", "sealed", "--name", "held"]);
        world.relive(&["wait", &begun.uuid]).ok();
        assert!(!planted(&world.work()));
        let copy = PathBuf::from(world.info(&begun.uuid)["workspace"]["path"].as_str().unwrap());
        let said = fs::read_to_string(copy.join("said")).unwrap();
        assert!(said.contains("is outside of"), "{said}");
    }
}

#[test]
fn no_file_outside_of_its_directory_is_read_as_the_script_of_a_confined_program() {
    for world in worlds() {
        world.relive(&["exec", "--", "sh", "-c", "echo machine a password hunter2 > ../home/.netrc"]).ok();
        let netrc = format!("script/{}", world.root().join("home/.netrc").display());
        let shown = inside(&world, "confined", &format!("{RELIVE} run -d --model {netrc} x"));
        assert!(shown.stderr.contains("is outside of"), "{shown:?}");
        let spawn = calls(&world, &[("spawn_agent", json!({"intent": "x", "model": netrc}))]);
        let agent = world.run_model(&spawn, &["--yes"]);
        world.relive(&["wait", &agent.uuid]).ok();
        let told = json!(world.records(&agent.uuid, "call_ended")).to_string();
        assert!(told.contains("is outside of"), "{told}");

        // Nobody is shown a line of a file that is no script.
        let shown = world.relive(&["run", "-d", "--model", &netrc, "x"]);
        assert!(shown.code != 0 && shown.stderr.contains("has no `turns:`"), "{shown:?}");
        assert!(!shown.stderr.contains("hunter2"), "{shown:?}");
        let shown = world.relive(&["run", "-d", "--model", "script//proc/self/status", "x"]);
        assert!(shown.code != 0 && shown.stderr.contains("it is a file of the kernel"), "{shown:?}");
    }
}

#[test]
fn the_directories_above_a_hidden_place_cannot_be_renamed() {
    for world in worlds() {
        secrets(&world);
        let script = "mv home/.config home/c2; mv home h2; cat home/c2/gcloud/cred h2/c2/gcloud/cred; true";
        let run = |isolation: &str, script: &str| {
            let mut command = world.command(&["exec", "--isolation", isolation, "--", "sh", "-c", script]);
            command.current_dir(world.root()).output().unwrap()
        };
        let shown = run("confined", &format!("mv run r2; {script}"));
        assert!(!String::from_utf8_lossy(&shown.stdout).contains("secret"), "{shown:?}");
        let names = ["home/.config/gcloud/cred", "run"];
        assert!(names.iter().all(|name| world.root().join(name).exists()), "{shown:?}");
        let shown = run("none", script);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("secret"), "at none it is read: {shown:?}");
    }
}

#[test]
fn the_configuration_of_relive_is_out_of_reach_in_the_home_directory_too() {
    for world in worlds() {
        // What the daemon runs for new items, without any isolation.
        let script = "mv config c2; mkdir -p config/relive/agents; echo 'notify: id' > config/relive/config.yaml; \
                      echo 'isolation: none' > config/relive/agents/x.yaml";
        let run = |isolation: &str| {
            let mut command = world.command(&["exec", "--isolation", isolation, "--", "sh", "-c", script]);
            command.current_dir(world.root()).output().unwrap()
        };
        let config = world.root().join("config/relive/config.yaml");
        let (before, agent) = (fs::read(&config).ok(), config.with_file_name("agents").join("x.yaml"));
        for isolation in ["confined", "sealed"] {
            let shown = run(isolation);
            assert!(fs::read(&config).ok() == before && !agent.exists(), "{isolation}: {shown:?}");
        }
        let calls =
            calls(&world, &[("write", json!({"path": "config/relive/config.yaml", "content": "notify: id\n"}))]);
        let agent = world.command(&["run", "-y", "--model", &calls, "x"]).current_dir(world.root()).output().unwrap();
        assert_eq!(fs::read(&config).ok(), before, "by the file tools of an agent: {agent:?}");
        run("none");
        assert_ne!(fs::read(&config).ok(), before, "at none it is written");
    }
}

#[test]
fn nobody_isolated_works_in_the_data_directory() {
    for world in worlds() {
        let directory = world.data().join("steps");
        let directory = directory.to_str().unwrap();
        for isolation in ["confined", "sealed"] {
            world
                .relive(&["exec", "--cwd", directory, "--isolation", isolation, "--", "touch", "planted"])
                .fails(126, &["is hidden at isolation"]);
        }
        assert!(!planted(Path::new(directory)));
        world.relive(&["exec", "--cwd", directory, "--isolation", "none", "--", "touch", "planted"]).ok();
        assert!(planted(Path::new(directory)), "at none it is written");
    }
}

#[test]
fn an_agent_file_of_the_working_directory_does_not_loosen_the_isolation() {
    for world in worlds() {
        let agents = world.work().join(".relive/agents");
        fs::create_dir_all(&agents).unwrap();
        let path = agents.join("x.yaml");
        let model = world.script("turns: [{text: done}]");
        let run = || world.relive(&["run", "-y", "--agent", "x", "--model", &model, "hi"]);
        let refused = |text: &str, word: &str| {
            fs::write(&path, format!("{text}\n")).unwrap();
            let said = format!("x.yaml: `{word}` is not accepted from a file of the working directory");
            run().fails(2, &[&said, "hint: move it to"]);
        };
        refused("isolation: none", "isolation: none");
        for configured in ["network: [example.com]", "network: none", "agents: sealed"] {
            world.configure(&format!("isolation: {{{configured}}}\n"));
            refused("network: full", "network");
            refused("network: [example.org]", "network");
        }
        fs::write(&path, "isolation: confined\n").unwrap();
        let held = world.run_model(&model, &["--agent", "x"]);
        assert_eq!(world.info(&held.uuid)["isolation"], "sealed", "as the configuration says");
    }
}

/// Makes the working directory look like a repository, which Git takes it for as soon as `.git` has lost its HEAD.
const PLANT: &str = "mkdir objects refs && echo 'ref: refs/heads/main' > HEAD && rm .git/HEAD && \
                     printf '[core]\\nrepositoryformatversion=0\\nbare=false\\nworktree=%s\\n\
                     fsmonitor=\"touch %s/planted; false\"\\n' \"$PWD\" \"$PWD\" > config";

/// Runs `git status` in the working directory, as a person would outside.
fn git_status(world: &World) -> std::process::Output {
    let mut git = std::process::Command::new("git");
    git.current_dir(world.work()).env("HOME", world.root()).args(["-c", "safe.directory=*", "status"]);
    git.output().unwrap()
}

#[test]
fn git_runs_nothing_that_a_confined_program_wrote_into_its_working_directory() {
    for world in worlds() {
        for (isolation, runs) in [("confined", false), ("none", true)] {
            inside(&world, "none", "git init -q").ok();
            inside(&world, isolation, PLANT).ok();
            let said = git_status(&world);
            assert_eq!(planted(&world.work()), runs, "{isolation}: {said:?}");
            for part in ["objects", "refs", ".git"] {
                fs::remove_dir_all(world.work().join(part)).unwrap();
            }
            // What it wrote is kept.
            for file in ["config", if runs { "HEAD" } else { "HEAD.disabled" }] {
                fs::remove_file(world.work().join(file)).unwrap();
            }
        }
        // Names and modes that the program chose keep nobody from disabling it.
        inside(&world, "none", "git init -q").ok();
        let taken = "touch HEAD.disabled; for number in $(seq 1 99); do touch HEAD.disabled.$number; done; chmod 555 .";
        inside(&world, "confined", &format!("{PLANT} && {taken}")).ok();
        let said = git_status(&world);
        assert!(!planted(&world.work()) && !world.work().join("HEAD").exists(), "{said:?}");
        inside(&world, "none", "chmod 755 . && rm -rf .git HEAD* objects refs config").ok();
        // A directory that cannot be read is watched too.
        inside(&world, "none", "git init -q").ok();
        inside(&world, "confined", "chmod 333 .").ok();
        inside(&world, "confined", PLANT).ok();
        let said = git_status(&world);
        assert!(!planted(&world.work()) && !world.work().join("HEAD").exists(), "{said:?}");
        inside(&world, "none", "chmod 755 . && rm -rf .git HEAD* objects refs config").ok();
        // The objects may be elsewhere too.
        inside(&world, "none", "git init -q").ok();
        inside(&world, "confined", "mkdir -p evil/objects evil/refs; echo evil > commondir; cp .git/HEAD HEAD").ok();
        assert!(!world.work().join("HEAD").exists() && world.work().join("HEAD.disabled").exists());
        inside(&world, "none", "rm -rf .git HEAD.disabled commondir evil").ok();
        // The other way round: in a bare repository, a repository that Git finds first.
        inside(&world, "none", "git init -q --bare").ok();
        inside(&world, "confined", "git init -q .git && touch .git/planted").ok();
        assert!(!world.work().join(".git").exists() && world.work().join(".git.disabled/planted").exists());
    }
}

#[test]
fn git_runs_nothing_that_a_confined_program_planted_before_its_shim_was_lost() {
    for world in worlds() {
        for (isolation, runs) in [("confined", false), ("none", true)] {
            inside(&world, "none", "git init -q").ok();
            let script = format!("{PLANT} && touch ready && exec sleep 1000");
            let began = world.relive(&["exec", "-d", "--json", "--isolation", isolation, "--", "sh", "-c", &script]);
            let began = begun(&began.ok().json());
            wait_until("the program to have planted it", || world.work().join("ready").exists());
            let folder = world.info(&began.uuid)["session"]["folder"].as_str().unwrap().to_owned();
            let state: Value = serde_json::from_slice(&fs::read(Path::new(&folder).join("state")).unwrap()).unwrap();
            kill(u32::try_from(state["shim_pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
            world.relive(&["wait", &began.uuid]);
            let said = git_status(&world);
            assert_eq!(planted(&world.work()), runs, "{isolation}: {said:?}");
            inside(&world, "none", "rm -rf .git HEAD* objects refs config ready").ok();
        }
    }
}
