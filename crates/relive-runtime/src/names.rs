//! Names of processes: which ones are valid, and that living processes have different ones.

use std::sync::Arc;

use relive_core::{ErrorCode, Uuid};
use relive_types::short_id;
use relive_types::text::exact;

use crate::error::{Error, Result};
use crate::runtime::Runtime;

const NAME_MAX: usize = 64;

/// Refuses a name that could be confused with a PID, a part of a UUID or an option.
pub(crate) fn check_name(name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let is_plain = name.chars().all(|letter| letter.is_alphanumeric() || "._-".contains(letter));
    let begins = name.chars().next().is_some_and(char::is_alphanumeric);
    let why = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.starts_with('-') {
        "it looks like an option".to_owned()
    } else if name.chars().all(char::is_numeric) {
        "digits alone are a PID".to_owned()
    } else if short_id::is_part(name) || Uuid::try_parse(name).is_ok() {
        // Words of these letters exist, and another letter makes a name of them.
        format!("it looks like a part of a UUID (4 or more of 0-9 and a-f); `{name}-x` does not")
    } else if name.len() > NAME_MAX {
        format!("it is longer than {NAME_MAX} bytes")
    } else if !begins || !is_plain {
        "a name has letters, digits, `.`, `_` and `-`, and begins with a letter or digit".to_owned()
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(NAME_MAX).collect();
    Err(Error::new(ErrorCode::Invalid, format!("`{}` cannot be a name: {why}", exact(&shown))))
}

/// A name that is reserved for a process until it is in the table.
#[derive(Debug)]
pub(crate) struct HeldName {
    runtime: Arc<Runtime>,
    name: String,
}

impl Drop for HeldName {
    fn drop(&mut self) {
        self.runtime.lock().names.remove(&self.name);
    }
}

impl Runtime {
    /// Reserves a name for a process, until the returned value is dropped. Refused while another living process has it,
    /// or is about to.
    pub(crate) fn hold_name(self: &Arc<Self>, name: Option<&str>, uuid: Uuid) -> Result<Option<HeldName>> {
        let Some(name) = name else { return Ok(None) };
        let mut state = self.lock();
        if state.table.living_named(name, uuid).is_some() {
            return Err(Error::NameTaken { name: name.to_owned() });
        }
        if state.names.get(name).is_some_and(|holder| *holder != uuid) {
            let message = format!("the name `{name}` is about to be used by another process");
            return Err(Error::new(ErrorCode::Conflict, message).with_hint("relive ps"));
        }
        state.names.insert(name.to_owned(), uuid);
        Ok(Some(HeldName { runtime: Arc::clone(self), name: name.to_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_like_a_pid_a_uuid_or_an_option_are_refused() {
        let check = |name: &str, why: Option<&str>| match (check_name(Some(name)), why) {
            (Ok(()), None) => {}
            (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error}"),
            (result, why) => panic!("{name}: {result:?}, not {why:?}"),
        };
        for name in ["fixer", "a", "add", "test-1", "v1.2", "Übersetzer", "deadline", "2024-11", "1a", "0x12ab"] {
            check(name, None);
        }
        check("", Some("empty"));
        check("-f", Some("option"));
        check("42", Some("PID"));
        check("\u{ff11}\u{ff12}", Some("PID"));
        check("\u{663}", Some("PID"));
        check("dead", Some("UUID (4 or more of 0-9 and a-f); `dead-x` does not"));
        check("dead-x", None);
        check("0c9d1e77", Some("UUID"));
        check("0198f3c1-0000-7000-8000-000012345678", Some("UUID"));
        check("a b", Some("letters"));
        check(".hidden", Some("begins"));
        check(&"x".repeat(65), Some("longer"));
        assert!(check_name(None).is_ok());
    }
}
