//! Arguments that a program runs.

/// Shells that take `${NAME}` for a variable, and do not run what it stands for.
const SHELLS: [&str; 17] = [
    "sh", "bash", "rbash", "dash", "ash", "hush", "zsh", "ksh", "rksh", "mksh", "lksh", "oksh", "pdksh", "yash",
    "posh", "osh", "brush",
];
/// Shells with another language, in whose scripts there are no results.
const OTHER_SHELLS: [&str; 12] =
    ["fish", "csh", "tcsh", "nu", "elvish", "xonsh", "pwsh", "powershell", "rc", "es", "sash", "ysh"];
/// Options that are followed by a script, of whatever program: `su --command`, `node --eval`.
const SCRIPT_OPTIONS: [&str; 7] =
    ["--command", "--eval", "--execute", "--session-command", "--use-compress-program", "--to-command", "--rsh"];
/// Letters that may stand together with `c`, as in `-lc`: options of shells and of psql. Not those of `gzip -dc`.
const BESIDE_C: &str = "abcefhiklmnopqrstuvxABCDEHIOPTV";
/// Programs whose `-c` is another option, as in `tar -cf`.
const ARCHIVERS: [&str; 5] = ["tar", "bsdtar", "gtar", "star", "pax"];
/// Interpreters that take a script after `-e`, `-c` and the like, or as a file.
const INTERPRETERS: [&str; 15] = [
    "perl",
    "python",
    "pypy",
    "ruby",
    "node",
    "nodejs",
    "deno",
    "bun",
    "lua",
    "luajit",
    "php",
    "Rscript",
    "julia",
    "elixir",
    "osascript",
];
/// Clients that take statements for a database after `-e` or `-c`.
const DATABASES: [&str; 4] = ["mysql", "mariadb", "psql", "sqlite"];
/// Programs that run text among their other arguments.
const RUN_TEXT: [&str; 19] = [
    "ssh", "rsh", "awk", "gawk", "mawk", "nawk", "sed", "watch", "parallel", "tmux", "screen", "expect", "m4", "bc",
    "dc", "eval", "trap", "make", "gmake",
];

/// Tells whether an argument is the script of a shell: `sh -c SCRIPT`, also with other options, or behind `env` and the
/// like. A word that only looks like a shell counts too: a script that is not found would run the results in it.
pub(super) fn is_script(command: &[String], place: usize) -> bool {
    let shells = command.iter().take(place).enumerate().filter(|(_, word)| is_one_of(word, &SHELLS));
    shells.into_iter().any(|(shell, _)| script_of(&command[shell + 1..]).is_some_and(|at| shell + 1 + at == place))
}

/// Returns the shell, if an argument is the script of one with another language: `fish -c SCRIPT`, `fish -cSCRIPT`,
/// `fish --command=SCRIPT`. There, `${NAME}` is a mistake.
pub(super) fn other_shell_of(command: &[String], place: usize) -> Option<&str> {
    let is_option = |word: &String| {
        word.starts_with("--c") || word.starts_with("--init") || is_short(word) && word.contains(['c', 'C'])
    };
    let shell = command.iter().take(place).find(|word| is_one_of(word, &OTHER_SHELLS))?;
    let before = place.checked_sub(1).and_then(|before| command.get(before));
    before.into_iter().chain(command.get(place)).any(is_option).then(|| program(shell))
}

/// Returns the program that would run the text of an argument, which is no script of a shell that is known: a result in it
/// would be run.
pub(super) fn runner_of(command: &[String], place: usize) -> Option<&str> {
    let before = &command[..place.min(command.len())];
    let named = |names: &[&str]| before.iter().find(|word| is_one_of(word, names)).map(|word| program(word));
    if let Some(found) = named(&RUN_TEXT).or_else(|| splits_words(command, place)) {
        return Some(found);
    }
    if is_script(command, place) {
        return None;
    }
    let (argument, first) = (command.get(place)?, program(command.first()?));
    let joined = |option: &str| argument.strip_prefix(option).is_some_and(|rest| rest.starts_with('='));
    if place > 0 && (argument.starts_with("-c") || SCRIPT_OPTIONS.into_iter().any(joined)) {
        return Some(first);
    }
    if let Some(found) = reads_file(command, place) {
        return Some(found);
    }
    let option = before.last().filter(|_| place > 1).map_or("", String::as_str);
    let (interpreter, database) = (named(&INTERPRETERS), named(&DATABASES));
    let is_script_option = is_script_option(option) && named(&ARCHIVERS).is_none();
    if is_script_option || SCRIPT_OPTIONS.contains(&option) {
        return Some(interpreter.or(database).unwrap_or(first));
    }
    let is_any = |letters: &[char]| [option, until_result(argument)].iter().any(|word| has_any(word, letters));
    let is_evaluated = is_any(&['c', 'e', 'E', 'r', 'p']) || option == "--print";
    interpreter.filter(|_| is_evaluated).or(database.filter(|_| is_any(&['c', 'e'])))
}

/// Tells whether a word has one of these letters among its short options.
fn has_any(word: &str, letters: &[char]) -> bool {
    is_short(word) && word.contains(letters)
}

/// Tells whether a program runs the text that it reads.
pub(super) fn is_interpreter(word: &str) -> bool {
    [&SHELLS[..], &OTHER_SHELLS, &INTERPRETERS, &DATABASES, &RUN_TEXT].into_iter().any(|names| is_one_of(word, names))
}

/// Returns `env`, if it makes a command of the words in an argument: `env -S 'sh -c x'`.
fn splits_words(command: &[String], place: usize) -> Option<&str> {
    let is_option = |word: &str| word.starts_with("--split-string") || has_any(word, &['S']);
    let env = command.iter().take(place).position(|word| program(word) == "env")?;
    let mut own = command[env + 1..=place].iter().take_while(|word| word.starts_with('-') || word.contains('='));
    let is_split = own.any(|word| is_option(until_result(word)));
    is_split.then_some("env")
}

/// Returns the shell or interpreter that would take an argument for the file with its script, or for an option of its own:
/// a result such as `-cprint(1)`.
fn reads_file(command: &[String], place: usize) -> Option<&str> {
    let is_reader =
        |word: &String| [&SHELLS[..], &OTHER_SHELLS, &INTERPRETERS].iter().any(|names| is_one_of(word, names));
    if (0..place).any(|before| is_script(command, before)) {
        // It is an argument of that script.
        return None;
    }
    let reader = command[..place].iter().rposition(is_reader)?;
    let only_options = command[reader + 1..place].iter().all(|word| word.starts_with(['-', '+']));
    (only_options && until_result(&command[place]).is_empty()).then(|| program(&command[reader]))
}

/// Returns what stands before the first result of an argument.
fn until_result(argument: &str) -> &str {
    argument.split("{{").next().unwrap_or_default()
}

/// Tells whether a word is `-c`, alone or together with other options of a shell.
fn is_script_option(word: &str) -> bool {
    is_short(word) && word.contains('c') && word[1..].chars().all(|letter| BESIDE_C.contains(letter))
}

fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

/// Tells whether a word is one of these programs, also in a certain version: `bash-5.2`, `python3`, `mksh-static`.
fn is_one_of(word: &str, names: &[&str]) -> bool {
    let name = program(word);
    let plain = name.trim_end_matches("-static").trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    names.contains(&name) || names.contains(&plain.trim_end_matches('-'))
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
