//! Sessions of the benchmark's own, with the program that is measured as their shim.
//!
//! All of them are below one directory of the run's, each in a directory as the daemon would give it, so whoever cleans up
//! finds those that go on.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_session::directory::boot_id;
use relive_session::protocol::{Outcome, Verb};
use relive_session::sessions::Sessions;
use relive_session::spec::{Namespace, Spec};
use relive_session::stage::{SessionResult, Stage};
use relive_session::tree::Plan;
use relive_session::{Connection, Launcher, SessionDirectory};
use tokio::runtime::Runtime;

use crate::place::Place;
use crate::{Result, daemon};

const NAME: &str = "sessions";
const LOG_MAX_BYTES: u64 = 1 << 20;

/// Where sessions are launched.
#[derive(Debug)]
pub(crate) struct Lab {
    runtime: Runtime,
    root: PathBuf,
    sessions: Arc<Sessions>,
    launcher: Launcher,
    plan: Plan,
    launched: Cell<usize>,
}

impl Lab {
    pub(crate) fn new(place: &Place) -> Result<Self> {
        let root = place.directory(NAME)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let program = daemon::program()?;
        let sessions = Sessions::new(program.clone(), boot_id()?, format!("relive-bench-{}", std::process::id()));
        let ladder = runtime.block_on(sessions.ladder())?;
        eprintln!("sessions: {} {} {}", ladder.rungs.tree, ladder.rungs.pause, ladder.rungs.kill);
        let plan = ladder.plan.clone();
        let (sessions, launcher, launched) = (Arc::new(sessions), Launcher::new(program), Cell::new(0));
        Ok(Self { runtime, root, sessions, launcher, plan, launched })
    }

    pub(crate) fn spec(&self, argv: &[&str], namespace: Namespace) -> Spec {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        let env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())];
        let plain = Spec::new(argv, env, "/".to_owned(), self.plan.clone());
        Spec { namespace, log_max_bytes: LOG_MAX_BYTES, ..plain }
    }

    /// Where the next session is to be: its owner's directory is there, the rest is made by the launch.
    pub(crate) fn next(&self) -> Result<PathBuf> {
        let number = self.launched.replace(self.launched.get() + 1);
        let owner = self.root.join(number.to_string());
        fs::create_dir(&owner)?;
        Ok(owner.join("sessions").join("0"))
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Launches one as the daemon does, and waits until its program runs or has ended.
    pub(crate) fn launch(&self, path: &Path, spec: &Spec) -> Result<Connection> {
        self.block_on(runs(self.sessions.launch(path, spec)))
    }

    /// The same without the syncs of the directory's name.
    pub(crate) fn launch_unsynced(&self, path: &Path, spec: &Spec) -> Result<Connection> {
        fs::create_dir(path.parent().ok_or("a session has no directory above it")?)?;
        let (directory, lock) = SessionDirectory::create(path)?;
        self.block_on(runs(self.launcher.launch(&directory, lock, spec)))
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

    /// Asks for something that has to be done.
    pub(crate) fn done(&self, connection: &Connection, verb: Verb) -> Result<()> {
        let name = verb.name();
        let outcome = self.block_on(connection.request(verb))?;
        if outcome == Outcome::Done { Ok(()) } else { Err(format!("{name}: {outcome:?}").into()) }
    }

    /// The OS pids of its tree.
    pub(crate) fn members(&self, connection: &Connection) -> Result<Vec<i32>> {
        let outcome = self.block_on(connection.request(Verb::Stat))?;
        let Outcome::Stat(stat) = outcome else { return Err(format!("stat: {outcome:?}").into()) };
        Ok(stat.members)
    }

    /// Waits for the end, which has to be this one.
    pub(crate) fn ended(&self, connection: &Connection, wanted: &SessionResult) -> Result<()> {
        match self.block_on(connection.ended())?.result {
            result if result == *wanted => Ok(()),
            result => Err(format!("a session ended with {result:?} instead of {wanted:?}").into()),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Of a row that failed nothing goes on either.
        end_all(&self.runtime, &self.root);
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

/// Ends every session of a run that is interrupted. None can begin afterwards: the directory they begin in has gone.
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
