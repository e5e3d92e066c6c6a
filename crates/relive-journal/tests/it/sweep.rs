//! Every point of a script at which it can be stopped, failed or cut off from power.
//!
//! At each change the script makes, each way it can go wrong is tried; then the promises are checked in several worlds:
//! the directory as the killed process left it, what power cuts leave of it, and what power cuts leave of it after the
//! killed process was started again and went on.

mod check;
mod oracle;
mod script;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use relive_journal::data::OpenError;
use relive_journal::faults::{Faults, Injection, PowerCut, Switches};
use relive_journal::record::OpenedBy;
use relive_journal::{DataDirectory, Disk, Io, WriteError};

use check::{Bare, Resume, check};
use oracle::Oracle;
use script::{Outcome, Script, Trust};

use crate::support::{NO_SPACE_RULES, open, open_journal, opening, spawn_request, uuid};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const THREADS: u64 = 3;
const SHOWN_MAX: usize = 20;
/// How many changes after a failed sync the process is killed.
const LATER: [u64; 3] = [1, 4, 19];

/// In memory if possible: the checker's own syncs are not what is measured.
fn temporary() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// What is broken on purpose: a part of the protocol, or its caller.
#[derive(Debug, Clone, Copy)]
struct Broken {
    switches: Switches,
    trust: Trust,
}

const NOTHING: Broken = Broken {
    switches: Switches { no_sync: false, no_dir_sync: false, no_repair: false, no_lock: false },
    trust: Trust::Sync,
};

/// What was tried and what was wrong.
#[derive(Debug, Default)]
struct Report {
    points: AtomicU64,
    worlds: AtomicU64,
    violations: Mutex<Vec<String>>,
    enough: AtomicBool,
}

/// One run of the script, with one thing going wrong, and every world that can follow.
struct Point<'a> {
    injection: Injection,
    broken: Broken,
    faults: Arc<Faults>,
    bare: &'a Bare,
    report: &'a Report,
}

impl<'a> Point<'a> {
    /// Returns the change at which things went wrong; `None` if the script was over before.
    fn run(injection: Injection, broken: Broken, bare: &'a Bare, report: &'a Report) -> Option<String> {
        let temp = temporary();
        let root = temp.path().join("data");
        Disk::new().mkdir(&root).unwrap();
        let faults = Arc::new(Faults::new(&root, injection, broken.switches).unwrap());
        let Outcome { mut oracle, violations, stopped_inside } = Script::run(&root, &faults, broken.trust);
        let point = Self { injection, broken, faults, bare, report };
        point.note("while it ran", violations);
        report.points.fetch_add(1, Ordering::Relaxed);
        let seed = seed(injection);
        point.cut(PowerCut::Strict, "after", &oracle);
        point.cut(PowerCut::Mixed(seed), "after", &oracle);
        if matches!(injection, Injection::Stop(_) | Injection::StopHalfway(_)) {
            (1..=more_seeds()).for_each(|more| point.cut(PowerCut::Mixed(seed + more), "after", &oracle));
        }
        point.faults.revive();
        let disk = Disk::with_faults(Arc::clone(&point.faults));
        let violations = check(&root, disk, &mut oracle, Resume::Live, bare);
        report.worlds.fetch_add(1, Ordering::Relaxed);
        let whole = violations.is_empty();
        point.note("after the process was killed", violations);
        // One who is killed while it deals with a failed sync leaves a cache that lies to whoever starts next. Only a
        // reboot helps, and that is the power cut above.
        let lying = matches!(injection, Injection::FailThenStop { .. }) && stopped_inside;
        if whole && !lying {
            for cut in [PowerCut::Strict, PowerCut::Mixed(seed + 1_000_000)] {
                point.cut(cut, "after kill, start and", &oracle);
            }
        }
        point.faults.injected()
    }

    fn cut(&self, cut: PowerCut, when: &str, oracle: &Oracle) {
        let temp = temporary();
        let root = temp.path().join("data");
        self.faults.power_cut(&root, cut).unwrap();
        let disk = if is_default(self.broken) {
            Disk::new()
        } else {
            Disk::with_faults(Arc::new(Faults::new(&root, Injection::None, self.broken.switches).unwrap()))
        };
        let violations = check(&root, disk, &mut oracle.clone(), Resume::All, self.bare);
        self.report.worlds.fetch_add(1, Ordering::Relaxed);
        self.note(&format!("{when} power cut {cut:?}"), violations);
    }

    fn note(&self, world: &str, violations: Vec<String>) {
        let change = self.faults.injected().unwrap_or_default();
        let mut all = self.report.violations.lock().unwrap();
        all.extend(violations.into_iter().map(|text| format!("{:?} ({change}), {world}: {text}", self.injection)));
        if !all.is_empty() && !is_default(self.broken) || all.len() >= SHOWN_MAX {
            self.report.enough.store(true, Ordering::Relaxed);
        }
    }
}

/// How many more power cuts of chance follow a stop: one, or in a soak as many as it asks for.
fn more_seeds() -> u64 {
    std::env::var("RELIVE_SWEEP_SEEDS").ok().and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// The same luck in every sweep, and another at every point.
fn seed(injection: Injection) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{injection:?}").hash(&mut hasher);
    hasher.finish() >> 32
}

fn is_default(broken: Broken) -> bool {
    let Broken { switches: Switches { no_sync, no_dir_sync, no_repair, no_lock }, trust } = broken;
    trust == Trust::Sync && !(no_sync || no_dir_sync || no_repair || no_lock)
}

/// Every way the n-th change can go wrong.
fn try_point(n: u64, broken: Broken, bare: &Bare, report: &Report) {
    let run = |injection| Point::run(injection, broken, bare, report);
    let change = run(Injection::Stop(n)).unwrap_or_default();
    let is_write = change.starts_with("write");
    if is_write {
        run(Injection::StopHalfway(n));
    }
    for errno in [ENOSPC, EIO] {
        run(Injection::Fail(n, errno));
        if is_write {
            run(Injection::FailHalfway(n, errno));
        }
    }
    if change.starts_with("sync") {
        for later in LATER {
            run(Injection::FailThenStop { fail: n, errno: EIO, stop: n + later });
        }
    }
}

/// How many changes the script makes when nothing goes wrong.
fn length(broken: Broken) -> u64 {
    let temp = temporary();
    let faults = Arc::new(Faults::new(temp.path(), Injection::None, broken.switches).unwrap());
    let violations = Script::run(temp.path(), &faults, broken.trust).violations;
    assert_eq!(violations, Vec::<String>::new(), "with nothing going wrong");
    faults.count()
}

/// Tries every point, in order, until all is done or enough is known.
fn sweep(broken: Broken) -> Report {
    let count = length(broken);
    let report = Report::default();
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let bare = Bare::new(temporary());
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n > count || report.enough.load(Ordering::Relaxed) {
                        return;
                    }
                    try_point(n, broken, &bare, &report);
                }
            });
        }
    });
    report
}

#[test]
fn the_promises_hold_at_every_point_of_the_sweep() {
    let start = Instant::now();
    let report = sweep(NOTHING);
    let violations = report.violations.into_inner().unwrap();
    println!(
        "sweep: {} changes, {} points, {} worlds, {:.1} s",
        length(NOTHING),
        report.points.into_inner(),
        report.worlds.into_inner(),
        start.elapsed().as_secs_f32()
    );
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

/// What is wrong with the locks of a data directory and of a journal.
fn check_locks(switches: Switches) -> Vec<String> {
    let temp = temporary();
    let disk = || {
        let faults = Faults::new(temp.path(), Injection::None, switches).unwrap();
        Io::new(Disk::with_faults(Arc::new(faults)))
    };
    let data = open(temp.path(), disk());
    let mut violations = Vec::new();
    match DataDirectory::open(temp.path(), disk(), NO_SPACE_RULES) {
        Err(OpenError::Held { holder, .. }) if holder == Some(std::process::id()) => {}
        Err(error) => violations.push(format!("a second daemon was told: {error}")),
        Ok(_) => violations.push("a second daemon opened the data folder".to_owned()),
    }
    let uuid = uuid();
    let writer = data.spawn(spawn_request(uuid, data.next_pid().unwrap())).unwrap();
    let second = || open_journal(&data, uuid, &opening(data.next_pid().unwrap(), OpenedBy::Resume));
    match second() {
        Err(WriteError::Busy { .. }) => {}
        Err(error) => violations.push(format!("a second writer was told: {error}")),
        Ok(_) => violations.push("a second writer opened the journal".to_owned()),
    }
    drop(writer);
    if let Err(error) = second() {
        violations.push(format!("a journal without a writer cannot be taken: {error}"));
    }
    violations
}

#[test]
fn the_sweep_of_locks_a_second_daemon_and_a_second_writer_are_refused() {
    assert_eq!(check_locks(Switches::default()), Vec::<String>::new());
}

/// A checker that cannot fail proves nothing.
#[test]
fn each_switch_turns_the_sweep_red() {
    let default = Switches::default();
    for broken in [
        Broken { switches: Switches { no_sync: true, ..default }, ..NOTHING },
        Broken { switches: Switches { no_dir_sync: true, ..default }, ..NOTHING },
        Broken { switches: Switches { no_repair: true, ..default }, ..NOTHING },
        Broken { trust: Trust::Write, ..NOTHING },
    ] {
        let violations = sweep(broken).violations.into_inner().unwrap();
        let first = violations.first();
        assert!(first.is_some(), "{broken:?} and nobody noticed");
        println!("{broken:?}: {}", first.map_or("", String::as_str));
    }
    let violations = check_locks(Switches { no_lock: true, ..default });
    assert_eq!(violations.len(), 2, "{violations:?}");
    println!("no_lock: {}", violations[0]);
}
