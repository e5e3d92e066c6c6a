//! The cursor of the list: rows come and go under it.

use relive_types::Uuid;

use crate::rows::{Row, RowKind};
use crate::state::{Focus, SEEN_AFTER_MS, State};

/// The row that is selected. A process that needs a person has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selection {
    uuid: Uuid,
    is_item: bool,
}

impl Selection {
    fn of(row: &Row) -> Self {
        Self { uuid: row.uuid, is_item: matches!(row.kind, RowKind::Item(_)) }
    }
}

impl State {
    /// Keeps the cursor on what it was on; where that is gone, on the row that took its place. Whoever looks at a process
    /// whose item is gone stays with the process.
    pub(crate) fn keep_selection(&mut self) {
        let by_key = std::mem::take(&mut self.rearranged);
        let is_selected = |row: &Row| self.selected == Some(Selection::of(row));
        if let Some(place) = self.rows.iter().position(is_selected) {
            self.cursor = place;
            return;
        }
        let before = self.selected.map(|selected| selected.uuid);
        let looked_at = before.filter(|_| self.focus == Focus::Detail);
        let same = looked_at.and_then(|uuid| self.rows.iter().position(|row| row.uuid == uuid));
        self.select(same.unwrap_or_else(|| self.cursor.min(self.rows.len().saturating_sub(1))));
        if !by_key && before.is_some() && before != self.selected_uuid() {
            self.moved_ms = Some(self.now_ms);
        }
    }

    /// Tells whether the cursor has just moved by itself: a key was meant for what it was on.
    pub(crate) fn has_just_moved(&self) -> bool {
        self.moved_ms.is_some_and(|moved| self.now_ms.saturating_sub(moved) < SEEN_AFTER_MS)
    }

    pub(crate) fn select(&mut self, cursor: usize) {
        self.cursor = cursor;
        self.selected = self.rows.get(cursor).map(Selection::of);
    }
}
