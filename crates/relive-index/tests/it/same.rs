//! After any sequence of events, every answer equals that of a full scan.

use proptest::prelude::*;
use relive_core::{Pid, Uuid};
use relive_index::{Cursor, Filter, Freshness, Order};
use relive_journal::JournalState;
use relive_types::short_id::{self, ShownPart};

use crate::scan::{Scan, listings};
use crate::support::{DIRECTORIES, NAMES, World};

/// An event; numbers select among the existing processes.
#[derive(Debug, Clone, Copy)]
enum Act {
    Begin(usize, usize),
    End(usize, i32),
    Resume(usize),
    Pause(usize),
    Alias(usize),
    Collect(usize),
    /// The daemon restarts.
    Reopen,
    /// The daemon restarts and finds no index.
    Delete,
    /// Rows are lost, as by a power cut.
    Lose(usize),
    Refresh,
}

fn act() -> impl Strategy<Value = Act> {
    let any = 0..1_000_usize;
    prop_oneof![
        6 => (0..NAMES.len(), 0..DIRECTORIES.len()).prop_map(|(name, cwd)| Act::Begin(name, cwd)),
        5 => (any.clone(), 0..3).prop_map(|(which, code)| Act::End(which, code)),
        3 => any.clone().prop_map(Act::Resume),
        2 => any.clone().prop_map(Act::Pause),
        1 => any.clone().prop_map(Act::Alias),
        3 => any.clone().prop_map(Act::Collect),
        1 => Just(Act::Reopen),
        1 => Just(Act::Delete),
        1 => any.prop_map(Act::Lose),
        1 => Just(Act::Refresh),
    ]
}

fn pick(uuids: &[Uuid], which: usize) -> Option<Uuid> {
    (!uuids.is_empty()).then(|| uuids[which % uuids.len()])
}

fn perform(world: &mut World, act: Act) {
    let mut uuids = world.data.uuids().unwrap();
    uuids.sort_unstable();
    let is_dead = |uuid: &Uuid| world.data.history(*uuid).unwrap().0.ended().is_some();
    let dead: Vec<Uuid> = uuids.iter().copied().filter(is_dead).collect();
    match act {
        Act::Begin(name, cwd) => drop(world.begin(NAMES[name], DIRECTORIES[cwd])),
        Act::End(which, code) => drop(pick(&uuids, which).map(|uuid| world.end(uuid, code))),
        Act::Resume(which) => drop(pick(&uuids, which).map(|uuid| world.open(uuid))),
        Act::Pause(which) => drop(pick(&uuids, which).map(|uuid| world.pause(uuid))),
        Act::Alias(which) => drop(pick(&uuids, which).map(|uuid| world.alias(uuid))),
        Act::Collect(which) => drop(pick(&dead, which).map(|uuid| world.collect(uuid))),
        Act::Reopen => world.open_index(),
        Act::Delete => {
            world.delete_index();
            assert!(!world.index.is_complete().unwrap(), "an empty index says that it knows everything");
            world.rebuild();
        }
        Act::Lose(which) => {
            let lost = pick(&uuids, which);
            world.delete_index();
            for uuid in uuids.iter().filter(|uuid| Some(**uuid) != lost) {
                world.index.upsert(&relive_index::Row::read(&world.data, *uuid).unwrap().unwrap()).unwrap();
            }
            world.index.refresh(&world.data, || false).unwrap();
        }
        Act::Refresh => {
            let done = world.index.refresh(&world.data, || false).unwrap();
            assert_eq!((done.read, done.removed), (0, 0), "there was nothing to find");
        }
    }
}

/// Returns all pages of a listing, with this many rows each.
fn pages(world: &World, filter: &Filter, order: Order, limit: usize) -> Vec<relive_journal::ProcInfo> {
    let (mut all, mut after): (Vec<_>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = world.index.page(filter, order, after, limit).unwrap();
        assert!(page.rows.len() <= limit);
        all.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// Compares every answer with a full scan.
fn compare(world: &World) {
    let scan = Scan::of(&world.data);
    assert!(world.index.is_complete().unwrap());
    for pid in 0..=world.last_pid().0 + 1 {
        assert_eq!(world.index.by_pid(Pid(pid)).unwrap(), scan.by_pid(Pid(pid)), "PID {pid}");
    }
    for name in NAMES.into_iter().flatten().chain(["", "worker*", "nobody"]) {
        assert_eq!(world.index.by_name(name).unwrap(), scan.by_name(name), "{name}");
    }
    for uuid in scan.uuids().chain([Uuid::nil()]) {
        assert_eq!(world.index.collected(uuid).unwrap(), scan.collected(uuid), "{uuid}");
        let row = world.index.row(uuid).unwrap();
        assert_eq!(row.as_ref(), scan.row(uuid), "{uuid}");
        if let Some(row) = row {
            assert_eq!(Freshness::of(&row.info, &world.data.directory(uuid)).unwrap(), Freshness::Current);
        }
        let text = uuid.to_string();
        for len in [1, 4, 9, 14, 20, 36] {
            let (prefix, suffix) = (&text[..len], &text[text.len() - len..]);
            assert_eq!(world.index.by_prefix(prefix, 1_000).unwrap(), scan.by_prefix(prefix), "{prefix}");
            let mut ending = world.index.by_suffix(suffix, 1_000).unwrap();
            ending.sort_unstable();
            assert_eq!(ending, scan.by_suffix(suffix), "{suffix}");
            let shown = &short_id::short(uuid)[..len.clamp(4, 7)];
            if let Some(part) = ShownPart::of(shown) {
                assert_eq!(world.index.by_shown(&part, 1_000).unwrap(), scan.by_shown(shown), "{shown}");
            }
            let simple = &uuid.simple().to_string()[..len.min(32)].to_ascii_uppercase();
            assert_eq!(world.index.by_prefix(simple, 1_000).unwrap(), scan.by_prefix(simple), "{simple}");
        }
    }
    for (number, (filter, order)) in listings().into_iter().enumerate() {
        let limit = 1 + number % 7;
        assert_eq!(pages(world, &filter, order, limit), scan.page(&filter, order), "{filter:?} {order:?}");
    }
    let dead = Filter { state: Some(relive_index::State::Dead), ..Filter::default() };
    assert!(pages(world, &dead, Order::Pid, 3).iter().all(|info| info.state == JournalState::Dead));
}

/// Returns the usual number of cases, or the number that a soak test asks for.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|number| number.parse().ok());
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(asked.unwrap_or(usual)) }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn every_answer_equals_a_full_scan(acts in prop::collection::vec(act(), 1..40), check_at in 0..40_usize) {
        let mut world = World::new();
        for (place, act) in acts.into_iter().enumerate() {
            perform(&mut world, act);
            if place == check_at {
                compare(&world);
            }
        }
        compare(&world);
    }
}
