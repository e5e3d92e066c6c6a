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
