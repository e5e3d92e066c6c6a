//! The whole path of a step: one agent and many in the daemon, next to one append and sync of the step's bytes, and
//! next to Restate.

mod raw;
mod rows;

use std::fs;
use std::path::Path;

use raw::Raw;
use serde_json::json;

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::restate::Restate;
use crate::rounds::{Rounds, seconds};
use crate::runs::{self, Work};
use crate::table::Row;

/// The number of bytes that a step reads or writes.
const BYTES: usize = 4096;
/// Writing takes much longer than reading.
const WRITES_FEWER: usize = 20;
const NOTE: &str = "note.txt";

/// The action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// Returns a turn with one call. Unchanged content is not written, so each turn writes something else.
    fn turn(self, text: &str) -> String {
        match self {
            Self::Read => format!("  - calls: [{{name: read, args: {{path: {NOTE}}}}}]\n"),
            Self::Write => format!(
                "  - calls: [{{name: write, args: {{path: \"{{{{uuid}}}}.txt\", content: \"{{{{turn}}}} {text}\"}}}}]\n"
            ),
        }
    }
}

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("path")?;
    let (_, daemon) = Daemon::start(&Home::new(root.join("home"))?)?;
    let restate = Restate::start(&root.join("restate"))
        .inspect_err(|error| eprintln!("path: Restate is not measured: {error}"))
        .ok();
    let mut lanes = Vec::new();
    for (agents, steps) in [(1, options.path_steps), (options.path_agents, options.path_steps_each)] {
        lanes.push(Lane::new(&root, Kind::Read, agents, steps, &daemon)?);
        lanes.push(Lane::new(&root, Kind::Write, agents, steps / WRITES_FEWER, &daemon)?);
    }
    for round in 0..=options.path_rounds {
        eprintln!("path: round {round} of {}", options.path_rounds);
        for lane in &mut lanes {
            let taken = lane.round(&daemon, restate.as_ref())?;
            // The first round warms up.
            if round > 0 {
                lane.add(&taken);
            }
        }
    }
    Ok(lanes.iter().flat_map(Lane::rows).collect())
}

/// One kind of step by this many concurrent agents, and its peers.
struct Lane {
    kind: Kind,
    agents: usize,
    /// Of each agent.
    steps: usize,
    text: String,
    plain: Work,
    git: Work,
    raw: Raw,
    beside_sync: Rounds,
    beside_raw: Rounds,
    in_git: Rounds,
    beside_restate: Rounds,
}

/// The seconds that all steps of one round took.
struct Taken {
    ours: f64,
    git: f64,
    sync: f64,
    raw: f64,
    restate: Option<f64>,
}

impl Lane {
    fn new(root: &Path, kind: Kind, agents: usize, steps: usize, daemon: &Daemon) -> Result<Self> {
        let root = root.join(format!("{agents}-{}", kind.name()));
        fs::create_dir(&root)?;
        let text: String = "a line that is as long as most. ".chars().cycle().take(BYTES).collect();
        let turns = format!("{}    repeat: {}\n", kind.turn(&text), steps);
        let (plain, git) = (Work::new(root.join("plain"), &turns)?, Work::new(root.join("git"), &turns)?);
        repository(git.path())?;
        for work in [&plain, &git] {
            fs::write(work.path().join(NOTE), &text)?;
        }
        let journal = daemon.home().process(runs::run(&daemon.client()?, &plain)?).steps();
        let step_bytes = usize::try_from(fs::metadata(journal)?.len())? / steps;
        eprintln!("path: {agents} agents, {} 4 KB: {step_bytes} bytes of journal a step", kind.name());
        let raw = Raw::new(&root.join("raw"), agents, step_bytes, &text)?;
        let (beside_sync, beside_raw, in_git, beside_restate) = Default::default();
        Ok(Self { kind, agents, steps, text, plain, git, raw, beside_sync, beside_raw, in_git, beside_restate })
    }

    fn round(&mut self, daemon: &Daemon, restate: Option<&Restate>) -> Result<Taken> {
        let steps = self.steps;
        let sync = self.raw.append(steps)?;
        let raw = match self.kind {
            Kind::Read => sync,
            Kind::Write => self.raw.append_and_replace(steps)?,
        };
        let ours = run_all(daemon, &self.plain, self.agents)?;
        let git = run_all(daemon, &self.git, self.agents)?;
        let restate = restate.map(|restate| self.invoke_all(restate)).transpose()?;
        Ok(Taken { ours, git, sync, raw, restate })
    }

    fn add(&mut self, taken: &Taken) {
        self.beside_sync.add(taken.ours, taken.sync);
        self.beside_raw.add(taken.ours, taken.raw);
        self.in_git.add(taken.git, taken.ours);
        if let Some(restate) = taken.restate {
            self.beside_restate.add(taken.ours, restate);
        }
    }

    fn invoke_all(&self, restate: &Restate) -> Result<f64> {
        let (directory, steps) = (self.raw.directory(), self.steps);
        let invoke = |number: usize| match self.kind {
            Kind::Read => {
                let path = self.plain.path().join(NOTE);
                restate.invoke("read", &json!({"path": path, "count": steps}))
            }
            Kind::Write => {
                let path = directory.join(format!("restate-{number}.txt"));
                restate.invoke("write", &json!({"path": path, "count": steps, "text": self.text}))
            }
        };
        let (taken, ()) =
            seconds(|| raw::at_once(&mut (0..self.agents).collect::<Vec<_>>(), |number| invoke(*number)))?;
        Ok(taken)
    }
}

fn run_all(daemon: &Daemon, work: &Work, agents: usize) -> Result<f64> {
    let (taken, ()) = seconds(|| {
        if agents == 1 {
            return runs::run(&daemon.client()?, work).map(drop);
        }
        runs::wait_for_all(daemon, &runs::begin_all(daemon, work, agents)?)
    })?;
    Ok(taken)
}

/// Makes a directory look like a Git repository with one commit, as far as reading HEAD is concerned.
fn repository(path: &Path) -> Result<()> {
    let git = path.join(".git");
    fs::create_dir_all(git.join("refs/heads"))?;
    fs::create_dir(git.join("objects"))?;
    fs::write(git.join("config"), "[core]\n\trepositoryformatversion = 0\n")?;
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
    Ok(fs::write(git.join("refs/heads/main"), "8f1de0b8a1b7f6ab7f4c4b4b67a01b1c8c0f5e3d\n")?)
}
