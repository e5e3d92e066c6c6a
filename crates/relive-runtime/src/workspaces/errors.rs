//! What goes wrong with files, as verbs report it.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use relive_core::{ErrorCode, Uuid};
use relive_workspace::{CopyState, Error as FilesError, FilePath, Grade, Limit};

use crate::error::Error;

/// So many paths are named in a message.
const NAMED_MAX: usize = 5;

impl From<FilesError> for Error {
    fn from(error: FilesError) -> Self {
        if let Some(shown) = of_machine(&error) {
            return shown;
        }
        if let FilesError::PlanPending { .. } = &error {
            return Self::Interrupted(error.to_string());
        }
        if let FilesError::HalfApplied { source, rollback } = error {
            let message = format!(
                "{source}; what was changed already could not be rolled back: {rollback}; the next rewind, restore or \
                 merge there tries that again first"
            );
            return Self::HalfApplied { code: Self::from(*source).code(), message };
        }
        let code = match &error {
            FilesError::RefusedRoot { .. }
            | FilesError::TooLarge { .. }
            | FilesError::TimedOut { .. }
            | FilesError::InvalidPattern { .. }
            | FilesError::NotADirectory { .. }
            | FilesError::NotText { .. }
            | FilesError::NoSuchPath { .. } => ErrorCode::Invalid,
            FilesError::Busy { .. }
            | FilesError::PlanPending { .. }
            | FilesError::OtherDirectory { .. }
            | FilesError::NoPlan { .. }
            | FilesError::ChangedSince { .. }
            | FilesError::InTheWay { .. }
            | FilesError::NotExact { .. }
            | FilesError::Missing(_)
            | FilesError::Mounted { .. }
            | FilesError::Conflicts { .. } => ErrorCode::Conflict,
            FilesError::NoSpace { .. } => ErrorCode::Exhausted,
            FilesError::Cancelled => ErrorCode::Unavailable,
            FilesError::Io { .. }
            | FilesError::HalfApplied { .. }
            | FilesError::DamagedObject { .. }
            | FilesError::DamagedFile { .. } => ErrorCode::Internal,
        };
        let message = match &error {
            FilesError::ChangedSince { paths } => changed_since(paths),
            FilesError::InTheWay { paths } => {
                format!("{} in the way and in no snapshot: {}", are(paths.len()), named(paths))
            }
            FilesError::Conflicts { conflicts } => {
                let paths: Vec<_> = conflicts.iter().map(|conflict| conflict.path.clone()).collect();
                format!("both sides changed {}: {}", count_files(paths.len()), named(&paths))
            }
            FilesError::NotExact { grade, left_out } => not_exact(*grade, left_out),
            FilesError::Missing(_) => "the files of this step are not in the store any more".to_owned(),
            FilesError::TooLarge { path, limit, most } => too_large(path, *limit, *most),
            FilesError::Io { .. }
            | FilesError::RefusedRoot { .. }
            | FilesError::TimedOut { .. }
            | FilesError::Cancelled
            | FilesError::NoSpace { .. }
            | FilesError::DamagedObject { .. }
            | FilesError::DamagedFile { .. }
            | FilesError::Busy { .. }
            | FilesError::PlanPending { .. }
            | FilesError::HalfApplied { .. }
            | FilesError::OtherDirectory { .. }
            | FilesError::NoPlan { .. }
            | FilesError::Mounted { .. }
            | FilesError::InvalidPattern { .. }
            | FilesError::NotADirectory { .. }
            | FilesError::NotText { .. }
            | FilesError::NoSuchPath { .. } => error.to_string(),
        };
        with_way_out(Self::new(code, message), &error)
    }
}

/// Adds a command that helps, if there is one.
fn with_way_out(shown: Error, error: &FilesError) -> Error {
    if let FilesError::Mounted { path } = error {
        let quoted = relive_types::program::quote(&path.display().to_string());
        return shown.with_hint(format!("umount {quoted}"));
    }
    // Nothing overrides these two, and the first one passes.
    if let FilesError::Busy { .. } = error {
        return shown.with_hint("try again in a moment");
    }
    if let FilesError::Missing(_) = error {
        return shown.with_hint("choose another step; `relive steps` lists them");
    }
    // The user may give up what it would roll back.
    if let FilesError::OtherDirectory { plan_file, .. } = error {
        return shown.with_hint(removal(plan_file));
    }
    if let FilesError::DamagedFile { path, .. } = error
        && path.file_name().is_some_and(|name| name == "plan")
    {
        return shown.with_hint(removal(path));
    }
    // Nothing overrides this.
    if let FilesError::InTheWay { paths } = error {
        return shown.with_hint(format!("move away: {}", named(paths)));
    }
    shown
}

/// Returns what is wrong with the machine: permissions, or a full disk.
fn of_machine(error: &FilesError) -> Option<Error> {
    if let FilesError::NoSpace { path, .. } = error {
        return Some(no_space(path, error));
    }
    let FilesError::Io { path, source, .. } = error else { return None };
    if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        return Some(no_space(path, error));
    }
    (source.kind() == ErrorKind::PermissionDenied).then(|| no_permission(path, error))
}

fn removal(path: &Path) -> String {
    format!("rm {}", relive_types::program::quote(&path.display().to_string()))
}

/// A disk without space, named by the directory that it is mounted on.
fn no_space(path: &Path, error: &FilesError) -> Error {
    let disk = mount_point(path).display().to_string();
    let message = format!("the disk at {disk} is full: {error}");
    let hint = format!("free some space on {disk}; if Relive's data is there, `relive gc` removes old processes");
    Error::new(ErrorCode::Exhausted, message).with_hint(hint)
}

/// Names a path of a workspace in full: within it, paths are relative to its directory.
pub(super) fn in_directory(directory: &Path, error: FilesError) -> FilesError {
    if let FilesError::Io { action, path, source } = error {
        return FilesError::Io { action, path: directory.join(path), source };
    }
    if let FilesError::HalfApplied { source, rollback } = error {
        let [source, rollback] = [source, rollback].map(|error| Box::new(in_directory(directory, *error)));
        return FilesError::HalfApplied { source, rollback };
    }
    error
}

/// Returns the highest directory above a path that is on the same file system.
fn mount_point(path: &Path) -> PathBuf {
    let device = |path: &Path| path.symlink_metadata().ok().map(|metadata| metadata.dev());
    let is_there = |path: &&Path| path.is_absolute() && device(path).is_some();
    let Some(start) = path.ancestors().find(is_there) else { return path.to_owned() };
    let same = start.ancestors().take_while(|above| device(above) == device(start));
    same.last().unwrap_or(start).to_owned()
}

/// A directory that is beyond one of the limits for snapshots, and the key that raises it.
fn too_large(path: &Path, limit: Limit, most: u64) -> String {
    let (amount, key) = match limit {
        Limit::Files => (format!("{most} files"), "max_files"),
        Limit::TotalBytes => (format!("{} MB", most >> 20), "max_total_mb"),
    };
    format!("{} has more than {amount} (the limit is `workspace: {key}` in config.yaml)", path.display())
}

/// Says what a snapshot lacks, as far as it is known.
pub(crate) fn not_exact(grade: Grade, left_out: &[FilePath]) -> String {
    let why = match grade {
        Grade::Exact => return "the snapshot is exact".to_owned(),
        Grade::Partial => "the snapshot is partial: some files could not be kept",
        Grade::Moving => "the snapshot is moving: files changed while it was taken, or it could not be checked",
    };
    if left_out.is_empty() { why.to_owned() } else { format!("{why}; these cannot be kept now: {}", named(left_out)) }
}

/// A file or directory whose permissions are in the way. Its owner can change them.
fn no_permission(path: &Path, error: &FilesError) -> Error {
    let refused = Error::new(ErrorCode::Permission, error.to_string());
    let is_ours = path.is_absolute()
        && path.symlink_metadata().is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw());
    let quoted = relive_types::program::quote(&path.display().to_string());
    if is_ours { refused.with_hint(format!("chmod u+rwX {quoted}")) } else { refused }
}

/// A directory of a process that cannot be opened.
pub(super) fn no_directory(path: &Path, error: &std::io::Error) -> Error {
    let path = path.display().to_string();
    if error.kind() == ErrorKind::NotFound {
        let message = format!("the directory {path} no longer exists");
        let hint = format!("mkdir -p {}", relive_types::program::quote(&path));
        return Error::new(ErrorCode::NotFound, message).with_hint(hint);
    }
    Error::new(ErrorCode::Internal, format!("cannot open {path}: {error}"))
}

/// A copy that was removed, whatever is at its path now.
pub(crate) fn no_copy(uuid: Uuid, path: &Path, state: CopyState) -> Error {
    let path = path.display();
    let (code, message) = match state {
        CopyState::Replaced => {
            let message = format!("{path} is not the directory that Relive made for process {uuid}, so it is not used");
            (ErrorCode::Conflict, message)
        }
        CopyState::There | CopyState::Gone => {
            (ErrorCode::NotFound, format!("the copy on which process {uuid} worked was removed: {path}"))
        }
    };
    Error::new(code, message).with_hint(format!("relive resume --fork {uuid}"))
}

/// Refuses a link in place of the directory of a process: the files behind it are not its own.
pub(crate) fn check_no_link(directory: &Path) -> Result<(), Error> {
    if !directory.is_symlink() {
        return Ok(());
    }
    let message = format!("{} is a link now, not a directory: it is not followed", directory.display());
    Err(Error::new(ErrorCode::Permission, message))
}

/// The first paths, and how many more there are.
pub(crate) fn named(paths: &[FilePath]) -> String {
    let mut text = paths.iter().take(NAMED_MAX).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if paths.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", paths.len() - NAMED_MAX));
    }
    text
}

/// `1 file`, `2 files`.
pub(crate) fn count_files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn changed_since(paths: &[FilePath]) -> String {
    let have = if paths.len() == 1 { "has" } else { "have" };
    format!("{} {have} changed since, and not by this process: {}", count_files(paths.len()), named(paths))
}

fn are(count: usize) -> String {
    if count == 1 { "1 path is".to_owned() } else { format!("{count} paths are") }
}

/// Why a directory can have no snapshots as long as it and the configuration are as they are.
pub(super) fn lasting(error: &Error) -> Option<String> {
    let text = error.to_string();
    matches!(error.code(), ErrorCode::Invalid).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn force_is_not_offered_where_it_does_not_help() {
        let missing = "0".repeat(64).parse().unwrap();
        for error in [FilesError::Busy { path: "/w".into() }, FilesError::Missing(missing)] {
            // Verbs add --force to conflicts without a hint.
            assert!(Error::from(error).hint().is_some_and(|hint| !hint.contains("--force")));
        }
        let hint = no_directory(Path::new("/a b"), &ErrorKind::NotFound.into());
        assert_eq!(hint.hint().as_deref(), Some("mkdir -p '/a b'"));
    }

    #[test]
    fn a_full_disk_is_named_with_what_to_do() {
        let full = |path: &str| {
            let source = std::io::Error::from(ErrorKind::StorageFull);
            Error::from(in_directory(Path::new("/proc"), FilesError::Io { action: "write", path: path.into(), source }))
        };
        for (path, named) in [("/proc/self/none/f", "the disk at /proc is full"), ("f", "cannot write /proc/f")] {
            let error = full(path);
            assert!(error.to_string().contains(named), "{error}");
            assert_eq!(error.code(), ErrorCode::Exhausted);
            assert!(error.hint().unwrap().contains("free some space on /proc; if Relive's data"), "{:?}", error.hint());
        }
    }
}
