//! The names of the system's errors.

use std::io;

use crate::stage::Failure;

impl Failure {
    /// What failed, by the error's number.
    #[must_use]
    pub fn new(stage: &str, code: i32) -> Self {
        Self { stage: stage.into(), errno: name(code), code }
    }

    /// What failed, as the system said it.
    #[must_use]
    pub fn of(stage: &str, error: &io::Error) -> Self {
        Self::new(stage, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// The name of an error number, such as `ENOENT`; `E` and the number for those nobody expects here.
#[must_use]
pub fn name(code: i32) -> String {
    let found = NAMES.iter().find(|(number, _)| *number == code);
    found.map_or_else(|| format!("E{code}"), |(_, name)| (*name).into())
}

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// Those that starting, signalling, limiting and ending a program may meet.
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
    fn an_error_is_called_by_its_name_and_a_strange_one_by_its_number() {
        assert_eq!(name(2), "ENOENT");
        assert_eq!(name(4095), "E4095");
        let failure = Failure::of("execve", &io::Error::from_raw_os_error(13));
        assert_eq!((failure.stage.as_str(), failure.errno.as_str(), failure.code), ("execve", "EACCES", 13));
    }
}
