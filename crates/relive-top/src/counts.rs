//! How much there is of everything, for the header.

use relive_types::Usd;

use crate::state::State;

/// How much there is of everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) needs_you: usize,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) done: usize,
    pub(crate) tokens: u64,
    /// As far as it is known.
    pub(crate) cost: Usd,
    /// How many processes have a cost that is not known.
    pub(crate) unpriced: usize,
}

impl State {
    /// Returns how many items there are, whatever the filter hides.
    pub(crate) fn waiting(&self) -> usize {
        self.known.values().filter(|known| known.item.is_some()).count()
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for known in self.known.values() {
            let process = &known.process;
            counts.tokens = counts.tokens.saturating_add(process.tokens_in).saturating_add(process.tokens_out);
            match process.cost_usd {
                Some(cost) => counts.cost = counts.cost.saturating_add(cost),
                // What has no tokens costs nothing.
                None => counts.unpriced += usize::from(process.tokens_in > 0 || process.tokens_out > 0),
            }
            counts.needs_you += usize::from(known.item.is_some());
            match (process.dead_at.is_some(), process.paused) {
                (true, _) => counts.done += 1,
                (false, true) => counts.waiting += 1,
                (false, false) => counts.running += 1,
            }
        }
        counts
    }
}
