//! `relive demo`: the promise, shown on a real daemon.
//!
//! Everything happens in a folder of its own: its data, its socket, its daemon, its agents. The commands it prints are
//! the ones it runs, with this very program. However it ends, its daemon is killed and its folder removed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use relive_journal::Disk;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::error::{CommandError, Outcome};

/// Show what Relive does: agents as a tree, paused, their daemon killed with -9, recovered, forked
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive demo   takes about ten seconds and needs no key, network, root or configuration")]
pub(crate) struct Args {}

const SCRIPTS: [(&str, &str); 3] = [
    ("lead.yaml", include_str!("demo/lead.yaml")),
    ("writer.yaml", include_str!("demo/writer.yaml")),
    ("reader.yaml", include_str!("demo/reader.yaml")),
];
const PATIENCE: Duration = Duration::from_secs(30);
const INTERRUPTED: u8 = 130;

pub(crate) async fn run() -> Outcome<u8> {
    let stage = Arc::new(Stage::new()?);
    let (done, finished) = oneshot::channel();
    let actor = Arc::clone(&stage);
    std::thread::spawn(move || done.send(show(&actor)));
    let outcome = tokio::select! {
        played = finished => played.unwrap_or_else(|_| Err(CommandError::internal("the demo broke off"))).map(|()| 0),
        _ = tokio::signal::ctrl_c() => Ok(INTERRUPTED),
    };
    stage.clear();
    outcome
}

/// The whole show.
fn show(stage: &Stage) -> Outcome<()> {
    say("An agent is a process. This one splits its work between two children:");
    stage.command(&["run", "-d", "--name", "lead", "--model", "script/lead.yaml", "make notes"])?;
    stage.until("three agents run", || Ok(stage.processes()?.len() == 3))?;
    stage.command(&["ps", "--tree"])?;

    say("A subtree is paused and resumed as one. Each stops at a boundary; its clock stands still:");
    stage.command(&["pause", "--subtree", "lead"])?;
    stage.until("all are suspended", || {
        Ok(stage.processes()?.iter().all(|process| process["display"] == "suspended"))
    })?;
    stage.command(&["ps", "--tree"])?;
    stage.command(&["resume", "--subtree", "lead"])?;

    stage.until("the writer is in its third step", || Ok(stage.step_of("writer")? >= 2))?;
    let daemon = stage.daemon()?;
    say("Now the daemon dies, in the middle of a step. Nobody gets to say goodbye:");
    stage.kill_daemon(daemon)?;
    say("The next command starts another one. Same agents, same histories, new PIDs, and on they go:");
    stage.command(&["ps", "--tree"])?;
    stage.command(&["wait", "lead"])?;

    say("What was open in the journal was settled by looking at the file, so each line is there once:");
    println!("  $ cat notes.txt");
    let notes = std::fs::read_to_string(stage.folder.join("notes.txt"))?;
    print!("{}", indent(&notes));
    let twice = notes.lines().enumerate().find(|(place, line)| notes.lines().take(*place).any(|other| other == *line));
    if let Some((_, line)) = twice {
        return Err(CommandError::internal(format!("a line was written twice: {line}")));
    }

    say("Dead means frozen, not gone: any step of any history can be gone on from, as another process:");
    let writer = stage.json(&["ps", "-a"])?;
    let writer = last_named(&writer, "writer").ok_or_else(|| CommandError::internal("the writer is gone"))?;
    let fork = ["resume", "--fork", "--from-step", "4", "--name", "again", &writer];
    stage.command(&fork)?;
    stage.command(&["lineage", "again"])?;
    stage.command(&["wait", "again"])?;
    stage.command(&["steps", "again"])?;

    say("That was all real: four agents, two daemons, one of them killed. Their folder is removed again.");
    say("Yours:  relive run --model script/demo \"show me\"");
    Ok(())
}

/// The UUID of the newest process of that name.
fn last_named(list: &Value, name: &str) -> Option<String> {
    let processes = list["processes"].as_array()?;
    let named = processes.iter().rev().find(|process| process["name"] == name)?;
    named["uuid"].as_str().map(str::to_owned)
}

/// A folder, a daemon and agents of the demo's own.
#[derive(Debug)]
struct Stage {
    exe: PathBuf,
    folder: PathBuf,
}

impl Stage {
    fn new() -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("relive-demo-").tempdir()?.keep();
        let stage = Self { exe: std::env::current_exe()?, folder };
        for (name, text) in SCRIPTS {
            Disk::new().put(&stage.folder.join(name), text.as_bytes())?;
        }
        Ok(stage)
    }

    fn relive(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.exe);
        command.args(args).current_dir(&self.folder).stdin(Stdio::null());
        command.env("RELIVE_DATA_DIR", self.folder.join("data"));
        command.env("XDG_RUNTIME_DIR", self.folder.join("run"));
        command.env("XDG_CONFIG_HOME", self.folder.join("config"));
        command.env_remove("RELIVE_SOCKET");
        command
    }

    /// Prints a command, runs it, and prints what it prints.
    fn command(&self, args: &[&str]) -> Outcome<()> {
        let quoted = args.iter().map(|arg| if arg.contains(' ') { format!("\"{arg}\"") } else { (*arg).to_owned() });
        println!("  $ relive {}", quoted.collect::<Vec<_>>().join(" "));
        let output = self.relive(args).output()?;
        print!("{}", indent(&String::from_utf8_lossy(&output.stdout)));
        print!("{}", indent(&String::from_utf8_lossy(&output.stderr)));
        if output.status.success() {
            Ok(())
        } else {
            Err(CommandError::internal(format!("relive {} ended with {}", args.join(" "), output.status)))
        }
    }

    fn json(&self, args: &[&str]) -> Outcome<Value> {
        let output = self.relive(args).arg("--json").output()?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| CommandError::internal(format!("relive {}: no answer", args.join(" "))).because(error))
    }

    fn processes(&self) -> Outcome<Vec<Value>> {
        Ok(self.json(&["ps"])?["processes"].as_array().cloned().unwrap_or_default())
    }

    fn step_of(&self, name: &str) -> Outcome<u64> {
        let processes = self.processes()?;
        let found = processes.iter().find(|process| process["name"] == name);
        Ok(found.and_then(|process| process["step"].as_u64()).unwrap_or(0))
    }

    fn until(&self, what: &str, is_so: impl Fn() -> Outcome<bool>) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so()? {
            if Instant::now() > deadline {
                return Err(CommandError::internal(format!("waited in vain until {what}")));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(())
    }

    /// The OS pid of its own daemon, which is what the lock of its own data folder says.
    fn daemon(&self) -> Outcome<rustix::process::Pid> {
        let text = std::fs::read_to_string(self.folder.join("data/lock"))?;
        let pid = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        pid.ok_or_else(|| CommandError::internal("the demo's daemon cannot be found"))
    }

    #[expect(clippy::unused_self, reason = "its own daemon")]
    fn kill_daemon(&self, pid: rustix::process::Pid) -> Outcome<()> {
        println!("  $ kill -9 {}", pid.as_raw_nonzero());
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL).map_err(std::io::Error::from)?)
    }

    fn clear(&self) {
        if let Ok(pid) = self.daemon() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        if Disk::new().remove_tree(&self.folder).is_err() {
            // The daemon was writing while it died.
            let _ = Disk::new().remove_tree(&self.folder);
        }
    }
}

fn say(text: &str) {
    println!("\n{text}");
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
