//! The paths of this machine that a policy applies to: read once, right before the launch.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::mounts::c_path;
use crate::places::Places;
use crate::policy::{Isolation, Policy};
use crate::real_path::real_path;
use crate::state::FoundState;
use crate::{git, system};

/// Caches that build tools cannot do without, below the home directory. Each is made if it is missing, with the directory
/// before it: a program could not. Not all of `.cargo` is writable: its `bin` is in the user's `PATH`.
const CACHES: [(&str, &str); 4] = [("", ".cache"), (".cargo", "registry"), (".cargo", "git"), (".npm", "_cacache")];

/// Secrets below the home directory.
const SECRETS: [&str; 17] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".config/gh",
    ".netrc",
    ".git-credentials",
    ".password-store",
    ".local/share/keyrings",
    // Virtual machines that run containers, with their sockets.
    ".colima",
    ".lima",
    ".orbstack",
    ".rd",
    ".local/share/containers/podman/machine",
];

/// Sockets and directories of sockets through which the machine or the user's other programs can be controlled.
const SOCKETS: [&str; 18] = [
    "/run/user",
    "/run/dbus",
    "/run/docker.sock",
    "/run/docker",
    "/run/containerd",
    "/run/k3s",
    "/run/buildkit",
    "/run/podman",
    "/run/crio",
    "/run/libvirt",
    "/run/lxd",
    "/run/incus",
    "/run/snapd.socket",
    "/run/systemd/notify",
    "/run/systemd/private",
    "/run/systemd/machine",
    "/run/screen",
    "/run/tmux",
];

/// Files of a working directory that make other agents execute commands.
const AGENT_FILES: [&str; 5] =
    [".claude/settings.json", ".claude/settings.local.json", ".codex/config.toml", ".cursor/mcp.json", ".mcp.json"];

/// Sockets and directories of sockets in the runtime directory of the user.
const RUNTIME_SOCKETS: [&str; 7] = ["bus", "containerd", "docker.sock", "gnupg", "keyring", "podman", "systemd"];

/// The paths that a policy applies to. All of them are canonical and exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// The working directory.
    pub cwd: PathBuf,
    /// The directory that it must be in.
    pub within: Option<PathBuf>,
    /// Directories for temporary files.
    pub temporary: Vec<PathBuf>,
    /// A further one, which the program has chosen.
    pub own_temporary: Option<PathBuf>,
    pub caches: Vec<PathBuf>,
    /// Further writable directories of the policy.
    pub writable: Vec<PathBuf>,
    /// The program's own state.
    pub state: FoundState,
    /// Directories and other files that are hidden.
    pub hidden: Vec<(PathBuf, Shape)>,
    /// Hidden directories that may contain the working directory.
    pub private: Vec<PathBuf>,
    /// Parts of hidden directories that are visible.
    pub shown: Vec<(PathBuf, Shape)>,
    /// Files that are visible also in empty directories.
    pub programs: Vec<PathBuf>,
    /// Files of the working directory, and of those above it, that stay as they are where they are writable.
    pub protected: Vec<PathBuf>,
    /// The repositories that the working directory needs.
    pub git: Vec<GitDirectory>,
    /// Descriptions of what should be protected and cannot be.
    pub unprotected: Vec<String>,
    /// Says which repository does not become writable, and how it would.
    pub read_only: Option<String>,
    /// The files of `/proc` through which root controls the machine.
    pub proc_controls: Vec<PathBuf>,
    /// The device files that a program gets.
    pub devices: Vec<PathBuf>,
    /// The program's terminal, by its name on the host.
    pub terminal: Option<PathBuf>,
    /// Whether the user is root here.
    pub is_root: bool,
}

/// Whether a path is a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    Directory,
    Other,
}

/// The directory of a Git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitDirectory {
    /// Directories that are writable and cannot be renamed.
    pub pinned: Vec<PathBuf>,
    /// The parts through which commands are executed, without the configuration.
    pub protected: Vec<PathBuf>,
    pub configs: Vec<PathBuf>,
}

impl Surroundings {
    /// Looks at the machine for a program with this working directory and environment. Blocks on the file system. Makes
    /// caches that are missing, and the parts of a repository whose absence could not be protected; these last as long as the
    /// places do.
    pub fn look(policy: &Policy, cwd: &Path, env: &[(String, String)]) -> io::Result<(Self, Places)> {
        if policy.isolation == Isolation::None {
            let found = Self { cwd: cwd.to_owned(), is_root: is_root(), ..Self::default() };
            return Ok((found, Places::default()));
        }
        let cwd = real_path(cwd)?;
        let variable = |name: &str| variable(env, name);
        let homes = homes(policy, env);
        let temporary = distinct(["/tmp", "/var/tmp"].iter().filter_map(|path| directory(Path::new(path))));
        // Not that of the environment, if the user's is known: the program may have chosen one with links to other places.
        let [chosen, own] = &homes;
        let cache_home = own.as_ref().or(chosen.as_ref().filter(|_| policy.home.is_none()));
        let proc_controls = ["bus", "fs", "irq", "sys", "sysrq-trigger"].map(|name| Path::new("/proc").join(name));
        let devices = ["null", "zero", "full", "random", "urandom", "tty"].map(|name| Path::new("/dev").join(name));
        let writable = distinct(policy.writable.iter().filter_map(|path| directory(path)));
        let within = policy.within.as_deref().map(real_path).transpose()?;
        // A directory that is refused below may be one to which a link was made right now: nothing is made in it.
        let is_refused = within.as_ref().is_some_and(|within| !cwd.starts_with(within));
        let mut repository =
            if is_refused { git::Repository::default() } else { git::find_repository(&cwd, &writable) };
        let is_writable = |path: &Path| std::iter::once(&cwd).chain(&writable).any(|other| path.starts_with(other));
        let hidden: Vec<(PathBuf, PathBuf)> = hidden_paths(policy, env, &homes)
            .into_iter()
            .filter_map(|path| Some((real_path(&path).ok()?, path)))
            .collect();
        // A program that removes the link would keep the next one from finding what is to be hidden.
        let behind_links = hidden.iter().filter(|(real, path)| real != path).map(|(_, path)| path.clone());
        let named = policy.configuration.iter().cloned().chain(agent_files(&cwd)).chain(behind_links);
        let links = named.filter_map(|path| replaceable_link(&path, is_writable));
        repository.unprotected.extend(distinct(links).iter().map(|path| git::link(path)));
        // Every program is in it, and nothing would be left to run.
        let is_everything = |path: &&PathBuf| real_path(path).is_ok_and(|path| path.parent().is_none());
        let roots = policy.hidden.iter().filter(is_everything);
        repository.unprotected.extend(roots.map(|path| format!("{} cannot be hidden", path.display())));
        let found = Self {
            own_temporary: variable("TMPDIR").and_then(|path| directory(&path)).filter(|own| !temporary.contains(own)),
            temporary,
            caches: match (cache_home, policy.isolation) {
                (Some(home), Isolation::Confined) => caches(home),
                (Some(_), Isolation::None | Isolation::Sealed) | (None, _) => Vec::new(),
            },
            state: FoundState::look(&policy.state, &writable),
            writable,
            hidden: shaped(hidden.into_iter().map(|(real, _)| real)),
            private: distinct(policy.private.iter().filter_map(|path| directory(path))),
            shown: shaped(policy.shown.iter().filter_map(|path| real_path(path).ok())),
            programs: distinct(policy.programs.iter().filter_map(|path| file(path))),
            protected: protected(&cwd).into_iter().chain(repository.file).collect(),
            git: repository.directories,
            unprotected: repository.unprotected,
            read_only: repository.read_only,
            proc_controls: proc_controls.into_iter().filter(|path| path.exists()).collect(),
            devices: devices.into_iter().filter(|path| path.exists()).collect(),
            is_root: is_root(),
            terminal: None,
            within,
            cwd,
        };
        Ok((found, repository.places))
    }
}

/// Returns the files of a working directory and of those above it, apart from those of its repository, that isolated programs
/// cannot change: what else works there for the same agent must not change them either.
#[must_use]
pub fn protected(cwd: &Path) -> Vec<PathBuf> {
    // Not those that a link leads to.
    let is_own = |path: &PathBuf| real_path(path).is_ok_and(|found| found == *path);
    distinct(agent_files(cwd).filter(is_own))
}

/// Returns the files in a directory and in those above it that make other agents execute commands, and that are there.
fn agent_files(cwd: &Path) -> impl Iterator<Item = PathBuf> {
    let names = |path: &Path| AGENT_FILES.map(|name| path.join(name));
    // Most are missing, and finding that out takes one call.
    cwd.ancestors().flat_map(names).filter(|path| path.symlink_metadata().is_ok())
}

/// Returns whether a path, without links, is a file through which other programs execute commands: configuration of an agent in
/// `cwd` or above it, or a part of a Git repository. It may be missing.
#[must_use]
pub fn executes(cwd: &Path, path: &Path) -> bool {
    let is_agent_file = cwd.ancestors().any(|above| AGENT_FILES.iter().any(|name| path == above.join(name)));
    let is_git = |part: std::path::Component<'_>| part.as_os_str().eq_ignore_ascii_case(".git");
    // Without this file no directory is a repository, whatever is written into it before.
    let is_head = path.file_name().is_some_and(|name| name == "HEAD");
    is_agent_file || is_head || path.components().any(is_git) || path.ancestors().skip(1).any(git::is_git_directory)
}

/// Returns what programs with this policy and environment cannot see, by its real name. What is missing is listed too, by the
/// name that it would have: who else works for the same process must not see it either when it is made.
#[must_use]
pub fn hidden(policy: &Policy, env: &[(String, String)]) -> Vec<PathBuf> {
    let paths = hidden_paths(policy, env, &homes(policy, env)).into_iter().chain(policy.private.iter().cloned());
    distinct(paths.map(|path| real_path(&path).unwrap_or(path)).filter(|path| path.parent().is_some()))
}

fn variable(env: &[(String, String)], name: &str) -> Option<PathBuf> {
    env.iter().find(|(other, _)| other == name).map(|(_, value)| PathBuf::from(value))
}

/// Returns the home of the environment and that of the user.
fn homes(policy: &Policy, env: &[(String, String)]) -> [Option<PathBuf>; 2] {
    let chosen = variable(env, "HOME").and_then(|home| directory(&home));
    [chosen, policy.home.as_deref().and_then(directory)]
}

fn hidden_paths(policy: &Policy, env: &[(String, String)], homes: &[Option<PathBuf>]) -> Vec<PathBuf> {
    let secrets = homes.iter().flatten().flat_map(|home| SECRETS.iter().map(move |name| home.join(name)));
    let sockets = SOCKETS.iter().map(PathBuf::from);
    let named = env.iter().flat_map(|(name, value)| named_sockets(name, value));
    let others = policy.hidden.iter().chain(&policy.configuration).cloned();
    secrets.chain(sockets).chain(named).chain(others).collect()
}

/// Returns the sockets that a variable of the environment names.
fn named_sockets(name: &str, value: &str) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = match name {
        "SSH_AUTH_SOCK" => vec![value.into()],
        "DOCKER_HOST" | "CONTAINER_HOST" => value.strip_prefix("unix://").map(PathBuf::from).into_iter().collect(),
        // The path of the socket, a pid and a number.
        "TMUX" => value.split(',').next().map(PathBuf::from).into_iter().collect(),
        "DBUS_SESSION_BUS_ADDRESS" => {
            let keys =
                value.split(';').filter_map(|address| address.strip_prefix("unix:")).flat_map(|keys| keys.split(','));
            keys.filter_map(|key| key.strip_prefix("path=")).map(PathBuf::from).collect()
        }
        "XDG_RUNTIME_DIR" => RUNTIME_SOCKETS.iter().map(|name| Path::new(value).join(name)).collect(),
        _ => Vec::new(),
    };
    paths.into_iter().filter(|path| path.is_absolute()).collect()
}

/// Returns the first link on the way to a path that a program could replace.
fn replaceable_link(path: &Path, is_writable: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let is_replaceable = |path: &Path| {
        let directory = path.parent().and_then(|parent| real_path(parent).ok());
        is_link(path) && directory.is_some_and(|directory| is_writable(&directory))
    };
    ancestors.into_iter().find(|path| is_replaceable(path)).map(Path::to_owned)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn directory(path: &Path) -> Option<PathBuf> {
    real_path(path).ok().filter(|path| path.is_dir() && path.parent().is_some())
}

fn file(path: &Path) -> Option<PathBuf> {
    real_path(path).ok().filter(|path| path.is_file())
}

fn distinct(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = paths.collect();
    found.sort();
    found.dedup();
    found
}

/// Returns each of these real names once, with its shape.
fn shaped(paths: impl Iterator<Item = PathBuf>) -> Vec<(PathBuf, Shape)> {
    let paths = distinct(paths.filter(|path| path.parent().is_some()));
    let shape = |path: &PathBuf| if path.is_dir() { Shape::Directory } else { Shape::Other };
    paths.into_iter().map(|path| (path.clone(), shape(&path))).collect()
}

/// Returns the caches below a home directory that belongs to the user. One that is a link, or in a link, is none: a program that
/// works in the home could have made it.
fn caches(home: &Path) -> Vec<PathBuf> {
    if !home.metadata().is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw()) {
        return Vec::new();
    }
    let cache = |(parent, name): (&str, &str)| {
        if !parent.is_empty() {
            let opened = system::find(&c_path(home).ok()?).ok()?;
            let _ = rustix::fs::mkdirat(&opened, parent, Mode::from_raw_mode(0o700));
        }
        let parent = home.join(parent);
        let opened = system::find(&c_path(&parent).ok()?).ok()?;
        // Present already, or it cannot be made: then the tool says so.
        let _ = rustix::fs::mkdirat(&opened, name, Mode::from_raw_mode(0o755));
        let path = parent.join(name);
        directory(&path).filter(|found| *found == path)
    };
    distinct(CACHES.into_iter().filter_map(cache))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_the_place_of_the_configuration_of_agents_are_reported_because_they_can_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::DirBuilder::new().create(root.join("shared")).unwrap();
        let file = std::fs::File::options();
        file.clone().write(true).create_new(true).open(root.join("shared/settings.json")).unwrap();
        file.clone().write(true).create_new(true).open(root.join(".mcp.json")).unwrap();
        let policy = Policy { isolation: Isolation::Confined, ..Policy::default() };
        let look = || Surroundings::look(&policy, &root, &[]).unwrap().0;
        assert_eq!((look().unprotected, look().protected), (Vec::new(), vec![root.join(".mcp.json")]));
        rustix::fs::symlink("shared", root.join(".claude")).unwrap();
        assert_eq!(look().unprotected, [format!("{} is a link, and not protected", root.join(".claude").display())]);
        assert_eq!(look().protected, [root.join(".mcp.json")]);
    }

    #[test]
    fn a_link_to_a_secret_is_reported_because_a_program_could_remove_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        std::fs::DirBuilder::new().recursive(true).create(home.join("dots/ssh")).unwrap();
        rustix::fs::symlink("dots/ssh", home.join(".ssh")).unwrap();
        let policy = Policy { isolation: Isolation::Sealed, home: Some(home.clone()), ..Policy::default() };
        let look = |cwd: &Path| Surroundings::look(&policy, cwd, &[]).unwrap().0;
        let found = look(&home);
        assert!(found.hidden.contains(&(home.join("dots/ssh"), Shape::Directory)), "{:?}", found.hidden);
        assert_eq!(found.unprotected, [format!("{} is a link, and not protected", home.join(".ssh").display())]);
        assert_eq!(look(&home.join("dots")).unprotected, Vec::<String>::new(), "it cannot be removed from there");
    }

    #[test]
    fn a_root_that_is_to_be_hidden_is_reported_because_it_cannot_be() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        rustix::fs::symlink("/", &link).unwrap();
        for (hidden, expect) in [("/".into(), true), (link, true), (dir.path().join("keys"), false)] {
            let said = format!("{} cannot be hidden", hidden.display());
            let policy = Policy { isolation: Isolation::Confined, hidden: vec![hidden], ..Policy::default() };
            let (found, _places) = Surroundings::look(&policy, dir.path(), &[]).unwrap();
            assert_eq!(found.unprotected.contains(&said), expect, "{said}: {:?}", found.unprotected);
        }
    }

    #[test]
    fn sockets_are_found_by_the_variables_that_name_them() {
        let check = |name: &str, value: &str, expect: &[&str]| {
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(named_sockets(name, value), expect, "{name}={value}");
        };
        check("SSH_AUTH_SOCK", "/a/agent", &["/a/agent"]);
        check("DOCKER_HOST", "unix:///a/docker.sock", &["/a/docker.sock"]);
        check("DOCKER_HOST", "tcp://localhost:2375", &[]);
        check("TMUX", "/a/tmux-0/default,42,0", &["/a/tmux-0/default"]);
        check("DBUS_SESSION_BUS_ADDRESS", "unix:path=/a/bus,guid=1;unix:abstract=/b;unix:path=/c", &["/a/bus", "/c"]);
        check(
            "XDG_RUNTIME_DIR",
            "/a",
            &["/a/bus", "/a/containerd", "/a/docker.sock", "/a/gnupg", "/a/keyring", "/a/podman", "/a/systemd"],
        );
        check("TMUX", "", &[]);
        check("HOME", "/a", &[]);
    }

    #[test]
    fn nothing_is_made_in_a_repository_outside_of_the_directory_of_the_parent() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (own, away) = (root.join("own"), root.join("away"));
        for path in [&own, &away] {
            let made =
                std::process::Command::new("git").args(["init", "-q", "--template="]).arg(path).status().unwrap();
            assert!(made.success());
        }
        // A link that took the place of a directory after that was checked.
        rustix::fs::symlink(&away, own.join("sub")).unwrap();
        let policy = Policy { isolation: Isolation::Sealed, within: Some(own.clone()), ..Policy::default() };
        let (_, _places) = Surroundings::look(&policy, &own, &[]).unwrap();
        assert!(own.join(".git/hooks").exists(), "in its own it is made");
        let (found, _places) = Surroundings::look(&policy, &own.join("sub"), &[]).unwrap();
        assert_eq!((found.cwd, found.within), (away.clone(), Some(own)));
        assert!(!away.join(".git/hooks").exists() && !away.join(".git/commondir").exists());
    }
}
