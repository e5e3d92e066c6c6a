//! Starts a daemon that is needed inside a session, through its shim. Started from here, it would be part of the
//! session's tree, and would end with it, together with everything it does for others.

use std::path::{Path, PathBuf};

use relive_api::Paths;
use relive_session::SessionDirectory;
use relive_session::connection::Connection;
use relive_session::peer;
use relive_session::proc;
use relive_session::protocol::{Outcome, Verb};
use relive_session::tree::MARKER;

/// Lets the shim of this session start the daemon, if this is a session of the data directory. Returns whether it did.
pub(super) async fn start(paths: &Paths) -> bool {
    let marked = std::env::var(MARKER).ok().and_then(|name| directory_of(&paths.data, &name));
    let above = proc::shim_above(rustix::process::getpid().as_raw_nonzero().get());
    let above = above.filter(|directory| directory.starts_with(&paths.data));
    for directory in above.into_iter().chain(marked) {
        let Ok(socket) = SessionDirectory::open(directory).and_then(|folder| folder.ctl_connect()) else { continue };
        let Ok(connection) = Connection::adopt(socket).await else { continue };
        if matches!(connection.request(Verb::StartDaemon).await, Ok(Outcome::Done)) {
            return true;
        }
    }
    false
}

/// Returns the directory of a session, whose name is its number, or its call, and its process.
fn directory_of(data: &Path, name: &str) -> Option<PathBuf> {
    let uuid = peer::uuid_at_end(name)?;
    let session = name.strip_suffix(uuid)?.strip_suffix('-')?;
    let is_plain = !session.is_empty() && session.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_plain.then(|| data.join("steps").join(uuid).join("sessions").join(session))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0198f3c1-0000-7000-8000-000000000000";

    #[test]
    fn a_session_is_found_by_its_name() {
        let directory = directory_of(Path::new("/data"), &format!("call-7-{UUID}")).unwrap();
        assert_eq!(directory, Path::new("/data/steps").join(UUID).join("sessions/call-7"));
        for bad in ["", "7", UUID, &format!("../x-{UUID}"), &format!("-{UUID}")] {
            assert_eq!(directory_of(Path::new("/data"), bad), None, "{bad}");
        }
    }
}
