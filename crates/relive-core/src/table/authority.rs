//! Who may name whom, and do what.
//!
//! A process may name itself, what is below it and what it was handed; the person who owns the daemon may name all.
//! Whatever a caller may not name does not exist for it: the refusal is the same. Only a running process has any
//! authority. Handles are also what keeps a completion record beyond its time.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Pid;
use crate::refusal::Refusal;
use crate::table::{Found, Table};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// The person who owns the daemon: Owner of all.
    Person,
    /// A process.
    Process(Pid),
}

/// What a handle allows. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rights {
    /// Wait, status, events.
    Observer,
    /// Signal, pause, resume.
    Controller,
    /// Everything, and handing it on.
    Owner,
}

/// Names a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Handle {
    holder: Caller,
    target: Pid,
    rights: Rights,
}

/// Every handle, by id, by holder and by target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Handles {
    by_id: BTreeMap<HandleId, Handle>,
    by_holder: BTreeSet<(Caller, Pid, HandleId)>,
    targets: BTreeMap<Pid, u32>,
    last: u64,
}

impl Handles {
    fn add(&mut self, handle: Handle) -> HandleId {
        self.last += 1;
        let id = HandleId(self.last);
        self.by_id.insert(id, handle);
        self.by_holder.insert((handle.holder, handle.target, id));
        *self.targets.entry(handle.target).or_default() += 1;
        id
    }

    /// The target, where that was the last handle to it.
    fn remove(&mut self, id: HandleId) -> Option<Pid> {
        let handle = self.by_id.remove(&id)?;
        self.by_holder.remove(&(handle.holder, handle.target, id));
        let count = self.targets.get_mut(&handle.target)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.targets.remove(&handle.target);
        Some(handle.target)
    }

    fn of_holder(&self, holder: Caller) -> impl Iterator<Item = (Pid, HandleId)> {
        let all = (holder, Pid(0), HandleId(0))..=(holder, Pid(u32::MAX), HandleId(u64::MAX));
        self.by_holder.range(all).map(|(_, target, id)| (*target, *id))
    }

    fn rights(&self, holder: Caller, target: Pid) -> Option<Rights> {
        let to_target = (holder, target, HandleId(0))..=(holder, target, HandleId(u64::MAX));
        self.by_holder.range(to_target).filter_map(|(.., id)| Some(self.by_id.get(id)?.rights)).max()
    }

    pub(super) fn has_target(&self, target: Pid) -> bool {
        self.targets.contains_key(&target)
    }
}

impl Table {
    /// What the caller may do to the process; none where it may not even name it, or there is none.
    #[must_use]
    pub fn rights(&self, caller: Caller, target: Pid) -> Option<Rights> {
        self.find(target).ok()?;
        match caller {
            Caller::Person => Some(Rights::Owner),
            Caller::Process(pid) => {
                let slot = self.by_pid.get(&pid)?;
                self.arena[*slot].machine.running()?;
                if self.is_at_or_below(target, pid) { Some(Rights::Owner) } else { self.handles.rights(caller, target) }
            }
        }
    }

    /// May the caller do what needs these rights? What it may not name is not found.
    pub fn authorize(&self, caller: Caller, target: Pid, needed: Rights) -> Result<(), Refusal> {
        match self.rights(caller, target) {
            None => Err(Refusal::unknown(target)),
            Some(rights) if rights < needed => Err(Refusal::Forbidden { pid: target }),
            Some(_) => Ok(()),
        }
    }

    /// A handle of the caller's own, which keeps the completion record too.
    pub fn open(&mut self, caller: Caller, target: Pid, rights: Rights) -> Result<HandleId, Refusal> {
        self.authorize(caller, target, rights)?;
        Ok(self.add_handle(Handle { holder: caller, target, rights }))
    }

    /// An Owner hands a handle to a running process that it may name.
    pub fn hand(&mut self, caller: Caller, to: Pid, target: Pid, rights: Rights) -> Result<HandleId, Refusal> {
        self.authorize(caller, target, Rights::Owner)?;
        self.authorize(caller, to, Rights::Observer)?;
        match self.find(to)? {
            Found::Living(slot) if self.arena[slot].machine.running().is_some() => {}
            Found::Living(_) | Found::Ended(_) => return Err(Refusal::NotRunning { pid: to }),
        }
        Ok(self.add_handle(Handle { holder: Caller::Process(to), target, rights }))
    }

    /// Close a handle. Closing it again changes nothing.
    pub fn close(&mut self, id: HandleId) {
        if let Some(target) = self.handles.remove(id)
            && let Some(record) = self.records.get(&target)
        {
            self.expiring.insert((record.keep_until_ms, target));
        }
    }

    pub(super) fn close_all(&mut self, holder: Caller) {
        let ids: Vec<_> = self.handles.of_holder(holder).map(|(_, id)| id).collect();
        for id in ids {
            self.close(id);
        }
    }

    /// What the caller was handed or has opened.
    pub(super) fn held(&self, holder: Caller) -> impl Iterator<Item = Pid> {
        self.handles.of_holder(holder).map(|(target, _)| target)
    }

    fn add_handle(&mut self, handle: Handle) -> HandleId {
        if let Some(record) = self.records.get(&handle.target) {
            self.expiring.remove(&(record.keep_until_ms, handle.target));
        }
        self.handles.add(handle)
    }

    /// Through the parents, also those that have ended.
    fn is_at_or_below(&self, target: Pid, root: Pid) -> bool {
        std::iter::successors(Some(target), |pid| self.parent(*pid)).any(|pid| pid == root)
    }
}
