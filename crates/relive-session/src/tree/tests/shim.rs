//! A process in the role of the shim: it creates a tree, runs a program in it, and follows orders on its standard
//! input.

use std::ffi::CString;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use super::wait_until;
use crate::spec::Limits;
use crate::tree::{FREEZE_MAX, Ladder, MARKER, Made, Plan, Tree};

const ORDER: &str = "RELIVE_TEST_SHIM";
const BOMB: &str = "RELIVE_TEST_BOMB";
/// Distinguishes answers from the output of the test harness.
const SIGN: &str = "answer: ";

#[derive(Serialize, Deserialize)]
struct Order {
    plan: Plan,
    name: String,
    limits: Limits,
    script: String,
}

pub(super) struct Shim {
    pub(super) name: String,
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    tree: Option<Made>,
}

impl Shim {
    pub(super) fn start(ladder: &Ladder, limits: &Limits, script: &str) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let (plan, script) = (ladder.plan.clone(), script.to_owned());
        let order = Order { plan, name: name.clone(), limits: *limits, script };
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tree::tests::shim::be_the_shim", "--nocapture"])
            .env(ORDER, serde_json::to_string(&order).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut shim = Self { name, process, input, output: BufReader::new(output).lines(), tree: None };
        shim.tree = Some(shim.made());
        shim
    }

    pub(super) fn ask(&mut self, verb: &str) -> String {
        writeln!(self.input, "{verb}").unwrap();
        loop {
            let line = self.output.next().expect("the shim has ended").unwrap();
            if let Some((_, answer)) = line.split_once(SIGN) {
                return answer.to_owned();
            }
        }
    }

    pub(super) fn members(&mut self) -> Vec<i32> {
        serde_json::from_str(&self.ask("members")).unwrap()
    }

    pub(super) fn made(&mut self) -> Made {
        serde_json::from_str(&self.ask("made")).unwrap()
    }

    pub(super) fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    pub(super) fn kill_and_remove(&mut self) {
        wait_until("it is empty", || {
            assert_eq!(self.ask("kill"), "done");
            self.ask("empty") == "true"
        });
        assert_eq!(self.members(), [0; 0]);
        assert_eq!(self.ask("remove"), "done");
        self.tree = None;
    }

    /// Dies as by `kill -9`.
    pub(super) fn die(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        // A failed test must not leave anything behind either.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(made) = &self.tree {
            let tree = Tree::reopen(made);
            for _ in 0..100 {
                let _ = tree.kill();
                if tree.is_empty() {
                    break;
                }
            }
            let _ = tree.remove();
        }
    }
}

/// Only runs if it is started as the shim.
#[test]
fn be_the_shim() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let order: Order = serde_json::from_str(&order).unwrap();
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).unwrap();
    let mut tree = Tree::make(&order.plan, &order.name, &order.limits).unwrap();
    launch(&mut tree, &order);
    for line in std::io::stdin().lines() {
        // SAFETY: no status is requested; nobody else waits for children here.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) } > 0 {}
        let done = |outcome: std::io::Result<()>| outcome.map_or_else(|error| error.to_string(), |()| "done".into());
        let answer = match line.unwrap().as_str() {
            "members" => serde_json::to_string(&tree.members()).unwrap(),
            "made" => serde_json::to_string(tree.made()).unwrap(),
            "freeze" => done(tree.freeze(FREEZE_MAX)),
            "thaw" => done(tree.thaw()),
            "kill" => done(tree.kill()),
            "empty" => tree.is_empty().to_string(),
            "oom" => (tree.oom_kills() > 0).to_string(),
            "remove" => done(tree.remove()),
            other => panic!("{other}"),
        };
        println!("{SIGN}{answer}");
    }
}

/// Returns a script that is a fork bomb. A shell would exit when it cannot fork; this one tries again for ever.
pub(super) fn bomb() -> String {
    let program = std::env::current_exe().unwrap();
    format!("{BOMB}=1 exec '{}' --exact tree::tests::shim::be_the_bomb", program.display())
}

/// Only runs if it is started as the bomb.
#[test]
fn be_the_bomb() {
    if std::env::var_os(BOMB).is_none() {
        return;
    }
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    loop {
        // SAFETY: the child, like its parent, does nothing but this: system calls.
        unsafe {
            libc::fork();
            libc::nanosleep(&raw const pause, std::ptr::null_mut());
        }
    }
}

/// Clones a child into the tree, places it while it waits at its gate, and lets it execute a shell.
fn launch(tree: &mut Tree, order: &Order) {
    let text = |text: &str| CString::new(text).unwrap();
    let words = [text("sh"), text("-c"), text(&order.script)];
    let variables = [text(&format!("{MARKER}={}", order.name)), text("PATH=/usr/bin:/bin")];
    let pointers =
        |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let (arguments, environment) = (pointers(&words), pointers(&variables));
    let (gate, opener) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let (gate_number, null) =
        (gate.as_raw_fd(), std::fs::File::options().read(true).write(true).open("/dev/null").unwrap());
    // SAFETY: numbers only, for which zero means nothing.
    let mut request: libc::clone_args = unsafe { std::mem::zeroed() };
    request.flags = tree.clone_flags();
    request.exit_signal = libc::SIGCHLD as u64;
    request.cgroup = tree.cgroup().map_or(0, |leaf| leaf.as_raw_fd() as u64);
    // SAFETY: the arguments live through the call; nothing is shared with the child, which makes system calls only.
    let pid = unsafe {
        let pid = libc::syscall(libc::SYS_clone3, &raw const request, size_of::<libc::clone_args>());
        if pid == 0 {
            let mut byte = 0u8;
            libc::read(gate_number, (&raw mut byte).cast(), 1);
            libc::setpgid(0, 0);
            (0..3).for_each(|number| _ = libc::dup2(null.as_raw_fd(), number));
            libc::execve(c"/bin/sh".as_ptr(), arguments.as_ptr(), environment.as_ptr());
            libc::_exit(127);
        }
        pid
    };
    assert!(pid > 0, "clone3: {}", std::io::Error::last_os_error());
    tree.place(pid as i32).unwrap();
    rustix::io::write(&opener, b"g").unwrap();
}
