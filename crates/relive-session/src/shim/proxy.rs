//! The start of the proxy through which a session reaches the hosts of its allow list.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use relive_proxy::PROXY;
use relive_sandbox::{Isolation, Network};

use crate::spec::Spec;
use crate::stage::Failure;

/// This very program, also if its file was replaced since.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The socket of a proxy, which runs until it is closed everywhere.
#[derive(Debug)]
pub(super) struct Proxy(UnixStream);

/// Returns whether the program of a spec reaches the network through a proxy. On a machine that cannot hold it to that it
/// would not be needed.
pub(super) fn is_wanted(spec: &Spec) -> bool {
    let policy = &spec.isolation.policy;
    let is_held = policy.isolation == Isolation::None || spec.isolation.machine.namespaces_work();
    matches!(policy.network, Network::Proxy(_)) && is_held && spec.enter.is_none()
}

impl Proxy {
    /// Starts the proxy that a spec asks for. On return its files are in the directory of the session.
    pub(super) fn start(spec: &Spec, directory: &Path) -> Result<Option<Self>, Failure> {
        if !is_wanted(spec) {
            return Ok(None);
        }
        let settings = spec.proxy.clone().unwrap_or_default();
        let start = || -> io::Result<Self> {
            let (mut ours, theirs) = UnixStream::pair()?;
            let text = serde_json::to_vec(&settings)?;
            let mut command = Command::new(THIS_PROGRAM);
            command.arg0(PROXY).arg(directory).env_clear();
            command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
            let mut started = command.spawn()?;
            // Its copy of the other end is gone now, so a proxy that fails does not leave this one waiting.
            drop(command);
            let length = u32::try_from(text.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            let told = ours.write_all(&length.to_le_bytes()).and_then(|()| ours.write_all(&text));
            let status = started.wait()?;
            told?;
            if status.success() { Ok(Self(ours)) } else { Err(io::Error::other("it could not be started")) }
        };
        start().map(Some).map_err(|error| Failure::of("proxy", &error))
    }

    /// Returns the socket for the child.
    pub(super) fn socket(&self) -> Result<OwnedFd, Failure> {
        self.0.try_clone().map(OwnedFd::from).map_err(|error| Failure::of("proxy", &error))
    }
}
