//! The paths of the data, the configuration and the socket.
//!
//! One daemon serves one data directory, so the name of the socket is derived from the directory: two data directories
//! never share a socket. The path of a unix socket has to be short, so it is in the runtime directory, not among the
//! data.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use relive_types::Uuid;
use sha2::{Digest as _, Sha256};

use crate::directory::check_directory;

/// The longest path of a unix socket.
const SOCKET_PATH_MAX: usize = 107;

/// The name of the socket of a process: short, as its path has to be.
pub const OWN_SOCKET: &str = "s";
/// How many of the last digits of its UUID name the socket of a process that has entered a session.
const ENTERED_DIGITS: usize = 12;

/// The paths of one user and one data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    pub data: PathBuf,
    pub config: PathBuf,
    /// The daemon's socket; its directory is accessible only to the user.
    pub socket: PathBuf,
    pub log: PathBuf,
}

/// The reason why the paths cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathsError {
    /// Neither the variable nor a home directory is set.
    NoHome {
        /// The variable to set.
        variable: &'static str,
    },
    /// The path of the socket is too long.
    SocketTooLong(PathBuf),
}

impl std::fmt::Display for PathsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHome { variable } => {
                write!(f, "neither {variable} nor HOME is set, so there is no directory for {}", contents_of(variable))
            }
            Self::SocketTooLong(path) => {
                write!(f, "{}: the path of a socket has at most {SOCKET_PATH_MAX} bytes", path.display())
            }
        }
    }
}

impl std::error::Error for PathsError {}

/// Returns what is kept in the directory that a variable names.
fn contents_of(variable: &str) -> &'static str {
    if variable == "XDG_CONFIG_HOME" { "config.yaml" } else { "the data" }
}

impl Paths {
    /// Determines the paths from the environment.
    pub fn from_env() -> Result<Self, PathsError> {
        let uid = rustix::process::getuid().as_raw();
        Self::resolve(|name| std::env::var_os(name).filter(|value| !value.is_empty()), uid, |path| Found::at(path, uid))
    }

    fn resolve(
        var: impl Fn(&str) -> Option<OsString>,
        uid: u32,
        look: impl Fn(&Path) -> Found,
    ) -> Result<Self, PathsError> {
        // Without doubled slashes: people read these paths.
        let path = |name: &str| var(name).map(|path| PathBuf::from(path).components().collect::<PathBuf>());
        let below_home =
            |rest: &str, variable| path("HOME").map(|home| home.join(rest)).ok_or(PathsError::NoHome { variable });
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let data = match (path("RELIVE_DATA_DIR"), path("XDG_DATA_HOME")) {
            (Some(data), _) => absolute(data),
            (None, Some(base)) => base.join("relive"),
            (None, None) => below_home(".local/share/relive", "RELIVE_DATA_DIR")?,
        };
        let config = match path("XDG_CONFIG_HOME") {
            Some(base) => base.join("relive/config.yaml"),
            None => below_home(".config/relive/config.yaml", "XDG_CONFIG_HOME")?,
        };
        let socket = match path("RELIVE_SOCKET") {
            Some(socket) => absolute(socket),
            None => default_socket(path("XDG_RUNTIME_DIR"), uid, &data, look),
        };
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(PathsError::SocketTooLong(socket));
        }
        let log = data.join("daemon.log");
        Ok(Self { data, config, socket, log })
    }
}

impl Paths {
    /// Says why the directory that `XDG_RUNTIME_DIR` names is not used for the socket, if it is not.
    #[must_use]
    pub fn unused_runtime_directory() -> Option<String> {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if var("RELIVE_SOCKET").is_some() {
            return None;
        }
        let xdg = var("XDG_RUNTIME_DIR")?;
        if xdg.is_relative() {
            return Some(format!("XDG_RUNTIME_DIR ({}) is not used: its path is relative", xdg.display()));
        }
        let reason = match check_directory(&xdg) {
            Err(wrong) => wrong.reason(),
            Ok(()) if Found::at(&xdg, rustix::process::getuid().as_raw()) == Found::Other => {
                "it belongs to root".to_owned()
            }
            Ok(()) => return None,
        };
        Some(format!("XDG_RUNTIME_DIR ({}) is not used: {reason}", xdg.display()))
    }

    /// Returns a short name that is unique to this data directory.
    #[must_use]
    pub fn short_name(&self) -> String {
        short_name(&self.data)
    }

    /// Returns the directory with the sockets of processes.
    #[must_use]
    pub fn own_sockets(&self) -> PathBuf {
        self.socket.with_file_name("self")
    }

    /// Returns the socket of a process, which `RELIVE_SELF` names in the environment of its programs. It is alone in its
    /// directory, which is all that an isolated program sees of these.
    #[must_use]
    pub fn own_socket(&self, uuid: Uuid) -> PathBuf {
        self.own_sockets().join(uuid.simple().to_string()).join(OWN_SOCKET)
    }

    /// Returns the socket of a process that has entered the session of another one: in the directory of that one, so that it
    /// is seen from inside.
    #[must_use]
    pub fn entered_socket(&self, uuid: Uuid, entered: Uuid) -> PathBuf {
        let name = uuid.simple().to_string();
        self.own_socket(entered).with_file_name(&name[name.len() - ENTERED_DIGITS..])
    }
}

/// The state of a possible runtime directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A directory that belongs to the user alone.
    Private,
    /// Something else that belongs to the user, or to root and that everybody may write to.
    Own,
    /// Something that belongs to another user, or to root alone.
    Other,
}

impl Found {
    fn at(path: &Path, uid: u32) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::Nothing,
            // Also where a link leads: whoever owns that can put another socket there.
            Ok(_) if check_directory(path).is_err() => Self::Other,
            Ok(found) if found.uid() == uid && found.is_dir() && found.mode() & 0o077 == 0 => Self::Private,
            Ok(found) if found.uid() == uid => Self::Own,
            // After `su` from root the variable has the directory of root.
            Ok(found) if found.uid() == 0 && found.mode() & 0o002 != 0 => Self::Own,
            Ok(_) | Err(_) => Self::Other,
        }
    }
}

/// Returns the default path of the socket: in the first runtime directory that belongs to the user, or can be created,
/// and whose path is short enough.
fn default_socket(xdg: Option<PathBuf>, uid: u32, data: &Path, look: impl Fn(&Path) -> Found) -> PathBuf {
    let below = |base: &Path| base.join("relive").join(short_name(data)).join("socket");
    let fits = |socket: &PathBuf| socket.as_os_str().len() <= SOCKET_PATH_MAX;
    let (user, shared) = (PathBuf::from(format!("/run/user/{uid}")), PathBuf::from(format!("/tmp/relive-{uid}")));
    // `su` and `sudo -E` leave a variable with the directory of another user.
    // A relative path is to be ignored: it would be another one in each directory.
    let xdg = xdg.filter(|xdg| xdg.is_absolute() && look(xdg) != Found::Other);
    if let Some(socket) = xdg.map(|xdg| below(&xdg)).filter(fits) {
        return socket;
    }
    let (in_user, in_shared) = (below(&user), below(&shared));
    // A daemon of an earlier version is still running.
    let is_old = look(&shared) == Found::Private && look(&in_shared) != Found::Nothing;
    if look(&user) == Found::Private && (!is_old || look(&in_user) != Found::Nothing) {
        return in_user;
    }
    // Another user may have created it, to block or to impersonate the daemon: then the socket is in the data
    // directory, which belongs to the user.
    if matches!(look(&shared), Found::Nothing | Found::Private) { in_shared } else { data.join("run").join("socket") }
}

/// Returns a short name that is unique to this data directory.
fn short_name(data: &Path) -> String {
    let hash = Sha256::digest(data.as_os_str().as_bytes());
    hash.iter().take(8).fold(String::new(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(vars: &[(&str, &str)], there: &[(&str, Found)]) -> Result<Paths, PathsError> {
        let var = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        let look = |path: &Path| {
            there.iter().find(|(place, _)| Path::new(place) == path).map_or(Found::Nothing, |(_, found)| *found)
        };
        Paths::resolve(var, 7, look)
    }

    fn check(vars: &[(&str, &str)], data: &str, config: &str) -> PathBuf {
        let paths = resolve(vars, &[]).unwrap();
        assert_eq!((paths.data.to_str(), paths.config.to_str()), (Some(data), Some(config)));
        paths.socket
    }

    #[test]
    fn a_directory_that_only_another_user_may_write_to_is_not_ours() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let owner = directory.path().metadata().unwrap().uid();
        assert_ne!(Found::at(directory.path(), owner), Found::Other);
        assert_eq!(Found::at(directory.path(), owner + 1), Found::Other, "also if the other one is root");
    }

    #[test]
    fn paths_follow_the_environment_and_data_directories_never_share_a_socket() {
        let home = check(&[("HOME", "/h")], "/h/.local/share/relive", "/h/.config/relive/config.yaml");
        assert!(home.starts_with("/tmp/relive-7/relive/"));
        let own = check(&[("HOME", "/h"), ("RELIVE_DATA_DIR", "/d")], "/d", "/h/.config/relive/config.yaml");
        assert_ne!(home, own);
        let xdg = [("XDG_DATA_HOME", "/x"), ("XDG_CONFIG_HOME", "/c"), ("XDG_RUNTIME_DIR", "/r")];
        assert!(check(&xdg, "/x/relive", "/c/relive/config.yaml").starts_with("/r/relive/"));
        let doubled = [("XDG_DATA_HOME", "/x//y/"), ("XDG_CONFIG_HOME", "//c/"), ("RELIVE_SOCKET", "/s//t")];
        assert_eq!(check(&doubled, "/x/y/relive", "/c/relive/config.yaml").to_str(), Some("/s/t"));
        let named = [("HOME", "/h"), ("RELIVE_SOCKET", "/s")];
        assert_eq!(check(&named, "/h/.local/share/relive", "/h/.config/relive/config.yaml"), Path::new("/s"));
    }

    #[test]
    fn the_runtime_directory_belongs_to_the_user_with_and_without_a_variable() {
        use Found::{Other, Own, Private};
        const USER: &str = "/run/user/7";
        const SHARED: &str = "/tmp/relive-7";
        let check = |xdg: Option<&str>, there: &[(&str, Found)], expected: &str| {
            let mut vars = vec![("HOME", "/h"), ("RELIVE_DATA_DIR", "/d")];
            vars.extend(xdg.map(|xdg| ("XDG_RUNTIME_DIR", xdg)));
            let socket = resolve(&vars, there).unwrap().socket;
            assert!(socket.starts_with(expected), "{xdg:?} {there:?}: {}", socket.display());
        };
        check(Some("/r"), &[("/r", Private), (USER, Private)], "/r/relive");
        check(Some("/r"), &[("/r", Own)], "/r/relive");
        check(Some("/r"), &[("/r", Other), (USER, Private)], USER);
        check(Some("/r"), &[("/r", Other)], SHARED);
        check(Some("r"), &[("r", Private), (USER, Private)], USER);
        check(Some(""), &[], SHARED);
        check(None, &[(USER, Private), (SHARED, Private)], USER);
        check(None, &[(USER, Own)], SHARED);
        check(None, &[(USER, Other), (SHARED, Private)], SHARED);
        check(None, &[(SHARED, Other)], "/d/run/socket");
        check(None, &[(SHARED, Own)], "/d/run/socket");
        let old = format!("{SHARED}/relive/{}/socket", short_name(Path::new("/d")));
        check(None, &[(USER, Private), (SHARED, Private), (&old, Own)], SHARED);
        let new = format!("{USER}/relive/{}/socket", short_name(Path::new("/d")));
        check(None, &[(USER, Private), (SHARED, Private), (&old, Own), (&new, Own)], USER);
        check(None, &[(USER, Private), (SHARED, Other), (&old, Other)], USER);
    }

    #[test]
    fn a_socket_path_that_is_too_long_is_moved_or_refused() {
        let long = format!("/{}", "r".repeat(100));
        let vars = [("HOME", "/h"), ("RELIVE_DATA_DIR", &long), ("XDG_RUNTIME_DIR", &long)];
        assert!(resolve(&vars, &[]).unwrap().socket.starts_with("/tmp/relive-7"));
        let error = resolve(&vars, &[("/tmp/relive-7", Found::Other)]).unwrap_err();
        assert_eq!(error, PathsError::SocketTooLong(Path::new(&long).join("run/socket")));
        let named = [("HOME", "/h"), ("RELIVE_SOCKET", &format!("{long}/socket"))];
        assert!(matches!(resolve(&named, &[]), Err(PathsError::SocketTooLong(_))));
    }

    #[test]
    fn without_a_home_the_error_names_the_variable_to_set() {
        let error = resolve(&[], &[]).unwrap_err();
        assert_eq!(error, PathsError::NoHome { variable: "RELIVE_DATA_DIR" });
    }
}
