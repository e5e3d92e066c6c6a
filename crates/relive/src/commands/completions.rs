//! `relive completions`: the script that makes a shell complete this program's commands.

use clap::ValueEnum;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::completion::VARIABLE;
use crate::context::Context;
use crate::error::Outcome;

/// Print a script that completes commands, options and processes in your shell
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive completions fish | source     in ~/.config/fish/config.fish
  source <(relive completions bash)    in ~/.bashrc
  source <(relive completions zsh)     in ~/.zshrc, after compinit")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    // The program is found like any command of the shell, so that the script survives an update to another directory.
    shell.write_registration(VARIABLE, "relive", "relive", "relive", &mut script)?;
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = match args.shell {
        Shell::Bash => quoted_for_bash(&script),
        Shell::Zsh => loaded_by_first_tab(&script),
        Shell::Fish => script,
    };
    if context.json {
        context.print_json(&serde_json::json!({ "script": script }))?;
    } else {
        context.print(&script)?;
    }
    Ok(0)
}

/// Makes a script for zsh complete already when the first Tab loads it from `$fpath`, as the body of the function `_relive`.
/// It would only define the completion otherwise, and the first Tab would do nothing.
fn loaded_by_first_tab(script: &str) -> String {
    const REGISTER: &str = "compdef _clap_dynamic_completer_relive relive";
    let either =
        format!("if [[ $funcstack[1] == _relive ]]; then\n    _clap_dynamic_completer_relive \"$@\"\nfi\n{REGISTER}");
    script.replace(REGISTER, &either)
}

/// Makes a script for bash quote the candidates, and take a word as it is meant that was typed with backslashes. The names of
/// files may have spaces, and bash inserts a candidate as it is.
fn quoted_for_bash(script: &str) -> String {
    const TYPED: &str = "words[COMP_CWORD]=\"$2\"";
    const SPACE: &str = "    if [[ $? != 0 ]]; then\n        unset COMPREPLY\n";
    const QUOTE: &str = r#"    elif [[ "${COMP_WORDS[COMP_CWORD]}" != [\"\']* ]]; then
        local i
        for i in "${!COMPREPLY[@]}"; do
            [[ "${COMPREPLY[i]}" == *[^A-Za-z0-9_./:=@%+,~-]* ]] && printf -v 'COMPREPLY[i]' '%q' "${COMPREPLY[i]}"
        done
    fi
    if [[ -z "${COMPREPLY-}" ]]; then
        :
"#;
    script.replace(TYPED, "words[COMP_CWORD]=\"${2//\\\\/}\"").replace(SPACE, &format!("{SPACE}{QUOTE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_quotes_the_candidates() {
        let mut script = Vec::new();
        Bash.write_registration(VARIABLE, "relive", "relive", "relive", &mut script).unwrap();
        let script = quoted_for_bash(&String::from_utf8(script).unwrap());
        assert!(script.contains("printf -v 'COMPREPLY[i]' '%q'"), "{script}");
        assert!(script.contains(r#"words[COMP_CWORD]="${2//\\/}""#), "{script}");
    }

    #[test]
    fn the_first_tab_of_zsh_completes() {
        let mut script = Vec::new();
        Zsh.write_registration(VARIABLE, "relive", "relive", "relive", &mut script).unwrap();
        let script = loaded_by_first_tab(&String::from_utf8(script).unwrap());
        assert!(script.starts_with("#compdef relive\n"), "{script}");
        let calls = "\n    _clap_dynamic_completer_relive \"$@\"\nfi\ncompdef _clap_dynamic_completer_relive relive\n";
        assert!(script.ends_with(calls), "{script}");
    }
}
