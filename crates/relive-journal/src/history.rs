//! The state a journal amounts to: what the records so far say, and nothing else.
//!
//! [`History`] is a fold over the records. The writer keeps one as it appends and a reader builds one as it reads, so
//! the running view and the recovered view are the same code. It holds no payloads: the conversation is a list of
//! places in the file. It never looks at the world; what a crash left open is listed, not settled.

mod approvals;
mod cli;
mod files;
mod ledger;
mod life;
mod parts;
mod requests;
mod rules;
mod signals;
mod steps;
mod time;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use relive_core::{Cause, End, Generation, Limits, Rights, Signal, SignalSet, Stopwatch, Timestamp, Usd, Uuid};
use relive_types::CommandRule;
use serde::{Deserialize, Serialize};

use crate::hash::Hash;
use crate::line;
use crate::record::{Approval, Body, Decision, Paused, Question, Record, Repair, Signalled};
use crate::recovery::OnInDoubt;

pub use approvals::{Asked, Permit, RefusedBy, Reply, Verdict};
pub use cli::{CliFacts, CrashedSession};
pub use files::{Files, Untold};
pub use ledger::{LedgerEntry, day_of, is_paid};
pub(crate) use parts::Summary;
pub use parts::{CallState, Identity, Incarnation, OpenCall, Phase, Place, Spent};
pub use requests::AnsweredRequest;
pub(crate) use time::ran_by_wall_clock;

/// How many message ids are remembered: those of a client that asks again are among the last.
const HEARD_MAX: usize = 64;

/// What a journal amounts to. A checkpoint holds it whole, so no field has a default: one that is new makes older
/// checkpoints unreadable, which costs a scan, instead of wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Of the last record.
    pub seq: u64,
    /// Of the last writer.
    pub epoch: Generation,
    /// Of the last record.
    pub last_at: Option<Timestamp>,
    /// The identity of the process; absent before its `spawned` record.
    pub identity: Option<Identity>,
    /// Its incarnations, first to last; a fork's own only.
    pub incarnations: Vec<Incarnation>,
    /// The model it is run on, where that is not the one it was started with.
    pub model: Option<String>,
    pub limits: Limits,
    pub spent: Spent,
    /// The same by day and model.
    pub ledger: Vec<LedgerEntry>,
    /// The model that was asked last.
    pub(crate) asked_model: String,
    /// Present while it is suspended.
    pub paused: Option<Paused>,
    /// The time it was suspended before that, by the wall clock.
    pub paused_total_ms: u64,
    /// Its execution time; absent while no record has `up`.
    pub(crate) stopwatch: Option<Stopwatch>,
    /// `up` of the last record of this opening.
    pub(crate) last_up: Option<u64>,
    /// The step the last record belongs to.
    pub step: u32,
    /// The last step that was carried out to its end.
    pub completed_step: u32,
    /// Its position in the current step.
    pub phase: Phase,
    /// When a model was last asked.
    pub asked_at: Option<Timestamp>,
    /// The model's last answer, which has the arguments of the calls.
    pub answer_place: Option<Place>,
    /// Whether the model's last word asked for nothing, or said that all is done, and nobody has said anything since.
    pub answered: bool,
    /// How often a model has answered, the original's answers included: also those that were summed up since.
    pub answers: u64,
    /// The last question of the step under way, or its answer. Calls are asked about one after the other, so an earlier
    /// one is of no more use.
    pub approval: Option<Approval>,
    /// The last question that the agent asked a person in the step under way, or its answer.
    pub asked: Option<Question>,
    /// Whether it has ended, and a person has to be told.
    pub unseen: bool,
    /// The record of the last question to a person: it names the question.
    pub question_seq: u64,
    /// The last answer of a person, so that whoever answers later can be told of it.
    pub last_answer: Option<Approval>,
    /// The same for the questions of the agent.
    #[serde(default)]
    pub last_reply: Option<Reply>,
    /// What the last answer of a person about a call was for, and when it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_verdict: Option<Verdict>,
    /// The answers that apply to all later calls, by tool.
    pub always: BTreeMap<String, Decision>,
    /// The hosts that a person was asked about, with the answers.
    #[serde(default)]
    pub hosts: BTreeMap<String, Decision>,
    /// The commands that a person allowed once and for all.
    pub rules: BTreeSet<CommandRule>,
    /// The processes it was to spawn, first to last; a fork's own only. One whose intent a crash cut off may not exist.
    pub children: Vec<Uuid>,
    /// What it holds a handle to: its children, and what it was given. A fork observes the children that its prefix names.
    pub handles: BTreeMap<Uuid, Rights>,
    /// Resumes by the daemon since the last record that was progress.
    pub recoveries: u32,
    /// Torn ends cut off so far.
    pub repairs: Vec<Repair>,
    /// Who resumed it last, if that is recorded.
    pub resumed_by: Option<Cause>,
    /// The signal that somebody was told the process ends by. A new writer finds it and completes it.
    pub ending: Option<Signalled>,
    #[serde(with = "crate::signals")]
    pub mask: SignalSet,
    /// The signals it handles itself.
    #[serde(with = "crate::signals")]
    pub handlers: SignalSet,
    /// The handled signals that it runs a command for.
    #[serde(with = "crate::signals")]
    pub commands: SignalSet,
    /// The signals that are kept until they are not blocked any more, in the order in which they were sent, each with
    /// its first cause. A PAUSE and a RESUME are never both among them.
    pub pending: Vec<(Signal, Cause)>,
    pub files: Files,
    /// Present for a CLI agent.
    pub cli: Option<Box<CliFacts>>,
    /// The ids of the last requests, each with the record that answered it.
    pub(crate) requests: VecDeque<(String, AnsweredRequest)>,
    /// The ids of the last messages, so that one that is sent again is known.
    pub(crate) heard: VecDeque<String>,
    /// Offset before the model call of the step under way.
    pub(crate) step_start: u64,
    /// The records the conversation is made of.
    pub(crate) conversation: Vec<Place>,
    /// What the conversation begins with, if it was compacted.
    pub(crate) summary: Option<Summary>,
    /// Inputs that came while a model was being asked: it has not seen them.
    pub(crate) unheard: Vec<Place>,
    /// Blobs, each with the offset of the record that names it.
    pub(crate) blobs: Vec<(u64, Hash)>,
    /// Lines taken in or passed over so far.
    pub(crate) lines: u64,
    /// The last record that one of them says is on the disk.
    pub(crate) claimed: u64,
    /// The offset of their end.
    pub(crate) end: u64,
    /// The checksum of all of them.
    pub(crate) crc: u32,
    /// The checksum the last one names.
    pub(crate) last_crc: u32,
}

impl Default for History {
    fn default() -> Self {
        Self {
            seq: 0,
            epoch: Generation(0),
            last_at: None,
            identity: None,
            incarnations: Vec::new(),
            model: None,
            limits: Limits::default(),
            spent: Spent { cost_usd: Some(Usd::default()), ..Spent::default() },
            ledger: Vec::new(),
            asked_model: String::new(),
            paused: None,
            paused_total_ms: 0,
            stopwatch: None,
            last_up: None,
            step: 0,
            completed_step: 0,
            phase: Phase::Boundary,
            asked_at: None,
            answer_place: None,
            answered: false,
            answers: 0,
            approval: None,
            asked: None,
            unseen: false,
            question_seq: 0,
            last_answer: None,
            last_reply: None,
            last_verdict: None,
            always: BTreeMap::new(),
            hosts: BTreeMap::new(),
            rules: BTreeSet::new(),
            children: Vec::new(),
            handles: BTreeMap::new(),
            recoveries: 0,
            repairs: Vec::new(),
            resumed_by: None,
            ending: None,
            mask: SignalSet::EMPTY,
            handlers: SignalSet::EMPTY,
            commands: SignalSet::EMPTY,
            pending: Vec::new(),
            files: Files::default(),
            cli: None,
            requests: VecDeque::new(),
            heard: VecDeque::new(),
            step_start: 0,
            conversation: Vec::new(),
            summary: None,
            unheard: Vec::new(),
            blobs: Vec::new(),
            lines: 0,
            claimed: 0,
            end: 0,
            crc: 0,
            last_crc: 0,
        }
    }
}

impl History {
    /// The incarnation that has, or last had, the journal.
    #[must_use]
    pub fn incarnation(&self) -> Option<&Incarnation> {
        self.incarnations.last()
    }

    /// How the current incarnation ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<&(Timestamp, End)> {
        self.incarnation().and_then(|incarnation| incarnation.ended.as_ref())
    }

    /// What to do with a call in doubt.
    #[must_use]
    pub fn on_in_doubt(&self) -> OnInDoubt {
        self.identity.as_ref().map(|identity| identity.spawned.on_in_doubt).unwrap_or_default()
    }

    /// Takes in the next record, which is at `place`. A record that does not follow from those before it (which no
    /// writer of ours appends, see [`Self::admits`]) changes only the counters.
    pub(crate) fn apply(&mut self, record: &Record, place: Place) {
        if matches!(record.body, Body::ModelStarted(_)) {
            self.begin_step(record, place);
        }
        self.seq = record.seq;
        self.epoch = record.epoch;
        self.last_at = Some(record.at);
        self.step = self.step.max(record.step);
        record.body.for_each_blob(&mut |hash| self.blobs.push((place.offset, hash)));
        if !record.body.traits().idle {
            self.recoveries = 0;
        }
        self.remember_request(record);
        if !matches!(record.body, Body::Opened(_)) {
            self.pass_time(record.up);
        }
        self.apply_body(record, place);
    }

    /// Counts a record of a kind that is not known here and that may be skipped.
    pub(crate) fn skip(&mut self, seq: u64, at: Timestamp, up: Option<u64>) {
        self.seq = seq;
        self.last_at = Some(at);
        self.pass_time(up);
    }

    /// Moves past a line, whether or not it counted.
    pub(crate) fn cover(&mut self, line_with_newline: &[u8], claimed: u64) {
        self.lines += 1;
        self.claimed = self.claimed.max(claimed);
        self.end += line_with_newline.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, line_with_newline);
        self.last_crc = line::named_crc(line_with_newline).unwrap_or(0);
    }

    fn apply_body(&mut self, record: &Record, place: Place) {
        match &record.body {
            Body::Opened(opened) => self.open(record, opened),
            Body::Spawned(spawned) => self.spawn(record, spawned),
            Body::Input(input) => {
                self.hear(&input.id);
                if let Some(cli) = &mut self.cli {
                    cli.last_input = record.seq;
                }
                self.files.tell();
                self.answered = false;
                match self.phase {
                    Phase::Asking { .. } => self.unheard.push(place),
                    Phase::Boundary | Phase::Calling { .. } => self.conversation.push(place),
                }
            }
            // Done before the counters moved.
            Body::ModelStarted(_) => {}
            Body::ModelEnded(answer) => self.answer(record.at, answer, place),
            Body::Partial(partial) => {
                self.spend(record.at, partial.usage);
                self.phase = Phase::Boundary;
                self.conversation.append(&mut self.unheard);
            }
            Body::CallStarted(started) => self.start_call(record, started),
            Body::CallEnded(ended) => {
                self.answered |= ended.done;
                self.settle(ended.call, place);
            }
            Body::Doubt(doubt) => self.settle(doubt.call, place),
            Body::Resolved(resolved) => self.resolve(resolved, record, place),
            Body::Approval(approval) => self.approve(approval, record),
            Body::Question(question) => self.ask_or_answer(question, record),
            Body::Acked(_) => self.unseen = false,
            Body::Compacted(compacted) => self.compact(record.at, compacted, place),
            Body::Paused(paused) => {
                // One that follows another, for a reason of its own, takes over from it.
                self.unpause(paused.asked_at);
                self.paused = Some(paused.clone());
                self.stop_time(record.up);
                self.land_pause(paused);
            }
            Body::Resumed(resumed) => {
                self.unpause(record.at);
                self.resumed_by = resumed.cause.or(self.resumed_by);
                self.start_time(record.up);
                if let Some(cli) = &mut self.cli {
                    cli.resumed_at = Some(record.at);
                }
                self.land_resume(resumed);
            }
            Body::Proceeded(_) => self.release_time(record.up),
            Body::Limits(new) => self.limits = new.limits,
            Body::Ended(ended) => self.end(record, ended),
            Body::Repair(repair) => self.repairs.push(*repair),
            Body::Signalled(signalled) => self.signal(signalled),
            Body::SignalMask(mask) => self.set_mask(mask),
            Body::Renamed(renamed) => {
                if let Some(identity) = &mut self.identity {
                    identity.spawned.name = Some(renamed.name.clone());
                }
            }
            Body::Model(new) => self.model = Some(new.model.clone()),
            Body::Granted(granted) => self.grant(granted.target, granted.rights),
            Body::Released(released) => {
                self.handles.remove(&released.target);
            }
            Body::Snapshot(snapshot) => self.files.take(snapshot),
            Body::Rewound(rewound) => self.files.rewind(rewound),
            // Its driver folds these.
            Body::Flow(_) => {}
            Body::Cli(cli) => self.take_cli_record(record, cli),
        }
    }

    /// Whether one of the last messages had this id.
    #[must_use]
    pub fn has_received(&self, id: &str) -> bool {
        self.heard.iter().any(|heard| heard == id)
    }

    fn hear(&mut self, id: &str) {
        if self.heard.len() == HEARD_MAX {
            self.heard.pop_front();
        }
        self.heard.push_back(id.to_owned());
    }
}
