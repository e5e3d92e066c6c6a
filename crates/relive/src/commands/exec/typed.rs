//! The command as it was typed, changed so that it works: a hint keeps every other option.

use relive_types::program::quote;

/// Returns the command with `-d`.
pub(super) fn in_background(command: &str) -> String {
    join(&with_detach(&words(), command))
}

/// Returns the command without a terminal for the program.
pub(super) fn without_terminal(command: &str) -> String {
    join(&without_tty(&words(), command))
}

fn words() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

fn join(words: &[String]) -> String {
    std::iter::once("relive".to_owned()).chain(words.iter().map(|word| quote(word))).collect::<Vec<_>>().join(" ")
}

/// Returns the place of the first word after the command.
fn after_command(words: &[String], command: &str) -> usize {
    words.iter().position(|word| word == command).map_or(0, |place| place + 1)
}

fn with_detach(words: &[String], command: &str) -> Vec<String> {
    let (before, after) = words.split_at(after_command(words, command));
    [before, &["-d".to_owned()], after].concat()
}

/// Removes `-t`, also from a group of short options, and the key that only a terminal has.
fn without_tty(words: &[String], command: &str) -> Vec<String> {
    let start = after_command(words, command);
    let end = words.iter().skip(start).position(|word| word == "--").map_or(words.len(), |place| start + place);
    let mut kept = words[..start].to_vec();
    let mut options = words[start..end].iter();
    while let Some(word) = options.next() {
        match word.as_str() {
            "--tty" => {}
            "--detach-key" => {
                options.next();
            }
            key if key.starts_with("--detach-key=") => {}
            group if is_group(group) => {
                let rest: String = group.chars().filter(|letter| *letter != 't').collect();
                kept.extend((rest != "-").then_some(rest));
            }
            // The program, and what belongs to it.
            program if !program.starts_with('-') && !takes_value(kept.last()) && command == "exec" => {
                kept.push(word.clone());
                kept.extend(options.cloned());
                break;
            }
            _ => kept.push(word.clone()),
        }
    }
    kept.extend_from_slice(&words[end..]);
    kept
}

/// Returns whether a word is a group of short options without values.
fn is_group(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|letters| !letters.is_empty() && letters.chars().all(|letter| "dtinqyh".contains(letter)))
}

/// Returns whether an option has its value in the next word.
fn takes_value(word: Option<&String>) -> bool {
    const FLAGS: [&str; 8] =
        ["--detach", "--interactive", "--no-input", "--gate", "--allow-degraded", "--json", "--tty", "--help"];
    word.is_some_and(|word| word.starts_with("--") && !word.contains('=') && !FLAGS.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_hint_without_a_terminal_keeps_the_other_options() {
        let check = |command: &str, typed: &str, expect: &str| {
            assert_eq!(without_tty(&split(typed), command).join(" "), expect);
        };
        check("exec", "exec -t --env A=1 --name x -- bash -t", "exec --env A=1 --name x -- bash -t");
        check("exec", "exec -it --detach-key ctrl-q --name=x -- sh", "exec -i --name=x -- sh");
        check("exec", "exec --tty --detach-key=ctrl-q --env A=1 sh -t", "exec --env A=1 sh -t");
        check("enter", "enter -t --ns net web -- ss -t", "enter --ns net web -- ss -t");
    }

    #[test]
    fn a_hint_for_the_background_keeps_all_options() {
        let check = |typed: &str, expect: &str| assert_eq!(with_detach(&split(typed), "exec").join(" "), expect);
        check("exec --json --env A=1 -- true", "exec -d --json --env A=1 -- true");
        check("--json exec -- exec", "--json exec -d -- exec");
    }
}
