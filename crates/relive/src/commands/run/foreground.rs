//! The foreground: what the agent and those below it do, as they do it, until it ends. Leaving never stops it. What they
//! ask is put to whoever watches.

mod absence;
mod delivery;
mod elsewhere;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use self::absence::{Absence, now};
use self::delivery::{daemon_now, delivered};
use self::elsewhere::{CHECK_EVERY, may_be_answer};
use super::leaving::Signals;
pub(crate) use super::questions::AtQuestion;
use super::questions::{Answer, Questions, is_answer, is_asked_here, waits_for_person};
use super::show::{Show, When};
use crate::client::Client;
use crate::commands::interrupts::{Asked, INTERRUPTED};
use crate::commands::watched::{Seen, Watched};
use crate::context::new_uuid;
use crate::error::{CommandError, Outcome, keeps_running};
use crate::render::line::Line;
use crate::report::output_failed;
use crate::terminal::key::Key;
use crate::terminal::typed::{Keyboard, Typed, Untaken};
use relive_api::{Affected, Created, InputRequest, Isolation, Process, WaitAnswer};
use relive_client::{Event, Source};
use relive_core::{Body, ProcessStatus, State, Uuid};

/// How often the output of a command that runs is looked at.
const OUTPUT_EVERY: Duration = Duration::from_millis(100);
/// How many events are kept while a question is on the screen.
const HELD_MAX: usize = 4096;
/// How many of the events before we came are shown.
const RECENT_EVENTS: usize = 20;
/// What a shell adds to the number of the signal that ended a command.
const SIGNALED: u8 = 128;

/// How one is in front of an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) detach: Key,
    /// What becomes of a question that cannot be put to anybody here.
    pub(crate) unasked: AtQuestion,
    pub(crate) arrival: Arrival,
    /// Which incarnation its PID is of.
    pub(crate) generation: u32,
}

/// Whether there is something to come back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It has just been started.
    First,
    /// It runs already.
    Again,
}

/// Why one is in front of it no more.
enum Left {
    Ended(WaitAnswer),
    /// Ctrl-C, once too often or at all.
    Interrupted,
    Detached,
    Signaled(u8),
}

/// How long a line is no answer to a question that took the place of another one: it was begun for that one.
const NEW_FOR: Duration = Duration::from_secs(1);
/// What is said of a text that Enter did not end.
const NOT_SENT: &str = "not sent: what you were typing";
type Sending<'a> = Pin<Box<dyn Future<Output = Outcome<Option<String>>> + 'a>>;

/// Shows it until it has ended, or `leave` says that it is time to go. `asked` tells whether it was asked to stop.
pub(crate) async fn run(
    client: &Client<'_>,
    created: Created,
    manner: Manner,
    asked: &Asked,
    leave: impl Future<Output = ()>,
) -> Outcome<u8> {
    let context = client.context();
    let cannot = |error| CommandError::internal("the terminal cannot be used").because(error);
    let is_interactive = context.err.is_terminal && !context.json;
    let keyboard = if is_interactive { Keyboard::open(manner.detach).map_err(cannot)? } else { None };
    let mut front = Foreground::new(client, created, manner, keyboard);
    let isolation = match manner.arrival {
        Arrival::First if !context.json => client.process(&created.uuid.to_string()).await.ok().map(isolation_of),
        Arrival::First | Arrival::Again => None,
    };
    front.greet(created, isolation);
    let watched = front.watch(asked, leave).await;
    front.end_typing(matches!(watched, Ok(Left::Ended(_)))).await;
    let Created { pid, uuid } = created;
    let left = match watched {
        Err(error) => {
            return output_failed(context, error, &keeps_running(pid), Some(format!("relive attach {pid}")));
        }
        Ok(left) => left,
    };
    let (pid, keeps) = match &left {
        Left::Ended(_) => (pid, "has ended"),
        Left::Interrupted | Left::Detached | Left::Signaled(_) => now(&front, created).await,
    };
    match left {
        Left::Ended(answer) => {
            front.show.ended(&answer).await?;
            front.show.changed_files().await;
            let killed = matches!(answer.status, Some(ProcessStatus::Killed { .. }));
            Ok(if asked.to_stop() && killed { INTERRUPTED } else { answer.exit_code })
        }
        Left::Interrupted if manner.arrival == Arrival::First => {
            front.show.left(&format!("stopped watching PID {pid} before its end: relive wait {uuid}"));
            Ok(INTERRUPTED)
        }
        Left::Interrupted => {
            front.show.left(&format!("detached, PID {pid} {keeps}: relive attach {pid}"));
            Ok(INTERRUPTED)
        }
        Left::Detached => {
            front.show.left(&format!("detached, PID {pid} {keeps}: relive attach {pid}"));
            Ok(0)
        }
        Left::Signaled(number) => {
            front.show.left(&format!("detached, PID {pid} {keeps}: relive attach {pid}"));
            Ok(SIGNALED + number)
        }
    }
}

/// Says what the commands of an agent may reach.
fn isolation_of(process: Process) -> String {
    let network = process.network.map(|network| format!(", network {network}")).unwrap_or_default();
    let whole = process.body == Body::Cli;
    match process.isolation {
        Some(Isolation::Confined) if whole => "it can write only in this directory and its own".to_owned(),
        Some(Isolation::None) | None if whole => "it is not isolated".to_owned(),
        Some(Isolation::Confined) => format!("its commands can write only in this directory{network}"),
        Some(Isolation::Sealed) => format!("its commands are sealed off and can write only in this directory{network}"),
        Some(Isolation::None) | None => format!("its commands are not isolated{network}"),
    }
}

struct Foreground<'a> {
    client: &'a Client<'a>,
    root: Uuid,
    manner: Manner,
    keyboard: Option<Keyboard>,
    show: Show<'a>,
    questions: Questions<'a>,
    watched: Watched<'a>,
    absence: Absence,
    /// Events that came while a question was on the screen.
    held: VecDeque<Seen>,
    sending: Sending<'a>,
    /// What is typed meanwhile waits: a message that is being sent is not given up for the next one.
    is_sending: bool,
    /// The process whose question is being answered.
    answering: Option<Uuid>,
    /// When a question was withdrawn last.
    withdrawn_at: Option<Instant>,
    /// Ends when the question on the screen was answered elsewhere, with what is said then.
    answered: Pin<Box<dyn Future<Output = String> + 'a>>,
}

impl<'a> Foreground<'a> {
    fn new(client: &'a Client<'a>, created: Created, manner: Manner, keyboard: Option<Keyboard>) -> Self {
        let at_question = if keyboard.is_some() { AtQuestion::Ask } else { manner.unasked };
        Self {
            client,
            root: created.uuid,
            manner,
            keyboard,
            show: Show::new(client, created, manner.generation),
            questions: Questions::new(client, at_question),
            watched: Watched::new(client),
            absence: Absence::new(client),
            held: VecDeque::new(),
            sending: Box::pin(std::future::pending()),
            is_sending: false,
            answering: None,
            withdrawn_at: None,
            answered: Box::pin(std::future::pending()),
        }
    }

    /// Says who it is, and on a terminal how to leave.
    fn greet(&mut self, created: Created, isolation: Option<String>) {
        let Created { pid, uuid } = created;
        let context = self.client.context();
        if context.json {
            return;
        }
        let first = match isolation {
            Some(isolation) => format!("PID {pid} {uuid}; {isolation}"),
            None => format!("PID {pid} {uuid}"),
        };
        if !context.err.is_terminal {
            if self.manner.arrival == Arrival::First {
                self.show.say(&first);
            }
            return;
        }
        let detach = self.keyboard.as_ref().map(|_| format!("{} detaches", self.manner.detach));
        let keys = match (self.manner.arrival, detach) {
            (Arrival::First, Some(detach)) => {
                format!("a line you type is sent to it, {detach}, Ctrl-C asks it to stop")
            }
            (Arrival::First, None) => "Ctrl-C asks it to stop".to_owned(),
            (Arrival::Again, Some(detach)) => format!("a line you type is sent to it, {detach}"),
            (Arrival::Again, None) => "Ctrl-C detaches".to_owned(),
        };
        self.show.say(&match self.manner.arrival {
            Arrival::First => format!("{first}\n{keys}"),
            Arrival::Again => format!("attached to PID {pid}; {keys}"),
        });
    }

    async fn watch(&mut self, asked: &Asked, leave: impl Future<Output = ()>) -> Outcome<Left> {
        let mut signals = Signals::listen(self.keyboard.is_some())?;
        self.begin().await?;
        let mut leave = pin!(leave);
        let mut ticks = tokio::time::interval(OUTPUT_EVERY);
        loop {
            let room = self.held.len() < HELD_MAX;
            tokio::select! {
                biased;
                () = &mut leave => {
                    if self.keyboard.is_some() && self.manner.arrival == Arrival::Again {
                        // The terminal has shown the key.
                        self.client.context().say("");
                    }
                    return Ok(Left::Interrupted);
                }
                number = signals.told() => match number {
                    Some(number) => return Ok(Left::Signaled(number)),
                    None => self.keyboard.iter_mut().for_each(Keyboard::continued),
                },
                typed = typed(&mut self.keyboard), if !self.is_sending => {
                    if let Some(left) = self.typed(typed)? {
                        return Ok(left);
                    }
                }
                sent = &mut self.sending => {
                    self.sending = Box::pin(std::future::pending());
                    self.is_sending = false;
                    self.sent(sent).await?;
                }
                said = &mut self.answered, if self.questions.is_asking() => {
                    self.questions.withdraw();
                    self.withdrawn(&said).await?;
                }
                seen = self.watched.next(), if room => match seen {
                    Seen::Ended(uuid, _, answer) if uuid == self.root => {
                        if let Some(waiting) = self.questions.asked() {
                            let said = waiting.outcome(self.client).await;
                            self.client.context().say(&format!("\n{said}"));
                        }
                        self.show_held().await?;
                        asked.report(leave.as_mut()).await;
                        return Ok(Left::Ended(answer?));
                    }
                    seen @ (Seen::Event(..) | Seen::Ended(..)) => self.seen(seen).await?,
                },
                turn = self.absence.turns() => self.daemon_turned(turn),
                _ = ticks.tick(), if self.show.has_output() && !self.questions.is_asking() => self.show.output(),
            }
        }
    }

    /// Begins to watch: one that runs already shows what it did last.
    async fn begin(&mut self) -> Outcome<()> {
        let mut last = None;
        if self.manner.arrival == Arrival::Again {
            let (mut recent, mut children) = (VecDeque::new(), Vec::new());
            let each = async |event: Event| {
                children.extend(child_of(&event));
                recent.push_back(event);
                while recent.len() > RECENT_EVENTS || recent.len() > 1 && recent.front().is_some_and(is_piece) {
                    recent.pop_front();
                }
                Ok::<_, CommandError>(())
            };
            self.client.read(&self.root.to_string(), Source::Events, &mut last, each).await?;
            for event in recent {
                self.show.event(self.root, &event, When::Before).await?;
            }
            for child in children {
                self.add_child(child).await;
            }
            self.waiting(self.root).await?;
        }
        self.watched.add(self.root, Source::Events, last);
        Ok(())
    }

    /// Something happened. While a question is on the screen, nothing is shown below it.
    async fn seen(&mut self, seen: Seen) -> Outcome<()> {
        if !self.questions.is_asking() {
            return self.show_seen(seen).await;
        }
        let ended = match &seen {
            Seen::Event(uuid, _, event) => {
                if self.questions.asker() == Some(*uuid) && may_be_answer(event) {
                    self.check_answered(Duration::ZERO);
                }
                None
            }
            Seen::Ended(uuid, ..) => Some(*uuid),
        };
        self.held.push_back(seen);
        let asked = self.questions.asked().cloned();
        if ended.is_some_and(|uuid| self.questions.withdraw_all_of(uuid))
            && let Some(asked) = asked
        {
            // It may have been answered before.
            let said = asked.outcome(self.client).await;
            self.withdrawn(&said).await?;
        }
        Ok(())
    }

    async fn show_seen(&mut self, seen: Seen) -> Outcome<()> {
        let (uuid, event) = match seen {
            Seen::Event(uuid, _, event) => (uuid, event),
            Seen::Ended(uuid, _, answer) => {
                self.questions.withdraw_all_of(uuid);
                let reason = answer.ok().and_then(|answer| answer.exit).map(|exit| exit.reason);
                if !self.client.context().json {
                    self.show.child_ended(uuid, reason.as_deref().unwrap_or("ended"));
                }
                return Ok(());
            }
        };
        let line = Line::parse(&event.data);
        if let Some(line) = &line
            && line.kind == "paused"
            && line.field("reason").is_some_and(waits_for_person)
        {
            // If this fails, its error is the only line about it.
            self.questions.suspended(uuid).await?;
        }
        self.show.event(uuid, &event, When::Now).await?;
        let Some(line) = line else { return Ok(()) };
        match line.kind.as_str() {
            "paused" if line.field("reason").is_some_and(is_asked_here) => self.waiting(uuid).await?,
            "call_result" => {
                if let Some(child) = child_of(&event) {
                    self.add_child(child).await;
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn waiting(&mut self, uuid: Uuid) -> Outcome<()> {
        self.show.end_of(uuid);
        if self.questions.waiting(uuid).await? {
            self.ask();
        }
        Ok(())
    }

    /// Puts the next question on the screen.
    fn ask(&mut self) {
        self.show.end();
        if let Some(keyboard) = &mut self.keyboard {
            // What was typed before the question is no answer to it.
            if keyboard.forget() == Untaken::Dropped {
                self.client.context().say("\nnot sent: what you were typing when the question came");
            }
        }
        self.questions.show();
        self.check_answered(CHECK_EVERY);
    }

    /// Shows what came while a question was on the screen, up to the next one.
    async fn next_question(&mut self) -> Outcome<()> {
        self.questions.pass_over_answered().await;
        if self.questions.is_asking() {
            self.ask();
            return Ok(());
        }
        while !self.questions.is_asking()
            && let Some(seen) = self.held.pop_front()
        {
            self.show_seen(seen).await?;
        }
        Ok(())
    }

    async fn show_held(&mut self) -> Outcome<()> {
        while let Some(seen) = self.held.pop_front() {
            if let Seen::Event(uuid, _, event) = seen {
                self.show.event(uuid, &event, When::Now).await?;
            }
        }
        Ok(())
    }

    /// A process below is watched too, unless it has ended or is none that can be.
    async fn add_child(&mut self, uuid: Uuid) {
        let Ok(process) = self.client.process(&uuid.to_string()).await else { return };
        let lives = matches!(process.state, State::Created | State::Running);
        let known = self.manner.arrival == Arrival::First || lives;
        if process.body == Body::Agent && known && self.watched.add(uuid, Source::Events, None) {
            let name = process.name.as_deref().map(crate::render::approval::exact);
            self.show.add(uuid, format!("[{}] ", name.unwrap_or_else(|| format!("PID {}", process.pid))));
        }
    }

    fn typed(&mut self, typed: Typed) -> Outcome<Option<Left>> {
        let Some(typed) = self.single(typed) else { return Ok(None) };
        let context = self.client.context();
        match typed {
            Typed::Detach(untaken) => {
                let left = self.detached();
                if untaken == Untaken::Dropped {
                    context.say(NOT_SENT);
                }
                return Ok(Some(left));
            }
            Typed::Lines(_) | Typed::Unended | Typed::TooLong | Typed::End => match self.questions.end_of_input() {
                Some(error) => {
                    context.say("");
                    return Err(error);
                }
                None => return Ok(Some(self.detached())),
            },
            Typed::Line(line) if self.absence.is_known() && !line.trim().is_empty() => {
                context.say("not sent: the daemon has stopped (to start it: relive daemon start)");
            }
            Typed::Line(line) if self.withdrawn_at.is_some_and(|at| at.elapsed() < NEW_FOR) => {
                if self.questions.is_asking() {
                    context.say("not taken: this question is new");
                    self.questions.show_prompt();
                } else if !line.trim().is_empty() {
                    context.say("not sent: the question is not asked any more");
                }
            }
            Typed::Line(line) if self.questions.is_asking() => {
                if let Some(Answer { uuid, request, done }) = self.questions.answer(&line) {
                    (self.is_sending, self.answering) = (true, Some(uuid));
                    self.answered = Box::pin(std::future::pending());
                    self.sending = Box::pin(async move {
                        let daemon = daemon_now(context).await?;
                        let _: Affected = delivered(daemon.resolve(&uuid.to_string(), &request).await)?;
                        Ok(done)
                    });
                }
            }
            Typed::Line(line) if is_answer(&line) => {
                context.say("the agent has no open question: the line was not sent");
            }
            Typed::Line(line) if !line.trim().is_empty() => {
                let (root, id) = (self.root.to_string(), new_uuid()?.to_string());
                self.is_sending = true;
                self.sending = Box::pin(async move {
                    let request = InputRequest { id, text: line, eof: false };
                    delivered(daemon_now(context).await?.input(&root, &request).await)?;
                    Ok(Some("sent".to_owned()))
                });
            }
            // An empty line is no message.
            Typed::Line(_) => {}
        }
        Ok(None)
    }

    /// The terminal has shown the key, in the middle of a line.
    fn detached(&mut self) -> Left {
        self.client.context().say("");
        Left::Detached
    }
}

async fn typed(keyboard: &mut Option<Keyboard>) -> Typed {
    match keyboard {
        Some(keyboard) => keyboard.next().await,
        None => std::future::pending().await,
    }
}

/// Whether an event is a piece of a text, so that nothing can begin with it.
fn is_piece(event: &Event) -> bool {
    Line::parse(&event.data).is_none_or(|line| line.kind == "text" || line.kind == "thinking")
}

/// The child that a call has spawned.
fn child_of(event: &Event) -> Option<Uuid> {
    #[derive(serde::Deserialize)]
    struct Spawned {
        uuid: Uuid,
    }
    let line = Line::parse(&event.data).filter(|line| line.kind == "call_result")?;
    if line.field::<String>("name").as_deref() != Some("spawn_agent") || line.field("ok") != Some(true) {
        return None;
    }
    let spawned: Spawned = serde_json::from_str(&line.field::<String>("text")?).ok()?;
    Some(spawned.uuid)
}
