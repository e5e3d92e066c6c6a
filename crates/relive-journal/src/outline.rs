//! Records as the fold needs them: without the text that makes up most of a journal.
//!
//! [`crate::History`] holds no payloads, so reading a journal need not copy them. The kinds with large payloads are
//! read here with empty text in their place; references to blobs are kept.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::payload::{Json, Text};
use crate::record::{Body, Call, CallEnded, Git, ModelEnded, Usage};
use crate::recovery::RecoveryName;

/// Like [`Body::decode`], for a reader that only folds.
pub(crate) fn decode(kind: &str, line: &[u8]) -> Option<serde_json::Result<Body>> {
    match kind {
        "model_ended" => Some(serde_json::from_slice(line).map(OutlinedModelEnd::body)),
        "call_ended" => Some(serde_json::from_slice(line).map(OutlinedCallEnd::body)),
        _ => Body::decode(kind, line),
    }
}

/// [`ModelEnded`].
#[derive(Deserialize)]
struct OutlinedModelEnd {
    #[serde(default)]
    thinking: Option<Hollow>,
    #[serde(default)]
    text: Option<Hollow>,
    #[serde(default)]
    calls: Vec<Call>,
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    carry: Option<Json>,
    #[serde(default)]
    git: Option<Git>,
}

impl OutlinedModelEnd {
    fn body(self) -> Body {
        let Self { thinking, text, calls, usage, carry, git } = self;
        let (thinking, text) = (thinking.map(|text| text.0), text.map(|text| text.0));
        Body::ModelEnded(ModelEnded { thinking, text, calls, usage, carry, git })
    }
}

/// [`CallEnded`].
#[derive(Deserialize)]
struct OutlinedCallEnd {
    call: u32,
    ok: bool,
    result: Hollow,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    settled: Option<RecoveryName>,
    #[serde(default)]
    denied: bool,
}

impl OutlinedCallEnd {
    fn body(self) -> Body {
        let Self { call, ok, result: Hollow(result), done, settled, denied } = self;
        Body::CallEnded(CallEnded { call, ok, result, done, settled, denied })
    }
}

/// A text that is read as empty if it is inline.
struct Hollow(Text);

impl<'de> Deserialize<'de> for Hollow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        if raw.starts_with('"') {
            return Ok(Self(Text::Inline(String::new())));
        }
        serde_json::from_str(raw).map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `fields` both ways, and checks that the results are equal once the text is removed.
    fn check(kind: &str, fields: &str) {
        let line = format!(r#"{{"v":1,"seq":7,{fields},"crc":"00000000"}}"#);
        let whole = Body::decode(kind, line.as_bytes()).unwrap().ok().map(|mut body| {
            if let Body::ModelEnded(body) = &mut body {
                body.thinking.iter_mut().chain(&mut body.text).for_each(empty);
            } else if let Body::CallEnded(body) = &mut body {
                empty(&mut body.result);
            }
            body
        });
        assert_eq!(decode(kind, line.as_bytes()).unwrap().ok(), whole, "{line}");
    }

    fn empty(text: &mut Text) {
        if let Text::Inline(text) = text {
            text.clear();
        }
    }

    #[test]
    fn an_outline_is_the_record_without_its_text() {
        let blob = format!(r#"{{"$blob":"{}","bytes":70000,"head":"h"}}"#, crate::Hash::of(b"x"));
        let calls = r#""calls":[{"id":"a","name":"shell","args":{"n":1}}]"#;
        check("model_ended", r#""text":"a\nb","usage":{"tokens_in":1,"tokens_out":2}"#);
        check("model_ended", &format!(r#""thinking":"hm","text":null,"new":[1],{calls}"#));
        check("model_ended", r#""text":"a","git":{"head":"abc","dirty":true}"#);
        check("model_ended", &format!(r#""thinking":{blob},"text":{blob},{calls}"#));
        check("call_ended", r#""call":1,"ok":false,"result":"x","settled":"join""#);
        check("call_ended", &format!(r#""call":0,"ok":true,"result":{blob}"#));
        check("call_ended", r#""call":0,"ok":true,"result":"over","done":true"#);
        for result in ["1", "null", "{}", "[]", "\"unfinished", "\"\\x\""] {
            check("call_ended", &format!(r#""call":0,"ok":true,"result":{result}"#));
            check("model_ended", &format!(r#""text":{result}"#));
        }
    }
}
