//! Where the data, the configuration and the socket are.
//!
//! One daemon serves one data folder, so the socket's name is made from the folder's: two data folders never meet. A
//! unix socket's path has to be short, so it is in the runtime folder, not among the data.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The longest path a unix socket may have.
const SOCKET_PATH_MAX: usize = 107;

/// The places of one user and one data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The data folder.
    pub data: PathBuf,
    /// `config.yaml`.
    pub config: PathBuf,
    /// The daemon's socket; its folder is the user's alone.
    pub socket: PathBuf,
    /// What the daemon has to say when nobody is listening.
    pub log: PathBuf,
}

/// Why there is no telling where things are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathsError {
    /// Neither the variable nor a home folder is set.
    NoHome {
        /// What would settle it.
        variable: &'static str,
    },
    /// The path of the socket would be too long.
    SocketTooLong(PathBuf),
}

impl std::fmt::Display for PathsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHome { variable } => write!(f, "neither {variable} nor HOME is set"),
            Self::SocketTooLong(path) => {
                write!(f, "{}: longer than the {SOCKET_PATH_MAX} bytes a socket's path may have", path.display())
            }
        }
    }
}

impl std::error::Error for PathsError {}

impl Paths {
    /// From the environment.
    pub fn from_env() -> Result<Self, PathsError> {
        let uid = rustix::process::getuid().as_raw();
        Self::resolve(|name| std::env::var_os(name).filter(|value| !value.is_empty()), uid)
    }

    fn resolve(var: impl Fn(&str) -> Option<OsString>, uid: u32) -> Result<Self, PathsError> {
        let path = |name: &str| var(name).map(PathBuf::from);
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
        let runtime = path("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/tmp/relive-{uid}").into()).join("relive");
        let socket = path("RELIVE_SOCKET").map_or_else(|| runtime.join(short_name(&data)).join("socket"), absolute);
        if socket.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(PathsError::SocketTooLong(socket));
        }
        let log = data.join("daemon.log");
        Ok(Self { data, config, socket, log })
    }
}

impl Paths {
    /// A short name that no other data folder has.
    #[must_use]
    pub fn short_name(&self) -> String {
        short_name(&self.data)
    }
}

/// A short name that no other data folder has.
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

    fn check(vars: &[(&str, &str)], data: &str, config: &str) -> PathBuf {
        let var = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        let paths = Paths::resolve(var, 7).unwrap();
        assert_eq!((paths.data.to_str(), paths.config.to_str()), (Some(data), Some(config)));
        paths.socket
    }

    #[test]
    fn places_follow_the_environment_and_two_data_folders_never_meet() {
        let home = check(&[("HOME", "/h")], "/h/.local/share/relive", "/h/.config/relive/config.yaml");
        assert!(home.starts_with("/tmp/relive-7/relive/"));
        let own = check(&[("HOME", "/h"), ("RELIVE_DATA_DIR", "/d")], "/d", "/h/.config/relive/config.yaml");
        assert_ne!(home, own);
        let xdg = [("XDG_DATA_HOME", "/x"), ("XDG_CONFIG_HOME", "/c"), ("XDG_RUNTIME_DIR", "/r")];
        assert!(check(&xdg, "/x/relive", "/c/relive/config.yaml").starts_with("/r/relive/"));
        let named = [("HOME", "/h"), ("RELIVE_SOCKET", "/s")];
        assert_eq!(check(&named, "/h/.local/share/relive", "/h/.config/relive/config.yaml"), Path::new("/s"));
    }

    #[test]
    fn without_a_home_it_says_what_to_set() {
        let error = Paths::resolve(|_| None, 7).unwrap_err();
        assert_eq!(error, PathsError::NoHome { variable: "RELIVE_DATA_DIR" });
    }
}
