//! The daemon, seen from the command line.
//!
//! A request that breaks off is sent again, to the next daemon if need be: ids chosen here make that safe. Nothing is
//! started for a command that could only be told that there is nothing.

mod follow;
mod http;
pub(crate) mod sse;
mod start;
mod verbs;

use std::cell::Cell;
use std::time::{Duration, Instant};

use hyper::Method;
use relive_api::{API_VERSION, DaemonStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use follow::Source;
use http::{Ask, Failure};
pub(crate) use verbs::{Waited, is_continues};

use crate::context::{Context, new_uuid};
use crate::error::{CommandError, Outcome};

/// How long a daemon that went away is looked for.
const RETRY_FOR: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// A daemon that held a connection this long was well.
const WELL_AFTER: Duration = Duration::from_millis(250);
/// How long a plain request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Whether a command is worth a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Always.
    Always,
    /// Only if there are histories it could tell about.
    IfHistories,
    /// Only if there are histories, or were.
    IfRemembered,
    /// Never.
    Never,
}

#[derive(Debug)]
pub(crate) struct Client<'a> {
    context: &'a Context,
    start: Start,
    /// Whether the daemon's version was found to suit us.
    suits: Cell<bool>,
    /// Somebody stopped the daemon: it is waited for, not started.
    stopped: Cell<bool>,
}

impl<'a> Client<'a> {
    /// `None` when there is no daemon, and none is to be started.
    pub(crate) async fn open(context: &'a Context, start: Start) -> Outcome<Option<Self>> {
        let client = Self { context, start, suits: Cell::new(false), stopped: Cell::new(false) };
        match http::connect(&context.paths.socket).await {
            Ok(_) | Err(Failure::Lost(_)) => Ok(Some(client)),
            Err(Failure::Absent(_)) => {
                let worth_it = match start {
                    Start::Always => true,
                    Start::IfHistories => start::has_histories(&context.paths.data),
                    Start::IfRemembered => {
                        start::has_histories(&context.paths.data) || start::has_tombstones(&context.paths.data)
                    }
                    Start::Never => false,
                };
                if !worth_it {
                    return Ok(None);
                }
                start::start(context).await?;
                Ok(Some(client))
            }
            Err(failure) => Err(client.explain(failure)),
        }
    }

    /// For a command about one process. Without histories there is none.
    pub(crate) async fn about(context: &'a Context, id: &str) -> Outcome<Self> {
        if id.is_empty() {
            return Err(CommandError::invalid("the id of a process is not empty").with_hint("relive ps -a"));
        }
        Self::open(context, Start::IfRemembered).await?.ok_or_else(|| CommandError::not_found(id))
    }

    pub(crate) fn context(&self) -> &'a Context {
        self.context
    }

    /// Somebody stopped the daemon on purpose, or it is back.
    pub(crate) fn set_stopped(&self, stopped: bool) {
        self.stopped.set(stopped);
    }

    async fn get<T: DeserializeOwned>(&self, path: String) -> Outcome<T> {
        let ask = Ask { method: Method::GET, path, body: None, request_id: None, within: Some(ANSWER_WITHIN) };
        self.ask(&ask).await
    }

    async fn post<T: DeserializeOwned>(&self, path: String, body: &impl Serialize) -> Outcome<T> {
        self.ask(&post(path, body, Some(ANSWER_WITHIN))?).await
    }

    /// Asks until there is an answer, or no hope of one.
    async fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> Outcome<T> {
        let mut patience = Patience::default();
        loop {
            let begun = Instant::now();
            match self.try_ask(ask).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => self.recover(failure, begun, &mut patience).await?,
            }
        }
    }

    async fn try_ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Failure> {
        let answer = http::exchange(&self.context.paths.socket, ask).await?;
        self.check_version(&answer.version).await?;
        http::read_json(answer.body).await
    }

    /// Makes it worth asking again, or says why it is not.
    async fn recover(&self, failure: Failure, begun: Instant, patience: &mut Patience) -> Outcome<()> {
        match failure {
            Failure::Absent(_) if self.start != Start::Never && !self.stopped.get() => {
                patience.spend(begun).map_err(|()| self.explain(failure))?;
                start::start(self.context).await
            }
            Failure::Absent(_) | Failure::Lost(_) => {
                patience.spend(begun).map_err(|()| self.explain(failure))?;
                tokio::time::sleep(RETRY_EVERY).await;
                Ok(())
            }
            Failure::Unusable(_) | Failure::Silent(_) | Failure::Foreign(_) | Failure::Refused(_) => {
                Err(self.explain(failure))
            }
        }
    }

    /// The version is looked at again only where it is not ours: what counts is the version of the wire.
    async fn check_version(&self, version: &str) -> Result<(), Failure> {
        if version == env!("CARGO_PKG_VERSION") || self.suits.get() {
            return Ok(());
        }
        let path = "/v1/daemon".to_owned();
        let ask = Ask { method: Method::GET, path, body: None, request_id: None, within: Some(ANSWER_WITHIN) };
        let answer = http::exchange(&self.context.paths.socket, &ask).await?;
        let status: DaemonStatus = http::read_json(answer.body).await?;
        if status.api != API_VERSION {
            return Err(Failure::Refused(other_version(&status).detail()));
        }
        self.suits.set(true);
        Ok(())
    }

    fn explain(&self, failure: Failure) -> CommandError {
        let socket = self.context.paths.socket.display();
        match failure {
            Failure::Refused(detail) => detail.into(),
            Failure::Absent(error) => {
                CommandError::unavailable("no daemon is running").because(error).with_hint("relive daemon start")
            }
            Failure::Unusable(error) => {
                CommandError::unavailable(format!("{socket}: the daemon's socket cannot be used")).because(error)
            }
            Failure::Lost(cause) => CommandError::unavailable("the connection to the daemon broke off")
                .because(cause)
                .with_hint("relive daemon status"),
            Failure::Silent(within) => {
                CommandError::unavailable(format!("the daemon has not answered for {} s", within.as_secs()))
                    .with_hint("relive daemon restart")
            }
            Failure::Foreign(cause) => {
                CommandError::unavailable(format!("{socket}: whoever answers here is not a Relive daemon"))
                    .because(cause)
                    .with_hint("set RELIVE_SOCKET to another path, or remove what listens there")
            }
        }
    }
}

pub(crate) fn other_version(status: &DaemonStatus) -> CommandError {
    let ours = env!("CARGO_PKG_VERSION");
    let message = format!(
        "the daemon is version {} (wire {}), this command is version {ours} (wire {API_VERSION})",
        status.version, status.api
    );
    CommandError::unavailable(message).with_hint("relive daemon restart")
}

fn post(path: String, body: &impl Serialize, within: Option<Duration>) -> Outcome<Ask> {
    let body = serde_json::to_vec(body).map_err(|error| CommandError::internal("cannot ask").because(error))?;
    if body.len() > relive_api::BODY_MAX {
        let mib = relive_api::BODY_MAX >> 20;
        return Err(CommandError::invalid(format!("the request is larger than {mib} MiB")));
    }
    let request_id = Some(new_uuid()?.to_string());
    Ok(Ask { method: Method::POST, path, body: Some(body), request_id, within })
}

/// How long it has been failing. An exchange that lasted begins the count anew.
#[derive(Debug, Default)]
struct Patience {
    failing_since: Option<Instant>,
}

impl Patience {
    fn spend(&mut self, begun: Instant) -> Result<(), ()> {
        let now = Instant::now();
        let since = match self.failing_since {
            Some(since) if now - begun < WELL_AFTER => since,
            Some(_) | None => now,
        };
        self.failing_since = Some(since);
        if now - since > RETRY_FOR { Err(()) } else { Ok(()) }
    }
}
