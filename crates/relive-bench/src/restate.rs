//! Restate, another engine for durable steps, on the same disk in the same run, as installed by
//! `scripts/install-restate`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::Running;
use crate::{Error, Result};

const READY_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SERVICE: &str = include_str!("../restate/service.mjs");

/// A server and the service it calls. Dropping it kills both.
#[derive(Debug)]
pub(crate) struct Restate {
    ingress: u16,
    _server: Running,
    _service: Running,
}

impl Restate {
    /// Starts a server on a directory of its own, or returns why it cannot be measured.
    pub(crate) fn start(root: &Path) -> Result<Self> {
        let installed = installed()?;
        fs::create_dir(root)?;
        let [ingress, admin, node, service] = free_ports()?;
        let script = root.join("service.mjs");
        fs::write(&script, SERVICE)?;
        let mut command = Command::new("node");
        command.arg(&script).arg(&installed).arg(service.to_string()).env("NODE_ENV", "production");
        command.env("RESTATE_LOGGING", "ERROR");
        let service_process = spawn(command, root, "service.log")?;
        let mut command = Command::new(server(&installed)?);
        command.arg("--no-logo").arg("--base-dir").arg(root.join("data"));
        let address = |port: u16| format!("127.0.0.1:{port}");
        command.env("RESTATE_INGRESS__BIND_ADDRESS", address(ingress));
        command.env("RESTATE_ADMIN__BIND_ADDRESS", address(admin)).env("RESTATE_BIND_ADDRESS", address(node));
        command.env("RESTATE_LISTEN_MODE", "tcp").env("RUST_LOG", "error").env("DO_NOT_TRACK", "1");
        let server_process = spawn(command, root, "server.log")?;
        let restate = Self { ingress, _server: server_process, _service: service_process };
        let deployment = serde_json::json!({ "uri": format!("http://127.0.0.1:{service}") }).to_string();
        let begun = Instant::now();
        while post(admin, "/deployments", &deployment).is_err() {
            if begun.elapsed() > READY_WITHIN {
                return Err(format!("it was not ready within {READY_WITHIN:?}").into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(restate)
    }

    /// Runs one invocation to its end.
    pub(crate) fn invoke(&self, handler: &str, input: &serde_json::Value) -> Result<()> {
        post(self.ingress, &format!("/steps/{handler}"), &input.to_string())
    }
}

fn spawn(mut command: Command, root: &Path, log: &str) -> Result<Running> {
    let log = File::create(root.join(log))?;
    command.current_dir(root).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    Running::spawn(&mut command)
}

/// Returns where it is installed: `target/restate`, or the path in `RELIVE_RESTATE_DIR`.
fn installed() -> Result<PathBuf> {
    let directory = match std::env::var_os("RELIVE_RESTATE_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => std::env::current_exe()?.ancestors().nth(2).ok_or("the program has no directory")?.join("restate"),
    };
    if directory.join("node_modules/@restatedev/restate-sdk").is_dir() {
        return Ok(directory.canonicalize()?);
    }
    Err("it is not installed (scripts/install-restate)".into())
}

/// Returns the server program in the package for this platform.
fn server(installed: &Path) -> Result<PathBuf> {
    let packages = fs::read_dir(installed.join("node_modules/@restatedev"))?;
    let programs = packages.flatten().map(|package| package.path().join("bin/restate-server"));
    programs
        .into_iter()
        .find(|program| program.is_file())
        .ok_or_else(|| Error::from("it has no server for this platform"))
}

/// Returns unused ports.
fn free_ports() -> Result<[u16; 4]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All at once, so that they differ.
    let listeners = [listen()?, listen()?, listen()?, listen()?];
    let mut ports = [0; 4];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// Sends one request on its own connection, which must be answered with a 2xx.
fn post(port: u16, path: &str, body: &str) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let request = format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.starts_with(b"HTTP/1.1 2") {
        return Ok(());
    }
    Err(format!("Restate answered {path}: {}", String::from_utf8_lossy(&answer)).into())
}
