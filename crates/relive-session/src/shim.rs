//! The shim: the parent of one session's program.
//!
//! Started by [`crate::launch`] under the name [`crate::SHIM`], with three descriptors and the directory's path, or as a
//! [`spare`], which gets these later; it reads its spec, clones the program into its tree, and stays until the tree is empty.
//!
//! **Invariants:**
//! - one thread and one loop; the shim waits for no client, and the program waits only for the disk and for a reader
//!   that asked for it;
//! - every signal is blocked, and the end of a child is read from a descriptor that was open before there was any
//!   child;
//! - the directory says `running` before the gate opens;
//! - it ends only through [`ending`]: tree empty, output in the log, exit record on the disk, every client told.

mod birth;
mod child;
mod clients;
mod daemon;
mod deadline;
mod ending;
mod enter;
mod isolate;
mod program;
mod proxy;
mod serve;
mod spare;
mod spawn;
mod stdio;
mod turn;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use clients::Clients;
use deadline::Deadline;
use program::Program;
use proxy::Proxy;
use relive_sandbox::Places;
use spawn::Child;
use stdio::Stdio;

use crate::directory::{RecordedStage, STATE_VERSION, SessionDirectory, State, boot_id};
use crate::inherited;
use crate::log;
use crate::proc::Identity;
use crate::protocol::{PACKET_MAX, Verb};
use crate::spec::{self, Spec};
use crate::stage::{Answer, Due, Event, Failure, Session};
use crate::tree::{Ahead, Tree};

/// How long a program whose output is read as it arrives waits for its reader, which may have died during the launch.
const READER_PATIENCE: Duration = Duration::from_secs(30);

/// Runs the shim, as its initial descriptors say.
pub fn main() -> ! {
    crate::probe::answer_if_asked();
    let code = match run() {
        Ok(()) => 0,
        Err(error) => {
            // Visible only if somebody started it by hand: its initial descriptors are not terminals.
            let _ = writeln!(io::stderr(), "error: {error}");
            1
        }
    };
    std::process::exit(code)
}

/// One session, from the side of its shim.
struct Shim {
    directory: SessionDirectory,
    /// Held until the end, never used.
    _lock: OwnedFd,
    signals: OwnedFd,
    clients: Clients,
    log: log::Writer,
    /// Until when the program waits for an announced reader that has not connected yet.
    reader_due: Option<Instant>,
    /// Whether output is missing from the log.
    output_lost: bool,
    on_full_disk: spec::OnFullDisk,
    /// Output that waits for space on the disk.
    unwritten: Option<(log::Stream, Vec<u8>)>,
    session: Session,
    tree: Option<Tree>,
    child: Option<Child>,
    /// The program of the session that was entered, whose end is the end of this one.
    entered: Option<OwnedFd>,
    /// The mount points that the program's isolation needs.
    places: Option<Places>,
    /// The stage that was written last.
    recorded: RecordedStage,
    /// The leaf that it is in, which may be that of its session.
    ahead: Option<Ahead>,
    /// Ends with this process, whose end of the socket is held for that.
    proxy: Option<Proxy>,
    /// Whether the child was reaped, or never existed.
    child_gone: bool,
    stdio: Option<Stdio>,
    stored: Vec<(String, OwnedFd)>,
    daemon: Option<spec::DaemonStart>,
    frozen: bool,
    deadline: Deadline,
    /// Whether the program reached its time limit.
    timed_out: bool,
    /// Whether somebody asked to kill the whole tree.
    kill_asked: bool,
    /// The signals that were sent, one bit each.
    sent: u64,
    /// The last sender of each signal, where its owner named one.
    senders: BTreeMap<i32, u32>,
    /// Who aborted the session, where its owner named one.
    aborted_by: Option<u32>,
    /// The number of the last signal that somebody asked for, and when it was sent.
    last_signal: Option<(i32, Instant)>,
    /// The ids of the last requests that sent a signal.
    signals_sent: VecDeque<String>,
    /// For packets and output.
    buffer: &'static mut [u8],
    names: spec::Names,
}

fn run() -> io::Result<()> {
    let mut born = birth::take()?;
    // Before this process is one to which orphans come: the proxy is no part of the session.
    let proxy = Proxy::start(&born.spec, &born.directory);
    let signals = birth::become_parent()?;
    let directory = SessionDirectory::open(born.directory)?;
    let log = log::Writer::create(&directory, born.spec.log_max_bytes)?;
    directory.reserve_exit()?;
    let clients = Clients::new(directory.ctl_bind()?, born.owner);
    // The directory is reached by its descriptor; no other directory is kept from being unmounted.
    rustix::process::chdir("/")?;
    let mut shim = Shim {
        directory,
        _lock: born.lock,
        signals,
        clients,
        log,
        reader_due: (born.spec.pace == spec::Pace::Held).then(|| Instant::now() + READER_PATIENCE),
        output_lost: false,
        on_full_disk: born.spec.on_full_disk,
        unwritten: None,
        session: session_of(&born.spec),
        tree: None,
        child: None,
        entered: None,
        places: None,
        recorded: RecordedStage::Starting,
        ahead: born.ahead.take(),
        proxy: None,
        child_gone: true,
        stdio: None,
        stored: Vec::new(),
        daemon: born.spec.daemon.take(),
        frozen: false,
        deadline: Deadline::of(born.spec.timeout_ms.map(Duration::from_millis), Instant::now()),
        timed_out: false,
        kill_asked: false,
        sent: 0,
        senders: BTreeMap::new(),
        aborted_by: None,
        last_signal: None,
        signals_sent: VecDeque::new(),
        buffer: birth::buffer(PACKET_MAX)?,
        names: born.spec.names,
    };
    let launched = proxy.and_then(|proxy| shim.launch(&born.spec, proxy));
    if let Err(failure) = launched {
        shim.happened(Event::Failed(failure));
    }
    // The environment may contain secrets: the program has it now, and the shim needs it no longer.
    drop(born.spec);
    birth::hide();
    while !shim.session.stage().is_terminal() {
        shim.turn(None)?;
    }
    shim.end()
}

/// Returns whether the program of a spec reaches the network through a proxy, which its shim starts.
pub(crate) fn needs_proxy(spec: &Spec) -> bool {
    proxy::is_wanted(spec)
}

fn session_of(spec: &Spec) -> Session {
    let session = Session::new(spec.gate, matches!(spec.stdio, spec::Stdio::Pty(_)));
    if spec.enter.is_some() { session.entering() } else { session }
}

/// Returns when a process of the tree started. The first one is known.
fn start_time(pid: i32, tree: &Tree) -> Option<u64> {
    let root = tree.made().root.filter(|root| root.pid == pid);
    root.or_else(|| Identity::of(pid).ok()).map(|identity| identity.start_time)
}

impl Shim {
    fn launch(&mut self, spec: &Spec, proxy: Option<Proxy>) -> Result<(), Failure> {
        let name = self.directory.name();
        let mut program = Program::of(spec, &name)?;
        let mut stdio = Stdio::open(spec.stdio, spec.streams).map_err(|error| Failure::of("stdio", &error))?;
        let mut isolated = isolate::prepare(spec, &stdio)?;
        let plan = isolated.tree_plan().unwrap_or(&spec.tree);
        let mut tree = match &mut self.ahead {
            Some(ahead) => Tree::make_around(plan, &name, &spec.limits, ahead)?,
            None => Tree::make(plan, &name, &spec.limits)?,
        };
        isolated.describe(&mut tree, spec.proxy.as_ref());
        if let Some(wanted) = &spec.inherited {
            tree.say_degraded(inherited::unheld(wanted, tree.rungs().isolation != "none"));
        }
        if let Some(proxy) = &proxy {
            isolated.set_proxy(proxy.socket()?);
        }
        self.proxy = proxy;
        self.tree = Some(tree);
        // From here on the directory leads to the tree.
        self.write_state(RecordedStage::Starting)?;
        let Some(tree) = self.tree.as_mut() else { return Ok(()) };
        let child = Child::spawn(&mut program, &mut stdio, spec.namespace, &mut isolated, tree)?;
        let (entered, places) = isolated.into_kept();
        (self.entered, self.places) = (entered, Some(places));
        self.stdio = Some(stdio);
        self.child_gone = false;
        let host_pid = child.pid;
        self.child = Some(child);
        self.happened(Event::Spawned { host_pid });
        Ok(())
    }

    /// Applies an event, and carries out its effects.
    fn happened(&mut self, event: Event) {
        // Impossible events are ignored: a child that failed still ends.
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
                    // Kept for a program that has ended in the meantime: nobody has to be told.
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

    fn write_state(&mut self, stage: RecordedStage) -> Result<(), Failure> {
        self.recorded = stage;
        let Some(tree) = &self.tree else { return Ok(()) };
        let snapshot = self.session.snapshot();
        let written = boot_id().and_then(|boot_id| {
            self.directory.write_state(&State {
                version: STATE_VERSION,
                boot_id,
                stage,
                shim_pid: std::process::id() as i32,
                host_pid: snapshot.host_pid,
                start_time: snapshot.host_pid.and_then(|pid| start_time(pid, tree)),
                snapshot,
                tree: tree.made().clone(),
                rungs: tree.rungs().clone(),
                guarded: self.places.as_ref().and_then(Places::guarded).cloned(),
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

    /// Ends a program that reached its time limit: asks first, and kills it after the grace period.
    fn check_deadline(&mut self) {
        match self.deadline.take(Instant::now()) {
            Some(deadline::Due::Term) => {
                self.timed_out = true;
                if self.session.ask(&Verb::signal(libc::SIGTERM)) == Answer::Act {
                    // A program that cannot be asked is killed.
                    let _ = self.signal(libc::SIGTERM);
                }
            }
            Some(deadline::Due::Kill) => {
                self.kill_asked = true;
                // Repeated when the child has ended.
                let _ = self.kill();
            }
            None => {}
        }
    }

    /// Kills everything in the tree, once. Frozen processes die when they are thawed, and run nothing before.
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
