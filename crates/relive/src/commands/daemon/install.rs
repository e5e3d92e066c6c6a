//! `relive daemon install`: a systemd user unit, so that the daemon starts at login and after a crash.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::context::Context;
use crate::error::{CommandError, Outcome};

const UNIT: &str = "relive.service";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the unit instead of writing it
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let program = std::env::current_exe()
        .map_err(|error| CommandError::internal("cannot find the path of this program").because(error))?;
    let text = unit(&program, &settings(context));
    let path = directory()?.join(UNIT);
    if args.dry_run {
        if context.json {
            context.print_json(&json!({ "unit": path.display().to_string(), "text": text }))?;
        } else {
            context.print(&text)?;
        }
        return Ok(0);
    }
    write(&path, &text)
        .map_err(|error| CommandError::internal(format!("cannot write {}", path.display())).because(error))?;
    if context.json {
        context.print_json(&json!({ "unit": path.display().to_string() }))?;
    } else {
        context.say(&format!("wrote {}", path.display()));
        context.say(
            "\nhint: relive daemon stop; systemctl --user daemon-reload && systemctl --user enable --now relive.service",
        );
    }
    Ok(0)
}

/// Returns the directory in which systemd looks for the units of this user.
fn directory() -> Outcome<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|home| home.join(".config")));
    let config = config.ok_or_else(|| CommandError::invalid("neither XDG_CONFIG_HOME nor HOME is set"))?;
    Ok(config.join("systemd/user"))
}

/// Returns the variables by which this shell and the unit find the same daemon. For the others, systemd's own default
/// is the same as Relive's.
fn settings(context: &Context) -> Vec<(&'static str, String)> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let paths = &context.paths;
    [("RELIVE_DATA_DIR", &paths.data), ("RELIVE_SOCKET", &paths.socket)]
        .into_iter()
        .filter(|(name, _)| is_set(name))
        .map(|(name, path)| (name, path.display().to_string()))
        .chain(
            ["PATH", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "RELIVE_LOG"]
                .into_iter()
                .filter(is_set)
                .filter_map(|name| std::env::var(name).ok().map(|value| (name, value))),
        )
        .collect()
}

/// `KillMode=process`: programs, their shims and the keeper live on when the daemon stops, and the next daemon adopts them.
/// `Delegate=yes`: the daemon may make cgroups below its own.
fn unit(program: &Path, settings: &[(&str, String)]) -> String {
    let environment: String =
        settings.iter().map(|(name, value)| format!("Environment={}\n", quote(&format!("{name}={value}")))).collect();
    format!(
        "\
[Unit]
Description=Relive: AI agents as processes
Documentation=man:relive(1)

[Service]
ExecStart={program} daemon serve
{environment}Restart=on-failure
KillMode=process
Delegate=yes
TimeoutStopSec=60

[Install]
WantedBy=default.target
",
        program = quote(&program.display().to_string())
    )
}

/// Quotes one word for a unit file: systemd splits at spaces, expands `%`, and reads `\` and `\"` inside quotes.
fn quote(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[expect(clippy::disallowed_methods, reason = "it is systemd's directory, not ours")]
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    // Completely or not at all: systemd may read it at any moment.
    let mut new = tempfile::Builder::new().permissions(Permissions::from_mode(0o644)).tempfile_in(directory)?;
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_spaces_quotes_and_specifiers_are_quoted() {
        let text = unit(Path::new("/opt/my tools/relive"), &[("RELIVE_DATA_DIR", "/data/100%/a\"b".into())]);
        assert!(text.contains("ExecStart=\"/opt/my tools/relive\" daemon serve\n"), "{text}");
        assert!(text.contains("Environment=\"RELIVE_DATA_DIR=/data/100%%/a\\\"b\"\n"), "{text}");
    }
}
