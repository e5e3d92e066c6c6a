//! What a run must not leave behind.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use relive_api::Paths;

use crate::daemon::Places;
use crate::oracle::Oracle;
use crate::programs::{processes, shims};

/// How long a shim may take to go after it has told the end.
const GOES_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// No child of the daemon has ended without being reaped.
pub(crate) fn no_zombies(daemon: u32, oracle: &Oracle) {
    until_none("a zombie of the daemon's", oracle, || {
        let stat = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_zombie = |stat: &String| {
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            fields.next() == Some("Z") && fields.next() == Some(&daemon.to_string())
        };
        processes().map(stat).filter(is_zombie).collect()
    });
}

/// Nothing runs any more, and no cgroup is left.
pub(crate) fn nothing(places: &Places, oracle: &Oracle) {
    let mut ours: HashSet<String> = oracle.lock().asked.keys().map(ToString::to_string).collect();
    let directories = fs::read_dir(places.data.join("steps")).into_iter().flatten().flatten();
    ours.extend(directories.filter_map(|entry| entry.file_name().into_string().ok()));
    // A session's name ends with whose it is.
    let is_ours = |name: &str| name.len() >= 36 && name.get(name.len() - 36..).is_some_and(|uuid| ours.contains(uuid));
    until_none("a shim", oracle, || shims(places).iter().map(|shim| format!("{shim:?}")).collect());
    until_none("a process", oracle, || {
        let marked = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            let mark = variables.find_map(|variable| variable.strip_prefix(b"RELIVE_SESSION="));
            mark.and_then(|mark| std::str::from_utf8(mark).ok()).is_some_and(is_ours)
        };
        processes().filter(marked).map(|pid| format!("{pid}")).collect()
    });
    let [config, log] = [PathBuf::new(), PathBuf::new()];
    let prefix = Paths { data: places.data.clone(), socket: places.socket.clone(), config, log }.short_name();
    until_none("a cgroup", oracle, || {
        let mut leaves = Vec::new();
        below(Path::new("/sys/fs/cgroup"), &mut leaves);
        let is_left =
            |leaf: &&PathBuf| leaf.parent().and_then(Path::file_name).is_some_and(|name| name == prefix.as_str());
        leaves.iter().filter(is_left).map(|leaf| leaf.display().to_string()).collect()
    });
}

fn below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
            below(&entry.path(), found);
        }
    }
}

fn until_none(what: &str, oracle: &Oracle, look: impl Fn() -> Vec<String>) {
    let begun = Instant::now();
    loop {
        let found = look();
        if found.is_empty() {
            return;
        }
        if begun.elapsed() > GOES_WITHIN {
            return oracle.violation(format!("L: {what} is left: {}", found.join(", ")));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
