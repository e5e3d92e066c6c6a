//! From what a client typed to a process.
//!
//! A PID whose incarnation ended answers for that end. A PID whose incarnation was interrupted, by a crash or a daemon
//! stop, stands for the process under its present PID, and the answer says so.

use relive_core::{Caller, End, ErrorCode, Pid, Refusal, Uuid};
use relive_journal::data::Known;
use relive_journal::{DataDirectory, ProcInfo};

use crate::error::{Error, Result};
use crate::owner::Lane;
use crate::runtime::{ProcessRef, Runtime};

/// The shortest beginning of a UUID that is looked up.
const PREFIX_MIN: usize = 4;
/// How many candidates an ambiguous id lists.
const CANDIDATES_MAX: usize = 5;

/// The process that was found.
#[derive(Debug)]
pub(crate) enum LookedUp {
    /// It has not ended.
    Living {
        process: ProcessRef,
        /// That it has another PID now than the one that was typed.
        note: Option<String>,
    },
    /// It ended in this daemon's life, and the table remembers it.
    Remembered(Pid),
    /// It is known to the disk alone.
    OnDisk(Box<OnDisk>),
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
    /// Finds the process that a client means.
    pub(crate) async fn look_up(self: &std::sync::Arc<Self>, id: &str) -> Result<LookedUp> {
        let refusal = match self.listed(id) {
            Ok(found) => {
                if let LookedUp::Remembered(pid) = found
                    && let Some(uuid) = self.uuid_of(pid)
                {
                    // The table remembers an end for a while; whether its history is still there is the disk's to say.
                    self.is_here(uuid).await?;
                }
                return Ok(found);
            }
            Err(refusal @ Refusal::NotFound { .. }) => refusal,
            Err(refusal) => return Err(refusal.into()),
        };
        let text = id.to_owned();
        match self.on_disk(move |data| search(data, &text)).await?? {
            Search::Found(found) => self.present(found).await,
            Search::Collected(uuid) => Err(collected(uuid)),
            Search::Ambiguous(found) => {
                let list: Vec<String> = found.iter().map(Uuid::to_string).collect();
                Err(Error::new(ErrorCode::Invalid, format!("`{id}` could be any of: {}", list.join(", "))))
            }
            Search::Nothing if Uuid::try_parse(id).is_ok() => {
                let message = format!("process {id} never existed");
                Err(Error::new(ErrorCode::NotFound, message).with_hint("relive ps -a"))
            }
            Search::Nothing => Err(refusal.into()),
        }
    }

    fn listed(&self, id: &str) -> Result<LookedUp, Refusal> {
        let state = self.lock();
        let pid = state.table.look_up(Caller::Person, id)?;
        Ok(match (state.table.machine(pid), state.table.view(pid, self.now())) {
            (Some(machine), Some(view)) if machine.end().is_none() => {
                LookedUp::Living { process: ProcessRef { of: machine.incarnation(), uuid: view.uuid }, note: None }
            }
            _ => LookedUp::Remembered(pid),
        })
    }

    /// A PID that was interrupted stands for the process as it is now.
    async fn present(self: &std::sync::Arc<Self>, found: Box<OnDisk>) -> Result<LookedUp> {
        if found.end.is_some() {
            return Ok(LookedUp::OnDisk(found));
        }
        let uuid = found.info.uuid;
        let continues = |now: Pid| (now != found.pid).then(|| format!("PID {} continues as {now}", found.pid));
        if self.living(uuid).is_none() {
            // It may be being resumed just now: it is on the disk first, and in the table when the turn is over.
            drop(self.turn(uuid, Lane::Verb).await?);
        }
        if let Some(process) = self.living(uuid) {
            return Ok(LookedUp::Living { process, note: continues(process.of.pid) });
        }
        let last = self.on_disk(move |data| incarnation(data, uuid, None)).await??;
        let Search::Found(last) = last else { return Err(collected(uuid)) };
        let note = continues(last.pid);
        Ok(LookedUp::OnDisk(Box::new(OnDisk { note, ..*last })))
    }

    /// Refuses a process that was collected.
    pub(crate) async fn is_here(&self, uuid: Uuid) -> Result<()> {
        match self.on_disk(move |data| data.known(uuid)).await?? {
            Known::Here(_) | Known::Never => Ok(()),
            Known::Collected(_) => Err(collected(uuid)),
        }
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

fn search(data: &DataDirectory, id: &str) -> std::io::Result<Search> {
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
            matching.truncate(CANDIDATES_MAX);
            Ok(Search::Ambiguous(matching))
        }
    }
}

/// Returns the processes whose UUID begins like this.
fn begin_with(data: &DataDirectory, id: &str) -> std::io::Result<Vec<Uuid>> {
    let hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if id.len() < PREFIX_MIN || !id.bytes().all(hex) {
        return Ok(Vec::new());
    }
    let prefix = id.to_ascii_lowercase();
    let mut matching = data.uuids()?;
    matching.retain(|uuid| uuid.to_string().starts_with(&prefix));
    Ok(matching)
}

/// Returns the last process that had the name. Those that have not ended are in the table. Every journal is looked at,
/// so this is tried last.
fn named(data: &DataDirectory, name: &str) -> std::io::Result<Search> {
    let namesakes = snapshots(data, |_| true)?.into_iter().filter(|info| info.name.as_deref() == Some(name));
    match namesakes.max_by_key(|info| info.pids.last().copied()) {
        Some(last) => incarnation(data, last.uuid, None),
        None => Ok(Search::Nothing),
    }
}

/// Returns the last incarnation of a process, or the one with this PID.
fn incarnation(data: &DataDirectory, uuid: Uuid, pid: Option<Pid>) -> std::io::Result<Search> {
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
        let pid = pid.unwrap_or(Pid::RUNTIME);
        return Ok(Search::Found(Box::new(OnDisk { info, pid, end: None, successor: None, note: None })));
    };
    let found = &incarnations[place];
    let successor = incarnations.get(place + 1).map(|next| next.pid);
    let end = found.ended.as_ref().map(|(_, end)| end.clone());
    Ok(Search::Found(Box::new(OnDisk { info, pid: found.pid, end, successor, note: None })))
}

/// Reads the snapshots of processes. One that cannot be read is reported by whoever asks for it by name.
pub(crate) fn snapshots(data: &DataDirectory, wanted: impl Fn(&Uuid) -> bool) -> std::io::Result<Vec<ProcInfo>> {
    let uuids = data.uuids()?.into_iter().filter(wanted);
    Ok(uuids.filter_map(|uuid| ProcInfo::read(&data.directory(uuid)).ok().flatten()).collect())
}

impl Runtime {
    /// The process that was found, whether it lives or not, and what is to be said about its name.
    pub(crate) fn identity_of(&self, found: &LookedUp) -> Result<(Uuid, Option<String>)> {
        match found {
            LookedUp::Living { process, note } => Ok((process.uuid, note.clone())),
            LookedUp::Remembered(pid) => {
                let gone = || Error::new(ErrorCode::NotFound, format!("no process `{pid}`"));
                Ok((self.uuid_of(*pid).ok_or_else(gone)?, None))
            }
            LookedUp::OnDisk(found) => Ok((found.info.uuid, found.note.clone())),
        }
    }
}
