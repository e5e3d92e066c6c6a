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

/// Returns a text in which every character that is not seen, or that acts on others, is spelled out: what a person
/// approves is what a person reads.
#[must_use]
pub fn exact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Returns the lines of a text, with everything in them but the line feeds: a carriage return is part of a command.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_spelled_out() {
        let unseen = "\u{0}\u{7f}\u{85}\u{a0}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{1680}\u{17b4}\u{17b5}\u{180b}\u{180e}\
                      \u{180f}\u{2000}\u{200a}\u{200b}\u{200f}\u{2028}\u{202e}\u{202f}\u{205f}\u{2060}\u{2065}\u{206f}\
                      \u{2800}\u{3000}\u{3164}\u{fe00}\u{fe0f}\u{feff}\u{ffa0}\u{fff0}\u{fffb}\u{16fe4}\u{1bca0}\
                      \u{1d159}\u{1d173}\u{e0000}\u{e0041}\u{e0100}\u{e01ef}\u{e0fff}";
        for c in unseen.chars() {
            let shown = exact(&c.to_string());
            assert!(
                shown.starts_with('\\') && shown.chars().all(|c| c.is_ascii_graphic()),
                "{:x}: {shown}",
                u32::from(c)
            );
        }
        let seen = "rm -rf ~/a_b 'c' \"d\" \\ Grüße 日本語 \u{1f600} e\u{301} \u{fffd}";
        assert_eq!(exact(seen), seen);
        assert_eq!(exact("a\tb\r"), "a\\tb\\r");
    }

    #[test]
    fn a_carriage_return_is_part_of_its_line() {
        assert_eq!(lines("a\r\nb\n").collect::<Vec<_>>(), ["a\r", "b"]);
        assert_eq!(lines("").count(), 0);
        assert_eq!(lines("a\n\n").collect::<Vec<_>>(), ["a", ""]);
    }
}
