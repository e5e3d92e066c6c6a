//! A CLI agent as a body: the program of another vendor, in a session of ours.
//!
//! Everything about the session is that of any program (`exec`). What is added: the command line of each run, the messages
//! in the language of the CLI, and the records of what it says. All of it is derived from the journal and from the
//! session's log, so a daemon that adopts a session knows what the one before knew.

mod acp;
mod agents;
mod calls;
mod conversation;
mod deliver;
mod hooks;
mod known;
mod live;
mod messages;
mod pool;
mod restart;
mod route;
mod state;
mod subagents;
mod terminal;
mod translate;
mod unsupported;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_core::program::Stdio;
use relive_core::{End, ErrorCode, Moment, ProcessStatus, Signal, Timestamp, Uuid};
use relive_journal::history::CliFacts;
use relive_journal::record::{Body as Record, CliGateway, CliLaunch, CliRecord, CliStart, CliTurnState, Input};
use relive_journal::{Durability, History, Journal, Seen, Writer};
use relive_session::spec::{OnFullDisk, Spec};
use relive_types::Isolation;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::exec::{AfterSession, Attended, Tenant};
use super::{Body, Context, DeliveryTime, ExecBody, Exit, LiveSession, Prepared, Rest, Verb};
use crate::clock::Clock;
use crate::drive::BodyOwner;
use crate::error::{Error, Result};
use crate::gateways::Gateways;
use crate::reload::LiveSettings;
use crate::runtime::ProcessRef;
use calls::{OnQuota, Recorded, ServedAt};
use conversation::{Conversation, Finished};

pub(crate) use agents::{ACP_PREFIX, BUILT_IN, built_in, built_in_terminal, provider_of};
pub(crate) use calls::{PRICES_HINT, unpriced};
use live::LiveAgents;
pub(crate) use live::{LiveAgent, ShownAgent};
use pool::{AgentPool, AskedRun};
use restart::Crash;
pub(crate) use route::{NoRoute, route};
pub(crate) use state::is_known as knows_state;
pub(crate) use subagents::Subagents;

/// What an agent is told that was interrupted in a turn, when nobody says anything.
const CONTINUE: &str = "Continue.";

/// How the id of the message begins that an agent is told whose program crashed in a turn.
const RESTART_ID: &str = "restart:";
/// Why a process failed whose program ended in a turn.
const BROKEN: &str = "the agent ended in the middle of its turn";
/// Why a process failed whose program ended without a word about its message.
const UNANSWERED: &str = "the agent ended before it began to answer";

/// Runs CLI agents.
#[derive(Debug, Clone)]
pub(crate) struct CliBody {
    pub(crate) exec: ExecBody,
    pub(crate) agents: LiveAgents,
    pub(crate) pool: AgentPool,
    pub(crate) clock: Clock,
    pub(crate) live: Arc<LiveSettings>,
    pub(crate) gateways: Arc<Gateways>,
}

impl Body for CliBody {
    fn accepts(&self, verb: Verb) -> Result<()> {
        match verb {
            Verb::Fork => Ok(()),
            Verb::Gate => Err(Error::new(ErrorCode::Invalid, "a CLI agent has no gate: only programs do")),
        }
    }

    fn accepts_fork(&self, origin: &History, from_step: Option<u32>) -> Result<()> {
        let Some(facts) = &origin.cli else { return Ok(()) };
        let name = &facts.agent.agent;
        if from_step.is_some() {
            let message = format!("`{name}` forks its whole conversation: it cannot begin at a step");
            return Err(Error::new(ErrorCode::Invalid, message).with_hint("leave out --from-step"));
        }
        if facts.session_id.is_none() && facts.origin_session.is_none() {
            let message = format!("`{name}` has not begun its conversation, so there is nothing to fork");
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        let runs = origin.incarnations.last().is_some_and(|last| last.ended.is_none());
        // The program of a fork is of the same version as one that runs. Another one says itself what it can do.
        let refusal = if runs { agents::refusal_of_last } else { agents::refusal };
        match refusal(facts, CliStart::Fork) {
            Some(refused) => Err(Error::new(ErrorCode::Invalid, refused)),
            None => Ok(()),
        }
    }

    fn accepts_message(&self, uuid: Uuid, when: DeliveryTime) -> BoxFuture<'_, Result<()>> {
        async move {
            let live = match &when {
                DeliveryTime::Now(Some(session)) => session.borrow().as_ref().map(|live| Arc::clone(&live.program)),
                DeliveryTime::Now(None) | DeliveryTime::NextRun => None,
            };
            let program = match live {
                Some(program) => program,
                None => self.exec.program_of(uuid).await?,
            };
            if matches!(program.stdio, Stdio::Pty { .. }) {
                return Err(terminal::takes_no_messages(uuid));
            }
            match when {
                // Its program is not there yet, and may not be for long: the message waits in the journal.
                DeliveryTime::Now(Some(session)) if session.borrow().is_none() => Ok(()),
                when @ (DeliveryTime::Now(_) | DeliveryTime::NextRun) => self.exec.accepts_message(uuid, when).await,
            }
        }
        .boxed()
    }

    fn reads_journal(&self) -> bool {
        true
    }

    fn first_message(&self, history: &History) -> Option<&'static str> {
        let facts = history.cli.as_ref()?;
        let is_unfinished = match facts.turn.as_ref()?.state {
            CliTurnState::Open | CliTurnState::Interrupted => true,
            // It failed because of its limits, which are higher now.
            CliTurnState::Failed => facts.is_refused,
            CliTurnState::Completed => false,
        };
        // A message that was not answered says what to do.
        (is_unfinished && !facts.has_unheard()).then_some(CONTINUE)
    }

    fn read_ahead(&self, journal: &mut Writer) -> Prepared {
        self.exec.read_ahead(journal)
    }

    fn run(&self, cx: Context) -> BoxFuture<'static, Exit> {
        let body = self.clone();
        async move {
            let agent = RunningAgent {
                body: &body,
                process: cx.process,
                owner: cx.owner.clone(),
                journal: Arc::clone(&cx.journal),
                conversation: Mutex::default(),
                boundary: watch::Sender::new(true),
            };
            body.pool.begins(agent.process.uuid);
            let exit = body.exec.run_to_end(cx, &agent).await;
            body.agents.remove(agent.process.uuid);
            body.pool.leaves(agent.process.uuid);
            // It may be served although its program was never started.
            let is_over = matches!(exit, Exit::Ended(_) | Exit::Over(_) | Exit::Cancelled);
            if is_over && body.gateways.facts(agent.process.uuid).is_some() {
                body.gateways.forget(agent.process.uuid).await;
            }
            exit
        }
        .boxed()
    }

    fn settle(&self, process: ProcessRef, how: Rest) -> BoxFuture<'_, io::Result<()>> {
        self.exec.settle(process, how)
    }

    fn stays_when_suspended(&self) -> bool {
        true
    }

    fn ends_others_first(&self) -> bool {
        self.exec.ends_others_first()
    }

    fn last_seen(&self, uuid: Uuid, now: Moment) -> BoxFuture<'_, Option<Seen>> {
        self.exec.last_seen(uuid, now)
    }

    fn stops_with_daemon(&self) -> bool {
        false
    }

    fn message_for(&self, _: Signal) -> Option<&'static str> {
        None
    }

    /// An agent that handles SIGINT is told in its own language, by whoever follows its journal.
    fn pass_on(&self, signal: Signal, session: LiveSession) -> BoxFuture<'static, ()> {
        match signal {
            Signal::Int => std::future::ready(()).boxed(),
            Signal::Term | Signal::Kill | Signal::Pause | Signal::Resume => self.exec.pass_on(signal, session),
        }
    }

    fn is_observed(&self) -> bool {
        true
    }
}

impl CliBody {
    pub(crate) fn new(exec: ExecBody, clock: Clock, live: Arc<LiveSettings>, gateways: Arc<Gateways>) -> Self {
        Self { exec, agents: LiveAgents::default(), pool: AgentPool::default(), clock, live, gateways }
    }

    /// Returns how long an agent may be idle; zero for ever.
    fn idle_timeout(&self) -> Duration {
        self.live.now().pool.idle_timeout
    }
}

/// A CLI agent whose body runs.
struct RunningAgent<'a> {
    body: &'a CliBody,
    process: ProcessRef,
    owner: BodyOwner,
    journal: Arc<dyn Journal>,
    /// The task that reads its session and writes to it. It is never dropped, because it writes to the journal.
    conversation: Mutex<Option<JoinHandle<Finished>>>,
    /// Whether a pause may freeze it.
    boundary: watch::Sender<bool>,
}

impl RunningAgent<'_> {
    fn take_task(&self) -> Option<JoinHandle<Finished>> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn history(&self) -> io::Result<History> {
        let (data, uuid) = (Arc::clone(&self.body.exec.data), self.process.uuid);
        let read = self.body.exec.pool.run(move || data.history(uuid).map(|(history, _)| history)).await;
        read.map_err(io::Error::other)?
    }

    async fn facts(&self) -> io::Result<CliFacts> {
        let untold = || io::Error::other("the journal does not say which CLI agent it is");
        Ok(*self.history().await?.cli.ok_or_else(untold)?)
    }

    /// Returns since when the run is to begin, in the words of the journal, so that every daemon has the same order.
    async fn asked_run(&self) -> io::Result<AskedRun> {
        let history = self.history().await?;
        let is_over = history.incarnations.iter().rposition(|incarnation| incarnation.ended.is_some());
        let first = history.incarnations.get(is_over.map_or(0, |place| place + 1));
        let since: Timestamp = first.map_or_else(|| self.body.clock.now(), |incarnation| incarnation.at);
        let facts = history.cli.as_deref();
        let named = |facts: &CliFacts| (facts.agent.agent.clone(), facts.agent.dialect.clone());
        let (name, dialect) = facts.map(named).unwrap_or_default();
        let (session_id, in_terminal) =
            facts.map(|facts| (facts.session_id.clone(), facts.agent.terminal)).unwrap_or_default();
        Ok(AskedRun { since, name, dialect, session_id, in_terminal })
    }

    /// Records that a program which has crashed is replaced by another one, if it is to be.
    async fn repair(&self, folder: &Path, end: &End, finished: &Finished) -> bool {
        let in_turn = matches!(finished, Finished::Broken(_));
        let facts = self.owner.look(|history| history.cli.as_deref().cloned()).await;
        // Whoever sits at a terminal sees that its program is gone.
        let Some(facts) = facts.ok().flatten().filter(|facts| !facts.agent.terminal) else { return false };
        let Some(crash) = Crash::of(end, in_turn, &facts) else { return false };
        let cannot = agents::refusal_of_last(&facts, agents::start_of(&facts)).is_some();
        if cannot || !crash.is_repaired(&facts.restarts, self.body.clock.now()) {
            if !cannot && crash.leaves_work() {
                let text = "its program has crashed too often to be started again";
                self.journal.event("warning", serde_json::json!({"text": text}));
            }
            return false;
        }
        let crashed = translate::session_number(folder).0;
        let mut records = vec![Record::Cli(CliRecord { crashed: Some(crashed), ..CliRecord::default() })];
        if in_turn && !facts.has_unheard() {
            let id = format!("{RESTART_ID}{crashed}");
            records.push(Record::Input(Input { id, from: None, text: CONTINUE.into() }));
        }
        // What the program asked for is asked for no more: the next one would not understand the answer.
        let recorded = self.owner.withdraw(records).await;
        if let Err(error) = &recorded {
            self.conversation(folder).warn(&format!("it crashed and cannot be started again: {error}"));
        } else {
            let text = match facts.has_unheard() {
                false => "its program has crashed, and is started again",
                true => {
                    "its program has crashed, and is started again with the message that it had not begun to answer"
                }
            };
            self.journal.event("restarted", serde_json::json!({"text": text, "number": facts.restarts.len() + 1}));
        }
        recorded.is_ok()
    }

    /// Waits until a program can continue its conversation without losing it, or is to be ended.
    async fn wait_to_continue(&self, facts: &CliFacts, how: CliStart) {
        let Some(at) = agents::continues_at(&facts.agent, &facts.launches, how, self.body.clock.now()) else { return };
        let name = &facts.agent.agent;
        let text = format!("{name} continues at {at}: it would overwrite a conversation of the same minute");
        self.journal.event("waits", serde_json::json!({"text": text, "until": at.to_string()}));
        let mut bell = self.owner.follow();
        while self.owner.told_to_end().is_none() {
            let left = Duration::try_from(at.duration_since(self.body.clock.now())).unwrap_or_default();
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                changed = bell.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Has the calls of a program that is about to start go through the gateway, if they can.
    async fn lead_through_gateway(&self, facts: &CliFacts, spec: &mut Spec) -> io::Result<Option<CliGateway>> {
        let limits = self.owner.look(|history| history.limits).await.map_err(io::Error::other)?;
        let route = match self.body.route(self.process, facts).await {
            Ok(route) => route,
            Err(why) if limits.max_tokens.is_some() || limits.max_cost_usd.is_some() => {
                return Err(io::Error::other(format!("its limits cannot be enforced, because {why}")));
            }
            Err(_) => return Ok(None),
        };
        let token = format!("relive-{}{}", new_secret()?, new_secret()?);
        let hash = relive_gateway::token_hash(&token);
        let at = ServedAt { port: None, token: hash.clone(), socket: None };
        let port = self.body.serve(self.process, &route, at, facts.called_to).await?;
        route.apply(port, &token, &mut spec.env, &mut spec.argv, &self.body.live.now().tool_env);
        if route::takes_settings(&facts.agent, &spec.argv) {
            let mut settings = route::claude_settings(port, &spec.env);
            if facts.agent.terminal && self.body.gateways.takes_hooks(self.process.uuid).await {
                settings["hooks"] = hooks::settings(port);
                spec.env.push((hooks::TOKEN.to_owned(), relive_gateway::hooks_token(&hash)));
            }
            spec.argv.extend([route::SETTINGS.to_owned(), settings.to_string()]);
        }
        Ok(Some(CliGateway { port, token: hash }))
    }

    /// Records the calls of a program that has ended, and returns the model of one that was refused.
    async fn count_last_calls(&self, folder: &Path) -> Option<String> {
        // Not from the file: the last calls that were recorded may not be in it.
        let facts = self.owner.look(|history| history.cli.as_deref().cloned()).await;
        let facts = facts.ok().flatten().filter(|facts| facts.gateway.is_some())?;
        self.body.gateways.forget(self.process.uuid).await;
        let conversation = self.conversation(folder);
        let mut recorded = Recorded::up_to(facts.called_to);
        if let Err(error) = conversation.record_calls(&mut recorded, OnQuota::Record).await {
            conversation.warn(&format!("its last model calls cannot be recorded: {error}"));
        }
        recorded.refused
    }

    fn conversation(&self, folder: &Path) -> Conversation {
        let (body, owner, journal) = (self.body.clone(), self.owner.clone(), Arc::clone(&self.journal));
        Conversation { body, process: self.process, owner, journal, folder: folder.to_owned() }
    }
}

impl Tenant for RunningAgent<'_> {
    fn admit<'b>(&'b self, cx: &'b mut Context) -> BoxFuture<'b, bool> {
        async move {
            match self.asked_run().await {
                Ok(asked) => self.body.wait_for_room(cx, asked).await,
                // The launch fails for the same reason, and says so.
                Err(_) => true,
            }
        }
        .boxed()
    }

    fn prepare(&self, spec: Spec) -> BoxFuture<'_, io::Result<Spec>> {
        async move {
            let facts = self.facts().await?;
            let how = agents::start_of(&facts);
            if let Some(refused) = agents::refusal(&facts, how) {
                return Err(io::Error::other(refused));
            }
            self.wait_to_continue(&facts, how).await;
            // Each line says something about its state; nobody reads those of a terminal.
            let on_full_disk = if facts.agent.terminal { OnFullDisk::Lose } else { OnFullDisk::Wait };
            let mut spec = Spec { argv: agents::argv(self.process.uuid, &facts, how), on_full_disk, ..spec };
            confine(&facts, &mut spec);
            let gateway = self.lead_through_gateway(&facts, &mut spec).await?;
            let launched = Some(CliLaunch { argv: spec.argv.clone(), how, gateway });
            let record = Record::Cli(CliRecord { launched, ..CliRecord::default() });
            self.journal.append(vec![record], Durability::Synced).await.map_err(io::Error::other)?;
            Ok(spec)
        }
        .boxed()
    }

    fn accompany<'b>(&'b self, session: &'b Attended<'_>) -> BoxFuture<'b, ()> {
        let conversation = self.conversation(&session.folder);
        self.body.pool.runs(self.process.uuid, session.connection.clone());
        let (connection, boundary) = (session.connection.clone(), self.boundary.clone());
        let task = match session.program.stdio {
            Stdio::Pty { .. } => tokio::spawn(conversation.follow_terminal(connection, boundary)),
            Stdio::Pipes | Stdio::Null => tokio::spawn(conversation.follow(connection, boundary)),
        };
        *self.conversation.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        std::future::pending().boxed()
    }

    fn ended<'b>(&'b self, folder: &'b Path, end: End) -> BoxFuture<'b, AfterSession> {
        async move {
            let followed = match self.take_task() {
                Some(task) => task.await.unwrap_or(Finished::Unread),
                None => Finished::Unread,
            };
            let is_unread = followed == Finished::Unread;
            let finished = if is_unread { self.conversation(folder).read_rest().await } else { followed };
            let refused = self.count_last_calls(folder).await;
            self.conversation(folder).name_terminal_conversation().await;
            let refused = refused.or_else(|| finished.refused().cloned());
            if let Some(model) = &refused {
                return AfterSession::Over(self.conversation(folder).end_of_refused(end, model).await);
            }
            // Most CLIs exit with 0 when they are asked to end, which does not mean that their work was done.
            if let Some(signal) = self.owner.told_to_end() {
                let status = ProcessStatus::Killed { signal: signal.into() };
                return AfterSession::Over(End { cause: end.cause, ..End::of(status) });
            }
            let has_none = matches!(finished, Finished::NoConversation(_));
            if !has_none && self.repair(folder, &end, &finished).await {
                return AfterSession::Again;
            }
            AfterSession::Over(end_of(end, finished))
        }
        .boxed()
    }

    fn boundary(&self) -> watch::Receiver<bool> {
        self.boundary.subscribe()
    }

    fn thaws(&self) -> BoxFuture<'_, ()> {
        self.body.gateways.release(self.process.uuid).boxed()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        async move {
            if let Some(task) = self.take_task() {
                // It ends with its connection.
                let _ = task.await;
            }
        }
        .boxed()
    }
}

/// Lets a confined program write to its own directories. One below an isolated process has what that one has, and no more.
fn confine(facts: &CliFacts, spec: &mut Spec) {
    let policy = &mut spec.isolation.policy;
    if policy.isolation == Isolation::None || policy.within.is_some() {
        return;
    }
    let chosen = spec.env.iter().find(|(name, value)| name == "HOME" && !value.is_empty());
    let home = chosen.map(|(_, value)| PathBuf::from(value)).or_else(|| policy.home.clone());
    policy.state = home.map(|home| state::of(&facts.agent, &home, &spec.env)).unwrap_or_default();
}

/// Returns how an agent ended. Its exit code alone says little: CLIs exit with 0 after a turn that failed.
fn end_of(end: End, finished: Finished) -> End {
    let exited = matches!(end.status, ProcessStatus::Exited { .. });
    match finished {
        Finished::Closed if end.cause.is_none() => End::of(ProcessStatus::Exited { code: 0 }),
        // However it was ended then.
        Finished::NoConversation(message) => End::of(ProcessStatus::Faulted { fault: message }),
        Finished::Failed(message) if exited => End::of(ProcessStatus::Faulted { fault: message }),
        Finished::Broken(errors) if exited => failed(BROKEN, errors),
        Finished::Unanswered(errors) if exited => failed(UNANSWERED, errors),
        Finished::Closed
        | Finished::Failed(_)
        | Finished::Broken(_)
        | Finished::Unanswered(_)
        | Finished::Quiet
        | Finished::Unread
        | Finished::Refused(_) => end,
    }
}

/// Returns the end of an agent that failed, with the last line of its errors.
fn failed(why: &str, errors: Option<String>) -> End {
    let said = errors.map(|line| format!(": {line}")).unwrap_or_default();
    End::of(ProcessStatus::Faulted { fault: format!("{why}{said}") })
}

/// Returns half of a secret that nobody can guess.
fn new_secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}
