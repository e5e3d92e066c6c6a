//! The choices of a question, and how a line that was typed names one of them.

/// Returns the answer that a line gives to a question: one of the choices by its text or else by its number, or the
/// words themselves. The text takes precedence: with the choices "2" and "1", the answer "2" is the first one.
#[must_use]
pub fn chosen(line: &str, choices: &[String]) -> Option<String> {
    let trimmed = line.trim();
    let chosen = choices
        .iter()
        .find(|choice| *choice == line)
        .or_else(|| choices.iter().find(|choice| *choice == trimmed))
        .or_else(|| {
            (1_usize..).zip(choices).find(|(number, _)| number.to_string() == trimmed).map(|(_, choice)| choice)
        });
    chosen.cloned().or_else(|| (!trimmed.is_empty()).then(|| trimmed.to_owned()))
}

/// Tells whether each number that is typed names the choice of that number: it does not if it is the text of another.
#[must_use]
pub fn numbers_choose<S: AsRef<str>>(choices: &[S]) -> bool {
    (1_usize..).zip(choices).all(|(number, choice)| {
        let number = number.to_string();
        choice.as_ref() == number || choices.iter().all(|other| other.as_ref() != number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_by_a_number_or_by_words() {
        let choices = ["main".to_owned(), "dev".to_owned()];
        let check =
            |line: &str, expect: Option<&str>| assert_eq!(chosen(line, &choices).as_deref(), expect, "{line:?}");
        check("2", Some("dev"));
        check(" main ", Some("main"));
        check("3", Some("3"));
        check("0", Some("0"));
        check("  ", None);
        check("02", Some("02"));
        check("+2", Some("+2"));
    }

    #[test]
    fn the_text_of_a_choice_wins_over_the_number_of_another() {
        let choices = ["2", "1", "01", " 3 ", "many"].map(str::to_owned);
        let check = |line: &str, expect: &str| assert_eq!(chosen(line, &choices).as_deref(), Some(expect), "{line:?}");
        for choice in &choices {
            check(choice, choice);
        }
        check("2\n", "2");
        check("5", "many");
    }

    /// A number is only proposed if it selects the choice that it is shown with.
    #[test]
    fn a_number_is_proposed_if_it_gives_the_choice_of_that_number() {
        let check = |choices: &[&str], expect: bool| {
            let choices: Vec<String> = choices.iter().map(|choice| (*choice).to_owned()).collect();
            assert_eq!(numbers_choose(&choices), expect, "{choices:?}");
            let gives =
                |(number, choice): (usize, &String)| chosen(&number.to_string(), &choices).as_ref() == Some(choice);
            assert_eq!((1..).zip(&choices).all(gives), expect, "{choices:?}");
        };
        check(&["2", "1", "01", " 3 ", "many"], false);
        check(&["1", "2", "10"], true);
        check(&["10", "20"], true);
        check(&["main", "dev"], true);
        check(&["main", "1"], false);
        check(&[], true);
    }
}
