//! A table with a clock, and shorthand for what tests do to it.

use relive_core::{
    Aim, Applied, Cause, Effect, Effects, End, Event, Holder, Incarnation, Machine, Moment, Outcome, Pid,
    ProcessStatus, Refusal, ReleaseEvent, Rights, Settings, Signal, SignalSet, Spec, SuspendReason, Table, Timestamp,
    Urgency, Uuid, View, Why,
};

pub(crate) const USER: Cause = Cause { why: Why::User, by: Pid::RUNTIME, root: None };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Process,
    Subtree,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) signal: Signal,
    pub(crate) cause: Cause,
    pub(crate) urgency: Urgency,
}

impl Message {
    /// Creates a message from the user that takes effect at the boundary.
    pub(crate) fn new(signal: Signal) -> Self {
        Self { signal, cause: USER, urgency: Urgency::Boundary }
    }
}

/// The result of an operation on one or more processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reached {
    /// The processes that changed, parents before children, resumed ancestors last.
    pub(crate) pids: Vec<Pid>,
    pub(crate) effects: Effects,
}

impl Reached {
    fn add(&mut self, pid: Pid, applied: Applied) {
        if applied.changed {
            self.pids.push(pid);
        }
        self.effects.extend(applied.effects);
    }
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) table: Table,
    /// In milliseconds since boot.
    pub(crate) ms: i64,
    /// How far the wall clock was moved.
    pub(crate) wall_jump_ms: i64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { table: Table::new(Settings::default(), Pid(0)), ms: 1_000_000, wall_jump_ms: 0 }
    }

    pub(crate) fn now(&self) -> Moment {
        let at = Timestamp::from_millisecond(self.ms + self.wall_jump_ms).unwrap();
        Moment { at, up_ms: u64::try_from(self.ms).unwrap() }
    }

    /// Hands a handle to a process, as the runtime does.
    pub(crate) fn hand(&mut self, giver: Holder, to: Pid, target: Pid, rights: Rights) -> Result<(), Refusal> {
        self.table.check_hand(giver, to, target)?;
        self.table.restore_handle(to, target, rights);
        Ok(())
    }

    pub(crate) fn spec(&self, parent: Pid) -> Spec {
        let pid = Pid(self.table.last_pid().0 + 1);
        Spec::new(pid, uuid(pid.0), parent, self.now())
    }

    pub(crate) fn spawn(&mut self, parent: Pid) -> Pid {
        let spec = self.spec(parent);
        self.spawn_as(spec)
    }

    pub(crate) fn spawn_as(&mut self, spec: Spec) -> Pid {
        let pid = spec.pid;
        self.table.spawn(spec).unwrap();
        pid
    }

    /// Spawns and starts a process.
    pub(crate) fn run(&mut self, parent: Pid) -> Pid {
        let pid = self.spawn(parent);
        self.apply(pid, Event::Start).unwrap();
        pid
    }

    pub(crate) fn run_named(&mut self, parent: Pid, name: &str) -> Pid {
        let pid = self.spawn_as(Spec { name: Some(name.into()), ..self.spec(parent) });
        self.apply(pid, Event::Start).unwrap();
        pid
    }

    pub(crate) fn of(&self, pid: Pid) -> Incarnation {
        self.table.incarnation(pid).unwrap()
    }

    pub(crate) fn view(&self, pid: Pid) -> View<'_> {
        self.table.view(pid, self.now()).unwrap()
    }

    pub(crate) fn apply(&mut self, pid: Pid, event: Event) -> Result<Applied, Refusal> {
        self.table.apply(pid, event, self.now())
    }

    /// Returns the effects of an event that must not be refused.
    pub(crate) fn effects(&mut self, pid: Pid, event: Event) -> Effects {
        self.apply(pid, event).unwrap().effects
    }

    pub(crate) fn signal(&mut self, pid: Pid, signal: Signal) -> Reached {
        self.send(pid, Scope::Process, Message::new(signal)).unwrap()
    }

    pub(crate) fn signal_for(&mut self, pid: Pid, signal: Signal, cause: Cause) -> Reached {
        self.send(pid, Scope::Process, Message { cause, ..Message::new(signal) }).unwrap()
    }

    pub(crate) fn signal_tree(&mut self, pid: Pid, signal: Signal) -> Reached {
        self.send(pid, Scope::Subtree, Message::new(signal)).unwrap()
    }

    pub(crate) fn pause(&mut self, pid: Pid) -> Reached {
        self.signal(pid, Signal::Pause)
    }

    pub(crate) fn pause_now(&mut self, pid: Pid) -> Reached {
        let message = Message { urgency: Urgency::Now, ..Message::new(Signal::Pause) };
        self.send(pid, Scope::Process, message).unwrap()
    }

    /// Pauses a process and reports its boundary.
    pub(crate) fn suspend(&mut self, pid: Pid) {
        self.pause(pid);
        self.apply(pid, Event::BoundaryReached).unwrap();
    }

    pub(crate) fn suspend_for(&mut self, pid: Pid, reason: SuspendReason) -> Applied {
        self.apply(pid, Event::Suspend { reason, urgency: Urgency::Boundary }).unwrap()
    }

    pub(crate) fn resume(&mut self, pid: Pid) -> Reached {
        self.signal(pid, Signal::Resume)
    }

    /// Sends a signal like the coordinator of the runtime: one event for each process, parents first, and after a
    /// resume also for the ancestors that the user paused.
    pub(crate) fn send(&mut self, target: Pid, scope: Scope, message: Message) -> Result<Reached, Refusal> {
        let Message { signal, mut cause, urgency } = message;
        let mut pids = vec![target];
        if scope == Scope::Subtree {
            cause.root = Some(target);
            pids.extend(self.table.subtree(target).into_iter().filter(|pid| *pid != target));
        }
        let mut reached = Reached::default();
        for pid in pids {
            let aim = if pid == target { Aim::Process } else { Aim::Subtree };
            let applied = self.apply(pid, Event::Signal { signal, cause, urgency, aim })?;
            reached.add(pid, applied);
        }
        self.resume_above(target, cause, &mut reached);
        Ok(reached)
    }

    /// Resumes the ancestors that the user paused, if anything was resumed.
    pub(crate) fn resume_above(&mut self, pid: Pid, cause: Cause, reached: &mut Reached) {
        if !reached.effects.iter().any(|effect| matches!(effect, Effect::Resume { .. })) {
            return;
        }
        for ancestor in self.table.ancestors_paused_by_user(pid) {
            let (signal, urgency, aim) = (Signal::Resume, Urgency::Boundary, Aim::Subtree);
            let applied = self.apply(ancestor, Event::Signal { signal, cause, urgency, aim }).unwrap();
            reached.add(ancestor, applied);
        }
    }

    /// Returns the pending signals.
    pub(crate) fn pending(&self, pid: Pid) -> SignalSet {
        let machine = self.table.machine(pid);
        machine.into_iter().flat_map(Machine::pending).map(|(signal, _)| signal).collect()
    }

    pub(crate) fn finish(&mut self, pid: Pid) -> Effects {
        self.effects(pid, Event::Terminate(Outcome::Ended(End::of(ProcessStatus::Exited { code: 0 }))))
    }

    /// Ends a process that was asked to end.
    pub(crate) fn cancelled(&mut self, pid: Pid) -> Effects {
        self.effects(pid, Event::Terminate(Outcome::Cancelled))
    }

    /// Reaps a process and carries out its whole release.
    pub(crate) fn release(&mut self, pid: Pid) -> Effects {
        let of = self.of(pid);
        let mut effects = self.table.reap(pid, self.now()).unwrap();
        for event in ReleaseEvent::ALL {
            effects.extend(self.table.released(of, event, self.now()).unwrap());
        }
        effects
    }

    pub(crate) fn children(&self, pid: Pid) -> Vec<Pid> {
        self.table.children(pid).collect()
    }
}

pub(crate) fn uuid(number: u32) -> Uuid {
    Uuid::from_u128(0x0198_f3c1_0000_7000_8000_0000_0000_0000 | u128::from(number))
}

/// Returns the names of the effects, without their targets.
pub(crate) fn names(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(|effect| format!("{effect:?}").split([' ', '{']).next().unwrap().to_string()).collect()
}
