//! The state of a CLI agent, as its records give it.

use relive_core::Timestamp;
use relive_types::CliAgent;
use serde::{Deserialize, Serialize};

use super::History;
use crate::record::{CliCapabilities, CliGateway, CliRead, CliRecord, CliTurn, CliTurnState, Record};

/// The number of remembered launches: more than can be repeated within the time that counts.
const LAUNCHES_MAX: usize = 8;

/// The state of a CLI agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliFacts {
    pub agent: CliAgent,
    /// The CLI's own name of its conversation, once it has one.
    pub session_id: Option<String>,
    /// The conversation that this one was forked from, by the CLI's name.
    pub origin_session: Option<String>,
    /// The model that the CLI uses, as far as it says so.
    pub model: Option<String>,
    /// The last turn.
    pub turn: Option<CliTurn>,
    /// The last message that its program began to answer, by its record.
    pub heard: u64,
    pub reported: (u64, u64),
    pub read: Option<CliRead>,
    /// When its program was started, the last ones.
    pub launches: Vec<Timestamp>,
    /// Where its program finds the gateway, if its model calls go through it.
    #[serde(default)]
    pub gateway: Option<CliGateway>,
    /// The calls in the gateway's log up to here are recorded.
    #[serde(default)]
    pub called_to: u64,
    /// The number of calls.
    #[serde(default)]
    pub calls: u64,
    /// Whether the last call was refused, because nothing was left to spend.
    #[serde(default)]
    pub is_refused: bool,
    /// The last message, by its record.
    #[serde(default)]
    pub last_input: u64,
    /// The last session whose program crashed and was replaced.
    #[serde(default)]
    pub crashed: Option<CrashedSession>,
    /// When programs that had crashed were replaced, the last ones.
    #[serde(default)]
    pub restarts: Vec<Timestamp>,
    /// What the agent can do with conversations, if it says so.
    #[serde(default)]
    pub capabilities: Option<CliCapabilities>,
    /// Whether it waits for a place in the pool.
    #[serde(default)]
    pub is_queued: bool,
    /// When its last pause ended. It was silent until then because it was frozen.
    #[serde(default)]
    pub resumed_at: Option<Timestamp>,
}

/// A session whose program crashed and was replaced in the same run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashedSession {
    /// The number of the session.
    pub session: u32,
    /// The generation that replaced the program.
    pub generation: u32,
}

impl CliFacts {
    /// Returns whether a turn was begun and has not ended.
    #[must_use]
    pub fn is_turn_open(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.state == CliTurnState::Open)
    }

    /// Returns whether there is a message that no program has begun to answer.
    #[must_use]
    pub fn has_unheard(&self) -> bool {
        self.last_input > self.heard
    }

    /// Returns the last session that belongs to a run before this one, or whose program crashed. `ended` is the last
    /// generation that has ended.
    #[must_use]
    pub fn last_session_before(&self, ended: u32) -> u32 {
        match self.crashed {
            // The program that replaced it was of the same run, which is over.
            Some(crashed) if crashed.generation <= ended => ended.max(crashed.session.saturating_add(1)),
            Some(crashed) => ended.max(crashed.session),
            None => ended,
        }
    }
}

impl History {
    pub(super) fn take_cli_record(&mut self, record: &Record, cli: &CliRecord) {
        self.take_cli(record.at, cli);
        match cli.queued {
            Some(true) => self.stop_time(record.up),
            Some(false) => self.start_time(record.up),
            None => {}
        }
    }

    fn take_cli(&mut self, at: Timestamp, record: &CliRecord) {
        if let Some(agent) = &record.agent {
            self.cli = Some(Box::new(CliFacts {
                agent: (**agent).clone(),
                session_id: None,
                origin_session: None,
                model: None,
                turn: None,
                heard: 0,
                reported: (0, 0),
                read: None,
                launches: Vec::new(),
                gateway: None,
                called_to: 0,
                calls: 0,
                is_refused: false,
                // Every process begins with a message, whose record comes before this one.
                last_input: 1,
                crashed: None,
                restarts: Vec::new(),
                capabilities: None,
                is_queued: false,
                resumed_at: None,
            }));
        }
        let generation = self.epoch.0;
        let Some(facts) = &mut self.cli else { return };
        if let Some(session) = record.crashed {
            facts.crashed = Some(CrashedSession { session, generation });
            if facts.restarts.len() == LAUNCHES_MAX {
                facts.restarts.remove(0);
            }
            facts.restarts.push(at);
        }
        if let Some(launched) = &record.launched {
            facts.gateway.clone_from(&launched.gateway);
            if facts.launches.len() == LAUNCHES_MAX {
                facts.launches.remove(0);
            }
            facts.launches.push(at);
        }
        if let Some(session) = &record.session {
            facts.session_id = Some(session.id.clone());
            facts.model = session.model.clone().or(facts.model.take());
        }
        if let Some(turn) = &record.turn {
            facts.heard = turn.input.map_or(facts.heard, |input| input.max(facts.heard));
            facts.reported = turn.reported.unwrap_or(facts.reported);
            facts.turn = Some(turn.clone());
        }
        facts.is_queued = record.queued.unwrap_or(facts.is_queued);
        facts.read = record.read.or(facts.read);
        facts.capabilities = record.capabilities.or(facts.capabilities);
        if let Some(call) = &record.call {
            facts.called_to = facts.called_to.max(call.offset);
            facts.calls += u64::from(call.refused.is_none());
            facts.is_refused = call.refused.is_some();
            self.spend_on(at, &call.model, call.usage);
        }
    }

    /// A fork begins with a copy of the conversation of its original, and has heard all that the original was told.
    pub(super) fn fork_cli(&mut self, seq: u64) {
        let Some(facts) = &mut self.cli else { return };
        facts.origin_session = facts.session_id.take().or(facts.origin_session.take());
        (facts.turn, facts.read, facts.heard) = (None, None, seq);
        facts.launches.clear();
        facts.restarts.clear();
        (facts.crashed, facts.is_queued, facts.resumed_at) = (None, false, None);
        (facts.gateway, facts.called_to, facts.calls) = (None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_of_crashed_programs_and_of_earlier_runs_are_passed() {
        let check = |crashed: Option<(u32, u32)>, ended, expect| {
            let mut history = History::default();
            let agent = Some(Box::new(CliAgent::default()));
            history.take_cli(Timestamp::UNIX_EPOCH, &CliRecord { agent, ..CliRecord::default() });
            if let Some((session, generation)) = crashed {
                history.epoch = relive_core::Generation(generation);
                let record = CliRecord { crashed: Some(session), ..CliRecord::default() };
                history.take_cli(Timestamp::UNIX_EPOCH, &record);
            }
            let facts = history.cli.unwrap();
            assert_eq!(facts.last_session_before(ended), expect, "{crashed:?} {ended}");
            assert_eq!(facts.restarts.len(), usize::from(crashed.is_some()));
        };
        // Nothing crashed: sessions have the numbers of their generations.
        check(None, 0, 0);
        check(None, 4, 4);
        // Session 1 crashed in generation 1: session 2 is of the same run, until that has ended.
        check(Some((1, 1)), 0, 1);
        check(Some((1, 1)), 1, 2);
        // Three crashes in one generation are more sessions than generations.
        check(Some((3, 1)), 0, 3);
        check(Some((3, 1)), 1, 4);
        check(Some((3, 1)), 6, 6);
    }
}
