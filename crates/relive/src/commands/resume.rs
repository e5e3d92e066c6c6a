//! `relive resume`: resume a process, or fork it.

use std::time::Duration;

use relive_api::{ResumeRequest, Resumed};
use relive_core::{Body, Limits, State, Usd, Uuid};

use crate::client::{Client, is_continues};
use crate::commands::run::parse_dollars;
use crate::context::{Context, new_uuid};
use crate::error::{CommandError, Outcome};
use crate::render::time::as_millis;

/// Resume a suspended or ended process, or fork it
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive resume 5                            from where it stopped
  relive resume 5 --input \"now the docs\"   with a message to it
  relive resume 5 --max-tokens 200000        with a higher budget
  relive resume --fork --from-step 5 fixer   another one that shares its first five steps")]
pub(crate) struct Args {
    /// A PID, a name, a UUID or its beginning
    id: String,
    /// As a new process; the original stays as it is
    #[arg(long)]
    fork: bool,
    /// From the end of this step; with --fork
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    from_step: Option<u32>,
    /// Everything below as well
    #[arg(long, conflicts_with = "fork")]
    subtree: bool,
    /// What to say to it
    #[arg(long, value_name = "TEXT")]
    input: Option<String>,
    /// A name for the fork
    #[arg(long)]
    name: Option<String>,
    /// A new limit of steps, counted from the beginning
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,
    /// A new limit of tokens, in and out together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// A new limit of cost, in dollars
    #[arg(long, value_name = "USD", value_parser = parse_dollars)]
    max_cost: Option<Usd>,
    /// A new limit of time since it began, pauses not counted
    #[arg(long, value_name = "DURATION", value_parser = relive_types::duration::parse)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    check(args)?;
    let client = Client::about(context, &args.id).await?;
    let request = ResumeRequest {
        fork: args.fork.then(new_uuid).transpose()?,
        from_step: args.from_step,
        subtree: args.subtree,
        input: args.input.clone(),
        name: args.name.clone(),
        limits: Limits {
            max_steps: args.max_steps,
            max_tokens: args.max_tokens,
            max_cost_usd: args.max_cost,
            timeout_ms: args.timeout.map(as_millis),
        },
        env: crate::environment::of_this_shell(),
    };
    // Only for the words: a failure to look is told by the resume itself.
    let before = if context.json { None } else { client.process(&args.id).await.ok() };
    let resumed = client.resume(&args.id, &request).await?;
    if context.json {
        context.print_json(&resumed)?;
    } else if let Some(program) = before.filter(|before| before.body == Body::Exec) {
        context.print(&tell_of_program(&resumed, program.state))?;
    } else {
        context.print(&tell(&resumed, args.fork))?;
    }
    Ok(0)
}

/// What only makes sense for a fork, all of it at once.
fn check(args: &Args) -> Outcome<()> {
    if args.fork {
        return Ok(());
    }
    let wrong: Vec<&str> = [("--from-step", args.from_step.is_some()), ("--name", args.name.is_some())]
        .into_iter()
        .filter_map(|(flag, given)| given.then_some(flag))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let message =
        format!("{}: {} only with --fork, because a history is never rewritten", args.id, wrong.join(" and "));
    let flags = args.from_step.map(|step| format!(" --from-step {step}")).unwrap_or_default();
    Err(CommandError::invalid(message).with_hint(format!("relive resume --fork{flags} {}", args.id)))
}

fn tell(resumed: &Resumed, fork: bool) -> String {
    let Resumed { pid, resumed_from_step: step, .. } = resumed;
    let model = resumed.model.as_deref().unwrap_or("no model");
    if !resumed.changed {
        return format!("PID {pid} is running already: nothing changed\n");
    }
    let uuid = short(resumed.uuid);
    let mut told = match resumed.origin_uuid.filter(|_| fork) {
        Some(origin) => {
            let origin = short(origin);
            format!("forking {origin} at step {step} -> {uuid}\nPID {pid} running ({model}) | forked from {origin}\n")
        }
        None => {
            let of = resumed.max_steps.map(|max| format!("/{max}")).unwrap_or_default();
            format!(
                "resuming {uuid} from its journal (step {step}{of})\nPID {pid} running ({model}) | resumed from {uuid}\n"
            )
        }
    };
    if let Some(note) = resumed.note.as_ref().filter(|note| !is_continues(note)) {
        told.push_str(&format!("note: {note}\n"));
    }
    if resumed.affected > 1 {
        told.push_str(&format!("{} resumed\n", super::name_pids(resumed.affected, &resumed.pids)));
    }
    told
}

/// A program has only its present: it is thawed, or run once more.
fn tell_of_program(resumed: &Resumed, before: State) -> String {
    let Resumed { pid, uuid, .. } = resumed;
    if !resumed.changed {
        return format!("PID {pid} is running already: nothing changed\n");
    }
    match before {
        State::Created | State::Running => format!("PID {pid} resumed\n"),
        State::Zombie | State::Dead => {
            let uuid = short(*uuid);
            format!("starting {uuid} again: programs have no journal to resume from\nPID {pid} running\n")
        }
    }
}

/// The beginning of a UUID, as people compare them.
fn short(uuid: Uuid) -> String {
    uuid.to_string()[..8].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relive_core::Pid;

    fn resumed() -> Resumed {
        Resumed {
            pid: Pid(5),
            uuid: "0198f3c1-0000-7000-8000-000000000000".parse().unwrap(),
            origin_uuid: None,
            resumed_from_step: 12,
            max_steps: Some(20),
            model: Some("anthropic/claude".into()),
            changed: true,
            affected: 1,
            pids: vec![Pid(5)],
            note: None,
        }
    }

    #[test]
    fn a_program_is_resumed_or_started_again_and_says_which() {
        assert_eq!(tell_of_program(&resumed(), State::Running), "PID 5 resumed\n");
        assert_eq!(
            tell_of_program(&resumed(), State::Dead),
            "starting 0198f3c1 again: programs have no journal to resume from\nPID 5 running\n"
        );
    }

    #[test]
    fn it_says_where_it_resumes_and_as_whom() {
        assert_eq!(
            tell(&resumed(), false),
            "resuming 0198f3c1 from its journal (step 12/20)\n\
             PID 5 running (anthropic/claude) | resumed from 0198f3c1\n"
        );
        let origin = Some("0198f3c1-0000-7000-8000-000000000000".parse().unwrap());
        let uuid = "0199a2b4-0000-7000-8000-000000000000".parse().unwrap();
        let fork =
            Resumed { pid: Pid(6), uuid, origin_uuid: origin, resumed_from_step: 5, max_steps: None, ..resumed() };
        assert_eq!(
            tell(&fork, true),
            "forking 0198f3c1 at step 5 -> 0199a2b4\nPID 6 running (anthropic/claude) | forked from 0198f3c1\n"
        );
        let noted = Resumed { note: Some("the files differ".into()), ..fork.clone() };
        assert!(tell(&noted, true).ends_with("| forked from 0198f3c1\nnote: the files differ\n"));
        // A fork that is resumed later is resumed, not forked again.
        assert!(tell(&fork, false).starts_with("resuming 0199a2b4 from its journal (step 5)\n"));
        let still = Resumed { changed: false, affected: 0, ..resumed() };
        assert_eq!(tell(&still, false), "PID 5 is running already: nothing changed\n");
    }
}
