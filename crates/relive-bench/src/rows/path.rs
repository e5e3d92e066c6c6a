//! The whole path of a step: one agent and many through the daemon, beside one append and sync of the step's bytes, and
//! beside Restate.

mod raw;

use std::fs;
use std::path::{Path, PathBuf};

use raw::Raw;
use serde_json::json;

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::options::Options;
use crate::place::Place;
use crate::restate::Restate;
use crate::rounds::{Ratio, Rounds, seconds};
use crate::runs::{self, Work};
use crate::table::{Mark, Row, milliseconds, per_second};

/// What a step reads or writes.
const BYTES: usize = 4096;
const NOTE: &str = "note.txt";

/// What a step does.
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

    /// A turn that has one call. What is there already is not written, so each writes something else.
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
    let mut crowds = Vec::new();
    for (agents, steps) in [(1, options.path_steps), (options.path_agents, options.path_steps_each)] {
        let mut crowd = Crowd { agents, steps, lanes: Vec::new() };
        for kind in [Kind::Read, Kind::Write] {
            let name = format!("{agents}-{}", kind.name());
            crowd.lanes.push(Lane::new(root.join(name), kind, &crowd, &daemon)?);
        }
        crowds.push(crowd);
    }
    for round in 0..=options.path_rounds {
        eprintln!("path: round {round} of {}", options.path_rounds);
        for crowd in &mut crowds {
            let (agents, steps) = (crowd.agents, crowd.steps);
            for lane in &mut crowd.lanes {
                let taken = lane.round(agents, steps, &daemon, restate.as_ref())?;
                // The first round warms up.
                if round > 0 {
                    lane.add(&taken);
                }
            }
        }
    }
    Ok(crowds.iter().flat_map(Crowd::rows).collect())
}

/// Agents that run at once.
struct Crowd {
    agents: usize,
    steps: usize,
    lanes: Vec<Lane>,
}

/// One kind of step, and what it is measured beside.
struct Lane {
    kind: Kind,
    text: String,
    plain: Work,
    git: Work,
    raw: Raw,
    beside_sync: Rounds,
    beside_raw: Rounds,
    in_git: Rounds,
    beside_restate: Rounds,
}

/// Seconds that all steps of one round took.
struct Taken {
    ours: f64,
    git: f64,
    sync: f64,
    raw: f64,
    restate: Option<f64>,
}

impl Lane {
    fn new(root: PathBuf, kind: Kind, crowd: &Crowd, daemon: &Daemon) -> Result<Self> {
        fs::create_dir(&root)?;
        let text: String = "a line that is as long as most. ".chars().cycle().take(BYTES).collect();
        let turns = format!("{}    repeat: {}\n", kind.turn(&text), crowd.steps);
        let (plain, git) = (Work::new(root.join("plain"), &turns)?, Work::new(root.join("git"), &turns)?);
        repository(git.path())?;
        for work in [&plain, &git] {
            fs::write(work.path().join(NOTE), &text)?;
        }
        let journal = daemon.home().process(runs::run(&daemon.client()?, &plain)?).steps();
        let step_bytes = usize::try_from(fs::metadata(journal)?.len())? / crowd.steps;
        eprintln!("path: {} agents, {} 4 KB: {step_bytes} bytes of journal a step", crowd.agents, kind.name());
        let raw = Raw::new(&root.join("raw"), crowd.agents, step_bytes, &text)?;
        let (beside_sync, beside_raw, in_git, beside_restate) = Default::default();
        Ok(Self { kind, text, plain, git, raw, beside_sync, beside_raw, in_git, beside_restate })
    }

    fn round(&mut self, agents: usize, steps: usize, daemon: &Daemon, restate: Option<&Restate>) -> Result<Taken> {
        let sync = self.raw.append(steps)?;
        let raw = match self.kind {
            Kind::Read => sync,
            Kind::Write => self.raw.append_and_replace(steps)?,
        };
        let ours = run_all(daemon, &self.plain, agents)?;
        let git = run_all(daemon, &self.git, agents)?;
        let restate = restate.map(|restate| self.invoke_all(restate, agents, steps)).transpose()?;
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

    fn invoke_all(&self, restate: &Restate, agents: usize, steps: usize) -> Result<f64> {
        let directory = self.raw.directory();
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
        let (taken, ()) = seconds(|| raw::at_once(&mut (0..agents).collect::<Vec<_>>(), |number| invoke(*number)))?;
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

/// Makes a directory one of a Git repository with one commit, as far as somebody sees who asks for HEAD.
fn repository(path: &Path) -> Result<()> {
    let git = path.join(".git");
    fs::create_dir_all(git.join("refs/heads"))?;
    fs::create_dir(git.join("objects"))?;
    fs::write(git.join("config"), "[core]\n\trepositoryformatversion = 0\n")?;
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n")?;
    Ok(fs::write(git.join("refs/heads/main"), "8f1de0b8a1b7f6ab7f4c4b4b67a01b1c8c0f5e3d\n")?)
}

impl Crowd {
    fn rows(&self) -> Vec<Row> {
        self.lanes
            .iter()
            .flat_map(|lane| if self.agents == 1 { self.alone(lane) } else { self.together(lane) })
            .collect()
    }

    /// The time of a step.
    fn alone(&self, lane: &Lane) -> Vec<Row> {
        let row = |name: String, rounds: &Rounds, peer: &str, mark| {
            let each = |taken: f64| milliseconds(taken / self.all_steps());
            let peer = format!("{}  {peer}", each(rounds.peer()));
            Row { name, ours: each(rounds.ours()), peer, ratio: rounds.ratio(), mark }
        };
        let mut rows = match lane.kind {
            Kind::Read => {
                vec![row("1 agent: read 4 KB".to_owned(), &lane.beside_raw, "append+sync", Mark::AtMost(2.0))]
            }
            Kind::Write => vec![
                row("1 agent: write 4 KB".to_owned(), &lane.beside_raw, "raw write", Mark::AtMost(3.0)),
                row("  beside the sync alone".to_owned(), &lane.beside_sync, "append+sync", Mark::None),
            ],
        };
        rows.push(row("  in a Git repository".to_owned(), &lane.in_git, "not in one", Mark::AtMost(1.1)));
        rows.push(self.beside_restate(lane));
        rows
    }

    /// The steps of all in a second.
    fn together(&self, lane: &Lane) -> Vec<Row> {
        let row = |name: String, rounds: &Rounds, peer: &str, mark| {
            let (ours, peer) = (self.rate(rounds.ours()), format!("{}  {peer}", self.rate(rounds.peer())));
            Row { name, ours, peer, ratio: rounds.ratio().inverse(), mark }
        };
        let agents = self.agents;
        let name = format!("{agents} agents: {} 4 KB", lane.kind.name());
        let mut rows = match lane.kind {
            Kind::Read => vec![row(name, &lane.beside_raw, "raw writers", Mark::AtLeast(0.25))],
            Kind::Write => vec![
                row(name, &lane.beside_raw, "raw writes", Mark::None),
                row("  beside the sync alone".to_owned(), &lane.beside_sync, "raw writers", Mark::AtLeast(0.25)),
            ],
        };
        rows.push(row("  in a Git repository".to_owned(), &lane.in_git, "not in one", Mark::AtLeast(0.9)));
        rows.push(self.beside_restate(lane));
        rows
    }

    fn beside_restate(&self, lane: &Lane) -> Row {
        let (rounds, name) = (&lane.beside_restate, "  beside Restate".to_owned());
        if rounds.peer().is_nan() {
            let (ours, peer) = (self.rate(lane.beside_raw.ours()), "Restate is missing".to_owned());
            return Row { name, ours, peer, ratio: Ratio::from(f64::NAN), mark: Mark::AtLeast(3.0) };
        }
        let (ours, peer) = (self.rate(rounds.ours()), format!("{}  Restate", self.rate(rounds.peer())));
        Row { name, ours, peer, ratio: rounds.ratio().inverse(), mark: Mark::AtLeast(3.0) }
    }

    fn rate(&self, taken: f64) -> String {
        per_second(self.all_steps() / taken)
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
    fn all_steps(&self) -> f64 {
        (self.agents * self.steps) as f64
    }
}
