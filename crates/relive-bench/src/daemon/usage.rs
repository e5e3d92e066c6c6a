//! The resources of a process, according to `/proc`.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use crate::Result;

/// Returns the resident memory, and its private part, in bytes.
pub(crate) fn memory(os_pid: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{os_pid}/status"))?;
    let rollup = fs::read_to_string(format!("/proc/{os_pid}/smaps_rollup"))?;
    let kilobytes = |text: &str, field: &str| number(text, field).ok_or_else(|| format!("/proc does not say {field}"));
    let private = kilobytes(&rollup, "Private_Clean:")? + kilobytes(&rollup, "Private_Dirty:")?;
    Ok((kilobytes(&status, "VmRSS:")? << 10, private << 10))
}

/// Returns the share of a process in anonymous memory, in bytes: what it has in common with others that were forked counts in
/// parts. The private memory is more: the pages of a program that was just built count as private until they are on the
/// disk.
pub(crate) fn anonymous_share(os_pid: u32) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{os_pid}/smaps_rollup"))?;
    Ok(number(&rollup, "Pss_Anon:").ok_or("/proc does not say Pss_Anon")? << 10)
}

/// Returns the highest resident memory so far, in bytes.
pub(crate) fn peak(os_pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{os_pid}/status"))?;
    Ok(number(&status, "VmHWM:").ok_or("/proc does not say VmHWM")? << 10)
}

/// Returns the CPU time of its threads, to the nanosecond, without threads that have ended.
pub(crate) fn cpu_seconds(os_pid: u32) -> Result<f64> {
    let mut total = Duration::ZERO;
    for entry in fs::read_dir(format!("/proc/{os_pid}/task"))? {
        // A thread may end in the meantime.
        let Ok(times) = fs::read_to_string(entry?.path().join("schedstat")) else { continue };
        let nanoseconds = times.split(' ').next().ok_or("/proc does not say how long a thread ran")?;
        total += Duration::from_nanos(nanoseconds.parse()?);
    }
    Ok(total.as_secs_f64())
}

fn number(text: &str, field: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
}

/// Returns the number of open descriptors.
pub(crate) fn descriptors(os_pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{os_pid}/fd"))?.count())
}

/// How often each of its threads has gone to sleep on its own.
#[derive(Debug)]
pub(crate) struct Switches(HashMap<String, u64>);

impl Switches {
    /// Returns the number since `earlier`. Threads that ended in the meantime are not counted, and did little.
    pub(crate) fn since(&self, earlier: &Self) -> u64 {
        self.0.iter().map(|(thread, count)| count - earlier.0.get(thread).copied().unwrap_or(0)).sum()
    }
}

pub(crate) fn switches(os_pid: u32) -> Result<Switches> {
    let mut threads = HashMap::new();
    for entry in fs::read_dir(format!("/proc/{os_pid}/task"))? {
        let entry = entry?;
        // A thread may end in the meantime.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        let count = number(&status, "voluntary_ctxt_switches:").ok_or("/proc does not count switches")?;
        threads.insert(entry.file_name().to_string_lossy().into_owned(), count);
    }
    Ok(Switches(threads))
}
