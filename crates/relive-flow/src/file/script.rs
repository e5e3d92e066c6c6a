//! Arguments that a shell runs as a script.

/// Tells whether an argument is the script of a shell: `sh -c SCRIPT`, also with other options, or behind `env` and the
/// like. A word that only looks like a shell counts too: a script that is not found would run the results in it.
pub(super) fn is_script(command: &[String], place: usize) -> bool {
    const SHELLS: [&str; 8] = ["sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh"];
    let shells = command.iter().take(place).enumerate().filter(|(_, word)| SHELLS.contains(&program(word)));
    shells.into_iter().any(|(shell, _)| script_of(&command[shell + 1..]).is_some_and(|at| shell + 1 + at == place))
}

/// Tells whether an argument is a script of fish: `fish -c SCRIPT`, `fish -cSCRIPT`, `fish --command=SCRIPT`. There,
/// `${NAME}` is a mistake.
pub(super) fn is_fish_script(command: &[String], place: usize) -> bool {
    let is_option = |word: &String| {
        word.starts_with("--c") || word.starts_with("--init") || is_short(word) && word.contains(['c', 'C'])
    };
    let is_behind = command.iter().take(place).any(|word| program(word) == "fish");
    let before = place.checked_sub(1).and_then(|before| command.get(before));
    is_behind && before.into_iter().chain(command.get(place)).any(is_option)
}

fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

fn is_short(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && !word.starts_with("--")
}

/// Returns the place of the script among the arguments of a shell: with `-c`, the first one that is neither an option nor
/// the value of one.
fn script_of(arguments: &[String]) -> Option<usize> {
    let (mut has_script, mut place) = (false, 0);
    while let Some(word) = arguments.get(place) {
        place += 1;
        match word.as_str() {
            "-" | "--" => return has_script.then_some(place),
            "--rcfile" | "--init-file" | "--emulate" => place += 1,
            long if long.starts_with("--") => {}
            short if is_short(short) || short.starts_with('+') => {
                has_script |= short.starts_with('-') && short.contains('c');
                place += short.matches(['o', 'O']).count();
            }
            _ => return has_script.then_some(place - 1),
        }
    }
    None
}
