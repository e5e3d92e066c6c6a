//! A person at a terminal of 80 columns and 24 lines: a shell in tmux, keys that are typed, and what the screen shows.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::world::{World, wait_for};

/// What the shell shows when it waits for a command.
const PROMPT: &str = "ready:";
/// So long that only a test that would never end reaches it, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether a terminal knows how to mark pasted text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Marked {
    IfAsked,
    Never,
}

/// A terminal with a shell in the work directory of a world.
pub(crate) struct Screen<'a> {
    world: &'a World,
}

impl<'a> Screen<'a> {
    /// Opens it; `None`, and a word about the test that is skipped, where there is no tmux.
    pub(crate) fn open(world: &'a World, test: &str) -> Option<Self> {
        let found = Command::new("tmux").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("skipped: {test}: tmux is not installed");
            return None;
        }
        let screen = Self { world };
        let mut tmux = screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh"]);
        let beside = Path::new(env!("CARGO_BIN_EXE_relive")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        tmux.env_clear().envs(world.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        tmux.env("PATH", format!("{}:{path}", beside.display())).env("LANG", "C.UTF-8");
        assert!(tmux.status().unwrap().success());
        wait_for("the shell is there", || (!screen.text().trim().is_empty()).then_some(()));
        screen.line(&format!("PS1={PROMPT}"));
        screen.await_text(&format!("\n{PROMPT}\n"));
        Some(screen)
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.world.root().join("tmux")).args(args).current_dir(self.world.work());
        tmux.stdin(Stdio::null());
        tmux
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> String {
        let output = self.tmux(args).output().unwrap();
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types a command; its exit code is shown as `code N`, and whether the terminal is as it was as `same` or `other`.
    pub(crate) fn command(&self, line: &str) {
        self.clear();
        // The first line has the size, which is tmux's to change.
        let stty = "stty -a | tail -n +2";
        let compared = format!("{stty} >after; cmp -s before after && echo same || echo other");
        self.line(&format!("{stty} >before; {line}; echo code $?; {compared}"));
    }

    /// Types a text without Enter.
    pub(crate) fn text_keys(&self, text: &str) {
        self.run(&["send-keys", "-l", "--", text]);
    }

    pub(crate) fn line(&self, text: &str) {
        self.text_keys(text);
        self.keys(&["Enter"]);
    }

    /// Presses keys, by tmux's names for them.
    pub(crate) fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Pastes a text. A terminal marks it if the program has asked for that.
    pub(crate) fn paste(&self, text: &str, marked: Marked) {
        self.run(&["set-buffer", "--", text]);
        match marked {
            Marked::IfAsked => self.run(&["paste-buffer", "-r", "-p"]),
            Marked::Never => self.run(&["paste-buffer", "-r"]),
        };
    }

    /// Asserts that the program that has ended left a terminal that does not mark pasted text.
    #[track_caller]
    pub(crate) fn assert_pastes_unmarked(&self) {
        self.line("cat -v");
        self.paste("plain", Marked::IfAsked);
        self.keys(&["Enter"]);
        // What is typed, and what is read.
        let shown = wait_for("it is read", || Some(self.text()).filter(|shown| shown.matches("plain").count() == 2));
        assert!(!shown.contains("[200~"), "{shown}");
        self.keys(&["C-c"]);
    }

    /// The process of the shell.
    #[cfg(feature = "faults")]
    pub(crate) fn pane_pid(&self) -> u32 {
        self.run(&["display-message", "-p", "#{pane_pid}"]).trim().parse().unwrap()
    }

    pub(crate) fn resize(&self, columns: u32, rows: u32) {
        self.run(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
        // tmux tells the terminal a moment later.
        let terminal = self.run(&["display-message", "-p", "#{pane_tty}"]);
        wait_for("the terminal has its size", || {
            let size = Command::new("stty").args(["-F", terminal.trim(), "size"]).output().unwrap().stdout;
            (String::from_utf8_lossy(&size).trim() == format!("{rows} {columns}")).then_some(())
        });
    }

    /// Returns the modes of the terminal.
    #[cfg(feature = "faults")]
    pub(crate) fn stty(&self) -> String {
        self.set_stty("-a")
    }

    /// Sets modes of the terminal.
    #[cfg(feature = "faults")]
    pub(crate) fn set_stty(&self, modes: &str) -> String {
        let terminal = self.run(&["display-message", "-p", "#{pane_tty}"]);
        let output = Command::new("stty").args(["-F", terminal.trim(), modes]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn clear(&self) {
        self.run(&["clear-history"]);
        self.line("clear");
        wait_for("the screen is clear", || (self.text().trim() == PROMPT).then_some(()));
    }

    /// What is on the screen, and what has left it at the top.
    pub(crate) fn text(&self) -> String {
        self.run(&["capture-pane", "-p", "-S", "-"])
    }

    /// Returns whether the cursor is shown.
    #[cfg(feature = "faults")]
    pub(crate) fn shows_cursor(&self) -> bool {
        self.run(&["display-message", "-p", "#{cursor_flag}"]).trim() == "1"
    }

    /// Waits until the screen shows this; all that it shows then.
    #[track_caller]
    pub(crate) fn await_text(&self, part: &str) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.text();
            if shown.contains(part) {
                return shown;
            }
            assert!(begun.elapsed() < DEADLINE, "no {part:?} on the screen after {DEADLINE:?}:\n{shown}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the command has ended with this code, and the terminal is as it was.
    #[track_caller]
    pub(crate) fn await_code(&self, code: i32) -> String {
        let shown = self.await_text("\ncode ");
        assert!(shown.contains(&format!("\ncode {code}\n")), "{shown}");
        let shown = wait_for("the terminal is compared", || {
            let shown = self.text();
            (shown.contains("\nsame\n") || shown.contains("\nother\n")).then_some(shown)
        });
        let compared = ["before", "after"].map(|name| fs::read_to_string(self.world.work().join(name)).unwrap());
        assert!(shown.contains("\nsame\n"), "the terminal is not as it was: {compared:#?}");
        shown
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).stderr(Stdio::null()).status();
    }
}
