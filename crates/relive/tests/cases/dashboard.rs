//! The dashboard on a terminal, driven like a person does.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::screen::{Marked, Screen};
use crate::world::{World, kill, wait_for};

const ASKS: &str = "turns: [{calls: [{name: ask, args: {question: 'Which branch?', choices: [main, dev]}}]}, \
                    {text: 'got {{result}}'}]";
const RUNS_COMMAND: &str = "turns: [{calls: [{name: shell, args: {command: 'echo hi'}}]}, {text: done}]";

/// The line of the screen with this in it.
fn line_with(screen: &Screen<'_>, part: &str) -> Option<String> {
    screen.text().lines().find(|line| line.contains(part)).map(str::to_owned)
}

/// The time that the list shows for a process.
fn clock(screen: &Screen<'_>, name: &str) -> Option<String> {
    let line = line_with(screen, &format!(" {name} "))?;
    let list = line.split(['│', '|']).next()?.trim_end().to_owned();
    list.split_whitespace().last().map(str::to_owned)
}

#[test]
fn case_80_a_paused_clock_stands_still_and_the_dashboard_catches_up_after_a_kill() {
    check_pause_and_kill("case_80", (80, 24));
}

#[test]
fn case_80_a_subtree_is_paused_and_a_killed_daemon_is_back_on_a_large_terminal() {
    check_pause_and_kill("case_80_large", (200, 60));
}

fn check_pause_and_kill(test: &str, (columns, rows): (u32, u32)) {
    let world = World::new();
    let Some(screen) = Screen::open(&world, test) else { return };
    screen.resize(columns, rows);
    let sleep = "{calls: [{name: sleep, args: {duration: 1h}}]}";
    let child = world.script(&format!("turns: [{sleep}]"));
    let spawn = format!("{{calls: [{{name: spawn_agent, args: {{intent: x, name: child, model: '{child}'}}}}]}}");
    let parent = world.run(&format!("turns: [{spawn}, {sleep}]"));
    world.relive(&["rename", &parent.uuid, "parent"]).ok();
    wait_for("there is a child", || (world.relive(&["ps", "-q"]).ok().stdout.lines().count() == 2).then_some(()));
    screen.command("relive top");
    screen.await_text("PROCESSES 2");
    screen.await_text("2 running");
    wait_for("the clock runs", || clock(&screen, "parent").filter(|clock| clock != "0s" && clock != "1s"));
    screen.keys(&["p"]);
    screen.await_text("relive pause --subtree");
    screen.await_text("2 waiting");
    wait_for("both are suspended", || (screen.text().matches("[P] suspended").count() >= 2).then_some(()));
    let stopped = clock(&screen, "parent").unwrap();
    let paused = world.info(&parent.uuid)["elapsed_ms"].clone();

    // It starts the next daemon itself, and hears of what is new there.
    let killed = world.kill_daemon();
    wait_for("there is another daemon", || world.daemon_pid().filter(|pid| *pid != killed));
    let asks = world.run_with(ASKS, &["--name", "asker"]);
    screen.await_text("question asker: Which branch?");
    assert_eq!(clock(&screen, "parent").unwrap(), stopped, "the time of a paused process stands still");
    assert_eq!(world.info(&parent.uuid)["elapsed_ms"], paused);

    wait_for("the cursor is on the parent", || {
        let is_there = line_with(&screen, " parent ").is_some_and(|line| line.starts_with('>'));
        if !is_there {
            screen.keys(&["j"]);
        }
        is_there.then_some(())
    });
    screen.keys(&["p"]);
    screen.await_text("relive resume --subtree");
    screen.await_text("2 running");
    world.relive(&["kill", &asks.uuid]).ok();
    screen.keys(&["q"]);
    let shown = screen.await_code(0);
    assert!(shown.contains("the processes continue: relive ps"), "{shown}");
    assert_eq!(world.info(&parent.uuid)["display"], "running");
}

#[test]
fn the_dashboard_waits_for_a_daemon_that_was_stopped() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_dashboard_waits_for_a_daemon_that_was_stopped") else { return };
    let process = world.run_with("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]", &["--name", "sleeper"]);
    screen.command("relive top");
    screen.await_text("PROCESSES 1");
    world.relive(&["daemon", "stop"]).ok();
    screen.await_text("reconnecting...");
    let shown = screen.await_text("the daemon was stopped; to start it: relive daemon start");
    assert!(shown.contains("reconnecting..."), "{shown}");
    // It looks for the daemon four times a second. Whatever it tries, it does not start one.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(world.daemon_pid(), None, "whoever stopped it starts it");
        screen.text();
    }
    assert!(screen.text().contains(" sleeper "), "it shows what it knows");
    world.relive(&["daemon", "start"]).ok();
    wait_for("it is connected again", || (!screen.text().contains("reconnecting...")).then_some(()));
    screen.await_text("1 running");
    world.relive(&["kill", &process.uuid]).ok();
    screen.await_text("1 done");
    screen.keys(&["q"]);
    screen.await_code(0);
}

#[test]
fn the_dashboard_answers_by_a_key_and_shows_the_command() {
    check_answers_by_a_key("the_dashboard_answers_by_a_key_and_shows_the_command", (80, 24));
}

#[test]
fn the_dashboard_answers_by_a_key_on_a_large_terminal() {
    check_answers_by_a_key("the_dashboard_answers_by_a_key_on_a_large_terminal", (200, 60));
}

fn check_answers_by_a_key(test: &str, (columns, rows): (u32, u32)) {
    let world = World::new();
    let Some(screen) = Screen::open(&world, test) else { return };
    screen.resize(columns, rows);
    let allowed = world.run_with(RUNS_COMMAND, &["--name", "first"]);
    world.await_display(&allowed.uuid, "approval");
    let denied = world.run_with(RUNS_COMMAND, &["--name", "second"]);
    world.await_display(&denied.uuid, "approval");
    let asks = world.run_with(ASKS, &["--name", "third"]);
    world.await_display(&asks.uuid, "question");
    screen.command("relive top");
    screen.await_text("INBOX 3");
    let shown = screen.await_text("  | echo hi");
    assert!(shown.contains("[y] allow  relive resolve "), "{shown}");
    // A key counts once what is asked was shown for a moment, so it may have to be pressed again: but not after it counted,
    // when it would answer the next item.
    let press = |key: &str, (uuid, kind): (&str, &str), until: &str| {
        wait_for(until, || {
            if world.records(uuid, kind).len() < 2 {
                screen.keys(&[key]);
            }
            let pressed = Instant::now();
            let shown = std::iter::repeat_with(|| screen.text());
            let mut shown = shown.take_while(|_| pressed.elapsed() < Duration::from_secs(3));
            shown.any(|shown| shown.contains(until)).then_some(())
        });
    };
    press("y", (&allowed.uuid, "approval"), "finished first");
    assert_eq!(world.records(&allowed.uuid, "approval")[1]["decision"], "allowed");
    wait_for("the cursor is on the second", || {
        let is_there = line_with(&screen, "approval second").is_some_and(|line| line.starts_with('>'));
        if !is_there {
            screen.keys(&["k"]);
        }
        is_there.then_some(())
    });
    press("n", (&denied.uuid, "approval"), "finished second");
    assert_eq!(world.records(&denied.uuid, "approval")[1]["decision"], "denied");
    wait_for("the cursor is on the third", || {
        let is_there = line_with(&screen, "question third").is_some_and(|line| line.starts_with('>'));
        if !is_there {
            screen.keys(&["k"]);
        }
        is_there.then_some(())
    });
    press("2", (&asks.uuid, "question"), "finished third");
    assert_eq!(world.records(&asks.uuid, "question")[1]["answer"], "dev");
    screen.keys(&["q"]);
    screen.await_code(0);
}

#[test]
fn the_dashboard_forks_at_the_step_under_the_cursor_and_is_resized() {
    check_forks("the_dashboard_forks_at_the_step_under_the_cursor", (200, 60), (80, 24));
}

#[test]
fn the_dashboard_forks_on_a_small_terminal_and_is_resized_to_a_large_one() {
    check_forks("the_dashboard_forks_on_a_small_terminal", (80, 24), (200, 60));
}

/// Presses a key that moves the cursor of the Timeline, and waits until it is on this step.
fn move_to_step(screen: &Screen<'_>, key: &str, step: u32) {
    screen.keys(&[key]);
    let mark = format!(">   {step} ");
    wait_for("the cursor is on the step", || line_with(screen, &mark).map(drop));
}

fn check_forks(test: &str, (columns, rows): (u32, u32), (then_columns, then_rows): (u32, u32)) {
    let world = World::new();
    let Some(screen) = Screen::open(&world, test) else { return };
    let process = world.run("turns: [{calls: [{name: list, args: {}}], repeat: 3}, {text: done}]");
    world.await_retired(&process.uuid);
    screen.resize(columns, rows);
    screen.command("relive top");
    screen.await_text("PROCESSES 1");
    screen.keys(&["Tab"]);
    screen.await_text("tok  list");
    screen.keys(&["Enter"]);
    screen.await_text("Esc back");
    move_to_step(&screen, "g", 1);
    move_to_step(&screen, "j", 2);
    screen.keys(&["f"]);
    screen.await_text("relive resume --fork --from-step 2");
    let fork = wait_for("there is a fork", || {
        let listed = world.relive(&["ps", "-a", "--json"]).ok().json();
        listed["processes"].as_array().unwrap().iter().find(|it| it["origin_uuid"] == process.uuid.as_str()).cloned()
    });
    assert_eq!(fork["origin_step"], json!(2));
    screen.resize(then_columns, then_rows);
    wait_for("the last line of the new size has the keys", || {
        let shown = screen.text();
        let rows = usize::try_from(then_rows).unwrap();
        (shown.lines().nth(rows - 1).is_some_and(|line| line.contains("Esc back"))).then_some(())
    });
    screen.await_text("[Timeline]");
    screen.keys(&["?"]);
    screen.await_text("pause or resume it (or the tagged) and all below");
    screen.keys(&["Escape"]);
    wait_for("the help is closed", || (!screen.text().contains("and all below")).then_some(()));
    screen.keys(&["C-c"]);
    screen.await_code(0);
}

#[test]
fn the_terminal_is_given_back_after_a_signal() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_terminal_is_given_back_after_a_signal") else { return };
    screen.command("relive top");
    screen.await_text("nothing waits for you");
    kill(dashboard_pid(&screen), Signal::TERM);
    screen.await_code(143);
}

/// The process of the dashboard that runs in the shell of a screen.
fn dashboard_pid(screen: &Screen<'_>) -> u32 {
    wait_for("the dashboard runs", || child_of(screen.pane_pid()))
}

#[test]
fn the_terminal_is_given_back_when_another_program_stops_the_dashboard() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_terminal_is_given_back_when_another_program_stops_it") else { return };
    screen.line("set -m");
    screen.line("relive top");
    screen.await_text("nothing waits for you");
    kill(dashboard_pid(&screen), Signal::TSTP);
    screen.await_text("Stopped");
    assert!(screen.shows_cursor(), "the shell has its cursor");
    screen.line("stty -a | grep -c ' icanon'");
    screen.await_text("\n1\n");
    screen.line("fg");
    screen.await_text("nothing waits for you");
    screen.keys(&["q"]);
    screen.await_text("the processes continue: relive ps");
}

#[test]
fn a_terminal_that_understands_only_text_gets_nothing_else() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_terminal_that_understands_only_text_gets_nothing_else") else { return };
    screen.command("TERM=dumb relive top 2>&1 | tee out; TERM=dumb relive inbox --watch");
    let shown = screen.await_code(2);
    assert!(shown.contains("the dashboard needs a terminal"), "{shown}");
    screen.command("TERM=dumb relive top");
    let shown = screen.await_code(2);
    assert!(
        shown.replace('\n', "").contains("TERM says that this one cannot")
            && shown.contains("hint: relive inbox --list"),
        "{shown}"
    );
}

#[test]
fn a_process_that_was_removed_leaves_an_open_dashboard() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_process_that_was_removed_leaves_an_open_dashboard") else { return };
    let process = world.run_with("turns: [{text: done}]", &["--name", "ended"]);
    world.await_retired(&process.uuid);
    screen.command("relive top");
    screen.await_text("finished ended");
    world.relive(&["rm", "-y", "ended"]).ok();
    screen.await_text("PROCESSES 0");
    screen.keys(&["q"]);
    screen.await_code(0);
}

#[test]
fn an_error_that_is_longer_than_a_line_is_shown_in_full_on_80_columns() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "an_error_that_is_longer_than_a_line") else { return };
    world.run_with("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]", &["--name", "sleeper"]);
    screen.command("relive top");
    screen.await_text("PROCESSES 1");
    // As long as a name may be: longer ones are cut in the error. With it the error is longer than a line.
    let name = format!("begin{}end", "x".repeat(56));
    screen.keys(&[":"]);
    screen.await_text(" relive, then Enter ");
    screen.line(&format!("info {name}"));
    let in_window = |shown: &str| -> String {
        let inside = shown.lines().filter_map(|line| line.strip_prefix(['│', '|'])?.strip_suffix(['│', '|']));
        inside.map(str::trim_end).collect()
    };
    let shown =
        wait_for("the error is shown", || Some(screen.text()).filter(|shown| in_window(shown).contains("error: ")));
    assert!(in_window(&shown).contains(&name), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    screen.keys(&["Escape"]);
    wait_for("the window is closed", || (!in_window(&screen.text()).contains("error: ")).then_some(()));
    screen.keys(&["q"]);
    screen.await_code(0);
}

#[test]
fn a_rewind_asks_first_and_a_file_that_is_written_is_compared_with_the_disk() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_rewind_asks_first_and_a_file_is_compared") else { return };
    let write = |text: &str| format!("{{calls: [{{name: write, args: {{path: a.txt, content: \"{text}\"}}}}]}}");
    let [first, second, third] = [write("one\\n"), write("two\\n"), write("three\\n")];
    let script = format!("turns: [{first}, {second}, {{text: waits}}, {third}, {{text: done}}]");
    let process = world.run_with(&script, &["--name", "writer"]);
    world.await_retired(&process.uuid);
    let file = world.work().join("a.txt");
    let holds = |text: &str| std::fs::read_to_string(&file).is_ok_and(|found| found == text);
    assert!(holds("two\n"));
    screen.line("relive top");
    screen.await_text("PROCESSES 1");
    screen.keys(&["Tab"]);
    screen.await_text("tok  write");
    screen.keys(&["Enter"]);
    screen.await_text("Esc back");
    move_to_step(&screen, "g", 1);
    screen.keys(&["r"]);
    let shown = screen.await_text("--to-step 1 -y?  [y] yes  [n] no");
    assert!(shown.contains("a.txt") && holds("two\n"), "{shown}");
    screen.keys(&["n"]);
    screen.await_text("nothing was changed");
    assert!(holds("two\n"));
    screen.keys(&["r"]);
    screen.await_text("[y] yes  [n] no");
    wait_for("it is put back", || {
        screen.keys(&["y"]);
        std::iter::repeat_with(|| holds("one\n")).take(20).any(|is_so| is_so).then_some(())
    });
    // A key that comes right after the last one of those is taken for a part of a pasted text.
    wait_for("the dashboard is left", || {
        screen.keys(&["q"]);
        let is_left = || screen.text().contains("the processes continue: relive ps");
        std::iter::repeat_with(is_left).take(20).any(|is_so| is_so).then_some(())
    });
    screen.line("clear");
    let asks = world.run_with(&format!("turns: [{third}]"), &["--name", "asks", "--ask", "write"]);
    world.await_display(&asks.uuid, "approval");
    screen.line("relive top");
    let shown = screen.await_text("changes:");
    assert!(shown.contains("  | -one") && shown.contains("  | +three"), "{shown}");
    screen.keys(&["q"]);
    screen.await_text("the processes continue: relive ps");
}

/// Every other way out drops what gives the terminal back; a panic may not get that far.
#[test]
fn the_terminal_is_given_back_after_a_panic() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_terminal_is_given_back_after_a_panic") else { return };
    world.run_with("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]", &[]);
    screen.command("RELIVE_FAULTS=dashboard-panic relive top");
    screen.await_text("PROCESSES 1");
    screen.keys(&["BTab"]);
    let shown = screen.await_code(101);
    assert!(shown.contains("asked for") && !shown.contains("PROCESSES"), "{shown}");
}

#[test]
fn the_dashboard_stops_and_continues_like_any_program_of_a_shell() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_dashboard_stops_and_continues") else { return };
    screen.line("set -m");
    screen.line("relive top");
    screen.await_text("nothing waits for you");
    screen.keys(&["C-z"]);
    screen.await_text("Stopped");
    screen.line("stty -a | grep -c ' icanon'");
    screen.await_text("\n1\n");
    screen.line("fg");
    screen.await_text("nothing waits for you");
    screen.keys(&["?"]);
    screen.await_text("quit; the processes continue");
    screen.keys(&["Escape"]);
    // Together they would be one key: Alt-q.
    wait_for("the help is closed", || (!screen.text().contains("quit; the processes continue")).then_some(()));
    screen.keys(&["q"]);
    screen.await_text("the processes continue: relive ps");
}

#[test]
fn a_question_in_front_of_run_is_answered_by_typing() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_question_in_front_of_run_is_answered_by_typing") else { return };
    screen.command(&format!("relive run --model {} 'do it'", world.script(ASKS)));
    let shown = screen.await_text("your answer or its number, then Enter:");
    assert!(shown.contains("PID 1 asks:\n  | Which branch?\nit proposes:\n  1 | main\n  2 | dev\n"), "{shown}");
    let info = world.relive(&["info", "1"]).ok().stdout;
    assert!(info.contains("Which branch? (answer: relive resolve 1)"), "{info}");
    screen.line("1");
    let shown = screen.await_code(0);
    assert!(shown.contains("got main"), "{shown}");
    assert_eq!(world.relive(&["inbox", "-q"]).ok().stdout, "", "whoever watches has seen its end");
}

/// Everything after the begin mark belongs to the pasted text, Ctrl-C too if it were read.
#[test]
fn ctrl_c_leaves_the_dashboard_within_a_paste_that_does_not_end() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "ctrl_c_leaves_the_dashboard_within_a_paste_that_does_not_end") else {
        return;
    };
    screen.command("relive top");
    screen.await_text("nothing waits for you");
    screen.text_keys("\x1b[200~abc");
    screen.keys(&["C-c"]);
    screen.await_code(0);
}

/// The first letter of a pasted text is one of the keys.
#[test]
fn pasted_text_is_no_key_in_the_dashboard() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "pasted_text_is_no_key_in_the_dashboard") else { return };
    let process = world.run("turns: [{calls: [{name: shell, args: {command: 'touch deed'}}]}, {text: done}]");
    world.await_display(&process.uuid, "approval");
    screen.command("relive top");
    screen.await_text("  | touch deed");
    screen.paste("yes", Marked::Never);
    screen.await_text("several keys at once do nothing: press one");
    screen.paste("yes", Marked::IfAsked);
    screen.await_text("pasted text is no key: nothing was done");
    assert_eq!(world.records(&process.uuid, "approval").len(), 1, "asked, and not answered");
    screen.keys(&["s"]);
    screen.await_text("message, then Enter");
    screen.paste("one\ntwo", Marked::IfAsked);
    screen.await_text("two_");
    screen.keys(&["Enter"]);
    wait_for("it is sent", || {
        world.records(&process.uuid, "input").iter().any(|it| it["text"] == "one\ntwo").then_some(())
    });
    screen.keys(&["q"]);
    screen.await_code(0);
    screen.assert_pastes_unmarked();
}

/// Ctrl-C is a signal for the whole foreground of the terminal, and was meant for the agent. A dashboard that is slower than the
/// agent's end hears of both at once.
#[test]
fn ctrl_c_in_an_attached_agent_returns_to_the_dashboard() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "ctrl_c_in_an_attached_agent_returns_to_the_dashboard") else { return };
    world.run_with("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]", &["--name", "sleeper"]);
    // A shell without job control does not take the terminal from a dashboard that is stopped.
    screen.command("sh -c 'trap : INT; relive top; exit $?'");
    screen.await_text("PROCESSES 1");
    let dashboard = wait_for("the dashboard runs", || child_of(child_of(screen.pane_pid())?));
    screen.keys(&["Enter"]);
    for round in 1..=4 {
        screen.await_text("Enter attach");
        screen.keys(&["Enter"]);
        let await_lines = |part: &str| wait_for(part, || (screen.text().matches(part).count() == round).then_some(()));
        await_lines("attached to PID 1");
        let attached = wait_for("it is a command", || child_of(dashboard));
        kill(dashboard, Signal::STOP);
        screen.keys(&["C-c"]);
        await_lines("detached, PID 1 keeps running: relive attach 1");
        wait_for("it has ended", || is_zombie(attached).then_some(()));
        kill(dashboard, Signal::CONT);
        screen.await_text("PROCESSES 1");
        screen.await_text("relive attach");
        assert!(screen.text().contains(": left with Ctrl-C"), "{}", screen.text());
        // Only a dashboard that runs on does this.
        screen.keys(&[":"]);
        screen.await_text("relive, then Enter");
        screen.keys(&["Escape"]);
        wait_for("it is closed", || (!screen.text().contains("relive, then Enter")).then_some(()));
    }
    screen.keys(&["q"]);
    screen.await_code(0);
}

/// Its stream has nothing to tell for a while also when it is well.
#[test]
fn the_dashboard_says_that_the_daemon_does_not_answer() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "the_dashboard_says_that_the_daemon_does_not_answer") else { return };
    screen.command("relive top");
    screen.await_text("nothing waits for you");
    let daemon = world.daemon_pid().unwrap();
    kill(daemon, Signal::STOP);
    screen.await_text(&format!("waiting for the daemon, OS pid {daemon}, which does not answer yet"));
    screen.await_text("not answering...");
    kill(daemon, Signal::CONT);
    wait_for("it is well again", || (!screen.text().contains("answer")).then_some(()));
    screen.keys(&["q"]);
    screen.await_code(0);
}

/// Attaches to the only process in the dashboard of a shell with job control. Returns the command.
fn attach_in_dashboard(world: &World, screen: &Screen<'_>) -> u32 {
    world.run_with("turns: [{calls: [{name: sleep, args: {duration: 1h}}]}]", &["--name", "sleeper"]);
    screen.line("set -m");
    screen.command("relive top");
    screen.await_text("PROCESSES 1");
    screen.keys(&["Enter"]);
    screen.await_text("Enter attach");
    screen.keys(&["Enter"]);
    screen.await_text("attached to PID 1");
    // It has set its modes.
    wait_for("the detach key ends a line", || screen.stty().contains("eol = ^]").then_some(()));
    wait_for("it is a command", || child_of(dashboard_pid(screen)))
}

#[test]
fn ctrl_z_in_an_attached_agent_stops_the_dashboard_until_fg() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "ctrl_z_in_an_attached_agent_stops_the_dashboard") else { return };
    let attached = attach_in_dashboard(&world, &screen);
    for round in 1..=2 {
        screen.keys(&["C-z"]);
        wait_for("the shell says so", || (screen.text().matches("Stopped").count() == round).then_some(()));
        assert!(screen.stty().contains("eol = <undef>"), "{}", screen.stty());
        screen.line("fg");
        wait_for("it runs again", || (state_of(attached)? != 'T').then_some(()));
        wait_for("the detach key ends a line", || screen.stty().contains("eol = ^]").then_some(()));
    }
    screen.keys(&["C-]"]);
    screen.await_text("PROCESSES 1");
    screen.keys(&["q"]);
    screen.await_text("the processes continue: relive ps");
}

#[test]
fn a_signal_ends_the_dashboard_and_the_command_that_it_has_attached() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_signal_ends_the_dashboard_and_the_command") else { return };
    let attached = attach_in_dashboard(&world, &screen);
    kill(dashboard_pid(&screen), Signal::TERM);
    screen.await_code(143);
    assert_eq!(state_of(attached), None, "it is gone before the shell is told");
}

#[test]
fn a_dashboard_that_was_stopped_by_force_takes_the_terminal_back() {
    let world = World::new();
    let Some(screen) = Screen::open(&world, "a_dashboard_that_was_stopped_by_force") else { return };
    screen.line("set -m");
    screen.line("relive top");
    screen.await_text("nothing waits for you");
    kill(dashboard_pid(&screen), Signal::STOP);
    screen.await_text("Stopped");
    // Some shells do so themselves.
    screen.set_stty("sane");
    screen.line("fg");
    wait_for("keys are read at once", || screen.stty().contains(" -icanon").then_some(()));
    screen.await_text("nothing waits for you");
    screen.keys(&["q"]);
    screen.await_text("the processes continue: relive ps");
    wait_for("lines are edited again", || screen.stty().contains(" icanon").then_some(()));
}

/// Returns the state of a process, as in /proc; `None` if there is none.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns a process that another one has started.
fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().next()?.parse().ok()
}

/// Returns whether a process has ended, and nobody has been told.
fn is_zombie(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}
