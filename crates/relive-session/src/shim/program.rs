//! The program in the form that the kernel needs: prepared before the child exists, because the child must not
//! allocate.

use std::ffi::CString;
use std::os::fd::RawFd;
use std::ptr;

use libc::c_char;

use super::child::Orders;
use crate::inherited::cpu_mask;
use crate::spec::{Inherited, ResourceLimit, Spec};
use crate::stage::Failure;
use crate::tree::MARKER;

const SHELL: &str = "/bin/sh";
/// The default search path, for an environment without one.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The strings of a program, and the arrays of pointers to them.
pub(super) struct Program {
    argv: Pointers,
    envp: Pointers,
    candidates: Pointers,
    shell_argv: Pointers,
    cwd: CString,
    inherited: Option<Inherited>,
    limits: Vec<(libc::c_uint, libc::rlimit)>,
    cpus: Vec<u64>,
}

struct Pointers {
    /// Owns the strings behind the pointers.
    _strings: Vec<CString>,
    array: Vec<*const c_char>,
}

impl Pointers {
    fn to(strings: Vec<CString>) -> Self {
        let array = strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Self { _strings: strings, array }
    }
}

impl Program {
    /// Prepares a program. `session` marks the session's processes.
    pub(super) fn of(spec: &Spec, session: &str) -> Result<Self, Failure> {
        let Some(name) = spec.argv.first() else { return Err(Failure::new("execve", libc::ENOENT)) };
        let proxy = if super::proxy::is_wanted(spec) { relive_proxy::environment() } else { Vec::new() };
        let replaced = |name: &str| name == MARKER || proxy.iter().any(|(other, _)| *other == name);
        let variables = spec.env.iter().filter(|(name, _)| !replaced(name));
        let mut env = strings(variables.map(|(name, value)| format!("{name}={value}")))?;
        env.extend(strings(proxy.iter().map(|(name, value)| format!("{name}={value}")))?);
        env.extend(strings([format!("{MARKER}={session}")])?);
        let argv = strings(spec.argv.iter().cloned())?;
        // The second is replaced by the path that turns out to be a script.
        let shell = [SHELL.to_owned(), String::new()].into_iter().chain(spec.argv.iter().skip(1).cloned());
        Ok(Self {
            shell_argv: Pointers::to(strings(shell)?),
            candidates: Pointers::to(strings(candidates(name, &spec.env))?),
            argv: Pointers::to(argv),
            envp: Pointers::to(env),
            cwd: CString::new(spec.cwd.as_str()).map_err(|_| Failure::new("chdir", libc::EINVAL))?,
            limits: limits(spec.inherited.as_ref()),
            cpus: spec.inherited.as_ref().and_then(|all| cpu_mask(all.cpus.as_deref()?)).unwrap_or_default(),
            inherited: spec.inherited.clone(),
        })
    }

    pub(super) fn orders(
        &mut self,
        gate: RawFd,
        init: Option<RawFd>,
        own_proc: bool,
        stdio: &super::stdio::Stdio,
    ) -> Orders {
        Orders {
            candidates: self.candidates.array.as_ptr(),
            argv: self.argv.array.as_ptr(),
            envp: self.envp.array.as_ptr(),
            shell_argv: self.shell_argv.array.as_mut_ptr(),
            cwd: self.cwd.as_ptr(),
            stdio: stdio.child(),
            terminal: stdio.is_terminal(),
            gate,
            own_proc,
            isolated: ptr::null_mut(),
            proxy: None,
            entry: None,
            init,
            heap: heap(),
            umask: self.inherited.as_ref().map(|inherited| inherited.umask),
            nice: self.inherited.as_ref().map(|inherited| inherited.nice),
            limits: self.limits.as_ptr(),
            limits_count: self.limits.len(),
            ignored: self.inherited.as_ref().map_or(0, |inherited| mask(&inherited.ignored)),
            cpus: self.cpus.as_ptr(),
            cpus_bytes: size_of_val(&*self.cpus),
        }
    }
}

/// Returns where the heap of this process begins, and its length, in whole pages; nothing where that is not known.
fn heap() -> (usize, usize) {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            /// The end of the program's own data, from the linker.
            static _end: u8;
        }
        // SAFETY: all three only tell. This process has one thread, so its heap is what the C library took from the kernel
        // by moving its end.
        let (end, length, page) =
            unsafe { (libc::sbrk(0) as usize, libc::mallinfo().arena, libc::sysconf(libc::_SC_PAGESIZE)) };
        let (length, page) = (usize::try_from(length).unwrap_or(0), usize::try_from(page).unwrap_or(4096));
        let first = end.saturating_sub(length).next_multiple_of(page);
        // If the C library had to take memory from elsewhere, that is counted as well.
        if first < &raw const _end as usize { (0, 0) } else { (first, end.saturating_sub(first) / page * page) }
    }
    #[cfg(not(target_env = "gnu"))]
    (0, 0)
}

/// Returns the limits for the kernel. The daemon has raised its own limit of open files: a program without inherited
/// settings gets the usual one back, so that it does not exceed the limits of `select`.
fn limits(inherited: Option<&Inherited>) -> Vec<(libc::c_uint, libc::rlimit)> {
    const USUAL_FILES: u64 = 1024;
    let number = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
    let Some(inherited) = inherited else {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let soft = number(files.current).min(USUAL_FILES);
        return vec![(libc::RLIMIT_NOFILE, libc::rlimit { rlim_cur: soft, rlim_max: number(files.maximum) })];
    };
    let limit = |limit: &ResourceLimit| {
        (limit.resource, libc::rlimit { rlim_cur: number(limit.soft), rlim_max: number(limit.hard) })
    };
    let differs = |(resource, wanted): &(libc::c_uint, libc::rlimit)| {
        // SAFETY: a structure owned here, to be written to.
        let ours = unsafe {
            let mut ours: libc::rlimit = std::mem::zeroed();
            (libc::getrlimit(*resource, &raw mut ours) == 0).then_some(ours)
        };
        // The limit of processes may be set for the tree until then.
        *resource == libc::RLIMIT_NPROC
            || ours.is_none_or(|ours| (ours.rlim_cur, ours.rlim_max) != (wanted.rlim_cur, wanted.rlim_max))
    };
    inherited.limits.iter().map(limit).filter(differs).collect()
}

fn mask(signals: &[i32]) -> u64 {
    signals.iter().filter(|number| (1..=64).contains(*number)).fold(0, |mask, number| mask | 1 << (number - 1))
}

fn strings(from: impl IntoIterator<Item = String>) -> Result<Vec<CString>, Failure> {
    from.into_iter().map(|s| CString::new(s).map_err(|_| Failure::new("execve", libc::EINVAL))).collect()
}

/// Returns the paths to try, in order. An empty part of `PATH` is the working directory.
fn candidates(name: &str, env: &[(String, String)]) -> Vec<String> {
    if name.contains('/') || name.is_empty() {
        return vec![name.to_owned()];
    }
    let path = env.iter().find(|(variable, _)| variable == "PATH").map_or(DEFAULT_PATH, |(_, value)| value);
    path.split(':').map(|directory| format!("{}/{name}", if directory.is_empty() { "." } else { directory })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_searched_like_in_a_shell() {
        let check = |name: &str, path: Option<&str>, expect: &[&str]| {
            let env: Vec<_> = path.map(|path| ("PATH".to_owned(), path.to_owned())).into_iter().collect();
            assert_eq!(candidates(name, &env), expect);
        };
        check("ls", Some("/a:/b"), &["/a/ls", "/b/ls"]);
        check("ls", Some("/a::"), &["/a/ls", "./ls", "./ls"]);
        check("./ls", Some("/a"), &["./ls"]);
        check("/bin/ls", None, &["/bin/ls"]);
        check("ls", None, &["/usr/local/bin/ls", "/usr/bin/ls", "/bin/ls"]);
        check("", Some("/a"), &[""]);
    }
}
