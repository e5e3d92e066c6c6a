//! The environment of a process: that of the person who typed its command.
//!
//! It may contain keys. So only its names are shown, and a value has to be requested by name.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Variables and their values. On the wire a plain object.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Returns the value of a variable; an empty one counts as absent, as for most programs that need a key.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn set(&mut self, name: String, value: String) {
        self.0.insert(name, value);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns all variables, to start a program with them.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the first name that no program can be given, or whose value no program can be given.
    #[must_use]
    pub fn impossible(&self) -> Option<&str> {
        let bad =
            |(name, value): &(&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        self.0.iter().find(bad).map(|(name, _)| name.as_str())
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn debug_output_shows_only_names() {
        let shown = format!("{:?}", environment(&[("KEY", "sk-secret"), ("A", "b")]));
        assert_eq!(shown, r#"{"A", "KEY"}"#);
    }

    #[test]
    fn a_variable_that_no_program_can_be_given_is_reported() {
        let check = |name: &str, value: &str, impossible: bool| {
            assert_eq!(environment(&[("OK", "x"), (name, value)]).impossible().is_some(), impossible, "{name:?}");
        };
        check("KEY", "a=b\n", false);
        check("", "x", true);
        check("A=B", "x", true);
        check("A", "x\0y", true);
        check("A\0", "x", true);
    }
}
