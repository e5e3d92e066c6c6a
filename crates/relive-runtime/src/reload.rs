//! The configuration, read again when its file has changed.
//!
//! Nothing watches the file: whoever starts, resumes or collects something, or asks how the daemon is, has it looked at
//! first, by one `stat`. A file that cannot be used changes nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use relive_config::Config;

use crate::pools::FILE_WITHIN;
use crate::runtime::Runtime;
use crate::settings::Settings;

/// The settings that hold now.
#[derive(Debug)]
pub(crate) struct LiveSettings {
    current: RwLock<Arc<Settings>>,
    /// Some keys are read only at the start.
    at_start: Arc<Settings>,
    seen: Mutex<Option<Stamp>>,
}

/// Which file was read: another one has another stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Some(Self { inode: metadata.ino(), length: metadata.len(), modified })
    }
}

impl LiveSettings {
    pub(crate) fn new(settings: Settings, file: &Path) -> Self {
        let at_start = Arc::new(settings);
        Self { current: RwLock::new(Arc::clone(&at_start)), at_start, seen: Mutex::new(Stamp::of(file)) }
    }

    pub(crate) fn now(&self) -> Arc<Settings> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes note of the file; `true` if it is another one than before.
    fn has_changed(&self, stamp: Option<Stamp>) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == stamp {
            return false;
        }
        *seen = stamp;
        true
    }

    fn replace(&self, settings: Settings) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

/// Returns the words of an error, and of its cause.
fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl Runtime {
    /// Reads the configuration again if its file has changed.
    pub async fn reload_settings(&self) {
        let path = self.config.clone();
        let look = {
            let path = path.clone();
            self.pools.files.run_within(FILE_WITHIN, move || Stamp::of(&path)).await
        };
        // A file that cannot even be looked at is as it was.
        let Ok(stamp) = look else { return };
        if !self.live.has_changed(stamp) {
            return;
        }
        let loaded = {
            let path = path.clone();
            self.pools.files.run_within(FILE_WITHIN, move || Config::load(&path)).await
        };
        match loaded {
            Ok(Ok(config)) => {
                let before = self.live.now();
                let settings = Settings { keeper: before.keeper.clone(), ..Settings::from(&config) };
                let waiting = needing_restart(&self.live.at_start, &settings).into_iter().map(|key| {
                    format!("{}: `{key}` has changed; it takes effect after: relive daemon restart", path.display())
                });
                self.warnings.set_configuration(waiting.collect());
                let workspace = settings.workspace.clone();
                self.live.replace(settings);
                self.flows.look_again();
                let isolations = self.bodies.exec.isolations.clone();
                match self.pools.files.run_within(FILE_WITHIN, move || isolations.hidden()).await {
                    Ok(hidden) => self.workspaces.configure(workspace, hidden),
                    Err(error) => self.warnings.warn(format!("snapshots are taken as before: {error}")),
                }
                tracing::info!("{} was read again", path.display());
            }
            Ok(Err(error)) => {
                self.warnings.set_configuration(vec![format!(
                    "the configuration has changed and is invalid, so the previous one stays in force: {}",
                    with_source(&error)
                )]);
            }
            Err(error) => {
                let warning = format!("{} has changed and cannot be read: {error}", path.display());
                self.warnings.set_configuration(vec![warning]);
            }
        }
    }
}

/// Returns the keys that differ and that only a start looks at.
fn needing_restart(before: &Settings, after: &Settings) -> Vec<&'static str> {
    let keys = [
        ("gc.interval_seconds", before.gc_every != after.gc_every),
        ("checkpoint", before.cadence.steps != after.cadence.steps || before.cadence.time != after.cadence.time),
        ("limits.floor_mb", before.space.floor_bytes != after.space.floor_bytes),
        ("git_notes", before.git_notes != after.git_notes),
    ];
    keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}
