//! The proxy's own process.

use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::DumpableBehavior;
use tokio::io::AsyncReadExt as _;

use crate::log::Log;
use crate::relay::Proxy;
use crate::settings::Settings;
use crate::{PROXY, SOCKET, control};

/// The longest settings.
const SETTINGS_MAX: usize = 1 << 20;

/// How many names are resolved at a time, each in a thread; the next ones wait.
const RESOLVERS_MAX: usize = 4;
/// The stack size that resolving a name needs.
const RESOLVER_STACK_BYTES: usize = 256 << 10;

/// Runs the proxy of a session until its shim is gone. Its only argument is the directory of the session; its input is the
/// shim's socket, which sends the settings and then the listener.
pub fn main() -> ! {
    let code = match run() {
        Ok(()) => 0,
        Err(error) => {
            // Visible only if somebody started it by hand.
            let _ = writeln!(io::stderr(), "error: {PROXY} is started by a shim of Relive: {error}");
            1
        }
    };
    std::process::exit(code)
}

fn run() -> io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("no directory is named"))?;
    let directory = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut shim = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    let settings = read_settings(&mut shim)?;
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let log = Log::open(&directory)?;
    let socket = bind(&directory)?;
    // The shim waits for the end of the process that it started, and is no parent of the one that stays: it waits for its
    // own children until the session is empty.
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {}
        1.. => return Ok(()),
        _ => return Err(io::Error::last_os_error()),
    }
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_name(c"relive-proxy")?;
    #[cfg(target_env = "gnu")]
    // The threads that resolve names would get memory pools of their own, and keep them.
    // SAFETY: numbers, before there is another thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    let served = match receive_listener(&shim)? {
        Some(listener) => serve(settings, log, listener.into(), socket, shim),
        // The launch has failed.
        None => Ok(()),
    };
    let _ = rustix::fs::unlinkat(&directory, SOCKET, AtFlags::empty());
    served
}

fn read_settings(shim: &mut UnixStream) -> io::Result<Settings> {
    let mut length = [0; 4];
    shim.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > SETTINGS_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    shim.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn bind(directory: &OwnedFd) -> io::Result<UnixListener> {
    let _ = rustix::fs::unlinkat(directory, SOCKET, AtFlags::empty());
    // By the descriptor: the path may be longer than that of a socket.
    UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
}

/// Waits for the listener, which the child of the shim sends with one byte; nothing if it sends none.
fn receive_listener(shim: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    loop {
        match rustix::net::recvmsg(shim, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => {
                received?;
                break;
            }
        }
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

fn serve(
    settings: Settings,
    log: Log,
    listener: std::net::TcpListener,
    socket: UnixListener,
    shim: UnixStream,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    shim.set_nonblocking(true)?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.max_blocking_threads(RESOLVERS_MAX).thread_stack_size(RESOLVER_STACK_BYTES);
    let runtime = builder.enable_all().build()?;
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let socket = tokio::net::UnixListener::from_std(socket)?;
        let mut shim = tokio::net::UnixStream::from_std(shim)?;
        let proxy = Arc::new(Proxy::new(settings, log));
        tokio::spawn(Arc::clone(&proxy).accept_all(listener));
        tokio::spawn(control::accept_all(proxy, socket));
        // It says nothing more: this is its end.
        let mut byte = [0];
        while shim.read(&mut byte).await.is_ok_and(|length| length > 0) {}
        Ok(())
    });
    // A name that is being resolved is not waited for.
    runtime.shutdown_background();
    served
}
