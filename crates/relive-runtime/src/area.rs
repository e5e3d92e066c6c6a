//! What an isolated process reaches through the daemon, which itself reaches everything of the user's.
//!
//! **Invariant:** a path that an isolated process names is used by its real name, and only if that is in the directory of the
//! process and not hidden there. What is opened later is opened without following links.

use std::path::{Path, PathBuf};

use relive_agent::script::Script;
use relive_api::{Environment, Isolated, Isolation};
use relive_core::ErrorCode;
use relive_sandbox::Policy;

use crate::error::{Error, Result};
use crate::isolation::Isolations;
use crate::pools::FILE_WITHIN;
use crate::runtime::Runtime;

/// The directory of an isolated process, without what is hidden in it.
#[derive(Debug, Clone)]
pub(crate) struct Area {
    within: PathBuf,
    policy: Policy,
    env: Vec<(String, String)>,
}

impl Area {
    /// Returns the area of a process with this isolation that works in `cwd`; absent if it reaches everything.
    pub(crate) fn of(
        isolations: &Isolations,
        isolated: &Isolated,
        cwd: &str,
        environment: &Environment,
    ) -> Option<Self> {
        let within = match (&isolated.within, isolated.isolation) {
            (Some(within), _) => within.as_str(),
            (None, Isolation::Confined | Isolation::Sealed) => cwd,
            (None, Isolation::None) => return None,
        };
        Some(Self { within: within.into(), policy: isolations.reach(isolated), env: variables(environment) })
    }

    /// Returns the real path of something that is there and in the area. Blocks.
    pub(crate) fn find(&self, what: &str, path: &Path) -> Result<PathBuf> {
        let missing = |path: &Path, error: std::io::Error| {
            Error::new(ErrorCode::NotFound, format!("{what} {} cannot be used: {error}", path.display()))
        };
        let real = path.canonicalize().map_err(|error| missing(path, error))?;
        let within = self.within.canonicalize().map_err(|error| missing(&self.within, error))?;
        let refused = |why: String| Error::new(ErrorCode::Permission, format!("{what} {} {why}", real.display()));
        if !real.starts_with(&within) {
            return Err(refused(format!(
                "is outside of {}, the directory of the process that started it",
                within.display()
            )));
        }
        if relive_sandbox::hidden(&self.policy, &self.env).iter().any(|hidden| real.starts_with(hidden)) {
            return Err(refused(format!("is hidden at isolation {}", self.policy.isolation)));
        }
        Ok(real)
    }

    /// Refuses changes of files that a process in this area could not change itself. `into` is the real path of a directory in
    /// it. Blocks.
    pub(crate) fn check_changes<'a>(&self, into: &Path, mut paths: impl Iterator<Item = &'a Path>) -> Result<()> {
        let hidden = relive_sandbox::hidden(&self.policy, &self.env);
        let is_refused =
            |path: &Path| relive_sandbox::executes(into, path) || hidden.iter().any(|hidden| path.starts_with(hidden));
        match paths.find(|path| is_refused(&into.join(path))) {
            None => Ok(()),
            Some(path) => {
                let message = format!(
                    "{} is hidden or names commands that other programs run: it is not changed for a process at \
                     isolation {}",
                    into.join(path).display(),
                    self.policy.isolation
                );
                Err(Error::new(ErrorCode::Permission, message).with_hint("run it in a terminal outside of the process"))
            }
        }
    }
}

pub(crate) fn variables(environment: &Environment) -> Vec<(String, String)> {
    environment.variables().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl Runtime {
    /// Returns a model that a process names. The file of a script has to be in its area, and is read from its real path.
    pub(crate) async fn model_in(&self, area: Option<Area>, model: String, cwd: &str) -> Result<String> {
        let Some((area, file)) = area.zip(model.strip_prefix("script/").filter(|file| Script::builtin(file).is_none()))
        else {
            return Ok(model);
        };
        let path = Path::new(cwd).join(file);
        let real = self.pools.files.run_within(FILE_WITHIN, move || area.find("the script", &path)).await??;
        Ok(format!("script/{}", real.display()))
    }

    /// Returns the real path of a directory that a process names, if it may work there.
    pub(crate) async fn directory_in(&self, area: Option<Area>, cwd: &str) -> Result<Option<String>> {
        let Some(area) = area else { return Ok(None) };
        let path = PathBuf::from(cwd);
        let find = move || area.find("the working directory", &path);
        let real = self.pools.files.run_within(FILE_WITHIN, find).await??;
        let not_text = |path: std::ffi::OsString| {
            let message = format!("the working directory {} is not UTF-8", path.display());
            Error::new(ErrorCode::Invalid, message)
        };
        real.into_os_string().into_string().map(Some).map_err(not_text)
    }
}
