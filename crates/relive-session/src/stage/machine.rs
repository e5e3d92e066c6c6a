//! The facts of a session, and their consequences.
//!
//! **Invariant:** facts are only added; at most one event is terminal, and none is accepted after it; the stage alone
//! determines the answer to a verb, in the order *ended*, *wrong stage*, *act*.

use super::{Failure, Mode, SessionResult, Snapshot, Stage};
use crate::protocol::Verb;
use crate::spec::Gate;

/// How many signals are kept for a program that does not run yet.
pub const KEPT_SIGNALS_MAX: usize = 64;

/// The facts of a session.
#[derive(Debug, Clone)]
pub struct Session {
    mode: Mode,
    gate: Gate,
    pty: bool,
    host_pid: Option<i32>,
    init_pid: Option<i32>,
    child_pid: Option<i32>,
    opened: bool,
    executed: bool,
    result: Option<SessionResult>,
    aborting: bool,
    kill_kept: bool,
    signals: Vec<i32>,
}

/// An event in the life of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The child was cloned.
    Spawned { host_pid: i32 },
    /// The child is an init, and this is the program below it.
    BelowInit { host_pid: i32 },
    /// The child waits at the gate.
    Ready {
        /// The pid in its own namespace.
        child_pid: i32,
    },
    /// The gate was opened: from here on the program may run.
    Opened,
    /// The program runs, which was verified.
    Executed,
    /// The child ended.
    Ended(End),
    /// It could not be started.
    Failed(Failure),
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// The consequence of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Open the gate.
    OpenGate,
    /// End the child at the gate.
    Abort,
    /// End the whole tree.
    Kill,
    /// Send a kept signal.
    Signal(i32),
}

/// The answer to a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Act,
    /// It will be done when its stage is reached.
    Kept,
    /// The program has ended.
    NoProcess,
    WrongStage(String),
}

/// An event that is impossible in this stage: it is ignored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a session that is {}", stage.name())]
pub struct Rejected {
    pub event: Event,
    pub stage: Stage,
}

impl Session {
    /// Returns a session without any facts.
    #[must_use]
    pub fn new(gate: Gate, pty: bool) -> Self {
        Self {
            mode: Mode::Spawn,
            gate,
            pty,
            host_pid: None,
            init_pid: None,
            child_pid: None,
            opened: false,
            executed: false,
            result: None,
            aborting: false,
            kill_kept: false,
            signals: Vec::new(),
        }
    }

    /// Returns it as one that enters another session.
    #[must_use]
    pub fn entering(self) -> Self {
        Self { mode: Mode::Enter, ..self }
    }

    #[must_use]
    pub fn stage(&self) -> Stage {
        match &self.result {
            Some(SessionResult::Exited(_)) => Stage::Exited,
            Some(SessionResult::Signaled(_)) => Stage::Signaled,
            Some(SessionResult::Aborted) => Stage::Aborted,
            Some(SessionResult::Error(_)) => Stage::Errored,
            None if self.executed => Stage::Running,
            None if self.child_pid.is_some() => Stage::Ready,
            None if self.host_pid.is_some() => Stage::Spawned,
            None => Stage::Starting,
        }
    }

    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            mode: self.mode,
            stage: self.stage(),
            host_pid: self.host_pid,
            child_pid: self.child_pid,
            init_pid: self.init_pid,
            pty: self.pty,
            result: self.result.clone(),
        }
    }

    /// Returns whether the program may run: the gate has been opened.
    #[must_use]
    pub fn is_opened(&self) -> bool {
        self.opened
    }

    #[must_use]
    pub fn result(&self) -> Option<&SessionResult> {
        self.result.as_ref()
    }

    /// Applies an event; returns its consequences, in order.
    pub fn apply(&mut self, event: Event) -> Result<Vec<Due>, Rejected> {
        let stage = self.stage();
        match (&event, stage) {
            (Event::Spawned { host_pid }, Stage::Starting) => {
                self.host_pid = Some(*host_pid);
                Ok(if self.kill_kept { vec![Due::Kill] } else { Vec::new() })
            }
            (Event::BelowInit { host_pid }, Stage::Spawned) if self.init_pid.is_none() => {
                self.init_pid = self.host_pid.replace(*host_pid);
                Ok(Vec::new())
            }
            (Event::Ready { child_pid }, Stage::Spawned) => {
                self.child_pid = Some(*child_pid);
                Ok(match self.gate {
                    _ if self.aborting => vec![Due::Abort],
                    Gate::Open => vec![Due::OpenGate],
                    Gate::Closed => Vec::new(),
                })
            }
            (Event::Opened, Stage::Ready) if !self.opened && !self.aborting => {
                self.opened = true;
                Ok(Vec::new())
            }
            (Event::Executed, Stage::Ready) if self.opened => {
                self.executed = true;
                Ok(std::mem::take(&mut self.signals).into_iter().map(Due::Signal).collect())
            }
            (Event::Ended(end), Stage::Spawned | Stage::Ready | Stage::Running) => {
                self.result = Some(match end {
                    _ if self.aborting => SessionResult::Aborted,
                    End::Exited(code) => SessionResult::Exited(*code),
                    End::Signaled(number) => SessionResult::Signaled(*number),
                });
                Ok(Vec::new())
            }
            (Event::Failed(failure), Stage::Starting | Stage::Spawned | Stage::Ready) => {
                self.result = Some(SessionResult::Error(failure.clone()));
                Ok(Vec::new())
            }
            (
                Event::Spawned { .. }
                | Event::BelowInit { .. }
                | Event::Ready { .. }
                | Event::Opened
                | Event::Executed
                | Event::Ended(_)
                | Event::Failed(_),
                _,
            ) => Err(Rejected { event, stage }),
        }
    }

    /// Answers a verb, and keeps it if necessary.
    pub fn ask(&mut self, verb: &Verb) -> Answer {
        let stage = self.stage();
        match verb {
            Verb::Attach
            | Verb::Hold { .. }
            | Verb::StartDaemon
            | Verb::Deadline { .. }
            | Verb::Stat
            | Verb::Store { .. }
            | Verb::Return { .. } => Answer::Act,
            _ if stage.is_terminal() => Answer::NoProcess,
            Verb::Proceed => self.ask_proceed(stage),
            Verb::Abort { .. } => self.ask_abort(stage),
            Verb::Signal { number, .. } => self.ask_signal(*number, stage),
            Verb::Kill if stage == Stage::Starting => {
                self.kill_kept = true;
                Answer::Kept
            }
            Verb::Kill => Answer::Act,
            Verb::Resize(_) if !self.pty => Answer::WrongStage("it has no terminal to resize".into()),
            Verb::CloseOutput { .. } if self.pty => Answer::WrongStage("its output is a terminal, not a pipe".into()),
            Verb::Freeze
            | Verb::Thaw
            | Verb::Write { .. }
            | Verb::CloseInput
            | Verb::CloseOutput { .. }
            | Verb::Resize(_) => {
                if stage == Stage::Starting {
                    Answer::WrongStage(format!("{}: there is no program yet", verb.name()))
                } else {
                    Answer::Act
                }
            }
        }
    }

    fn ask_proceed(&mut self, stage: Stage) -> Answer {
        match stage {
            Stage::Starting | Stage::Spawned | Stage::Ready if self.aborting => {
                Answer::WrongStage("it is being aborted".into())
            }
            Stage::Ready if self.opened => Answer::WrongStage("its gate is open already".into()),
            Stage::Ready => Answer::Act,
            Stage::Starting | Stage::Spawned => match self.gate {
                Gate::Open => Answer::WrongStage("its gate is open already".into()),
                Gate::Closed => {
                    self.gate = Gate::Open;
                    Answer::Kept
                }
            },
            Stage::Running => Answer::WrongStage("it is running, and does not wait at its gate".into()),
            Stage::Exited | Stage::Signaled | Stage::Aborted | Stage::Errored => Answer::NoProcess,
        }
    }

    fn ask_abort(&mut self, stage: Stage) -> Answer {
        match stage {
            Stage::Starting | Stage::Spawned => {
                self.aborting = true;
                Answer::Kept
            }
            Stage::Ready if self.opened => Answer::WrongStage("its gate is open already: kill it instead".into()),
            Stage::Ready => {
                self.aborting = true;
                Answer::Act
            }
            Stage::Running => Answer::WrongStage("it is running, so it cannot be aborted: kill it instead".into()),
            Stage::Exited | Stage::Signaled | Stage::Aborted | Stage::Errored => Answer::NoProcess,
        }
    }

    fn ask_signal(&mut self, number: i32, stage: Stage) -> Answer {
        match stage {
            Stage::Running => Answer::Act,
            Stage::Spawned | Stage::Ready if number == libc::SIGKILL => Answer::Act,
            Stage::Starting if number == libc::SIGKILL => {
                self.kill_kept = true;
                Answer::Kept
            }
            Stage::Starting | Stage::Spawned | Stage::Ready if self.signals.len() >= KEPT_SIGNALS_MAX => {
                Answer::WrongStage(format!("{KEPT_SIGNALS_MAX} signals already wait for the program to run"))
            }
            Stage::Starting | Stage::Spawned | Stage::Ready => {
                self.signals.push(number);
                Answer::Kept
            }
            Stage::Exited | Stage::Signaled | Stage::Aborted | Stage::Errored => Answer::NoProcess,
        }
    }
}
