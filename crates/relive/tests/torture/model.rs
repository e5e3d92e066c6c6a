//! What a process may do when it gets a verb: as small as it can be, and without a daemon.
//!
//! Everything that a verb leaves in the journal is an item; the model consumes them in their order.

use crate::verb::{Decision, Seen, Told, Verb};

/// What a journal says that somebody can have been promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Created,
    /// A message with this text.
    Heard(String),
    Asked,
    Answered(Decision),
    /// A question was answered with this text.
    Told(String),
    /// A signal was accepted. Older daemons record the end alone.
    Signalled,
    Ended,
    /// It runs again after its end.
    Revived,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Absent,
    Running,
    Suspended,
    /// A signal was accepted, and the end is not recorded yet.
    Ending,
    Ended,
}

/// A process, and how much of its journal is behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) life: Life,
    /// Whether a call waits for an answer.
    pub(crate) question: bool,
    /// Whether it was paused while it waits for an answer: it is suspended after that.
    pub(crate) kept: bool,
    /// Whether it is suspended only for a verb about files.
    pub(crate) for_files: bool,
    pub(crate) items: usize,
}

impl State {
    pub(crate) const FIRST: Self =
        Self { life: Life::Absent, question: false, kept: false, for_files: false, items: 0 };

    fn becomes(self, life: Life) -> Self {
        Self { life, kept: false, for_files: false, ..self }
    }

    /// With the next item behind it, if that is this one.
    fn consume(self, items: &[Item], item: &Item) -> Option<Self> {
        (items.get(self.items) == Some(item)).then_some(Self { items: self.items + 1, ..self })
    }

    /// Has its answer, and is suspended if it was paused meanwhile.
    fn answered(self) -> Self {
        let answered = Self { question: false, ..self };
        if self.kept { answered.becomes(Life::Suspended) } else { answered }
    }

    /// What a pause may make of one that asks: it has stopped for its question, or is about to.
    fn paused_while_it_asks(self) -> [Self; 2] {
        [Self { kept: true, ..self }, self.becomes(Life::Suspended)]
    }

    /// What it may do by itself.
    pub(crate) fn by_itself(self, items: &[Item]) -> Option<Self> {
        match (items.get(self.items)?, self.life) {
            (Item::Ended, Life::Ending) => Some(Self { items: self.items + 1, ..self.becomes(Life::Ended) }),
            // One that is on its way to its boundary may ask before it is there.
            (Item::Asked, Life::Running | Life::Suspended | Life::Ending) => {
                Some(Self { items: self.items + 1, question: true, ..self })
            }
            (
                Item::Created
                | Item::Heard(_)
                | Item::Asked
                | Item::Answered(_)
                | Item::Told(_)
                | Item::Signalled
                | Item::Ended
                | Item::Revived,
                _,
            ) => None,
        }
    }

    /// The states that a verb may lead to, if its client was told this.
    pub(crate) fn after(self, items: &[Item], verb: &Verb, told: &Told) -> Vec<Self> {
        match told {
            Told::Refused(status) if !self.may_refuse(verb, *status) => Vec::new(),
            Told::Refused(_) if matches!(verb, Verb::PutBack(_)) => self.paused_for_files(),
            Told::Refused(_) => vec![self],
            Told::Saw(seen) => self.looks_like(seen).then_some(self).into_iter().collect(),
            Told::Nothing | Told::Done { .. } => self.accepts(items, verb, told),
        }
    }

    fn accepts(self, items: &[Item], verb: &Verb, told: &Told) -> Vec<Self> {
        let one = |state: Option<Self>| state.into_iter().collect::<Vec<_>>();
        let if_told = |changed: bool, state: Option<Self>| one(state.filter(|_| told.fits(changed)));
        let hear = |state: Self, text: &String| state.consume(items, &Item::Heard(text.clone()));
        match (verb, self.life) {
            (Verb::Create | Verb::ForkOwn, Life::Absent) => {
                one(self.becomes(Life::Running).consume(items, &Item::Created))
            }
            (Verb::Create | Verb::ForkOwn | Verb::Look, _) | (_, Life::Absent) => Vec::new(),

            // Asked for again after a kill, it says only what the last attempt did.
            (Verb::PutBack(_), _) if *told == Told::Nothing => self.paused_for_files(),
            (Verb::PutBack(_), Life::Running) => vec![self, self.becomes(Life::Suspended)],
            (Verb::PutBack(_), _) => one(Some(self)),
            (Verb::ResumeAgain, _) => one(self.for_files.then(|| self.becomes(Life::Running))),
            (Verb::Merge, _) => one(Some(self)),
            // A run that has ended continues with it.
            (Verb::ResumeNode, Life::Ended) => if_told(true, self.revive(items)),
            (Verb::ResumeNode, _) => if_told(true, Some(self)),

            (Verb::Send(_), Life::Ended) => Vec::new(),
            (Verb::Send(text), Life::Running | Life::Suspended | Life::Ending) => one(hear(self, text)),

            (Verb::Pause, Life::Running) if self.kept => vec![self],
            (Verb::Pause, Life::Running) if self.question => {
                self.paused_while_it_asks().into_iter().filter(|_| told.fits(true)).collect()
            }
            (Verb::Pause, Life::Running) => if_told(true, Some(self.becomes(Life::Suspended))),
            (Verb::Pause, Life::Ended) => if_told(false, Some(self)),
            // One that is still on its way to its boundary may be told to hurry.
            (Verb::Pause, Life::Suspended | Life::Ending) => one(Some(self.becomes(self.life))),

            (Verb::Resume, Life::Running) if self.kept => if_told(true, Some(Self { kept: false, ..self })),
            (Verb::Resume, Life::Running) => if_told(false, Some(self)),
            (Verb::Resume, Life::Suspended) => if_told(true, Some(self.becomes(Life::Running))),
            (Verb::Resume, Life::Ended) => if_told(true, self.revive(items)),
            (Verb::Resume, Life::Ending) => one(Some(self)),

            (Verb::ResumeWith(text), Life::Running | Life::Ending) => one(hear(self, text)),
            (Verb::ResumeWith(text), Life::Suspended) => one(hear(self.becomes(Life::Running), text)),
            (Verb::ResumeWith(text), Life::Ended) => one(self.revive(items).and_then(|state| hear(state, text))),

            (Verb::Signal(_), Life::Running | Life::Suspended) => {
                let ending = self.becomes(Life::Ending);
                let recorded = ending.consume(items, &Item::Signalled);
                if told.fits(true) { [Some(ending), recorded].into_iter().flatten().collect() } else { Vec::new() }
            }
            (Verb::Signal(_), Life::Ending) => {
                [Some(self), self.consume(items, &Item::Signalled)].into_iter().flatten().collect()
            }
            (Verb::Signal(_), Life::Ended) => if_told(false, Some(self)),

            (Verb::Resolve(decision), Life::Running | Life::Suspended | Life::Ending)
                if self.question && told.fits(true) =>
            {
                one(self.answered().consume(items, &Item::Answered(*decision)))
            }
            (Verb::Resolve(_), _) => Vec::new(),
            (Verb::Answer(text), Life::Running | Life::Suspended | Life::Ending)
                if self.question && told.fits(true) =>
            {
                one(self.answered().consume(items, &Item::Told(text.clone())))
            }
            (Verb::Answer(_), _) => Vec::new(),

            (Verb::Ack, Life::Ended) => if_told(false, Some(self)),
            (Verb::Ack, _) => Vec::new(),
        }
    }

    /// What a verb about files that was not done may make of a process.
    fn paused_for_files(self) -> Vec<Self> {
        match self.life {
            Life::Running => vec![self, Self { for_files: true, ..self.becomes(Life::Suspended) }],
            Life::Absent | Life::Suspended | Life::Ending | Life::Ended => vec![self],
        }
    }

    fn revive(self, items: &[Item]) -> Option<Self> {
        self.becomes(Life::Running).consume(items, &Item::Revived)
    }

    /// Whether a verb may be refused so, which changes nothing.
    fn may_refuse(self, verb: &Verb, status: u16) -> bool {
        match (verb, status) {
            // There is no room, or the daemon is about to go.
            (_, 429 | 503) => true,
            (_, 404) => self.life == Life::Absent,
            // The files of the step are not known, or its origin was resumed and completed another one meanwhile.
            (Verb::ForkOwn, 409) => self.life == Life::Absent,
            (_, 409) if self.life == Life::Absent => false,
            // They are not known, are somebody else's, or a command is in the middle of its work.
            (Verb::PutBack(_), 409) => true,
            // It has no workspace of its own, or nobody knows where its work began.
            (Verb::Merge, 400 | 409) => self.life != Life::Absent,
            // Its node runs, has never run, or nobody schedules now; or it is a supervisor.
            (Verb::ResumeNode, 400 | 409) => self.life != Life::Absent,
            (Verb::Send(_), 409) => matches!(self.life, Life::Ending | Life::Ended),
            (Verb::Resume | Verb::ResumeWith(_), 409) => {
                self.life == Life::Ending || self.life == Life::Running && self.question && !self.kept
            }
            (Verb::Resolve(_) | Verb::Answer(_), 409) => true,
            (Verb::Ack, 409) => self.life != Life::Ended,
            (_, _) => false,
        }
    }

    fn looks_like(self, seen: &Seen) -> bool {
        match seen {
            Seen::Absent => self.life == Life::Absent,
            Seen::Running => matches!(self.life, Life::Running | Life::Ending),
            Seen::Asking => self.question && matches!(self.life, Life::Running | Life::Ending),
            Seen::Suspended => matches!(self.life, Life::Suspended | Life::Ending),
            Seen::Dead => self.life == Life::Ended,
            Seen::Other(_) => false,
        }
    }

    /// Whether it is at rest, and is what was seen.
    pub(crate) fn ends_as(self, seen: &Seen) -> bool {
        self.life != Life::Ending && self.looks_like(seen)
    }
}
