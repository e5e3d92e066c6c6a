//! `relive demo`: demonstrates Relive with a real daemon.
//!
//! Everything happens in a directory of its own: data, socket, daemon, agents. It runs exactly the commands that it
//! prints, with this very program. However it ends, its daemon is killed and its directory removed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use relive_journal::Disk;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Show how agents are paused, recovered after `kill -9` of the daemon, and forked
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive demo   takes ten seconds; needs no key, network, root or configuration")]
pub(crate) struct Args {}

const SCRIPTS: [(&str, &str); 3] = [
    ("lead.yaml", include_str!("demo/lead.yaml")),
    ("writer.yaml", include_str!("demo/writer.yaml")),
    ("reader.yaml", include_str!("demo/reader.yaml")),
];
/// Columns that fit an indented line of 80: all of them are shown in a pipe, which the demo reads.
const TREE: [&str; 4] = ["ps", "--tree", "--columns", "pid,name,state,step,elapsed"];
const PATIENCE: Duration = Duration::from_secs(30);
const INTERRUPTED: u8 = 130;

pub(crate) async fn run(context: &Context) -> Outcome<u8> {
    if context.json {
        let error = CommandError::invalid("`relive demo` has no JSON output");
        return Err(error.with_hint("relive demo"));
    }
    let stage = Arc::new(Stage::new()?);
    let (done, finished) = oneshot::channel();
    let actor = Arc::clone(&stage);
    std::thread::spawn(move || done.send(show(&actor)));
    let outcome = tokio::select! {
        played = finished => played.unwrap_or_else(|_| Err(CommandError::internal("the demo stopped unexpectedly"))).map(|()| 0),
        _ = tokio::signal::ctrl_c() => {
            crate::context::say("\nthe demo was interrupted; its processes are ended and its files removed");
            Ok(INTERRUPTED)
        }
    };
    stage.clear();
    outcome
}

/// Runs the whole demonstration.
fn show(stage: &Stage) -> Outcome<()> {
    say("An agent is a process. This one splits its work between two children:")?;
    stage.command(&["run", "-d", "--name", "lead", "--model", "script/lead.yaml", "make notes"])?;
    stage.until("three agents run", || Ok(stage.processes()?.len() == 3))?;
    stage.command(&TREE)?;

    say(
        "A subtree is paused and resumed together. Each agent stops at a step boundary, and its time limit stops too:",
    )?;
    stage.command(&["pause", "--subtree", "lead"])?;
    stage.until("all are suspended", || {
        Ok(stage.processes()?.iter().all(|process| process["display"] == "suspended"))
    })?;
    stage.command(&TREE)?;
    stage.command(&["resume", "--subtree", "lead"])?;

    stage.until("the writer is in its third step", || Ok(stage.step_of("writer")? >= 2))?;
    let daemon = stage.daemon()?;
    say("Now the daemon is killed in the middle of a step, without a chance to save anything:")?;
    stage.kill_daemon(daemon)?;
    say(
        "The next command starts another daemon, which recovers all agents. Their PIDs are new, their journals are the same:",
    )?;
    stage.command(&TREE)?;
    stage.command(&["wait", "lead"])?;

    say("A write that was interrupted is checked against the file before it is repeated, so each line is there once:")?;
    print("  $ cat notes.txt\n")?;
    let notes = std::fs::read_to_string(stage.folder.join("notes.txt"))?;
    print(&indent(&notes))?;
    let twice = notes.lines().enumerate().find(|(place, line)| notes.lines().take(*place).any(|other| other == *line));
    if let Some((_, line)) = twice {
        return Err(CommandError::internal(format!("a line was written twice: {line}")));
    }

    say("A process that has ended can be forked from any of its steps:")?;
    let writer = stage.json(&["ps", "-a"])?;
    let writer = last_named(&writer, "writer").ok_or_else(|| CommandError::internal("the writer is gone"))?;
    let fork = ["resume", "--fork", "--from-step", "4", "--name", "again", &writer];
    stage.command(&fork)?;
    stage.command(&["lineage", "again"])?;
    stage.command(&["wait", "again"])?;
    stage.command(&["steps", "again"])?;

    say("These were four real agents and two daemons, one of them killed. Their directory is removed now.")?;
    say("Try it:  relive run --model script/demo \"show me\"")?;
    Ok(())
}

/// Returns the UUID of the newest process with this name.
fn last_named(list: &Value, name: &str) -> Option<String> {
    let processes = list["processes"].as_array()?;
    let named = processes.iter().rev().find(|process| process["name"] == name)?;
    named["uuid"].as_str().map(str::to_owned)
}

/// The directory, the daemon and the agents of the demo.
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

    /// Prints a command, runs it, and prints its output.
    fn command(&self, args: &[&str]) -> Outcome<()> {
        let quoted = args.iter().map(|arg| if arg.contains(' ') { format!("\"{arg}\"") } else { (*arg).to_owned() });
        print(&format!("  $ relive {}\n", quoted.collect::<Vec<_>>().join(" ")))?;
        let output = self.relive(args).output()?;
        print(&indent(&String::from_utf8_lossy(&output.stderr)))?;
        // Of a process that continues, a terminal shows the sentence, and not the PID that scripts read.
        if args.first() != Some(&"resume") {
            print(&indent(&String::from_utf8_lossy(&output.stdout)))?;
        }
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
                return Err(CommandError::internal(format!("timed out waiting until {what}")));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(())
    }

    /// Returns the OS pid of the demo's own daemon, from the lock of its data directory.
    fn daemon(&self) -> Outcome<rustix::process::Pid> {
        let text = std::fs::read_to_string(self.folder.join("data/lock"))?;
        let pid = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        pid.ok_or_else(|| CommandError::internal("the demo's daemon cannot be found"))
    }

    #[expect(clippy::unused_self, reason = "the demo's daemon")]
    fn kill_daemon(&self, pid: rustix::process::Pid) -> Outcome<()> {
        print(&format!("  $ kill -9 {}\n", pid.as_raw_nonzero()))?;
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

fn say(text: &str) -> Outcome<()> {
    print(&format!("\n{text}\n"))
}

/// Prints to stdout. A reader that has left ends the demo, which then removes its files.
fn print(text: &str) -> Outcome<()> {
    Ok(crate::stdout::write(text.as_bytes())?)
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
