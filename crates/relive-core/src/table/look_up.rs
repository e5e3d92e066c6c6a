//! From what a person types to a PID.
//!
//! Digits are always a PID. Otherwise a name, a UUID, or the unique beginning of one. Among namesakes the living are
//! meant; if none lives, the one that came last. Only what the caller may name takes part: not in the answer, not
//! among the candidates and not in a suggestion is there anything else.

use std::iter::successors;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use relive_types::suggest::closest;

use crate::ids::{Pid, Uuid};
use crate::refusal::Refusal;
use crate::table::Table;
use crate::table::authority::Caller;

/// The shortest beginning of a UUID that is looked up.
pub const MIN_UUID_PREFIX: usize = 4;

/// How many candidates an ambiguous name lists.
const MAX_CANDIDATES: usize = 5;

/// How many names on either side of an unknown one, in their order, are compared with it.
const NEIGHBOURS_MAX: usize = 32;

/// How many living processes are compared with an unknown name.
const LIVING_MAX: usize = 256;

impl Table {
    /// The process that is meant.
    pub fn look_up(&self, caller: Caller, text: &str) -> Result<Pid, Refusal> {
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

    fn resolve_name(&self, caller: Caller, name: &str) -> Result<Option<Pid>, Refusal> {
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

    fn resolve_uuid(&self, caller: Caller, text: &str) -> Result<Option<Pid>, Refusal> {
        let Some((first, last)) = uuid_range(text) else { return Ok(None) };
        let mut found: Vec<(Uuid, Pid)> = Vec::new();
        for (uuid, pid) in self.by_uuid.range((first, Pid(0))..=(last, Pid(u32::MAX))) {
            if self.rights(caller, *pid).is_none() {
                continue;
            }
            match found.last_mut() {
                Some(before) if before.0 == *uuid => before.1 = *pid,
                Some(_) | None => found.push((*uuid, *pid)),
            }
            if found.len() > MAX_CANDIDATES {
                break;
            }
        }
        match found[..] {
            [] => Ok(None),
            [(_, pid)] => Ok(Some(pid)),
            [..] => Err(ambiguous(text, found.iter().map(|(uuid, pid)| format!("{uuid} (PID {pid})")))),
        }
    }

    fn suggest(&self, caller: Caller, text: &str) -> Option<String> {
        let closest = match caller {
            // Whoever types a name wrong usually has its beginning right, or means one that lives. All names there
            // are would be too many: those of processes that ended are remembered for a while.
            Caller::Person => {
                let newest = self.by_pid.values().rev().take(LIVING_MAX);
                let living = newest.filter_map(|slot| self.arena[*slot].facts.name.as_deref());
                closest(text, self.neighbours(text).chain(living))
            }
            Caller::Process(pid) => {
                let slot = self.by_pid.get(&pid).filter(|slot| self.arena[**slot].machine.running().is_some())?;
                let below = self.arena.walk(*slot).into_iter().map(|slot| &self.arena[slot].facts);
                let held = self.held(caller).filter_map(|target| self.facts(target));
                closest(text, below.chain(held).take(LIVING_MAX).filter_map(|facts| facts.name.as_deref()))
            }
        };
        closest.map(Into::into)
    }

    /// Returns the names around a place in their order, each once however many have it.
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

/// The first and the last UUID that begin like this, written as UUIDs are.
fn uuid_range(text: &str) -> Option<(Uuid, Uuid)> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    if text.len() < MIN_UUID_PREFIX || text.len() > 36 {
        return None;
    }
    let is_uuid = |(at, byte): (usize, u8)| if DASHES.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    if !text.bytes().enumerate().all(is_uuid) {
        return None;
    }
    let filled = |digit: char| {
        let rest = (text.len()..36).map(|at| if DASHES.contains(&at) { '-' } else { digit });
        Uuid::try_parse(&text.chars().chain(rest).collect::<String>()).ok()
    };
    Some((filled('0')?, filled('f')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_like_a_uuid_is_the_beginning_of_one() {
        for bad in ["", "abc", "wxyz", "0198f3c1f", "0198-f3c1", "../..", "0198f3c1-aaaa-7000-8000-000000000000f"] {
            assert_eq!(uuid_range(bad), None, "{bad}");
        }
        let (first, last) = uuid_range("0198F3c1-a").unwrap();
        assert_eq!(first.to_string(), "0198f3c1-a000-0000-0000-000000000000");
        assert_eq!(last.to_string(), "0198f3c1-afff-ffff-ffff-ffffffffffff");
        let (first, last) = uuid_range("0198f3c1-aaaa-7000-8000-00000000000f").unwrap();
        assert_eq!(first, last);
    }
}
