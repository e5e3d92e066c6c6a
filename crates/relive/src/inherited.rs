//! The settings that a program inherits from the shell in which its command is typed, instead of the daemon's.

use relive_api::{Inherited, ResourceLimit};
use relive_session::spec;

/// Returns the inherited settings of this process; `None` if the system does not tell.
pub(crate) fn inherited() -> Option<Inherited> {
    let spec::Inherited { umask, nice, limits, ignored, cpus } = relive_session::inherited::of_this_process()?;
    let limit = |limit: spec::ResourceLimit| {
        let spec::ResourceLimit { resource, soft, hard } = limit;
        ResourceLimit { resource, soft, hard }
    };
    let limits = limits.into_iter().map(limit).collect();
    let ignored = ignored.into_iter().filter_map(|number| u8::try_from(number).ok()).collect();
    Some(Inherited { umask, nice, limits, ignored, cpus })
}
