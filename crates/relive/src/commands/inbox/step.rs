//! Steps through items: shows each in full, and answers it with one key.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::time::Duration;

use relive_api::{Answer, AnswerKind, Item, Process, item_of, with_words};
use relive_core::{ErrorCode, Generation, Timestamp, Uuid};
use relive_types::program::relive_commands;

use super::daemon::{self, Daemon};
use crate::client::Client;
use crate::commands::answered::Waiting;
use crate::commands::run::questions;
use crate::context::Context;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::approval::{Shown, exact, quoted};
use crate::render::time::age;
use crate::render::{parked, summary};
use crate::terminal::Paint;
use crate::terminal::keys::{Ignored, Keys, Pressed};

/// How long an item is shown before a key can answer it.
const SEEN_AFTER: Duration = Duration::from_millis(300);
/// How often it is checked whether somebody else has answered.
const EVERY: Duration = Duration::from_millis(200);
/// How often it is checked whether there is a daemon.
const LOOK_FOR_DAEMON: Duration = Duration::from_secs(1);

/// How long a person who leaves may have to wait to be told what still waits.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

const STOPPED_BEFORE_NEXT: &str = "the daemon was stopped; to see the next item: relive daemon start  [q] leave";
const STOPPED_AT_END: &str = "the daemon was stopped; to see what still waits, and start it: relive inbox\n";

/// How long the next item of a process that was answered is awaited before it is said that nothing waits.
const NEXT_WITHIN: Duration = Duration::from_secs(2);
/// How often it is looked for.
const LOOK_FOR_NEXT: Duration = Duration::from_millis(50);

/// What follows an item.
enum Then {
    Next,
    /// The same; its process has an answer, and may ask for the next one.
    Answered,
    Leave(u8),
}

/// What is shown after the items that were there at the start.
pub(super) enum After<'a> {
    Nothing,
    /// Those that came since, of processes that were started in or below this directory.
    Newer {
        here: Option<&'a str>,
    },
}

/// Shows items one after the other until all are answered or passed over, or the person leaves.
pub(super) async fn through(context: &Context, client: &Client<'_>, items: Vec<Item>, after: After<'_>) -> Outcome<u8> {
    // Looking does not start a daemon that was stopped. An answer is a command, which does.
    client.set_stopped(true);
    let mut keys = Keys::open().map_err(unusable)?;
    let mut count = items.len();
    let (mut items, mut shown) = (VecDeque::from(items), BTreeSet::new());
    let mut answered = None;
    loop {
        let Some(item) = items.pop_front() else {
            let After::Newer { here } = after else { return Ok(0) };
            let settling = async {
                if let Some(uuid) = answered.take() {
                    await_next(client, uuid).await;
                }
                daemon::open(client).await
            };
            let open = match keys.during(settling).await {
                Ok(open) => open?,
                Err(code) => return Ok(code),
            };
            let Some(open) = open.map(|open| super::within(open, here).items) else {
                context.print(STOPPED_AT_END)?;
                return Ok(0);
            };
            let waiting = open.len();
            items.extend(open.into_iter().filter(|item| !shown.contains(&item.id)));
            count += items.len();
            if items.is_empty() {
                context.print(&remaining(waiting))?;
                return Ok(0);
            }
            continue;
        };
        shown.insert(item.id.clone());
        let place = shown.len();
        let head = context.out.paint(Paint::Bold, &format!("[{place}/{count}] ")).into_owned();
        match show(context, client, &head, &item, &mut keys).await? {
            Then::Next => {}
            Then::Answered => answered = Some(item.uuid),
            Then::Leave(code) => {
                if let (After::Newer { here }, 0) = (&after, code) {
                    context.print(&left(client, *here).await)?;
                }
                return Ok(code);
            }
        }
    }
}

/// Waits until a process that was answered asks for something else or has ended; it may also work on for long.
async fn await_next(client: &Client<'_>, uuid: Uuid) {
    let id = uuid.to_string();
    let settled = async {
        while let Ok(Some(process)) = daemon::ask(client, async || Ok(client.process(&id).await?)).await {
            if process.dead_at.is_some() || item_of(&process).is_some() {
                return;
            }
            tokio::time::sleep(LOOK_FOR_NEXT).await;
        }
    };
    let _ = tokio::time::timeout(NEXT_WITHIN, settled).await;
}

/// Waits until there is a daemon to ask about the next item; an exit code if the person leaves. Starts one that has crashed.
async fn await_daemon(context: &Context, client: &Client<'_>, keys: &mut Keys) -> Outcome<Option<u8>> {
    let mut was_told = false;
    loop {
        match Daemon::look(client).await {
            Daemon::Runs => {
                context.print(if was_told { "\n\n" } else { "" })?;
                return Ok(None);
            }
            Daemon::Crashed => client.start().await?,
            Daemon::Stopped if !was_told => {
                was_told = true;
                context.print(&format!("{STOPPED_BEFORE_NEXT} "))?;
            }
            Daemon::Stopped => {}
        }
        match tokio::time::timeout(LOOK_FOR_DAEMON, keys.press()).await {
            Err(_) => {}
            Ok(pressed) => match pressed.map_err(unusable)? {
                Pressed::Key(b'q' | b'Q' | b'\x1b') => {
                    context.print("\n")?;
                    return Ok(Some(0));
                }
                Pressed::Signal(code) => {
                    context.print("\n")?;
                    return Ok(Some(code));
                }
                Pressed::Key(_) | Pressed::Text => {}
                // The shell has printed something since.
                Pressed::Continued => was_told = false,
            },
        }
    }
}

/// Says what still waits when the person leaves before everything was shown.
async fn left(client: &Client<'_>, here: Option<&str>) -> String {
    match Daemon::look(client).await {
        Daemon::Runs => match tokio::time::timeout(LEAVE_WITHIN, client.inbox()).await {
            Ok(Ok(open)) => remaining(super::within(open, here).items.len()),
            Ok(Err(_)) | Err(_) => String::new(),
        },
        Daemon::Stopped => STOPPED_AT_END.to_owned(),
        Daemon::Crashed => String::new(),
    }
}

/// Says what became of an item that was listed and is not shown.
async fn skipped(context: &Context, client: &Client<'_>, head: &str, item: &Item) -> Outcome<()> {
    let outcome = Waiting::listed(item, Generation(0)).outcome(client).await;
    context.print(&format!("{head}{} PID {}: {outcome}\n\n", item.kind.word(), item.pid))
}

/// Says what still waits when everything was shown.
fn remaining(waiting: usize) -> String {
    match waiting {
        0 => "nothing waits for you\n".to_owned(),
        1 => "1 item still waits: relive inbox\n".to_owned(),
        waiting => format!("{waiting} items still wait: relive inbox\n"),
    }
}

fn unusable(error: std::io::Error) -> CommandError {
    CommandError::internal("the terminal cannot be used").because(error)
}

/// Shows one item, and takes the answer to it.
async fn show(context: &Context, client: &Client<'_>, head: &str, item: &Item, keys: &mut Keys) -> Outcome<Then> {
    let uuid = item.uuid.to_string();
    let process = loop {
        match keys.during(daemon::ask(client, async || client.process(&uuid).await)).await {
            Ok(Ok(Some(process))) => break Some(process),
            Ok(Ok(None)) => {
                if let Some(code) = await_daemon(context, client, keys).await? {
                    return Ok(Then::Leave(code));
                }
            }
            Ok(Err(error)) if error.kind == Kind::Code(ErrorCode::NotFound) => break None,
            Ok(Err(error)) => return Err(error),
            Err(code) => return Ok(Then::Leave(code)),
        }
    };
    // It may have been answered or removed while others were shown.
    let listed = |process: Process| (Waiting::listed(item, process.generation), process);
    let Some((waiting, process)) = process.map(listed).filter(|(waiting, process)| waiting.is_open(process)) else {
        return Ok(match keys.during(skipped(context, client, head, item)).await {
            Ok(said) => said.map(|()| Then::Next)?,
            Err(code) => Then::Leave(code),
        });
    };
    let shown = described(context, &process, item);
    // Whatever a stop has removed from the screen, this item was not on it.
    keys.take_continued();
    context.print(&format!("{head}{}", shown.text))?;
    let lines = shown.text.lines().count();
    if lines >= crate::commands::ps::height() {
        let what = if shown.whole { "lines" } else { "lines of it" };
        context.print(&format!("{lines} {what}: scroll up to see them\n"))?;
    }
    // What was typed before this was shown is not an answer to it.
    if let Some(code) = keys.ignore(Ignored::For(SEEN_AFTER)).await.map_err(unusable)? {
        return Ok(Then::Leave(code));
    }
    ask(context, &Asked { client, item, head, process, waiting, shown }, keys).await
}

/// An item on the screen.
struct Asked<'a> {
    client: &'a Client<'a>,
    item: &'a Item,
    /// Its number among the items, which is printed before it.
    head: &'a str,
    process: Process,
    waiting: Waiting,
    shown: Shown,
}

impl Asked<'_> {
    /// Returns all of it as it is shown.
    fn text(&self, context: &Context) -> String {
        format!("{}{}", self.head, described(context, &self.process, self.item).text)
    }
}

/// Describes an item in full: the command or the change that is asked about, or how the process ended.
pub(super) fn described(context: &Context, process: &Process, item: &Item) -> Shown {
    // The terminal may have another width by now, and a line that is cut by the terminal has no bar.
    let look = context.out.resized();
    let who = item.name.as_deref().map(|name| format!(" ({})", exact(name))).unwrap_or_default();
    let kind = look.paint(Paint::Bold, item.kind.word());
    let since = age(item.since, Timestamp::now());
    let mut text = format!("{kind} PID {}{who}, {since}\n", item.pid);
    text.push_str(&parked::then_paused(process));
    let waiting = parked::describe(process, &look, |call| questions::shown(process, call, &look));
    match waiting {
        Some(waiting) => return Shown { text: format!("{text}{}", waiting.text), whole: waiting.whole },
        None => {
            text.push_str(&quoted(&item.text, &look).text);
            if process.dead_at.is_some() {
                text.push_str(&format!("  {}\n", summary::line(process, process.exit.as_ref())));
            }
            for answer in &item.answers {
                text.push_str(&format!("  {}\n", exact(&answer.command)));
            }
        }
    }
    Shown { text, whole: true }
}

/// Returns what a person is asked to do with an item.
fn prompt(context: &Context, asked: &Asked<'_>) -> String {
    let Asked { item, shown, .. } = asked;
    let is_offered = |answer: &Answer| shown.whole || !needs_all_seen(item, answer);
    let mut text = String::new();
    if let Some(hidden) = item.answers.iter().find(|answer| !is_offered(answer) && !item.is_choice(answer)) {
        text = not_whole(item, hidden);
    }
    let mut keys = "press: ".to_owned();
    for (key, does) in item.keys_of(is_offered) {
        keys.push_str(&format!("[{key}] {does}  "));
    }
    keys.push_str("[Space] skip  [q] leave ");
    format!("{text}{}", context.out.paint(Paint::Bold, &keys))
}

/// Says how an item is answered that is too large to be shown.
fn not_whole(item: &Item, answer: &Answer) -> String {
    format!("not all of it was shown; once you have seen it: {}\n", exact(&item.exact_command(answer)))
}

async fn ask(context: &Context, asked: &Asked<'_>, keys: &mut Keys) -> Outcome<Then> {
    let Asked { client, waiting, .. } = asked;
    let mut daemon = Daemon::Runs;
    let mut words = String::new();
    loop {
        if keys.take_continued() {
            // The shell has printed something since.
            context.print(&format!("\n{}", asked.text(context)))?;
        }
        context.print(&prompt(context, asked))?;
        let key = match while_open(client, waiting, Some(daemon), keys.press()).await? {
            Waited::Typed(Pressed::Key(key)) => char::from(key),
            Waited::Typed(Pressed::Signal(code)) => {
                context.print("\n")?;
                return Ok(Then::Leave(code));
            }
            Waited::Typed(Pressed::Continued) => continue,
            Waited::Typed(Pressed::Text) => {
                context.print("\npasted text does not answer: press one of the keys above\n")?;
                match keys.ignore(Ignored::UntilQuietFor(SEEN_AFTER)).await.map_err(unusable)? {
                    Some(code) => return Ok(Then::Leave(code)),
                    None => continue,
                }
            }
            Waited::Answered(outcome) => {
                context.print(&format!("\n{outcome}\n\n"))?;
                return Ok(Then::Next);
            }
            Waited::Daemon(Daemon::Runs) => {
                daemon = Daemon::Runs;
                context.print("\nthe daemon runs again\n")?;
                continue;
            }
            Waited::Daemon(Daemon::Stopped) => {
                daemon = Daemon::Stopped;
                context.print("\nthe daemon was stopped; an answer starts it (or: relive daemon start)\n")?;
                continue;
            }
            Waited::Daemon(Daemon::Crashed) => {
                context.print("\nthe daemon is gone and is started again\n")?;
                client.start().await?;
                continue;
            }
        };
        let is_visible = !key.is_control();
        context.print(&if is_visible { format!("{}\n", exact(&key.to_string())) } else { "\n".to_owned() })?;
        match key {
            'q' | 'Q' | '\u{1b}' => return Ok(Then::Leave(0)),
            ' ' | '\n' | '\r' => {
                context.print("\n")?;
                return Ok(Then::Next);
            }
            key => {
                if let Some(then) = answer_by(context, asked, key, keys, &mut words).await? {
                    return Ok(then);
                }
            }
        }
    }
}

/// Answers with a key; `None` if the item has to be asked about again. `words` are those of the person that were refused.
async fn answer_by(
    context: &Context,
    asked: &Asked<'_>,
    key: char,
    keys: &mut Keys,
    words: &mut String,
) -> Outcome<Option<Then>> {
    let Asked { client, item, waiting, shown, .. } = asked;
    let Some(answer) = item.answers.iter().find(|answer| answer.key == key) else {
        context.print("this key does nothing here\n")?;
        // Whoever types words does not answer by one of their letters.
        return Ok(keys.ignore(Ignored::UntilQuietFor(SEEN_AFTER)).await.map_err(unusable)?.map(Then::Leave));
    };
    if !shown.whole && needs_all_seen(item, answer) {
        context.print(&not_whole(item, answer))?;
        return Ok(None);
    }
    let command = match complete(context, asked, answer, keys, words).await? {
        Completed::Command(command) => command,
        Completed::No => return Ok(None),
        Completed::Leave(code) => {
            context.print("\n")?;
            return Ok(Some(Then::Leave(code)));
        }
        Completed::Answered => {
            context.print("\n")?;
            return Ok(Some(Then::Next));
        }
    };
    let answering = async {
        if run(context, &command).await? && answer.kind != AnswerKind::Look {
            context.print("\n")?;
            return Outcome::Ok(Some(Then::Answered));
        }
        // The answer may have been refused because there is one.
        if daemon::ask(client, async || waiting.is_still_open(client).await).await? == Some(false) {
            context.print(&format!("{}\n\n", waiting.outcome(client).await))?;
            return Ok(Some(Then::Next));
        }
        Ok(None)
    };
    match keys.during(answering).await {
        Ok(then) => then,
        Err(code) => {
            if answer.kind != AnswerKind::Look {
                context.print("\nit is not known whether the answer was given, see: relive inbox\n")?;
            }
            Ok(Some(Then::Leave(code)))
        }
    }
}

/// What ended the wait for a person.
enum Waited<T> {
    Typed(T),
    /// Somebody else has answered, in these words.
    Answered(String),
    /// The daemon has stopped, or is back.
    Daemon(Daemon),
}

/// Waits for what a person types, and looks whether the item still waits, and whether anything else is true of the daemon
/// than what was told of it; if nothing is told, it is not looked at.
async fn while_open<T>(
    client: &Client<'_>,
    waiting: &Waiting,
    told: Option<Daemon>,
    typed: impl Future<Output = std::io::Result<T>>,
) -> Outcome<Waited<T>> {
    let daemon = async {
        loop {
            tokio::time::sleep(LOOK_FOR_DAEMON).await;
            let now = Daemon::look(client).await;
            if told.is_some_and(|told| told != now) {
                return now;
            }
        }
    };
    Ok(tokio::select! {
        typed = typed => Waited::Typed(typed.map_err(unusable)?),
        outcome = waiting.until_answered(client, EVERY, EVERY) => Waited::Answered(outcome),
        daemon = daemon => Waited::Daemon(daemon),
    })
}

/// Tells whether an answer is one to all that is asked, and not the refusal of it.
fn needs_all_seen(item: &Item, answer: &Answer) -> bool {
    answer.kind != AnswerKind::Look && !item.refuses(answer)
}

/// The command of an answer, with the text of the person where it needs one.
enum Completed {
    Command(String),
    /// The person has no text.
    No,
    /// A signal asks the command to end, with this exit code.
    Leave(u8),
    /// Somebody else has answered meanwhile, and the person was told.
    Answered,
}

/// Returns the command of an answer; asks for the text where it needs one, beginning with the one that was refused.
async fn complete(
    context: &Context,
    asked: &Asked<'_>,
    answer: &Answer,
    keys: &mut Keys,
    words: &mut String,
) -> Outcome<Completed> {
    let command = asked.item.exact_command(answer);
    if answer.kind != AnswerKind::Text {
        return Ok(Completed::Command(command));
    }
    // That there is no daemon is told when the answer is sent.
    let above = asked.text(context);
    let line = keys.line(&above, "your answer, then Enter (Esc: none): ", std::mem::take(words));
    let typed = match while_open(asked.client, &asked.waiting, None, line).await? {
        Waited::Typed(typed) => typed,
        Waited::Answered(outcome) => {
            // Whoever is typing types on for a moment, and does not answer the next item by that.
            let prompt = format!("\n{outcome}; your words are not sent: press Enter ");
            return Ok(match keys.line("", &prompt, String::new()).await.map_err(unusable)? {
                Ok(_) => Completed::Answered,
                Err(code) => Completed::Leave(code),
            });
        }
        Waited::Daemon(_) => return Ok(Completed::No),
    };
    Ok(match typed {
        Ok(Some(typed)) if !typed.trim().is_empty() => {
            words.clone_from(&typed);
            Completed::Command(with_words(&command, &typed))
        }
        Ok(Some(_) | None) => Completed::No,
        Err(code) => Completed::Leave(code),
    })
}

/// Runs commands of Relive as if they had been typed; `true` if all succeeded.
async fn run(context: &Context, line: &str) -> Outcome<bool> {
    let Some(commands) = relive_commands(line) else {
        context.say(&format!("this has to be typed: {}", exact(line)));
        return Ok(false);
    };
    for words in commands {
        let status = tokio::process::Command::new("/proc/self/exe").args(words).status().await;
        let status = status.map_err(|error| CommandError::internal("cannot run relive").because(error))?;
        if !status.success() {
            return Ok(false);
        }
    }
    Ok(true)
}
