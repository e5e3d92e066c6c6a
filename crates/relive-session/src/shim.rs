//! The shim: the parent of one session's program.
//!
//! Started by [`crate::launch`] under the name [`crate::SHIM`], with three descriptors and the directory's path; it reads what to
//! run, clones the program into its tree, and stays until nothing of it is left.
//!
//! What always holds:
//! - one thread and one loop; nobody who is connected is waited for, and the program waits for nobody but the disk and a
//!   reader who asked it to;
//! - every signal is blocked, and the end of a child is read from a descriptor that was open before there was any child;
//! - the directory says `running` before the gate opens;
//! - it ends by [`ending`] only: tree empty, output in the log, exit record on the disk, everybody told.

mod birth;
mod child;
mod clients;
mod daemon;
mod deadline;
mod ending;
mod program;
mod serve;
mod spawn;
mod stdio;
mod turn;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use clients::Clients;
use deadline::Deadline;
use program::Program;
use spawn::Child;
use stdio::Stdio;

use crate::directory::{RecordedStage, STATE_VERSION, SessionDirectory, State, boot_id};
use crate::log;
use crate::proc::Identity;
use crate::protocol::{PACKET_MAX, Verb};
use crate::spec::{self, Spec};
use crate::stage::{Answer, Due, Event, Failure, Session};
use crate::tree::Tree;

/// How long a program whose output is to be read as it comes waits for its reader, who may have died on the way.
const READER_PATIENCE: Duration = Duration::from_secs(30);

/// Runs the shim. What it was born with says what to do.
pub fn main() -> ! {
    let code = match run() {
        Ok(()) => 0,
        Err(error) => {
            // Heard only where somebody started it by hand: what it is born with are no terminals.
            let _ = writeln!(io::stderr(), "error: {error}");
            1
        }
    };
    std::process::exit(code)
}

/// One session, from its parent's side.
struct Shim {
    directory: SessionDirectory,
    /// Held until the end, never used.
    _lock: OwnedFd,
    signals: OwnedFd,
    clients: Clients,
    log: log::Writer,
    /// Until when the program waits for a reader who was announced and has not come yet.
    reader_due: Option<Instant>,
    /// Whether the log has lost something.
    output_lost: bool,
    session: Session,
    tree: Option<Tree>,
    child: Option<Child>,
    /// Whether the child was reaped, or never was.
    child_gone: bool,
    stdio: Option<Stdio>,
    stored: Vec<(String, OwnedFd)>,
    daemon: Option<spec::DaemonStart>,
    frozen: bool,
    deadline: Deadline,
    /// Whether the time of the program was up.
    timed_out: bool,
    /// Whether somebody asked for the end of the whole tree.
    kill_asked: bool,
    /// The signals that were sent, one bit each.
    sent: u64,
    /// The ids of the last requests that sent a signal.
    signals_sent: VecDeque<String>,
    /// For packets and output alike.
    buffer: Vec<u8>,
}

fn run() -> io::Result<()> {
    let mut born = birth::take()?;
    let signals = birth::become_parent()?;
    let directory = SessionDirectory::open(born.directory)?;
    let log = log::Writer::open(&directory, born.spec.log_max_bytes)?;
    directory.reserve_exit()?;
    let clients = Clients::new(directory.ctl_bind()?, born.owner);
    // The directory is reached by its descriptor; no other one is held from being unmounted.
    rustix::process::chdir("/")?;
    let mut shim = Shim {
        directory,
        _lock: born.lock,
        signals,
        clients,
        log,
        reader_due: (born.spec.pace == spec::Pace::Held).then(|| Instant::now() + READER_PATIENCE),
        output_lost: false,
        session: Session::new(born.spec.gate, matches!(born.spec.stdio, spec::Stdio::Pty(_))),
        tree: None,
        child: None,
        child_gone: true,
        stdio: None,
        stored: Vec::new(),
        daemon: born.spec.daemon.take(),
        frozen: false,
        deadline: Deadline::of(born.spec.timeout_ms.map(Duration::from_millis), Instant::now()),
        timed_out: false,
        kill_asked: false,
        sent: 0,
        signals_sent: VecDeque::new(),
        buffer: vec![0; PACKET_MAX],
    };
    if let Err(failure) = shim.launch(&born.spec) {
        shim.happened(Event::Failed(failure));
    }
    // The environment may hold secrets: the program has it now, we need it no longer.
    drop(born.spec);
    birth::hide();
    while !shim.session.stage().is_terminal() {
        shim.turn(None)?;
    }
    shim.end()
}

impl Shim {
    fn launch(&mut self, spec: &Spec) -> Result<(), Failure> {
        let name = self.directory.name();
        let mut program = Program::of(spec, &name)?;
        let mut stdio = Stdio::open(spec.stdio, spec.streams).map_err(|error| Failure::of("stdio", &error))?;
        self.tree = Some(Tree::make(&spec.tree, &name, &spec.limits)?);
        // From here on whoever finds the directory finds the tree.
        self.write_state(RecordedStage::Starting)?;
        let Some(tree) = self.tree.as_mut() else { return Ok(()) };
        let child = Child::spawn(&mut program, &mut stdio, spec.namespace, tree)?;
        self.stdio = Some(stdio);
        self.child_gone = false;
        let host_pid = child.pid;
        self.child = Some(child);
        self.happened(Event::Spawned { host_pid });
        Ok(())
    }

    /// Takes in what happened, and does what it calls for.
    fn happened(&mut self, event: Event) {
        // What cannot happen now is passed over: a child that failed still ends.
        let before = self.session.stage();
        let Ok(due) = self.session.apply(event) else { return };
        if self.session.stage() != before {
            self.clients.session_moved();
        }
        for due in due {
            let done = match due {
                Due::OpenGate => self.open_gate(),
                Due::Abort | Due::Kill => self.kill().map_err(|error| Failure::of("kill", &error)),
                Due::Signal(number) => {
                    // Kept for a program that has ended meanwhile: there is nobody to tell.
                    let _ = self.signal(number);
                    Ok(())
                }
            };
            if let Err(failure) = done {
                self.happened(Event::Failed(failure));
            }
        }
    }

    fn open_gate(&mut self) -> Result<(), Failure> {
        self.write_state(RecordedStage::Running)?;
        if let Some(child) = &self.child {
            child.open_gate()?;
        }
        self.happened(Event::Opened);
        Ok(())
    }

    fn write_state(&self, stage: RecordedStage) -> Result<(), Failure> {
        let Some(tree) = &self.tree else { return Ok(()) };
        let snapshot = self.session.snapshot();
        let written = boot_id().and_then(|boot_id| {
            self.directory.write_state(&State {
                version: STATE_VERSION,
                boot_id,
                stage,
                shim_pid: std::process::id() as i32,
                host_pid: snapshot.host_pid,
                start_time: snapshot
                    .host_pid
                    .and_then(|pid| Identity::of(pid).ok())
                    .map(|identity| identity.start_time),
                snapshot,
                tree: tree.made().clone(),
                rungs: tree.rungs().clone(),
            })
        });
        written.map_err(|error| Failure::of("state", &error))
    }

    fn signal(&mut self, number: i32) -> io::Result<()> {
        let Some(child) = &self.child else { return Err(io::Error::from_raw_os_error(libc::ESRCH)) };
        child.signal(number)?;
        self.sent |= 1 << (number - 1);
        Ok(())
    }

    /// Ends a program whose time is up: asks it first, and kills it when its grace is over.
    fn check_deadline(&mut self) {
        match self.deadline.take(Instant::now()) {
            Some(deadline::Due::Term) => {
                self.timed_out = true;
                if self.session.ask(&Verb::signal(libc::SIGTERM)) == Answer::Act {
                    // One that cannot be told is killed.
                    let _ = self.signal(libc::SIGTERM);
                }
            }
            Some(deadline::Due::Kill) => {
                self.kill_asked = true;
                // Tried again when the child has ended.
                let _ = self.kill();
            }
            None => {}
        }
    }

    /// One pass: kills whoever is in the tree now. Frozen ones take it when they are thawed, and do nothing else before.
    fn kill(&mut self) -> io::Result<()> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let killed = tree.kill().and(tree.kill_escaped());
        let thawed = if std::mem::take(&mut self.frozen) { tree.thaw() } else { Ok(()) };
        let child = match &self.child {
            Some(child) if !self.child_gone => child.signal(libc::SIGKILL),
            Some(_) | None => Ok(()),
        };
        killed.and(thawed).and(child)
    }
}
