//! The life of a process: its incarnations, its pauses and its end.

use relive_core::{Rights, Timestamp, Usd, Uuid};

use super::{Files, History, Identity, Incarnation, Phase, Spent};
use crate::record::{Ended, Opened, OpenedBy, Record, Spawned};

impl History {
    pub(super) fn open(&mut self, record: &Record, opened: &Opened) {
        self.begin_time(record, opened);
        // Whoever resumes a process knows how it ended.
        self.unseen = false;
        if opened.by == OpenedBy::Recovery {
            self.recoveries += 1;
        }
        self.resumed_by = opened.cause.or(self.resumed_by);
        self.incarnations.push(Incarnation {
            pid: opened.pid,
            generation: record.epoch,
            at: record.at,
            boot_id: opened.boot_id.clone(),
            ended: None,
        });
    }

    /// A `spawned` record begins a process: what a fork's copied prefix says of the original's life no longer counts.
    pub(super) fn spawn(&mut self, record: &Record, spawned: &Spawned) {
        let own = self.incarnations.pop();
        self.incarnations = own.into_iter().collect();
        self.identity = Some(Identity { spawned: spawned.clone(), created_at: record.at });
        self.limits = spawned.limits;
        self.spent = Spent { cost_usd: Some(Usd::default()), ..Spent::default() };
        self.ledger.clear();
        self.paused = None;
        self.resumed_by = None;
        self.paused_total_ms = 0;
        self.reset_time(record.up);
        self.repairs.clear();
        // A model call of the original that was lost is not the fork's to pay.
        self.phase = Phase::Boundary;
        self.conversation.append(&mut self.unheard);
        self.heard.clear();
        self.requests.clear();
        self.forget_signals();
        // A fork has files of its own, and says so.
        self.files = Files::default();
        self.fork_cli(record.seq);
        (self.approval, self.last_answer, self.last_verdict) = (None, None, None);
        (self.asked, self.last_reply) = (None, None);
        self.handles.retain(|_, rights| *rights == Rights::Owner);
        self.handles.values_mut().for_each(|rights| *rights = Rights::Observer);
        self.children.clear();
    }

    /// Notes a handle. What it owns, it has spawned.
    pub(super) fn grant(&mut self, target: Uuid, rights: Rights) {
        if rights == Rights::Owner && !self.children.contains(&target) {
            self.children.push(target);
        }
        let held = self.handles.entry(target).or_insert(rights);
        *held = (*held).max(rights);
    }

    pub(super) fn unpause(&mut self, at: Timestamp) {
        if let Some(paused) = self.paused.take() {
            let asleep = at.duration_since(paused.asked_at).as_millis();
            self.paused_total_ms = self.paused_total_ms.saturating_add(u64::try_from(asleep).unwrap_or(0));
        }
    }

    pub(super) fn end(&mut self, record: &Record, ended: &Ended) {
        self.unpause(record.at);
        self.stop_time(record.up);
        if let Some(cli) = &mut self.cli {
            cli.is_queued = false;
        }
        self.forget_signals();
        // Its authority goes with its execution.
        self.handles.clear();
        self.unseen = ended.unseen;
        if let Some(incarnation) = self.incarnations.last_mut() {
            incarnation.ended = Some((record.at, ended.end.clone()));
        }
    }
}
