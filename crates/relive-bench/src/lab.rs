//! Sessions of the benchmark, with the measured program as their shim.
//!
//! All of them are below one directory of the run, in the layout of the daemon, so the cleanup finds those that are
//! still running.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_sandbox::Isolation;
use relive_session::Connection;
use relive_session::directory::boot_id;
use relive_session::protocol::{Outcome, Verb};
use relive_session::sessions::Sessions;
use relive_session::spec::{self, Machine, Names, Namespace, Policy, Spec};
use relive_session::stage::{SessionResult, Stage};
use relive_session::tree::Plan;
use tokio::runtime::Runtime;

use crate::place::Place;
use crate::{Result, daemon};

const NAME: &str = "sessions";
const LOG_MAX_BYTES: u64 = 1 << 20;

/// Launches sessions.
#[derive(Debug)]
pub(crate) struct Lab {
    runtime: Runtime,
    root: PathBuf,
    sessions: Arc<Sessions>,
    plan: Plan,
    machine: Machine,
    launched: Cell<usize>,
}

impl Lab {
    pub(crate) fn new(place: &Place) -> Result<Self> {
        let root = place.directory(NAME)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let program = daemon::program()?;
        let sessions = Sessions::new(program, boot_id()?, format!("relive-bench-{}", std::process::id()));
        let ladder = runtime.block_on(sessions.ladder())?;
        eprintln!("sessions: {} {} {}", ladder.rungs.tree, ladder.rungs.pause, ladder.rungs.kill);
        let (plan, machine) = (ladder.plan.clone(), ladder.isolation.clone());
        let (sessions, launched) = (Arc::new(sessions), Cell::new(0));
        Ok(Self { runtime, root, sessions, plan, machine, launched })
    }

    pub(crate) fn spec(&self, argv: &[&str], namespace: Namespace) -> Spec {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let plain = Spec::new(argv, env, "/".to_owned(), self.plan.clone());
        // As the daemon launches them on the usual file systems.
        Spec { namespace, log_max_bytes: LOG_MAX_BYTES, names: Names::InOrder, ..plain }
    }

    /// Returns a spec of an isolated program that works in an empty directory; nothing if this machine cannot isolate.
    pub(crate) fn isolated(&self, argv: &[&str], isolation: Isolation, cwd: &Path) -> Option<Spec> {
        if !self.machine.can_confine() {
            return None;
        }
        let policy = Policy { isolation, ..Policy::default() };
        let isolation = spec::Isolation { policy, machine: self.machine.clone() };
        Some(Spec { isolation, cwd: cwd.display().to_string(), ..self.spec(argv, Namespace::AsPlanned) })
    }

    /// Returns the directory of the next session: the directory of its owner exists, the launch creates the rest.
    pub(crate) fn next(&self) -> Result<PathBuf> {
        let number = self.launched.replace(self.launched.get() + 1);
        let owner = self.root.join(number.to_string());
        fs::create_dir(&owner)?;
        Ok(owner.join("sessions").join("0"))
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Launches a session like the daemon, and waits until its program runs or has ended.
    pub(crate) fn launch(&self, path: &Path, spec: &Spec) -> Result<Connection> {
        self.block_on(runs(self.sessions.launch(path, spec)))
    }

    /// Launches one in each directory, all at once.
    pub(crate) fn launch_all(&self, paths: Vec<PathBuf>, spec: &Spec) -> Result<Vec<Connection>> {
        let begin = |path: PathBuf| {
            let (sessions, spec) = (self.sessions.clone(), spec.clone());
            self.runtime.spawn(async move { runs(sessions.launch(&path, &spec)).await })
        };
        let begun: Vec<_> = paths.into_iter().map(begin).collect();
        self.block_on(async {
            let mut running = Vec::new();
            for task in begun {
                running.push(task.await??);
            }
            Ok(running)
        })
    }

    /// Sends a request that must succeed.
    pub(crate) fn done(&self, connection: &Connection, verb: Verb) -> Result<()> {
        let name = verb.name();
        let outcome = self.block_on(connection.request(verb))?;
        if outcome == Outcome::Done { Ok(()) } else { Err(format!("{name}: {outcome:?}").into()) }
    }

    /// Returns the OS pids of its process tree.
    pub(crate) fn members(&self, connection: &Connection) -> Result<Vec<i32>> {
        let outcome = self.block_on(connection.request(Verb::Stat))?;
        let Outcome::Stat(stat) = outcome else { return Err(format!("stat: {outcome:?}").into()) };
        Ok(stat.members)
    }

    /// Waits for the end, which must be this one.
    pub(crate) fn ended(&self, connection: &Connection, wanted: &SessionResult) -> Result<()> {
        match self.block_on(connection.ended())?.result {
            result if result == *wanted => Ok(()),
            result => Err(format!("a session ended with {result:?} instead of {wanted:?}").into()),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Sessions of a failed row must not keep running either. The next row has the directory to itself.
        end_all(&self.runtime, &self.root);
        if let Err(error) = crate::place::remove(&self.root) {
            eprintln!("{}: not removed: {error}", self.root.display());
        }
    }
}

async fn runs<E>(launched: impl Future<Output = Result<Connection, E>>) -> Result<Connection>
where
    crate::Error: From<E>,
{
    let connection = launched.await?;
    let runs = |stage: Stage| stage == Stage::Running || stage.is_terminal();
    connection.wait_for(|seen| runs(seen.snapshot.stage)).await?;
    Ok(connection)
}

/// Ends every session of an interrupted run. No new one can start afterwards: their directory is gone.
pub(crate) fn end_interrupted(runtime: &Runtime, root: &Path) {
    let ending = root.join("ending");
    if fs::rename(root.join(NAME), &ending).is_ok() {
        end_all(runtime, &ending);
    }
}

fn end_all(runtime: &Runtime, root: &Path) {
    let Ok(boot_id) = boot_id() else { return };
    let sessions = Sessions::new(PathBuf::new(), boot_id, String::new());
    for owner in fs::read_dir(root).into_iter().flatten().flatten() {
        if let Err(error) = runtime.block_on(sessions.end_all(&owner.path().join("sessions"))) {
            eprintln!("{}: not ended: {error}", owner.path().display());
        }
    }
}
