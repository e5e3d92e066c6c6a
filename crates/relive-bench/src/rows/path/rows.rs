//! The rows of the lanes: for one agent the time of a step, for many the steps of all per second.

use super::{Kind, Lane};
use crate::rounds::{Ratio, Rounds};
use crate::table::{Mark, Row, milliseconds, per_second};

impl Lane {
    pub(super) fn rows(&self) -> Vec<Row> {
        if self.agents == 1 { self.alone() } else { self.together() }
    }

    /// Returns the rows with the time of a step.
    fn alone(&self) -> Vec<Row> {
        let row = |name: String, rounds: &Rounds, peer: &str, mark| {
            let each = |taken: f64| milliseconds(taken / self.all_steps());
            let peer = format!("{}  {peer}", each(rounds.peer()));
            Row { name, ours: each(rounds.ours()), peer, ratio: rounds.ratio(), mark }
        };
        let mut rows = match self.kind {
            Kind::Read => {
                vec![row("1 agent: read 4 KB".to_owned(), &self.beside_raw, "append+sync", Mark::AtMost(2.0))]
            }
            Kind::Write => vec![
                // The same effect by hand: its record, and the file and its directory, each synced.
                row("1 agent: write 4 KB".to_owned(), &self.beside_raw, "raw write", Mark::AtMost(3.0)),
                row("  beside its record alone".to_owned(), &self.beside_sync, "append+sync", Mark::None),
            ],
        };
        rows.push(row("  in a Git repository".to_owned(), &self.in_git, "not in one", Mark::AtMost(1.1)));
        rows.push(self.restate_row());
        rows
    }

    /// Returns the rows with the steps of all per second.
    fn together(&self) -> Vec<Row> {
        let row = |name: String, rounds: &Rounds, peer: &str, mark| {
            let (ours, peer) = (self.rate(rounds.ours()), format!("{}  {peer}", self.rate(rounds.peer())));
            Row { name, ours, peer, ratio: rounds.ratio().inverse(), mark }
        };
        let agents = self.agents;
        let name = format!("{agents} agents: {} 4 KB", self.kind.name());
        let mut rows = match self.kind {
            Kind::Read => vec![row(name, &self.beside_raw, "raw writers", Mark::AtLeast(0.25))],
            Kind::Write => vec![
                row(name, &self.beside_raw, "raw writes", Mark::AtLeast(0.25)),
                row("  beside their records alone".to_owned(), &self.beside_sync, "raw writers", Mark::None),
            ],
        };
        rows.push(row("  in a Git repository".to_owned(), &self.in_git, "not in one", Mark::AtLeast(0.9)));
        rows.push(self.restate_row());
        rows
    }

    /// The syncs of a written file are the same for both, and take most of the time: there, three times as many steps would be
    /// more than the raw limit.
    fn restate_row(&self) -> Row {
        let (rounds, name) = (&self.beside_restate, "  beside Restate".to_owned());
        let mark = match self.kind {
            Kind::Read => Mark::AtLeast(3.0),
            Kind::Write => Mark::None,
        };
        if rounds.peer().is_nan() {
            let (ours, peer) = (self.rate(self.beside_raw.ours()), "Restate is missing".to_owned());
            return Row { name, ours, peer, ratio: Ratio::from(f64::NAN), mark };
        }
        let (ours, peer) = (self.rate(rounds.ours()), format!("{}  Restate", self.rate(rounds.peer())));
        Row { name, ours, peer, ratio: rounds.ratio().inverse(), mark }
    }

    fn rate(&self, taken: f64) -> String {
        per_second(self.all_steps() / taken)
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
    fn all_steps(&self) -> f64 {
        (self.agents * self.steps) as f64
    }
}
