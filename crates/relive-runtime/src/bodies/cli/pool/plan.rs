//! Which CLI agents of a full pool start and which are ended for them: pure.

use relive_core::{Timestamp, Uuid};

/// How many agents may run. Zero means that there is no such limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PoolLimits {
    pub(super) max_running: usize,
    pub(super) max_memory: u64,
}

/// An agent that takes up room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Occupant {
    pub(super) uuid: Uuid,
    pub(super) memory: u64,
    /// Since when it has had nothing to do, if it can be ended for that.
    pub(super) idle_since: Option<Timestamp>,
    /// Whether it was told to end, to make room.
    pub(super) is_leaving: bool,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    /// How many of those that wait may start, the first ones.
    pub(super) start: usize,
    /// The idle agents that make room for the others, the longest idle first.
    pub(super) evict: Vec<Uuid>,
}

/// Returns what follows for `waiting` agents. What they will need is not known, so with a limit of memory one starts at a time;
/// an agent alone may use more than the limit, or it could never run.
pub(super) fn plan(limits: PoolLimits, occupants: &[Occupant], waiting: usize) -> Plan {
    if waiting == 0 {
        return Plan::default();
    }
    let room = match limits.max_running {
        0 => waiting,
        max => max.saturating_sub(occupants.len()).min(waiting),
    };
    let used: u64 = occupants.iter().map(|occupant| occupant.memory).sum();
    let has_memory = limits.max_memory == 0 || used < limits.max_memory || occupants.is_empty();
    let start = match (has_memory, limits.max_memory) {
        (false, _) => 0,
        (true, 0) => room,
        (true, _) => room.min(1),
    };
    let leaving = occupants.iter().filter(|occupant| occupant.is_leaving).count();
    let for_number = match limits.max_running {
        0 => 0,
        max => (occupants.len() + waiting).saturating_sub(max).min(waiting),
    };
    // How much an agent frees shows only when it has gone.
    let for_memory = usize::from(!has_memory);
    let wanted = for_number.max(for_memory).saturating_sub(leaving);
    let mut idle: Vec<(Timestamp, Uuid)> = occupants
        .iter()
        .filter(|occupant| !occupant.is_leaving)
        .filter_map(|occupant| Some((occupant.idle_since?, occupant.uuid)))
        .collect();
    idle.sort_unstable();
    Plan { start, evict: idle.into_iter().take(wanted).map(|(_, uuid)| uuid).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn occupant(number: u64, idle_since: Option<i64>, memory: u64) -> Occupant {
        let idle_since = idle_since.map(|second| Timestamp::from_second(second).unwrap());
        Occupant { uuid: Uuid::from_u128(number.into()), memory, idle_since, is_leaving: false }
    }

    /// Idle since these seconds; 0: at work.
    fn check(limits: (usize, u64), idle_since: &[i64], waiting: usize, start: usize, evict: &[u128]) {
        let limits = PoolLimits { max_running: limits.0, max_memory: limits.1 };
        let occupants: Vec<Occupant> = (1..)
            .zip(idle_since)
            .map(|(number, since)| occupant(number, Some(*since).filter(|since| *since > 0), 10))
            .collect();
        let evict = evict.iter().copied().map(Uuid::from_u128).collect();
        assert_eq!(plan(limits, &occupants, waiting), Plan { start, evict }, "{limits:?} {idle_since:?} {waiting}");
    }

    #[test]
    fn the_longest_idle_make_room_for_those_that_wait() {
        //    limits    idle since   waiting  start  evicted
        check((2, 0), &[], 3, 2, &[]);
        check((2, 0), &[0], 1, 1, &[]);
        check((2, 0), &[0, 0], 1, 0, &[]);
        check((2, 0), &[9, 5], 0, 0, &[]);
        check((2, 0), &[9, 5], 1, 0, &[2]);
        check((2, 0), &[9, 5], 2, 0, &[2, 1]);
        check((2, 0), &[0, 5], 2, 0, &[2]);
        check((3, 0), &[9, 5], 2, 1, &[2]);
        // The limit was lowered.
        check((1, 0), &[9, 5, 7], 1, 0, &[2]);
        // No limit.
        check((0, 0), &[9, 5, 7], 2, 2, &[]);
        // Memory: one at a time, and one always.
        check((0, 30), &[0, 0], 2, 1, &[]);
        check((0, 20), &[9, 5], 2, 0, &[2]);
        check((0, 5), &[], 2, 1, &[]);
        check((0, 5), &[0], 2, 0, &[]);
    }

    #[test]
    fn an_agent_that_is_leaving_makes_room_for_one() {
        let limits = PoolLimits { max_running: 2, max_memory: 0 };
        let leaving = Occupant { is_leaving: true, ..occupant(1, Some(1), 0) };
        let idle = occupant(2, Some(9), 0);
        assert_eq!(plan(limits, &[leaving, idle], 1), Plan::default());
        assert_eq!(plan(limits, &[leaving, idle], 2).evict, [idle.uuid]);
    }

    fn occupants() -> impl Strategy<Value = Vec<Occupant>> {
        let one = (proptest::option::of(0_i64..20), 0_u64..40, any::<bool>());
        proptest::collection::vec(one, 0..12).prop_map(|all| {
            let numbered = (1_u64..).zip(all);
            let occupant = |(number, (idle, memory, is_leaving)): (u64, (Option<i64>, u64, bool))| Occupant {
                is_leaving,
                ..occupant(number, idle, memory)
            };
            numbered.map(occupant).collect()
        })
    }

    proptest! {
        #[test]
        fn limits_hold_and_nobody_at_work_is_ended(
            occupants in occupants(),
            waiting in 0_usize..8,
            max_running in 0_usize..8,
            max_memory in 0_u64..200,
        ) {
            let plan = plan(PoolLimits { max_running, max_memory }, &occupants, waiting);
            prop_assert!(plan.start <= waiting);
            prop_assert!(plan.start == 0 || max_running == 0 || occupants.len() + plan.start <= max_running);
            let used: u64 = occupants.iter().map(|occupant| occupant.memory).sum();
            prop_assert!(plan.start == 0 || max_memory == 0 || used < max_memory || occupants.is_empty());
            let evicted = |occupant: &&Occupant| plan.evict.contains(&occupant.uuid);
            prop_assert!(occupants.iter().filter(evicted).all(|it| it.idle_since.is_some() && !it.is_leaving));
            let last = occupants.iter().filter(evicted).filter_map(|it| it.idle_since).max();
            let kept = occupants.iter().filter(|it| !evicted(it) && !it.is_leaving).filter_map(|it| it.idle_since);
            prop_assert!(kept.min().is_none_or(|kept| last.is_none_or(|last| last <= kept)));
            let leaving = occupants.iter().filter(|it| it.is_leaving).count();
            prop_assert!(plan.evict.is_empty() || plan.evict.len() + leaving <= waiting.max(1));
            // Whoever waits is served, or all are at work, or enough are leaving.
            let idle = occupants.iter().any(|it| it.idle_since.is_some() && !it.is_leaving);
            prop_assert!(waiting == 0 || plan.start > 0 || !plan.evict.is_empty() || !idle || leaving > 0);
        }
    }
}
