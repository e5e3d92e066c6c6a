//! Values by key; equal values are stored once.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{ENTRIES_MAX, Key, VALUE_MAX_BYTES, VALUES_MAX_BYTES};

/// Values by key. Thousands of processes that were started from one shell share one value.
#[derive(Default)]
pub struct Store {
    entries: HashMap<Key, Entry>,
    /// Each value, and its number of entries.
    values: HashMap<Arc<[u8]>, usize>,
    bytes: usize,
    /// The number of the next insertion.
    next: u64,
}

struct Entry {
    value: Arc<[u8]>,
    order: u64,
}

/// The reason why a value is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The value is too long.
    #[error("an environment of {0} bytes is longer than the {max} that are kept", max = VALUE_MAX_BYTES)]
    TooLong(usize),
    #[error("no space for another environment: {entries} are kept, {bytes} bytes")]
    NoRoom {
        entries: usize,
        /// The bytes of all different values.
        bytes: usize,
    },
}

// Values are secrets, so none is shown.
impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("entries", &self.entries.len()).field("bytes", &self.bytes).finish()
    }
}

impl Store {
    /// Stores a value, replacing that of the key. A refusal changes nothing.
    pub fn insert(&mut self, key: Key, value: &[u8]) -> Result<(), Full> {
        self.insert_all(&[key], value)
    }

    /// Stores one value for all these keys, or for none.
    pub fn insert_all(&mut self, keys: &[Key], value: &[u8]) -> Result<(), Full> {
        if value.len() > VALUE_MAX_BYTES {
            return Err(Full::TooLong(value.len()));
        }
        let known = self.values.get_key_value(value).map(|(known, _)| Arc::clone(known));
        let more = if known.is_some() { 0 } else { value.len() };
        let others = keys.iter().filter(|key| !self.entries.contains_key(key)).count();
        if self.bytes + more > VALUES_MAX_BYTES || self.entries.len() + others > ENTRIES_MAX {
            return Err(Full::NoRoom { entries: self.entries.len(), bytes: self.bytes });
        }
        if keys.is_empty() {
            return Ok(());
        }
        self.bytes += more;
        let value = known.unwrap_or_else(|| value.into());
        *self.values.entry(Arc::clone(&value)).or_default() += keys.len();
        for key in keys {
            let entry = Entry { value: Arc::clone(&value), order: self.next };
            self.next += 1;
            if let Some(before) = self.entries.insert(*key, entry) {
                self.release(&before.value);
            }
        }
        Ok(())
    }

    /// Deletes the value of a key. Returns whether it had one.
    pub fn remove(&mut self, key: Key) -> bool {
        let removed = self.entries.remove(&key);
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to_fit();
        }
        removed.map(|entry| self.release(&entry.value)).is_some()
    }

    /// Decrements the entries of a value, and deletes a value without entries.
    fn release(&mut self, value: &Arc<[u8]>) {
        let Some(entries) = self.values.get_mut(value) else { return };
        *entries -= 1;
        if *entries == 0 {
            self.values.remove(value);
            self.bytes -= value.len();
        }
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Arc<[u8]>> {
        self.entries.get(&key).map(|entry| &entry.value)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of all different values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns every value with its keys.
    #[must_use]
    pub fn groups(&self) -> Vec<(Arc<[u8]>, Vec<Key>)> {
        let mut groups: HashMap<*const u8, (Arc<[u8]>, Vec<Key>)> = HashMap::new();
        for (key, entry) in &self.entries {
            let group = groups.entry(entry.value.as_ptr()).or_insert_with(|| (Arc::clone(&entry.value), Vec::new()));
            group.1.push(*key);
        }
        groups.into_values().collect()
    }

    /// Returns the keys in the order of their insertion, without the `last` ones.
    #[must_use]
    pub fn oldest(&self, last: usize) -> Vec<Key> {
        let mut keys: Vec<(u64, Key)> = self.entries.iter().map(|(key, entry)| (entry.order, *key)).collect();
        keys.sort_unstable();
        keys.truncate(keys.len().saturating_sub(last));
        keys.into_iter().map(|(_, key)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_stored_once_until_their_last_key_is_removed() {
        let mut store = Store::default();
        for key in 0..16_000 {
            store.insert(key, &[7; 4096]).unwrap();
        }
        assert_eq!((store.len(), store.bytes(), store.groups().len()), (16_000, 4096, 1));
        store.insert(3, b"other").unwrap();
        assert_eq!((store.bytes(), store.get(3).map(|value| &value[..])), (4101, Some(&b"other"[..])));
        for key in (0..16_000).filter(|key| *key != 3) {
            assert!(store.remove(key));
        }
        assert!(!store.remove(0));
        assert_eq!((store.len(), store.bytes(), store.get(4)), (1, 5, None));
        store.insert(3, b"other").unwrap();
        assert_eq!(store.bytes(), 5, "the same again");
        assert!(store.remove(3) && store.is_empty());
        assert_eq!((store.bytes(), store.values.len()), (0, 0));
    }

    #[test]
    fn a_value_that_does_not_fit_changes_nothing() {
        let mut store = Store::default();
        let long = vec![1; VALUE_MAX_BYTES];
        store.insert(0, b"small").unwrap();
        assert_eq!(store.insert(0, &[&long[..], b"x"].concat()), Err(Full::TooLong(VALUE_MAX_BYTES + 1)));
        let mut key = 1;
        let full = loop {
            let mut value = long.clone();
            value[..16].copy_from_slice(&Key::to_le_bytes(key));
            match store.insert(key, &value) {
                Ok(()) => key += 1,
                Err(full) => break full,
            }
        };
        assert_eq!(key, (VALUES_MAX_BYTES / VALUE_MAX_BYTES) as Key);
        assert_eq!(full, Full::NoRoom { entries: store.len(), bytes: store.bytes() });
        assert_eq!(store.get(0).map(|value| &value[..]), Some(&b"small"[..]));
        store.insert(1000, b"small").unwrap();
        assert_eq!(store.oldest(1)[..2], [0, 1]);
        assert!(!store.oldest(1).contains(&1000));
    }

    #[test]
    fn the_number_of_keys_is_limited() {
        let mut store = Store::default();
        for key in 0..ENTRIES_MAX as Key {
            store.insert(key, b"x").unwrap();
        }
        assert!(store.insert(Key::MAX, b"x").is_err());
        store.insert(0, b"y").unwrap();
    }
}
