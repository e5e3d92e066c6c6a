//! `shell`: a command in a session of its own, named by the call. After a crash the session is joined, never started
//! again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::{Finding, Recovery, session_name};
use relive_session::connection::Connection;
use relive_session::exit::{EndedBy, ExitRecord};
use relive_session::log::{Ends, read_ends};
use relive_session::protocol::{Outcome, Verb};
use relive_session::sessions::SessionStatus;
use relive_session::spec::{Isolation, Limits, PidsLimit, Spec, Streams};
use relive_session::stage::SessionResult;
use relive_types::Signal;
use serde_json::{Value, json};

use super::args::Args;
use crate::requests::Requests;
use crate::tool::{Context, Order, Patience, Tool, ToolResult};

/// The default time limit of a command.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// How much of the beginning, and of the end, of an output the model sees.
const SHOWN_HEAD: usize = 16 * 1024;
const SHOWN_TAIL: usize = 16 * 1024;
/// How much of an output is kept on the disk.
const LOG_MAX_BYTES: u64 = 256 << 20;
/// How many processes and threads a command may have.
const PIDS_MAX: u32 = 4096;
/// How many times in a row a running session may hang up before it is not known how its command ends.
const HANG_UPS_MAX: u32 = 20;
/// A connection that lasted longer starts the count again, unless the command is over its time limit.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// The time before a session that hung up is used again.
const REJOIN_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Shell;

struct Asked {
    command: String,
    timeout: Duration,
}

fn parse(args: &str) -> Result<Asked, ToolResult> {
    let mut args = Args::parse("shell", args, &["command", "timeout"])?;
    let command = args.text("command")?;
    if command.contains('\0') {
        return Err(ToolResult::failed("shell: a command cannot contain a NUL byte"));
    }
    let timeout = args.optional_duration("timeout")?.unwrap_or(TIMEOUT_DEFAULT);
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        return Err(ToolResult::failed("shell: `timeout` must be more than zero and at most 24h"));
    }
    Ok(Asked { command, timeout })
}

impl Tool for Shell {
    fn name(&self) -> &'static str {
        "shell"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "shell",
            "description": "Run a command with /bin/sh in the working directory. Answers with its output and exit code when it has ended. It gets no input and no terminal, and whatever it leaves running is ended with it.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "What to run."},
                    "timeout": {"type": ["string", "number"], "description": "Like \"30s\" or \"10m\"; a number is seconds. 10m if absent."}
                },
                "required": ["command"],
                "additionalProperties": false
            }
        })
    }

    fn patience(&self) -> Patience {
        Patience::Session
    }

    fn command(&self, args: &str) -> Option<String> {
        parse(args).ok().map(|asked| asked.command)
    }

    fn prepare(&self, _: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::ready(parse(&args).map(|_| Recovery::Join))
    }

    fn run(&self, context: Context, args: String, _: Recovery, key: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let asked = match parse(&args) {
                Ok(asked) => asked,
                Err(result) => return result,
            };
            match joined(&context, &asked, &folder(&context, &key)).await {
                Ok(Joined::Result(result)) => result,
                Ok(Joined::Asks(host)) => ToolResult::asks(host),
                Err(Unjoined::Unknown(error)) => ToolResult::lost(error.to_string()),
                Err(Unjoined::NeverRan(error)) => ToolResult::failed(format!("shell: {error}")),
            }
        }
        .boxed()
    }

    fn look(&self, context: Context, _: Recovery, key: String) -> BoxFuture<'static, Finding> {
        async move {
            match context.sessions.find(&folder(&context, &key)).await {
                Ok(SessionStatus::NeverRan) => Finding::Absent,
                Ok(SessionStatus::Alive(_)) => Finding::Running,
                Ok(SessionStatus::Ended(record)) if is_lost(&record) => Finding::Lost,
                Ok(SessionStatus::Ended(_)) => Finding::Finished,
                Err(_) => Finding::Lost,
            }
        }
        .boxed()
    }

    fn order(&self, context: Context, key: String, order: Order) -> BoxFuture<'static, bool> {
        async move {
            let connection = match context.sessions.find(&folder(&context, &key)).await {
                Ok(SessionStatus::Alive(connection)) => connection,
                // A session that cannot be found is usually being launched: the order is repeated.
                Ok(SessionStatus::NeverRan) | Err(_) => return false,
                Ok(SessionStatus::Ended(_)) => return true,
            };
            let verb = match order {
                Order::StandStill => Verb::Freeze,
                Order::Continue => Verb::Thaw,
                Order::End(Signal::Term) => Verb::signal(rustix::process::Signal::TERM.as_raw()),
                Order::End(Signal::Int) => Verb::signal(rustix::process::Signal::INT.as_raw()),
                Order::End(Signal::Kill | Signal::Pause | Signal::Resume) => Verb::Kill,
            };
            let path = folder(&context, &key);
            match context.sessions.order(&path, &connection, verb).await {
                // Some of it waits in the kernel, and freezes when it returns: the order stays, and is repeated.
                Ok(Outcome::Kept) if order == Order::StandStill => false,
                // A session that does not answer is looked up again; one that is gone needs no order.
                answer => answer.is_ok(),
            }
        }
        .boxed()
    }
}

fn is_lost(record: &ExitRecord) -> bool {
    match record.why {
        Some(EndedBy::ShimLost | EndedBy::HostLost | EndedBy::Version) => true,
        Some(EndedBy::Oom | EndedBy::Abort | EndedBy::Kill | EndedBy::Signal) | None => false,
    }
}

/// Returns the directory of the session, named by the call.
fn folder(context: &Context, key: &str) -> PathBuf {
    let seq = key.rsplit_once(':').map_or(key, |(_, seq)| seq);
    context.folder.join(session_name(seq))
}

/// The outcome of the wait for a command.
enum Joined {
    Result(ToolResult),
    /// The command waits for permission to reach this host.
    Asks(String),
}

/// The reason why it is not known how a command ended.
enum Unjoined {
    /// It never ran.
    NeverRan(std::io::Error),
    /// It may have run, or run now.
    Unknown(std::io::Error),
}

/// Launches the command, or joins its running session, and waits for its end.
async fn joined(context: &Context, asked: &Asked, path: &Path) -> Result<Joined, Unjoined> {
    #[cfg(feature = "faults")]
    let path = &again(path);
    let waited = match context.sessions.find(path).await.map_err(Unjoined::Unknown)? {
        SessionStatus::Ended(record) => {
            requests(context, path).await.show().await;
            Waited::Ended(record)
        }
        SessionStatus::Alive(connection) => {
            // A pause has left it frozen.
            let _ = context.sessions.order(path, &connection, Verb::Thaw).await;
            waited(context, connection, asked, path).await?
        }
        SessionStatus::NeverRan => {
            let spec = spec(context, asked).await.map_err(Unjoined::NeverRan)?;
            match context.sessions.launch(path, &spec).await {
                Ok(connection) => waited(context, connection, asked, path).await?,
                // Its shim may have started the command.
                Err(error) => match context.sessions.find(path).await.map_err(Unjoined::Unknown)? {
                    SessionStatus::Ended(record) => Waited::Ended(record),
                    SessionStatus::Alive(connection) => waited(context, connection, asked, path).await?,
                    SessionStatus::NeverRan => return Err(Unjoined::NeverRan(std::io::Error::other(error))),
                },
            }
        }
    };
    let (record, limit) = match waited {
        Waited::Ended(record) => (record, None),
        Waited::OverLimit(record) => (record, Some(asked.timeout)),
        Waited::Asks(host) => return Ok(Joined::Asks(host)),
    };
    if is_lost(&record) {
        return Ok(Joined::Result(ToolResult::lost("its session was lost")));
    }
    let path = path.to_owned();
    let output = context.pool.run(move || read_ends(&path, SHOWN_HEAD, SHOWN_TAIL)).await;
    let result = match output.map_err(std::io::Error::other).flatten() {
        Ok(output) => result(&record, &output, limit),
        Err(error) => ToolResult::failed(format!("shell: the output cannot be read: {error}")),
    };
    Ok(Joined::Result(result))
}

/// Returns a new directory for each daemon: with `retry-all`, each runs the command again.
#[cfg(feature = "faults")]
fn again(path: &Path) -> PathBuf {
    if !crate::faults::is_on("retry-all") {
        return path.to_owned();
    }
    path.with_extension(std::process::id().to_string())
}

async fn spec(context: &Context, asked: &Asked) -> std::io::Result<Spec> {
    let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), asked.command.clone()];
    let env = context.host.environment().await.map_err(std::io::Error::other)?;
    let ladder = context.sessions.ladder().await?;
    let (policy, machine) = (context.isolation.clone(), ladder.isolation.clone());
    Ok(Spec {
        limits: Limits { pids: Some(PidsLimit { max: PIDS_MAX, required: false }), ..Limits::default() },
        isolation: Isolation { policy, machine },
        proxy: context.proxy.clone(),
        inherited: context.inherited.clone(),
        log_max_bytes: LOG_MAX_BYTES,
        // The model sees one text in the order of the output.
        streams: Streams::Together,
        ..Spec::new(argv, env, context.cwd.display().to_string(), ladder.plan.clone())
    })
}

enum Waited {
    Ended(ExitRecord),
    /// It was killed at its time limit.
    OverLimit(ExitRecord),
    Asks(String),
}

async fn requests(context: &Context, path: &Path) -> Requests {
    let answers = context.proxy.as_ref().map(|proxy| proxy.answers.clone()).unwrap_or_default();
    Requests::of(context.journal.clone(), path, answers).await
}

/// Waits for the end, or for a question to a person, and ends the command at its time limit.
async fn waited(context: &Context, mut connection: Connection, asked: &Asked, path: &Path) -> Result<Waited, Unjoined> {
    let until = tokio::time::Instant::now() + asked.timeout;
    let mut hang_ups = 0;
    loop {
        let joined_at = tokio::time::Instant::now();
        let mut seen = connection.seen();
        let mut over = seen.wait_for(|seen| seen.ended.is_some() || seen.gone).boxed();
        let mut requests = requests(context, path).await;
        let end_or_question = async {
            tokio::select! {
                biased;
                _ = &mut over => None,
                host = requests.next_question() => Some(host),
            }
        };
        let ended: fn(ExitRecord) -> Waited = match tokio::time::timeout_at(until, end_or_question).await {
            Ok(Some(host)) => return Ok(Waited::Asks(host)),
            Ok(None) => Waited::Ended,
            Err(_) => {
                let _ = context.sessions.order(path, &connection, Verb::Kill).await;
                let _ = over.await;
                Waited::OverLimit
            }
        };
        requests.show().await;
        let known = connection.seen().borrow().ended.clone();
        if let Some(record) = known {
            return Ok(ended(record));
        }
        // The shim is gone without an answer: the directory of the session tells.
        connection = match context.sessions.find(path).await.map_err(Unjoined::Unknown)? {
            SessionStatus::Ended(record) => return Ok(ended(record)),
            // It only hung up.
            SessionStatus::Alive(connection) => {
                let now = tokio::time::Instant::now();
                let was_steady = now < until && now - joined_at > STEADY_AFTER;
                hang_ups = if was_steady { 1 } else { hang_ups + 1 };
                connection
            }
            SessionStatus::NeverRan => {
                return Err(Unjoined::NeverRan(std::io::Error::other("its shim was lost before the command ran")));
            }
        };
        if hang_ups > HANG_UPS_MAX {
            let message = format!("its session hung up {hang_ups} times in a row, and may still run");
            return Err(Unjoined::Unknown(std::io::Error::other(message)));
        }
        tokio::time::sleep(REJOIN_DELAY).await;
    }
}

/// Returns what the model is told of a command that has ended. `limit` is the time limit that it was killed at.
fn result(record: &ExitRecord, output: &Ends, limit: Option<Duration>) -> ToolResult {
    let mut text = String::from_utf8_lossy(&output.head).into_owned();
    if output.left_out > 0 {
        text.push_str(&format!("\n[... {} bytes left out ...]\n", output.left_out));
    }
    text.push_str(&String::from_utf8_lossy(&output.tail));
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let how = match (&record.result, record.why) {
        (SessionResult::Exited(0), _) => {
            return ToolResult::ok(if text.is_empty() { "exit code 0".to_owned() } else { text });
        }
        (SessionResult::Exited(code), _) => format!("exit code {code}"),
        (_, Some(EndedBy::Oom)) => "killed: out of memory".to_owned(),
        (SessionResult::Signaled(_), Some(EndedBy::Kill)) => match limit {
            Some(limit) => format!("killed: it ran longer than {limit:?}"),
            None => "killed: it was stopped".to_owned(),
        },
        (SessionResult::Signaled(number), _) => format!("ended by signal {number}"),
        (SessionResult::Aborted, _) => "the command never ran".to_owned(),
        (SessionResult::Error(failure), _) => {
            format!("the command could not be run: {} {}", failure.stage, failure.errno)
        }
    };
    ToolResult::failed(format!("{text}{how}"))
}
