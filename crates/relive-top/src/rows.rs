//! The rows of the list: what waits for a person first, then the processes, as a tree or in their order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use relive_api::{Item, Process, sort_items};
use relive_types::{Pid, Uuid};

use crate::state::Known;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub uuid: Uuid,
    pub kind: RowKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowKind {
    /// Something that waits for a person.
    Item(Box<Item>),
    Process {
        /// How far below a root it is.
        depth: usize,
        /// How many processes below it are not shown.
        folded: usize,
    },
}

/// What the rows are made from.
#[derive(Debug)]
pub(crate) struct ListSource<'a> {
    pub(crate) known: &'a HashMap<Uuid, Known>,
    pub(crate) filter: &'a str,
    pub(crate) tree: bool,
    pub(crate) folded: &'a BTreeSet<Uuid>,
}

impl ListSource<'_> {
    fn matches(&self, process: &Process) -> bool {
        let has = |text: &str| text.to_lowercase().contains(self.filter);
        self.filter.is_empty()
            || has(&process.pid.to_string())
            || has(&process.short)
            || has(process.name.as_deref().unwrap_or_default())
            || has(&process.intent)
            || has(&process.display)
    }

    /// Returns the rows in the order in which they are shown.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut items: Vec<Item> = self
            .known
            .values()
            .filter(|known| self.matches(&known.process))
            .filter_map(|known| known.item.clone())
            .collect();
        sort_items(&mut items);
        let mut rows: Vec<Row> =
            items.into_iter().map(|item| Row { uuid: item.uuid, kind: RowKind::Item(Box::new(item)) }).collect();
        let mut shown: Vec<&Process> =
            self.known.values().map(|known| &known.process).filter(|process| self.matches(process)).collect();
        shown.sort_unstable_by_key(|process| (process.pid, process.uuid));
        if self.tree {
            rows.extend(self.as_tree(&shown));
        } else {
            let flat = |process: &&Process| Row { uuid: process.uuid, kind: RowKind::Process { depth: 0, folded: 0 } };
            rows.extend(shown.iter().map(flat));
        }
        rows
    }

    fn as_tree(&self, shown: &[&Process]) -> Vec<Row> {
        let pids: BTreeMap<Pid, &Process> =
            shown.iter().filter(|process| process.dead_at.is_none()).map(|process| (process.pid, *process)).collect();
        let mut below: BTreeMap<Pid, Vec<&Process>> = BTreeMap::new();
        let mut roots = Vec::new();
        for process in shown {
            if process.ppid != Pid::RUNTIME && process.ppid != process.pid && pids.contains_key(&process.ppid) {
                below.entry(process.ppid).or_default().push(process);
            } else {
                roots.push(*process);
            }
        }
        let mut rows = Vec::with_capacity(shown.len());
        let mut open: Vec<(&Process, usize)> = roots.into_iter().rev().map(|process| (process, 0)).collect();
        while let Some((process, depth)) = open.pop() {
            let children = below.remove(&process.pid).unwrap_or_default();
            let folded = if self.folded.contains(&process.uuid) { take_below(&mut below, children.clone()) } else { 0 };
            rows.push(Row { uuid: process.uuid, kind: RowKind::Process { depth, folded } });
            if folded == 0 {
                open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
            }
        }
        rows
    }
}

/// Takes out everything below a process, and returns how much that was.
fn take_below(below: &mut BTreeMap<Pid, Vec<&Process>>, children: Vec<&Process>) -> usize {
    let (mut count, mut open) = (0, children);
    while let Some(process) = open.pop() {
        count += 1;
        open.extend(below.remove(&process.pid).unwrap_or_default());
    }
    count
}
