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

/// Edits the configuration with a shell script, whose `$1` is the file that it is given.
fn edit(world: &World, script: &str) -> super::world::Output {
    let path = world.work().join("editor");
    fs::write(&path, script).unwrap();
    let editor = format!("sh {}", path.display());
    super::world::output(world.command(&["config", "edit"]).env("EDITOR", editor).output().unwrap())
}

#[test]
fn config_edit_does_not_undo_what_was_changed_since_the_edit_began() {
    let world = World::with_config("default_model: script/a\n");
    let file = world.root().join("config/relive/config.yaml");
    let read = || fs::read_to_string(&file).unwrap();
    let beside = |end: &str| fs::read_to_string(file.with_extension(format!("yaml.{end}")));
    edit(&world, "echo 'foo: 1' > \"$1\"").fails(2, &["was not changed; your changes are in"]);
    // Nothing has changed since: the next edit continues.
    let told = edit(&world, "true").fails(2, &["foo"]);
    assert!(told.stderr.contains("continuing the edit that was not finished"), "{told:?}");
    // By hand, with a setting that must not get lost.
    let newer = "default_model: script/b\ntools: {write: deny}\n";
    fs::write(&file, newer).unwrap();
    let told = edit(&world, "sed -i s/script.b/script\\\\/c/ \"$1\"").ok();
    assert!(told.stderr.contains("has changed since an edit that was not finished"), "{told:?}");
    assert_eq!(read(), "default_model: script/c\ntools: {write: deny}\n");
    assert_eq!(beside("edit-old").unwrap(), "foo: 1\n", "nothing that was typed is lost");
    assert!(beside("edit").is_err() && beside("edit-base").is_err());
    // Another one is put aside beside it.
    edit(&world, "echo 'foo: 2' > \"$1\"").fails(2, &["was not changed; your changes are in"]);
    fs::write(&file, newer).unwrap();
    let told = edit(&world, "true").ok();
    assert!(told.stderr.contains("config.yaml.edit-old-2 now"), "{told:?}");
    assert_eq!(beside("edit-old").unwrap(), "foo: 1\n");
    assert_eq!(beside("edit-old-2").unwrap(), "foo: 2\n");
}

#[test]
fn config_edit_does_not_replace_a_file_that_changed_while_the_editor_was_open() {
    let world = World::with_config("default_model: script/a\n");
    let file = world.root().join("config/relive/config.yaml");
    let other = format!("echo 'tools: {{write: deny}}' > {}; echo 'git_notes: true' > \"$1\"", file.display());
    let says = ["was changed while you edited it, so it was not replaced", "hint: diff "];
    edit(&world, &other).fails(3, &says);
    assert_eq!(fs::read_to_string(&file).unwrap(), "tools: {write: deny}\n");
    let yours = fs::read_to_string(file.with_extension("yaml.edit")).unwrap();
    assert_eq!(yours, "git_notes: true\n");
}
