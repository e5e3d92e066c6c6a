//! Patterns for names: `*` matches any text, `?` any one character, everything else itself.
//!
//! Matching takes at most the product of both lengths: a pattern comes from a user and is tried on every row.

/// The longest pattern that matches anything.
pub const PATTERN_MAX: usize = 256;

/// Returns whether all of `text` matches `pattern`.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    if pattern.len() > PATTERN_MAX {
        return false;
    }
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // After the last `*`: the rest of the pattern, and the text from the next position to try.
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let (before_pattern, before_text) = (pattern.clone(), text.clone());
        match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = before_text;
                retry = Some((pattern.clone(), text.clone()));
            }
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            (None | Some(_), _) => {
                drop(before_pattern);
                let Some((after_star, mut from)) = retry.take() else { return false };
                if from.next().is_none() {
                    return false;
                }
                (pattern, text) = (after_star.clone(), from.clone());
                retry = Some((after_star, from));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str, expect: bool) {
        assert_eq!(matches(pattern, text), expect, "`{pattern}` on `{text}`");
    }

    #[test]
    fn patterns_match_as_documented() {
        check("", "", true);
        check("", "a", false);
        check("*", "", true);
        check("*", "anything", true);
        check("a*", "abc", true);
        check("*c", "abc", true);
        check("*c", "abcd", false);
        check("a*c*e", "abcde", true);
        check("a*c*e", "abde", false);
        check("?", "ä", true);
        check("?", "", false);
        check("a?c", "abc", true);
        check("**a**", "bab", true);
        check("[a]", "a", false);
        check("[a]", "[a]", true);
        check("A", "a", false);
        check("worker-*-?", "worker-12-3", true);
        check("*aab", "aaaaab", true);
    }

    #[test]
    fn a_malicious_pattern_is_matched_quickly() {
        let pattern = "*a".repeat(100) + "b";
        check(&pattern, &"a".repeat(4_000), false);
        check(&"*".repeat(PATTERN_MAX + 1), "a", false);
    }

    /// The reference implementation: tries every way to read the pattern.
    fn by_the_book(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=text.len()).any(|skip| by_the_book(rest, &text[skip..])),
            (['?', rest @ ..], [_, left @ ..]) => by_the_book(rest, left),
            ([wanted, rest @ ..], [found, left @ ..]) => wanted == found && by_the_book(rest, left),
            _ => false,
        }
    }

    proptest::proptest! {
        #[test]
        fn every_pattern_matches_like_the_reference(pattern in "[ab*?]{0,7}", text in "[abc]{0,7}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(matches(&pattern, &text), by_the_book(&chars(&pattern), &chars(&text)), "{pattern} {text}");
        }
    }
}
