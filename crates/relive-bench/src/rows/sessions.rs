//! Programs in sessions, next to the same programs started with `posix_spawn` only.

mod launch;
mod memory;
mod tree;

use std::process::{Child, Command, Stdio};

use crate::Result;
use crate::daemon::{Daemon, Home};
use crate::lab::Lab;
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, seconds};
use crate::table::{Mark, Row, milliseconds};

/// Waits longer than any round takes. What an interrupted run leaves of the raw ones ends by itself.
pub(super) const SLEEP: [&str; 2] = ["/bin/sleep", "120"];

/// The signal that ends a killed session.
const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let lab = Lab::new(place)?;
    let mut rows = launch::measure(options, &lab)?;
    rows.extend(tree::measure(options, &lab)?);
    rows.extend(memory::measure(&lab)?);
    rows.extend(through_the_daemon(options, place)?);
    Ok(rows)
}

/// Plain processes. Dropping them ends them.
struct Raw(Vec<Child>);

impl Raw {
    /// The standard library starts a command like this one with `posix_spawn`, which returns when the program runs.
    fn spawn(count: usize) -> Result<Self> {
        let mut raw = Self(Vec::with_capacity(count));
        for _ in 0..count {
            raw.0.push(quiet(&SLEEP).spawn()?);
        }
        Ok(raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A process that has already ended is fine.
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

pub(super) fn quiet(argv: &[&str]) -> Command {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Measures the two commands as a user types them, next to a shell that does nothing.
fn through_the_daemon(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let home = Home::new(place.directory("exec")?)?;
    let (_, daemon) = Daemon::start(&home)?;
    let mut rounds = Rounds::default();
    for round in 0..=options.rounds {
        let name = format!("true{round}");
        let (ours, ()) = seconds(|| {
            daemon.run(&["exec", "-d", "--name", &name, "--", "/bin/true"])?;
            daemon.run(&["wait", &name])
        })?;
        let (shell, _) = seconds(|| Ok(quiet(&["/bin/sh", "-c", "true"]).status()?))?;
        // The first round warms up.
        if round > 0 {
            rounds.add(ours, shell);
        }
    }
    Ok(vec![Row {
        name: "commands exec -d /bin/true, wait".to_owned(),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  sh -c true", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    }])
}
