//! A simple model of a process, written independently of the crate. See `random.rs`.

use relive_core::{Limits, Pid, Signal, SuspendReason, Uuid};
use relive_journal::conversation::{TOLD_DONE, TOLD_IN_DOUBT, TOLD_NOT_DONE, TOLD_PENDING};
use relive_journal::history::{AnsweredRequest, Asked};
use relive_journal::record::Outcome;
use relive_journal::{History, Next};

/// The state of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Slot {
    Waiting,
    Open,
    Told(String),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Doing {
    #[default]
    Nothing,
    Asking,
    Calling(Vec<Slot>),
}

/// A message: the record it comes from, and its text as `support::said` gives it.
type Said = (u64, String);

/// The part of a process that a fork inherits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Past {
    pub(crate) step: u32,
    pub(crate) seq: u64,
    pub(crate) said: Vec<Said>,
    pub(crate) answered: bool,
    pub(crate) ever_asked: bool,
    pub(crate) limits: Limits,
    pub(crate) summed_up: u64,
    pub(crate) summary: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) origin: Option<(Uuid, u32)>,
    pub(crate) pids: Vec<Pid>,
    pub(crate) past: Past,
    /// At the end of each step; at the first model call for 0.
    pub(crate) steps: Vec<Past>,
    /// At the last model call.
    pub(crate) asked: Past,
    pub(crate) doing: Doing,
    /// Messages since the model was asked, or since its answer while calls are not settled.
    pub(crate) later: Vec<Said>,
    pub(crate) tokens: (u64, u64),
    pub(crate) paused: Option<SuspendReason>,
    pub(crate) ending: Option<Signal>,
    pub(crate) kept: Vec<Signal>,
    pub(crate) blocked: Vec<Signal>,
    pub(crate) handled: Vec<Signal>,
    /// Request ids, each with the kind and the number of the first record that has it.
    pub(crate) requests: Vec<(String, &'static str, u64)>,
    pub(crate) ended: bool,
    /// Whether a person has to be told of the end.
    pub(crate) unseen: bool,
    /// The last question of this step, by its call, with the answer.
    pub(crate) question: Option<(u32, Option<String>)>,
}

impl Model {
    pub(crate) fn asked(&mut self, id: &str, kind: &'static str, seq: u64) {
        if self.requests.iter().all(|(known, ..)| known != id) {
            self.requests.push((id.to_owned(), kind, seq));
        }
    }

    pub(crate) fn tell_to_end(&mut self, signal: Signal) {
        self.kept.retain(|kept| *kept != signal);
        let weaker: &[Option<Signal>] = match signal {
            Signal::Kill => &[None, Some(Signal::Int), Some(Signal::Term)],
            Signal::Term => &[None, Some(Signal::Int)],
            Signal::Int | Signal::Pause | Signal::Resume => &[None],
        };
        if weaker.contains(&self.ending) {
            self.ending = Some(signal);
        }
    }

    pub(crate) fn keep(&mut self, signal: Signal) {
        let cancels = match signal {
            Signal::Pause => Some(Signal::Resume),
            Signal::Resume => Some(Signal::Pause),
            Signal::Term | Signal::Kill | Signal::Int => None,
        };
        if let Some(at) = self.kept.iter().position(|kept| Some(*kept) == cancels) {
            self.kept.remove(at);
        } else if !self.kept.contains(&signal) {
            self.kept.push(signal);
        }
    }

    /// Removes pending PAUSE and RESUME signals, because one took effect.
    pub(crate) fn land(&mut self) {
        self.kept.retain(|kept| !matches!(kept, Signal::Pause | Signal::Resume));
    }

    pub(crate) fn end(&mut self) {
        (self.ended, self.paused, self.ending) = (true, None, None);
        self.kept.clear();
        self.blocked.clear();
        self.handled.clear();
    }

    pub(crate) fn input(&mut self, seq: u64, id: &str) {
        self.asked(id, "input", seq);
        self.past.answered = false;
        let said = (seq, format!("user {id}"));
        if self.doing == Doing::Nothing { self.past.said.push(said) } else { self.later.push(said) }
    }

    pub(crate) fn ask(&mut self) {
        if self.doing == Doing::Asking {
            self.tokens.0 += 100;
        }
        self.past.said.append(&mut self.later);
        if self.steps.is_empty() {
            self.steps.push(self.past.clone());
        }
        self.asked = self.past.clone();
        self.past.ever_asked = true;
        self.question = None;
        self.doing = Doing::Asking;
    }

    pub(crate) fn cut_off(&mut self) {
        self.tokens = (self.tokens.0 + 10, self.tokens.1 + 1);
        self.past.said.append(&mut self.later);
        self.doing = Doing::Nothing;
    }

    pub(crate) fn answer(&mut self, seq: u64, calls: usize) {
        self.tokens = (self.tokens.0 + 10, self.tokens.1 + 5);
        self.past.said.push((seq, format!("model {} {calls}", self.past.step + 1)));
        self.past.answered = calls == 0 && self.later.is_empty();
        self.doing = Doing::Calling(vec![Slot::Waiting; calls]);
        self.finish_if_settled(seq);
    }

    pub(crate) fn start(&mut self, call: usize) {
        if let Doing::Calling(calls) = &mut self.doing {
            calls[call] = Slot::Open;
        }
    }

    pub(crate) fn settle(&mut self, seq: u64, call: usize, ok: bool, told: &str) {
        let head: String = told.chars().take(40).collect();
        let told = format!("tool {} {call} {ok} {head}", self.past.step + 1);
        if let Doing::Calling(calls) = &mut self.doing {
            calls[call] = Slot::Told(told);
        }
        self.finish_if_settled(seq);
    }

    pub(crate) fn doubt(&mut self, seq: u64, call: usize) {
        self.settle(seq, call, false, TOLD_IN_DOUBT);
    }

    pub(crate) fn resolve(&mut self, seq: u64, call: usize, outcome: Outcome) {
        match outcome {
            Outcome::Done => self.settle(seq, call, true, TOLD_DONE),
            Outcome::NotDone => self.settle(seq, call, false, TOLD_NOT_DONE),
            Outcome::Retry => {
                if let Doing::Calling(calls) = &mut self.doing {
                    calls[call] = Slot::Waiting;
                }
            }
        }
    }

    fn finish_if_settled(&mut self, seq: u64) {
        let Doing::Calling(calls) = &self.doing else { return };
        if !calls.iter().all(|slot| matches!(slot, Slot::Told(_))) {
            return;
        }
        let told = results(calls, self.past.step + 1);
        self.past.said.extend(told.into_iter().map(|told| (seq, told)));
        self.past.said.append(&mut self.later);
        self.past.step += 1;
        self.past.seq = seq;
        self.doing = Doing::Nothing;
        if self.steps.is_empty() {
            self.steps.push(Past::default());
        }
        self.steps.truncate(self.past.step as usize);
        self.steps.push(self.past.clone());
    }

    pub(crate) fn sum_up(&mut self, through: u64, summary: &str) {
        self.past.said.retain(|(seq, _)| *seq > through);
        self.past.summed_up = through;
        self.past.summary = Some(format!("summary {summary}"));
    }

    /// Returns the process that a fork from `past` creates.
    pub(crate) fn fork(origin: Uuid, past: &Past, steps: &[Past], pid: Pid) -> Self {
        let shared = if past.ever_asked { past.step as usize + 1 } else { 0 };
        let steps = steps.iter().take(shared).cloned().collect();
        let origin = Some((origin, past.step));
        Self { origin, pids: vec![pid], past: past.clone(), steps, ..Self::default() }
    }

    /// Compares the model with the state from the crate.
    pub(crate) fn check(&self, history: &History, said: &[String]) {
        let calls: Vec<&Slot> = match &self.doing {
            Doing::Calling(calls) => calls.iter().collect(),
            Doing::Nothing | Doing::Asking => Vec::new(),
        };
        let mut expected: Vec<String> = self.past.summary.iter().cloned().collect();
        expected.extend(self.past.said.iter().map(|(_, text)| text.clone()));
        if let Doing::Calling(calls) = &self.doing {
            expected.extend(results(calls, self.past.step + 1));
        }
        expected.extend(self.later.iter().map(|(_, text)| text.clone()));
        assert_eq!(said, expected);
        assert_eq!(history.completed_step, self.past.step);
        assert_eq!((history.spent.tokens_in, history.spent.tokens_out), self.tokens);
        assert_eq!(history.paused.as_ref().map(|paused| paused.reason), self.paused);
        assert_eq!(history.ended().is_some(), self.ended);
        assert_eq!(history.unseen, self.unseen);
        for call in 0..4 {
            let expected = match self.question.as_ref().filter(|(asked, _)| *asked == call) {
                None => Asked::NotYet,
                Some((_, None)) => Asked::Waits,
                Some((_, Some(answer))) => Asked::Answered(answer.clone()),
            };
            assert_eq!(history.asked(call), expected, "call {call}");
        }
        assert_eq!(history.ending.as_ref().map(|ending| ending.signal), self.ending);
        assert_eq!(history.pending.iter().map(|(signal, _)| *signal).collect::<Vec<_>>(), self.kept);
        assert_eq!(history.mask, self.blocked.iter().copied().collect());
        assert_eq!(history.handlers, self.handled.iter().copied().collect());
        let (gone, known) = self.requests.split_at(self.requests.len().saturating_sub(64));
        for (id, kind, seq) in known {
            assert_eq!(history.request(id), Some(AnsweredRequest { kind, seq: *seq }), "{id}");
        }
        assert!(gone.iter().all(|(id, ..)| history.request(id).is_none()));
        assert_eq!(history.limits, self.past.limits);
        assert_eq!(history.incarnations.iter().map(|one| one.pid).collect::<Vec<_>>(), self.pids);
        let open: Vec<usize> = (0..calls.len()).filter(|call| *calls[*call] == Slot::Open).collect();
        let found: Vec<usize> = history.open_calls().map(|open| open.call as usize).collect();
        assert_eq!(found, open);
        let origin = history.identity.as_ref().unwrap().spawned.origin.map(|origin| (origin.uuid, origin.step));
        assert_eq!(origin, self.origin);
        let step = self.past.step + 1;
        let next = match &self.doing {
            Doing::Nothing if self.past.answered => Next::Input,
            Doing::Nothing => Next::Ask { step, again: false },
            Doing::Asking => Next::Ask { step, again: true },
            Doing::Calling(calls) => {
                let call = calls.iter().position(|slot| !matches!(slot, Slot::Told(_))).unwrap();
                Next::Calls { step, call: u32::try_from(call).unwrap() }
            }
        };
        assert_eq!(history.plan().next, next);
    }
}

/// Returns the result of each call, or its placeholder.
fn results(calls: &[Slot], step: u32) -> Vec<String> {
    let each = |(call, slot): (usize, &Slot)| match slot {
        Slot::Told(told) => told.clone(),
        Slot::Waiting | Slot::Open => format!("tool {step} {call} false {TOLD_PENDING}"),
    };
    calls.iter().enumerate().map(each).collect()
}
