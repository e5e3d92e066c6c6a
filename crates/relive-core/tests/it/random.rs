//! Random operations, checked against a simple model: it keeps a map, counts by walking all of it, and adds up elapsed
//! time tick by tick.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use relive_core::{
    Aim, Effect, Effects, ErrorCode, Event, Outcome, Pid, Refusal, ReleaseEvent, Signal, SignalSet, State,
    SuspendReason, Suspension, Urgency,
};

use crate::support::{Message, Reached, Scope, USER, World, names};

const RELEASE: [&str; 7] = ["Cancel", "Join", "TakeDebugChannel", "CloseDebugChannel", "FreeContext", "Dead", "Left"];

#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Spawn,
    Restore(SuspendReason),
    Start,
    Finish,
    Cancelled,
    Reap,
    Answer(ReleaseEvent),
    Signal(Signal),
    Tree(Signal),
    Suspend(SuspendReason),
    EndPause(SuspendReason),
    Boundary,
    GraceExpired,
    Mask(SignalSet),
    Handlers(SignalSet),
}

/// An operation, its target (any PID ever used, or one of two that never were), and the time since the operation
/// before.
pub(crate) type Step = (Operation, Index, u16);

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Operation as O;
    let signal = || select(Signal::ALL.to_vec());
    let reason = || select(vec![SuspendReason::User, SuspendReason::BudgetExceeded, SuspendReason::InDoubt]);
    let set = || vec(signal(), 0..4).prop_map(SignalSet::from_iter);
    let operation = prop_oneof![
        6 => Just(O::Spawn),
        1 => reason().prop_map(O::Restore),
        8 => Just(O::Start),
        2 => Just(O::Finish),
        2 => Just(O::Cancelled),
        4 => Just(O::Reap),
        6 => select(ReleaseEvent::ALL.to_vec()).prop_map(O::Answer),
        6 => signal().prop_map(O::Signal),
        6 => signal().prop_map(O::Tree),
        2 => reason().prop_map(O::Suspend),
        2 => reason().prop_map(O::EndPause),
        3 => Just(O::Boundary),
        1 => Just(O::GraceExpired),
        2 => set().prop_map(O::Mask),
        1 => set().prop_map(O::Handlers),
    ];
    let one = (operation, any::<Index>(), 0..1000_u16).prop_map(|step| vec![step]);
    // A whole release in one operation; otherwise few processes would ever leave the table.
    let answers = Just(ReleaseEvent::ALL.map(O::Answer).to_vec()).prop_shuffle();
    let release = (answers, any::<Index>()).prop_map(|(answers, target)| {
        let operations = [vec![O::Start, O::Finish, O::Reap], answers].concat();
        operations.into_iter().map(|operation| (operation, target, 1)).collect()
    });
    vec(prop_oneof![12 => one, 1 => release], 1..100).prop_map(|steps| steps.concat())
}

#[derive(Debug, Clone)]
struct Simple {
    parent: u32,
    state: State,
    pause: Option<SuspendReason>,
    at_boundary: bool,
    ending: Option<Signal>,
    mask: SignalSet,
    handlers: SignalSet,
    pending: SignalSet,
    reaped: bool,
    answers: BTreeSet<u8>,
    elapsed_ms: u64,
}

#[derive(Debug, Clone, Default)]
struct Model {
    all: BTreeMap<u32, Simple>,
}

type Expected = Result<Vec<u32>, ErrorCode>;

impl Model {
    fn admit(&mut self, parent: u32, state: State, pause: Option<SuspendReason>) -> Expected {
        if parent != 0 {
            let of_parent = self.all.get(&parent).ok_or(ErrorCode::NotFound)?.state;
            // A recovered parent may not have been started yet.
            let recovered = pause.is_some() && of_parent == State::Created;
            if of_parent != State::Running && !recovered {
                return Err(ErrorCode::Conflict);
            }
        }
        let pid = u32::try_from(self.all.len()).unwrap() + 1;
        let simple = Simple {
            parent,
            state,
            pause,
            at_boundary: pause.is_some(),
            ending: None,
            mask: SignalSet::EMPTY,
            handlers: SignalSet::EMPTY,
            pending: SignalSet::EMPTY,
            reaped: false,
            answers: BTreeSet::new(),
            elapsed_ms: 0,
        };
        self.all.insert(pid, simple);
        Ok(vec![])
    }

    fn tick(&mut self, ms: u64) {
        for simple in self.all.values_mut() {
            if simple.pause.is_none() && simple.state <= State::Running {
                simple.elapsed_ms += ms;
            }
        }
    }

    fn below(&self, root: u32) -> Vec<u32> {
        let mut below = vec![];
        for (pid, simple) in &self.all {
            if simple.state != State::Dead && simple.parent == root {
                below.push(*pid);
                below.extend(self.below(*pid));
            }
        }
        below
    }

    fn end(&mut self, pid: u32) {
        let simple = self.all.get_mut(&pid).unwrap();
        (simple.state, simple.pause, simple.ending) = (State::Zombie, None, None);
        simple.pending = SignalSet::EMPTY;
    }

    fn leave_if_released(&mut self, pid: u32) {
        let simple = self.all.get_mut(&pid).unwrap();
        if simple.reaped && simple.answers.len() == 4 {
            simple.state = State::Dead;
        }
    }

    /// Returns whether the process changed, and whether it was resumed.
    fn deliver(&mut self, pid: u32, signal: Signal) -> (bool, bool) {
        let simple = self.all.get_mut(&pid).unwrap();
        match simple.state {
            State::Zombie | State::Dead => (false, false),
            State::Created => match signal {
                Signal::Pause | Signal::Resume => {
                    let had = simple.pending.contains(Signal::Pause);
                    let pause = signal == Signal::Pause;
                    simple.pending = if pause { simple.pending.with(signal) } else { SignalSet::EMPTY };
                    (had != pause, false)
                }
                Signal::Term | Signal::Int | Signal::Kill => {
                    self.end(pid);
                    (true, false)
                }
            },
            State::Running => {
                let opposite = signal.opposite().filter(|opposite| simple.pending.contains(*opposite));
                if let Some(opposite) = opposite {
                    simple.pending = simple.pending.without(opposite);
                }
                if simple.mask.contains(signal) {
                    let is_new = opposite.is_none() && !simple.pending.contains(signal);
                    if is_new {
                        simple.pending = simple.pending.with(signal);
                    }
                    return (is_new || opposite.is_some(), false);
                }
                let (changed, woken) = simple.take(signal);
                (changed || opposite.is_some(), woken)
            }
        }
    }

    fn wake_above(&mut self, pid: u32, changed: &mut Vec<u32>) {
        let mut here = self.all[&pid].parent;
        while here != 0 {
            if self.all[&here].pause == Some(SuspendReason::User) && self.deliver(here, Signal::Resume).0 {
                changed.push(here);
            }
            here = self.all[&here].parent;
        }
    }

    fn send(&mut self, root: u32, pids: Vec<u32>, signal: Signal) -> Expected {
        let simple = self.all.get(&root).ok_or(ErrorCode::NotFound)?;
        if simple.state == State::Dead {
            return Ok(vec![]);
        }
        if signal == Signal::Resume {
            if simple.state == State::Created && simple.pending.is_empty() {
                return Err(ErrorCode::Invalid);
            }
            let follows = simple.pending.contains(Signal::Pause) && simple.ending.is_none();
            if simple.pause == Some(SuspendReason::InDoubt) && !follows {
                return Err(ErrorCode::Conflict);
            }
        }
        let (mut changed, mut any_woken) = (vec![], false);
        for pid in pids {
            let (was_changed, woken) = self.deliver(pid, signal);
            any_woken |= woken;
            if was_changed {
                changed.push(pid);
            }
        }
        if any_woken {
            self.wake_above(root, &mut changed);
        }
        Ok(changed)
    }

    fn land(&mut self, pid: u32) {
        for signal in Signal::LANDING_ORDER {
            let simple = self.all.get_mut(&pid).unwrap();
            let keeps = simple.pause == Some(SuspendReason::InDoubt) && simple.ending.is_none();
            let is_kept = signal == Signal::Pause && keeps;
            let lands = simple.state == State::Running && !simple.mask.contains(signal) && !is_kept;
            if lands && simple.pending.contains(signal) {
                simple.pending = simple.pending.without(signal);
                // A pending RESUME for a process in doubt is skipped, not refused.
                let (_, woken) = self.deliver(pid, signal);
                if woken {
                    self.wake_above(pid, &mut vec![]);
                }
            }
        }
    }

    /// Returns the processes that changed, or the code of the refusal.
    fn apply(&mut self, operation: Operation, pid: u32) -> Expected {
        use Operation as O;
        match operation {
            O::Spawn => return self.admit(pid, State::Created, None),
            O::Restore(reason) => return self.admit(pid, State::Running, Some(reason)),
            O::Signal(signal) => return self.send(pid, vec![pid], signal),
            O::Tree(signal) => return self.send(pid, [vec![pid], self.below(pid)].concat(), signal),
            O::Start | O::Finish | O::Cancelled | O::Reap | O::Answer(_) => {}
            O::Suspend(_) | O::EndPause(_) | O::Boundary | O::GraceExpired | O::Mask(_) | O::Handlers(_) => {}
        }
        let orphans: Vec<u32> =
            self.all.iter().filter(|(_, simple)| simple.parent == pid).map(|(pid, _)| *pid).collect();
        let simple = self.all.get_mut(&pid).ok_or(ErrorCode::NotFound)?;
        match (operation, simple.state) {
            (O::Start, State::Created) => {
                simple.state = State::Running;
                self.land(pid);
            }
            (O::Finish, State::Running) => self.end(pid),
            (O::Cancelled, State::Running) if simple.ending.is_some() => self.end(pid),
            (O::Reap, State::Zombie) => {
                if !std::mem::replace(&mut simple.reaped, true) {
                    for orphan in orphans {
                        let orphan = self.all.get_mut(&orphan).unwrap();
                        if orphan.state != State::Dead {
                            orphan.parent = 0;
                        }
                    }
                    self.leave_if_released(pid);
                }
            }
            (O::Start | O::Finish | O::Cancelled | O::Reap, _) => return Err(ErrorCode::Internal),
            (O::Answer(event), State::Zombie) => {
                simple.answers.insert(event as u8);
                self.leave_if_released(pid);
            }
            (O::Answer(_), State::Created | State::Running) => return Err(ErrorCode::Internal),
            (O::Suspend(_), State::Created) => return Err(ErrorCode::Invalid),
            (O::Suspend(reason), State::Running) if simple.ending.is_none() && simple.pause.is_none() => {
                (simple.pause, simple.at_boundary) = (Some(reason), false);
                return Ok(vec![pid]);
            }
            (O::EndPause(reason), _) if simple.pause == Some(reason) => {
                // One that was asked to end is not paused any more.
                let keeps = reason == SuspendReason::InDoubt && simple.ending.is_none();
                let kept = keeps && simple.pending.contains(Signal::Pause);
                simple.pause = None;
                if kept && !simple.mask.contains(Signal::Pause) {
                    simple.pending = simple.pending.without(Signal::Pause);
                    (simple.pause, simple.at_boundary) = (Some(SuspendReason::User), false);
                }
                return Ok(vec![pid]);
            }
            (O::Boundary, _) => simple.at_boundary |= simple.pause.is_some(),
            (O::GraceExpired, _) if simple.ending == Some(Signal::Term) => simple.ending = Some(Signal::Kill),
            (O::Mask(mask), State::Created | State::Running) => {
                simple.mask = mask;
                self.land(pid);
            }
            (O::Handlers(handlers), State::Created | State::Running) => simple.handlers = handlers,
            (O::Answer(_) | O::Suspend(_) | O::EndPause(_) | O::GraceExpired | O::Mask(_) | O::Handlers(_), _) => {}
            (O::Spawn | O::Restore(_) | O::Signal(_) | O::Tree(_), _) => unreachable!("answered above"),
        }
        Ok(vec![])
    }
}

impl Simple {
    /// Delivers a signal that is not blocked.
    fn take(&mut self, signal: Signal) -> (bool, bool) {
        let rank = |signal: Option<Signal>| match signal {
            None | Some(Signal::Pause | Signal::Resume) => 0,
            Some(Signal::Int) => 1,
            Some(Signal::Term) => 2,
            Some(Signal::Kill) => 3,
        };
        let handled = self.handlers.contains(signal);
        if handled && self.ending == Some(Signal::Kill) {
            return (false, false);
        }
        match signal {
            Signal::Pause if self.pause == Some(SuspendReason::InDoubt) && self.ending.is_none() => {
                // Kept until the answer.
                let is_new = !self.pending.contains(signal);
                self.pending = self.pending.with(signal);
                (is_new, false)
            }
            Signal::Pause if self.pause.is_some() => (false, false),
            Signal::Pause if handled => (true, false),
            Signal::Pause if self.ending.is_some() => (false, false),
            Signal::Pause => {
                (self.pause, self.at_boundary) = (Some(SuspendReason::User), false);
                (true, false)
            }
            Signal::Resume => {
                let woken = self.pause.is_some_and(|reason| reason != SuspendReason::InDoubt);
                let called = handled && self.pause.is_none();
                if woken {
                    self.pause = None;
                }
                (woken || called, woken)
            }
            Signal::Int if handled => (true, false),
            Signal::Term | Signal::Int | Signal::Kill => {
                let stronger = rank(Some(signal)) > rank(self.ending);
                if stronger {
                    self.ending = Some(signal);
                }
                (stronger, false)
            }
        }
    }
}

pub(crate) fn run(world: &mut World, operation: Operation, pid: Pid) -> Result<Reached, Refusal> {
    use Operation as O;
    let now = world.now();
    let of = world
        .table
        .incarnation(pid)
        .unwrap_or(relive_core::Incarnation { pid, generation: relive_core::Generation(1) });
    let only = |effects: Effects| Reached { pids: vec![], effects };
    match operation {
        O::Spawn => {
            let spec = world.spec(pid);
            world.table.spawn(spec).map(|()| Reached::default())
        }
        O::Restore(reason) => {
            let spec = world.spec(pid);
            let suspension = Some(Suspension { asked_at: now.at, reason, cause: None });
            let recovered = relive_core::Recovered { suspension, ..relive_core::Recovered::default() };
            world.table.recover(spec, recovered, now).map(|()| Reached::default())
        }
        O::Reap => world.table.reap(pid, now).map(only),
        O::Answer(event) => world.table.released(of, event, now).map(only),
        O::Signal(signal) => world.send(pid, Scope::Process, Message::new(signal)),
        O::Tree(signal) => world.send(pid, Scope::Subtree, Message::new(signal)),
        O::Suspend(_) | O::EndPause(_) => {
            let applied = world.apply(pid, event_of(operation).unwrap())?;
            let pids = if applied.changed { vec![pid] } else { vec![] };
            Ok(Reached { pids, effects: applied.effects })
        }
        O::Start | O::Finish | O::Cancelled | O::Boundary | O::GraceExpired | O::Mask(_) | O::Handlers(_) => {
            let applied = world.apply(pid, event_of(operation).unwrap())?;
            let mut landed = only(applied.effects);
            world.resume_above(pid, USER, &mut landed);
            Ok(only(landed.effects))
        }
    }
}

/// Returns the event for the target, if the operation is one.
pub(crate) fn event_of(operation: Operation) -> Option<Event> {
    use Operation as O;
    let urgency = Urgency::Boundary;
    Some(match operation {
        O::Spawn | O::Restore(_) | O::Reap | O::Answer(_) => return None,
        O::Start => Event::Start,
        O::Finish => {
            let end = relive_core::End::of(relive_core::ProcessStatus::Exited { code: 0 });
            Event::Terminate(Outcome::Ended(end))
        }
        O::Cancelled => Event::Terminate(Outcome::Cancelled),
        O::Signal(signal) => Event::Signal { signal, cause: USER, urgency, aim: Aim::Process },
        O::Tree(signal) => Event::Signal { signal, cause: USER, urgency: Urgency::Now, aim: Aim::Subtree },
        O::Suspend(reason) => Event::Suspend { reason, urgency },
        O::EndPause(reason) => Event::EndPause { reason },
        O::Boundary => Event::BoundaryReached,
        O::GraceExpired => Event::GraceExpired,
        O::Mask(mask) => Event::SetMask(mask),
        O::Handlers(handlers) => Event::SetHandlers(handlers),
    })
}

/// Compares the model and the table for every process that ever existed.
fn compare(world: &World, model: &Model) -> Result<(), TestCaseError> {
    for (pid, simple) in &model.all {
        let view = world.view(Pid(*pid));
        prop_assert_eq!(view.state, simple.state, "{}", pid);
        prop_assert_eq!(view.ppid, Pid(simple.parent), "{}", pid);
        prop_assert_eq!((view.suspend_reason, view.ending), (simple.pause, simple.ending), "{}", pid);
        if simple.pause.is_some() {
            prop_assert_eq!(view.display.word() == "pausing", !simple.at_boundary, "{}", pid);
        }
        prop_assert_eq!(world.pending(Pid(*pid)), simple.pending, "{}", pid);
        prop_assert_eq!(view.elapsed_ms, simple.elapsed_ms, "{}", pid);
        let living = if simple.state == State::Dead { vec![] } else { model.below(*pid) };
        let paused_below = living.iter().filter(|pid| model.all[*pid].pause.is_some()).count();
        prop_assert_eq!(view.suspended_below as usize, paused_below, "{}", pid);
    }
    // Every process of the table appears in the tree once, under an existing parent.
    let mut in_tree = vec![];
    let mut stack = vec![Pid::RUNTIME];
    while let Some(pid) = stack.pop() {
        stack.extend(world.table.children(pid));
        in_tree.extend(world.table.children(pid));
    }
    in_tree.sort();
    let in_table: Vec<_> = world.table.processes(world.now()).map(|view| view.pid).collect();
    prop_assert_eq!(in_tree, in_table);
    Ok(())
}

/// Returns the state that a caller can observe.
fn outside(world: &World, pid: u32) -> Option<impl PartialEq> {
    let view = world.table.view(Pid(pid), world.now())?;
    Some((view.state, view.paused_at, view.ending, world.pending(Pid(pid)), view.exit.map(|exit| exit.code)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_agrees_with_the_model(steps in steps()) {
        let (mut world, mut model) = (World::new(), Model::default());
        let mut released: BTreeMap<Pid, Effects> = BTreeMap::new();
        let mut ended: BTreeSet<Pid> = BTreeSet::new();
        for (operation, target, ms) in steps {
            world.ms += i64::from(ms);
            model.tick(u64::from(ms));
            let pid = u32::try_from(target.index(model.all.len() + 2)).unwrap();
            let before = world.clone();
            let expected = model.apply(operation, pid);
            let reached = run(&mut world, operation, Pid(pid));
            match &reached {
                Err(refusal) => {
                    prop_assert_eq!(Err(refusal.code()), expected, "{:?} {}: {}", operation, pid, refusal);
                    prop_assert!(world.table == before.table, "{:?} {}: refused, and changed", operation, pid);
                }
                Ok(reached) => {
                    let counted: BTreeSet<u32> = reached.pids.iter().map(|pid| pid.0).collect();
                    prop_assert_eq!(counted.len(), reached.pids.len(), "counted twice");
                    let expected: BTreeSet<u32> = expected.unwrap().into_iter().collect();
                    prop_assert_eq!(&counted, &expected, "{:?} {}", operation, pid);
                    if matches!(operation, Operation::Signal(_) | Operation::Tree(_)) {
                        let handled = |pid: u32| {
                            reached.effects.iter().any(|effect| matches!(effect, Effect::Handle { of, .. } if of.pid.0 == pid))
                        };
                        let changed: BTreeSet<u32> = model.all.keys().copied()
                            .filter(|pid| outside(&before, *pid) != outside(&world, *pid) || handled(*pid))
                            .collect();
                        prop_assert_eq!(&counted, &changed, "{:?} {}: counts are of real changes", operation, pid);
                    }
                    for effect in &reached.effects {
                        if let Effect::Ended { of } = effect {
                            prop_assert!(ended.insert(of.pid), "ended twice");
                        }
                        if RELEASE.contains(&names(&[*effect])[0].as_str()) {
                            released.entry(Pid(pid)).or_default().push(*effect);
                        }
                    }
                }
            }
            compare(&world, &model)?;
        }
        for (pid, effects) in released {
            prop_assert_eq!(names(&effects), &RELEASE[..effects.len()]);
            prop_assert_eq!(effects.len() == RELEASE.len(), model.all[&pid.0].state == State::Dead);
        }
    }
}
