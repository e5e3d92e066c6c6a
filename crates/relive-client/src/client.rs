//! Sends requests until there is an answer.
//!
//! A request that breaks off is sent again, if necessary to the next daemon: ids chosen by the client make that safe.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hyper::Method;
use hyper::body::{Bytes, Incoming};
use relive_api::percent;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::connection::Connection;
use super::error::{Error, PATH_MAX};
use super::http::{self, Ask, Wire};
use super::ids::new_uuid;
use super::silence::Witness;
use super::start::{self, Launcher};

/// A daemon that held a connection this long was healthy.
const WELL_AFTER: Duration = Duration::from_millis(250);
/// How long a plain request may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// How a daemon that went away is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    pub within: Duration,
    pub every: Duration,
}

impl Retry {
    /// No retries: a request is sent once.
    pub const NEVER: Self = Self { within: Duration::ZERO, every: Duration::ZERO };
}

impl Default for Retry {
    fn default() -> Self {
        Self { within: Duration::from_secs(30), every: Duration::from_millis(50) }
    }
}

/// A client of the daemon on one socket.
///
/// Consecutive requests share a connection; concurrent ones have one each.
#[derive(Debug)]
pub struct Client {
    pub(super) socket: PathBuf,
    /// The value of the header with the data directory.
    data: Option<String>,
    /// Starts a daemon if there is none. Without it the client only waits for one.
    launcher: Option<Box<dyn Launcher>>,
    /// Tells a daemon that is slow from a program that is none.
    pub(super) witness: Option<Box<dyn Witness>>,
    /// Whether a daemon has answered before.
    pub(super) answered: AtomicBool,
    pub(super) retry: Retry,
    /// A connection that is not in use.
    idle: Mutex<Option<Connection>>,
    /// Set after somebody stopped the daemon: the client waits for it and does not start it.
    pub(super) stopped: AtomicBool,
    /// Whether the streams that are followed reach the daemon.
    link: watch::Sender<Link>,
    deadlines: RequestDeadlines,
}

/// How soon requests have to be accepted and answered. Without limits, a daemon that was stopped acts on them when it continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestDeadlines {
    /// The daemon refuses a request that it has not started to handle by then.
    pub accept_within: Option<Duration>,
    /// The client gives up a request without an answer by then.
    pub answer_within: Option<Duration>,
}

/// Whether the streams of a client reach a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Up,
    /// A stream has broken off and could not be continued so far.
    Lost,
}

/// An answer whose body is not read yet.
pub(super) struct Answer {
    pub(super) connection: Connection,
    pub(super) body: Incoming,
}

impl Client {
    /// Creates a client that waits for a missing daemon and does not start one.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        let (socket, retry, stopped) = (socket.into(), Retry::default(), AtomicBool::new(false));
        let (witness, answered) = (None, AtomicBool::new(false));
        let (idle, link) = (Mutex::default(), watch::Sender::new(Link::Up));
        let deadlines = RequestDeadlines::default();
        Self { socket, data: None, launcher: None, witness, answered, retry, idle, stopped, link, deadlines }
    }

    /// Sets how soon requests have to be accepted and answered.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: RequestDeadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Sets how a daemon that went away is retried.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets how a missing daemon is started.
    #[must_use]
    pub fn with_launcher(mut self, launcher: impl Launcher + 'static) -> Self {
        self.launcher = Some(Box::new(launcher));
        self
    }

    /// Sets who knows the daemon: a silent listener that is another program is then given up soon.
    #[must_use]
    pub fn with_witness(mut self, witness: impl Witness + 'static) -> Self {
        self.witness = Some(Box::new(witness));
        self
    }

    /// Sets the expected data directory: the daemon of another one refuses every request.
    #[must_use]
    pub fn with_data(mut self, data: &Path) -> Self {
        // If it does not exist yet, it will be created with this name.
        let data = data.canonicalize().unwrap_or_else(|_| data.to_owned());
        self.data = Some(percent::encode(data.as_os_str().as_bytes()));
        self
    }

    /// Connects in advance, so that the next request has a connection.
    pub async fn connect(&self) -> Result<(), Error> {
        let connection = self.connection().await?;
        self.keep(connection);
        Ok(())
    }

    /// Closes the unused connection.
    pub fn disconnect(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Starts the daemon and returns when it accepts requests.
    pub async fn start(&self) -> Result<(), Error> {
        match &self.launcher {
            Some(launcher) => self.keep(start::start(&self.socket, launcher.as_ref()).await?),
            None => self.connect().await?,
        }
        Ok(())
    }

    /// Sets whether somebody stopped the daemon on purpose.
    pub fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    /// Tells from now on whether the streams that are followed reach the daemon.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    pub(super) fn set_link(&self, link: Link) {
        self.link.send_if_modified(|now| std::mem::replace(now, link) != link);
    }

    /// Returns the unused connection if it is usable, else a new one.
    pub(super) async fn connection(&self) -> Result<Connection, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut connection) = idle
            && connection.is_ready().await
        {
            return Ok(connection);
        }
        self.connect_when_accepted().await
    }

    /// Keeps a connection whose last answer was read completely.
    pub(super) fn keep(&self, connection: Connection) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        self.ask(&get(path)).await
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: String, body: &impl Serialize) -> Result<T, Error> {
        self.ask(&post(path, body)?).await
    }

    /// Sends a request until there is an answer, or no hope of one.
    pub(super) async fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Error> {
        let mut patience = Patience::new(self.retry);
        loop {
            let begun = Instant::now();
            match self.try_ask(ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.recover(error, begun, &mut patience).await?,
            }
        }
    }

    pub(super) async fn try_ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Error> {
        let answer = self.exchange(ask).await?;
        self.read_answer(answer).await
    }

    pub(super) async fn read_answer<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, Error> {
        http::parse(&self.socket, &self.read_bytes(answer).await?)
    }

    async fn read_bytes(&self, answer: Answer) -> Result<Bytes, Error> {
        let bytes = http::read(answer.body).await?;
        self.keep(answer.connection);
        Ok(bytes)
    }

    /// Sends a request once, and returns the raw answer: for measuring the daemon without the parser.
    pub async fn fetch(&self, path: &str) -> Result<Bytes, Error> {
        let answer = self.exchange(&get(path.to_owned())).await?;
        self.read_bytes(answer).await
    }

    /// Sends a request once. A refusal is read completely; of an answer only the head.
    pub(super) async fn exchange(&self, ask: &Ask) -> Result<Answer, Error> {
        let exchange = in_time(ask, async { self.attend(self.connection().await?, ask).await });
        match self.deadlines.answer_within {
            Some(within) => tokio::time::timeout(within, exchange).await.unwrap_or(Err(Error::Silent(within))),
            None => exchange.await,
        }
    }

    pub(super) async fn exchange_on(&self, mut connection: Connection, ask: &Ask) -> Result<Answer, Error> {
        let expires = self.deadlines.accept_within.map(|within| SystemTime::now() + within);
        if ask.path.len() > PATH_MAX {
            return Err(Error::LongName);
        }
        let request = ask.request(self.data.as_deref(), expires).map_err(Error::Request)?;
        let response = connection.send(request).await.map_err(|error| http::judge(&self.socket, error))?;
        ask.check(&self.socket, &response)?;
        self.answered.store(true, Ordering::Relaxed);
        if response.status().is_success() {
            return Ok(Answer { connection, body: response.into_body() });
        }
        let error = http::refusal(&self.socket, response).await;
        if matches!(error, Error::Refused(_)) {
            self.keep(connection);
        }
        Err(error)
    }

    /// Recovers so that another attempt is worthwhile, or returns the error.
    pub(super) async fn recover(&self, error: Error, begun: Instant, patience: &mut Patience) -> Result<(), Error> {
        match error {
            Error::NotRunning(_) if self.launcher.is_some() && !self.stopped.load(Ordering::Relaxed) => {
                patience.spend(begun, error)?;
                self.start().await
            }
            Error::NotRunning(_) | Error::Lost(_) => {
                patience.spend(begun, error)?;
                tokio::time::sleep(self.retry.every).await;
                Ok(())
            }
            Error::NotADaemon { .. } => Err(self.with_displaced_daemon(error)),
            Error::CannotConnect { .. }
            | Error::Unsafe(_)
            | Error::Silent(_)
            | Error::Mute { .. }
            | Error::Full { .. }
            | Error::Overloaded { .. }
            | Error::OtherVersion { .. }
            | Error::Refused(_)
            | Error::TooLarge
            | Error::Encode(_)
            | Error::LongName
            | Error::Request(_)
            | Error::Random(_)
            | Error::Start(_) => Err(error),
        }
    }
}

/// Limits the time of a request.
pub(super) async fn in_time<T>(ask: &Ask, exchange: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match ask.within {
        Some(within) => tokio::time::timeout(within, exchange).await.unwrap_or(Err(Error::Silent(within))),
        None => exchange.await,
    }
}

pub(super) fn get(path: String) -> Ask {
    let within = Some(ANSWER_WITHIN);
    Ask { method: Method::GET, path, body: None, request_id: None, wire: Wire::Ours, within }
}

pub(super) fn post(path: String, body: &impl Serialize) -> Result<Ask, Error> {
    let body = serde_json::to_vec(body).map_err(Error::Encode)?;
    if body.len() > relive_api::BODY_MAX {
        return Err(Error::TooLarge);
    }
    let request_id = Some(new_uuid().map_err(Error::Random)?.to_string());
    let (body, within) = (Some(body.into()), Some(ANSWER_WITHIN));
    Ok(Ask { method: Method::POST, path, body, request_id, wire: Wire::Ours, within })
}

/// How long requests have been failing. An exchange that lasted long enough restarts the count.
#[derive(Debug)]
pub(super) struct Patience {
    within: Duration,
    failing_since: Option<Instant>,
}

impl Patience {
    pub(super) fn new(retry: Retry) -> Self {
        Self { within: retry.within, failing_since: None }
    }

    pub(super) fn spend(&mut self, begun: Instant, error: Error) -> Result<(), Error> {
        let now = Instant::now();
        let since = match self.failing_since {
            Some(since) if now - begun < WELL_AFTER => since,
            Some(_) | None => now,
        };
        self.failing_since = Some(since);
        if now - since >= self.within { Err(error) } else { Ok(()) }
    }
}
