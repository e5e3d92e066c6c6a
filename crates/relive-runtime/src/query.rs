//! Questions: which process is meant, what it is, how it ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use relive_api::{Ancestor, DaemonStatus, Exit, Lineage, Process, ProcessList, Resumable, ResumableList, WaitAnswer};
use relive_core::{Body, End, ErrorCode, Pid, Refusal, State as Life, SuspendReason, Uuid, View, Wait, Why};
use relive_journal::data::Known;
use relive_journal::{DataFolder, JournalState, ProcInfo, ProcessMeta};

use crate::error::{Error, Result};
use crate::runtime::{Runtime, State};

/// How many histories a beginning of a UUID may match before the search is given up.
const PREFIX_MIN: usize = 4;

/// What was meant.
#[derive(Debug)]
pub(crate) enum Target {
    /// In the table, or remembered by it.
    Listed(Pid),
    /// Known to the disk alone.
    OnDisk(Box<OnDisk>),
}

/// A process that ended before this daemon.
#[derive(Debug)]
pub(crate) struct OnDisk {
    pub(crate) info: ProcInfo,
    /// The incarnation that was asked for, and how it ended.
    pub(crate) pid: Pid,
    pub(crate) end: Option<End>,
    pub(crate) successor: Option<Pid>,
}

impl Runtime {
    /// The process a client means.
    pub(crate) async fn resolve(&self, id: &str) -> Result<Target> {
        let refusal = match self.listed(id) {
            Ok(pid) => {
                self.not_collected(pid).await?;
                return Ok(Target::Listed(pid));
            }
            Err(refusal @ Refusal::NotFound { .. }) => refusal,
            Err(refusal) => return Err(refusal.into()),
        };
        let text = id.to_owned();
        match self.on_disk(move |data| search(data, &text)).await?? {
            Search::Found(found) => {
                // The PID of an earlier daemon whose process is in the table under a new one.
                let uuid = found.info.uuid;
                if found.successor.is_none() && found.end.is_none() {
                    // Or it is being taken up just now: on the disk already, and in the table when the turn is over.
                    let _turn = self.turn(uuid).lock().await;
                    if let Ok(pid) = self.listed(&uuid.to_string()) {
                        return Ok(Target::Listed(pid));
                    }
                }
                Ok(Target::OnDisk(found))
            }
            Search::Collected(uuid) => Err(collected(uuid)),
            Search::Ambiguous(found) => {
                let list: Vec<String> = found.iter().map(Uuid::to_string).collect();
                Err(Error::new(ErrorCode::Invalid, format!("`{id}` could be any of: {}", list.join(", "))))
            }
            Search::Nothing if Uuid::try_parse(id).is_ok() => {
                Err(Error::new(ErrorCode::NotFound, format!("process {id} never existed"))
                    .with_hint("relive ps -a lists them"))
            }
            Search::Nothing => Err(refusal.into()),
        }
    }

    /// The table remembers an end for a while; whether its history is still there is the disk's to say.
    async fn not_collected(&self, pid: Pid) -> Result<()> {
        let ended = {
            let state = self.lock();
            let view = state.table.view(pid, self.now());
            view.filter(|view| view.dead_at.is_some()).map(|view| view.uuid)
        };
        match ended {
            Some(uuid) => self.is_here(uuid).await,
            None => Ok(()),
        }
    }

    /// Refuses what was collected.
    pub(crate) async fn is_here(&self, uuid: Uuid) -> Result<()> {
        match self.on_disk(move |data| data.known(uuid)).await?? {
            Known::Here(_) | Known::Never => Ok(()),
            Known::Collected(_) => Err(collected(uuid)),
        }
    }

    /// One process.
    pub async fn process(&self, id: &str) -> Result<Process> {
        let process = match self.resolve(id).await? {
            Target::Listed(pid) => {
                let process = {
                    let state = self.lock();
                    state.table.view(pid, self.now()).map(|view| of_view(&state, &view))
                };
                process.ok_or_else(|| Error::new(ErrorCode::NotFound, "it is gone"))?
            }
            Target::OnDisk(found) => of_disk(*found),
        };
        let folder = self.data.folder(process.uuid);
        let meta = self.pool.run(move || ProcessMeta::read(&folder)).await?.ok();
        let (model, files) = meta.map(|meta| (meta.model, meta.instructions)).unzip();
        let instructions = files.into_iter().flatten().map(|file| {
            let relive_journal::Instructions { path, bytes, cut } = file;
            relive_api::Instructions { path, bytes, cut }
        });
        let instructions = instructions.collect();
        let session = match process.body {
            Body::Exec => self.session_view(process.pid, process.uuid).await?,
            Body::Agent | Body::Cli | Body::Compose | Body::Supervisor => None,
        };
        let process = Process { model: process.model.or(model), instructions, session, ..process };
        Ok(self.with_tree(self.with_parked(process).await).await)
    }

    /// Every process that lives, and with `all` every one that is remembered or on the disk.
    pub async fn processes(&self, all: bool) -> Result<ProcessList> {
        let mut processes: Vec<Process> = {
            let state = self.lock();
            let now = self.now();
            let ended = state.table.ended(now).filter(|_| all);
            state.table.processes(now).chain(ended).map(|view| of_view(&state, &view)).collect()
        };
        if all {
            let listed: HashSet<Uuid> = processes.iter().map(|process| process.uuid).collect();
            let on_disk = self.on_disk(move |data| {
                let here: HashSet<Uuid> = data.uuids()?.into_iter().collect();
                Ok::<_, std::io::Error>((histories(data, |uuid| !listed.contains(uuid))?, here))
            });
            let (found, here) = on_disk.await??;
            // What was collected is remembered for a while and listed no more.
            processes.retain(|process| process.dead_at.is_none() || here.contains(&process.uuid));
            processes.extend(found.into_iter().filter_map(last_incarnation).map(of_disk));
        }
        processes.sort_by_key(|process| process.pid);
        Ok(ProcessList { processes })
    }

    /// What `resume` can take up.
    pub async fn resumable(&self) -> Result<ResumableList> {
        let all = self.processes(true).await?.processes;
        let processes = all.into_iter().filter(|process| process.resumable).map(|process| Resumable {
            uuid: process.uuid,
            pid: process.pid,
            name: process.name,
            intent: process.intent,
            display: process.display,
            step: process.step,
            last_active: process.dead_at.or(process.paused_at).unwrap_or(process.created_at),
            reason: process
                .suspend_reason
                .map(|reason| relive_api::reason_word(reason).to_owned())
                .or(process.exit.map(|exit| exit.reason)),
        });
        Ok(ResumableList { processes: processes.collect() })
    }

    /// Waits for an end. Any number may, and all get the same answer.
    pub async fn wait(&self, id: &str, timeout: Option<Duration>) -> Result<WaitAnswer> {
        let deadline = timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        let mut target = self.resolve(id).await?;
        let mut pid = loop {
            let found = match target {
                Target::Listed(pid) => break pid,
                Target::OnDisk(found) => found,
            };
            // Interrupted with its daemon, as below; or a PID that only stood for the process while it was suspended.
            let interrupted = found.end.as_ref().is_none_or(|end| end.why() == Some(Why::HostLost));
            target = match (found.successor, found.info.pids.last()) {
                (Some(successor), _) if interrupted => self.resolve(&successor.to_string()).await?,
                (None, Some(last)) if found.end.is_none() && *last != found.pid => {
                    self.resolve(&last.to_string()).await?
                }
                (Some(_) | None, _) => return Ok(answer_of_disk(&found)),
            }
        };
        loop {
            let bell = {
                let mut state = self.lock();
                let uuid = self.uuid_of(&state, pid).unwrap_or_default();
                match state.table.wait(pid)? {
                    // Interrupted with its daemon: whoever waits for it waits for what became of it.
                    Wait::Ended { end, successor: Some(successor) } if end.why() == Some(Why::HostLost) => {
                        pid = successor;
                        continue;
                    }
                    Wait::Ended { end, .. } => return Ok(answer(pid, uuid, end)),
                    Wait::NotEnded => Arc::clone(state.waiting.entry(pid).or_default()),
                }
            };
            let rung = bell.notified();
            tokio::pin!(rung);
            // From here on the bell is heard; what was rung before is seen by looking once more.
            rung.as_mut().enable();
            if matches!(self.lock().table.wait(pid)?, Wait::Ended { .. }) {
                continue;
            }
            match deadline {
                None => rung.await,
                Some(deadline) => {
                    if tokio::time::timeout_at(deadline, rung).await.is_err() {
                        return Ok(self.timed_out(pid));
                    }
                }
            }
        }
    }

    fn timed_out(&self, pid: Pid) -> WaitAnswer {
        let uuid = self.uuid_of(&self.lock(), pid).unwrap_or_default();
        WaitAnswer { pid, uuid, status: None, why: None, exit: None, timed_out: true, exit_code: 124 }
    }

    /// Where a fork comes from.
    pub async fn lineage(&self, id: &str) -> Result<Lineage> {
        let uuid = self.process(id).await?.uuid;
        let found = self.on_disk(move |data| data.lineage(uuid)).await??;
        let ancestors = found.into_iter().map(|ancestor| Ancestor {
            uuid: ancestor.uuid,
            step: ancestor.step,
            gone: ancestor.gone,
        });
        Ok(Lineage { uuid, ancestors: ancestors.collect() })
    }

    /// Whether nothing more will be written to the files of a process for now.
    pub fn is_over(&self, uuid: Uuid) -> bool {
        let state = self.lock();
        let Ok(pid) = state.table.resolve(relive_core::Caller::Person, &uuid.to_string()) else { return true };
        state.table.view(pid, self.now()).is_none_or(|view| view.dead_at.is_some())
    }

    /// The daemon at a glance.
    pub async fn status(&self, about: &About) -> Result<DaemonStatus> {
        let space = self.on_disk(|data| data.space()).await??;
        let state = self.lock();
        let (mut running, mut suspended) = (0, 0);
        for view in state.table.processes(self.now()) {
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
            warnings: state.warnings.clone(),
        })
    }
}

fn collected(uuid: Uuid) -> Error {
    Error::new(ErrorCode::NotFound, format!("process {uuid} was garbage collected")).with_hint("relive ps -a")
}

enum Search {
    Found(Box<OnDisk>),
    Collected(Uuid),
    Ambiguous(Vec<Uuid>),
    Nothing,
}

fn search(data: &DataFolder, id: &str) -> std::io::Result<Search> {
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) {
        let Ok(pid) = id.parse().map(Pid) else { return Ok(Search::Nothing) };
        return match data.uuid_of_pid(pid)? {
            Some(uuid) => incarnation(data, uuid, Some(pid)),
            None => Ok(Search::Nothing),
        };
    }
    if let Ok(uuid) = Uuid::try_parse(id) {
        return incarnation(data, uuid, None);
    }
    let mut matching = begin_with(data, id)?;
    match matching[..] {
        [] => named(data, id),
        [uuid] => incarnation(data, uuid, None),
        [..] => {
            matching.truncate(5);
            Ok(Search::Ambiguous(matching))
        }
    }
}

/// The histories whose UUID begins so.
fn begin_with(data: &DataFolder, id: &str) -> std::io::Result<Vec<Uuid>> {
    let hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if id.len() < PREFIX_MIN || !id.bytes().all(hex) {
        return Ok(Vec::new());
    }
    let prefix = id.to_ascii_lowercase();
    let mut matching = data.uuids()?;
    matching.retain(|uuid| uuid.to_string().starts_with(&prefix));
    Ok(matching)
}

/// The last that had the name. Those that have not ended are in the table. Every history is looked at, so this is last.
fn named(data: &DataFolder, name: &str) -> std::io::Result<Search> {
    let namesakes = histories(data, |_| true)?.into_iter().filter(|info| info.name.as_deref() == Some(name));
    match namesakes.max_by_key(|info| info.pids.last().copied()) {
        Some(last) => incarnation(data, last.uuid, None),
        None => Ok(Search::Nothing),
    }
}

/// The last incarnation of a history, or the one with this PID.
fn incarnation(data: &DataFolder, uuid: Uuid, pid: Option<Pid>) -> std::io::Result<Search> {
    match data.known(uuid)? {
        Known::Never => return Ok(Search::Nothing),
        Known::Collected(tombstone) => return Ok(Search::Collected(tombstone.uuid)),
        Known::Here(_) => {}
    }
    let (history, _) = data.history(uuid)?;
    let Some(info) = ProcInfo::of(&history) else { return Ok(Search::Nothing) };
    let incarnations = &history.incarnations;
    let place = match pid {
        None => incarnations.len().checked_sub(1),
        Some(pid) => incarnations.iter().position(|incarnation| incarnation.pid == pid),
    };
    let Some(place) = place else {
        // A PID that stood for the process while it was suspended under one daemon, and was never recorded.
        let pid = pid.unwrap_or(Pid::KERNEL);
        return Ok(Search::Found(Box::new(OnDisk { info, pid, end: None, successor: None })));
    };
    let found = &incarnations[place];
    let successor = incarnations.get(place + 1).map(|next| next.pid);
    // One that has a successor and no end of its own was interrupted with its daemon.
    let end = match &found.ended {
        Some((_, end)) => Some(end.clone()),
        None => successor.map(|_| crate::recover::interrupted()),
    };
    Ok(Search::Found(Box::new(OnDisk { info, pid: found.pid, end, successor })))
}

fn histories(data: &DataFolder, wanted: impl Fn(&Uuid) -> bool) -> std::io::Result<Vec<ProcInfo>> {
    let mut found = Vec::new();
    for uuid in data.uuids()?.into_iter().filter(wanted) {
        // One that cannot be read now is reported by whoever asks for it by name.
        if let Ok(Some(info)) = ProcInfo::read(&data.folder(uuid)) {
            found.push(info);
        }
    }
    Ok(found)
}

fn last_incarnation(info: ProcInfo) -> Option<OnDisk> {
    let pid = *info.pids.last()?;
    let end = info.end.clone();
    Some(OnDisk { info, pid, end, successor: None })
}

fn exit_of(end: &End) -> Exit {
    let exit = end.exit();
    Exit { code: exit.code, reason: exit.reason.into_owned(), err: exit.err.map(std::borrow::Cow::into_owned) }
}

fn answer(pid: Pid, uuid: Uuid, end: &End) -> WaitAnswer {
    WaitAnswer {
        pid,
        uuid,
        status: Some(end.status.clone()),
        why: end.why(),
        exit: Some(exit_of(end)),
        timed_out: false,
        exit_code: end.exit_code(),
    }
}

fn answer_of_disk(found: &OnDisk) -> WaitAnswer {
    match &found.end {
        Some(end) => answer(found.pid, found.info.uuid, end),
        None => WaitAnswer {
            pid: found.pid,
            uuid: found.info.uuid,
            status: None,
            why: None,
            exit: None,
            timed_out: false,
            exit_code: 1,
        },
    }
}

/// What a process waits for, and the way out, where a person has to do something.
pub(crate) fn hint(view: &View<'_>) -> Option<String> {
    let needs_key = view.suspend_reason == Some(SuspendReason::NeedsCredentials);
    view.model.filter(|_| needs_key).and_then(|model| crate::credentials::way_out(model, view.pid))
}

/// A process of the table, for a client.
fn of_view(state: &State, view: &View<'_>) -> Process {
    Process {
        pid: view.pid,
        ppid: view.ppid,
        uuid: view.uuid,
        parent_uuid: view.parent_uuid,
        origin_uuid: view.origin_uuid,
        origin_step: view.origin_step,
        generation: view.generation,
        successor_pid: view.successor_pid,
        name: view.name.map(str::to_owned),
        body: view.body,
        intent: view.intent.to_owned(),
        cwd: view.cwd.to_owned(),
        state: view.state,
        paused: view.paused,
        paused_at: view.paused_at,
        display: view.display.word().to_owned(),
        suspend_reason: view.suspend_reason,
        resume_at: state.resume_at(view.pid, view.paused_at),
        ending: view.ending,
        status: view.status.cloned(),
        why: view.why,
        killed_by: view.killed_by,
        killed_from: view.killed_from,
        exit: view.exit.as_ref().map(|exit| Exit {
            code: exit.code,
            reason: exit.reason.to_string(),
            err: exit.err.as_ref().map(ToString::to_string),
        }),
        step: view.step,
        max_steps: view.max_steps,
        tokens_in: view.tokens_in,
        tokens_out: view.tokens_out,
        max_tokens: view.max_tokens,
        cost_usd: view.cost_usd,
        model: view.model.map(str::to_owned),
        suspended_below: view.suspended_below,
        resumable: view.resumable,
        stalled: view.stalled,
        created_at: view.created_at,
        started_at: view.started_at,
        dead_at: view.dead_at,
        elapsed_ms: view.elapsed_ms,
        session: None,
        agent: None,
        hint: hint(view),
        instructions: Vec::new(),
        approval: None,
        in_doubt: Vec::new(),
        tree: None,
    }
}

/// A process of the disk, for a client.
fn of_disk(found: OnDisk) -> Process {
    let OnDisk { info, pid, end, successor } = found;
    let dead_at = info.dead_at.unwrap_or(info.last_active);
    let alive_ms = dead_at.as_millisecond() - info.created_at.as_millisecond();
    let cause = end.as_ref().and_then(|end| end.cause);
    Process {
        pid,
        ppid: Pid::KERNEL,
        uuid: info.uuid,
        parent_uuid: info.parent_uuid,
        origin_uuid: info.origin.map(|origin| origin.uuid),
        origin_step: info.origin.map(|origin| origin.step),
        generation: info.generation,
        successor_pid: successor,
        name: info.name,
        body: crate::run::body_of(&info.body).unwrap_or_default(),
        intent: info.intent,
        cwd: info.cwd,
        state: Life::Dead,
        paused: false,
        paused_at: None,
        display: "dead".to_owned(),
        suspend_reason: None,
        resume_at: None,
        ending: None,
        status: end.as_ref().map(|end| end.status.clone()),
        why: cause.map(|cause| cause.why),
        killed_by: cause.map(|cause| cause.by),
        killed_from: cause.and_then(|cause| cause.root),
        exit: end.as_ref().map(exit_of),
        step: info.step,
        max_steps: info.limits.max_steps,
        tokens_in: info.spent.tokens_in,
        tokens_out: info.spent.tokens_out,
        max_tokens: info.limits.max_tokens,
        cost_usd: info.spent.cost_usd,
        model: None,
        suspended_below: 0,
        resumable: successor.is_none() && info.state == JournalState::Dead,
        stalled: false,
        created_at: info.created_at,
        started_at: Some(info.started_at),
        dead_at: Some(dead_at),
        elapsed_ms: u64::try_from(alive_ms).unwrap_or(0).saturating_sub(info.paused_total_ms),
        session: None,
        agent: None,
        hint: None,
        instructions: Vec::new(),
        approval: None,
        in_doubt: Vec::new(),
        tree: None,
    }
}

/// What a daemon says of itself.
#[derive(Debug)]
pub struct About {
    /// Its data directory.
    pub data: std::path::PathBuf,
    /// Its socket.
    pub socket: std::path::PathBuf,
    /// When it was started.
    pub started_at: relive_core::Timestamp,
}
