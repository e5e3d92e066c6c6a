//! The figures of an ACP agent about tokens and cost.

use crate::event::{EventKind, Usage, UsageScope};
use crate::json::Json;
use crate::parser::line_events::LineEvents;

/// The figures in the reply to a prompt. The protocol's draft counts them over the conversation; opencode, as recorded,
/// gives those of the turn's last model call.
pub(super) fn read_reply(usage: Json<'_>, events: &mut LineEvents) {
    events.push(EventKind::Usage(usage_of(usage, UsageScope::Unspecified)));
}

/// Qwen's own figures of one model call.
pub(super) fn read_chunk(update: Json<'_>, events: &mut LineEvents) {
    if let Some(usage) = update.at(&["_meta", "usage"]) {
        events.push(EventKind::Usage(usage_of(usage, UsageScope::Step)));
    }
}

fn usage_of(usage: Json<'_>, scope: UsageScope) -> Usage {
    let [input, output, cache_read, cache_write] =
        usage.fields(["inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens"]);
    Usage {
        input_tokens: input.and_then(Json::u64),
        output_tokens: output.and_then(Json::u64),
        cache_read_tokens: cache_read.and_then(Json::u64),
        cache_write_tokens: cache_write.and_then(Json::u64),
        ..Usage::of(scope)
    }
}

/// The token figures of this update are the size of the context, which is not usage; only the cost is.
pub(super) fn read_update(update: Json<'_>, events: &mut LineEvents) {
    let Some(cost) = update.field("cost") else { return };
    let [amount, currency] = cost.fields(["amount", "currency"]);
    if currency.is_some_and(|currency| currency.is("USD")) {
        events.push(EventKind::Usage(Usage { cost_usd: amount.and_then(Json::f64), ..Usage::of(UsageScope::Session) }));
    }
}
