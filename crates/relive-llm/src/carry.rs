//! The parts of an answer that a provider wants back unchanged with the next question: the signatures of its thinking,
//! and thinking that it does not show. They are kept with the answer as JSON that no other code reads.
//!
//! The record has the thinking already, so a signature only says how many bytes of the thinking it signs.

use genai::adapter::AdapterKind;
use genai::chat::{ContentPart, ToolCall};
use serde::{Deserialize, Serialize};

/// These parts of one answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Carry {
    /// The provider. No other one understands them.
    by: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    thoughts: Vec<Thought>,
    /// The signatures of each call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Thought {
    /// Signs the next `thinking_bytes` of the thinking.
    Signed { signature: String, thinking_bytes: usize },
    /// A whole block that is not shown.
    Opaque(serde_json::Value),
}

impl Carry {
    /// Collects them from an answer, as JSON; `None` if it has none.
    pub(crate) fn of(by: &str, adapter: AdapterKind, parts: &[ContentPart]) -> Option<String> {
        let mut thoughts = Vec::new();
        let mut calls = Vec::new();
        for part in parts {
            match part {
                ContentPart::ThoughtSignature(signature) => {
                    thoughts.push(Thought::Signed { signature: signature.clone(), thinking_bytes: 0 });
                }
                ContentPart::ReasoningContent(thinking) => {
                    if let Some(Thought::Signed { thinking_bytes, .. }) = thoughts.last_mut() {
                        *thinking_bytes = thinking.len();
                    }
                }
                ContentPart::Custom(block) => thoughts.push(Thought::Opaque(block.data.clone())),
                // Other providers repeat the signatures of the thinking in each call.
                ContentPart::ToolCall(call) if adapter == AdapterKind::Gemini => {
                    calls.push(call.thought_signatures.clone().unwrap_or_default());
                }
                ContentPart::ToolCall(_)
                | ContentPart::Text(_)
                | ContentPart::Binary(_)
                | ContentPart::ToolResponse(_) => {}
            }
        }
        if calls.iter().all(Vec::is_empty) {
            calls.clear();
        }
        let carry = Self { by: by.to_owned(), thoughts, calls };
        let is_nothing = carry.thoughts.is_empty() && carry.calls.is_empty();
        if is_nothing { None } else { serde_json::to_string(&carry).ok() }
    }

    /// Parses the JSON; `None` if it is from another provider.
    pub(crate) fn read(json: Option<&str>, by: &str) -> Option<Self> {
        let carry: Self = serde_json::from_str(json?).ok()?;
        (carry.by == by).then_some(carry)
    }

    /// Returns the parts that an answer begins with.
    pub(crate) fn thoughts(&self, adapter: AdapterKind, thinking: &str) -> Vec<ContentPart> {
        let with_thinking = adapter == AdapterKind::Anthropic;
        let mut rest = thinking;
        let mut parts = Vec::new();
        for thought in &self.thoughts {
            match thought {
                Thought::Signed { signature, thinking_bytes } => {
                    parts.push(ContentPart::ThoughtSignature(signature.clone()));
                    if with_thinking {
                        // The provider refuses the whole conversation if a signature does not match its text.
                        let Some((signed, after)) = rest.split_at_checked(*thinking_bytes) else { return Vec::new() };
                        parts.push(ContentPart::ReasoningContent(signed.to_owned()));
                        rest = after;
                    }
                }
                Thought::Opaque(block) => parts.push(ContentPart::from_custom(block.clone(), None)),
            }
        }
        if with_thinking && !rest.is_empty() { Vec::new() } else { parts }
    }

    /// Adds the signatures to the call of this number.
    pub(crate) fn sign(&self, number: usize, call: &mut ToolCall) {
        call.thought_signatures = self.calls.get(number).filter(|signatures| !signatures.is_empty()).cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signature_comes_back_with_the_thinking_it_signs() {
        let parts = [
            ContentPart::ThoughtSignature("one".to_owned()),
            ContentPart::ReasoningContent("first ".to_owned()),
            ContentPart::from_custom(serde_json::json!({"type": "redacted_thinking", "data": "x"}), None),
            ContentPart::ThoughtSignature("two".to_owned()),
            ContentPart::ReasoningContent("sécond".to_owned()),
            ContentPart::Text("said".to_owned()),
        ];
        let json = Carry::of("anthropic", AdapterKind::Anthropic, &parts).unwrap();
        let back = |by: &str, thinking: &str| {
            let carry = Carry::read(Some(&json), by)?;
            Some(serde_json::to_string(&carry.thoughts(AdapterKind::Anthropic, thinking)).unwrap())
        };
        assert_eq!(back("anthropic", "first sécond"), Some(serde_json::to_string(&parts[..5]).unwrap()));
        assert_eq!(back("anthropic", "first and sécond").as_deref(), Some("[]"), "another text");
        assert_eq!(back("gemini", "first sécond"), None);
        assert_eq!(Carry::of("anthropic", AdapterKind::Anthropic, &parts[5..]), None);
    }
}
