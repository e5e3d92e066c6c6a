//! One connection of a program: its request, the decision, and the bytes in both directions.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

use crate::http;
use crate::log::{Log, Protocol, Record, Verdict};
use crate::rules::{self, Decision, Host};
use crate::settings::{Answers, Settings};
use crate::socks::{self, Reply};

/// How many requests of a program are served at a time; further ones are refused.
const CONNECTIONS_MAX: usize = 512;
/// How many connections may be without a complete request; the oldest of them is closed for the next one.
const UNASKED_MAX: usize = 256;
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
const TOO_MANY: &str = "this program has too many connections open";
const RESOLVE_WITHIN: Duration = Duration::from_secs(15);
const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// How long a request waits for a person.
const ANSWER_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How long to wait after the listener failed, for lack of descriptors.
pub(crate) const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The proxy of one session.
#[derive(Debug)]
pub(crate) struct Proxy {
    settings: Settings,
    answers: watch::Sender<Answers>,
    log: Mutex<Log>,
    /// How many requests were recorded.
    recorded: watch::Sender<u64>,
    places: Arc<Semaphore>,
    request_within: Duration,
}

/// The first that a client says.
enum Asked {
    Nothing,
    /// The error is the reply.
    Socks(Result<(Host, u16), Reply>),
    /// The head, and what came after it; absent if it is too long.
    Http(Option<(Vec<u8>, Vec<u8>)>),
}

/// Why a request is not carried out.
#[derive(Debug)]
enum Refused {
    NotAllowed(String),
    Failed(String),
    /// The program does not wait any more.
    HungUp,
}

impl Proxy {
    pub(crate) fn new(mut settings: Settings, log: Log) -> Self {
        let answers = std::mem::take(&mut settings.answers);
        Self {
            settings,
            answers: watch::Sender::new(answers),
            log: Mutex::new(log),
            recorded: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            request_within: REQUEST_WITHIN,
        }
    }

    pub(crate) fn set_answers(&self, answers: Answers) {
        self.answers.send_replace(answers);
    }

    /// Returns the number of recorded requests, as it changes.
    pub(crate) fn recorded(&self) -> watch::Receiver<u64> {
        self.recorded.subscribe()
    }

    pub(crate) async fn accept_all(self: Arc<Self>, listener: TcpListener) {
        // Those without a request yet, the oldest first; one that has asked is closed.
        let mut unasked: VecDeque<oneshot::Sender<()>> = VecDeque::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if unasked.len() >= UNASKED_MAX {
                        unasked.retain(|connection| !connection.is_closed());
                    }
                    if unasked.len() >= UNASKED_MAX {
                        // Dropping it closes the connection.
                        unasked.pop_front();
                    }
                    let (waits, pushed_out) = oneshot::channel();
                    unasked.push_back(waits);
                    let proxy = Arc::clone(&self);
                    // A connection that breaks concerns only those at its ends.
                    tokio::spawn(async move { proxy.serve(stream, pushed_out).await });
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            }
        }
    }

    async fn serve(&self, mut stream: TcpStream, pushed_out: oneshot::Receiver<()>) -> io::Result<()> {
        let asked = tokio::select! {
            // A request that is complete is answered, also if its connection is pushed out at this moment.
            biased;
            asked = timeout(self.request_within, ask(&mut stream)) => asked??,
            _ = pushed_out => return Ok(()),
        };
        let place = Arc::clone(&self.places).try_acquire_owned();
        match (asked, place) {
            (Asked::Nothing, _) => Ok(()),
            (Asked::Socks(_), Err(_)) => socks::answer(&mut stream, Reply::Failed).await,
            (Asked::Http(_), Err(_)) => stream.write_all(&http::refusal(503, TOO_MANY)).await,
            (Asked::Socks(target), Ok(_place)) => self.serve_socks(stream, target).await,
            (Asked::Http(head), Ok(_place)) => self.serve_http(stream, head).await,
        }
    }

    async fn serve_socks(&self, mut stream: TcpStream, target: Result<(Host, u16), Reply>) -> io::Result<()> {
        let (host, port) = match target {
            Ok(target) => target,
            Err(reply) => return socks::answer(&mut stream, reply).await,
        };
        match self.connect(&stream, &host, port, Protocol::Socks5).await {
            Ok(server) => {
                socks::answer(&mut stream, Reply::Connected).await?;
                relay(stream, server).await
            }
            Err(Refused::NotAllowed(_)) => socks::answer(&mut stream, Reply::NotAllowed).await,
            Err(Refused::Failed(_)) => socks::answer(&mut stream, Reply::Unreachable).await,
            Err(Refused::HungUp) => Ok(()),
        }
    }

    async fn serve_http(&self, mut stream: TcpStream, head: Option<(Vec<u8>, Vec<u8>)>) -> io::Result<()> {
        let Some((head, rest)) = head else {
            return stream.write_all(&http::refusal(431, "the head of the request is too long")).await;
        };
        let request = match http::parse(&head) {
            Ok(request) => request,
            Err(reason) => return stream.write_all(&http::refusal(400, &reason)).await,
        };
        // A request may wait for a person for long.
        drop(head);
        let by = if request.forwarded.is_some() { Protocol::Http } else { Protocol::Connect };
        let mut server = match self.connect(&stream, &request.host, request.port, by).await {
            Ok(server) => server,
            Err(Refused::NotAllowed(reason)) => return stream.write_all(&http::refusal(403, &reason)).await,
            Err(Refused::Failed(reason)) => return stream.write_all(&http::refusal(502, &reason)).await,
            Err(Refused::HungUp) => return Ok(()),
        };
        match request.forwarded {
            Some(head) => server.write_all(&head).await?,
            None => stream.write_all(http::CONNECTED).await?,
        }
        server.write_all(&rest).await?;
        relay(stream, server).await
    }

    /// Decides about a request, records it, and connects.
    async fn connect(&self, client: &TcpStream, host: &Host, port: u16, by: Protocol) -> Result<TcpStream, Refused> {
        let note = |verdict, reason: Option<&str>| {
            let reason = reason.map(str::to_owned);
            self.record(&Record { at: Timestamp::now(), host: host.to_string(), port, by, verdict, reason })
        };
        let refuse = |reason: String| match note(Verdict::Refused, Some(&reason)) {
            Ok(()) => Refused::NotAllowed(reason),
            Err(refused) => refused,
        };
        let mut answers = self.answers.subscribe();
        let mut is_asked = false;
        loop {
            let decision = {
                let answers = answers.borrow_and_update();
                rules::decide(host, &self.settings.allow, self.settings.unknown, &answers)
            };
            match decision {
                Decision::Allow => break,
                Decision::Refuse(reason) => return Err(refuse(reason)),
                Decision::Ask => {
                    if !std::mem::replace(&mut is_asked, true) {
                        note(Verdict::Asked, None)?;
                    }
                    tokio::select! {
                        changed = answers.changed() => changed.map_err(|_| Refused::HungUp)?,
                        () = hang_up(client) => return Err(Refused::HungUp),
                        () = tokio::time::sleep(ANSWER_WITHIN) => {
                            return Err(refuse(format!("{host} is not in the allow list, and nobody has answered")));
                        }
                    }
                }
            }
        }
        let addresses = resolve(host, port).await.map_err(|reason| (Verdict::Failed, reason));
        let addresses = addresses.and_then(|addresses| {
            rules::reachable(host, &addresses, &self.settings.allow).map_err(|reason| (Verdict::Refused, reason))
        });
        let addresses = match addresses {
            Ok(addresses) => addresses,
            Err((Verdict::Failed, reason)) => {
                note(Verdict::Failed, Some(&reason))?;
                return Err(Refused::Failed(reason));
            }
            Err((Verdict::Allowed | Verdict::Refused | Verdict::Asked, reason)) => return Err(refuse(reason)),
        };
        note(Verdict::Allowed, None)?;
        connect_any(host, port, &addresses).await.or_else(|reason| {
            note(Verdict::Failed, Some(&reason))?;
            Err(Refused::Failed(reason))
        })
    }

    fn record(&self, record: &Record) -> Result<(), Refused> {
        let written = self.log.lock().unwrap_or_else(PoisonError::into_inner).append(record);
        written.map_err(|error| {
            Refused::NotAllowed(format!("{} is refused: the request cannot be recorded: {error}", record.host))
        })?;
        self.recorded.send_modify(|count| *count += 1);
        Ok(())
    }
}

/// Reads the request.
async fn ask(stream: &mut TcpStream) -> io::Result<Asked> {
    let mut first = [0];
    Ok(match stream.peek(&mut first).await? {
        0 => Asked::Nothing,
        _ if first == [socks::VERSION] => Asked::Socks(socks::read(stream).await?),
        _ => Asked::Http(read_head(stream).await?),
    })
}

/// Returns the head and what was received after it; nothing if it is too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut received = Vec::new();
    loop {
        if let Some(length) = http::head_length(&received) {
            let rest = received.split_off(length);
            return Ok(Some((received, rest)));
        }
        if received.len() > http::HEAD_MAX {
            return Ok(None);
        }
        if stream.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn resolve(host: &Host, port: u16) -> Result<Vec<IpAddr>, String> {
    let name = match host {
        Host::Address(address) => return Ok(vec![*address]),
        Host::Name(name) => name,
    };
    if let Some(known) = rules::known_addresses(name) {
        return Ok(known.to_vec());
    }
    match timeout(RESOLVE_WITHIN, tokio::net::lookup_host((name.as_str(), port))).await {
        Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect()),
        Ok(Err(error)) => Err(format!("{name} cannot be resolved: {error}")),
        Err(_) => Err(format!("{name} cannot be resolved: no server answers")),
    }
}

async fn connect_any(host: &Host, port: u16, addresses: &[IpAddr]) -> Result<TcpStream, String> {
    let mut last = format!("{host} has no address");
    for address in addresses {
        match timeout(CONNECT_WITHIN, TcpStream::connect(SocketAddr::new(*address, port))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = format!("{host}:{port} cannot be reached: {error}"),
            Err(_) => last = format!("{host}:{port} cannot be reached: it does not answer"),
        }
    }
    Err(last)
}

/// Waits until the client has closed the connection. What it has sent already hides that.
async fn hang_up(client: &TcpStream) {
    let mut byte = [0];
    match client.peek(&mut byte).await {
        Ok(0) | Err(_) => {}
        Ok(_) => std::future::pending().await,
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustix::fs::{Mode, OFlags};
    use rustix::process::{Resource, Rlimit};

    use super::*;
    use crate::settings::Unknown;

    /// Longer than anything here takes on the slowest machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Starts a proxy without rules that waits for requests for ever, and returns where it listens.
    async fn proxy(unknown: Unknown) -> (tempfile::TempDir, SocketAddr) {
        let files = rustix::process::getrlimit(Resource::Nofile);
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let opened = rustix::fs::open(directory.path(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        let settings = Settings { unknown, ..Settings::default() };
        let proxy = Proxy::new(settings, Log::open(&opened).unwrap());
        let proxy = Arc::new(Proxy { request_within: Duration::MAX, ..proxy });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(proxy.accept_all(listener));
        (directory, address)
    }

    async fn say(stream: &mut TcpStream, bytes: &[u8]) {
        stream.write_all(bytes).await.unwrap();
    }

    async fn answer_to(mut stream: TcpStream) -> String {
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn connections_without_a_request_keep_no_other_out() {
        let (_directory, address) = proxy(Unknown::Refuse).await;
        let mut open = Vec::new();
        for number in 0..CONNECTIONS_MAX + UNASKED_MAX {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // Some say nothing at all, others half of a request.
            if number % 2 == 0 {
                say(&mut stream, b"CONNECT a.com:443 HT").await;
            }
            open.push(stream);
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        say(&mut stream, b"CONNECT b.com:443 HTTP/1.1\r\n\r\n").await;
        assert!(answer_to(stream).await.starts_with("HTTP/1.1 403 b.com"), "it is refused by its rules");
        // The first had to go; the last may still ask.
        let first = timeout(PATIENCE, open.remove(0).read(&mut [0])).await.unwrap();
        assert!(matches!(first, Ok(0) | Err(_)), "{first:?}");
        let mut last = open.pop().unwrap();
        say(&mut last, b"CONNECT c.com:443 HTTP/1.1\r\n\r\n").await;
        assert!(answer_to(last).await.starts_with("HTTP/1.1 403 c.com"));
    }

    #[tokio::test]
    async fn a_request_beyond_those_that_can_be_served_is_refused_at_once() {
        let (directory, address) = proxy(Unknown::Ask).await;
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(address).await.unwrap();
            say(&mut stream, b"CONNECT a.com:443 HTTP/1.1\r\n\r\n").await;
            open.push(stream);
        }
        let asked = || std::fs::read_to_string(directory.path().join(crate::LOG)).unwrap().lines().count();
        while asked() < CONNECTIONS_MAX {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        say(&mut stream, b"CONNECT b.com:443 HTTP/1.1\r\n\r\n").await;
        assert!(answer_to(stream).await.starts_with("HTTP/1.1 503 this program has too many connections open"));
        let mut stream = TcpStream::connect(address).await.unwrap();
        say(&mut stream, b"\x05\x01\x00\x05\x01\x00\x03\x05b.com\x01\xbb").await;
        let mut answer = [0; 12];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(answer[..4], [socks::VERSION, 0, socks::VERSION, Reply::Failed as u8]);
    }
}
