//! Requests until there is an answer.
//!
//! A request that breaks off is sent again, to the next daemon if need be: ids chosen here make that safe.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use relive_api::{API_VERSION, DaemonStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Error;
use super::http::{self, Ask};
use super::ids::new_uuid;
use super::start::{self, Launcher};

/// How long a daemon that went away is looked for.
const RETRY_FOR: Duration = Duration::from_secs(30);
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(50);
/// A daemon that held a connection this long was well.
const WELL_AFTER: Duration = Duration::from_millis(250);
/// How long a plain request may take.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A client of the daemon on one socket.
#[derive(Debug)]
pub struct Client {
    pub(super) socket: PathBuf,
    /// Starts a daemon where there is none. Without it a daemon is only waited for.
    launcher: Option<Box<dyn Launcher>>,
    /// Whether the daemon's version was found to suit us.
    pub(super) suits: AtomicBool,
    /// Somebody stopped the daemon: it is waited for, not started.
    pub(super) stopped: AtomicBool,
}

impl Client {
    pub fn new(socket: PathBuf, launcher: Option<Box<dyn Launcher>>) -> Self {
        Self { socket, launcher, suits: AtomicBool::new(false), stopped: AtomicBool::new(false) }
    }

    /// Finds out whether something listens on the socket.
    pub async fn connect(&self) -> Result<(), Error> {
        http::connect(&self.socket).await.map(drop)
    }

    /// Starts the daemon and returns when it answers.
    pub async fn start(&self) -> Result<(), Error> {
        match &self.launcher {
            Some(launcher) => start::start(&self.socket, launcher.as_ref()).await,
            None => self.connect().await,
        }
    }

    /// Says that somebody stopped the daemon on purpose, or that it is back.
    pub fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        self.ask(&get(path)).await
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: String, body: &impl Serialize) -> Result<T, Error> {
        self.ask(&post(path, body, Some(ANSWER_WITHIN))?).await
    }

    /// Asks until there is an answer, or no hope of one.
    async fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Error> {
        let mut patience = Patience::default();
        loop {
            let begun = Instant::now();
            match self.try_ask(ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.recover(error, begun, &mut patience).await?,
            }
        }
    }

    pub(super) async fn try_ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Error> {
        let answer = http::exchange(&self.socket, ask).await?;
        self.check_version(&answer.version).await?;
        http::read_json(&self.socket, answer.body).await
    }

    /// Makes it worth asking again, or says why it is not.
    pub(super) async fn recover(&self, error: Error, begun: Instant, patience: &mut Patience) -> Result<(), Error> {
        match error {
            Error::NotRunning(_) if self.launcher.is_some() && !self.stopped.load(Ordering::Relaxed) => {
                patience.spend(begun, error)?;
                self.start().await
            }
            Error::NotRunning(_) | Error::Lost(_) => {
                patience.spend(begun, error)?;
                tokio::time::sleep(RETRY_EVERY).await;
                Ok(())
            }
            Error::CannotConnect { .. }
            | Error::Silent(_)
            | Error::NotADaemon { .. }
            | Error::OtherVersion { .. }
            | Error::Refused(_)
            | Error::TooLarge
            | Error::Encode(_)
            | Error::Random(_)
            | Error::Start(_) => Err(error),
        }
    }

    /// The version is looked at again only where it is not ours: what counts is the version of the wire.
    pub(super) async fn check_version(&self, version: &str) -> Result<(), Error> {
        if version == env!("CARGO_PKG_VERSION") || self.suits.load(Ordering::Relaxed) {
            return Ok(());
        }
        let answer = http::exchange(&self.socket, &get("/v1/daemon".into())).await?;
        let status: DaemonStatus = http::read_json(&self.socket, answer.body).await?;
        if status.api != API_VERSION {
            return Err(Error::OtherVersion { version: status.version, api: status.api });
        }
        self.suits.store(true, Ordering::Relaxed);
        Ok(())
    }
}

pub(super) fn get(path: String) -> Ask {
    Ask { method: Method::GET, path, body: None, request_id: None, within: Some(ANSWER_WITHIN) }
}

pub(super) fn post(path: String, body: &impl Serialize, within: Option<Duration>) -> Result<Ask, Error> {
    let body = serde_json::to_vec(body).map_err(Error::Encode)?;
    if body.len() > relive_api::BODY_MAX {
        return Err(Error::TooLarge);
    }
    let request_id = Some(new_uuid().map_err(Error::Random)?.to_string());
    Ok(Ask { method: Method::POST, path, body: Some(body), request_id, within })
}

/// How long it has been failing. An exchange that lasted begins the count anew.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failing_since: Option<Instant>,
}

impl Patience {
    fn spend(&mut self, begun: Instant, error: Error) -> Result<(), Error> {
        let now = Instant::now();
        let since = match self.failing_since {
            Some(since) if now - begun < WELL_AFTER => since,
            Some(_) | None => now,
        };
        self.failing_since = Some(since);
        if now - since > RETRY_FOR { Err(error) } else { Ok(()) }
    }
}
