//! The files of processes: what is known of them, and where a process may work.

use std::fs;
use std::sync::Arc;

use relive_api::{DiffQuery, FileChange, ResumeRequest, RewindRequest, RunRequest, WorkspaceKind};
use relive_core::{ErrorCode, Uuid};
use relive_runtime::{Access, Caller};

use crate::world::{Daemon, World, new_uuid, resume};

fn write(path: &str) -> String {
    format!("{{calls: [{{name: write, args: {{path: {path}, content: x}}}}]}}")
}

/// Runs an agent that writes these files, one in each step, and then does what the last turn says.
fn run(world: &World, daemon: &Daemon, files: &[&str], last: &str) -> Uuid {
    let turns: Vec<String> = files.iter().map(|file| write(file)).chain([last.to_owned()]).collect();
    let script = world.script(&format!("turns: [{}]", turns.join(", ")));
    daemon.run(RunRequest { yes: true, ..world.request(&script) }).uuid
}

fn paths(files: &[FileChange]) -> Vec<&str> {
    files.iter().map(|file| file.path.as_str()).collect()
}

fn rewind(to_step: u32) -> RewindRequest {
    RewindRequest { to_step, undo: false, files_only: false, force: false, dry_run: false }
}

fn person(daemon: &Daemon) -> Access {
    Access::new(Arc::clone(&daemon.runtime), Caller::Person)
}

fn fork(step: u32, workspace: Option<WorkspaceKind>) -> ResumeRequest {
    ResumeRequest { fork: Some(new_uuid()), from_step: Some(step), workspace, ..resume() }
}

#[test]
fn while_the_model_thinks_the_files_of_the_last_step_are_known() {
    let world = World::new();
    let daemon = world.start();
    let uuid = run(&world, &daemon, &["one", "two"], "{hang: true}");
    let id = uuid.to_string();
    daemon.until_records(&world, uuid, "model_started", 3);
    assert_eq!(world.of_kind(uuid, "snapshot").len(), 2, "the last one is recorded with the next record");
    let diff = |query| daemon.block(daemon.runtime.diff(&id, query)).unwrap();
    assert_eq!(paths(&diff(DiffQuery::default()).files), ["one", "two"]);
    let step = diff(DiffQuery { from: Some(2), ..DiffQuery::default() });
    assert_eq!((paths(&step.files), step.note), (vec!["two"], None));
    assert_eq!(daemon.info(uuid).workspace.unwrap().changed, Some(2));
    let dry = RewindRequest { dry_run: true, ..rewind(2) };
    assert_eq!(daemon.block(person(&daemon).rewind(&id, dry, None)).unwrap().restored, 0);
    let forked = daemon.resume(uuid, fork(2, None), None);
    let workspace = forked.workspace.unwrap();
    assert_eq!(workspace.kind, WorkspaceKind::Own);
    assert_eq!(fs::read_to_string(format!("{}/two", workspace.path)).unwrap(), "x");
    let rewound = daemon.block(person(&daemon).rewind(&id, rewind(1), None)).unwrap();
    assert_eq!((paths(&rewound.files), rewound.verified), (vec!["two"], true));
}

#[test]
fn a_fork_works_beside_a_live_original_only_if_it_is_told_to() {
    let world = World::with(|config| config.workspace.max_files = 1);
    let daemon = world.start();
    fs::write(world.work().join("other"), "x").unwrap();
    let uuid = run(&world, &daemon, &["one"], "{hang: true}");
    daemon.until_records(&world, uuid, "model_started", 2);
    let request = fork(1, None);
    let refused = daemon.block(daemon.runtime.resume(&uuid.to_string(), request, None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    assert!(refused.to_string().contains("not known"), "{refused}");
    assert!(refused.hint().unwrap().contains("--workspace here"));
    let forked = daemon.resume(uuid, fork(1, Some(WorkspaceKind::Here)), None);
    assert_eq!(forked.workspace.unwrap().kind, WorkspaceKind::Here);
    daemon.signal(uuid, "KILL", None);
    daemon.wait(uuid);
    let forked = daemon.resume(uuid, fork(1, None), None);
    assert_eq!(forked.workspace.unwrap().kind, WorkspaceKind::Here, "nobody works there any more");
}
