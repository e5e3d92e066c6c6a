//! Random trees, grants, releases, ends and restarts, checked against a model that only remembers who was given what: no process
//! can name, see or change a process that it was not given, and nothing stays observable without a reason.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use relive_core::{
    End, ErrorCode, Generation, Holder, Past, Pid, ProcessStatus, Recovered, Rights, Settings, Spec, Table,
};

use crate::support::{World, uuid};

#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Spawns a process below another one, or below nobody.
    Spawn,
    /// Spawns the next incarnation of a process that has ended.
    Resume,
    End,
    /// A caller hands a handle to a process.
    Hand(Rights),
    Release,
    Pass(i64),
    /// A new daemon: the living get new PIDs, and the ended are recalled from their journals.
    Restart,
}

type Step = (Operation, Index, Index, Index);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rights = select(vec![Rights::Observer, Rights::Controller, Rights::Owner]);
    let operation = prop_oneof![
        6 => Just(Operation::Spawn),
        1 => Just(Operation::Resume),
        3 => Just(Operation::End),
        6 => rights.prop_map(Operation::Hand),
        3 => Just(Operation::Release),
        1 => select(vec![60_000_i64, 3_600_000]).prop_map(Operation::Pass),
        1 => Just(Operation::Restart),
    ];
    vec((operation, any::<Index>(), any::<Index>(), any::<Index>()), 1..60)
}

/// What the model remembers.
#[derive(Default)]
struct Model {
    /// The parent of each UUID.
    parents: BTreeMap<u32, Option<u32>>,
    living: BTreeSet<Pid>,
    /// When each that has ended did, while somebody may still ask.
    ended: BTreeMap<Pid, i64>,
    /// By holder and target.
    given: BTreeMap<(Pid, Pid), Rights>,
    /// Numbers of UUIDs, by PID.
    uuids: BTreeMap<Pid, u32>,
}

impl Model {
    /// What a process may do to another one, by what it was given and by descent alone.
    fn rights(&self, holder: Pid, target: Pid) -> Option<Rights> {
        if !self.living.contains(&holder) || !(self.living.contains(&target) || self.ended.contains_key(&target)) {
            return None;
        }
        let mut here = Some(self.uuids[&target]);
        while let Some(uuid) = here {
            if uuid == self.uuids[&holder] {
                return Some(Rights::Owner);
            }
            // Whoever has ended in between, and whether or not anybody remembers it.
            here = self.parents[&uuid];
        }
        self.given.get(&(holder, self.held_as(target))).copied()
    }

    /// A handle is to the process, and so to its last incarnation.
    fn held_as(&self, target: Pid) -> Pid {
        self.latest(self.uuids[&target])
    }

    fn end(&mut self, pid: Pid, ms: i64) {
        self.living.remove(&pid);
        self.ended.insert(pid, ms);
        self.given.retain(|(holder, _), _| *holder != pid);
    }

    /// The last PID of a UUID.
    fn latest(&self, number: u32) -> Pid {
        self.uuids.iter().filter(|(_, other)| **other == number).map(|(pid, _)| *pid).max().unwrap()
    }

    /// Records go when their time is over and nobody has a handle to them.
    fn sweep(&mut self, ms: i64) {
        let is_held = |pid: &Pid| self.given.keys().any(|(_, target)| target == pid);
        let gone: Vec<Pid> = self
            .ended
            .iter()
            .filter(|(pid, ended)| ms - **ended >= 3_600_000 && !is_held(pid))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in gone {
            self.ended.remove(&pid);
        }
    }

    /// A handle is to the process, so it is to its next incarnation.
    fn move_handles(&mut self, before: Pid, after: Pid) {
        let given = std::mem::take(&mut self.given).into_iter();
        let moved = |target| if target == before { after } else { target };
        self.given = given.map(|((holder, target), rights)| ((holder, moved(target)), rights)).collect();
    }
}

fn pick(of: &[Pid], index: Index) -> Option<Pid> {
    (!of.is_empty()).then(|| of[index.index(of.len())])
}

fn run(steps: Vec<Step>) {
    let (mut world, mut model) = (World::new(), Model::default());
    for (operation, first, second, third) in steps {
        let everybody: Vec<Pid> = (1..=world.table.last_pid().0).map(Pid).collect();
        let living: Vec<Pid> = model.living.iter().copied().collect();
        match operation {
            Operation::Spawn => {
                let parent = pick(&living, first).filter(|_| second.index(4) > 0).unwrap_or(Pid::RUNTIME);
                let pid = world.run(parent);
                model.parents.insert(pid.0, model.uuids.get(&parent).copied());
                model.living.insert(pid);
                model.uuids.insert(pid, pid.0);
                own(&mut world, &mut model, parent, pid);
            }
            Operation::Resume => {
                let ended: Vec<Pid> = model.ended.keys().copied().collect();
                let Some(before) = pick(&ended, first) else { continue };
                let number = model.uuids[&before];
                if model.uuids.iter().any(|(pid, other)| *other == number && *pid > before) {
                    continue;
                }
                let generation = Generation(world.of(before).generation.0 + 1);
                let parent_uuid = model.parents[&number].map(uuid);
                let spec = Spec { uuid: uuid(number), generation, parent_uuid, ..world.spec(Pid::RUNTIME) };
                let pid = world.spawn_as(spec);
                world.apply(pid, relive_core::Event::Start).unwrap();
                model.living.insert(pid);
                model.uuids.insert(pid, number);
                model.move_handles(before, pid);
                let parent = model.parents[&number].map(|parent| model.latest(parent));
                own(&mut world, &mut model, parent.unwrap_or(Pid::RUNTIME), pid);
            }
            Operation::End => {
                let Some(pid) = pick(&living, first) else { continue };
                world.finish(pid);
                world.release(pid);
                model.end(pid, world.ms);
            }
            Operation::Hand(rights) => {
                let (Some(to), Some(target)) = (pick(&everybody, first), pick(&everybody, second)) else { continue };
                // The person, or any process: also one that is not there.
                let giver = pick(&everybody, third).filter(|_| third.index(5) > 0);
                let caller = giver.map_or(Holder::Person, Holder::Process);
                let may = |pid| match giver {
                    Some(giver) => model.rights(giver, pid),
                    None => (model.living.contains(&pid) || model.ended.contains_key(&pid)).then_some(Rights::Owner),
                };
                let allowed = may(target) == Some(Rights::Owner) && may(to).is_some() && model.living.contains(&to);
                assert_eq!(world.hand(caller, to, target, rights).is_ok(), allowed, "{giver:?} {to} {target}");
                if allowed {
                    let held = model.given.entry((to, model.held_as(target))).or_insert(rights);
                    *held = (*held).max(rights);
                }
            }
            Operation::Release => {
                let (Some(holder), Some(target)) = (pick(&everybody, first), pick(&everybody, second)) else {
                    continue;
                };
                let is_known = model.living.contains(&target) || model.ended.contains_key(&target);
                let expect = is_known.then(|| model.given.remove(&(holder, model.held_as(target)))).flatten();
                assert_eq!(world.table.release_handles(holder, target), expect);
            }
            Operation::Pass(ms) => {
                world.ms += ms;
                world.table.sweep(world.now());
                model.sweep(world.ms);
            }
            Operation::Restart => restart(&mut world, &mut model),
        }
        check(&world, &model);
    }
}

/// Whoever has a process created owns it, each time that it is.
fn own(world: &mut World, model: &mut Model, parent: Pid, child: Pid) {
    let opened = world.table.open(Holder::Process(parent), child, Rights::Owner);
    assert_eq!(opened.is_ok(), model.living.contains(&parent), "{parent} owns {child}");
    if let Ok(handle) = opened {
        assert_eq!(world.table.open(Holder::Process(parent), child, Rights::Observer), Ok(handle), "it has one");
        model.given.insert((parent, child), Rights::Owner);
    }
}

/// Fills a new table the way the runtime does: the living from their journals, parents first, and the ended that were
/// the last of their UUID, as long as their time is not over or the journal of somebody living names them.
fn restart(world: &mut World, model: &mut Model) {
    let generations: BTreeMap<u32, u32> = model
        .living
        .iter()
        .chain(model.ended.keys())
        .map(|pid| (model.uuids[pid], world.of(*pid).generation.0))
        .collect();
    let last = world.table.last_pid();
    world.table = Table::new(Settings::default(), last);
    let mut renamed = BTreeMap::new();
    for pid in std::mem::take(&mut model.living) {
        let number = model.uuids[&pid];
        let parent_uuid = model.parents[&number].map(uuid);
        let parent = parent_uuid.and_then(|uuid| world.table.current_pid(uuid)).unwrap_or(Pid::RUNTIME);
        let spec = Spec {
            uuid: uuid(number),
            generation: Generation(generations[&number] + 1),
            parent_uuid,
            ..world.spec(parent)
        };
        renamed.insert(pid, spec.pid);
        world.table.recover(spec, Recovered::default(), world.now()).unwrap();
    }
    for (before, now) in &renamed {
        world.apply(*now, relive_core::Event::Start).unwrap();
        model.uuids.insert(*now, model.uuids[before]);
        model.living.insert(*now);
    }
    let ended = std::mem::take(&mut model.ended);
    for (pid, ended_at) in ended {
        let number = model.uuids[&pid];
        if model.latest(number) != pid {
            continue;
        }
        let parent_uuid = model.parents[&number].map(uuid);
        let spec = Spec {
            pid,
            uuid: uuid(number),
            generation: Generation(generations[&number]),
            parent_uuid,
            ..world.spec(Pid::RUNTIME)
        };
        let then = relive_core::Moment { up_ms: u64::try_from(ended_at).unwrap(), ..world.now() };
        let end = End::of(ProcessStatus::Exited { code: 0 });
        let past = Past { spec, started_at: then.at, ended_at: then.at, end, elapsed_ms: 0 };
        world.table.recall(past, then).unwrap();
        model.ended.insert(pid, ended_at);
    }
    // The youngest first: who has no descendant in the table is not asked about.
    for (child, parent) in model.parents.iter().rev() {
        if let Some(parent) = parent {
            world.table.note_parent(uuid(*child), uuid(*parent));
        }
    }
    // A handle is to the process: after a restart to its last incarnation.
    let given = std::mem::take(&mut model.given);
    for ((holder, target), rights) in given {
        let (Some(holder), target) = (renamed.get(&holder).copied(), model.latest(model.uuids[&target])) else {
            continue;
        };
        if model.living.contains(&target) || model.ended.contains_key(&target) {
            world.table.restore_handle(holder, target, rights);
            let held = model.given.entry((holder, target)).or_insert(rights);
            *held = (*held).max(rights);
        }
    }
    world.table.sweep(world.now());
    model.sweep(world.ms);
}

fn check(world: &World, model: &Model) {
    let everybody: Vec<Pid> = (1..=world.table.last_pid().0 + 1).map(Pid).collect();
    for holder in everybody.iter().copied() {
        let (caller, mut seen) = (Holder::Process(holder), BTreeSet::new());
        for target in everybody.iter().copied() {
            let rights = model.rights(holder, target);
            assert_eq!(world.table.rights(caller, target), rights, "{holder} to {target}");
            seen.extend(rights.map(|_| target));
            for needed in [Rights::Observer, Rights::Controller, Rights::Owner] {
                let refused = world.table.authorize(caller, target, needed).err().map(|refusal| refusal.code());
                let expect = match rights {
                    None => Some(ErrorCode::NotFound),
                    Some(rights) if rights < needed => Some(ErrorCode::Permission),
                    Some(_) => None,
                };
                assert_eq!(refused, expect, "{holder} to {target}");
            }
            let named = world.table.look_up(caller, &target.to_string());
            // Forbidden and unknown read the same.
            assert_eq!(named.as_ref().ok().copied(), rights.map(|_| target));
            if let Err(refusal) = named {
                assert_eq!(refusal.to_string(), format!("no process `{target}`"));
            }
        }
        assert_eq!(world.table.visible(holder), seen, "of {holder}");
    }
    for pid in everybody {
        let is_known = model.living.contains(&pid) || model.ended.contains_key(&pid);
        assert_eq!(world.table.incarnation(pid).is_some(), is_known, "{pid} is kept for as long as somebody may ask");
    }
}

proptest! {
    #[test]
    fn nobody_names_what_it_was_not_given_and_nothing_outlives_its_last_handle(steps in steps()) {
        run(steps);
    }
}

/// The same without chance: a record that is held, released, and swept.
#[test]
fn case_70_a_record_is_kept_by_its_last_handle_and_then_for_the_retention_time() {
    let mut world = World::new();
    let (holder, target) = (world.run(Pid::RUNTIME), world.run(Pid::RUNTIME));
    world.hand(Holder::Person, holder, target, Rights::Observer).unwrap();
    world.finish(target);
    world.release(target);
    world.ms += 10 * 3_600_000;
    world.table.sweep(world.now());
    assert!(world.table.wait(target).is_ok(), "a handle keeps it");
    assert_eq!(world.table.release_handles(holder, target), Some(Rights::Observer));
    world.table.sweep(world.now());
    assert!(world.table.wait(target).is_err(), "its time was over");
    assert_eq!(world.table.release_handles(holder, target), None, "releasing it again changes nothing");
}

#[test]
fn an_ancestor_reaches_what_is_below_a_process_that_ended_and_was_forgotten() {
    let mut world = World::new();
    let first = world.run(Pid::RUNTIME);
    let second = world.run(first);
    let third = world.run(second);
    let fourth = world.run(third);
    let rights = |world: &World| world.table.rights(Holder::Process(first), fourth);
    for ended in [third, second] {
        world.finish(ended);
        world.release(ended);
        assert_eq!(rights(&world), Some(Rights::Owner));
    }
    assert_eq!(world.table.visible(first), BTreeSet::from([first, second, third, fourth]));
    world.ms += 3_600_000;
    assert_eq!(world.table.sweep(world.now()), [second, third]);
    assert_eq!(rights(&world), Some(Rights::Owner));
    assert_eq!(world.table.visible(first), BTreeSet::from([first, fourth]));
    assert_eq!(world.table.parent(fourth), Some(Pid::RUNTIME), "the tree of the living has it under nobody");
}

/// A child that is restarted every minute.
#[test]
fn a_handle_to_a_process_that_is_restarted_for_ever_stays_one_handle_and_keeps_one_record() {
    let mut world = World::new();
    let (holder, mut target) = (world.run(Pid::RUNTIME), world.run(Pid::RUNTIME));
    let (number, first) = (target.0, target);
    world.hand(Holder::Person, holder, target, Rights::Controller).unwrap();
    for generation in 2..1200 {
        world.finish(target);
        world.release(target);
        let earlier = target;
        let spec = Spec { uuid: uuid(number), generation: Generation(generation), ..world.spec(Pid::RUNTIME) };
        target = world.spawn_as(spec);
        world.apply(target, relive_core::Event::Start).unwrap();
        let rights = |pid| world.table.rights(Holder::Process(holder), pid);
        assert_eq!([earlier, target].map(rights), [Some(Rights::Controller); 2]);
        world.ms += 60_000;
        world.table.sweep(world.now());
    }
    assert_eq!(world.table.handles_of(holder), BTreeMap::from([(target, Rights::Controller)]));
    assert!(world.table.wait(first).is_err(), "its time is over");
    assert!(world.table.visible(holder).len() <= 62, "{:?}", world.table.visible(holder));
    let other = world.run(Pid::RUNTIME);
    world.hand(Holder::Person, holder, other, Rights::Observer).unwrap();
}

/// Who restarts a child over and over has one handle to it, as whoever creates a process owns it each time.
#[test]
fn the_owner_of_a_process_that_is_restarted_keeps_one_handle_to_it() {
    let mut world = World::new();
    let owner = world.run(Pid::RUNTIME);
    let mut child = world.run(owner);
    let (number, holder) = (child.0, Holder::Process(owner));
    let first = world.table.open(holder, child, Rights::Observer).unwrap();
    for generation in 2..1_200 {
        world.finish(child);
        world.release(child);
        let spec = Spec { uuid: uuid(number), generation: Generation(generation), ..world.spec(owner) };
        child = world.spawn_as(spec);
        world.apply(child, relive_core::Event::Start).unwrap();
        assert_eq!(world.table.open(holder, child, Rights::Owner), Ok(first), "incarnation {generation}");
        world.ms += 60_000;
        world.table.sweep(world.now());
    }
    assert_eq!(world.table.handles_of(owner), BTreeMap::from([(child, Rights::Owner)]));
    let other = world.run(Pid::RUNTIME);
    world.hand(Holder::Person, owner, other, Rights::Observer).unwrap();
    assert_eq!(world.table.release_handles(owner, child), Some(Rights::Owner));
    assert_eq!(world.table.release_handles(owner, child), None, "there was no second one");
}

/// The limit counts processes, not grants.
#[test]
fn a_process_with_all_its_handles_is_given_more_rights_to_those_it_has_and_no_more_of_them() {
    let mut world = World::new();
    let holder = world.run(Pid::RUNTIME);
    let targets: Vec<Pid> = (0..1_024).map(|_| world.run(Pid::RUNTIME)).collect();
    for target in &targets {
        world.hand(Holder::Person, holder, *target, Rights::Observer).unwrap();
    }
    let more = world.run(Pid::RUNTIME);
    assert!(world.hand(Holder::Person, holder, more, Rights::Observer).is_err());
    world.hand(Holder::Person, holder, targets[7], Rights::Controller).unwrap();
    assert_eq!(world.table.rights(Holder::Process(holder), targets[7]), Some(Rights::Controller));
    world.table.release_handles(holder, targets[7]);
    world.hand(Holder::Person, holder, more, Rights::Observer).unwrap();
}
