//! Processes as clients see them: the JSON of `ps` and `info`, built in one place from the table and the journals.

mod intent;

use std::sync::Arc;

use relive_api::{Ancestor, DaemonStatus, Exit, Lineage, Process};
use relive_cli_agent::{Activity, Lifecycle};
use relive_core::{Body, Display, End, Generation, Pid, State as Life, Timestamp, Uuid, View};
use relive_journal::data::LineageError;
use relive_journal::history::{LedgerEntry, Spent, is_paid};
use relive_journal::{JournalState, ProcessMeta};
use relive_types::{Isolation, short_id};

use crate::bodies::{ShownAgent, Subagents};
use crate::error::Result;
use crate::hints::{Ended, Raise, Used, hint, own_raise, resume_with};
use crate::lookup::{LookedUp, OnDisk};
use crate::runtime::{Published, Runtime};
use crate::wait::gone;

/// What a daemon says of itself.
#[derive(Debug)]
pub struct About {
    pub data: std::path::PathBuf,
    pub socket: std::path::PathBuf,
    /// When it was started.
    pub started_at: relive_core::Timestamp,
}

/// How much is read about one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// All that `info` shows. Waits shortly for a snapshot of the files that is being taken.
    Full,
    /// Neither the state of the files nor the rest of a long intent.
    Brief,
}

impl Runtime {
    /// Returns one process, with all that `info` shows. Waits shortly for a snapshot of its files that is being taken.
    pub async fn process(self: &Arc<Self>, id: &str) -> Result<Process> {
        self.described(id, Detail::Full).await
    }

    /// Returns one process without its workspace, and with the beginning of a long intent: does not wait for its files.
    pub(crate) async fn process_in_brief(self: &Arc<Self>, id: &str) -> Result<Process> {
        self.described(id, Detail::Brief).await
    }

    async fn described(self: &Arc<Self>, id: &str, detail: Detail) -> Result<Process> {
        let listed = |pid| {
            let state = self.lock();
            state.table.view(pid, self.moment()).map(|view| self.shown(&state, &view)).ok_or_else(gone)
        };
        let mut end = None;
        let (process, files) = match self.look_up(id).await? {
            LookedUp::Living { process, note } => {
                let shown = Process { note, ..listed(process.of.pid)? };
                let files = match detail {
                    Detail::Full => self.known_files_so_far(process.uuid).await,
                    Detail::Brief => None,
                };
                (shown, files)
            }
            LookedUp::Remembered(pid) => {
                let process = listed(pid)?;
                let uuid = process.uuid;
                let info = self.on_disk(move |data| data.info(uuid)).await.ok().and_then(|read| read.ok()).flatten();
                // The table does not know whether a person has seen the end.
                let unseen = process.successor_pid.is_none() && info.as_ref().is_some_and(|info| info.unseen);
                (Process { unseen, ..process }, info.and_then(|info| info.files))
            }
            LookedUp::OnDisk(found) => {
                let files = found.info.files;
                end = found.end.clone();
                (of_disk(*found), files)
            }
            LookedUp::Unrecovered(uuid) => (self.unrecovered.get(uuid).ok_or_else(gone)?.shown(uuid), None),
        };
        let directory = self.data.directory(process.uuid);
        let meta = self.pools.reads.run(move || ProcessMeta::read(&directory)).await?.ok();
        let isolation = meta.as_ref().and_then(|meta| meta.isolation);
        let network = meta.as_ref().and_then(|meta| meta.network.clone());
        let (model, read) = meta.map(|meta| (meta.model, meta.instructions)).unzip();
        let instructions = read.into_iter().flatten().map(|file| {
            let relive_journal::Instructions { path, bytes, cut } = file;
            relive_api::Instructions { path, bytes, cut }
        });
        let instructions = instructions.collect();
        let session = match process.body {
            Body::Exec | Body::Cli => self.session_view(process.pid, process.uuid).await?,
            Body::Agent | Body::Compose | Body::Supervisor => None,
        };
        let isolation = match (process.body, &session) {
            (Body::Cli, Some(session)) => session.isolation.parse().ok(),
            (Body::Cli, None) => self.planned_isolation(process.uuid).await,
            (Body::Agent | Body::Exec | Body::Compose | Body::Supervisor, _) => isolation,
        };
        let model = process.model.or(model);
        let process = Process { model, instructions, session, isolation, network, ..process };
        let process = match detail {
            Detail::Full => {
                let workspace = self.workspace_of(&process.cwd, files).await;
                self.with_whole_intent(Process { workspace, ..process }).await
            }
            Detail::Brief => process,
        };
        let process = self.with_ended_agent(process).await;
        let process = self.with_doing(process, crate::doing::patience()).await;
        let process = self.with_known_budget_hint(process).await;
        let process = self.with_tree(self.with_pending_calls(process).await).await;
        Ok(self.with_attribution(process, end).await)
    }

    /// Returns what a CLI agent that has no program yet may reach.
    async fn planned_isolation(&self, uuid: Uuid) -> Option<Isolation> {
        let read = self.on_disk(move |data| data.history(uuid)).await;
        let spawned = read.ok().and_then(|read| read.ok())?.0.identity?.spawned;
        Some(spawned.isolated.unwrap_or_default().isolation)
    }

    /// Adds what the journal says of a CLI agent that does not run, or that this daemon has just found.
    async fn with_ended_agent(&self, process: Process) -> Process {
        if process.body != Body::Cli || process.agent.is_some() {
            return process;
        }
        let uuid = process.uuid;
        let read = self.on_disk(move |data| data.history(uuid)).await;
        let facts = read.ok().and_then(|read| read.ok()).and_then(|(history, _)| history.cli);
        let lives = process.state == Life::Running;
        let agent = facts.map(|facts| {
            let lifecycle = match lives {
                true if facts.is_turn_open() => Lifecycle::Working,
                true => Lifecycle::Spawning,
                false => Lifecycle::Killed,
            };
            let shown = ShownAgent {
                name: &facts.agent.agent,
                dialect: &facts.agent.dialect,
                lifecycle,
                activity: Activity::Idle,
                last_active: None,
                idle_kill_at: None,
                session_id: facts.session_id.as_deref(),
                usage: Some(if facts.gateway.is_some() { "counted" } else { "claimed" }),
                gateway: None,
                in_terminal: facts.agent.terminal,
                waiting: None,
                dialog: None,
                subagents: &Subagents::default(),
                queued: None,
            };
            shown.to_json()
        });
        Process { agent, ..process }
    }

    /// Returns where a fork comes from.
    pub async fn lineage(self: &Arc<Self>, id: &str) -> Result<Lineage> {
        let (uuid, note) = self.identity_of(&self.look_up(id).await?)?;
        let found = match self.on_disk(move |data| data.lineage(uuid)).await? {
            Err(LineageError::Io { uuid, source }) => return Err(self.unread_error(uuid, source).await?),
            found => found?,
        };
        let ancestors = found.into_iter().map(|ancestor| Ancestor {
            uuid: ancestor.uuid,
            step: ancestor.step,
            gone: ancestor.gone,
        });
        Ok(Lineage { uuid, ancestors: ancestors.collect(), note })
    }

    /// Tells whether nothing more will be written to the files of a process for now.
    #[must_use]
    pub fn is_over(&self, uuid: Uuid) -> bool {
        let state = self.lock();
        let Some(pid) = state.table.current_pid(uuid) else { return true };
        state.table.machine(pid).is_none()
    }

    /// Returns the daemon's state at a glance.
    pub async fn status(&self, about: &About) -> Result<DaemonStatus> {
        self.reload_settings().await;
        let space = self.on_disk(|data| data.space()).await??;
        let state = self.lock();
        let (mut running, mut suspended) = (0, 0);
        for view in state.table.processes(self.moment()) {
            if view.paused { suspended += 1 } else { running += 1 }
        }
        Ok(DaemonStatus {
            api: relive_api::API_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            os_pid: std::process::id(),
            data_dir: about.data.display().to_string(),
            socket: about.socket.display().to_string(),
            started_at: about.started_at,
            running,
            suspended,
            free_bytes: space.free_bytes,
            warnings: self.warnings.all().into_iter().chain(self.workspaces.half_done()).collect(),
        })
    }
}

pub(crate) fn exit_of(end: &End) -> Exit {
    let exit = end.exit();
    Exit { code: exit.code, reason: exit.reason.into_owned(), err: exit.err.map(std::borrow::Cow::into_owned) }
}

fn hint_of(state: &Published, view: &View<'_>) -> Option<String> {
    let refused = state.refused_keys.get(&view.pid).map(String::as_str);
    hint(view, state.table.limits(view.pid).unwrap_or_default(), refused)
}

fn exit_of_view(view: &View<'_>) -> Option<Exit> {
    let exit = view.exit.as_ref()?;
    let (code, reason) = (exit.code, exit.reason.to_string());
    Some(Exit { code, reason, err: exit.err.as_ref().map(ToString::to_string) })
}

/// Returns a process of the table.
pub(crate) fn of_view(state: &Published, view: &View<'_>) -> Process {
    Process {
        pid: view.pid,
        ppid: view.ppid,
        uuid: view.uuid,
        short: short_id::short(view.uuid),
        parent_uuid: view.parent_uuid,
        origin_uuid: view.origin_uuid,
        origin_step: view.origin_step,
        generation: view.generation,
        successor_pid: view.successor_pid,
        name: view.name.map(str::to_owned),
        body: view.body,
        intent: view.intent.to_owned(),
        intent_cut: view.intent_cut,
        cwd: view.cwd.to_owned(),
        state: view.state,
        paused: view.paused,
        paused_at: view.paused_at,
        display: view.display.word().to_owned(),
        doing: None,
        suspend_reason: view.suspend_reason,
        resume_at: state.resume_at(view.pid, view.paused_at),
        ending: view.ending,
        status: view.status.cloned(),
        why: view.why,
        killed_by: view.killed_by,
        killed_from: view.killed_from,
        exit: exit_of_view(view),
        exit_code: view.exit_code,
        step: view.step,
        max_steps: view.max_steps,
        timeout_ms: view.timeout_ms,
        tokens_in: view.tokens_in,
        tokens_out: view.tokens_out,
        estimated: view.estimated,
        max_tokens: view.max_tokens,
        cost_usd: view.cost_usd,
        model: view.model.map(str::to_owned),
        suspended_below: view.suspended_below,
        resumable: view.resumable,
        stalled: view.stalled,
        stalled_at: state.stalled_at.get(&view.pid).copied().filter(|_| view.stalled),
        created_at: view.created_at,
        started_at: view.started_at,
        dead_at: view.dead_at,
        elapsed_ms: view.elapsed_ms,
        session: None,
        isolation: None,
        network: None,
        workspace: None,
        agent: None,
        hint: hint_of(state, view),
        reached_limit: own_raise(view, state.table.limits(view.pid).unwrap_or_default()).and_then(Raise::limit),
        instructions: Vec::new(),
        approval: None,
        question: None,
        unseen: false,
        in_doubt: Vec::new(),
        tree: None,
        ended_by: None,
        paused_by: None,
        pause_kept: view.pause_kept,
        resumed_by: None,
        suspended: Vec::new(),
        pending_signals: Vec::new(),
        blocked_signals: Vec::new(),
        handled_signals: Vec::new(),
        note: None,
    }
}

/// Returns a process of which nothing but its UUID is known.
pub(crate) fn unknown(uuid: Uuid) -> Process {
    let millis = uuid.get_timestamp().map_or(0, |time| time.to_unix().0.cast_signed().saturating_mul(1_000));
    Process {
        pid: Pid::RUNTIME,
        ppid: Pid::RUNTIME,
        uuid,
        short: short_id::short(uuid),
        parent_uuid: None,
        origin_uuid: None,
        origin_step: None,
        generation: Generation(0),
        successor_pid: None,
        name: None,
        body: Body::default(),
        intent: String::new(),
        intent_cut: false,
        cwd: String::new(),
        state: Life::Dead,
        paused: false,
        paused_at: None,
        display: Display::Damaged.word().to_owned(),
        doing: None,
        suspend_reason: None,
        resume_at: None,
        ending: None,
        status: None,
        why: None,
        killed_by: None,
        killed_from: None,
        exit: None,
        exit_code: None,
        step: 0,
        max_steps: None,
        timeout_ms: None,
        tokens_in: 0,
        tokens_out: 0,
        estimated: false,
        max_tokens: None,
        cost_usd: None,
        model: None,
        suspended_below: 0,
        resumable: false,
        stalled: false,
        stalled_at: None,
        created_at: Timestamp::from_millisecond(millis).unwrap_or_default(),
        started_at: None,
        dead_at: None,
        elapsed_ms: 0,
        session: None,
        isolation: None,
        network: None,
        workspace: None,
        agent: None,
        hint: None,
        reached_limit: None,
        instructions: Vec::new(),
        approval: None,
        question: None,
        unseen: false,
        in_doubt: Vec::new(),
        tree: None,
        ended_by: None,
        paused_by: None,
        pause_kept: false,
        resumed_by: None,
        suspended: Vec::new(),
        pending_signals: Vec::new(),
        blocked_signals: Vec::new(),
        handled_signals: Vec::new(),
        note: None,
    }
}

/// Returns a process of the disk.
pub(crate) fn of_disk(found: OnDisk) -> Process {
    let OnDisk { info, pid, end, successor, note } = found;
    let (dead_at, elapsed_ms) = (info.dead_at.unwrap_or(info.last_active), info.elapsed_ms());
    let cause = end.as_ref().and_then(|end| end.cause);
    let spent = info.spent.tokens_in.saturating_add(info.spent.tokens_out);
    let exit = end.as_ref().map(exit_of).filter(|_| successor.is_none());
    let raise = exit.as_ref().and_then(|exit| {
        let why = cause.map(|cause| cause.why);
        let used = Used { step: info.step, elapsed_ms, tokens: spent, cost: info.spent.cost_usd };
        Ended { exit_reason: &exit.reason, why }.raise(info.limits, used)
    });
    Process {
        hint: raise.map(|raise| resume_with(pid, raise)),
        reached_limit: raise.and_then(Raise::limit),
        pid,
        ppid: Pid::RUNTIME,
        uuid: info.uuid,
        parent_uuid: info.parent_uuid,
        origin_uuid: info.origin.map(|origin| origin.uuid),
        origin_step: info.origin.map(|origin| origin.step),
        generation: info.generation,
        successor_pid: successor,
        name: info.name,
        body: crate::spec::body_of(&info.body).unwrap_or_default(),
        intent: info.intent,
        intent_cut: info.intent_cut,
        cwd: info.cwd,
        model: info.model,
        display: Display::Dead.word().to_owned(),
        status: end.as_ref().map(|end| end.status.clone()),
        why: cause.map(|cause| cause.why),
        killed_by: cause.map(|cause| cause.by),
        killed_from: cause.and_then(|cause| cause.root),
        exit: end.as_ref().map(exit_of),
        exit_code: end.as_ref().map(End::exit_code),
        step: info.step,
        max_steps: info.limits.max_steps,
        timeout_ms: info.limits.timeout_ms,
        tokens_in: info.spent.tokens_in,
        tokens_out: info.spent.tokens_out,
        estimated: is_estimated(info.ledger.as_deref(), info.spent),
        max_tokens: info.limits.max_tokens,
        cost_usd: info.spent.cost_usd,
        resumable: successor.is_none() && info.state == JournalState::Dead,
        created_at: info.created_at,
        started_at: Some(info.started_at),
        dead_at: Some(dead_at),
        elapsed_ms,
        unseen: info.unseen,
        note,
        ..unknown(info.uuid)
    }
}

/// Tells whether some of the tokens that are paid for are an estimate. An older Relive kept no ledger: then the models are not
/// known, and all tokens count as paid for.
pub(crate) fn is_estimated(ledger: Option<&[LedgerEntry]>, spent: Spent) -> bool {
    match ledger {
        Some(ledger) => ledger.iter().any(|entry| entry.estimated && is_paid(&entry.model)),
        None => spent.estimated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_without_a_ledger_is_one_and_that_of_a_script_is_none() {
        let spent = Spent { estimated: true, ..Spent::default() };
        assert!(is_estimated(None, spent));
        assert!(!is_estimated(None, Spent::default()));
        let entry = |model: &str| LedgerEntry {
            day: 0,
            model: model.to_owned(),
            tokens_in: 1,
            tokens_out: 1,
            cost_usd: None,
            estimated: true,
        };
        assert!(is_estimated(Some(&[entry("")]), spent));
        assert!(!is_estimated(Some(&[entry("script/x")]), spent));
    }
}
