//! The token and cost figures of an ACP agent.

use crate::event::{EventKind, ReportedUsage, UsageScope};
use crate::json::Json;
use crate::parser::line_events::LineEvents;
use crate::parser::usage::read_tokens;

const TOKEN_FIELDS: [&str; 4] = ["inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens"];

/// The figures in the reply to a prompt. The protocol's draft counts them over the conversation; opencode, as recorded,
/// gives those of the turn's last model call.
pub(super) fn read_reply(usage: Json<'_>, events: &mut LineEvents) {
    events.push(EventKind::Usage(read_tokens(usage, UsageScope::Unspecified, TOKEN_FIELDS)));
}

/// Qwen's own figures of one model call.
pub(super) fn read_chunk(update: Json<'_>, events: &mut LineEvents) {
    if let Some(usage) = update.at(&["_meta", "usage"]) {
        events.push(EventKind::Usage(read_tokens(usage, UsageScope::Step, TOKEN_FIELDS)));
    }
}

/// The token figures of this update are the size of the context, which is not usage; only the cost is.
pub(super) fn read_update(update: Json<'_>, events: &mut LineEvents) {
    let Some(cost) = update.field("cost") else { return };
    let [amount, currency] = cost.fields(["amount", "currency"]);
    if currency.is_some_and(|currency| currency.is("USD")) {
        events.push(EventKind::Usage(ReportedUsage {
            cost_usd: amount.and_then(Json::f64),
            ..ReportedUsage::of(UsageScope::Session)
        }));
    }
}
