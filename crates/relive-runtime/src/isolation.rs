//! What the programs of processes may reach.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use relive_api::{Isolated, Isolation, NamespaceKind, Network, Paths, RunRequest};
use relive_core::{ErrorCode, Uuid};
use relive_proxy::{Settings, Unknown};
use relive_sandbox::{Machine, Namespaces, Policy, Unheld};

use crate::create::Above;
use crate::error::{Error, Result};
use crate::reload::LiveSettings;
use crate::runtime::Runtime;

const HINT: &str = "relive doctor";

/// Turns the isolation of a process into the policy of its programs.
#[derive(Debug, Clone)]
pub(crate) struct Isolations {
    /// The data directory.
    data: PathBuf,
    /// The runtime directory, in which nobody works.
    runtime: Option<PathBuf>,
    paths: Paths,
    home: Option<PathBuf>,
    /// Relive's own program, which may be installed in a directory that is empty for others.
    program: Option<PathBuf>,
    live: Arc<LiveSettings>,
}

impl Isolations {
    pub(crate) fn new(paths: &Paths, live: Arc<LiveSettings>) -> Self {
        let own = paths.socket.parent();
        // Each data directory has one of its own in that of all.
        let all = own.and_then(Path::parent).filter(|all| all.file_name().is_some_and(|name| name == "relive"));
        let (data, runtime) = (paths.data.clone(), all.or(own).map(Path::to_owned));
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Self { data, runtime, paths: paths.clone(), home, program: std::env::current_exe().ok(), live }
    }

    /// Returns the policy of a program of this process.
    pub(crate) fn policy(&self, uuid: Uuid, isolated: &Isolated) -> Policy {
        // The directory of the socket: the next daemon makes another one in it.
        let shown = self.paths.own_socket(uuid).parent().map(Path::to_owned);
        Policy { shown: shown.into_iter().collect(), ..self.reach(isolated) }
    }

    /// Returns what is hidden from isolated programs, by its real path.
    pub(crate) fn hidden(&self) -> Vec<PathBuf> {
        relive_sandbox::hidden(&self.reach(&Isolated::default()), &[])
    }

    /// Returns the policy that tells what is hidden and writable, for whatever process.
    pub(crate) fn reach(&self, isolated: &Isolated) -> Policy {
        let settings = self.live.now();
        let keys = settings.providers.values().filter_map(|provider| provider.key_path(self.home.as_deref()));
        let config = &settings.isolation;
        let path = |written: &String| match (written.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            (Some(_) | None, _) => PathBuf::from(written),
        };
        Policy {
            isolation: isolated.isolation,
            namespaces: namespaces(&isolated.namespaces),
            network: match &isolated.network {
                None => relive_sandbox::Network::ByIsolation,
                Some(Network::Full) => relive_sandbox::Network::Full,
                Some(Network::Allow(_)) => relive_sandbox::Network::Proxy(relive_proxy::PORT),
                Some(Network::None) => relive_sandbox::Network::None,
            },
            git_config: config.git_config,
            unheld: if isolated.allow_degraded { Unheld::Say } else { Unheld::Fail },
            writable: config.writable.iter().map(path).collect(),
            hidden: config.hidden.iter().map(path).chain(keys).chain(self.runtime.clone()).collect(),
            private: vec![self.data.clone()],
            configuration: self.configuration(),
            shown: Vec::new(),
            within: isolated.within.as_ref().map(PathBuf::from),
            home: self.home.clone(),
            programs: self.program.iter().cloned().collect(),
            state: Vec::new(),
        }
    }

    /// Returns the directory of `config.yaml`, the file, and the agents beside it, any of which may be a link.
    fn configuration(&self) -> Vec<PathBuf> {
        let file = &self.paths.config;
        let beside = file.parent().into_iter().flat_map(|directory| [directory.to_owned(), directory.join("agents")]);
        beside.chain([file.clone()]).collect()
    }
}

/// Returns the hosts that a program reaches through a proxy, if its network is a list.
pub(crate) fn proxy(isolated: &Isolated, unknown: Unknown) -> Option<Settings> {
    match &isolated.network {
        Some(Network::Allow(rules)) => Some(Settings { allow: rules.clone(), unknown, ..Settings::default() }),
        Some(Network::Full | Network::None) | None => None,
    }
}

impl Runtime {
    /// Returns the isolation of an agent's commands; absent if they reach everything. `named` is what its file says. An agent
    /// that cannot be isolated as asked is refused before it costs anything. If nobody says anything its commands are
    /// confined, as far as this machine can, unless an agent above it runs without isolation.
    pub(crate) async fn agent_isolation(
        &self,
        above: &Above,
        request: &RunRequest,
        named: (Option<Isolation>, Option<Network>),
    ) -> Result<Option<Isolated>> {
        let ladder = self.bodies.exec.sessions.ladder().await?;
        let said = request.isolation.or(named.0).or(self.live.now().isolation.agents);
        let isolation = said.unwrap_or(if above.has_agent() { Isolation::None } else { by_default(&ladder.isolation) });
        let wanted = Isolated {
            isolation,
            network: self.network(isolation, request.network.clone().or(named.1)),
            // Nobody has asked for it, so it is no reason to run nothing.
            allow_degraded: request.resources.allow_degraded || said.is_none(),
            ..Isolated::default()
        };
        let Some(isolated) = above.isolated(wanted) else { return Ok(None) };
        self.check_machine(&isolated).await?;
        Ok(Some(isolated))
    }

    /// Refuses an isolation that this machine cannot enforce.
    pub(crate) async fn check_machine(&self, isolated: &Isolated) -> Result<()> {
        let ladder = self.bodies.exec.sessions.ladder().await?;
        match refusal(isolated, &ladder.isolation) {
            Some(message) => {
                let message = format!("{message} (with --allow-degraded it runs with the rest)");
                Err(Error::new(ErrorCode::Invalid, message).with_hint(HINT))
            }
            None => Ok(()),
        }
    }
}

impl Runtime {
    /// Returns the network of a program with this isolation: as asked for, and for a confined one otherwise as the
    /// configuration says.
    pub(crate) fn network(&self, isolation: Isolation, asked: Option<Network>) -> Option<Network> {
        match isolation {
            Isolation::Confined => asked.or_else(|| self.live.now().isolation.network.0.clone()),
            Isolation::None | Isolation::Sealed => asked,
        }
    }
}

/// Returns the isolation of commands that nobody has said anything about. With namespaces they are confined also on a Linux
/// before 6.12, where abstract sockets stay reachable: `info` says so.
fn by_default(machine: &Machine) -> Isolation {
    if machine.namespaces_work() { Isolation::Confined } else { Isolation::None }
}

/// Returns why a machine cannot isolate as asked, if it cannot.
fn refusal(isolated: &Isolated, machine: &Machine) -> Option<String> {
    let wanted = isolated.isolation != Isolation::None && !isolated.allow_degraded;
    let reason = machine.no_namespaces.as_ref().filter(|_| wanted)?;
    Some(format!("this machine cannot enforce isolation {}: {reason}", isolated.isolation))
}

pub(crate) fn namespaces(kinds: &[NamespaceKind]) -> Namespaces {
    Namespaces::of(kinds.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_confined_by_default_wherever_there_are_namespaces() {
        let check = |no_namespaces: Option<&str>, landlock_abi, expect| {
            let machine = Machine { no_namespaces: no_namespaces.map(str::to_owned), landlock_abi };
            assert_eq!(by_default(&machine), expect, "{machine:?}");
        };
        for landlock_abi in [0, 4, 7] {
            check(None, landlock_abi, Isolation::Confined);
            check(Some("EPERM"), landlock_abi, Isolation::None);
        }
    }
}
