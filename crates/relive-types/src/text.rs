//! Text that others write.

/// Tells whether a character does something to a terminal, or moves others about.
#[must_use]
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Tells whether a character is not seen, looks like a space and is none, or acts on others.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    acts(c) || is_ignorable(c) || is_blank(c)
}

/// Tells whether a character has the property `Default_Ignorable_Code_Point` of Unicode: nothing is drawn for it.
fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}')
        || matches!(c, '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// Tells whether a character is drawn as nothing but a gap. A space is what it looks like.
fn is_blank(c: char) -> bool {
    // The last ones are no spaces: an empty Braille pattern, marks of annotations, an empty note and a filler.
    c != ' ' && c.is_whitespace() || matches!(c, '\u{2800}' | '\u{fff9}'..='\u{fffb}' | '\u{1d159}' | '\u{16fe4}')
}

/// In front of every line that an agent wrote, so that it cannot draw an answer or another question.
pub const BAR: &str = "  | ";
/// In front of the rest of such a line that was too long for the screen: a line break looks different.
pub const REST_BAR: &str = "  |>";

/// The names of the hidden characters that a person meets most.
const NAMES: [(char, &str); 4] = [('\t', "TAB>"), ('\n', "LF>"), ('\r', "CR>"), ('\u{1b}', "ESC>")];
/// What the mark of any other character begins with, after the `<`.
const CODE: &str = "U+";

/// Returns the mark of a character that is not seen: `<TAB>`, `<ESC>`, `<U+200B>`.
#[must_use]
pub fn mark(c: char) -> String {
    match NAMES.iter().find(|(named, _)| *named == c) {
        Some((_, name)) => format!("<{name}"),
        None => format!("<{CODE}{:04X}>", u32::from(c)),
    }
}

/// Returns a text in which every character that is not seen, or that acts on others, is replaced by its mark: what a
/// person approves is what a person reads. No two texts look alike: where a text itself contains a mark, the `<` of it
/// is marked.
#[must_use]
pub fn exact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if is_hidden(c) || c == '<' && begins_as_mark(rest.as_str()) {
            shown.push_str(&mark(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Tells whether a `<` in front of this text would be read as the beginning of a mark.
fn begins_as_mark(rest: &str) -> bool {
    rest.starts_with(CODE) || NAMES.iter().any(|(_, name)| rest.starts_with(name))
}

/// Returns the lines of a text, with everything in them but the line feeds: a carriage return is part of a command.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_seen_is_spelled_out() {
        let unseen = "\u{0}\u{7f}\u{85}\u{a0}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{1680}\u{17b4}\u{17b5}\u{180b}\u{180e}\
                      \u{180f}\u{2000}\u{200a}\u{200b}\u{200f}\u{2028}\u{202e}\u{202f}\u{205f}\u{2060}\u{2065}\u{206f}\
                      \u{2800}\u{3000}\u{3164}\u{fe00}\u{fe0f}\u{feff}\u{ffa0}\u{fff0}\u{fffb}\u{16fe4}\u{1bca0}\
                      \u{1d159}\u{1d173}\u{e0000}\u{e0041}\u{e0100}\u{e01ef}\u{e0fff}";
        for c in unseen.chars() {
            let shown = exact(&c.to_string());
            assert!(
                shown.starts_with('<') && shown.ends_with('>') && shown.chars().all(|c| c.is_ascii_graphic()),
                "{:x}: {shown}",
                u32::from(c)
            );
        }
        let seen = "rm -rf ~/a_b 'c' \"d\" \\ Grüße 日本語 \u{1f600} e\u{301} \u{fffd}";
        assert_eq!(exact(seen), seen);
        assert_eq!(exact("a\tb\r\u{1b}[2J\u{200b}"), "a<TAB>b<CR><ESC>[2J<U+200B>");
        assert_eq!(
            exact(r"printf 'a\tb' <U <TABLE> <U+200B> <TAB>"),
            r"printf 'a\tb' <U <TABLE> <U+003C>U+200B> <U+003C>TAB>"
        );
    }

    /// Reads a shown text back.
    fn decode(shown: &str) -> String {
        let mut text = String::new();
        let mut rest = shown;
        while let Some(c) = rest.chars().next() {
            let named =
                NAMES.iter().find(|(_, name)| rest.strip_prefix('<').is_some_and(|rest| rest.starts_with(name)));
            if let Some((hidden, name)) = named {
                text.push(*hidden);
                rest = &rest[1 + name.len()..];
            } else if let Some(code) = rest.strip_prefix("<U+") {
                let (digits, after) = code.split_once('>').unwrap();
                text.push(char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap());
                rest = after;
            } else {
                text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        text
    }

    /// Characters, and pieces of which marks could be forged.
    fn pieces() -> impl Strategy<Value = String> {
        let pieces =
            ["<", "U+", "<U+", "<TAB>", "TAB>", "<ESC>", "003C>", "\\", "\\t", "\\u{1b}", "\t", "\u{1b}", "\u{200b}"];
        let piece = prop_oneof![
            proptest::sample::select(pieces.to_vec()).prop_map(str::to_owned),
            any::<char>().prop_map(String::from)
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn no_two_texts_look_alike(text in pieces()) {
            let shown = exact(&text);
            prop_assert!(!shown.chars().any(is_hidden));
            // What can be read back is shown only for one text.
            prop_assert_eq!(decode(&shown), text);
        }
    }

    #[test]
    fn a_carriage_return_is_part_of_its_line() {
        assert_eq!(lines("a\r\nb\n").collect::<Vec<_>>(), ["a\r", "b"]);
        assert_eq!(lines("").count(), 0);
        assert_eq!(lines("a\n\n").collect::<Vec<_>>(), ["a", ""]);
    }
}
