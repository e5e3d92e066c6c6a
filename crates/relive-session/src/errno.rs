//! The names of system errors.

use std::io;

use crate::stage::Failure;

impl Failure {
    /// Creates a failure from an error number.
    #[must_use]
    pub fn new(stage: &str, code: i32) -> Self {
        Self { stage: stage.into(), errno: name(code), code }
    }

    /// Creates a failure from a system error.
    #[must_use]
    pub fn of(stage: &str, error: &io::Error) -> Self {
        Self::new(stage, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Returns the name of an error number, such as `ENOENT`; `E` and the number for unexpected ones.
#[must_use]
pub fn name(code: i32) -> String {
    let found = NAMES.iter().find(|(number, _)| *number == code);
    found.map_or_else(|| format!("E{code}"), |(_, name)| (*name).into())
}

/// Returns whether a write failed because of the disk, and not because of what the program made of the directory.
pub(crate) fn is_of_disk(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EIO))
}

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// The errors of starting, signalling, limiting and ending a program.
const NAMES: &[(i32, &str)] = names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV
    ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK
    ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP EOVERFLOW ELIBBAD EUSERS ENOTSOCK EMSGSIZE EPROTO EOPNOTSUPP EADDRINUSE
    ECONNRESET ENOBUFS ENOTCONN ETIMEDOUT ECONNREFUSED EALREADY EINPROGRESS ESTALE EDQUOT ECANCELED
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_named_and_unknown_ones_numbered() {
        assert_eq!(name(2), "ENOENT");
        assert_eq!(name(4095), "E4095");
        let failure = Failure::of("execve", &io::Error::from_raw_os_error(13));
        assert_eq!((failure.stage.as_str(), failure.errno.as_str(), failure.code), ("execve", "EACCES", 13));
    }
}
