//! Who asks, and what they may do: every verb as one caller may use it.
//!
//! A person may do everything. A process may name itself, what is below it and what it was handed; whatever else there
//! is does not exist for it, and is answered for like something that never was. The decision is the core's
//! ([`relive_core::Table::rights`]); this is the one place where verbs ask for it. The table has
//! every process that a process may name: those that ended before a restart are recalled when it first asks. Other journals
//! on the disk are for the person only.

mod files;
mod flows;
mod handles;
mod pool;
mod shown;
mod stream;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use relive_api::{
    Accepted, AckRequest, Acked, Affected, Created, DaemonStatus, EndSelfRequest, Environment, ExecRequest,
    ExecStarted, FOREIGN_SELF, FOREIGN_SELF_HINT, GateRequest, GcAnswer, GcRequest, Inbox, InputRequest, Lineage,
    ListQuery, PauseRequest, Process, ProcessList, Removed, RenameRequest, ResolveRequest, ResumableList,
    ResumeRequest, Resumed, RunRequest, SelfInfo, SignalMaskRequest, SignalRequest, SignalState, StopQuery, Stopping,
    UsageQuery, UsageReport, WaitAnswer,
};
use relive_core::{Cause, ErrorCode, Holder, Limits, Pid, Refusal, Rights, State, Uuid, Why};

use crate::error::{Error, Result};
use crate::feed::FeedReader;
use crate::runtime::{ProcessRef, Runtime};
use crate::view::About;

pub(crate) use shown::ANOTHER;
pub use stream::Readable;

/// How long a program that asks waits for its process to count as running.
const START_WITHIN: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    /// The person who owns the daemon.
    Person,
    /// A program of this process.
    Process(Uuid),
    /// The person, who acts as this process from outside of it: by its socket, which was copied from its environment.
    Acting(Uuid),
    /// A program of a process, at the socket of another one.
    Stranger,
    /// A program inside a process, and nobody can tell inside which.
    Unknown,
}

/// The verbs, as one caller may use them.
#[derive(Debug, Clone)]
pub struct Access {
    runtime: Arc<Runtime>,
    caller: Caller,
}

/// What a list shows.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// Everything there is.
    All,
    /// These processes of the table.
    Only(BTreeSet<Pid>),
}

impl Access {
    /// Returns what this caller may do.
    #[must_use]
    pub fn new(runtime: Arc<Runtime>, caller: Caller) -> Self {
        Self { runtime, caller }
    }

    /// Returns who asks.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Waits until the process that asks counts as running: its program may be quicker than the news of its start. Then
    /// the table has all that it may name, also what ended before this daemon.
    pub async fn ready(&self) {
        let (Caller::Process(uuid) | Caller::Acting(uuid)) = self.caller else { return };
        let has_started = async {
            loop {
                let mut changed = std::pin::pin!(self.runtime.bodies_changed.notified());
                changed.as_mut().enable();
                let machine = self.runtime.machine_of(uuid);
                if machine.is_none_or(|machine| machine.state() != State::Created) {
                    return;
                }
                changed.await;
            }
        };
        let _ = tokio::time::timeout(START_WITHIN, has_started).await;
        self.runtime.recall_ended().await;
    }

    /// Returns the process that asks; `None` if it is a person. One that has ended has no authority any more.
    pub(crate) fn process(&self) -> Result<Option<ProcessRef>> {
        match self.caller {
            Caller::Person => Ok(None),
            Caller::Process(uuid) | Caller::Acting(uuid) => match self.runtime.living(uuid) {
                Some(process) => Ok(Some(process)),
                None => Err(Error::new(ErrorCode::Permission, "the calling process has ended, so it may do nothing")),
            },
            Caller::Stranger => Err(Error::new(ErrorCode::Permission, FOREIGN_SELF).with_hint(FOREIGN_SELF_HINT)),
            Caller::Unknown => {
                let message = "Relive cannot tell which process this command runs in, so it is refused";
                Err(Error::new(ErrorCode::Permission, message)
                    .with_hint("run it outside, or from a program of the process itself"))
            }
        }
    }

    /// Refuses what only a person may do.
    fn person(&self, what: &str) -> Result<()> {
        match self.process()? {
            None => Ok(()),
            Some(process) => {
                let message = format!("{what} is only for a person, and this command runs in PID {}", process.of.pid);
                Err(Error::new(ErrorCode::Permission, message).with_hint("run it in a terminal outside of the process"))
            }
        }
    }

    /// Refuses what has to happen inside of the process that asks.
    fn is_inside(&self) -> Result<()> {
        match self.caller {
            Caller::Process(_) => Ok(()),
            Caller::Person | Caller::Acting(_) | Caller::Stranger | Caller::Unknown => {
                let message = "this command runs outside of the process that RELIVE_SELF names, and the command for a \
                               signal runs inside";
                Err(Error::new(ErrorCode::Permission, message).with_hint("unset RELIVE_SELF"))
            }
        }
    }

    /// Returns by which id the runtime finds the process that is meant, if the caller may do that much to it.
    async fn find(&self, id: &str, needed: Rights) -> Result<String> {
        let Some(process) = self.process()? else { return Ok(id.to_owned()) };
        let holder = Holder::Process(process.of.pid);
        let named = {
            let state = self.runtime.lock();
            let named = state.table.look_up(holder, id);
            named.and_then(|pid| state.table.authorize(holder, pid, needed).map(|()| pid.to_string()))
        };
        let refusal = match named {
            Err(refusal @ Refusal::NotFound { .. }) => refusal,
            named => return Ok(named?),
        };
        // A PID from before a restart stands for the process that continues, or continued.
        let found = self.runtime.look_up(id).await.and_then(|found| self.runtime.identity_of(&found));
        if let Ok((uuid, _)) = found {
            let state = self.runtime.lock();
            let authorized = state.table.current_pid(uuid).map(|pid| state.table.authorize(holder, pid, needed));
            match authorized {
                None | Some(Err(Refusal::NotFound { .. })) => {}
                Some(authorized) => return Ok(authorized.map(|()| id.to_owned())?),
            }
        }
        Err(refusal.into())
    }

    /// Returns why a process is ended or paused by this caller: one that is below it, or another one by a handle.
    async fn cause(&self, id: &str) -> Result<Cause> {
        let Some(process) = self.process()? else { return Ok(Cause::runtime(Why::User)) };
        let (target, _) = self.runtime.identity_of(&self.runtime.look_up(id).await?)?;
        Ok(Cause::process(self.runtime.why_of(process.of.pid, target), process.of.pid))
    }

    fn scope(&self) -> Result<Scope> {
        Ok(match self.process()? {
            None => Scope::All,
            Some(process) => Scope::Only(self.runtime.lock().table.visible(process.of.pid)),
        })
    }

    fn still_sees(&self, uuid: Uuid) -> bool {
        let Ok(process) = self.process() else { return false };
        let Some(process) = process else { return true };
        let state = self.runtime.lock();
        let target = state.table.current_pid(uuid);
        target.is_some_and(|target| state.table.rights(Holder::Process(process.of.pid), target).is_some())
    }

    /// Waits until the caller may not see a process any more. A person always may.
    async fn loses_sight(&self, uuid: Uuid) {
        if self.caller == Caller::Person {
            return std::future::pending().await;
        }
        loop {
            let mut changed = std::pin::pin!(self.runtime.sight_changed.notified());
            changed.as_mut().enable();
            if !self.still_sees(uuid) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the daemon's state at a glance; to a process, as far as it is its own.
    pub async fn status(&self, about: &About) -> Result<DaemonStatus> {
        let scope = self.scope()?;
        let status = self.runtime.status(about).await?;
        let Scope::Only(visible) = scope else { return Ok(status) };
        let state = self.runtime.lock();
        let views = visible.iter().filter_map(|pid| state.table.view(*pid, self.runtime.moment()));
        let (mut running, mut suspended) = (0, 0);
        for view in views.filter(|view| view.dead_at.is_none()) {
            if view.paused { suspended += 1 } else { running += 1 }
        }
        Ok(DaemonStatus { running, suspended, warnings: Vec::new(), ..status })
    }

    /// Begins to stop the daemon.
    pub fn begin_stop(&self, query: StopQuery) -> Result<Stopping> {
        self.person("stopping the daemon")?;
        if query.for_good {
            self.runtime.environments.end_with_the_daemon();
        }
        Ok(self.runtime.begin_stop())
    }

    /// Returns one page of a list.
    pub async fn page(&self, query: ListQuery) -> Result<ProcessList> {
        // Whoever ends meanwhile is shown what it was allowed to see.
        let (caller, scope) = (self.process()?, self.scope()?);
        let page = self.runtime.page_with_doing_of(query, scope).await?;
        let Some(caller) = caller else { return Ok(page) };
        let processes = page.processes.into_iter().map(|process| self.shown(caller, process)).collect();
        Ok(ProcessList { processes, ..page })
    }

    /// Returns one page of what can be resumed.
    pub async fn resumable(&self, query: ListQuery) -> Result<ResumableList> {
        self.runtime.resumable_of(query, self.scope()?).await
    }

    /// Creates an agent that whoever asks watches from its start.
    pub async fn run_attended(&self, request: RunRequest) -> Result<Created> {
        self.runtime.attend(self.caller, request.uuid);
        self.run(request).await
    }

    /// Creates an agent; below the process that asks, if it is one.
    pub async fn run(&self, request: RunRequest) -> Result<Created> {
        self.may_use(request.uuid).await?;
        let created = self.runtime.run_below(self.process()?, request).await;
        self.without_stranger(created).await
    }

    /// Creates a program; below the process that asks, if it is one.
    pub async fn exec(&self, request: ExecRequest) -> Result<ExecStarted> {
        self.may_use(request.uuid).await?;
        let mut request = request;
        if let Some(enter) = &mut request.enter {
            enter.id = self.find(&enter.id, Rights::Controller).await?;
        }
        let started = self.runtime.exec_below(self.process()?, request, relive_api::WorkspaceKind::Here).await;
        self.without_stranger(started).await
    }

    /// Opens the gate of a program.
    pub async fn proceed(&self, id: &str, request: GateRequest) -> Result<Affected> {
        self.runtime.proceed(&self.find(id, Rights::Controller).await?, request).await
    }

    /// Ends a program at its gate.
    pub async fn abort(&self, id: &str, request: GateRequest) -> Result<Affected> {
        let id = self.find(id, Rights::Controller).await?;
        self.runtime.abort_for(self.cause(&id).await?, &id, request).await
    }

    /// Returns one process.
    pub async fn info(&self, id: &str) -> Result<Process> {
        let process = self.runtime.process(&self.find(id, Rights::Observer).await?).await?;
        let resumer = self.runtime.resumer_of(process.uuid).await;
        self.shown_whole(process, resumer).await
    }

    /// Waits for the end of a process. Whoever loses the right to see it meanwhile is answered as if it never was.
    pub async fn wait(&self, id: &str, timeout: Option<Duration>) -> Result<WaitAnswer> {
        let found = self.find(id, Rights::Observer).await?;
        if self.caller == Caller::Person {
            return self.runtime.wait(&found, timeout).await;
        }
        let (uuid, _) = self.runtime.identity_of(&self.runtime.look_up(&found).await?)?;
        tokio::select! {
            biased;
            () = self.loses_sight(uuid) => {
                let unknown = || Refusal::NotFound { what: id.to_owned(), suggestion: None }.into();
                Err(self.find(id, Rights::Observer).await.err().unwrap_or_else(unknown))
            }
            answer = self.runtime.wait(&found, timeout) => answer,
        }
    }

    /// Pauses a process, or everything at and below it.
    pub async fn pause(&self, id: &str, request: PauseRequest, request_id: Option<String>) -> Result<Affected> {
        let id = self.find(id, Rights::Controller).await?;
        self.runtime.pause_for(self.cause(&id).await?, &id, request, request_id).await
    }

    /// Resumes a process, or starts a fork of it.
    pub async fn resume(&self, id: &str, request: ResumeRequest, request_id: Option<String>) -> Result<Resumed> {
        let Some(process) = self.process()? else { return self.runtime.resume(id, request, request_id).await };
        // A controller decides when a process runs, not for how long or with which model.
        let changes_it = request.limits != Limits::default() || request.model.is_some();
        let found = self.find(id, if changes_it { Rights::Owner } else { Rights::Controller }).await?;
        if request.fork.is_some() {
            // It would be below nobody: out of the reach of whoever stops its maker.
            self.person("a fork")?;
        }
        if changes_it && self.is(process, &found).await? {
            self.person("raising one's own limits or changing one's own model")?;
        }
        let model = match request.model {
            Some(model) => {
                let process = self.runtime.process_in_brief(&found).await?;
                Some(self.runtime.model_in(self.area().await?, model, &process.cwd).await?)
            }
            None => None,
        };
        // Its own environment is not what the process was given.
        let request = ResumeRequest { env: Environment::default(), model, ..request };
        self.runtime.resume_for(self.cause(&found).await?, &found, request, request_id).await
    }

    async fn is(&self, process: ProcessRef, id: &str) -> Result<bool> {
        let (uuid, _) = self.runtime.identity_of(&self.runtime.look_up(id).await?)?;
        Ok(uuid == process.uuid)
    }

    /// Sends a signal by its name.
    pub async fn signal(&self, id: &str, request: SignalRequest, request_id: Option<String>) -> Result<Affected> {
        let id = self.find(id, Rights::Controller).await?;
        self.runtime.signal_by_name_for(self.cause(&id).await?, &id, request, request_id).await
    }

    /// Returns what a process does with signals.
    pub async fn signal_mask(&self, id: &str) -> Result<SignalState> {
        self.runtime.signal_mask(&self.find(id, Rights::Observer).await?).await
    }

    /// Says which signals a process blocks and handles itself.
    pub async fn set_signal_mask(
        &self,
        id: &str,
        request: SignalMaskRequest,
        request_id: Option<String>,
    ) -> Result<SignalState> {
        let id = self.find(id, Rights::Owner).await?;
        if request.on.is_some() && !self.is(self.myself()?, &id).await? {
            // Nobody else can run the command.
            return Err(Error::new(
                ErrorCode::Invalid,
                "only a program inside the process can set a command for a signal",
            ));
        }
        if request.on.is_some() {
            self.is_inside()?;
        }
        self.runtime.set_signal_mask_for(self.cause(&id).await?, &id, request, request_id).await
    }

    /// Hands a message to a process.
    pub async fn send(&self, id: &str, request: InputRequest) -> Result<Accepted> {
        let id = self.find(id, Rights::Controller).await?;
        let from = self.process()?.map(|process| process.uuid);
        self.runtime.send_from(from, &id, request).await
    }

    /// Answers a question: nobody but a person does.
    pub async fn answer(&self, id: &str, request: ResolveRequest, request_id: Option<String>) -> Result<Affected> {
        self.person("answering what a process asks")?;
        self.runtime.answer(id, request, request_id).await
    }

    /// Returns what waits for the person.
    pub async fn inbox(&self) -> Result<Inbox> {
        self.person("the inbox")?;
        self.runtime.inbox().await
    }

    /// Notes that the person has seen how a process ended.
    pub async fn ack(&self, id: &str, request: AckRequest, request_id: Option<String>) -> Result<Acked> {
        self.person("the inbox")?;
        self.runtime.ack(id, request, request_id).await
    }

    /// Opens the stream of all processes.
    pub fn feed(&self, after: Option<&str>) -> Result<FeedReader> {
        self.person("the stream of all processes")?;
        Ok(FeedReader::open(Arc::clone(&self.runtime), after))
    }

    /// Returns where a fork comes from, as far as the caller may see it.
    pub async fn lineage(&self, id: &str) -> Result<Lineage> {
        let mut lineage = self.runtime.lineage(&self.find(id, Rights::Observer).await?).await?;
        if let Scope::Only(visible) = self.scope()? {
            let state = self.runtime.lock();
            let is_seen = |uuid| state.table.current_pid(uuid).is_some_and(|pid| visible.contains(&pid));
            lineage.ancestors.retain(|ancestor| is_seen(ancestor.uuid));
        }
        Ok(lineage)
    }

    /// Returns the process that asks, which has to be one.
    fn myself(&self) -> Result<ProcessRef> {
        self.process()?.ok_or_else(|| {
            Error::new(ErrorCode::Invalid, "this command does not run inside a process")
                .with_hint("relive exec -- relive self")
        })
    }

    /// Says who the process is that asks.
    pub async fn self_info(&self) -> Result<SelfInfo> {
        self.runtime.self_info(self.myself()?.uuid).await
    }

    /// Ends the process that asks, and returns its PID. On return that is on the disk.
    pub async fn end_self(&self, request: EndSelfRequest, request_id: Option<String>) -> Result<Pid> {
        let myself = self.myself()?;
        self.runtime.end_self(myself.uuid, request, request_id).await?;
        Ok(myself.of.pid)
    }

    /// Gives a process another name.
    pub async fn rename(&self, id: &str, request: RenameRequest, request_id: Option<String>) -> Result<Affected> {
        let renamed = self.runtime.rename(&self.find(id, Rights::Owner).await?, request, request_id).await;
        self.without_stranger(renamed).await
    }

    /// Removes the history of a process.
    pub async fn remove(&self, id: &str) -> Result<Removed> {
        self.person("removing a process")?;
        self.runtime.remove(id).await
    }

    /// Sums up what processes have used.
    pub async fn usage(&self, query: UsageQuery) -> Result<UsageReport> {
        self.person("the usage of all processes")?;
        self.runtime.usage(query).await
    }

    /// Collects histories.
    pub async fn gc(&self, request: GcRequest) -> Result<GcAnswer> {
        self.person("collecting journals")?;
        self.runtime.gc(request).await
    }
}
