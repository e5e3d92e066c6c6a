//! The printed rows: plain text, at most 120 columns.

use std::fmt;

use crate::rounds::Ratio;

pub(crate) const HEADER: &str = "\
name                                | ours       | raw limit or peer      |  ratio | lowest-highest | to reach
------------------------------------+------------+------------------------+--------+----------------+---------------";

/// One figure next to another.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ours: String,
    pub(crate) peer: String,
    pub(crate) ratio: Ratio,
    pub(crate) mark: Mark,
}

/// The goal of a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    AtMost(f64),
    AtLeast(f64),
    /// The time counts, not the ratio.
    Within {
        ms: f64,
        limit_ms: f64,
    },
    /// No goal, only for comparison.
    None,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio { median, spread } = self.ratio;
        let verdict = |met| match met {
            _ if median.is_nan() => "not measured",
            true => "met",
            false => "MISSED",
        };
        let mark = match self.mark {
            Mark::AtMost(most) => format!("<= {most:<4} {}", verdict(median <= most)),
            Mark::AtLeast(least) => format!(">= {least:<4} {}", verdict(median >= least)),
            Mark::Within { ms, limit_ms } => format!("<= {limit_ms} ms {}", verdict(ms <= limit_ms)),
            Mark::None => "-".to_owned(),
        };
        let ratio = if median.is_nan() { "-".to_owned() } else { format!("{median:.2}") };
        let spread = spread.map_or_else(String::new, |(low, high)| format!("{low:.2}-{high:.2}"));
        let Self { name, ours, peer, .. } = self;
        write!(f, "{name:<35} | {ours:<10} | {peer:<22} | {ratio:>6} | {spread:>14} | {mark}")
    }
}

pub(crate) fn milliseconds(seconds: f64) -> String {
    let digits = if seconds < 0.001 { 3 } else { 1 };
    format!("{:.digits$} ms", seconds * 1e3)
}

pub(crate) fn per_second(number: f64) -> String {
    format!("{number:.0}/s")
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(crate) fn kilobytes(bytes: u64) -> String {
    format!("{:.0} KB", bytes as f64 / 1e3)
}
