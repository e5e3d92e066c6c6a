//! Many programs that print while their daemon is killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use relive_session::SessionDirectory;
use relive_session::directory::State;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use super::sessions_support::{is_alive, with_variable};
use super::world::{Begun, World, wait_until};

const SESSIONS: usize = 50;
/// As the program has it, in bursts of a hundred. After half of them it waits for the second gate.
const LINES: usize = 2000;
const PRINT: &str = "i=0; : <begin; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); \
                     case $i in 1000) : <go;; *00) sleep 0.01;; esac; done; exit $1";

/// Whoever opens it to read waits until somebody holds it to write.
struct Gate(PathBuf);

impl Gate {
    fn new(path: PathBuf) -> Self {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        Self(path)
    }

    /// Stays open as long as the answer is kept.
    fn open(&self) -> File {
        File::options().read(true).write(true).open(&self.0).unwrap()
    }
}

/// What the shim of a process's only session last said of itself.
fn state(world: &World, of: &Begun) -> State {
    let sessions = fs::read_dir(world.directory(&of.uuid).join("sessions")).unwrap();
    let [path] = <[PathBuf; 1]>::try_from(sessions.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()).unwrap();
    SessionDirectory::open(path).unwrap().read_state().unwrap().unwrap()
}

fn printed_bytes(world: &World, of: &Begun) -> u64 {
    let sessions = fs::read_dir(world.directory(&of.uuid).join("sessions")).into_iter().flatten().flatten();
    sessions.filter_map(|entry| fs::metadata(entry.path().join("log")).ok()).map(|log| log.len()).sum()
}

/// Whether there is still an OS process that was started for a session in this folder: its shim, or its init.
fn has_shims(data: &Path) -> bool {
    let data = data.to_str().unwrap();
    let commands =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    commands.into_iter().any(|command| {
        command.starts_with(relive_session::SHIM.as_bytes()) && String::from_utf8_lossy(&command).contains(data)
    })
}

#[test]
fn case_39_fifty_programs_that_print_while_their_daemon_is_killed_lose_no_line_and_no_end() {
    let world = World::new();
    let [begin, go] = ["begin", "go"].map(|name| Gate::new(world.work().join(name)));
    let mark = format!("CROWD={}", world.root().display());
    let exec = |number: usize| {
        let code = (number % 7).to_string();
        world.exec(&["--env", &mark], &["sh", "-c", PRINT, "sh", &code])
    };
    let begun: Vec<Begun> = (0..SESSIONS).map(exec).collect();
    begun.iter().for_each(|begun| _ = world.await_stage(begun, "running"));

    let _begin = begin.open();
    // All are at it, and none can be done before the second gate.
    wait_until("all of them print", || begun.iter().all(|begun| printed_bytes(&world, begun) > 0));
    world.kill_daemon();
    let _go = go.open();

    let whole: String = (0..LINES).map(|line| format!("line {line}\n")).collect();
    for (number, begun) in begun.iter().enumerate() {
        let code = i32::try_from(number % 7).unwrap();
        assert_eq!(world.ends(begun, code)["status"], json!({"kind": "exited", "code": code}));
        let printed = world.relive(&["logs", &begun.uuid]).ok().stdout;
        // Not by `assert_eq`, which would show both.
        assert!(printed == whole, "{number}: {} bytes of {}, {:?}", printed.len(), whole.len(), printed.lines().last());
    }

    let states: Vec<State> = begun.iter().map(|begun| state(&world, begun)).collect();
    wait_until("the shims have gone", || {
        !has_shims(&world.data()) && states.iter().all(|state| !is_alive(u64::try_from(state.shim_pid).unwrap()))
    });
    assert_eq!(with_variable(&mark), [0; 0], "programs");
    for state in &states {
        for leaf in
            [&state.tree.v2, &state.tree.v1_freezer, &state.tree.v1_memory, &state.tree.v1_pids, &state.tree.v1_cpu]
        {
            // The folder they were all in goes with the last.
            assert!(!leaf.as_ref().is_some_and(|leaf| leaf.parent().unwrap().exists()), "{leaf:?} or another is left");
        }
    }
}
