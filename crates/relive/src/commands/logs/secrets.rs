//! Secrets among the arguments of a program. Too much is hidden rather than too little.

/// What stands for a secret.
const MASK: &str = "***";
/// Parts of names whose values are secrets.
const SECRET_NAMES: [&str; 6] = ["auth", "authorization", "bearer", "cookie", "credential", "credentials"];
/// The ends of parts of names whose values are secrets: `key`, and also `apikey`.
const SECRET_NAME_ENDS: [&str; 5] = ["key", "token", "secret", "password", "passwd"];
/// How the keys of well-known providers begin.
const SECRET_BEGINNINGS: [&str; 9] = ["sk-", "sk_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "AIza"];
/// What is followed by a secret in a header.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

/// Returns arguments without the secrets among them: values that are named so, in whatever way, and what begins like a key.
pub(super) fn masked(argv: Vec<String>) -> Vec<String> {
    let mut follows = false;
    let mask = |word: String| {
        if std::mem::take(&mut follows) && !word.starts_with('-') {
            return MASK.to_owned();
        }
        follows = word.starts_with('-') && !word.contains('=') && is_secret_name(&word);
        without_values(&without_keys(&without_passwords(&word)))
    };
    argv.into_iter().map(mask).collect()
}

/// Masks the value after the first name of a secret: `NAME=VALUE`, `NAME: VALUE`, or a field of JSON.
fn without_values(text: &str) -> String {
    let mut from = 0;
    while let Some(at) = text[from..].find(['=', ':']).map(|at| from + at) {
        let (named, value) = (&text[from..at], &text[at + 1..]);
        if is_secret_name(named) && !value.trim().is_empty() {
            let space = if value.starts_with(' ') { " " } else { "" };
            return format!("{}{space}{MASK}", &text[..=at]);
        }
        from = at + 1;
    }
    text.to_owned()
}

/// Tells whether the last word of a text names a secret: one of its parts does, such as `token` in `--apiToken`.
fn is_secret_name(text: &str) -> bool {
    let name = text.split_whitespace().next_back().unwrap_or_default();
    let mut parts: Vec<String> = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() || (before.is_lowercase() && c.is_uppercase()) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| c.is_alphanumeric()) {
            part.extend(c.to_lowercase());
        }
        before = c;
    }
    let is_secret =
        |part: &String| SECRET_NAMES.contains(&part.as_str()) || SECRET_NAME_ENDS.iter().any(|end| part.ends_with(end));
    parts.iter().any(is_secret)
}

/// Masks the passwords of addresses: `https://USER:PASSWORD@HOST`, also without a user.
fn without_passwords(text: &str) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://").map(|at| at + "://".len()) {
        let (before, after) = rest.split_at(at);
        shown.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/?#\"'".contains(c)).unwrap_or(after.len());
        let (authority, next) = after.split_at(end);
        match authority.rsplit_once('@') {
            Some((login, host)) => {
                let user = login.split_once(':').map_or("", |(user, _)| user);
                let colon = if user.is_empty() { "" } else { ":" };
                shown.extend([user, colon, MASK, "@", host]);
            }
            None => shown.push_str(authority),
        }
        rest = next;
    }
    shown.push_str(rest);
    shown
}

/// Masks what begins like a key, and what follows `Bearer`, wherever that is in a text.
fn without_keys(text: &str) -> String {
    let (mut shown, mut rest, mut before) = (String::new(), text, ' ');
    while let Some(c) = rest.chars().next() {
        let scheme = SCHEMES
            .iter()
            .find(|scheme| rest.get(..scheme.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(scheme)));
        let begins_key = SECRET_BEGINNINGS.iter().any(|beginning| rest.starts_with(beginning));
        if before.is_alphanumeric() || (scheme.is_none() && !begins_key) {
            shown.push(c);
            (rest, before) = (&rest[c.len_utf8()..], c);
            continue;
        }
        let (kept, secret) = rest.split_at(scheme.map_or(0, |scheme| scheme.len()));
        let secret = secret.trim_start();
        let end = secret.find(|c: char| c.is_whitespace() || "\"',;".contains(c)).unwrap_or(secret.len());
        shown.push_str(kept);
        shown.push_str(MASK);
        (rest, before) = (&secret[end..], '*');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_among_arguments_are_masked() {
        let check = |argv: &[&str], expect: &[&str]| {
            assert_eq!(masked(argv.iter().map(|word| (*word).to_owned()).collect()), expect);
        };
        let same = |argv: &[&str]| check(argv, argv);
        same(&["claude", "-p", "--session-id", "1"]);
        same(&["agent", "--max-tokens", "100", "--max-tokens=100", "--author", "me", "--keyword", "x"]);
        same(&["agent", "task-1", "--url", "https://example.org/a?b=c", "ask-me"]);
        same(&["agent", "--token", "--verbose"]);
        check(&["agent", "--api-key", "abc", "run"], &["agent", "--api-key", "***", "run"]);
        check(&["agent", "--api-key=abc", "-c", "x.token=1"], &["agent", "--api-key=***", "-c", "x.token=***"]);
        check(&["agent", "--apiKey", "abc", "--apikey=abc"], &["agent", "--apiKey", "***", "--apikey=***"]);
        check(&["OPENAI_API_KEY=abc=", "sk-ant-abc"], &["OPENAI_API_KEY=***", "***"]);
        check(&["-H", "Authorization: Bearer abc="], &["-H", "Authorization: ***"]);
        check(&["--header=X-Api-Key: abc", "Cookie: a=b"], &["--header=X-Api-Key: ***", "Cookie: ***"]);
        check(&["https://u:abc@h/p?x=1", "--at=http://abc@h"], &["https://u:***@h/p?x=1", "--at=http://***@h"]);
        check(&["a http://u:a@b@h, b ftp://u:c@h:1"], &["a http://u:***@h, b ftp://u:***@h:1"]);
        check(&["--say", "send bearer  abc, please"], &["--say", "send bearer ***, please"]);
        check(&["use the key sk-abc now", "a=ghp_1"], &["use the key *** now", "a=***"]);
        check(
            &[r#"{"env":{"A_TOKEN":"abc"}}"#, r#"{"a":"sk-1","b":2}"#],
            &[r#"{"env":{"A_TOKEN":***"#, r#"{"a":"***","b":2}"#],
        );
    }
}
