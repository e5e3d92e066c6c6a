//! Serializes a set of signals as a list of their names, in the order of delivery. For `#[serde(with)]`.

use relive_core::{Signal, SignalSet};
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(set: &SignalSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(Signal::LANDING_ORDER.iter().filter(|signal| set.contains(**signal)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignalSet, D::Error> {
    Ok(Vec::<Signal>::deserialize(deserializer)?.into_iter().collect())
}
