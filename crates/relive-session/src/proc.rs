//! Processes according to `/proc`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::kernel_file;

/// Identifies a process, even if its pid is reused later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub pid: i32,
    /// The start time, in clock ticks since the boot.
    pub start_time: u64,
}

/// The content of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub identity: Identity,
    pub parent: i32,
    pub group: i32,
    /// The letter of its state: `Z` and `X` have ended, `T` is stopped. If its main thread has ended before the others, this
    /// is the state of one of those, of one that runs if there is any.
    pub state: u8,
    /// The kernel's flags.
    pub flags: u64,
    /// The CPU time, in clock ticks.
    pub cpu_ticks: u64,
}

impl Identity {
    /// Returns the process that has this pid now.
    pub fn of(pid: i32) -> io::Result<Self> {
        Ok(Stat::of(pid)?.identity)
    }

    /// Returns whether it has not ended.
    #[must_use]
    pub fn lives(self) -> bool {
        Stat::of(self.pid).is_ok_and(|stat| stat.identity == self && stat.lives())
    }
}

impl Stat {
    pub fn of(pid: i32) -> io::Result<Self> {
        let text = kernel_file::read_once(format!("/proc/{pid}/stat"))?;
        let strange = || io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat"));
        let (stat, threads) = Self::parse(pid, &text).ok_or_else(strange)?;
        if threads > 1 && !stat.lives() {
            // A program whose main thread has ended is shown as a zombie, and runs.
            return Ok(Self { state: state_of_threads(pid).unwrap_or(stat.state), ..stat });
        }
        Ok(stat)
    }

    /// Returns whether it has not ended.
    #[must_use]
    pub fn lives(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }

    /// Returns it with the number of threads.
    fn parse(pid: i32, text: &[u8]) -> Option<(Self, u64)> {
        let fields = fields_after_name(text)?;
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let stat = Self {
            identity: Identity { pid, start_time: number(19)? },
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            flags: number(6)?,
            cpu_ticks: number(11)? + number(12)?,
        };
        Some((stat, number(17)?))
    }
}

/// Returns the fields of a `stat` file from the third on.
fn fields_after_name(text: &[u8]) -> Option<Vec<&str>> {
    // The name, in brackets, may contain anything, including brackets and newlines.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    Some(std::str::from_utf8(text.get(after_name..)?).ok()?.split_ascii_whitespace().collect())
}

/// Returns where the memory of this process has its command line, if the kernel tells.
pub(crate) fn own_command_line() -> Option<Range<usize>> {
    let text = kernel_file::read_once("/proc/self/stat").ok()?;
    let fields = fields_after_name(&text)?;
    let address = |index: usize| fields.get(index)?.parse::<usize>().ok().filter(|address| *address != 0);
    Some(address(45)?..address(46)?)
}

/// Returns the state of a thread that has not ended; of one that is not stopped, if there is any.
fn state_of_threads(pid: i32) -> Option<u8> {
    let mut found = None;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Ok(text) = kernel_file::read_once(task.path().join("stat")) else { continue };
        let Some((thread, _)) = Stat::parse(pid, &text).filter(|(thread, _)| thread.lives()) else { continue };
        if !matches!(thread.state, b'T' | b't') {
            return Some(thread.state);
        }
        found = Some(thread.state);
    }
    found
}

/// Returns every living process.
pub fn all() -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        // Processes that end in the meantime are skipped.
        found.extend(pid.and_then(|pid| Stat::of(pid).ok()).filter(Stat::lives));
    }
    Ok(found)
}

/// Returns the living descendants of these processes.
#[must_use]
pub fn descendants(all: &[Stat], roots: &[i32]) -> Vec<Identity> {
    let mut children: HashMap<i32, Vec<Identity>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat.identity);
    }
    let mut seen: HashSet<i32> = roots.iter().copied().collect();
    let mut open: Vec<i32> = roots.to_vec();
    let mut found = Vec::new();
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.pid) {
                open.push(child.pid);
                found.push(*child);
            }
        }
    }
    found
}

/// Returns whether the environment that a process was started with has this variable with this value.
#[must_use]
pub fn environment_has(pid: i32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    let Ok(environment) = kernel_file::read_whole(format!("/proc/{pid}/environ"), usize::MAX) else { return false };
    environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

/// Returns every living shim and the directory of its session, including the inits of PID namespaces and the children that
/// wait at a gate, which have the command line of their shim.
pub fn shims() -> io::Result<Vec<(Identity, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Some(directory) = shim_directory(pid) else { continue };
        let stat = Stat::of(pid).ok().filter(Stat::lives);
        found.extend(stat.map(|stat| (stat.identity, directory)));
    }
    Ok(found)
}

/// Returns the directory of the session that a process is in: that of the nearest shim among its ancestors. In a PID
/// namespace the init has the shim's command line.
#[must_use]
pub fn shim_above(pid: i32) -> Option<PathBuf> {
    /// Deeper nesting than any shell creates.
    const DEPTH_MAX: usize = 1000;
    let mut above = pid;
    for _ in 0..DEPTH_MAX {
        above = Stat::of(above).ok()?.parent;
        if above <= 0 {
            return None;
        }
        if let Some(directory) = shim_directory(above) {
            return Some(directory);
        }
    }
    None
}

/// Returns the directory that a shim was started with.
pub(crate) fn shim_directory(pid: i32) -> Option<PathBuf> {
    /// How much of a command line is read.
    const READ_MAX: usize = 256 << 10;
    let line = kernel_file::read_whole(format!("/proc/{pid}/cmdline"), READ_MAX).ok()?;
    let mut words = line.split(|byte| *byte == 0);
    (words.next()? == crate::SHIM.as_bytes()).then_some(())?;
    Some(PathBuf::from(OsStr::from_bytes(words.next()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_and_spaces_is_parsed() {
        let line = b"7 (a) Z 1) b) S 3 4 5 0 -1 0 0 0 0 0 11 22 0 0 20 0 1 0 987 0 0";
        let (stat, threads) = Stat::parse(7, line).unwrap();
        assert_eq!(threads, 1);
        assert_eq!(stat.identity, Identity { pid: 7, start_time: 987 });
        assert_eq!((stat.state, stat.parent, stat.group, stat.cpu_ticks), (b'S', 3, 4, 33));
    }

    #[test]
    fn a_process_whose_main_thread_has_ended_lives_until_the_last_one_has() {
        // SAFETY: the child makes one thread that waits for its end, and ends its first one.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                std::thread::spawn(|| {
                    loop {
                        libc::pause();
                    }
                });
                libc::syscall(libc::SYS_exit, 0);
            }
            pid
        };
        let main_thread = || std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).unwrap();
        while !main_thread().contains(") Z ") {
            std::thread::yield_now();
        }
        let is_found = || all().unwrap().iter().any(|stat| stat.identity.pid == pid);
        while Stat::of(pid).unwrap().state != b'S' {
            std::thread::yield_now();
        }
        let (lived, was_found) = (Identity::of(pid).unwrap().lives(), is_found());
        // SAFETY: a child of this process that was not reaped.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        while Stat::of(pid).unwrap().state != b'T' {
            std::thread::yield_now();
        }
        // SAFETY: as before.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        while Stat::of(pid).unwrap().lives() {
            std::thread::yield_now();
        }
        let found_dead = is_found();
        // SAFETY: as before; no status is requested.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert_eq!((lived, was_found, found_dead), (true, true, false));
    }

    #[test]
    fn a_reused_pid_is_not_the_same_process() {
        let me = Identity::of(std::process::id() as i32).unwrap();
        assert!(me.lives());
        assert!(!Identity { start_time: me.start_time + 1, ..me }.lives());
    }

    #[test]
    fn descendants_are_found_at_every_depth() {
        let stat = |pid, parent| Stat {
            identity: Identity { pid, start_time: 0 },
            parent,
            group: 0,
            state: b'S',
            flags: 0,
            cpu_ticks: 0,
        };
        let all = [stat(1, 0), stat(2, 1), stat(3, 2), stat(4, 3), stat(5, 1)];
        let mut pids: Vec<i32> = descendants(&all, &[2]).iter().map(|identity| identity.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [3, 4]);
    }
}
