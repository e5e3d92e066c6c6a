//! What fills the context of an agent: who said how much.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::render::line::Line;

/// How many bytes are about one token.
const BYTES_PER_TOKEN: u64 = 4;
const BAR_WIDTH: u64 = 20;

/// The bytes of a conversation by where they come from, since it was last compacted.
#[derive(Debug, Default)]
pub(super) struct Filling {
    by_source: BTreeMap<&'static str, u64>,
    /// What the provider counted for the last question.
    tokens_in: u64,
}

impl Filling {
    /// Takes the next record; `true` if it belongs to the conversation.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let Some(line) = Line::parse(text) else { return false };
        let size = |name: &str| {
            let field = line.fields.iter().find(|(field, _)| field == name);
            field.map_or(0, |(_, value)| sized(value.get()))
        };
        match line.kind.as_str() {
            "input" => self.add("your messages", size("text")),
            "model_ended" => {
                self.add("the model's words", size("text"));
                self.add("the model's thinking", size("thinking"));
                self.add("calls", size("calls"));
                if let Some(usage) = line.field::<Value>("usage") {
                    self.tokens_in = usage["tokens_in"].as_u64().unwrap_or(self.tokens_in);
                }
            }
            "call_ended" => self.add("results of tools", size("result")),
            "compacted" => {
                self.by_source.clear();
                self.add("the summary of what was before", size("summary"));
            }
            _ => return false,
        }
        true
    }

    fn add(&mut self, source: &'static str, bytes: u64) {
        if bytes > 0 {
            *self.by_source.entry(source).or_default() += bytes;
        }
    }

    pub(super) fn shown(&self) -> String {
        let whole: u64 = self.by_source.values().sum();
        if whole == 0 {
            return "nothing was said yet".to_owned();
        }
        let mut text = format!("the last question had {} tokens\n\n", self.tokens_in);
        let mut parts: Vec<(&&str, &u64)> = self.by_source.iter().collect();
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        for (source, bytes) in parts {
            let (percent, filled) = (bytes * 100 / whole, bytes * BAR_WIDTH / whole);
            let bar: String = (0..BAR_WIDTH).map(|place| if place < filled { '#' } else { '.' }).collect();
            text.push_str(&format!("{bar} {percent:>3}%  {source} (about {} tokens)\n", bytes / BYTES_PER_TOKEN));
        }
        text
    }
}

/// Returns the length of a payload; one that is in a file of its own says its length.
fn sized(json: &str) -> u64 {
    let blob = serde_json::from_str::<Value>(json).ok().filter(|value| value["$blob"].is_string());
    blob.and_then(|blob| blob["bytes"].as_u64()).unwrap_or(json.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_what_was_said_since_it_was_compacted() {
        let record = |kind: &str, fields: &str| {
            format!(
                r#"{{"v":1,"seq":1,"epoch":1,"at":"2026-11-15T12:00:00Z","kind":"{kind}","step":1,{fields},"crc":"x"}}"#
            )
        };
        let mut filling = Filling::default();
        assert!(filling.shown().contains("nothing"));
        assert!(filling.take(&record("input", r#""text":"1234567890""#)));
        assert!(!filling.take(&record("paused", r#""reason":"user""#)));
        assert!(filling.take(&record("compacted", r#""summary":"12""#)));
        assert!(filling.take(&record("call_ended", r#""result":{"$blob":"x","bytes":12000}"#)));
        let shown = filling.shown();
        assert!(
            !shown.contains("your messages") && shown.contains("99%  results of tools (about 3000 tokens)"),
            "{shown}"
        );
    }
}
