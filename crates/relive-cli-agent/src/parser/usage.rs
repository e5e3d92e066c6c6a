//! Token figures, which every CLI has under names of its own.

use crate::event::{ReportedUsage, UsageScope};
use crate::json::Json;

/// Reads the fields for input, output, cache reads and cache writes. The cost is left out.
pub(super) fn read_tokens(usage: Json<'_>, scope: UsageScope, names: [&str; 4]) -> ReportedUsage {
    let [input, output, cache_read, cache_write] = usage.fields(names);
    ReportedUsage {
        input_tokens: input.and_then(Json::u64),
        output_tokens: output.and_then(Json::u64),
        cache_read_tokens: cache_read.and_then(Json::u64),
        cache_write_tokens: cache_write.and_then(Json::u64),
        ..ReportedUsage::of(scope)
    }
}
