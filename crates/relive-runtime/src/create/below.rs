//! Processes that a program inside of another process asks for: they are below that one.

use std::io;
use std::sync::Arc;

use relive_api::{Created, Environment, Inherited, Isolated};
use relive_core::{ErrorCode, Pid, Uuid};
use relive_journal::History;
use relive_journal::data::Known;
use relive_journal::history::CliFacts;
use relive_journal::policy::Policy;
use relive_journal::record::Spawned;

use super::Draft;
use crate::area::Area;
use crate::error::{Error, Result};
use crate::isolation::Isolations;
use crate::lookup::Presence;
use crate::runtime::{ProcessRef, Runtime};
use crate::trees::TreePlace;

/// How many ancestors are looked through for the policy that holds.
const ANCESTORS_MAX: usize = 256;

/// What a new process has from the one that asks for it; nothing if a person does.
#[derive(Debug, Default)]
pub(crate) struct Above {
    pub(super) parent: Option<ProcessRef>,
    pub(super) root_uuid: Option<Uuid>,
    pub(super) depth: u32,
    /// What the nearest agent above may do without asking: nobody below it may do more.
    pub(super) policy: Option<Policy>,
    /// Whether that is an agent of Relive's own, whose isolation the ones below it share.
    pub(super) has_agent: bool,
    /// What the one that asks may reach, and its working directory: nobody below it reaches more.
    pub(super) isolated: Option<(Isolated, String)>,
    /// The environment of the one that asks, in which the keys are. A tool does not have them, and cannot say what they
    /// are used for.
    pub(super) environment: Option<Environment>,
    /// The settings of its programs, from the shell in which its command was typed.
    pub(super) shell: Option<Inherited>,
}

impl Above {
    /// Returns the PID of the process that asks; PID 0 is the person.
    pub(crate) fn by(&self) -> Pid {
        self.parent.map_or(Pid::RUNTIME, |parent| parent.of.pid)
    }
}

/// The nearest agent above a new process that is asked before it does something.
#[derive(Debug, PartialEq, Eq)]
enum NearestAgent {
    /// One of Relive's own, which may do this much without asking.
    Native(Policy),
    /// A CLI agent, which has rules of its own for what it asks.
    AskingCli,
}

impl NearestAgent {
    fn of(spawned: Spawned, cli: Option<&CliFacts>) -> Option<Self> {
        match spawned.body.as_str() {
            "agent" => Some(Self::Native(spawned.policy)),
            // Of one that asks nobody, whoever is above it has approved that.
            "cli" => cli.is_none_or(|cli| !cli.agent.yes).then_some(Self::AskingCli),
            _ => None,
        }
    }
}

/// Refuses a process whose permissions are not known.
fn unreadable(uuid: Uuid, why: impl std::fmt::Display) -> Error {
    let message =
        format!("the journal of process {uuid} cannot be read, so what is allowed below it is unknown: {why}");
    Error::new(ErrorCode::Internal, message)
}

impl Above {
    /// Returns whether there is an agent of Relive's own above.
    pub(crate) fn has_agent(&self) -> bool {
        self.has_agent
    }

    pub(crate) fn is_isolated(&self) -> bool {
        self.isolated.is_some()
    }

    /// Returns where a new process may work; everywhere if absent.
    pub(super) fn area(&self, isolations: &Isolations) -> Option<Area> {
        let (isolated, cwd) = self.isolated.as_ref()?;
        let none = Environment::default();
        Area::of(isolations, isolated, cwd, self.environment.as_ref().unwrap_or(&none))
    }

    /// Returns the settings of a shell for a process that is to have these.
    pub(super) fn shell(&self, wanted: Option<Inherited>) -> Option<Inherited> {
        match (wanted, &self.shell) {
            (Some(wanted), Some(above)) => Some(wanted.below(above)),
            (Some(settings), None) => Some(settings),
            (None, above) => above.clone(),
        }
    }

    /// Returns the isolation of a process that is to have this one; absent if it reaches everything.
    pub(crate) fn isolated(&self, wanted: Isolated) -> Option<Isolated> {
        let isolated = match &self.isolated {
            Some((above, cwd)) => wanted.below(above, cwd),
            None => wanted,
        };
        Some(isolated).filter(|isolated| !isolated.is_none())
    }
}

impl Runtime {
    /// Returns the directory of a new process; its real path if that was checked, because the one that asks is isolated. A
    /// request that is made again is not checked: its process is there.
    pub(super) async fn directory_below(&self, above: &Above, uuid: Uuid, cwd: String) -> Result<String> {
        let area = above.area(&self.bodies.agent.isolations);
        if area.is_none() || !matches!(self.presence(uuid).await?, Presence::Never) {
            return Ok(cwd);
        }
        Ok(self.directory_in(area, &cwd).await?.unwrap_or(cwd))
    }

    /// Returns what a process reaches through the daemon; everything if absent.
    pub(crate) async fn area_of(&self, process: Option<Uuid>) -> Result<Option<Area>> {
        let Some(uuid) = process else { return Ok(None) };
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await??;
        let Some(spawned) = history.identity.map(|identity| identity.spawned) else { return Ok(None) };
        let isolated = spawned.isolated.unwrap_or_default();
        Ok(Area::of(&self.bodies.agent.isolations, &isolated, &spawned.cwd, &self.environment_of(uuid)))
    }

    pub(super) async fn above(&self, parent: Option<ProcessRef>) -> Result<Above> {
        let Some(parent) = parent else { return Ok(Above::default()) };
        let uuid = parent.uuid;
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await??;
        let untold = || Error::new(ErrorCode::Internal, "the parent's journal does not describe a process");
        let spawned = history.identity.as_ref().ok_or_else(untold)?.spawned.clone();
        let environment = Some(self.environment_of(uuid)).filter(|environment| !environment.is_empty());
        let (root_uuid, depth) = (Some(spawned.root_uuid.unwrap_or(uuid)), spawned.depth + 1);
        let shell = spawned.program.as_ref().and_then(|program| program.shell.clone()).or(spawned.shell.clone());
        let isolated = spawned.isolated.clone().map(|isolated| (isolated, spawned.cwd.clone()));
        let (has_agent, policy) = match self.nearest_agent(spawned, history.cli.as_deref()).await? {
            Some(NearestAgent::Native(policy)) => (true, Some(policy)),
            Some(NearestAgent::AskingCli) => (false, Some(Policy::built_in())),
            None => (false, None),
        };
        Ok(Above { parent: Some(parent), root_uuid, depth, policy, has_agent, isolated, environment, shell })
    }

    /// Finds the nearest agent at or above a process that nobody below it may exceed. If an ancestor cannot be read
    /// that is unknown, so it is an error. A collected one is passed over: what it was allowed is nobody's any more.
    async fn nearest_agent(&self, spawned: Spawned, cli: Option<&CliFacts>) -> Result<Option<NearestAgent>> {
        let mut next = spawned.parent_uuid;
        if let Some(agent) = NearestAgent::of(spawned, cli) {
            return Ok(Some(agent));
        }
        for _ in 0..ANCESTORS_MAX {
            let Some(uuid) = next else { return Ok(None) };
            match self.on_journal(move |data| data.history(uuid)).await? {
                Ok((History { identity: Some(identity), cli, .. }, _)) => {
                    next = identity.spawned.parent_uuid;
                    if let Some(agent) = NearestAgent::of(identity.spawned, cli.as_deref()) {
                        return Ok(Some(agent));
                    }
                }
                Ok((History { identity: None, .. }, _)) => return Err(unreadable(uuid, "it describes no process")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    next = match self.on_disk(move |data| data.known(uuid)).await?? {
                        Known::Collected(tombstone) => tombstone.parent_uuid,
                        Known::Never => None,
                        Known::Here(_) => return Err(unreadable(uuid, error)),
                    };
                }
                Err(error) => return Err(unreadable(uuid, error)),
            }
        }
        Err(Error::TooDeep {
            message: format!("there are more than {ANCESTORS_MAX} processes above this one"),
            hint: None,
        })
    }

    /// Creates a process; below another one with a place in its tree.
    pub(super) async fn create_below(
        self: &Arc<Self>,
        parent: Option<ProcessRef>,
        mut draft: Draft,
    ) -> Result<Created> {
        let Some(parent) = parent else { return self.create(draft).await };
        let uuid = draft.spawned.uuid;
        draft.creation = Some(self.begin_creation(parent, uuid)?);
        draft.parent = parent.of.pid;
        if let Some(place) = TreePlace::of(&draft.spawned) {
            self.lock().trees.take(place, self.live.now().trees)?;
        }
        let created = match self.own_child(parent, uuid).await {
            Ok(()) => self.create(draft).await,
            Err(error) => Err(error),
        };
        if self.living(uuid).is_none() {
            // It was not created, or has ended already.
            self.lock().trees.leave(uuid);
        }
        created
    }
}
