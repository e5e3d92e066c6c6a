//! Isolated programs in repositories of other layouts, with caches that are missing, and on machines that can do less.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::isolation::{RELIVE, worlds};
use crate::world::{World, wait_until};

const WHO: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; ";

/// Runs a script of the user, outside of every isolation.
fn outside(world: &World, script: &str) {
    world.relive(&["exec", "--", "sh", "-c", &format!("{WHO}{script}")]).ok();
}

#[test]
fn hooks_and_configuration_are_protected_wherever_the_repository_is_kept() {
    // How the repository is made, where a program works, and where its parts are from there.
    let layouts = [
        ("git init -q --bare .bare; echo 'gitdir: ./.bare' > .git", ".", ".bare"),
        ("git init -q --separate-git-dir=kept .", ".", "kept"),
        ("git init -q --bare repo", "repo", "."),
    ];
    for world in worlds() {
        for (number, (make, at, parts)) in layouts.iter().enumerate() {
            outside(&world, &format!("mkdir l{number}; cd l{number}; {make}"));
            let cwd = world.work().join(format!("l{number}/{at}"));
            let cwd = cwd.to_str().unwrap();
            let plant =
                format!("echo x > {parts}/hooks/planted; echo '#x' >> {parts}/config; mv {parts}/hooks {parts}/h2");
            // Also a launch for which the program has moved away what makes it a repository.
            let again = format!(
                "mv {parts}/HEAD {parts}/H; {RELIVE} exec -d --name n{number} -- sh -c '{plant}'; {RELIVE} wait n{number}"
            );
            for script in [&plant, &again] {
                world.relive(&["exec", "--isolation", "confined", "--cwd", cwd, "--", "sh", "-c", script]);
                let path = |name: &str| world.work().join(format!("l{number}/{at}/{parts}/{name}"));
                assert!(path("hooks").exists() && !path("hooks/planted").exists(), "{make}: {script}");
                assert!(!fs::read_to_string(path("config")).unwrap().contains("#x"), "{make}: {script}");
            }
        }
    }
}

#[test]
fn a_submodule_can_be_committed_to() {
    for world in worlds() {
        outside(
            &world,
            "git init -q lib && git -C lib commit -q --allow-empty -m a && git init -q top && cd top && \
             git -c protocol.file.allow=always submodule --quiet add ../lib sub",
        );
        let cwd = world.work().join("top/sub");
        let commit =
            format!("{WHO}git commit -q --allow-empty -m b && echo x > $(git rev-parse --git-dir)/hooks/planted");
        let args = ["exec", "--isolation", "confined", "--cwd", cwd.to_str().unwrap(), "--", "sh", "-c", &commit];
        let shown = world.relive(&args);
        let mut git = Command::new("git");
        git.args(["-c", "safe.directory=*", "-C"]).arg(&cwd).args(["log", "--format=%s"]);
        let log = git.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&log.stdout), "b\na\n", "{shown:?}");
        assert!(!world.work().join("top/.git/modules/sub/hooks/planted").exists(), "{shown:?}");
    }
}

#[test]
fn the_caches_of_build_tools_are_made_for_a_confined_program() {
    for world in worlds() {
        let script = "echo x > ~/.npm/_cacache/a && echo x > ~/.cargo/registry/a";
        world.relive(&["exec", "--isolation", "confined", "--", "sh", "-c", script]).ok();
        assert!(world.root().join("home/.npm/_cacache/a").exists());
    }
}

#[test]
fn the_file_tools_of_a_confined_agent_do_not_make_the_configuration_of_other_agents() {
    for world in worlds() {
        for (isolation, expect) in [("confined", false), ("none", true)] {
            for name in [".mcp.json", ".claude/settings.local.json"] {
                let call = json!({ "path": name, "content": "after\n" });
                let turns = format!("turns: [{{calls: [{{name: write, args: {call}}}]}}, {{text: done}}]");
                let begun = world.run_with(&turns, &["--yes", "--isolation", isolation]);
                world.relive(&["wait", &begun.uuid]).ok();
                assert_eq!(world.work().join(name).exists(), expect, "{isolation} {name}");
            }
            assert_eq!(world.work().join(".claude").exists(), expect, "{isolation}: no empty directory is left");
        }
    }
}

#[test]
fn info_shows_the_limits_of_a_program() {
    let world = World::new();
    let limits = ["--memory", "64M", "--pids", "50", "--cpu", "0.5", "--allow-degraded"];
    world.relive(&[&["exec", "--name", "held"], &limits as &[&str], &["--", "true"]].concat()).ok();
    let session = world.info("held")["session"].clone();
    assert_eq!((&session["pids"], &session["cpu"]), (&json!(50), &json!(500)), "{session}");
    assert_eq!(session["memory"], 64 << 20, "{session}");
    let info = world.relive(&["info", "held"]).ok().stdout;
    let row = info.lines().find(|line| line.starts_with("LIMITS")).unwrap_or_else(|| panic!("{info}"));
    assert!(["memory 64 MiB", "pids 50", "cpu 0.5"].iter().all(|part| row.contains(part)), "{row}");
}

#[test]
fn no_confined_program_works_in_the_directory_of_the_daemons_socket() {
    for world in worlds() {
        world.relive(&["ps"]).ok();
        let cwd = world.root().join("run/relive");
        let inner = cwd.join("inner");
        outside(&world, &format!("mkdir -p {}", inner.display()));
        for cwd in [&cwd, &inner] {
            let args = ["exec", "--isolation", "confined", "--cwd", cwd.to_str().unwrap(), "--", "true"];
            let shown = world.relive(&args);
            assert!(shown.code != 0 && shown.stderr.contains("is hidden at isolation confined"), "{shown:?}");
        }
    }
}

#[test]
fn root_without_capabilities_runs_a_program_with_what_is_left_of_its_isolation() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let world = World::new();
    let relive = world.command(&["exec", "--isolation", "confined", "--allow-degraded", "--", "echo", "ran"]);
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", "-all", "--inh-caps", "-all", "--"])
        .arg(relive.get_program())
        .args(relive.get_args());
    command.current_dir(world.work()).env_clear();
    command.envs(relive.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let shown = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout), "ran\n", "{shown:?}");
}

#[test]
fn info_says_that_the_proxy_of_a_program_has_ended() {
    for world in worlds() {
        let args =
            ["exec", "-d", "--json", "--isolation", "confined", "--net", "allow:example.com", "--", "sleep", "600"];
        let uuid = world.relive(&args).ok().json()["uuid"].as_str().unwrap().to_owned();
        let degraded = || world.info(&uuid)["session"]["degraded"].to_string();
        wait_until("it runs", || world.info(&uuid)["session"]["stage"] == "running");
        assert!(!degraded().contains("proxy"), "{}", degraded());
        let folder = world.info(&uuid)["session"]["folder"].as_str().unwrap().to_owned();
        let is_proxy = |pid: &i32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with("relive-proxy\0") && line.contains(&folder)
        };
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let proxy = pids.into_iter().find(is_proxy).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(proxy).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
        wait_until("it is said", || degraded().contains("its proxy has ended"));
        world.relive(&["kill", &uuid]).ok();
    }
}
