//! Authority: which processes a caller may name, and what it may do to them.
//!
//! A process may name itself, its descendants and the targets of its handles; the person who owns the daemon may name
//! every process. A process that the caller may not name is refused exactly like one that does not exist. Only a
//! running process has any authority. A handle also keeps the completion record of its target beyond the retention
//! time.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::arena::Slot;
use crate::ids::{Pid, Uuid};
use crate::refusal::Refusal;
use crate::table::{Found, Table, all_of};

/// How many handles a process may hold. The completion record of a child beyond that is kept for the retention time.
const HANDLES_MAX: usize = 1024;

/// A holder of handles, and so whoever asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// The person who owns the daemon, with the rights of an Owner of every process.
    Person,
    Process(Pid),
}

/// The rights of a handle. Each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rights {
    /// May wait, and read status and events.
    Observer,
    /// May also signal, pause and resume.
    Controller,
    /// May do everything, and hand handles to others.
    Owner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Handle {
    holder: Holder,
    target: Pid,
    rights: Rights,
}

/// Every handle, by id, by holder and by target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Handles {
    by_id: BTreeMap<HandleId, Handle>,
    by_holder: BTreeSet<(Holder, Pid, HandleId)>,
    targets: BTreeMap<Pid, BTreeSet<HandleId>>,
    last: u64,
}

impl Handles {
    /// Adds a handle. A process has one to another process: a second one raises its rights.
    fn add(&mut self, handle: Handle) -> HandleId {
        let known = self.to_target(handle.holder, handle.target).next().map(|(.., id)| *id);
        if let (Holder::Process(_), Some(id)) = (handle.holder, known)
            && let Some(held) = self.by_id.get_mut(&id)
        {
            held.rights = held.rights.max(handle.rights);
            return id;
        }
        self.last += 1;
        let id = HandleId(self.last);
        self.by_id.insert(id, handle);
        self.by_holder.insert((handle.holder, handle.target, id));
        self.targets.entry(handle.target).or_default().insert(id);
        id
    }

    /// Returns the handles to a process.
    fn of_target(&self, target: Pid) -> Vec<Handle> {
        let ids = self.targets.get(&target).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id).copied()).collect()
    }

    /// Removes a handle and returns its target if this was the last handle to it.
    fn remove(&mut self, id: HandleId) -> Option<Pid> {
        let handle = self.by_id.remove(&id)?;
        self.by_holder.remove(&(handle.holder, handle.target, id));
        let others = self.targets.get_mut(&handle.target)?;
        others.remove(&id);
        if !others.is_empty() {
            return None;
        }
        self.targets.remove(&handle.target);
        Some(handle.target)
    }

    /// Makes the handles to an incarnation handles to another one, and returns whether there are any.
    fn retarget(&mut self, from: Pid, to: Pid) -> bool {
        let Some(ids) = self.targets.remove(&from) else { return false };
        for id in &ids {
            if let Some(handle) = self.by_id.get_mut(id) {
                self.by_holder.remove(&(handle.holder, from, *id));
                self.by_holder.insert((handle.holder, to, *id));
                handle.target = to;
            }
        }
        self.targets.entry(to).or_default().extend(ids);
        true
    }

    fn of_holder(&self, holder: Holder) -> impl Iterator<Item = (Pid, HandleId)> {
        let all = (holder, Pid(0), HandleId(0))..=(holder, Pid(u32::MAX), HandleId(u64::MAX));
        self.by_holder.range(all).map(|(_, target, id)| (*target, *id))
    }

    fn to_target(&self, holder: Holder, target: Pid) -> impl Iterator<Item = &(Holder, Pid, HandleId)> {
        self.by_holder.range((holder, target, HandleId(0))..=(holder, target, HandleId(u64::MAX)))
    }

    fn rights(&self, holder: Holder, target: Pid) -> Option<Rights> {
        self.to_target(holder, target).filter_map(|(.., id)| Some(self.by_id.get(id)?.rights)).max()
    }

    pub(super) fn has_target(&self, target: Pid) -> bool {
        self.targets.contains_key(&target)
    }
}

impl Table {
    /// Returns the caller's rights to a process; none if it may not name the process or there is no such process.
    #[must_use]
    pub fn rights(&self, caller: Holder, target: Pid) -> Option<Rights> {
        self.find(target).ok()?;
        match caller {
            Holder::Person => Some(Rights::Owner),
            Holder::Process(pid) => {
                let slot = self.by_pid.get(&pid)?;
                self.arena[*slot].machine.running()?;
                if self.is_at_or_below(target, pid) {
                    return Some(Rights::Owner);
                }
                self.handles.rights(caller, self.held_as(target))
            }
        }
    }

    /// Returns every process that a running process may name: itself, what descends from it, and what it was handed.
    #[must_use]
    pub fn visible(&self, pid: Pid) -> BTreeSet<Pid> {
        let Some(slot) = self.by_pid.get(&pid).filter(|slot| self.arena[**slot].machine.running().is_some()) else {
            return BTreeSet::new();
        };
        let below = self.descendants(self.arena[*slot].facts.uuid).into_iter();
        let below = below.flat_map(|uuid| self.by_uuid.range(all_of(uuid)));
        let held = self.held(Holder::Process(pid)).filter_map(|held| Some(self.facts(held)?.uuid));
        let held = held.flat_map(|uuid| self.by_uuid.range(all_of(uuid)));
        below.chain(held).map(|(_, pid)| *pid).collect()
    }

    /// Notes the parent of an ended process that is not in the table, and from which somebody in the table descends.
    pub fn note_parent(&mut self, uuid: Uuid, parent: Uuid) {
        if self.latest(uuid).is_some() || self.descent.has_children(uuid) {
            self.descent.add(uuid, parent);
        }
    }

    /// Returns the processes that are not in the table, from which somebody in it descends, and whose parent is not
    /// known.
    pub fn unknown_parents(&self) -> impl Iterator<Item = Uuid> {
        self.descent.roots().into_iter().filter(|uuid| self.latest(*uuid).is_none())
    }

    /// Checks that the caller has these rights. A process that it may not name is not found.
    pub fn authorize(&self, caller: Holder, target: Pid, needed: Rights) -> Result<(), Refusal> {
        match self.rights(caller, target) {
            None => Err(Refusal::unknown(target)),
            Some(rights) if rights < needed => Err(Refusal::Forbidden { pid: target }),
            Some(_) => Ok(()),
        }
    }

    /// Opens a handle for the caller itself, which also keeps the completion record.
    pub fn open(&mut self, caller: Holder, target: Pid, rights: Rights) -> Result<HandleId, Refusal> {
        self.authorize(caller, target, rights)?;
        let target = self.held_as(target);
        self.check_room(caller, target)?;
        Ok(self.add_handle(Handle { holder: caller, target, rights }))
    }

    /// Checks that an Owner may hand a handle to a process that it may name, and that has not ended.
    pub fn check_hand(&self, giver: Holder, to: Pid, target: Pid) -> Result<(), Refusal> {
        self.authorize(giver, target, Rights::Owner)?;
        self.authorize(giver, to, Rights::Observer)?;
        match self.find(to)? {
            Found::Living(slot) if self.arena[slot].machine.end().is_none() => {
                self.check_room(Holder::Process(to), self.held_as(target))
            }
            Found::Living(_) | Found::Ended(_) => Err(Refusal::NotRunning { pid: to }),
        }
    }

    /// Gives a process a handle that its journal names. It may not be running yet.
    pub fn restore_handle(&mut self, holder: Pid, target: Pid, rights: Rights) {
        let there = self.by_pid.contains_key(&holder) && self.find(target).is_ok();
        let (holder, target) = (Holder::Process(holder), self.held_as(target));
        if there && self.check_room(holder, target).is_ok() {
            self.add_handle(Handle { holder, target, rights });
        }
    }

    /// Closes every handle of a process to another one, and returns the rights that they gave.
    pub fn release_handles(&mut self, holder: Pid, target: Pid) -> Option<Rights> {
        let (holder, target) = (Holder::Process(holder), self.held_as(target));
        let rights = self.handles.rights(holder, target);
        let ids: Vec<_> =
            self.handles.of_holder(holder).filter(|(held, _)| *held == target).map(|(_, id)| id).collect();
        for id in ids {
            self.close(id);
        }
        rights
    }

    /// Returns the handles of a process: their targets, each with the rights to it.
    #[must_use]
    pub fn handles_of(&self, holder: Pid) -> BTreeMap<Pid, Rights> {
        let holder = Holder::Process(holder);
        let held = self.handles.of_holder(holder).map(|(target, _)| target);
        held.filter_map(|target| Some((target, self.handles.rights(holder, target)?))).collect()
    }

    /// Returns the handles to a process, by whichever incarnation of it: each with its holder, its target and its rights.
    #[must_use]
    pub fn holders_of(&self, target: Uuid) -> Vec<(Pid, Pid, Rights)> {
        let pids = self.by_uuid.range(all_of(target)).map(|(_, pid)| *pid);
        let handles = pids.flat_map(|pid| self.handles.of_target(pid));
        let of_processes = handles.filter_map(|handle| match handle.holder {
            Holder::Process(holder) => Some((holder, handle.target, handle.rights)),
            Holder::Person => None,
        });
        of_processes.collect()
    }

    /// Returns whether a process has a handle to another one, by whichever incarnation of it.
    #[must_use]
    pub fn is_held(&self, target: Uuid) -> bool {
        !self.holders_of(target).is_empty()
    }

    /// Moves the handles to an incarnation to the next one: they are to the process. Whoever has one sees the earlier
    /// incarnations by it too, and these are kept for the retention time only.
    pub(super) fn move_handles(&mut self, from: Pid, to: Pid) {
        if self.handles.retarget(from, to)
            && let Some(record) = self.records.get(&from)
        {
            self.expiring.insert((record.keep_until_ms, from));
        }
    }

    /// Returns the incarnation of a process that handles to it name: the last one.
    fn held_as(&self, target: Pid) -> Pid {
        let latest = self.facts(target).and_then(|facts| self.latest(facts.uuid));
        latest.map_or(target, |(pid, _)| pid)
    }

    /// Checks that a process may hold a handle to one more process, unless it has one to this.
    fn check_room(&self, holder: Holder, target: Pid) -> Result<(), Refusal> {
        let is_full = || self.handles.of_holder(holder).count() >= HANDLES_MAX;
        match holder {
            Holder::Process(pid) if self.handles.rights(holder, target).is_none() && is_full() => {
                Err(Refusal::TooManyHandles { pid, max: HANDLES_MAX })
            }
            Holder::Process(_) | Holder::Person => Ok(()),
        }
    }

    /// Closes a handle. Closing it again changes nothing.
    pub fn close(&mut self, id: HandleId) {
        if let Some(target) = self.handles.remove(id)
            && let Some(record) = self.records.get(&target)
        {
            self.expiring.insert((record.keep_until_ms, target));
        }
    }

    pub(super) fn close_all(&mut self, holder: Holder) {
        let ids: Vec<_> = self.handles.of_holder(holder).map(|(_, id)| id).collect();
        for id in ids {
            self.close(id);
        }
    }

    /// Returns the targets of the caller's handles.
    pub(super) fn held(&self, holder: Holder) -> impl Iterator<Item = Pid> {
        self.handles.of_holder(holder).map(|(target, _)| target)
    }

    fn add_handle(&mut self, handle: Handle) -> HandleId {
        if let Some(record) = self.records.get(&handle.target) {
            self.expiring.remove(&(record.keep_until_ms, handle.target));
        }
        self.handles.add(handle)
    }

    fn is_at_or_below(&self, target: Pid, root: Pid) -> bool {
        let (Some(target), Some(root)) = (self.facts(target), self.facts(root)) else { return false };
        // A damaged journal may claim to descend from itself.
        let most = self.by_uuid.len() + self.descent.len() + 1;
        let mut line = std::iter::successors(Some(target.uuid), |uuid| self.spawner(*uuid)).take(most);
        line.any(|uuid| uuid == root.uuid)
    }

    /// Returns the parent of a process, living, ended or forgotten.
    fn spawner(&self, uuid: Uuid) -> Option<Uuid> {
        let slot = self.latest(uuid).and_then(|(pid, _)| self.by_pid.get(&pid));
        let parent = slot.and_then(|slot| self.arena.parent(*slot)).filter(|parent| *parent != Slot::RUNTIME);
        parent.map(|parent| self.arena[parent].facts.uuid).or_else(|| self.descent.parent(uuid))
    }

    /// Returns a process and all that descend from it.
    fn descendants(&self, root: Uuid) -> BTreeSet<Uuid> {
        let (mut found, mut open) = (BTreeSet::from([root]), vec![root]);
        while let Some(uuid) = open.pop() {
            let slot = self.latest(uuid).and_then(|(pid, _)| self.by_pid.get(&pid));
            let children = slot.into_iter().flat_map(|slot| self.arena.children(*slot));
            let children = children.map(|slot| self.arena[slot].facts.uuid).chain(self.descent.children_of(uuid));
            open.extend(children.filter(|child| found.insert(*child)));
        }
        found
    }
}
