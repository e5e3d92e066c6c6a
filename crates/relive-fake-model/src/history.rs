//! A conversation in a form common to all providers, and the checks that a provider would make.

use crate::script::{Turn, signature};

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    User,
    Answer(Answer),
    /// The calls that have a result, by id or, without ids, by name.
    Results(Vec<String>),
}

/// An answer of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// By id, or by name.
    pub(crate) calls: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) thinking: Option<String>,
    pub(crate) signature: Option<String>,
}

/// Which of its thinking a provider wants back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returned {
    Nothing,
    Signature,
    SignedThinking,
    /// The thinking of turns that call tools.
    Thinking,
}

/// A conversation, and the rules of its provider.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) entries: Vec<Entry>,
    pub(crate) returned: Returned,
}

impl History {
    /// Returns the number of the requested turn.
    pub(crate) fn turn(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry, Entry::Answer(_))).count()
    }

    /// Returns why a provider would refuse the conversation. `turns` are those of its answers, and `before` counts the
    /// earlier ones.
    pub(crate) fn check(&self, turns: &[Turn], before: usize) -> Result<(), String> {
        match self.entries.first() {
            Some(Entry::User) => {}
            other => return Err(format!("the conversation begins with {other:?}, not with the user")),
        }
        let mut turn = 0;
        for (place, entry) in self.entries.iter().enumerate() {
            let next = self.entries.get(place + 1);
            match (entry, next) {
                (Entry::Answer(answer), Some(Entry::Results(results))) => pair(&answer.calls, results)?,
                (Entry::Answer(answer), _) if !answer.calls.is_empty() => {
                    return Err(format!("the calls {:?} have no results after them", answer.calls));
                }
                (Entry::Answer(_), Some(Entry::Answer(_))) => return Err("two answers in a row".to_owned()),
                (Entry::Answer(_), None) => return Err("the conversation ends with an answer".to_owned()),
                (Entry::User | Entry::Results(_), Some(Entry::Results(results))) => {
                    return Err(format!("the results {results:?} answer no call"));
                }
                (Entry::Answer(_), Some(Entry::User)) | (Entry::User | Entry::Results(_), _) => {}
            }
            if let Entry::Answer(answer) = entry {
                self.as_said(before + turn, answer, turns.get(turn))?;
                turn += 1;
            }
        }
        Ok(())
    }

    /// Checks that an answer comes back as it was given.
    fn as_said(&self, number: usize, answer: &Answer, turn: Option<&Turn>) -> Result<(), String> {
        let Some(turn) = turn else { return Ok(()) };
        let said: Vec<&str> = turn.calls.iter().map(|(name, _)| name.as_str()).collect();
        if answer.names != said {
            return Err(format!("answer {number} called {said:?}, not {:?}", answer.names));
        }
        let Some(thinking) = &turn.thinking else { return Ok(()) };
        let signed = answer.signature.as_deref() == Some(signature(number).as_str());
        let thought = answer.thinking.as_ref() == Some(thinking);
        let unchanged = match self.returned {
            Returned::Nothing => true,
            Returned::Signature => signed,
            Returned::SignedThinking => signed && thought,
            Returned::Thinking => thought || said.is_empty(),
        };
        if unchanged { Ok(()) } else { Err(format!("the thinking of answer {number} came back changed: {answer:?}")) }
    }
}

/// Checks that each call has exactly one result.
fn pair(calls: &[String], results: &[String]) -> Result<(), String> {
    let (mut calls, mut results) = (calls.to_vec(), results.to_vec());
    calls.sort();
    results.sort();
    if calls == results { Ok(()) } else { Err(format!("the calls {calls:?} have the results {results:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(calls: &[&str]) -> Entry {
        let calls: Vec<String> = calls.iter().map(|&call| call.to_owned()).collect();
        Entry::Answer(Answer { names: vec!["tool".to_owned(); calls.len()], calls, ..Answer::default() })
    }

    fn results(calls: &[&str]) -> Entry {
        Entry::Results(calls.iter().map(|&call| call.to_owned()).collect())
    }

    #[test]
    fn conversations_that_a_provider_refuses_are_refused() {
        let check = |entries: &[Entry], wrong: Option<&str>| {
            let history = History { entries: entries.to_vec(), returned: Returned::Nothing };
            let said = history.check(&[], 0).err();
            assert_eq!(said.is_some(), wrong.is_some(), "{entries:?}: {said:?}");
            assert!(said.unwrap_or_default().contains(wrong.unwrap_or_default()), "{entries:?}");
        };
        let user = Entry::User;
        check(&[], Some("begins"));
        check(std::slice::from_ref(&user), None);
        check(&[answer(&[])], Some("begins"));
        check(&[user.clone(), answer(&["a", "b"]), results(&["b", "a"])], None);
        check(&[user.clone(), answer(&["a", "b"]), results(&["a"])], Some("have the results"));
        check(&[user.clone(), answer(&["a"]), results(&["a", "a"])], Some("have the results"));
        check(&[user.clone(), answer(&["a"]), user.clone()], Some("no results"));
        check(&[user.clone(), answer(&["a"]), results(&["a"]), results(&["a"])], Some("answer no call"));
        check(&[user.clone(), results(&["a"])], Some("answer no call"));
        check(&[user.clone(), answer(&[])], Some("ends with an answer"));
        check(&[user.clone(), answer(&[]), answer(&[]), user.clone()], Some("two answers"));
        check(&[user.clone(), answer(&["a"]), results(&["a"]), user], None);
    }

    #[test]
    fn thinking_that_comes_back_changed_is_refused() {
        let turns = [Turn::calls("tool", serde_json::json!({})).thinking("hm")];
        let check = |returned, thinking: Option<&str>, signed: bool, expect: bool| {
            let said = Answer {
                calls: vec!["a".to_owned()],
                names: vec!["tool".to_owned()],
                thinking: thinking.map(str::to_owned),
                signature: signed.then(|| signature(0)),
            };
            let entries = vec![Entry::User, Entry::Answer(said), results(&["a"])];
            assert_eq!(History { entries, returned }.check(&turns, 0).is_ok(), expect, "{returned:?} {thinking:?}");
        };
        check(Returned::SignedThinking, Some("hm"), true, true);
        check(Returned::SignedThinking, Some("hmm"), true, false);
        check(Returned::SignedThinking, Some("hm"), false, false);
        check(Returned::Signature, None, true, true);
        check(Returned::Signature, None, false, false);
        check(Returned::Thinking, None, false, false);
        check(Returned::Nothing, None, false, true);
    }
}
