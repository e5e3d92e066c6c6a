//! Programs beside the agents, and the loss of the shims of both.

use std::fs;
use std::path::Path;

use relive_api::ExecRequest;
use relive_core::Uuid;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::json;

use crate::daemon::Places;
use crate::drive::Driver;

/// Programs exit with codes below this.
const CODES: u64 = 7;

/// The command of a program that exits with `code`: one line in the world, the same on its output.
pub(crate) fn command(places: &Places, code: u64, away: bool, pauses_ms: [u64; 2]) -> String {
    let lines = places.lines.display();
    let [before, after] = pauses_ms.map(|pause| format!("sleep {}.{:03}", pause / 1000, pause % 1000));
    let away = if away { "setsid sleep 300 & " } else { "" };
    format!("{away}{before}; echo \"$RELIVE_SESSION x\" >> {lines}; echo begun; {after}; echo over; exit {code}")
}

/// The request for a program that runs a line of shell.
pub(crate) fn request(places: &Places, uuid: Uuid, command: &str) -> ExecRequest {
    let request = json!({
        "uuid": uuid,
        "argv": ["/bin/sh", "-c", command],
        "cwd": places.work,
        "stdio": "null",
        "env": { "PATH": "/usr/bin:/bin" },
    });
    serde_json::from_value(request).unwrap()
}

impl Driver<'_> {
    /// Begins a program.
    pub(crate) fn exec(&mut self) {
        let (uuid, code) = (self.dice.uuid(), self.dice.between(0, CODES));
        let pauses = [self.dice.between(0, 50), self.dice.between(0, 1500)];
        let command = command(self.places, code, self.dice.chance(30), pauses);
        self.oracle.program(uuid, code);
        let request = request(self.places, uuid, &command);
        match self.ask("a program", |client| client.exec(&request)) {
            Some(Ok(started)) => self.oracle.exists(uuid, started.pid),
            Some(Err(refused)) => self.oracle.violation(format!("a program was refused: {refused:?}")),
            None => {}
        }
    }

    /// Kills some shim with -9.
    pub(crate) fn lose_a_shim(&mut self) {
        let shims = shims(self.places);
        let Some((pid, session)) = self.dice.pick(&shims) else { return };
        let Some(pid) = Pid::from_raw(*pid) else { return };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // The descriptor stands for whoever has the pid now.
        if shim_of(self.places, pid.as_raw_nonzero().get()).as_ref() == Some(session) {
            self.oracle.lock().shims_lost.insert(session.clone());
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

/// The shims of this run: pid, and the name of the session.
pub(crate) fn shims(places: &Places) -> Vec<(i32, String)> {
    processes().filter_map(|pid| Some((pid, shim_of(places, pid)?))).collect()
}

/// All OS processes.
pub(crate) fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The name of the session whose shim this is. A child at the gate looks the same, and has it as its parent.
fn shim_of(places: &Places, pid: i32) -> Option<String> {
    let session = session_of(places, pid)?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(session).filter(|session| session_of(places, parent).as_ref() != Some(session))
}

/// By its command line: the directory's name, and whose it is.
fn session_of(places: &Places, pid: i32) -> Option<String> {
    let line = String::from_utf8(fs::read(format!("/proc/{pid}/cmdline")).ok()?).ok()?;
    let mut words = line.split('\0');
    let directory = words.next().filter(|name| *name == "relive-shim").and(words.next()).map(Path::new)?;
    let below = directory.strip_prefix(places.data.join("steps")).ok()?;
    let mut parts = below.iter().map(|part| part.to_string_lossy());
    let (owner, session) = (parts.next()?, parts.nth(1)?);
    Some(format!("{session}-{owner}"))
}
