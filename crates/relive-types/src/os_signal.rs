//! The operating system's signals: their names and numbers, the same on every architecture Relive runs on.

use std::borrow::Cow;
use std::fmt;

/// The first realtime signal, as the C library counts them.
const REALTIME_FIRST: u8 = 34;
const REALTIME_LAST: u8 = 64;

/// The names in numeric order, from 1.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Other names that shells accept.
const ALIASES: [(&str, u8); 4] = [("IOT", 6), ("CLD", 17), ("POLL", 29), ("UNUSED", 31)];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsSignal(u8);

impl OsSignal {
    /// Finds a signal by its number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let known = (1..=REALTIME_LAST).contains(&number);
        known.then_some(Self(number))
    }

    /// Finds a signal by its name, with or without `SIG`, in either case: `HUP`, `SIGUSR1`, `RTMIN+3`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some(index) = NAMES.iter().position(|name| &name[3..] == bare) {
            return Self::from_number(u8::try_from(index).ok()? + 1);
        }
        if let Some((_, number)) = ALIASES.iter().find(|(alias, _)| *alias == bare) {
            return Self::from_number(*number);
        }
        let number = |digits: &str| digits.parse::<u8>().ok();
        let found = match bare {
            "RTMIN" => REALTIME_FIRST,
            "RTMAX" => REALTIME_LAST,
            _ => match (bare.strip_prefix("RTMIN+"), bare.strip_prefix("RTMAX-")) {
                (Some(above), _) => REALTIME_FIRST.checked_add(number(above)?)?,
                (None, Some(below)) => REALTIME_LAST.checked_sub(number(below)?)?,
                (None, None) => return None,
            },
        };
        (REALTIME_FIRST..=REALTIME_LAST).contains(&found).then_some(Self(found))
    }

    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the name with its prefix: `SIGHUP`, `SIGRTMIN+3`.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match (NAMES.get(usize::from(self.0) - 1), self.0) {
            (Some(name), _) => Cow::Borrowed(name),
            (None, REALTIME_FIRST) => Cow::Borrowed("SIGRTMIN"),
            (None, REALTIME_LAST) => Cow::Borrowed("SIGRTMAX"),
            (None, number @ REALTIME_FIRST..) => Cow::Owned(format!("SIGRTMIN+{}", number - REALTIME_FIRST)),
            // The C library reserves these numbers.
            (None, number) => Cow::Owned(format!("signal {number}")),
        }
    }

    /// Returns whether it is a realtime signal.
    #[must_use]
    pub fn is_realtime(self) -> bool {
        self.0 > 31
    }

    /// Returns every name with its prefix in numeric order, without the realtime signals.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter()
    }
}

impl fmt::Display for OsSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_is_found_by_its_number_and_its_name() {
        for number in (1..=31).chain(34..=64) {
            let signal = OsSignal::from_number(number).unwrap();
            let name = signal.name();
            for spelling in [name.as_ref(), &name[3..], &name.to_lowercase()] {
                assert_eq!(OsSignal::from_name(spelling), Some(signal), "{spelling}");
            }
        }
    }

    #[test]
    fn names_map_to_the_numbers_of_linux() {
        let check = |name: &str, number| assert_eq!(OsSignal::from_name(name).map(OsSignal::number), number, "{name}");
        check("HUP", Some(1));
        check("SIGKILL", Some(9));
        check("usr1", Some(10));
        check("STOP", Some(19));
        check("CONT", Some(18));
        check("WINCH", Some(28));
        check("POLL", Some(29));
        check("SYS", Some(31));
        check("RTMIN+2", Some(36));
        check("RTMAX-1", Some(63));
        check("RTMIN+31", None);
        check("RTMAX-31", None);
        check("9", None);
        check("", None);
        check("PAUSE", None);
        assert_eq!(OsSignal::from_number(0), None);
        assert_eq!(OsSignal::from_number(65), None);
    }
}
