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

/// Options that are followed by a script, of whatever program: `su -c`, `flock -c`, `script -qc`, a shell by another name.
const SCRIPT_OPTIONS: [&str; 4] = ["--command", "--eval", "--execute", "--session-command"];
/// Letters that a shell takes together with `c`, as in `-lc`. Not those of `tar -czf`.
const BESIDE_C: &str = "aceilnpqsuvx";
/// Interpreters that take a script after `-e` and the like.
const INTERPRETERS: [&str; 12] =
    ["perl", "ruby", "node", "nodejs", "deno", "bun", "lua", "luajit", "php", "Rscript", "julia", "elixir"];
/// Programs that run text among their other arguments.
const RUN_TEXT: [&str; 16] = [
    "ssh", "rsh", "awk", "gawk", "mawk", "nawk", "sed", "watch", "parallel", "tmux", "screen", "expect", "m4", "bc",
    "dc", "eval",
];

/// Returns the program that would run the text of an argument, which is no script of a shell that is known: a result in it
/// would be run.
pub(super) fn runner_of(command: &[String], place: usize) -> Option<&str> {
    if is_script(command, place) {
        return None;
    }
    let first = command.first().map(|word| program(word));
    let before = &command[..place.min(command.len())];
    if let Some(found) = before.iter().map(|word| program(word)).find(|name| RUN_TEXT.contains(name)) {
        return Some(found);
    }
    let argument = command.get(place)?;
    let joined = |option: &str| argument.strip_prefix(option).is_some_and(|rest| rest.starts_with('='));
    if place > 0 && (argument.starts_with("-c") || SCRIPT_OPTIONS.into_iter().any(joined)) {
        return first;
    }
    let option = before.last().filter(|_| place > 1)?;
    let interpreter = before.iter().map(|word| program(word)).find(|name| INTERPRETERS.contains(name));
    let is_evaluated = interpreter.is_some() && is_short(option) && option.contains(['e', 'E', 'r', 'p']);
    if SCRIPT_OPTIONS.contains(&option.as_str()) || is_script_option(option) || is_evaluated {
        return interpreter.or(first);
    }
    None
}

/// Tells whether a word is `-c`, alone or together with other options of a shell.
fn is_script_option(word: &str) -> bool {
    is_short(word) && word.contains('c') && word[1..].chars().all(|letter| BESIDE_C.contains(letter))
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
