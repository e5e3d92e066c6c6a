//! Finds out by trying what this machine can hold a program to.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::landlock;
use crate::plan::{Plan, SCOPE_ABI};
use crate::policy::{Isolation, NamespaceKind, Policy, Unheld, clone_flag};
use crate::prepared::{Prepared, Refused};
use crate::surroundings::Surroundings;

/// The isolation that this machine can enforce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Why there are no namespaces with mounts of their own; absent if there are.
    #[serde(default)]
    pub no_namespaces: Option<String>,
    /// The version of Landlock, 0 if there is none.
    #[serde(default)]
    pub landlock_abi: u32,
}

impl Default for Machine {
    /// Nothing that was tried.
    fn default() -> Self {
        Self { no_namespaces: Some("it was not tried".into()), landlock_abi: 0 }
    }
}

impl Machine {
    #[must_use]
    pub fn namespaces_work(&self) -> bool {
        self.no_namespaces.is_none()
    }

    /// Returns whether a program can be confined without anything missing.
    #[must_use]
    pub fn can_confine(&self) -> bool {
        self.namespaces_work() && self.landlock_abi >= SCOPE_ABI
    }

    pub(crate) fn refusal(&self) -> &str {
        self.no_namespaces.as_deref().unwrap_or("unknown")
    }
}

/// Tries a complete isolation in a child that runs nothing. Blocks for some milliseconds.
#[must_use]
pub fn probe() -> Machine {
    let landlock_abi = landlock::version();
    let wanted = Machine { no_namespaces: None, landlock_abi };
    Machine { no_namespaces: attempt(&wanted).err(), landlock_abi }
}

fn attempt(machine: &Machine) -> Result<(), String> {
    let policy = Policy { isolation: Isolation::Confined, unheld: Unheld::Say, ..Policy::default() };
    let (found, _places) = Surroundings::look(&policy, "/".as_ref(), &[]).map_err(|error| error.to_string())?;
    let plan = Plan::new(&policy, &found, machine).map_err(|error| error.to_string())?;
    let mut prepared = Prepared::new(&plan).map_err(|error| error.to_string())?;
    let answer = in_child(&mut prepared).map_err(|error| format!("clone3: {error}"))?;
    answer.map_err(|refused| {
        let names = prepared.step_names();
        let name = names.get(usize::from(refused.step)).map_or("isolation", String::as_str);
        format!("{name}: {}", io::Error::from_raw_os_error(refused.errno))
    })
}

/// Isolates a child that ends at once, and returns its answer.
fn in_child(prepared: &mut Prepared) -> io::Result<Result<(), Refused>> {
    let (gate, opener) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (answers, answer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: numbers only, for which zero means nothing.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = prepared.clone_flags();
    arguments.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: the arguments are complete. No memory is shared, and until it ends the child makes only system calls, which
    // is all that is allowed in the copy of a process with threads.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
    if pid == 0 {
        // SAFETY: its own copy.
        unsafe { libc::close(opener.as_raw_fd()) };
        be_the_child(&gate, &answer, prepared);
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    drop(answer);
    let pid = pid as i32;
    let mapped = if arguments.flags & clone_flag(NamespaceKind::User) == 0 { Ok(()) } else { map_ids(pid) };
    if mapped.is_ok() {
        rustix::io::write(&opener, b"g")?;
    }
    drop(opener);
    let mut record = [0; 8];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&answers, &mut record));
    let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty());
    mapped?;
    if read? != record.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let [a, b, c, d, errno @ ..] = record;
    let (step, errno) = (u32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes(errno));
    Ok(if errno == 0 { Ok(()) } else { Err(Refused { step: u16::try_from(step).unwrap_or(u16::MAX), errno }) })
}

fn be_the_child(gate: &OwnedFd, answer: &OwnedFd, prepared: &mut Prepared) -> ! {
    let mut byte = [0];
    if matches!(rustix::io::read(gate, &mut byte), Ok(1)) {
        let (step, errno) = match prepared.enter().and_then(|()| prepared.lock()) {
            Ok(()) => (0, 0),
            Err(refused) => (u32::from(refused.step), refused.errno),
        };
        let mut record = [0; 8];
        record[..4].copy_from_slice(&step.to_ne_bytes());
        record[4..].copy_from_slice(&errno.to_ne_bytes());
        let _ = rustix::io::write(answer, &record);
    }
    // SAFETY: it does not return.
    unsafe { libc::_exit(0) }
}

/// Gives a process in a new user namespace the same ids as outside: for root all of them, for anybody else only the
/// user's own.
pub fn map_ids(pid: i32) -> io::Result<()> {
    const ALL: &str = "0 0 4294967295";
    let write = |name: &str, text: &str| {
        let path = format!("/proc/{pid}/{name}");
        let file = rustix::fs::open(
            path,
            rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        rustix::io::write(&file, text.as_bytes()).map(drop)
    };
    if rustix::process::geteuid().is_root() && write("uid_map", ALL).is_ok() {
        return Ok(write("gid_map", ALL)?);
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    write("setgroups", "deny")?;
    write("uid_map", &format!("{uid} {uid} 1"))?;
    Ok(write("gid_map", &format!("{gid} {gid} 1"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_tried_and_a_refusal_names_the_step() {
        let machine = probe();
        match &machine.no_namespaces {
            None => assert_eq!(attempt(&machine), Ok(())),
            Some(refusal) => {
                assert!(refusal.contains(": "), "{refusal}");
                eprintln!("skipped: {refusal}");
            }
        }
    }
}
