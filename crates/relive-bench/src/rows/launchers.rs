//! `/bin/true` through Relive and through other programs that start programs, each command whole, one after the other.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use relive_session::spec::Namespace;
use relive_session::stage::SessionResult;

use super::sessions::quiet;
use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::lab::Lab;
use crate::options::Options;
use crate::place::{Place, remove};
use crate::rounds::{Rounds, median};
use crate::table::{Mark, Row, milliseconds};

const PROGRAM: &str = "/bin/true";
/// `relive exec` beside bwrap: without a disk, and with its syncs.
const IN_MEMORY_MAX: f64 = 1.5;
const ON_DISK_MAX: f64 = 2.0;

/// A directory that is on no disk. Dropping it removes it.
struct InMemory(PathBuf);

impl InMemory {
    fn new() -> Result<Self> {
        let path = Path::new("/dev/shm").join(format!("relive-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            eprintln!("{}: not removed: {error}", self.0.display());
        }
    }
}

/// One way to start a program.
pub(super) struct Launcher<'a> {
    name: &'static str,
    launch: Box<dyn Fn() -> Result<()> + 'a>,
    /// The median of each round.
    rounds: Vec<f64>,
}

impl<'a> Launcher<'a> {
    pub(super) fn new(name: &'static str, launch: impl Fn() -> Result<()> + 'a) -> Self {
        Self { name, launch: Box::new(launch), rounds: Vec::new() }
    }
}

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let lab = Lab::new(place)?;
    let in_memory = InMemory::new()?;
    let (_, on_disk) = Daemon::start(&Home::new(place.directory("launchers")?)?)?;
    let (_, without_disk) = Daemon::start(&Home::new(in_memory.0.clone())?)?;
    let spec = lab.spec(&[PROGRAM], Namespace::AsPlanned);
    let sockets = place.directory("dtach")?;
    let socket = sockets.join("socket");
    let servers = Cell::new(0_u64);
    let mut launchers = vec![
        Launcher::new("posix_spawn", || status(&mut quiet(&[PROGRAM]))),
        Launcher::new("library", || {
            let connection = lab.launch(&lab.next()?, &spec)?;
            lab.ended(&connection, &SessionResult::Exited(0))
        }),
        Launcher::new("exec", || on_disk.run(&["exec", "-n", "--", PROGRAM])),
        Launcher::new("exec on tmpfs", || without_disk.run(&["exec", "-n", "--", PROGRAM])),
    ];
    let path = |path: &Path| path.display().to_string();
    let beside = [
        ("bwrap", vec!["--unshare-all".into(), "--ro-bind".into(), "/".into(), "/".into(), PROGRAM.into()]),
        ("dtach", vec!["-n".into(), path(&socket), PROGRAM.into()]),
    ];
    for (name, arguments) in beside {
        let works = status(quiet(&[name]).args(&arguments)).is_ok();
        if works {
            launchers.push(Launcher::new(name, move || status(quiet(&[name]).args(&arguments))));
        } else {
            eprintln!("launchers: {name} is not there, or does not work here: not measured");
        }
    }
    // A server of its own for each: the one before may be about to end.
    let tmux = || {
        servers.set(servers.get() + 1);
        let server = format!("relive-bench-{}-{}", std::process::id(), servers.get());
        status(quiet(&["tmux"]).args(["-L", &server, "-f", "/dev/null", "new", "-d", PROGRAM]))
    };
    if tmux().is_ok() {
        launchers.push(Launcher::new("tmux", tmux));
    } else {
        eprintln!("launchers: tmux is not there, or does not work here: not measured");
    }
    take_turns(options, &mut launchers)?;
    Ok(rows(&launchers))
}

pub(super) fn status(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Each of them several times in turn, again and again: what slows the machine down slows all of them down, and what one
/// of them does after a launch, such as starting its next shim, slows down its own next launch rather than that of another.
pub(super) fn take_turns(options: &Options, launchers: &mut [Launcher<'_>]) -> Result<()> {
    for round in 0..=options.rounds {
        for launcher in &mut *launchers {
            let mut times = Vec::new();
            for _ in 0..options.launches {
                let begun = Instant::now();
                (launcher.launch)()?;
                times.push(begun.elapsed().as_secs_f64());
            }
            // The first round warms up.
            if round > 0 {
                launcher.rounds.push(median(times));
            }
        }
    }
    Ok(())
}

fn rows(launchers: &[Launcher<'_>]) -> Vec<Row> {
    let row = |ours: &str, peer: &str, mark: Mark| {
        let label =
            if ours == "library" { "/bin/true by the library".to_owned() } else { format!("/bin/true by {ours}") };
        ratio(launchers, ours, peer, label, mark)
    };
    [
        row("library", "posix_spawn", Mark::None),
        row("exec", "posix_spawn", Mark::None),
        row("exec on tmpfs", "bwrap", Mark::AtMost(IN_MEMORY_MAX)),
        row("exec", "bwrap", Mark::AtMost(ON_DISK_MAX)),
        row("exec", "dtach", Mark::None),
        row("exec", "tmux", Mark::None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the row of one launcher beside another; nothing if one of them was not measured.
pub(super) fn ratio(launchers: &[Launcher<'_>], ours: &str, peer: &str, name: String, mark: Mark) -> Option<Row> {
    let find = |name: &str| launchers.iter().find(|launcher| launcher.name == name);
    let mut rounds = Rounds::default();
    for (ours, peer) in find(ours)?.rounds.iter().zip(&find(peer)?.rounds) {
        rounds.add(*ours, *peer);
    }
    Some(Row {
        name,
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  {peer}", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark,
    })
}
