//! Finding out in a process of its own what this machine gives.
//!
//! The daemon is not dumpable, and neither is a child that it clones without executing anything: the kernel lets nobody but
//! root set up the user namespace of such a child, and the rung would be missed.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::SHIM;
use crate::tree::{LADDER_VARIABLE, Ladder};

/// The argument of a shim that only probes, before the prefix.
const FLAG: &str = "--probe";

/// Has a program that becomes a shim try the rungs. Blocks, for some milliseconds.
pub(crate) fn probe_apart(program: &Path, prefix: &str) -> Ladder {
    let tried = || -> io::Result<Ladder> {
        let mut command = Command::new(program);
        command.arg0(SHIM).args([FLAG, prefix]).env_clear();
        command.envs(std::env::var_os(LADDER_VARIABLE).map(|wanted| (LADDER_VARIABLE, wanted)));
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    // A program that cannot do it is no shim, or one that cannot be executed any more.
    tried().unwrap_or_else(|_| Ladder::probe(prefix))
}

/// Tries the rungs and says what was found, if this process was started for that.
pub(crate) fn answer_if_asked() {
    let mut arguments = std::env::args().skip(1);
    let (Some(flag), Some(prefix)) = (arguments.next(), arguments.next()) else { return };
    if flag != FLAG {
        return;
    }
    let told = serde_json::to_vec(&Ladder::probe(&prefix)).map_err(io::Error::from);
    let told = told.and_then(|ladder| io::stdout().write_all(&ladder));
    std::process::exit(i32::from(told.is_err()))
}
