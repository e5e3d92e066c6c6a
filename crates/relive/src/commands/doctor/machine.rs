//! The rows about files, the daemon and the kernel.

use std::path::{Path, PathBuf};

use relive_session::tree;
use rustix::fs::Access;

use super::Row;
use crate::client::{Client, Start, refuse_unreached};
use crate::commands::config;
use crate::context::Context;
use crate::error::OTHER_DATA;

/// Below this a data directory is nearly full.
const FREE_MIN_BYTES: u64 = 256_000_000;
/// The first kernel with everything that sessions can use: `cgroup.kill`.
const KERNEL_GOOD: (u32, u32) = (5, 14);

pub(super) fn data(context: &Context) -> Row {
    let path = &context.paths.data;
    let shown = path.display().to_string();
    let place = first_that_exists(path);
    if rustix::fs::access(&place, Access::WRITE_OK | Access::EXEC_OK).is_err() || !place.is_dir() {
        let what = if place == *path { String::new() } else { format!("{} ", place.display()) };
        return Row::ok("data", shown, format!("{what}cannot be written to")).failed(OTHER_DATA);
    }
    let Ok(disk) = rustix::fs::statvfs(&place) else {
        return Row::ok("data", shown, "the free space is not known").weak(format!("df {}", place.display()));
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let row = Row::ok("data", shown, format!("{} free", crate::render::size::bytes(free)));
    if free < FREE_MIN_BYTES { row.weak("free some space: every process pauses when the disk is full") } else { row }
}

/// Returns the directory itself, or its first existing parent.
fn first_that_exists(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    absolute.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/")).into()
}

pub(super) fn config(context: &Context) -> Row {
    let path = &context.paths.config;
    let shown = path.display().to_string();
    match config::load(&context.paths) {
        Ok(_) if path.exists() => Row::ok("config", shown, "valid"),
        Ok(_) => Row::ok("config", shown, "no such file: all settings have their defaults"),
        Err(_) => Row::ok("config", shown, "invalid").failed("relive config show"),
    }
}

pub(super) async fn daemon(context: &Context) -> Row {
    let ours = env!("CARGO_PKG_VERSION");
    let unusable = |error: crate::error::CommandError| {
        let row = Row::ok("daemon", "", format!("does not answer correctly: {}", error.message));
        row.failed(error.hint.unwrap_or_else(|| format!("tail {}", context.paths.log.display())))
    };
    let client = match Client::open(context, Start::Never).await {
        Ok(Some(client)) => client,
        Ok(None) => return no_daemon(context),
        Err(error) => return unusable(error),
    };
    match client.daemon().await {
        Ok(status) if status.version == ours => {
            Row::ok("daemon", "running", format!("OS pid {}, version {ours}", status.os_pid))
        }
        Ok(status) => {
            let means = format!("OS pid {}, version {}, while this is {ours}", status.os_pid, status.version);
            Row::ok("daemon", "running", means).weak("relive daemon restart")
        }
        Err(error) => unusable(error.into()),
    }
}

/// Nothing listens on the socket: no daemon runs, or the one that does is not reached.
fn no_daemon(context: &Context) -> Row {
    match refuse_unreached(context) {
        Ok(()) => Row::ok("daemon", "not running", "starts when it is needed"),
        Err(error) => {
            let means = error.lines().join("; ");
            Row::ok("daemon", "not reachable", means).failed(error.hint.unwrap_or_default())
        }
    }
}

pub(super) fn kernel() -> Row {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let row = |means| Row::ok("kernel", release.clone(), means);
    if version_of(&release).is_none_or(|version| version < KERNEL_GOOD) {
        return row("lacks features that sessions use").weak("use Linux 5.14 or newer");
    }
    row("has all features that sessions use")
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}

pub(super) fn user_namespaces(prefix: &str) -> Row {
    match tree::try_user_namespace(prefix) {
        Ok(()) => Row::ok("user namespaces", "allowed", ""),
        Err(failure) => {
            let refused = format!("{} failed: {}", failure.stage, failure.errno);
            let row = Row::ok("user namespaces", "refused", refused);
            row.weak("see user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns in sysctl -a")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_whatever_follows_its_numbers() {
        assert_eq!(version_of("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version_of("5.4"), Some((5, 4)));
        assert_eq!(version_of("strange"), None);
    }

    #[test]
    fn a_missing_directory_is_checked_by_its_parent() {
        assert_eq!(first_that_exists(Path::new("/proc/no/such/folder")), Path::new("/proc"));
    }
}
