//! Mistakes in plain words: a person who writes a file does not know the parser that reads it.

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

/// The words of the parser, and what they mean to whoever wrote the file. The first that is found counts.
const SYNTAX: [(&str, &str); 22] = [
    ("unclosed bracket", "this bracket is never closed"),
    ("mismatched bracket", "this bracket is closed by one of another kind"),
    ("unclosed quote", "this quote is never closed"),
    ("multiline quoted scalar", "the quotes before this line are never closed, or the line is not indented enough"),
    ("unexpected document indicator", "the quotes before this line are never closed"),
    ("unknown escape character", "there is no such escape in \"...\": write `\\\\` for a backslash, or use '...'"),
    ("surrogate", "this is no character: `\\u` stands before a wrong number"),
    ("hexadecimal number", "this is no character: `\\u` and `\\x` stand before a hexadecimal number"),
    ("Unicode character escape", "this is no character: `\\u` stands before a wrong number"),
    ("tab", "lines are indented with spaces, not with tabs"),
    ("flow sequence", "a list in [...] needs `,` between its values and `]` at its end"),
    ("flow mapping", "a section in {...} needs `,` between its keys and `}` at its end"),
    (
        "expected '-' indicator",
        "this line does not fit the list above it: begin it with `- `, or indent it differently",
    ),
    ("sequence entries are not allowed", "a list with `- ` cannot begin here: begin it on a line of its own"),
    ("did not find expected key", "this line does not fit those above it: indent it as they are"),
    ("mapping values are not allowed", "there is a `:` too many here: put a text that contains `: ` in quotes"),
    ("block scalar", "the text after `|` or `>` is not indented correctly"),
    ("unexpected character", "no value begins with this character: put a text in quotes"),
    ("unknown anchor", "there is no `&` of this name before the `*`"),
    ("directive", "a line that begins with `%` is not understood here"),
    ("YAML major version", "a line that begins with `%` is not understood here"),
    ("indentation", "this line is not indented like those above it"),
];

/// Says what is wrong, without the place.
#[expect(clippy::wildcard_enum_match_arm, reason = "the parser has many more errors, and all of them are told alike")]
pub(crate) fn plain(error: &Error) -> String {
    let said = match error.without_snippet() {
        // What is wrong is inside of the alias.
        Error::AliasError { error, .. } => return plain(error),
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            return format!("the values are nested too deeply: {} levels are the most", crate::DEPTH_MAX);
        }
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "the file has too many values, or too long ones; an alias counts each time"
        }
        Error::MultipleDocuments { .. } => "a file has one document, and `---` begins another one",
        Error::Eof { .. } => "the file ends in the middle of a value",
        Error::DuplicateMappingKey { key: Some(key), .. } => return format!("`{key}` is given twice"),
        Error::DuplicateMappingKey { key: None, .. } => "this key is given twice",
        Error::UnknownAnchor { .. } => "there is no `&` of this name before the `*`",
        Error::RecursiveReferencesRequireWeakTypes { .. } => "a `*` cannot stand inside of the value that it names",
        Error::NullIntoString { .. } => "a key cannot be empty: put it in quotes if it is a name",
        Error::Unexpected { expected, .. } if expected.contains("mapping") => "a section with keys is needed here",
        Error::Unexpected { expected, .. } if expected.contains("sequence") => "a list is needed here",
        Error::Unexpected { .. } => "a key must be a text",
        Error::MergeValueNotMapOrSeqOfMaps { .. } | Error::MergeKeyNotAllowed { .. } => {
            "`<<` takes the keys of a section, and this is none"
        }
        Error::InvalidBinaryBase64 { .. }
        | Error::BinaryNotUtf8 { .. }
        | Error::TaggedScalarCannotDeserializeIntoString { .. }
        | Error::UnsupportedTag { .. } => "the value is not what the tag with `!` before it says",
        Error::InvalidScalar { ty, .. } if ty.starts_with("bool") => "this is neither `true` nor `false`",
        Error::InvalidScalar { .. } => "this is not a number that can be used here",
        Error::NonFiniteFloat { value, .. } => return format!("`{value}` is not a number that can be used here"),
        Error::InvalidUtf8Input => "the file is not UTF-8",
        // Of a file that is read with types: these are the words of the types.
        typed @ (Error::Message { .. }
        | Error::SerdeInvalidType { .. }
        | Error::SerdeInvalidValue { .. }
        | Error::SerdeInvalidLength { .. }
        | Error::SerdeUnknownVariant { .. }
        | Error::SerdeUnknownField { .. }
        | Error::SerdeMissingField { .. }) => return without_place(&typed.to_string()),
        other => return syntax(&other.to_string()),
    };
    said.to_owned()
}

/// Says which rule of YAML a line breaks.
fn syntax(message: &str) -> String {
    let known = SYNTAX.iter().find(|(words, _)| message.contains(words));
    known.map_or("this is not valid YAML", |(_, said)| said).to_owned()
}

/// The place is added by `report`, in one format for all mistakes.
fn without_place(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).to_owned()
}

#[cfg(test)]
mod tests {
    use crate::{Source, read};

    #[test]
    fn every_mistake_is_told_in_words_of_the_file_and_not_of_the_parser() {
        let check = |text: &str, expect: &str| {
            let said = read(&Source::new(text)).err().map(|problem| problem.message).unwrap_or_default();
            assert_eq!(said, expect, "{text:?}");
        };
        check("a: [b", "this bracket is never closed");
        check("a: [b}", "this bracket is closed by one of another kind");
        check("a:\n\tb: 1\n", "lines are indented with spaces, not with tabs");
        check("a: 1\na: 2\n", "`a` is given twice");
        check("a: *b\n", "there is no `&` of this name before the `*`");
        check("a: &a [*a]\n", "a `*` cannot stand inside of the value that it names");
        check("a: \"x\n", "the quotes before this line are never closed, or the line is not indented enough");
        check("a:\n  b: 1\n c: 2\n", "this line does not fit those above it: indent it as they are");
        check("a: {? [b, c] : d}\n", "a key must be a text");
        check("{null: 1}\n", "a key cannot be empty: put it in quotes if it is a name");
        check("<<: 3\n", "`<<` takes the keys of a section, and this is none");
        check("a: !!binary '%'\n", "the value is not what the tag with `!` before it says");
        check("a: !!int x\n", "this is not a number that can be used here");
        check("@a: 1\n", "no value begins with this character: put a text in quotes");
        check("a: .nan\n", "`.nan` is not a number that can be used here");
        check("%YAML 9.9\n---\na: 1\n", "a line that begins with `%` is not understood here");
        check("a: \"\\q\"\n", "there is no such escape in \"...\": write `\\\\` for a backslash, or use '...'");
        check("a: b: c\n", "there is a `:` too many here: put a text that contains `: ` in quotes");
        check("a: 1\n---\nb: 2\n", "a file has one document, and `---` begins another one");
    }

    /// Of any text, also one that nobody thought of.
    #[test]
    fn no_word_of_a_library_is_in_any_message() {
        const WORDS: [&str; 12] = [
            "scalar",
            "mapping",
            "sequence",
            "anchor",
            "deserialize",
            "Option",
            "Policy",
            "token",
            "serde",
            "saphyr",
            "indicator",
            "u64",
        ];
        let pieces = [
            "a", ":", " ", "\n", "\t", "[", "]", "{", "}", "\"", "'", "&x", "*x", "!t ", "- ", "|", ">", "?", "%", "#",
            ",", "~",
        ];
        let mut state = 7_usize;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(state >> 33) % pieces.len()]);
            }
            let said = read(&Source::new(&text)).err().map(|problem| problem.message).unwrap_or_default();
            let found = WORDS.iter().find(|word| said.contains(**word));
            assert_eq!(found, None, "{said:?} of {text:?}");
        }
    }
}
