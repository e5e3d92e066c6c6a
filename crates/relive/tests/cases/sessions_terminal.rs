//! Programs with a terminal of their own, and a person who comes and goes.

use std::io::Read as _;
use std::process::Stdio;

use rustix::process::Signal;

use super::sessions_support::Person;
use super::world::{World, finish, kill, wait_until};

#[test]
fn case_35_a_terminal_carries_what_is_typed_and_what_is_printed_whole_and_in_order() {
    let world = World::new();
    let mut person = Person::sits_down(world.command(&["exec", "-t", "--", "cat"]), 24, 80);
    person.sees("Ctrl-]");
    person.types("hello\r");
    person.sees("hello\r\nhello\r\n");
    person.types([4]);
    assert_eq!(person.waits(), 0);
    assert!(person.has_a_usual_terminal());

    let gated = world.exec(&["-t", "--gate", "--name", "gated"], &["stty", "size"]);
    world.await_stage(&gated, "ready");
    let mut person = Person::sits_down(world.command(&["attach", "gated"]), 33, 99);
    person.sees("detach with Ctrl-]");
    // What is typed is answered after what was said before it, the size among it.
    person.types([0x1d]);
    assert_eq!(person.waits(), 0);
    world.relive(&["proceed", "gated"]).ok();
    world.ends(&gated, 0);
    assert_eq!(world.relive(&["logs", "gated"]).ok().stdout, "33 99\r\n");

    let counting = "stty raw -echo; echo go; head -c 65536 | cksum";
    let mut person = Person::sits_down(world.command(&["exec", "-t", "--", "sh", "-c", counting]), 24, 80);
    person.sees("go\n");
    person.types((0..65536_u32).map(|n| b'a' + (n % 26) as u8).collect::<Vec<_>>());
    assert_eq!(person.waits(), 0);
    person.sees(" 65536\n");

    for _ in 0..20 {
        let program = world.exec(&["-t"], &["sh", "-c", "echo first; printf last"]);
        world.ends(&program, 0);
        assert_eq!(world.relive(&["logs", &program.uuid]).ok().stdout, "first\r\nlast");
    }
}

#[test]
fn ctrl_c_on_a_terminal_is_typed_and_the_window_is_the_program_s() {
    let world = World::new();
    let talk = "trap 'echo interrupted' INT; trap 'stty size' WINCH; stty size; while :; do sleep 0.01; done";
    let command = world.command(&["exec", "-t", "--name", "shell", "--", "sh", "-c", talk]);
    let mut person = Person::sits_down(command, 20, 70);
    person.sees("20 70\r\n");
    person.types([3]);
    person.sees("interrupted\r\n");
    person.resizes(40, 132);
    person.sees("40 132\r\n");
    assert!(!person.has_a_usual_terminal());
    person.types([0x1d]);
    assert_eq!(person.waits(), 0);
    person.sees("keeps running: relive attach ");
    assert!(person.has_a_usual_terminal());
    assert_eq!(world.info("shell")["display"], "running");
}

#[test]
fn attaching_again_shows_the_latest_output_and_accepts_input() {
    let world = World::new();
    let program = world.exec(&["-t", "--name", "shell"], &["sh", "-c", "echo welcome; cat; echo bye"]);
    world.await_output(&program, "welcome");
    for round in 0..2 {
        let mut person = Person::sits_down(world.command(&["attach", "shell", "--detach-key", "ctrl-q"]), 24, 80);
        person.sees("detach with Ctrl-Q");
        person.sees("welcome\r\n");
        person.types(format!("round {round}\r"));
        person.sees(&format!("round {round}\r\nround {round}\r\n"));
        person.types([0x11]);
        assert_eq!(person.waits(), 0);
    }
    let mut person = Person::sits_down(world.command(&["attach", "shell"]), 24, 80);
    person.sees("round 1\r\n");
    person.types([4]);
    person.sees("bye\r\n");
    assert_eq!(person.waits(), 0);
    assert!(person.has_a_usual_terminal());
    world.ends(&program, 0);
}

#[test]
fn the_terminal_is_given_back_whatever_ends_the_command() {
    let world = World::new();
    let start = |name: &str| {
        let args = ["exec", "-t", "--name", name, "--", "sh", "-c", "trap '' HUP; echo up; exec sleep 1000"];
        let person = Person::sits_down(world.command(&args), 24, 80);
        person.sees("up\r\n");
        assert!(!person.has_a_usual_terminal());
        person
    };
    let mut person = start("one");
    person.signals(Signal::HUP);
    assert_eq!(person.waits(), 129);
    assert!(person.has_a_usual_terminal());
    assert_eq!(world.info("one")["display"], "running");

    let mut person = start("two");
    person.signals(Signal::TERM);
    assert_eq!(person.waits(), 143);
    assert!(person.has_a_usual_terminal());
}

#[test]
fn detaching_from_a_full_screen_program_restores_the_screen_and_attaching_brings_it_back() {
    const UNDONE: &str = "\x1b[?1049l\x1b[?2004l\x1b[?25h\x1b[0m";
    let world = World::new();
    let full_screen = "printf '\\033[?1049h\\033[?25l\\033[?2004h'; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; \
        trap 'echo drawn' WINCH; echo up; while :; do sleep 0.01; done";
    let program = world.exec(&["-t", "--name", "editor"], &["sh", "-c", full_screen]);
    world.await_output(&program, "up");
    for code in [0, 143, 131, 138, 140, 142, 141, 134, 129, 153, 157, 158, 159] {
        let mut person = Person::sits_down(world.command(&["attach", "editor"]), 24, 80);
        person.sees("\x1b[?1049h");
        person.sees("up\r\n");
        person.sees("drawn\r\n");
        assert!(!person.screen().contains(UNDONE) && !person.has_a_usual_terminal());
        match code {
            0 => person.types([0x1d]),
            143 => person.signals(Signal::TERM),
            131 => person.signals(Signal::QUIT),
            138 => person.signals(Signal::USR1),
            140 => person.signals(Signal::USR2),
            142 => person.signals(Signal::ALARM),
            141 => person.signals(Signal::PIPE),
            129 => person.signals(Signal::HUP),
            153 => person.signals(Signal::XFSZ),
            157 => person.signals(Signal::IO),
            158 => person.signals(Signal::POWER),
            159 => person.signals(Signal::SYS),
            _ => person.signals(Signal::ABORT),
        }
        assert_eq!(person.waits(), code);
        person.sees(UNDONE);
        assert!(person.has_a_usual_terminal());
        assert_eq!(world.info("editor")["display"], "running");
    }
}

#[test]
fn an_attach_that_is_stopped_gives_the_terminal_back_until_it_continues() {
    let world = World::new();
    let program = world.exec(&["-t", "--name", "job"], &["sh", "-c", "echo up; exec sleep 1000"]);
    world.await_output(&program, "up");
    let mut person = Person::sits_down(world.command(&["attach", "job"]), 24, 80);
    person.sees("up");
    assert!(!person.has_a_usual_terminal());
    person.signals(Signal::TSTP);
    wait_until("the terminal is given back", || person.has_a_usual_terminal());
    wait_until("it has stopped", || person.is_stopped());
    person.signals(Signal::CONT);
    wait_until("the terminal is taken again", || !person.has_a_usual_terminal());
    person.types([0x1d]);
    assert_eq!(person.waits(), 0);
    assert!(person.has_a_usual_terminal());
}

#[test]
fn an_attach_that_is_stopped_leaves_a_usual_screen_and_draws_it_again() {
    const UNDONE: &str = "\x1b[?1049l\x1b[?25h\x1b[0m";
    let world = World::new();
    let script = "printf '\\033[?1049h\\033[?25l'; trap 'echo drawn' WINCH; echo up; \
        while :; do sleep 0.01; done";
    let program = world.exec(&["-t", "--name", "editor"], &["sh", "-c", script]);
    world.await_output(&program, "up");
    let mut person = Person::sits_down(world.command(&["attach", "editor"]), 24, 80);
    person.sees("drawn\r\n");
    person.signals(Signal::TSTP);
    person.sees(UNDONE);
    wait_until("it has stopped", || person.is_stopped());
    person.signals(Signal::CONT);
    person.sees("\x1b[?1049h\x1b[?25l");
    let after = |screen: &str| screen.split(UNDONE).nth(1).is_some_and(|rest| rest.contains("drawn\r\n"));
    wait_until("it is drawn again", || after(&person.screen()));
    person.types([0x1d]);
    assert_eq!(person.waits(), 0);
    assert!(person.has_a_usual_terminal());
}

#[test]
fn attaching_without_a_terminal_follows_and_ctrl_c_only_leaves() {
    let world = World::new();
    let program = world.exec(&["--name", "job"], &["sh", "-c", "echo up; exec sleep 1000"]);
    world.await_output(&program, "up");
    let mut attached = world.command(&["attach", "job"]);
    // An input that stays open.
    attached.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut attached = attached.spawn().unwrap();
    let mut shown = attached.stdout.take().unwrap();
    let mut first = [0; 3];
    shown.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"up\n");
    kill(attached.id(), Signal::INT);
    finish(attached).fails(130, &["Ctrl-C detaches", "keeps running: relive attach"]);
    assert_eq!(world.info("job")["display"], "running");
}

#[test]
fn an_attach_ends_with_the_exit_code_of_the_program() {
    let world = World::new();
    let program = world.exec(&["-i", "--name", "job"], &["sh", "-c", "echo up; read line; exit 7"]);
    world.await_output(&program, "up");
    let mut attached = world.command(&["attach", "job"]);
    attached.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut attached = attached.spawn().unwrap();
    let mut shown = attached.stdout.take().unwrap();
    shown.read_exact(&mut [0; 3]).unwrap();
    world.relive(&["send", "job", "go"]).ok();
    finish(attached).fails(7, &["has ended with exit code 7"]);
}
