//! Looks up a process from what a client typed.
//!
//! A PID whose incarnation ended answers for that end. A PID whose incarnation was interrupted, by a crash or a daemon
//! stop, stands for the process under its present PID, and the answer says so.

mod parts;

use std::pin::pin;

use futures_util::future::{Either, select};
use relive_core::{End, ErrorCode, Holder, Pid, Refusal, Uuid};
use relive_index::{Freshness, PidEntry, Row};
use relive_journal::data::Known;
use relive_journal::{ProcInfo, ProcessDirectory};
use relive_types::program::quote;

use crate::error::{Error, Result};
use crate::owner::Lane;
use crate::runtime::{ProcessRef, Runtime};
use crate::unrecovered::Failure;

/// How many candidates an ambiguous id lists.
const CANDIDATES_MAX: usize = 5;

/// The process that was found.
#[derive(Debug)]
pub(crate) enum LookedUp {
    /// It has not ended.
    Living {
        process: ProcessRef,
        /// Says that it has another PID now than the one that was typed.
        note: Option<String>,
    },
    /// It ended under this daemon, and the table remembers it.
    Remembered(Pid),
    /// It is only on the disk.
    OnDisk(Box<OnDisk>),
    /// It has not ended, and could not be recovered.
    Unrecovered(Uuid),
}

/// A process that ended before this daemon, or whose end the table has forgotten.
#[derive(Debug)]
pub(crate) struct OnDisk {
    pub(crate) info: ProcInfo,
    /// The incarnation that was found, and how it ended.
    pub(crate) pid: Pid,
    pub(crate) end: Option<End>,
    pub(crate) successor: Option<Pid>,
    pub(crate) note: Option<String>,
}

impl Runtime {
    /// Finds the process that a client names.
    pub(crate) async fn look_up(self: &std::sync::Arc<Self>, id: &str) -> Result<LookedUp> {
        if let Some(found) = self.look_up_part(id).await? {
            return Ok(found);
        }
        let refusal = match self.listed(id) {
            Ok(LookedUp::Remembered(pid)) => match self.look_up_remembered(id, pid).await? {
                Ok(found) => return Ok(found),
                Err(gone) => gone,
            },
            Ok(found) => return Ok(found),
            Err(refusal @ Refusal::NotFound { .. }) => refusal.into(),
            Err(refusal) => return Err(refusal.into()),
        };
        match self.unrecovered.find(id)[..] {
            [] => {}
            [uuid] => return Ok(LookedUp::Unrecovered(uuid)),
            ref found @ [..] => {
                let lines: Vec<String> = found.iter().map(Uuid::to_string).collect();
                return Err(ambiguous(id, &lines, lines.len()));
            }
        }
        match self.search(id).await? {
            Search::Found(found) => self.present(found).await,
            Search::Collected(uuid) => Err(collected(uuid)),
            Search::Nothing => match Uuid::try_parse(id) {
                Ok(uuid) => Err(self.unknown(uuid).await),
                Err(_) => Err(self.observed(id).unwrap_or(refusal)),
            },
        }
    }

    /// Says of the id of a subagent whose it is.
    fn observed(&self, id: &str) -> Option<Error> {
        let pid = self.living(self.bodies.cli.agents.with_subagent(id)?)?.of.pid;
        let message = format!("`{id}` is a subagent of PID {pid}: it is only observed, and cannot be controlled");
        Some(Error::new(ErrorCode::NotFound, message).with_hint(format!("relive info {pid}")))
    }

    /// Finds an end that the table remembers: only the disk knows whether its journal still exists. A name that a removed
    /// process had may be that of an earlier one too, so its refusal is only the answer if there is none.
    async fn look_up_remembered(&self, id: &str, pid: Pid) -> Result<Result<LookedUp, Error>> {
        let found = LookedUp::Remembered(pid);
        let Some(uuid) = self.uuid_of(pid) else { return Ok(Ok(found)) };
        if is_name(id)
            && let Some(now) = self.renamed(id, uuid)
        {
            return Ok(Err(renamed(id, now)));
        }
        match self.presence(uuid).await? {
            Presence::Here | Presence::Never => Ok(Ok(found)),
            Presence::Collected if is_name(id) => Ok(Err(removed(id))),
            Presence::Collected => Err(collected(uuid)),
        }
    }

    /// Returns the present PID of a process if it does not have this name any more. Its earlier incarnations still do.
    fn renamed(&self, name: &str, uuid: Uuid) -> Option<Pid> {
        let state = self.lock();
        let now = state.table.current_pid(uuid)?;
        let view = state.table.view(now, self.moment())?;
        (view.name != Some(name)).then_some(now)
    }

    /// Says of a UUID that there is no journal of it, and whether there was one.
    async fn unknown(self: &std::sync::Arc<Self>, uuid: Uuid) -> Error {
        let (path, journal) = (self.data.directory(uuid).path().to_owned(), self.data.directory(uuid).steps());
        let message = if self.on_disk(move |_| path.is_dir()).await.unwrap_or(false) {
            format!("the journal of process {uuid} is missing: {}", journal.display())
        } else {
            format!("process {uuid} never existed")
        };
        Error::new(ErrorCode::NotFound, message).with_hint("relive ps -a")
    }

    /// Finds the process that a client wants to change. A process that could not be recovered is recovered now, or the
    /// client gets the reason.
    pub(crate) async fn look_up_to_change(self: &std::sync::Arc<Self>, id: &str) -> Result<LookedUp> {
        let found = self.look_up(id).await?;
        let LookedUp::Unrecovered(uuid) = found else { return Ok(found) };
        self.recover_again(uuid).await?;
        self.look_up(&uuid.to_string()).await
    }

    fn listed(&self, id: &str) -> Result<LookedUp, Refusal> {
        let state = self.lock();
        let pid = state.table.look_up(Holder::Person, id)?;
        Ok(match (state.table.machine(pid), state.table.view(pid, self.moment())) {
            (Some(machine), Some(view)) if machine.end().is_none() => {
                LookedUp::Living { process: ProcessRef { of: machine.incarnation(), uuid: view.uuid }, note: None }
            }
            _ => LookedUp::Remembered(pid),
        })
    }

    /// Returns the present incarnation for a PID that was interrupted.
    async fn present(self: &std::sync::Arc<Self>, found: Box<OnDisk>) -> Result<LookedUp> {
        if found.end.is_some() {
            return Ok(LookedUp::OnDisk(found));
        }
        let uuid = found.info.uuid;
        let continues = |now: Pid| (now != found.pid).then(|| format!("PID {} continues as {now}", found.pid));
        if self.living(uuid).is_none() {
            // It may be being resumed: it is on the disk first, and in the table when the turn is over.
            drop(self.turn(uuid, Lane::Verb).await?);
        }
        if let Some(process) = self.living(uuid) {
            return Ok(LookedUp::Living { process, note: continues(process.of.pid) });
        }
        if self.unrecovered.contains(uuid) {
            return Ok(LookedUp::Unrecovered(uuid));
        }
        let Search::Found(last) = self.incarnation(uuid, None).await? else { return Err(collected(uuid)) };
        if last.end.is_none() {
            self.unrecovered.insert(uuid, Failure::unmarked(last.info));
            return Ok(LookedUp::Unrecovered(uuid));
        }
        let note = continues(last.pid);
        Ok(LookedUp::OnDisk(Box::new(OnDisk { note, ..*last })))
    }

    /// Refuses a process that was collected.
    pub(crate) async fn is_here(&self, uuid: Uuid) -> Result<()> {
        match self.presence(uuid).await? {
            Presence::Here | Presence::Never => Ok(()),
            Presence::Collected => Err(collected(uuid)),
        }
    }

    /// Returns the error for a process whose journal existed a moment ago.
    pub(crate) async fn gone_error(&self, uuid: Uuid) -> Result<Error> {
        Ok(match self.presence(uuid).await? {
            Presence::Collected => collected(uuid),
            Presence::Here | Presence::Never => Error::new(ErrorCode::NotFound, format!("process {uuid} is gone")),
        })
    }

    /// Returns the error for a process of which a file cannot be read.
    pub(crate) async fn unread_error(&self, uuid: Uuid, error: std::io::Error) -> Result<Error> {
        // Usually collected since it was looked up: then that is the error.
        if error.kind() == std::io::ErrorKind::NotFound {
            return self.gone_error(uuid).await;
        }
        if error.kind() != std::io::ErrorKind::PermissionDenied {
            return Ok(error.into());
        }
        let directory = self.data.directory(uuid).path().display().to_string();
        let message = format!("{directory}: permission denied: the daemon cannot read all of its files");
        Ok(Error::new(ErrorCode::Internal, message).with_hint(format!("chmod -R u+rwX {}", quote(&directory))))
    }

    /// Returns whether a process has a journal. No other journal is read.
    pub(crate) async fn presence(&self, uuid: Uuid) -> Result<Presence> {
        // Both are asked at the same time, and whoever is here does not wait for the index.
        let is_here = pin!(self.on_journal(move |data| data.is_here(uuid)));
        let collected = pin!(self.catalog.collected(uuid));
        let (is_here, collected) = match select(is_here, collected).await {
            Either::Left((is_here, collected)) => (is_here?, Either::Left(collected)),
            Either::Right((collected, is_here)) => (is_here.await?, Either::Right(collected)),
        };
        if is_here {
            return Ok(Presence::Here);
        }
        let collected = match collected {
            Either::Left(asked) => asked.await,
            Either::Right(answer) => answer,
        };
        match collected {
            Ok(Some(_)) => Ok(Presence::Collected),
            Ok(None) => Ok(Presence::Never),
            // While the index is rebuilt the tombstones tell it as well. Look-ups by UUID do not wait for the index.
            Err(_) => Ok(match self.on_journal(move |data| data.known(uuid)).await?? {
                Known::Here(_) => Presence::Here,
                Known::Collected(_) => Presence::Collected,
                Known::Never => Presence::Never,
            }),
        }
    }

    /// Searches a process that is not in the table.
    async fn search(&self, id: &str) -> Result<Search> {
        if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) {
            return match id.parse().map(Pid) {
                Ok(pid) if pid <= self.data.last_pid() => self.search_pid(pid).await,
                Ok(_) | Err(_) => Ok(Search::Nothing),
            };
        }
        if let Ok(uuid) = Uuid::try_parse(id) {
            return self.incarnation(uuid, None).await;
        }
        match self.catalog.by_name(id).await? {
            Some(uuid) => self.incarnation(uuid, None).await,
            None => Ok(Search::Nothing),
        }
    }

    async fn search_pid(&self, pid: Pid) -> Result<Search> {
        match self.catalog.by_pid(pid).await? {
            None => Ok(Search::Nothing),
            Some(PidEntry { uuid, collected_at: Some(_), .. }) => Ok(Search::Collected(uuid)),
            Some(entry) => self.incarnation(entry.uuid, Some(pid)).await,
        }
    }

    /// Returns the last incarnation of a process, or the one with this PID.
    async fn incarnation(&self, uuid: Uuid, pid: Option<Pid>) -> Result<Search> {
        if let Some(row) = self.current_row(uuid).await? {
            return Ok(Search::Found(Box::new(OnDisk::of(row, pid))));
        }
        match self.presence(uuid).await? {
            Presence::Collected => Ok(Search::Collected(uuid)),
            Presence::Never => Ok(Search::Nothing),
            // It may have been created since the search.
            Presence::Here => match self.current_row(uuid).await? {
                Some(row) => Ok(Search::Found(Box::new(OnDisk::of(row, pid)))),
                None => Err(damaged(uuid, &self.directory(uuid), SAYS_NOTHING)),
            },
        }
    }

    /// Returns the row of a process: from the index if that is up to date, else from its journal, which also updates
    /// the index. `None` if there is no such process, or its journal does not describe it.
    pub(crate) async fn current_row(&self, uuid: Uuid) -> Result<Option<Row>> {
        let row = self.catalog.row(uuid).await.unwrap_or_default();
        let is_known = row.is_some();
        let checked = self.on_disk(move |data| match row {
            Some(row) if matches!(Freshness::of(&row.info, &data.directory(uuid)), Ok(Freshness::Current)) => {
                Ok((Some(row), Freshness::Current))
            }
            Some(_) | None if !data.is_here(uuid) => Ok((None, Freshness::Gone)),
            Some(_) | None => match Row::read(data, uuid) {
                // Collected in the meantime.
                Err(_) if !data.is_here(uuid) => Ok((None, Freshness::Gone)),
                read => read.map(|row| (row, Freshness::Stale)),
            },
        });
        let (row, found) =
            checked.await?.map_err(|error: std::io::Error| damaged(uuid, &self.directory(uuid), &error.to_string()))?;
        match (&row, found) {
            (Some(row), Freshness::Stale) => self.catalog.tell_row(row.clone()),
            (None, Freshness::Gone) if is_known => self.catalog.doubt(),
            (_, Freshness::Current | Freshness::Stale | Freshness::Gone) => {}
        }
        Ok(row)
    }
}

/// Refuses an id of several processes: some of them, one line each, and their number.
fn ambiguous(id: &str, lines: &[String], count: usize) -> Error {
    let more = (count > CANDIDATES_MAX).then(|| "...".to_owned());
    let list: String = lines.iter().take(CANDIDATES_MAX).cloned().chain(more).map(|line| format!("\n{line}")).collect();
    Error::new(ErrorCode::Invalid, format!("`{id}` is ambiguous, it could be:{list}"))
}

/// Tells a name from a PID and a UUID.
fn is_name(id: &str) -> bool {
    !id.bytes().all(|byte| byte.is_ascii_digit()) && Uuid::try_parse(id).is_err()
}

/// Says that the process that had this name last was removed.
fn removed(name: &str) -> Error {
    Error::new(ErrorCode::NotFound, format!("`{name}` was removed")).with_hint("relive ps -a")
}

/// Says that the process that had this name last has another one now.
fn renamed(name: &str, now: Pid) -> Error {
    let message = format!("no process has the name `{name}` any more: PID {now} had it");
    Error::new(ErrorCode::NotFound, message).with_hint(format!("relive info {now}"))
}

fn collected(uuid: Uuid) -> Error {
    let message = format!("process {uuid} was removed (by `relive rm`, or garbage collected)");
    Error::new(ErrorCode::NotFound, message).with_hint("relive ps -a")
}

/// The problem of a journal without a beginning.
pub(crate) const SAYS_NOTHING: &str = "it does not describe a process";

/// Returns the error for a process whose journal cannot be read.
fn damaged(uuid: Uuid, directory: &ProcessDirectory, problem: &str) -> Error {
    let path = directory.steps();
    let message = format!("the journal of process {uuid} cannot be read: {}: {problem}", path.display());
    Error::new(ErrorCode::Conflict, message)
}

/// Whether a process has a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Here,
    Collected,
    Never,
}

enum Search {
    Found(Box<OnDisk>),
    Collected(Uuid),
    Nothing,
}

impl OnDisk {
    /// Returns the last incarnation of a process, or the one with this PID.
    fn of(row: Row, pid: Option<Pid>) -> Self {
        let Row { info, incarnations } = row;
        let place = match pid {
            None => incarnations.len().checked_sub(1),
            Some(pid) => incarnations.iter().position(|incarnation| incarnation.pid == pid),
        };
        let Some(place) = place else {
            // A PID that was assigned to the process while it was suspended under one daemon, and was never recorded.
            return Self { info, pid: pid.unwrap_or(Pid::RUNTIME), end: None, successor: None, note: None };
        };
        let successor = incarnations.get(place + 1).map(|next| next.pid);
        let found = &incarnations[place];
        Self { info, pid: found.pid, end: found.end.clone(), successor, note: None }
    }

    /// Returns the last incarnation of a process that ended.
    pub(crate) fn last(info: ProcInfo) -> Option<Self> {
        let (pid, end) = (*info.pids.last()?, info.end.clone());
        Some(Self { info, pid, end, successor: None, note: None })
    }
}

impl Runtime {
    /// Returns the UUID of the process that was found, living or not, and a note about its PID.
    pub(crate) fn identity_of(&self, found: &LookedUp) -> Result<(Uuid, Option<String>)> {
        match found {
            LookedUp::Living { process, note } => Ok((process.uuid, note.clone())),
            LookedUp::Remembered(pid) => {
                let gone = || Error::new(ErrorCode::NotFound, format!("no process `{pid}`"));
                Ok((self.uuid_of(*pid).ok_or_else(gone)?, None))
            }
            LookedUp::OnDisk(found) => Ok((found.info.uuid, found.note.clone())),
            LookedUp::Unrecovered(uuid) => match self.unrecovered.get(*uuid).filter(|failure| !failure.is_readable()) {
                // There is nothing to read either.
                Some(failure) => Err(failure.refusal(*uuid)),
                None => Ok((*uuid, None)),
            },
        }
    }
}
