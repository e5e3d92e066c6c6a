//! Computes every answer by reading the whole data directory, slowly and plainly.

use relive_core::{Pid, Timestamp, Uuid};
use relive_index::{Filter, Order, Outcome, PidEntry, Row, State};
use relive_journal::{DataDirectory, ProcInfo};
use relive_types::short_id;

pub(crate) struct Scan {
    here: Vec<Row>,
    collected: Vec<(Uuid, Timestamp, Vec<Pid>)>,
    noted: Vec<(Pid, Uuid)>,
}

impl Scan {
    pub(crate) fn of(data: &DataDirectory) -> Self {
        let read = |uuid| Row::of(&data.history(uuid).unwrap().0).unwrap();
        let mut here: Vec<Row> = data.uuids().unwrap().into_iter().map(read).collect();
        here.sort_by_key(|row| row.info.uuid);
        let is_here = |uuid: &Uuid| here.iter().any(|row| row.info.uuid == *uuid);
        let tombstones = data.tombstones().unwrap().into_iter().filter(|tombstone| !is_here(&tombstone.uuid));
        let collected = tombstones.map(|tombstone| (tombstone.uuid, tombstone.collected_at, tombstone.pids)).collect();
        Self { here, collected, noted: data.noted_pids() }
    }

    pub(crate) fn by_pid(&self, pid: Pid) -> Option<PidEntry> {
        for row in &self.here {
            let uuid = row.info.uuid;
            if let Some(place) = row.incarnations.iter().position(|incarnation| incarnation.pid == pid) {
                let end = row.incarnations[place].end.clone();
                let successor = row.incarnations.get(place + 1).map(|next| next.pid);
                return Some(PidEntry { uuid, end, successor, collected_at: None });
            }
            if self.noted.contains(&(pid, uuid)) {
                return Some(PidEntry { uuid, end: None, successor: None, collected_at: None });
            }
        }
        let (uuid, at, _) = self.collected.iter().find(|(_, _, pids)| pids.contains(&pid))?;
        Some(PidEntry { uuid: *uuid, end: None, successor: None, collected_at: Some(*at) })
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Uuid> {
        let named = self.here.iter().filter(|row| row.info.name.as_deref() == Some(name));
        named.max_by_key(|row| row.info.pids.last().copied()).map(|row| row.info.uuid)
    }

    pub(crate) fn by_prefix(&self, prefix: &str) -> Vec<Uuid> {
        let prefix = prefix.to_ascii_lowercase();
        let matching =
            |uuid: &Uuid| uuid.to_string().starts_with(&prefix) || uuid.simple().to_string().starts_with(&prefix);
        self.here.iter().map(|row| row.info.uuid).filter(matching).collect()
    }

    pub(crate) fn by_suffix(&self, suffix: &str) -> Vec<Uuid> {
        let suffix = suffix.to_ascii_lowercase();
        let matching =
            |uuid: &Uuid| uuid.to_string().ends_with(&suffix) || uuid.simple().to_string().ends_with(&suffix);
        self.here.iter().map(|row| row.info.uuid).filter(matching).collect()
    }

    pub(crate) fn by_shown(&self, part: &str) -> Vec<Uuid> {
        let part = part.to_ascii_lowercase();
        let matching = |uuid: &Uuid| short_id::short(*uuid).starts_with(&part);
        self.here.iter().map(|row| row.info.uuid).filter(matching).collect()
    }

    pub(crate) fn row(&self, uuid: Uuid) -> Option<&Row> {
        self.here.iter().find(|row| row.info.uuid == uuid)
    }

    pub(crate) fn collected(&self, uuid: Uuid) -> Option<Timestamp> {
        self.collected.iter().find(|(collected, ..)| *collected == uuid).map(|(_, at, _)| *at)
    }

    pub(crate) fn page(&self, filter: &Filter, order: Order) -> Vec<ProcInfo> {
        let matches = |row: &&Row| {
            let state = filter.state.is_none_or(|state| row.state() == state);
            let outcome = filter.outcome.is_none_or(|outcome| {
                row.info.end.as_ref().is_some_and(|end| match outcome {
                    Outcome::Succeeded => end.exit().code == 0,
                    Outcome::Failed => end.exit().code != 0,
                })
            });
            let cwd = filter.cwd.as_ref().is_none_or(|cwd| std::path::Path::new(&row.info.cwd).starts_with(cwd));
            let name = filter.name.as_ref().is_none_or(|pattern| {
                row.info.name.as_ref().is_some_and(|name| match pattern.strip_suffix('*') {
                    Some(beginning) => name.starts_with(beginning),
                    None => name == pattern,
                })
            });
            state && outcome && cwd && name
        };
        let mut found: Vec<&Row> = self.here.iter().filter(matches).collect();
        match order {
            Order::Pid => found.sort_by_key(|row| row.info.pids.last().copied()),
            Order::PidDescending => found.sort_by_key(|row| std::cmp::Reverse(row.info.pids.last().copied())),
            Order::Created => found.sort_by_key(|row| (row.info.created_at, row.info.uuid)),
            Order::CreatedDescending => {
                found.sort_by_key(|row| std::cmp::Reverse((row.info.created_at, row.info.uuid)));
            }
        }
        found.into_iter().map(|row| row.info.clone()).collect()
    }

    /// Returns every id that exists or existed.
    pub(crate) fn uuids(&self) -> impl Iterator<Item = Uuid> {
        self.here.iter().map(|row| row.info.uuid).chain(self.collected.iter().map(|(uuid, ..)| *uuid))
    }
}

/// Returns every filter with at most two conditions, in every order.
pub(crate) fn listings() -> Vec<(Filter, Order)> {
    let states = [None, Some(State::Running), Some(State::Suspended), Some(State::Dead)];
    let outcomes = [None, Some(Outcome::Succeeded), Some(Outcome::Failed)];
    let names = [None, Some("worker"), Some("worker*"), Some("t*"), Some("*")];
    let directories = [None, Some("/"), Some("/home/user"), Some("/home/user/"), Some("/home/user/project")];
    let orders = [Order::Pid, Order::PidDescending, Order::Created, Order::CreatedDescending];
    let mut all = Vec::new();
    for state in states {
        for outcome in outcomes {
            for name in names {
                for cwd in directories {
                    let parts = [state.is_some(), outcome.is_some(), name.is_some(), cwd.is_some()];
                    if parts.iter().filter(|part| **part).count() > 2 {
                        continue;
                    }
                    let (name, cwd) = (name.map(str::to_owned), cwd.map(str::to_owned));
                    let filter = Filter { state, outcome, name, cwd, since: None };
                    all.push((filter, orders[all.len() % orders.len()]));
                }
            }
        }
    }
    all
}
