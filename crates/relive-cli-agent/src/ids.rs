//! Ids that a CLI chose, in bounded memory.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// Real agents have a handful of calls open at a time.
const MAX_IDS: usize = 1024;
/// Real ids have up to 40 bytes.
const MAX_ID_BYTES: usize = 256;
/// `#` and a digest of the whole id.
const DIGEST_BYTES: usize = 17;

/// A set of ids. Ids beyond the limit are only counted, and stay counted until the set is dropped: when an id is
/// removed that is not in the set, it may or may not be one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdSet {
    ids: BTreeSet<String>,
    forgotten: usize,
}

impl IdSet {
    /// Returns false if the id was there already.
    pub(crate) fn insert(&mut self, id: &str) -> bool {
        let id = shorten(id);
        if self.ids.contains(id.as_ref()) {
            return false;
        }
        if self.ids.len() < MAX_IDS {
            self.ids.insert(id.into_owned());
        } else {
            self.forgotten = self.forgotten.saturating_add(1);
        }
        true
    }

    /// Returns false if the id was not remembered.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        self.ids.remove(shorten(id).as_ref())
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.ids.contains(shorten(id).as_ref())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len().saturating_add(self.forgotten)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().map(String::as_str)
    }
}

/// Returns an id as it is remembered: a short id unchanged, of a longer one its start and a digest. So a CLI that sends
/// huge ids cannot fill the memory.
pub(crate) fn shorten(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_ID_BYTES {
        return Cow::Borrowed(id);
    }
    let head = &id[..id.floor_char_boundary(MAX_ID_BYTES - DIGEST_BYTES)];
    Cow::Owned(format!("{head}#{:016x}", digest(id)))
}

/// Returns the 64-bit FNV-1a hash of a text. Digests are part of ids in the JSON output, so the hash has to be the same in
/// every build; the standard library's may change.
pub(crate) fn digest(text: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.bytes().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_beyond_the_limit_are_counted_and_stay() {
        let mut set = IdSet::default();
        for number in 0..MAX_IDS + 2 {
            assert!(set.insert(&number.to_string()));
        }
        assert!(!set.insert("0"));
        assert_eq!((set.ids.len(), set.len()), (MAX_IDS, MAX_IDS + 2));
        for number in 0..MAX_IDS + 2 {
            assert_eq!(set.remove(&number.to_string()), number < MAX_IDS);
        }
        assert_eq!((set.ids.len(), set.len(), set.is_empty()), (0, 2, false));
    }

    /// The published test vectors of FNV-1a.
    #[test]
    fn the_digest_is_the_same_in_every_build() {
        assert_eq!(digest(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(digest("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn long_ids_with_the_same_start_are_different_ids() {
        let [first, second] = ["a", "b"].map(|end| format!("{}{end}", "é".repeat(1000)));
        let mut set = IdSet::default();
        assert!(set.insert(&first) && set.insert(&second) && !set.insert(&first));
        for id in set.iter() {
            assert!(id.len() <= MAX_ID_BYTES, "{id}");
            assert_eq!(shorten(id), id, "a shortened id is not shortened again");
        }
        assert!(set.contains(&second) && set.remove(&first) && !set.contains(&first) && set.contains(&second));
    }
}
