//! The program of a process with the body `exec`, without its directory and its environment.

use serde::{Deserialize, Serialize};

use crate::Uuid;
use crate::isolation::NamespaceKind;

/// A program and how to start it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Descriptors 0, 1 and 2.
    #[serde(default)]
    pub stdio: Stdio,
    /// Whether the program waits at its gate for `relive proceed`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate: bool,
    /// Whether it sees the host's processes.
    #[serde(default)]
    pub namespace: Namespace,
    #[serde(flatten)]
    pub resources: Resources,
    /// Whether the first run was started in the foreground, where output is not dropped but waits for its reader.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreground: bool,
    /// Whether both outputs share one pipe, which keeps their order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_output: bool,
    /// The settings of the shell in which the command was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<Inherited>,
    /// The session that it runs in, next to the program of that; absent for one with a session of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enter: Option<Entered>,
}

/// What a program and its descendants may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resources {
    /// The most memory, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The most processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// The most CPU time, in thousandths of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Whether the program may run without a limit or an isolation that this machine cannot enforce, and is reported as
    /// degraded; otherwise the start fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_degraded: bool,
}

impl Resources {
    /// Returns whether anything is limited.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        (self.memory, self.pids, self.cpu) != (None, None, None)
    }
}

/// The session that a program enters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered {
    /// The process of the session.
    pub uuid: Uuid,
    /// The program of the session, by its OS pid and the time of its start in clock ticks since the boot.
    pub host_pid: i32,
    pub start_time: u64,
    /// The namespaces that are joined.
    pub namespaces: Vec<NamespaceKind>,
}

/// The settings that a program inherits from a shell, apart from its environment and directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inherited {
    /// The file mode bits that new files do not get.
    pub umask: u32,
    /// The priority, from -20 to 19.
    pub nice: i32,
    /// The limits of the operating system, by their numbers.
    pub limits: Vec<ResourceLimit>,
    /// The numbers of the signals that are ignored.
    pub ignored: Vec<u8>,
    /// The CPUs that it may run on, like `0-3,7`; those of the daemon if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
}

impl Inherited {
    /// Returns these settings, with no more priority and no higher limits than those above: a program cannot give itself more
    /// than it has, either.
    #[must_use]
    pub fn below(mut self, above: &Self) -> Self {
        self.nice = self.nice.max(above.nice);
        for limit in &above.limits {
            match self.limits.iter_mut().find(|own| own.resource == limit.resource) {
                Some(own) => *own = own.below(limit.hard),
                None => self.limits.push(*limit),
            }
        }
        self
    }
}

impl ResourceLimit {
    /// Returns this limit, at most as high as the highest one that may be set.
    fn below(self, highest: Option<u64>) -> Self {
        let lower =
            |limit: Option<u64>| limit.map_or(highest, |own| Some(highest.map_or(own, |highest| own.min(highest))));
        Self { soft: lower(self.soft), hard: lower(self.hard), ..self }
    }
}

/// One limit of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// The number of the limit on Linux.
    pub resource: u32,
    /// The limit in force; absent if unlimited.
    pub soft: Option<u64>,
    /// The highest limit that the program may set; absent if unlimited.
    pub hard: Option<u64>,
}

/// The targets of descriptors 0, 1 and 2 of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// Input is empty; output goes through pipes.
    #[default]
    Null,
    /// Pipes for all three.
    Pipes,
    /// A terminal of its own.
    Pty { rows: u16, columns: u16 },
}

/// Whether a program sees the host's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespace {
    /// Yes, unless this machine needs a PID namespace to keep the process tree together.
    #[default]
    Host,
    /// No: it has a PID namespace with a stub init.
    Pid,
    /// No: it has a PID namespace in which it is PID 1 itself.
    PidWithoutInit,
}

impl Program {
    /// Returns the command line as a person would type it in a shell.
    #[must_use]
    pub fn command_line(&self) -> String {
        let quoted = self.argv.iter().map(|word| quote(word));
        quoted.collect::<Vec<_>>().join(" ")
    }
}

/// Returns a word as a person would type it in a shell.
#[must_use]
pub fn quote(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "%+,-./:=@_".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Splits a line into its commands, which `&&` joins, and each into its words, as a shell would. `None` if it has
/// anything but words, quotes and backslashes; a variable between double quotes is no word either.
#[must_use]
pub fn commands(line: &str) -> Option<Vec<Vec<String>>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' => words.extend(word.take()),
            '&' => {
                if characters.next() != Some('&') {
                    return None;
                }
                words.extend(word.take());
                if words.is_empty() {
                    return None;
                }
                commands.push(std::mem::take(&mut words));
            }
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        quoted => word.push(quoted),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '$' | '`' => return None,
                        // Between double quotes a shell takes a backslash away only in front of these.
                        '\\' => match characters.next()? {
                            quoted @ ('"' | '\\' | '$' | '`') => word.push(quoted),
                            other => word.extend(['\\', other]),
                        },
                        quoted => word.push(quoted),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            '$' | '`' | '|' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '~' | '#' => return None,
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    if words.is_empty() {
        return commands.is_empty().then_some(commands);
    }
    commands.push(words);
    Some(commands)
}

/// Splits a line into commands of Relive: each begins with `relive`, which is left out. `None` if it has anything else.
#[must_use]
pub fn relive_commands(line: &str) -> Option<Vec<Vec<String>>> {
    let mut commands = commands(line)?;
    let ours = commands.iter_mut().all(|words| words.remove(0) == "relive" && !words.is_empty());
    (ours && !commands.is_empty()).then_some(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_below_has_more_priority_or_higher_limits() {
        let limit = |resource, soft, hard| ResourceLimit { resource, soft, hard };
        let settings = |nice, limits: &[ResourceLimit]| Inherited {
            umask: 0o22,
            nice,
            limits: limits.to_vec(),
            ignored: vec![1],
            cpus: Some("0".to_owned()),
        };
        let above = settings(5, &[limit(7, Some(100), Some(200)), limit(8, None, None), limit(9, Some(1), Some(1))]);
        let check = |wanted: Inherited, expect: Inherited| assert_eq!(wanted.below(&above), expect);
        check(
            settings(-10, &[limit(7, None, None), limit(8, Some(3), None), limit(10, None, None)]),
            settings(
                5,
                &[
                    limit(7, Some(200), Some(200)),
                    limit(8, Some(3), None),
                    limit(10, None, None),
                    limit(9, Some(1), Some(1)),
                ],
            ),
        );
        check(
            settings(19, &[limit(9, Some(0), Some(1)), limit(7, Some(50), Some(150)), limit(8, None, None)]),
            settings(19, &[limit(9, Some(0), Some(1)), limit(7, Some(50), Some(150)), limit(8, None, None)]),
        );
    }

    #[test]
    fn only_plain_commands_are_split_into_words() {
        let check = |line: &str, expect: Option<&[&[&str]]>| {
            let expect: Option<Vec<Vec<String>>> =
                expect.map(|all| all.iter().map(|words| words.iter().map(ToString::to_string).collect()).collect());
            assert_eq!(commands(line), expect, "{line}");
        };
        check("relive  ps -a", Some(&[&["relive", "ps", "-a"]]));
        check("send 5 'a b' ''", Some(&[&["send", "5", "a b", ""]]));
        check("a 1 && b '&& c'", Some(&[&["a", "1"], &["b", "&& c"]]));
        check(r"a it\'s", Some(&[&["a", "it's"]]));
        check(r#"send 5 "it's; a \"b\" \n" """#, Some(&[&["send", "5", r#"it's; a "b" \n"#, ""]]));
        check(r#"send 5 "a \$b""#, Some(&[&["send", "5", "a $b"]]));
        check(r#"send 5 "$HOME""#, None);
        check(r#"send 5 "`id`""#, None);
        check(r#"send 5 "open"#, None);
        check("", Some(&[]));
        check("send 5 'open", None);
        check("ps; rm -rf /", None);
        check("send 5 $(id)", None);
        check("a & b", None);
        check("&& b", None);
        check("a &&", None);
    }

    #[test]
    fn a_line_of_other_words_is_no_command_of_relive() {
        let check = |line: &str, expect: Option<usize>| {
            assert_eq!(relive_commands(line).map(|all| all.len()), expect, "{line}");
        };
        check("relive resume 1 --max-tokens 5 && relive resume 2", Some(2));
        check("set KEY, then from a shell that has it: relive resume 5", None);
        check("relive ps && rm -rf /", None);
        check("relive", None);
        check("", None);
    }

    #[test]
    fn a_command_line_is_quoted_so_that_it_can_be_typed_again() {
        let argv = ["sh", "-c", "echo 'a b'", ""].map(str::to_owned).to_vec();
        let program: Program = serde_json::from_value(serde_json::json!({ "argv": argv })).unwrap();
        assert_eq!(program.command_line(), r"sh -c 'echo '\''a b'\''' ''");
    }
}
