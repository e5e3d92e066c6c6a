//! The files of processes: what is known of them, and where a process may work.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use relive_api::{
    DiffQuery, FileChange, MergeRequest, RemoveWorkspaceRequest, ResumeRequest, RewindRequest, RunRequest,
    WorkspaceKind,
};
use relive_core::{ErrorCode, Timestamp, Uuid};
use relive_runtime::{About, Access, Caller};
use relive_workspace::{Control, Disk, Faults, Force, RestoreRequest, Settings, Snapshot, Store, Workspace};

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

/// Leaves a restore of the directory half done. Returns the packs, without which it cannot be rolled back.
fn interrupt_a_restore(world: &World) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let faults = Arc::new(Faults::default());
    let store = Store::open(&world.data().join("snapshots"), Disk::with_faults(Arc::clone(&faults)), 0).unwrap();
    let mut workspace = Workspace::open(&store, &world.work(), Settings::default()).unwrap();
    let mut state = |text: &str| -> Snapshot {
        ["a", "b", "c"].iter().for_each(|file| fs::write(world.work().join(file), text).unwrap());
        workspace.snapshot(&Control::default()).unwrap().snapshot
    };
    let (first, _) = (state("first"), state("second"));
    let request = RestoreRequest { target: &first, expected: None, paths: &[], force: Force::No };
    let plan = workspace.plan_restore(&request, &Control::default()).unwrap().plan;
    // The plan is written, and some of the files.
    let read = |file: &str| fs::read_to_string(world.work().join(file)).unwrap();
    for changes in 1.. {
        faults.stop_after(changes);
        let _ = workspace.apply(&plan, &Control::default());
        faults.allow_all();
        if read("a") == "first" && read("c") == "second" {
            break;
        }
        assert!(changes < 100 && read("c") == "second", "it was never half done");
        let _ = workspace.settle_interrupted(relive_workspace::Direction::RollBack, &Control::default());
    }
    let packs = fs::read_dir(world.data().join("snapshots/objects/pack")).unwrap().map(|entry| entry.unwrap().path());
    packs.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

#[test]
fn no_process_starts_in_a_directory_that_is_half_restored() {
    let world = World::new();
    let packs = interrupt_a_restore(&world);
    packs.iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
    let daemon = world.start();
    let about = About { data: world.data(), socket: world.data(), started_at: Timestamp::default() };
    let warnings = || daemon.block(daemon.runtime.status(&about)).unwrap().warnings;
    assert!(warnings().iter().any(|text| text.contains("cannot be rolled back")), "{:?}", warnings());
    let refused = daemon.block(daemon.runtime.run(world.hanging())).unwrap_err();
    assert!(refused.to_string().contains("cannot be rolled back"), "{refused}");
    for (path, bytes) in &packs {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
    }
    daemon.run(world.hanging());
    let read = |file: &str| fs::read_to_string(world.work().join(file)).unwrap();
    assert_eq!((read("a"), read("c")), ("second".to_owned(), "second".to_owned()), "it was rolled back first");
    assert!(!warnings().iter().any(|text| text.contains("cannot be rolled back")), "{:?}", warnings());
}

#[test]
fn a_directory_that_ignores_everything_says_so() {
    let world = World::new();
    let daemon = world.start();
    fs::write(world.work().join(".gitignore"), "*\n").unwrap();
    let uuid = run(&world, &daemon, &["one", "two"], "{text: bye}");
    let id = uuid.to_string();
    daemon.wait(uuid);
    assert!(daemon.info(uuid).workspace.unwrap().all_ignored);
    let refused = daemon.block(person(&daemon).rewind(&id, rewind(1), None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    assert!(refused.to_string().contains("are ignored"), "{refused}");
    let diff = daemon.block(daemon.runtime.diff(&id, DiffQuery::default())).unwrap();
    assert!(diff.files.is_empty() && diff.note.unwrap().contains("are ignored"));
}

#[test]
fn a_workspace_whose_merge_left_a_file_out_names_it() {
    let world = World::new();
    let daemon = world.start();
    fs::write(world.work().join("f"), "old").unwrap();
    let script = world.script(&format!("turns: [{}, {}, {{text: bye}}]", write("f"), write("g")));
    let request = RunRequest { yes: true, workspace: Some(WorkspaceKind::Own), ..world.request(&script) };
    let uuid = daemon.run(request).uuid;
    daemon.wait(uuid);
    fs::remove_file(world.work().join("f")).unwrap();
    let merge = MergeRequest { into: None, force: true, dry_run: false };
    daemon.block(person(&daemon).merge(&uuid.to_string(), merge, None)).unwrap();
    let remove = |force| RemoveWorkspaceRequest { id: uuid.to_string(), force, dry_run: false };
    let refused = daemon.block(daemon.runtime.remove_workspace(remove(false))).unwrap_err();
    assert!(refused.to_string().contains("left out f: "), "{refused}");
    let hint = refused.hint().unwrap();
    assert!(!hint.contains("relive merge") && hint.contains("relive workspace rm --force"), "{hint}");
    daemon.block(daemon.runtime.remove_workspace(remove(true))).unwrap();
}
