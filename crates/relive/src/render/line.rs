//! A record of a journal or an event: its head parsed, its other fields unchanged.

use std::fmt;

use relive_core::{Pid, Timestamp};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

#[derive(Debug)]
pub(crate) struct Line {
    pub at: Option<Timestamp>,
    pub kind: String,
    pub step: u32,
    /// The incarnation that wrote it.
    pub epoch: Option<u32>,
    /// All other fields in order, except for those that only the file needs.
    pub fields: Vec<(String, Box<RawValue>)>,
}

impl Line {
    /// Returns `None` if it is not an object.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Fields(all) = serde_json::from_str(text).ok()?;
        let mut line = Self { at: None, kind: String::new(), step: 0, epoch: None, fields: Vec::new() };
        for (name, value) in all {
            match name.as_str() {
                "at" => line.at = serde_json::from_str(value.get()).ok(),
                "kind" => line.kind = serde_json::from_str(value.get()).ok()?,
                "step" => line.step = serde_json::from_str(value.get()).unwrap_or(0),
                "epoch" => line.epoch = serde_json::from_str(value.get()).ok(),
                "v" | "seq" | "part" | "crc" => {}
                _ => line.fields.push((name, value)),
            }
        }
        Some(line)
    }

    pub(crate) fn field<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, value) = self.fields.iter().find(|(field, _)| field == name)?;
        serde_json::from_str(value.get()).ok()
    }

    /// `{id,at,pid,kind,step,...}`.
    pub(crate) fn to_json(&self, id: &str, pid: Option<Pid>) -> String {
        let head = serde_json::json!({ "id": id, "at": self.at, "pid": pid, "kind": self.kind, "step": self.step });
        let mut text = String::from("{");
        for name in ["id", "at", "pid", "kind", "step"] {
            text.push_str(&format!("\"{name}\":{},", head[name]));
        }
        for (name, value) in self.fields.iter().filter(|(name, _)| name != "id" && name != "pid") {
            text.push_str(&format!("{}:{},", serde_json::Value::from(name.as_str()), value.get()));
        }
        text.pop();
        text + "}"
    }
}

/// The fields of an object in their order.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_file_becomes_a_line_of_the_stream() {
        let text = r#"{"v":1,"seq":17,"epoch":2,"at":"2026-11-15T12:00:00Z","kind":"call","step":3,"name":"shell","args":{"n":1.10},"crc":"00000000"}"#;
        assert_eq!(
            Line::parse(text).unwrap().to_json("2.17", Some(Pid(5))),
            r#"{"id":"2.17","at":"2026-11-15T12:00:00Z","pid":5,"kind":"call","step":3,"name":"shell","args":{"n":1.10}}"#
        );
        assert!(Line::parse("[1]").is_none() && Line::parse("").is_none());
    }
}
