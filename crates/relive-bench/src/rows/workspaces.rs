//! Snapshots, restores and copies of a directory, next to a bare stat of it, Git with a warm index, and `cp -a`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use relive_workspace::{Control, Disk, Force, Removal, RestoreRequest, Settings, Snapshot, Store, Workspace};

use crate::Result;
use crate::options::Options;
use crate::place::{Place, remove};
use crate::rounds::{Rounds, seconds};
use crate::table::{Mark, Row, kilobytes, milliseconds};

/// Files in one directory, and directories in one directory.
const FANOUT: usize = 20;
const CHANGED: usize = 100;
/// Rounds of slow measurements.
const SLOW_ROUNDS: usize = 3;
/// Trees of this size or more are measured once or twice.
const HUGE: usize = 100_000;
/// The number of steps whose growth is measured, and the files changed in each.
const STEPS: usize = 1_000;
const CHANGED_PER_STEP: usize = 3;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &files in &options.workspace_files {
        rows.extend(measure_tree(files, options, place)?);
    }
    rows.push(growth(place, options)?);
    Ok(rows)
}

/// Measures a directory so large that it takes minutes.
pub(super) fn measure_huge(options: &Options, place: &Place) -> Result<Vec<Row>> {
    options.huge_workspace_files.map_or_else(|| Ok(Vec::new()), |files| measure_tree(files, options, place))
}

fn measure_tree(files: usize, options: &Options, place: &Place) -> Result<Vec<Row>> {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("workspaces: git is not installed, nothing to compare with");
        return Ok(Vec::new());
    }
    let root = place.directory(&format!("workspace-{files}"))?;
    let rows = Trial::new(root.clone(), files)?.measure(options)?;
    remove(&root)?;
    Ok(rows)
}

/// A tree of files, Relive's store and Git's.
struct Trial {
    root: PathBuf,
    tree: PathBuf,
    files: usize,
    number: usize,
}

impl Trial {
    fn new(root: PathBuf, files: usize) -> Result<Self> {
        eprintln!("workspaces: making {files} files");
        let tree = root.join("tree");
        for number in 0..files {
            let path = file(&tree, number);
            if number % FANOUT == 0 {
                fs::create_dir_all(path.parent().ok_or("a file without a directory")?)?;
            }
            fs::write(path, text(number, 0))?;
        }
        Ok(Self { root, tree, files, number: 0 })
    }

    fn measure(&mut self, options: &Options) -> Result<Vec<Row>> {
        // Synced, like the files of a directory in use.
        sync()?;
        let rounds = if self.files >= HUGE { 2 } else { options.rounds };
        let slow_rounds = if self.files >= HUGE { 1 } else { SLOW_ROUNDS };
        let mut rows = vec![self.first(slow_rounds)?];
        let mut workspace = self.workspace("ours")?;
        let git = self.root.join("git-warm");
        self.git_init(&git)?;
        let mut last = snapshot(&mut workspace)?;
        self.git_snapshot(&git)?;
        for (changed, to_stat, to_git) in [
            (0, Mark::AtMost(1.2), Mark::AtMost(0.6)),
            (1, Mark::None, Mark::AtMost(0.6)),
            (CHANGED, Mark::None, Mark::AtMost(0.5)),
        ] {
            let (mut beside_stat, mut beside_git) = (Rounds::default(), Rounds::default());
            for round in 0..=rounds {
                self.change(changed)?;
                let (stat, ()) = seconds(|| bare_stat(&self.tree))?;
                let (ours, taken) = seconds(|| snapshot(&mut workspace))?;
                let (theirs, ()) = seconds(|| self.git_snapshot(&git))?;
                last = taken;
                // The first round warms up.
                if round > 0 {
                    beside_stat.add(ours, stat);
                    beside_git.add(ours, theirs);
                }
            }
            rows.push(self.row(&format!("{changed} changed"), &beside_stat, "bare stat", to_stat));
            rows.push(self.row(&format!("{changed} changed"), &beside_git, "git", to_git));
        }
        rows.push(self.rewind(&mut workspace, &last, rounds)?);
        rows.push(self.copy(&mut workspace, slow_rounds)?);
        Ok(rows)
    }

    fn row(&self, what: &str, rounds: &Rounds, peer: &str, mark: Mark) -> Row {
        // The goals are for 30,000 files.
        let mark = if self.files == 30_000 { mark } else { Mark::None };
        Row {
            name: format!("snapshot {}k: {what}", self.files / 1_000),
            ours: milliseconds(rounds.ours()),
            peer: format!("{}  {peer}", milliseconds(rounds.peer())),
            ratio: rounds.ratio(),
            mark,
        }
    }

    /// Measures the first snapshot, which reads every file.
    fn first(&mut self, rounds: usize) -> Result<Row> {
        let mut first = Rounds::default();
        for round in 0..rounds {
            let mut workspace = self.workspace(&format!("first-{round}"))?;
            let (ours, _) = seconds(|| snapshot(&mut workspace))?;
            let git = self.root.join(format!("git-{round}"));
            self.git_init(&git)?;
            let (theirs, ()) = seconds(|| self.git_snapshot(&git))?;
            first.add(ours, theirs);
        }
        Ok(self.row("first", &first, "git", Mark::AtMost(0.25)))
    }

    /// Measures a restore of 100 changed files, without the snapshot before it.
    fn rewind(&mut self, workspace: &mut Workspace, target: &Snapshot, rounds: usize) -> Result<Row> {
        let (mut rewind, control) = (Rounds::default(), Control::default());
        for round in 0..=rounds {
            self.change(CHANGED)?;
            sync()?;
            let request = RestoreRequest { target, expected: None, paths: &[], force: Force::Yes };
            let prepared = workspace.plan_restore(&request, &control)?;
            let (stat, ()) = seconds(|| bare_stat(&self.tree))?;
            let (ours, applied) = seconds(|| Ok(workspace.apply(&prepared.plan, &control)?))?;
            if !applied.is_verified() {
                return Err("a rewind was not verified".into());
            }
            if round > 0 {
                rewind.add(ours, stat);
            }
        }
        let mut row = self.row("", &rewind, "bare stat", Mark::AtMost(1.0));
        row.name = format!("rewind {}k: {CHANGED} files", self.files / 1_000);
        Ok(row)
    }

    fn copy(&mut self, workspace: &mut Workspace, rounds: usize) -> Result<Row> {
        let (mut copy, control) = (Rounds::default(), Control::default());
        let taken = snapshot(workspace)?;
        for round in 0..rounds {
            let (own, peer) = (self.root.join(format!("own-{round}")), self.root.join(format!("cp-{round}")));
            sync()?;
            let (ours, _) = seconds(|| Ok(workspace.store().copy(&taken, &own, &control)?))?;
            sync()?;
            let (theirs, ()) = seconds(|| run(Command::new("cp").arg("-a").arg(&self.tree).arg(&peer)))?;
            copy.add(ours, theirs);
            remove(&own)?;
            remove(&peer)?;
        }
        let mut row = self.row("", &copy, "cp -a", Mark::AtMost(0.6));
        row.name = format!("own workspace {}k, synced", self.files / 1_000);
        Ok(row)
    }

    fn workspace(&self, name: &str) -> Result<Workspace> {
        open(&self.root.join(name), &self.tree)
    }

    fn git(&self, at: &Path) -> Command {
        let mut git = Command::new("git");
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", &self.root).arg("--git-dir").arg(at);
        git.args(["-c", "core.bare=false", "--work-tree"]).arg(&self.tree);
        git
    }

    fn git_init(&self, at: &Path) -> Result<()> {
        run(Command::new("git").args(["init", "-q", "--bare"]).arg(at))
    }

    fn git_snapshot(&self, at: &Path) -> Result<()> {
        run(self.git(at).args(["add", "-A"]))?;
        run(self.git(at).arg("write-tree"))
    }

    /// Rewrites this many files, spread over the tree.
    fn change(&mut self, count: usize) -> Result<()> {
        for at in 0..count {
            self.number += 1;
            let number = at * self.files / count.max(1) + self.number % FANOUT;
            fs::write(file(&self.tree, number % self.files), text(number, self.number))?;
        }
        // Longer than a file counts as too recent to be trusted.
        std::thread::sleep(Duration::from_millis(30));
        Ok(())
    }
}

/// Measures the size of the store after many steps, next to the compressed size of the changes.
fn growth(place: &Place, options: &Options) -> Result<Row> {
    let steps = if options.workspace_files.len() > 1 { STEPS } else { STEPS / 10 };
    eprintln!("workspaces: {steps} steps of {CHANGED_PER_STEP} files");
    let root = place.directory("workspace-growth")?;
    let tree = root.join("tree");
    for number in 0..1_000 {
        let path = file(&tree, number);
        fs::create_dir_all(path.parent().ok_or("a file without a directory")?)?;
        fs::write(path, text(number, 0))?;
    }
    let mut workspace = open(&root.join("store"), &tree)?;
    let control = Control::default();
    let mut snapshots = vec![snapshot(&mut workspace)?];
    workspace.store().collect(&snapshots, Removal::Remove, &control)?;
    let (before, mut changed) = (workspace.store().bytes(), 0);
    for step in 1..=steps {
        for at in 0..CHANGED_PER_STEP {
            let number = (step * 7 + at * 331) % 1_000;
            let path = file(&tree, number);
            fs::write(&path, text(number, step))?;
            changed += compressed(&path)?;
        }
        snapshots.push(snapshot(&mut workspace)?);
    }
    workspace.store().collect(&snapshots, Removal::Remove, &control)?;
    let grown = workspace.store().bytes() - before;
    #[expect(clippy::cast_precision_loss, reason = "a ratio is not exact")]
    let ratio = grown as f64 / changed as f64;
    let row = Row {
        name: format!("snapshots on disk: {steps} steps"),
        ours: kilobytes(grown),
        peer: format!("{}  gzip of changed", kilobytes(changed)),
        ratio: ratio.into(),
        mark: Mark::AtMost(1.3),
    };
    remove(&root)?;
    Ok(row)
}

fn compressed(path: &Path) -> Result<u64> {
    let output = Command::new("gzip").arg("-c").arg(path).output()?;
    Ok(output.stdout.len() as u64)
}

fn open(store: &Path, tree: &Path) -> Result<Workspace> {
    let store = Store::open(store, Disk::new(), 0)?;
    Ok(Workspace::open(&store, tree, Settings { max_files: 1_000_000, ..Settings::default() })?)
}

fn snapshot(workspace: &mut Workspace) -> Result<Snapshot> {
    Ok(workspace.snapshot(&Control::default())?.snapshot)
}

fn file(tree: &Path, number: usize) -> PathBuf {
    let directory = number / FANOUT;
    tree.join(format!("d{}", directory / FANOUT)).join(format!("d{directory}")).join(format!("file-{number}.rs"))
}

/// Returns about 3 KB that compress like source code.
fn text(number: usize, version: usize) -> String {
    let mut state = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = format!("// file {number}, version {version}\n");
    for line in 0..60 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("    let value_{:x} = compute({}, \"{line}\");\n", state & 0xffff, state >> 40));
    }
    text
}

/// Lists and stats everything with two threads, which share the top directories.
fn bare_stat(tree: &Path) -> Result<()> {
    let directories: Vec<PathBuf> = fs::read_dir(tree)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || -> Result<u64> {
        let mut bytes = 0;
        while let Some(directory) = directories.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            bytes += stat_below(directory)?;
        }
        Ok(bytes)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work()?;
        other.join().map_err(|_| "a thread panicked")??;
        Ok(())
    })
}

fn stat_below(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Relative to the open directory, as in a snapshot.
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { stat_below(&entry.path())? } else { metadata.size() };
    }
    Ok(bytes)
}

fn sync() -> Result<()> {
    run(&mut Command::new("sync"))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
