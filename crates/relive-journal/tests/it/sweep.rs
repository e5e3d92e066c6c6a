//! A script that is stopped, failed or cut off from power at every point.
//!
//! At each change the script makes, every fault is tried; then the promises are checked in several worlds: the
//! directory as the killed process left it, the content after power cuts, and the content after power cuts that follow
//! a restart of the killed process.

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
use relive_journal::faults::{Faults, Injection, Names, PowerCut, Switches};
use relive_journal::record::OpenedBy;
use relive_journal::{DataDirectory, Disk, Io, WriteError};

use check::{Bare, Resume, check};
use oracle::Oracle;
use script::{Life, Outcome, Script, Trust};

use crate::support::{NO_SPACE_RULES, open, open_journal, opening, spawn_request, uuid};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const THREADS: u64 = 3;
const SHOWN_MAX: usize = 20;
/// How many changes after a failed sync the process is killed.
const LATER: [u64; 3] = [1, 4, 19];

/// In memory if possible: the checker's own syncs are not measured.
fn temporary() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A fault on purpose: in the protocol or in its caller.
#[derive(Debug, Clone, Copy)]
struct Broken {
    switches: Switches,
    life: Life,
    trust: Trust,
}

const NOTHING: Broken = Broken {
    switches: Switches { no_sync: false, no_dir_sync: false, no_repair: false, no_lock: false, names: Names::Apart },
    life: Life::Whole,
    trust: Trust::Sync,
};

/// On a disk that keeps the order of names, and known as such.
const NAMES_IN_ORDER: Broken =
    Broken { switches: Switches { names: Names::InOrder, ..NOTHING.switches }, life: Life::Programs, ..NOTHING };

/// The number of tried points, and the violations.
#[derive(Debug, Default)]
struct Report {
    points: AtomicU64,
    worlds: AtomicU64,
    violations: Mutex<Vec<String>>,
    enough: AtomicBool,
}

/// One run of the script with one fault, and every world that can follow.
struct Point<'a> {
    injection: Injection,
    broken: Broken,
    faults: Arc<Faults>,
    bare: &'a Bare,
    report: &'a Report,
}

impl<'a> Point<'a> {
    /// Returns the change at which the fault happened; `None` if the script ended before.
    fn run(injection: Injection, broken: Broken, bare: &'a Bare, report: &'a Report) -> Option<String> {
        let temp = temporary();
        let root = temp.path().join("data");
        Disk::new().mkdir(&root).unwrap();
        let faults = Arc::new(Faults::new(&root, injection, broken.switches).unwrap());
        let Outcome { mut oracle, violations, stopped_inside } = Script::run(&root, &faults, broken.life, broken.trust);
        let point = Self { injection, broken, faults, bare, report };
        point.note("while it ran", violations);
        report.points.fetch_add(1, Ordering::Relaxed);
        let seed = seed(injection);
        point.cut(PowerCut::Strict, "after", &oracle);
        point.cut(PowerCut::Mixed(seed), "after", &oracle);
        if matches!(injection, Injection::Stop(_) | Injection::StopHalfway(_)) {
            (1..=more_seeds()).for_each(|more| point.cut(PowerCut::Mixed(seed + more), "after", &oracle));
        }
        point.faults.restart();
        let disk = Disk::with_faults(Arc::clone(&point.faults));
        let violations = check(&root, disk, &mut oracle, Resume::Live, bare);
        report.worlds.fetch_add(1, Ordering::Relaxed);
        let whole = violations.is_empty();
        point.note("after the process was killed", violations);
        // A process that is killed while it handles a failed sync leaves a cache that misleads the next one. Only a
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

/// Returns how many more random power cuts follow a stop: one, or the number that a soak test asks for.
fn more_seeds() -> u64 {
    std::env::var("RELIVE_SWEEP_SEEDS").ok().and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// Returns a seed that is the same in every sweep, and different at every point.
fn seed(injection: Injection) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{injection:?}").hash(&mut hasher);
    hasher.finish() >> 32
}

fn is_default(broken: Broken) -> bool {
    let Broken { switches: Switches { no_sync, no_dir_sync, no_repair, no_lock, names }, life: _, trust } = broken;
    let is_broken = no_sync || no_dir_sync || no_repair || no_lock || names == Names::WronglyTrusted;
    trust == Trust::Sync && !is_broken
}

/// Tries every fault at the n-th change.
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

/// Returns how many changes the script makes without faults.
fn length(broken: Broken) -> u64 {
    let temp = temporary();
    let faults = Arc::new(Faults::new(temp.path(), Injection::None, broken.switches).unwrap());
    let violations = Script::run(temp.path(), &faults, broken.life, broken.trust).violations;
    assert_eq!(violations, Vec::<String>::new(), "with nothing going wrong");
    faults.count()
}

/// Tries every point, in order, until all are done or enough violations are found.
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
    check_sweep(NOTHING);
}

#[test]
fn the_promises_hold_at_every_point_of_the_sweep_where_names_keep_their_order() {
    check_sweep(NAMES_IN_ORDER);
}

fn check_sweep(broken: Broken) {
    let start = Instant::now();
    let report = sweep(broken);
    let violations = report.violations.into_inner().unwrap();
    println!(
        "sweep: {} changes, {} points, {} worlds, {:.1} s",
        length(broken),
        report.points.into_inner(),
        report.worlds.into_inner(),
        start.elapsed().as_secs_f32()
    );
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

/// Returns the violations of the locks of a data directory and of a journal.
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
fn the_locks_refuse_a_second_daemon_and_a_second_writer() {
    assert_eq!(check_locks(Switches::default()), Vec::<String>::new());
}

/// Checks that the sweep can fail.
#[test]
fn each_switch_makes_the_sweep_fail() {
    let default = Switches::default();
    for broken in [
        Broken { switches: Switches { no_sync: true, ..default }, ..NOTHING },
        Broken { switches: Switches { no_dir_sync: true, ..default }, ..NOTHING },
        Broken { switches: Switches { no_repair: true, ..default }, ..NOTHING },
        Broken { switches: Switches { names: Names::WronglyTrusted, ..default }, ..NAMES_IN_ORDER },
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
