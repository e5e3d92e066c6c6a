//! Random sequences of all operations, compared with `model.rs` after each.

use std::collections::BTreeMap;

use proptest::prelude::*;
use relive_core::{Limits, Pid, Signal, SuspendReason, Uuid};
use relive_journal::data::{ForkPoint, Known};
use relive_journal::reader::{Cursor, Item, Reader};
use relive_journal::record::{Acked, Body, Decision, Outcome};
use relive_journal::recovery::Recovery;
use relive_journal::{Durability, Health, Writer};

use crate::attention::{question, unseen as ended_unseen};
use crate::model::{Doing, Model, Slot};
use crate::support::{
    Fixture, approval, call_ended, call_started, collect_all, compacted, completed, doubt, input, kept, model_ended,
    model_started, moment, partial, paused, put_after, resolved, resumed, said, signal_mask, signalled, uuid_of,
    with_request,
};

/// A process, its writer if it has one, and a concurrent reader.
struct Process {
    model: Model,
    writer: Option<Writer>,
    reader: Reader,
    read: Vec<Cursor>,
}

struct World {
    fixture: Option<Fixture>,
    processes: BTreeMap<Uuid, Process>,
    collected: Vec<Uuid>,
    highest: Pid,
    inputs: usize,
}

impl World {
    fn fixture(&self) -> &Fixture {
        self.fixture.as_ref().unwrap()
    }

    fn add(&mut self, writer: Writer, mut model: Model) {
        let pid = writer.history().incarnation().unwrap().pid;
        self.took(pid);
        model.pids = vec![pid];
        let reader = Reader::new(writer.directory().steps(), Cursor::default());
        let process = Process { model, reader, read: Vec::new(), writer: Some(writer) };
        self.processes.insert(process.writer.as_ref().map(uuid_of).unwrap(), process);
    }

    fn took(&mut self, pid: Pid) {
        assert!(pid > self.highest, "{pid} after {}", self.highest);
        self.highest = pid;
    }

    /// Writes one record to a writable process; returns its number.
    fn write(&mut self, uuid: Uuid, body: Body, durability: Durability) -> u64 {
        let process = self.processes.get_mut(&uuid).unwrap();
        let writer = process.writer.as_mut().unwrap();
        writer.append(moment(), vec![body], durability).unwrap();
        writer.history().seq
    }

    fn model(&mut self, uuid: Uuid) -> &mut Model {
        &mut self.processes.get_mut(&uuid).unwrap().model
    }

    /// Writes the next record of a step.
    fn advance(&mut self, uuid: Uuid, choice: u8) {
        let write = |world: &mut Self, body| world.write(uuid, body, Durability::Synced);
        match self.model(uuid).doing.clone() {
            Doing::Nothing => {
                self.write(
                    uuid,
                    model_started(),
                    if choice.is_multiple_of(2) { Durability::Synced } else { Durability::Written },
                );
                self.model(uuid).ask();
            }
            Doing::Asking if choice.is_multiple_of(8) => {
                write(self, partial("cut off"));
                self.model(uuid).cut_off();
            }
            Doing::Asking => {
                let seq = write(self, model_ended("answer", u32::from(choice % 4)));
                self.model(uuid).answer(seq, usize::from(choice % 4));
            }
            Doing::Calling(calls) => {
                let call = calls.iter().position(|slot| !matches!(slot, Slot::Told(_))).unwrap();
                self.settle(uuid, call, &calls[call], choice);
            }
        }
    }

    fn settle(&mut self, uuid: Uuid, call: usize, slot: &Slot, choice: u8) {
        let number = u32::try_from(call).unwrap();
        let write = |world: &mut Self, body| world.write(uuid, body, Durability::Synced);
        match (slot, choice % 8) {
            (Slot::Waiting, 0) if choice < 128 => drop(write(self, approval(number, Decision::Asked))),
            (Slot::Waiting, 0) => {
                let is_open = self.model(uuid).question == Some((number, None));
                let answer = is_open.then(|| format!("answer {choice}"));
                let seq = write(self, question(number, answer.as_deref()));
                if is_open {
                    self.model(uuid).asked("answer", "question", seq);
                }
                self.model(uuid).question = Some((number, answer));
            }
            (Slot::Waiting, 1..7) => {
                write(self, call_started(number, Recovery::Join));
                self.model(uuid).start(call);
            }
            (Slot::Open, 0) => {
                let seq = write(self, doubt(number));
                self.model(uuid).doubt(seq, call);
            }
            (Slot::Open, 1..4) => {
                let outcome = [Outcome::Done, Outcome::NotDone, Outcome::Retry][usize::from(choice % 8) - 1];
                let seq = write(self, resolved(number, outcome));
                self.model(uuid).resolve(seq, call, outcome);
            }
            _ => {
                let seq = write(self, call_ended(number, "result"));
                self.model(uuid).settle(seq, call, true, "result");
            }
        }
    }

    fn compact(&mut self, uuid: Uuid, choice: u8) {
        let model = self.model(uuid).clone();
        if model.doing != Doing::Nothing {
            return;
        }
        let ends: Vec<u64> =
            model.steps.iter().map(|past| past.seq).filter(|seq| *seq > model.past.summed_up).collect();
        let Some(through) = ends.get(usize::from(choice) % ends.len().max(1)) else { return };
        let summary = format!("up to {through}");
        self.write(uuid, compacted(*through, &summary), Durability::Synced);
        self.model(uuid).sum_up(*through, &summary);
    }

    fn suspend_or_resume(&mut self, uuid: Uuid, choice: u8) {
        let reason = if choice.is_multiple_of(2) { SuspendReason::User } else { SuspendReason::DiskFull };
        let is_paused = self.model(uuid).paused.is_some();
        let body = if is_paused { resumed() } else { paused(reason) };
        self.request(uuid, body, choice);
        let model = self.model(uuid);
        if is_paused || reason == SuspendReason::User {
            model.land();
        }
        model.paused = if is_paused { None } else { Some(reason) };
    }

    /// Writes a record for one of a few request ids.
    fn request(&mut self, uuid: Uuid, body: Body, choice: u8) {
        let (id, kind) = (format!("request {}", choice % 100), body.kind());
        let seq = self.write(uuid, with_request(body, &id), Durability::Synced);
        self.model(uuid).asked(&id, kind, seq);
    }

    fn signal(&mut self, uuid: Uuid, choice: u8) {
        let signal = Signal::ALL[usize::from(choice / 2 % 5)];
        let ends = matches!(signal, Signal::Kill) || (choice.is_multiple_of(2) && signal.opposite().is_none());
        self.request(uuid, if ends { signalled(signal) } else { kept(signal) }, choice);
        if ends { self.model(uuid).tell_to_end(signal) } else { self.model(uuid).keep(signal) }
    }

    fn mask(&mut self, uuid: Uuid, choice: u8) {
        let some = |bits: u8| Signal::LANDING_ORDER.into_iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1);
        let signals = |bits| some(bits).map(|(_, signal)| signal).collect::<Vec<_>>();
        let (blocked, handled) = (signals(choice & 15), signals(choice >> 4));
        self.request(uuid, signal_mask(&blocked, &handled), choice);
        let model = self.model(uuid);
        // Signals that are no longer blocked were delivered.
        model.kept.retain(|signal| blocked.contains(signal));
        (model.blocked, model.handled) = (blocked, handled);
    }

    fn end(&mut self, uuid: Uuid, retire: bool, is_unseen: bool) {
        self.request(uuid, if is_unseen { ended_unseen() } else { completed() }, u8::from(retire));
        let process = self.processes.get_mut(&uuid).unwrap();
        process.model.end();
        process.model.unseen = is_unseen;
        let writer = process.writer.take().unwrap();
        if retire {
            self.fixture().data.retire(uuid, writer.history()).unwrap();
        }
    }

    /// A person says that they have seen how it ended, once or again.
    fn ack(&mut self, uuid: Uuid) {
        let history = self.fixture().data.ack_ended(uuid, Acked::default(), moment()).unwrap();
        assert!(!history.unseen);
        self.model(uuid).unseen = false;
    }

    fn resume(&mut self, uuid: Uuid, torn: bool) {
        self.processes.get_mut(&uuid).unwrap().writer = None;
        if torn {
            put_after(&self.fixture().data.directory(uuid).steps(), b"{\"v\":1,\"seq\":");
            self.read_along(uuid);
        }
        let writer = self.fixture().resume(uuid);
        let pid = writer.history().incarnation().unwrap().pid;
        self.took(pid);
        let process = self.processes.get_mut(&uuid).unwrap();
        process.writer = Some(writer);
        process.model.pids.push(pid);
        (process.model.ended, process.model.unseen) = (false, false);
    }

    fn fork(&mut self, uuid: Uuid, choice: u8) {
        let model = self.processes[&uuid].model.clone();
        let at = usize::from(choice) % (model.steps.len() + 1);
        // At its end, or at the end of some step.
        let (point, past) = match model.steps.get(at) {
            Some(past) => (ForkPoint::Step(past.step), past.clone()),
            None if model.doing == Doing::Nothing => (ForkPoint::End, model.past.clone()),
            None => (ForkPoint::End, model.asked.clone()),
        };
        let writer = self.fixture().fork(uuid, point).unwrap();
        let pid = writer.history().incarnation().unwrap().pid;
        self.add(writer, Model::fork(uuid, &past, &model.steps, pid));
    }

    fn collect(&mut self) {
        for uuid in collect_all(self.fixture()) {
            let process = self.processes.remove(&uuid).unwrap();
            assert!(process.model.ended);
            self.collected.push(uuid);
        }
    }

    fn restart(&mut self) {
        for process in self.processes.values_mut() {
            process.writer = None;
        }
        self.fixture = self.fixture.take().map(Fixture::reopen);
        let live: Vec<Uuid> = self.fixture().data.live().unwrap().iter().map(|live| live.uuid).collect();
        let expected = self.processes.iter().filter(|(_, process)| !process.model.ended).map(|(uuid, _)| *uuid);
        assert_eq!(live, expected.collect::<Vec<_>>());
    }

    fn read_along(&mut self, uuid: Uuid) {
        let process = self.processes.get_mut(&uuid).unwrap();
        while let Some(item) = process.reader.next_item().unwrap() {
            match item {
                Item::Record(entry) => process.read.push(entry.id),
                Item::Damaged { .. } => panic!("nothing is damaged"),
            }
        }
    }

    fn act(&mut self, (kind, which, choice): (u8, u8, u8)) {
        let uuids: Vec<Uuid> = self.processes.keys().copied().collect();
        if uuids.is_empty() || (kind == 0 && uuids.len() < 5) {
            let writer = self.fixture().spawn();
            let mut model = Model::default();
            model.input(writer.history().seq, "first");
            return self.add(writer, model);
        }
        let uuid = uuids[usize::from(which) % uuids.len()];
        let writable = self.processes[&uuid].writer.is_some();
        match kind {
            1..=14 if writable => self.advance(uuid, choice),
            15..=16 if writable => {
                self.inputs += 1;
                let id = format!("input {}", self.inputs);
                let seq = self.write(uuid, input(&id, "text"), Durability::Synced);
                self.model(uuid).input(seq, &id);
            }
            17 if writable => self.suspend_or_resume(uuid, choice),
            18 if writable => {
                let limits = Limits { max_steps: Some(u32::from(choice)), ..Limits::default() };
                self.request(uuid, Body::Limits(limits.into()), choice);
                self.model(uuid).past.limits = limits;
            }
            19 if writable => self.compact(uuid, choice),
            20 if writable => self.processes.get_mut(&uuid).unwrap().writer.as_mut().unwrap().checkpoint().unwrap(),
            21 if writable => self.end(uuid, choice % 4 > 0, choice >= 128),
            29..=30 if self.processes[&uuid].model.ended => self.ack(uuid),
            22 => self.fork(uuid, choice),
            23 => self.collect(),
            24 => self.restart(),
            25 => self.read_along(uuid),
            26..=27 if writable => self.signal(uuid, choice),
            28 if writable => self.mask(uuid, choice),
            _ => self.resume(uuid, choice % 4 == 0),
        }
        if let Some(process) = self.processes.get(&uuid) {
            self.check(uuid, process);
        }
    }

    fn check(&self, uuid: Uuid, process: &Process) {
        let fixture = self.fixture();
        let (history, health) = fixture.data.history(uuid).unwrap();
        assert_eq!(health, Health::Good);
        if let Some(writer) = &process.writer {
            assert_eq!(*writer.history(), history, "the running view and the recovered one");
        }
        process.model.check(&history, &said(&fixture.data, uuid, &history));
    }

    fn check_all(&mut self) {
        for uuid in self.processes.keys().copied().collect::<Vec<_>>() {
            self.read_along(uuid);
            let process = &self.processes[&uuid];
            self.check(uuid, process);
            let seqs: Vec<u64> = process.read.iter().map(|id| id.seq).collect();
            let last = self.fixture().history(uuid).seq;
            assert_eq!(seqs, (1..=last).collect::<Vec<_>>(), "each record once, in order");
            let lineage = self.fixture().data.lineage(uuid).unwrap();
            assert_eq!(lineage.first().map(|one| (one.uuid, one.step)), process.model.origin);
            for ancestor in lineage {
                assert_eq!(ancestor.gone, self.collected.contains(&ancestor.uuid));
            }
        }
        for uuid in &self.collected {
            assert!(matches!(self.fixture().data.known(*uuid).unwrap(), Known::Collected(_)));
        }
    }
}

#[test]
fn the_journal_agrees_with_the_model() {
    let acts = proptest::collection::vec((0..32_u8, any::<u8>(), any::<u8>()), 1..120);
    proptest!(crate::support::cases(64), |(acts in acts)| {
        let fixture = Some(Fixture::new());
        let (processes, collected) = (BTreeMap::new(), Vec::new());
        let mut world = World { fixture, processes, collected, highest: Pid(0), inputs: 0 };
        for act in acts {
            world.act(act);
        }
        world.check_all();
        world.restart();
        world.check_all();
    });
}
