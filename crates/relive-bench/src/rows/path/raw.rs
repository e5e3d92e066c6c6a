//! The limit of the disk: the bytes of a step appended and synced, and the step's files replaced by hand.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::rounds::seconds;

/// Writers, each with its own file.
#[derive(Debug)]
pub(super) struct Raw {
    directory: PathBuf,
    writers: Vec<Writer>,
    step: Vec<u8>,
    text: String,
}

#[derive(Debug)]
struct Writer {
    log: File,
    replaced: PathBuf,
}

impl Raw {
    pub(super) fn new(directory: &Path, writers: usize, step_bytes: usize, text: &str) -> Result<Self> {
        fs::create_dir(directory)?;
        let writer = |number| -> Result<Writer> {
            let log = File::create_new(directory.join(format!("{number}.log")))?;
            Ok(Writer { log, replaced: directory.join(format!("{number}.txt")) })
        };
        let writers = (0..writers).map(writer).collect::<Result<_>>()?;
        Ok(Self { directory: directory.to_owned(), writers, step: vec![b'x'; step_bytes], text: text.to_owned() })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the seconds that all writers take for this many concurrent steps.
    pub(super) fn append(&mut self, steps: usize) -> Result<f64> {
        let step = &self.step;
        let work = |writer: &mut Writer| (0..steps).try_for_each(|_| writer.append(step));
        Ok(seconds(|| at_once(&mut self.writers, work))?.0)
    }

    /// Like [`Self::append`], but each step also replaces a file.
    pub(super) fn append_and_replace(&mut self, steps: usize) -> Result<f64> {
        let (step, text, directory) = (&self.step, &self.text, &self.directory);
        let work = |writer: &mut Writer| {
            (0..steps).try_for_each(|_| {
                writer.append(step)?;
                writer.replace(directory, text)
            })
        };
        Ok(seconds(|| at_once(&mut self.writers, work))?.0)
    }
}

impl Writer {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.log.write_all(bytes)?;
        Ok(self.log.sync_data()?)
    }

    /// Replaces a file like the `write` tool: writes a temporary file, syncs it, renames it, and syncs its directory.
    fn replace(&self, directory: &Path, text: &str) -> Result<()> {
        let temporary = self.replaced.with_extension("tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &self.replaced)?;
        Ok(File::open(directory)?.sync_all()?)
    }
}

/// Runs the work for all concurrently, each on its own thread.
pub(super) fn at_once<T: Send>(all: &mut [T], work: impl Fn(&mut T) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = all.iter_mut().map(|one| scope.spawn(move || work(one))).collect();
        started.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}
