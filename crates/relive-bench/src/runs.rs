//! Scripted agents in a daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use relive_api::{Created, Environment, RunRequest};
use relive_client::{BlockingClient, Client, Waited};
use relive_core::{Limits, Uuid};

use crate::Result;
use crate::daemon::Daemon;
use crate::sample::uuid;

const CONNECTIONS: usize = 64;
const WAIT: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const SCRIPT: &str = "script.yaml";

/// A working directory of agents, with their script.
#[derive(Debug, Clone)]
pub(crate) struct Work(PathBuf);

impl Work {
    /// Creates a directory with a script of these turns.
    pub(crate) fn new(path: PathBuf, turns: &str) -> Result<Self> {
        fs::create_dir(&path)?;
        fs::write(path.join(SCRIPT), format!("turns:\n{turns}"))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

pub(crate) fn begin(client: &BlockingClient, work: &Work) -> Result<Created> {
    begin_with(client, work, &format!("script/{SCRIPT}"), Environment::default())
}

/// Starts an agent on another model.
pub(crate) fn begin_with(client: &BlockingClient, work: &Work, model: &str, env: Environment) -> Result<Created> {
    let request = RunRequest {
        workspace: None,
        isolation: None,
        network: None,
        foreground: false,
        no_gateway: false,
        terminal: None,
        resources: Default::default(),
        uuid: uuid(),
        name: None,
        intent: "follow the script".to_owned(),
        context: None,
        model: Some(model.to_owned()),
        agent: None,
        system_prompt: None,
        cwd: work.path().display().to_string(),
        env,
        shell: None,
        limits: Limits::default(),
        on_in_doubt: None,
        on_budget: None,
        policy: std::collections::BTreeMap::new(),
        yes: false,
    };
    Ok(client.call(|client| client.run(&request))?)
}

/// Waits for the end, which must be a success.
pub(crate) fn wait_for(client: &BlockingClient, uuid: Uuid) -> Result<()> {
    let id = uuid.to_string();
    let Waited::Answer(answer) = client.call(|client| client.wait(&id, &id, Some(WAIT)))? else {
        return Err(format!("agent {uuid} has not ended after {WAIT:?}").into());
    };
    match answer.exit_code {
        0 => Ok(()),
        code => Err(format!("agent {uuid} ended with {code}: {:?}", answer.exit).into()),
    }
}

/// Runs an agent to its end.
pub(crate) fn run(client: &BlockingClient, work: &Work) -> Result<Uuid> {
    let uuid = begin(client, work)?.uuid;
    wait_for(client, uuid).map(|()| uuid)
}

/// Starts this many agents concurrently. Returns them in no particular order.
pub(crate) fn begin_all(daemon: &Daemon, work: &Work, count: usize) -> Result<Vec<Uuid>> {
    daemon.at_once(CONNECTIONS, &vec![(); count], |client, ()| Ok(begin(client, work)?.uuid))
}

pub(crate) fn wait_for_all(daemon: &Daemon, uuids: &[Uuid]) -> Result<()> {
    daemon.at_once(CONNECTIONS, uuids, |client, uuid| wait_for(client, *uuid)).map(drop)
}

/// Waits until no agent runs any more.
pub(crate) fn await_none(daemon: &Daemon) -> Result<()> {
    let (client, begun) = (daemon.client()?, Instant::now());
    while client.call(Client::daemon)?.running > 0 {
        if begun.elapsed() > WAIT {
            return Err("agents that were killed go on".into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
