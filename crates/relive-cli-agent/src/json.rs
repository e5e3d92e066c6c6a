//! Reads single fields of a JSON line without building a tree of it.
//!
//! A line may be megabytes of untrusted input. A `serde_json::Value` of it takes up to a hundred times its size, and
//! one field of an unexpected type makes a derived `Deserialize` refuse the whole line. [`Json`] is a view of the
//! line's own bytes: every field is optional, and a field of an unexpected type counts as absent.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

use crate::event::RawJson;

/// More entries of a list than any CLI writes: the rest is not read.
pub(crate) const MAX_ITEMS: usize = 1024;

/// Shown as the name of a line or a block without a `type`.
const NO_TYPE: &str = "no type";

/// A JSON value inside a line. It is known to be valid JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Json<'a>(&'a RawValue);

impl<'a> Json<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// Reads several fields in one pass. A field that is `null` counts as absent; of two with one name the last counts.
    pub(crate) fn fields<const N: usize>(self, names: [&str; N]) -> [Option<Json<'a>>; N] {
        let mut found = [None; N];
        if self.is_object() {
            let visitor = FieldsVisitor { names: &names, found: &mut found };
            // The value is valid JSON; if it was not, the fields that were found before the fault would still count.
            let _ = Deserializer::from_str(self.0.get()).deserialize_map(visitor);
        }
        found.map(|value| value.filter(|value| !value.is_null()))
    }

    /// Whether an object has no other fields than these.
    pub(crate) fn has_only(self, names: &[&str]) -> bool {
        let mut has_only = self.is_object();
        if has_only {
            let _ =
                Deserializer::from_str(self.0.get()).deserialize_map(OnlyVisitor { names, has_only: &mut has_only });
        }
        has_only
    }

    pub(crate) fn field(self, name: &str) -> Option<Json<'a>> {
        let [value] = self.fields([name]);
        value
    }

    /// Follows a path of fields.
    pub(crate) fn at(self, path: &[&str]) -> Option<Json<'a>> {
        path.iter().try_fold(self, |value, name| value.field(name))
    }

    /// Returns the first entries of a list; none if the value is not a list.
    pub(crate) fn items(self) -> Vec<Json<'a>> {
        self.items_and_has_more().0
    }

    /// Returns the first entries of a list, and whether the list has more of them.
    pub(crate) fn items_and_has_more(self) -> (Vec<Json<'a>>, bool) {
        let mut items = Vec::new();
        let mut has_more = false;
        if self.is_list() {
            let visitor = ItemsVisitor { items: &mut items, has_more: &mut has_more };
            let _ = Deserializer::from_str(self.0.get()).deserialize_seq(visitor);
        }
        (items, has_more)
    }

    /// Returns the text of a string. Halves of surrogate pairs, which JavaScript writes for cut emoji, become U+FFFD.
    pub(crate) fn text(self) -> Option<String> {
        if !self.0.get().starts_with('"') {
            return None;
        }
        Deserializer::from_str(self.0.get()).deserialize_bytes(TextVisitor).ok()
    }

    pub(crate) fn text_at(self, path: &[&str]) -> Option<String> {
        self.at(path).and_then(Json::text)
    }

    pub(crate) fn is(self, text: &str) -> bool {
        self.text().as_deref() == Some(text)
    }

    pub(crate) fn is_true(self) -> bool {
        self.0.get() == "true"
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.get() == "null"
    }

    pub(crate) fn is_object(self) -> bool {
        self.0.get().starts_with('{')
    }

    pub(crate) fn is_list(self) -> bool {
        self.0.get().starts_with('[')
    }

    pub(crate) fn u64(self) -> Option<u64> {
        self.0.get().parse().ok()
    }

    pub(crate) fn i64(self) -> Option<i64> {
        self.0.get().parse().ok()
    }

    pub(crate) fn f64(self) -> Option<f64> {
        serde_json::from_str(self.0.get()).ok()
    }

    /// Returns the value as it was written.
    pub(crate) fn as_str(self) -> &'a str {
        self.0.get()
    }

    pub(crate) fn to_raw(self) -> RawJson {
        RawJson::new(self.0)
    }

    /// Returns the `type` of a part of a line.
    pub(crate) fn kind(self) -> String {
        self.text_at(&["type"]).unwrap_or_else(|| NO_TYPE.into())
    }

    /// Returns the `type` of a line, or else its `method`: the name that an `unknown` or `other` event shows.
    pub(crate) fn name(self) -> String {
        let [kind, method] = self.fields(["type", "method"]);
        kind.or(method).and_then(Json::text).unwrap_or_else(|| NO_TYPE.into())
    }
}

struct FieldsVisitor<'n, 'f, 'a> {
    names: &'n [&'n str],
    found: &'f mut [Option<Json<'a>>],
}

impl<'a> Visitor<'a> for FieldsVisitor<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(index) = map.next_key_seed(NameSeed(self.names))? {
            match index.and_then(|index| self.found.get_mut(index)) {
                Some(place) => *place = Some(Json(map.next_value()?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct OnlyVisitor<'n, 'f> {
    names: &'n [&'n str],
    has_only: &'f mut bool,
}

impl<'a> Visitor<'a> for OnlyVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(index) = map.next_key_seed(NameSeed(self.names))? {
            *self.has_only &= index.is_some();
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Finds the index of a key among the names, without keeping the key.
struct NameSeed<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        self.visit_bytes(key.as_bytes())
    }

    fn visit_bytes<E>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| name.as_bytes() == key))
    }
}

struct ItemsVisitor<'i, 'a> {
    items: &'i mut Vec<Json<'a>>,
    has_more: &'i mut bool,
}

impl<'a> Visitor<'a> for ItemsVisitor<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
        while self.items.len() < MAX_ITEMS {
            let Some(item) = list.next_element()? else { return Ok(()) };
            self.items.push(Json(item));
        }
        *self.has_more = list.next_element::<IgnoredAny>()?.is_some();
        Ok(())
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.into())
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::parse(text).unwrap()
    }

    #[test]
    fn fields_of_any_type_are_read_or_absent() {
        let line = json(r#"{"a":1,"b":null,"c":"x","a":2,"d":{"e":[1,"2"]}}"#);
        let [a, b, c, missing] = line.fields(["a", "b", "c", "z"]);
        assert_eq!(a.and_then(Json::u64), Some(2));
        assert!(b.is_none() && missing.is_none());
        assert!(c.is_some_and(|c| c.is("x")));
        assert_eq!(line.at(&["d", "e"]).map(|e| e.items().len()), Some(2));
        assert_eq!(line.text_at(&["a"]), None);
        assert!(json("[1]").field("a").is_none());
        assert!(json(r#"{"a":1}"#).has_only(&["a"]) && json("{}").has_only(&[]));
        assert!(!json(r#"{"a":1,"b":2}"#).has_only(&["a"]) && !json("[]").has_only(&[]));
        assert!(json("3").items().is_empty());
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        assert_eq!(json(r#""cut \ud83d""#).text().unwrap(), "cut \u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(json(r#"{"\ud83d":1,"a":2}"#).field("a").and_then(Json::u64), Some(2));
    }

    #[test]
    fn long_lists_are_cut_and_deep_ones_do_not_recurse() {
        for (entries, has_more) in [(MAX_ITEMS, false), (MAX_ITEMS + 1, true), (5000, true)] {
            let long = format!("[{}0]", "0,".repeat(entries - 1));
            let (items, rest) = json(&long).items_and_has_more();
            assert_eq!((items.len(), rest), (MAX_ITEMS, has_more));
        }
        let deep = format!("{{\"a\":{}{},\"b\":1}}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(json(&deep).field("b").and_then(Json::u64), Some(1));
    }
}
