//! Looks up a process from what a person typed.
//!
//! Digits are always a PID. Otherwise a name, a UUID, the unique beginning or end of one, or the beginning of a shown id.
//! Among namesakes the living are meant; if none lives, the one that came last. Only what the caller may name takes part:
//! not in the answer, not among the candidates and not in a suggestion is there anything else.

use std::collections::BTreeMap;
use std::iter::successors;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use relive_types::short_id::{self, ShownPart};
use relive_types::suggest::closest;

use crate::ids::{Pid, Uuid};
use crate::refusal::Refusal;
use crate::table::authority::Holder;
use crate::table::{Table, end_of};

/// How many candidates an ambiguous name lists.
const MAX_CANDIDATES: usize = 5;

/// How many names before and after an unknown one, in sorted order, are compared with it.
const NEIGHBOURS_MAX: usize = 32;

/// How many living processes are compared with an unknown name.
const LIVING_MAX: usize = 256;

impl Table {
    /// Returns the process that `text` names.
    pub fn look_up(&self, caller: Holder, text: &str) -> Result<Pid, Refusal> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let pid = text.parse().ok().map(Pid).filter(|pid| self.rights(caller, *pid).is_some());
            return pid.ok_or_else(|| Refusal::unknown(text));
        }
        if let Some(pid) = self.resolve_name(caller, text)? {
            return Ok(pid);
        }
        if let Some(pid) = self.resolve_uuid(caller, text)? {
            return Ok(pid);
        }
        Err(Refusal::NotFound { what: text.into(), suggestion: self.suggest(caller, text) })
    }

    fn resolve_name(&self, caller: Holder, name: &str) -> Result<Option<Pid>, Refusal> {
        let key: Arc<str> = name.into();
        let namesakes = self.by_name.range((key.clone(), Pid(0))..=(key, Pid(u32::MAX))).map(|(_, pid)| *pid);
        let namesakes: Vec<_> = namesakes.filter(|pid| self.rights(caller, *pid).is_some()).collect();
        let is_living = |pid: &&Pid| self.by_pid.get(*pid).is_some_and(|slot| self.arena[*slot].is_living());
        let living: Vec<_> = namesakes.iter().filter(is_living).collect();
        match living[..] {
            [] => Ok(namesakes.last().copied()),
            [pid] => Ok(Some(*pid)),
            [..] => Err(ambiguous(name, living.iter().map(|pid| format!("PID {pid}")))),
        }
    }

    /// Tells whether a process has this name, living or remembered.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let key: Arc<str> = name.into();
        self.by_name.range((key.clone(), Pid(0))..=(key, Pid(u32::MAX))).next().is_some()
    }

    /// Returns the living process that has this name, other than `but`: the first, where earlier versions let several
    /// have it.
    #[must_use]
    pub fn living_named(&self, name: &str, but: Uuid) -> Option<Pid> {
        let key: Arc<str> = name.into();
        let namesakes = self.by_name.range((key.clone(), Pid(0))..=(key, Pid(u32::MAX))).map(|(_, pid)| *pid);
        let is_living = |pid: &Pid| {
            self.by_pid.get(pid).is_some_and(|slot| {
                let entry = &self.arena[*slot];
                entry.is_living() && entry.facts.uuid != but
            })
        };
        namesakes.into_iter().find(is_living)
    }

    fn resolve_uuid(&self, caller: Holder, text: &str) -> Result<Option<Pid>, Refusal> {
        if let Ok(uuid) = Uuid::try_parse(text) {
            return Ok(self.current_pid(uuid).filter(|pid| self.rights(caller, *pid).is_some()));
        }
        let found = self.by_uuid_part(caller, text);
        match found[..] {
            [] => Ok(None),
            [(_, pid)] => Ok(Some(pid)),
            [..] => Err(ambiguous(text, found.iter().map(|(uuid, pid)| format!("{uuid} (PID {pid})")))),
        }
    }

    /// Returns the processes whose UUID begins or ends like this, or whose shown id begins like this, each with its current
    /// PID: all of them, or one more than an ambiguous id lists.
    #[must_use]
    pub fn by_uuid_part(&self, caller: Holder, text: &str) -> Vec<(Uuid, Pid)> {
        if !short_id::is_part(text) {
            return Vec::new();
        }
        let mut found: BTreeMap<Uuid, Pid> = BTreeMap::new();
        if let Some((first, last)) = short_id::digits_of_prefix(text).as_deref().and_then(short_id::range) {
            let known = self.by_uuid.range((first, Pid(0))..=(last, Pid(u32::MAX)));
            self.take_nameable(caller, known.map(|(uuid, pid)| (*uuid, *pid)), &mut found);
        }
        if let Some((first, last)) = short_id::digits_of_suffix(text).as_deref().and_then(short_id::range) {
            let known = self.by_end.range((end_of(first), Pid(0))..=(end_of(last), Pid(u32::MAX)));
            let known = known.filter_map(|(_, pid)| Some((self.facts(*pid)?.uuid, *pid)));
            let known = known.filter(|(uuid, _)| (first..=last).contains(&short_id::backwards(*uuid)));
            self.take_nameable(caller, known, &mut found);
        }
        if let Some(part) = ShownPart::of(text) {
            let known = self.by_uuid.iter().filter(|(uuid, _)| part.begins(*uuid));
            self.take_nameable(caller, known.map(|(uuid, pid)| (*uuid, *pid)), &mut found);
        }
        found.into_iter().collect()
    }

    /// Takes in those that the caller may name, up to one more than an ambiguous id lists.
    fn take_nameable(&self, caller: Holder, known: impl Iterator<Item = (Uuid, Pid)>, found: &mut BTreeMap<Uuid, Pid>) {
        let before = found.len();
        for (uuid, pid) in known.filter(|(_, pid)| self.rights(caller, *pid).is_some()) {
            let current = found.entry(uuid).or_insert(pid);
            *current = pid.max(*current);
            if found.len() > before + MAX_CANDIDATES {
                return;
            }
        }
    }

    fn suggest(&self, caller: Holder, text: &str) -> Option<String> {
        let closest = match caller {
            // A mistyped name usually begins correctly, or means a living process. Comparing with every name would be
            // too slow: the names of ended processes are remembered for a while.
            Holder::Person => {
                let newest = self.by_pid.values().rev().take(LIVING_MAX);
                let living = newest.filter_map(|slot| self.arena[*slot].facts.name.as_deref());
                closest(text, self.neighbours(text).chain(living))
            }
            Holder::Process(pid) => {
                let slot = self.by_pid.get(&pid).filter(|slot| self.arena[**slot].machine.running().is_some())?;
                let below = self.arena.walk(*slot).into_iter().map(|slot| &self.arena[slot].facts);
                let held = self.held(caller).filter_map(|target| self.facts(target));
                closest(text, below.chain(held).take(LIVING_MAX).filter_map(|facts| facts.name.as_deref()))
            }
        };
        closest.map(Into::into)
    }

    /// Returns the names around `text` in sorted order, each once even if several processes share it.
    fn neighbours(&self, text: &str) -> impl Iterator<Item = &str> {
        let after = |name: Arc<str>| self.by_name.range((Excluded((name, Pid(u32::MAX))), Unbounded)).next();
        let before = |name: Arc<str>| self.by_name.range(..(name, Pid(0))).next_back();
        let following = successors(after(text.into()), move |(name, _)| after(name.clone())).take(NEIGHBOURS_MAX);
        let preceding = successors(before(text.into()), move |(name, _)| before(name.clone())).take(NEIGHBOURS_MAX);
        following.chain(preceding).map(|(name, _)| &**name)
    }
}

fn ambiguous(what: &str, candidates: impl ExactSizeIterator<Item = String>) -> Refusal {
    let more = candidates.len() > MAX_CANDIDATES;
    let mut candidates: Vec<_> = candidates.take(MAX_CANDIDATES).collect();
    if more {
        candidates.push("...".into());
    }
    Refusal::Ambiguous { what: what.into(), candidates }
}
