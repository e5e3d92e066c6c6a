//! The gateway's own process.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use crate::{GATEWAY, control, upstream};

/// Runs the gateway until it is no longer needed. Its only argument is the data directory; its input is a socket of the
/// daemon that started it.
pub fn main() -> ! {
    let code = match run() {
        Ok(()) => 0,
        Err(error) => {
            // Visible only if somebody started it by hand.
            let _ = writeln!(io::stderr(), "error: {GATEWAY} is started by the Relive daemon: {error}");
            1
        }
    };
    std::process::exit(code)
}

/// Returns a name of a program that changes when its file is replaced. Copies have different ones.
pub(crate) fn program_id(path: &Path) -> io::Result<String> {
    let found = rustix::fs::stat(path)?;
    let (seconds, nanoseconds) = (found.st_mtime, found.st_mtime_nsec);
    Ok(format!("{:x}.{:x}.{:x}.{seconds}.{nanoseconds}", found.st_dev, found.st_ino, found.st_size))
}

fn run() -> io::Result<()> {
    let program = program_id(Path::new("/proc/self/exe"))?;
    hide()?;
    let data = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("no data directory is named"))?;
    let data = rustix::fs::open(data, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // A session of its own: neither a terminal nor the end of the daemon's process group reaches it. This fails only for
    // a session leader.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/")?;
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let starter = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    let client = upstream::client().map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(control::serve(data, program, starter, client));
    runtime.shutdown_background();
    served
}

/// Hides this process from all processes except root's: it has keys.
fn hide() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let _ = rustix::thread::set_name(c"relive-gateway");
    Ok(())
}
