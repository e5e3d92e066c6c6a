//! A table with a clock, and short words for what tests do to it.

use relive_core::{
    Cause, Effect, Effects, End, Incarnation, Outcome, Pid, ProcessStatus, Reached, ReleaseEvent, Settings, Signal,
    Spec, Table, Timestamp, Urgency, Uuid, View, Why,
};

pub(crate) const USER: Cause = Cause { why: Why::User, by: Pid::KERNEL, root: None };

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) table: Table,
    pub(crate) ms: i64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { table: Table::new(Settings::default(), Pid(0)), ms: 1_000_000 }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.ms).unwrap()
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

    /// Spawned and started.
    pub(crate) fn run(&mut self, parent: Pid) -> Pid {
        let pid = self.spawn(parent);
        self.table.start(pid, self.now()).unwrap();
        pid
    }

    pub(crate) fn run_named(&mut self, parent: Pid, name: &str) -> Pid {
        let pid = self.spawn_as(Spec { name: Some(name.into()), ..self.spec(parent) });
        self.table.start(pid, self.now()).unwrap();
        pid
    }

    pub(crate) fn of(&self, pid: Pid) -> Incarnation {
        self.table.incarnation(pid).unwrap()
    }

    pub(crate) fn view(&self, pid: Pid) -> View<'_> {
        self.table.view(pid, self.now()).unwrap()
    }

    pub(crate) fn signal(&mut self, pid: Pid, signal: Signal) -> Reached {
        self.table.signal(pid, signal, USER, self.now()).unwrap()
    }

    pub(crate) fn pause(&mut self, pid: Pid) -> Reached {
        self.table.pause(pid, Urgency::Boundary, self.now()).unwrap()
    }

    /// Paused, and at its boundary.
    pub(crate) fn suspend(&mut self, pid: Pid) {
        self.pause(pid);
        self.table.boundary_reached(self.of(pid)).unwrap();
    }

    pub(crate) fn resume(&mut self, pid: Pid) -> Reached {
        self.table.resume(pid, self.now()).unwrap()
    }

    pub(crate) fn finish(&mut self, pid: Pid) -> Effects {
        let end = End::of(ProcessStatus::Exited { code: 0 });
        self.table.terminate(pid, Outcome::Ended(end), self.now()).unwrap()
    }

    /// Reaped and released to the end.
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

/// The effects by name, without whom they are for.
pub(crate) fn names(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(|effect| format!("{effect:?}").split([' ', '{']).next().unwrap().to_string()).collect()
}
