//! Texts with the results of other nodes in them: `{{ nodes.plan.result }}`.

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(String),
    /// The result of the node with this name.
    Result(String),
}

/// Why a text cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("`{{{{` has no `}}}}` after it")]
    Open,
    #[error("`{{{{ {0} }}}}` cannot be understood: write `{{{{ nodes.NAME.result }}}}`")]
    Unknown(String),
}

/// Splits a text into its parts. `{{{{` stands for two braces.
pub fn parse(text: &str) -> Result<Vec<Part>, TemplateError> {
    let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(place) = rest.find("{{") {
        plain.push_str(&rest[..place]);
        let after = &rest[place + 2..];
        if let Some(literal) = after.strip_prefix("{{") {
            plain.push_str("{{");
            rest = literal;
            continue;
        }
        let (inside, left) = after.split_once("}}").ok_or(TemplateError::Open)?;
        let name = inside.trim().strip_prefix("nodes.").and_then(|name| name.strip_suffix(".result"));
        let name = name.filter(|name| is_name(name)).ok_or_else(|| TemplateError::Unknown(inside.trim().to_owned()))?;
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        parts.push(Part::Result(name.to_owned()));
        rest = left;
    }
    plain.push_str(rest);
    if !plain.is_empty() || parts.is_empty() {
        parts.push(Part::Text(plain));
    }
    Ok(parts)
}

/// Returns the nodes whose results a text has, each once. A text that cannot be understood has none.
#[must_use]
pub fn nodes(text: &str) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let results = parse(text).unwrap_or_default().into_iter().filter_map(|part| match part {
        Part::Result(name) => Some(name),
        Part::Text(_) => None,
    });
    results.filter(|name| seen.insert(name.clone())).collect()
}

/// Counts the results in a text.
#[must_use]
pub fn count(text: &str) -> usize {
    parse(text).unwrap_or_default().iter().filter(|part| matches!(part, Part::Result(_))).count()
}

/// Puts the results into a text.
#[must_use]
pub fn fill(text: &str, result: impl Fn(&str) -> String) -> String {
    match parse(text) {
        Ok(parts) => parts
            .into_iter()
            .map(|part| match part {
                Part::Text(text) => text,
                Part::Result(name) => result(&name),
            })
            .collect(),
        Err(_) => text.to_owned(),
    }
}

/// Tells whether a text can be the name of a node.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let begins = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    begins && text.len() <= NAME_MAX && text.chars().all(plain)
}

/// The longest name of a node: a process has the name of its node and the id of its run in 64 bytes.
pub const NAME_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_where_their_nodes_are_named() {
        let check = |text: &str, expect: &str| {
            assert_eq!(fill(text, |name| format!("<{name}>")), expect, "{text}");
        };
        check("plain", "plain");
        check("", "");
        check("{{ nodes.a.result }}", "<a>");
        check("{{nodes.a.result}} and {{ nodes.b-2.result }}.", "<a> and <b-2>.");
        check("{{{{ nodes.a.result }}", "{{ nodes.a.result }}");
        check("json {\"a\": {\"b\": 1}}", "json {\"a\": {\"b\": 1}}");
    }

    #[test]
    fn a_result_is_never_read_as_a_template_again() {
        assert_eq!(fill("{{ nodes.a.result }}", |_| "{{ nodes.b.result }}".to_owned()), "{{ nodes.b.result }}");
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        assert_eq!(parse("x {{ nodes.a.result"), Err(TemplateError::Open));
        for inside in ["nodes.a", "a.result", "nodes..result", "nodes.a.b.result", "env.HOME", ""] {
            assert_eq!(parse(&format!("{{{{ {inside} }}}}")), Err(TemplateError::Unknown(inside.to_owned())));
        }
    }
}
