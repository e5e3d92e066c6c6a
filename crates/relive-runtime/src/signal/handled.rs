//! Signals that a process handles itself: which, and how it gets them.
//!
//! An agent gets a message. A program gets the operating system's signal, or runs a command of its own: it follows its
//! journal, so the record is the delivery, and is there once whatever happens to the daemon.

use std::sync::Arc;

use relive_api::SignalMaskRequest;
use relive_core::{ErrorCode, Event, Incarnation, Signal, SignalSet};
use relive_journal::record::{Body, Input, SignalCommand, SignalMask};

use super::parse;
use crate::error::{Error, Result};
use crate::owner::{Change, Turn};
use crate::runtime::Runtime;

/// What a process is to do with signals from now on.
pub(super) struct WantedSignals {
    blocked: Option<SignalSet>,
    block: SignalSet,
    unblock: SignalSet,
    handled: Option<SignalSet>,
    on: Option<SignalCommand>,
    off: SignalSet,
}

impl WantedSignals {
    pub(super) fn parse(request: &SignalMaskRequest) -> Result<Self> {
        let SignalMaskRequest { blocked, block, unblock, handled, on, off } = request;
        let command = |on: &relive_api::OnSignal| -> Result<SignalCommand> {
            Ok(SignalCommand { signal: blockable(&on.signal)?, id: on.id })
        };
        Ok(Self {
            blocked: blocked.as_deref().map(all_blockable).transpose()?,
            block: all_blockable(block)?,
            unblock: all_blockable(unblock)?,
            handled: handled.as_deref().map(all_blockable).transpose()?,
            on: on.as_ref().map(command).transpose()?,
            off: all_blockable(off)?,
        })
    }

    pub(super) fn apply(self, change: &mut Change, runtime: &Runtime) -> Result<()> {
        let Self { blocked, block, unblock, handled, on, off } = self;
        let pid = change.draft().incarnation().pid;
        let hears = |on: &SignalCommand| runtime.body_of(pid)?.message_for(on.signal);
        if let Some(on) = on
            && hears(&on).is_some()
        {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!(
                    "PID {pid} is an agent, and its commands end before it does: it hears of {} as a message",
                    on.signal
                ),
            )
            .with_hint(format!("relive signals {pid} --handle {}", on.signal)));
        }
        let before = change.draft().handlers();
        let handled = handled.unwrap_or(before);
        let is_left = |signal: &Signal| handled.contains(*signal) && !off.contains(*signal);
        let handled: SignalSet = Signal::LANDING_ORDER.into_iter().filter(is_left).collect();
        let handled = on.map_or(handled, |on| handled.with(on.signal));
        if handled != before {
            change.apply(Event::SetHandlers(handled), runtime)?;
        }
        if blocked.is_some() || !block.is_empty() || !unblock.is_empty() {
            let blocked = blocked.unwrap_or(change.draft().mask());
            let is_left =
                |signal: &Signal| (blocked.contains(*signal) || block.contains(*signal)) && !unblock.contains(*signal);
            let blocked = Signal::LANDING_ORDER.into_iter().filter(is_left).collect();
            change.apply(Event::SetMask(blocked), runtime)?;
        }
        if on.is_some() {
            let (blocked, req) = (change.draft().mask(), change.details.request.clone());
            change.last.push(Body::SignalMask(SignalMask { blocked, handled, on, delivered: None, req }));
        }
        Ok(())
    }
}

impl Turn {
    /// Records the signals that a process handles itself.
    pub(super) fn record_handled(&self, change: &mut Change, handled: &[Signal]) -> Vec<String> {
        let machine = change.draft();
        let (pid, blocked, handlers) = (machine.incarnation().pid, machine.mask(), machine.handlers());
        let Some(body) = self.runtime.body_of(pid) else { return Vec::new() };
        let mut texts = Vec::new();
        for signal in handled {
            let req = change.details.request.clone();
            match body.message_for(*signal) {
                Some(text) => {
                    let id = req.unwrap_or_else(|| format!("signal-{}", self.runtime.clock.new_uuid()));
                    change.last.push(Body::Input(Input { id, from: None, text: text.into() }));
                    texts.push(text.to_owned());
                }
                // The process decides what to do with the signal.
                None => {
                    let delivered = Some(*signal);
                    let mask = SignalMask { blocked, handled: handlers, on: None, delivered, req };
                    change.last.push(Body::SignalMask(mask));
                }
            }
        }
        texts
    }

    /// Passes signals on to a program that handles them, after they are recorded and outside the turn.
    pub(super) fn pass_on(&self, of: Incarnation, handled: Vec<Signal>) {
        let session = self.owner.session().and_then(|session| session.borrow().clone());
        let (runtime, Some(session)) = (Arc::clone(&self.runtime), session) else { return };
        tokio::spawn(async move {
            for signal in handled {
                let Some(body) = runtime.body_of(of.pid) else { return };
                body.pass_on(signal, session.clone()).await;
            }
        });
    }
}

/// Parses signals, none of which may be KILL.
fn all_blockable(names: &[String]) -> Result<SignalSet> {
    names.iter().map(|name| blockable(name)).collect()
}

fn blockable(name: &str) -> Result<Signal> {
    match parse(name)? {
        Signal::Kill => Err(Error::new(ErrorCode::Invalid, "SIGKILL can be neither blocked nor handled")),
        signal @ (Signal::Term | Signal::Int | Signal::Pause | Signal::Resume) => Ok(signal),
    }
}
