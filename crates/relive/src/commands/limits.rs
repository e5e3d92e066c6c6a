//! The limits of an agent, as options of `run`, `resume` and `retry`.

use std::time::Duration;

use relive_core::{Limits, Usd};

use crate::render::time::as_millis;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct LimitArgs {
    /// End the agent when it exceeds this many steps, counted from its first one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_steps: Option<u32>,
    /// End the agent when it exceeds this many tokens, input and output together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// End the agent when it costs more than this many dollars
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    pub(crate) max_cost: Option<Usd>,
    /// End it after this time, counted from its start; pauses do not count
    #[arg(long, value_name = "DURATION", value_parser = parse_time_limit)]
    pub(crate) timeout: Option<Duration>,
}

impl LimitArgs {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_steps: self.max_steps,
            max_tokens: self.max_tokens,
            max_cost_usd: self.max_cost,
            timeout_ms: self.timeout.map(as_millis),
        }
    }
}

/// A time limit, more than nothing.
pub(crate) fn parse_time_limit(text: &str) -> Result<Duration, String> {
    match relive_types::duration::parse(text) {
        Ok(Duration::ZERO) => Err("use a duration above zero, such as 10m".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

/// An amount of dollars, more than nothing.
pub(crate) fn parse_dollars(text: &str) -> Result<Usd, String> {
    let amount = text.strip_prefix('$').unwrap_or(text).parse().ok().and_then(Usd::from_dollars);
    match amount {
        Some(amount) if amount.nanos() > 0 => Ok(amount),
        Some(_) => Err("use an amount above zero, such as 0.50".to_owned()),
        None => Err("use an amount of dollars, such as 0.50".to_owned()),
    }
}
