//! The configuration: checked before it counts, and read again when it has changed.

use std::fs;

use super::world::World;

const BROKEN: &str = "gc:\n  retention_days: soon\n";

#[test]
fn a_broken_configuration_leaves_the_daemon_that_runs_alone() {
    let world = World::new();
    world.run_hanging(&[]);
    let daemon = world.daemon_pid().unwrap();
    world.configure(BROKEN);
    world.relive(&["daemon", "restart"]).fails(2, &["config.yaml", "retention_days: soon", "^", "relive config edit"]);
    assert_eq!(world.daemon_pid(), Some(daemon));
    assert_eq!(world.info(1)["display"], "running");
    world.configure("gc: {retention_days: 3}\n");
    world.relive(&["daemon", "restart"]).ok();
    assert_ne!(world.daemon_pid(), Some(daemon));
}

#[test]
fn a_configuration_that_has_changed_holds_without_a_restart() {
    let world = World::new();
    world.relive(&["daemon", "start"]).ok();
    let daemon = world.daemon_pid();
    world.relive(&["run", "-d", "x"]).fails(2, &["no model is set"]);
    let model = world.script("turns: [{text: done}]");
    world.configure(&format!("default_model: {model}\n"));
    world.relive(&["run", "-d", "x"]).ok();
    world.relive(&["wait", "1"]).ok();
    world.configure(BROKEN);
    world.relive(&["run", "-d", "x"]).ok();
    let warnings = world.relive(&["daemon", "status", "--json"]).json()["daemon"]["warnings"].to_string();
    assert!(warnings.contains("the previous one stays in force") && warnings.contains("retention_days"), "{warnings}");
    world.configure(&format!("default_model: {model}\ncheckpoint: {{every_steps: 9}}\n"));
    let warnings = world.relive(&["daemon", "status", "--json"]).json()["daemon"]["warnings"].to_string();
    assert!(warnings.contains("`checkpoint` has changed; it takes effect after: relive daemon restart"), "{warnings}");
    assert_eq!(world.daemon_pid(), daemon);
}

#[test]
fn config_edit_saves_only_a_valid_file() {
    let editor = |world: &World, text: &str| {
        let path = world.work().join("editor");
        fs::write(&path, format!("cat > \"$1\" <<'END'\n{text}\nEND\n")).unwrap();
        format!("sh {}", path.display())
    };
    let world = World::with_config("default_model: script/a\n");
    let file = world.root().join("config/relive/config.yaml");
    assert_eq!(world.relive(&["config", "path"]).ok().stdout, format!("{}\n", file.display()));
    let edit =
        |editor: &str| super::world::output(world.command(&["config", "edit"]).env("EDITOR", editor).output().unwrap());
    edit(&editor(&world, "default_modle: script/b"))
        .fails(2, &["did you mean `default_model`?", "^", "was not changed"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "default_model: script/a\n");
    edit(&editor(&world, "default_model: script/b")).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), "default_model: script/b\n");
    assert_eq!(edit("true").ok().stderr, "nothing was changed\n");
    let json = world.command(&["config", "edit", "--json"]).env("EDITOR", "true").output().unwrap();
    assert_eq!(super::world::output(json).ok().json()["saved"], false);
    // The editor that there is anyway needs a terminal.
    world.relive(&["config", "edit"]).fails(2, &["vi needs a terminal", "hint: relive config path"]);
    edit("false").fails(2, &["the editor `false`"]);
}
