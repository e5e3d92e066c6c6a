//! What a shell is told when somebody presses Tab, and the files that `make install` writes.

use std::process::Command;

use crate::world::World;

/// Presses Tab behind these words in a real bash, with the script of `relive completions bash`.
fn press_tab(world: &World, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <(relive completions bash)
        COMP_WORDS=(relive "$@") COMP_CWORD=$#
        _clap_complete_relive relive "${@: -1}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_relive"));
    let path = std::env::join_paths(
        std::iter::once(program.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash"]).args(words);
    bash.current_dir(world.work());
    let relive = world.command(&[]);
    bash.env_clear().envs(relive.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = bash.env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn tab_completes_commands_flags_and_live_processes() {
    let world = World::new();
    assert!(press_tab(&world, &["pau"]).contains(&"pause".to_owned()));
    assert!(press_tab(&world, &["kill", ""]).iter().all(|word| word.is_empty() || word.starts_with('-')), "no daemon");
    assert_eq!(world.daemon_pid(), None, "pressing Tab starts no daemon");

    world.relive(&["exec", "-d", "--name", "builder", "--", "sleep", "1000"]).ok();
    world.relive(&["exec", "--name", "over", "--", "true"]).ok();
    assert_eq!(press_tab(&world, &["kill", "bui"]), ["builder"]);
    assert!(!press_tab(&world, &["kill", ""]).contains(&"over".to_owned()), "it has ended");
    assert!(press_tab(&world, &["info", ""]).contains(&"over".to_owned()));
}

#[test]
fn tab_offers_each_command_by_its_name_and_quotes_the_names_of_files() {
    let world = World::new();
    let offered = press_tab(&world, &[""]);
    assert!(offered.contains(&"top".to_owned()) && !offered.contains(&"dashboard".to_owned()), "{offered:?}");
    std::fs::write(world.work().join("my file.yaml"), "").unwrap();
    std::fs::create_dir(world.work().join("a dir")).unwrap();
    for typed in ["my", r"my\ fi"] {
        assert_eq!(press_tab(&world, &["compose", "up", typed]), [r"my\ file.yaml"], "{typed}");
    }
    let directories = press_tab(&world, &["exec", "--cwd", ""]);
    assert!(directories.contains(&r"a\ dir/".to_owned()), "{directories:?}");
    assert!(!directories.iter().any(|name| name.contains("file.yaml")), "{directories:?}");
}

#[test]
fn tab_completes_models_of_the_configuration_and_those_with_a_price() {
    let world = World::new();
    world.configure("default_model: ollama/mine\nprices:\n  openai/other: {input: 1, output: 2}\n");
    let offered = press_tab(&world, &["run", "--model", ""]);
    for model in ["ollama/mine", "openai/other", "anthropic/claude-sonnet-4-5", "script/demo"] {
        assert_eq!(offered.iter().filter(|word| *word == model).count(), 1, "{model}: {offered:?}");
    }
    assert_eq!(press_tab(&world, &["resume", "5", "--model", "olla"]), ["ollama/mine"]);
    assert_eq!(world.daemon_pid(), None, "pressing Tab starts no daemon");
}

#[test]
fn the_installed_program_runs_has_manual_pages_and_completions_and_can_be_removed() {
    let world = World::new();
    let prefix = world.root().join("a prefix");
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install");
    let output = Command::new(script).arg(env!("CARGO_BIN_EXE_relive")).arg(&prefix).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && told.contains("/a prefix/bin/relive"), "{told}");
    assert!(told.contains("/a prefix/bin is not in your PATH: export PATH="), "{told}");
    let version = Command::new(prefix.join("bin/relive")).arg("--version").output().unwrap();
    assert!(version.stdout.starts_with(b"relive "), "{version:?}");
    let completions = ["bash-completion/completions/relive", "zsh/site-functions/_relive", "man/man1/relive-run.1"];
    for file in completions.into_iter().chain(["fish/vendor_completions.d/relive.fish", "man/man1/relive.1"]) {
        let text = std::fs::read_to_string(prefix.join("share").join(file)).unwrap();
        assert!(text.contains("relive"), "{file}: {text}");
    }
    let left = std::fs::read_dir(prefix.join("bin")).unwrap().count();
    assert_eq!(left, 1, "nothing temporary is left");

    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/uninstall");
    assert!(Command::new(script).arg(&prefix).status().unwrap().success());
    let find = Command::new("find").arg(&prefix).args(["-type", "f"]).output().unwrap();
    assert_eq!(String::from_utf8(find.stdout).unwrap(), "", "uninstall removes every file");
}
