//! The golden files with model calls, crashes and capabilities of CLI agents.

use relive_core::{Timestamp, Usd};
use relive_journal::data::ForkPoint;
use relive_journal::record::{
    Body, CliCapabilities, CliGateway, CliLaunch, CliModelCall, CliRecord, CliSession, CliStart, ModelStarted, Usage,
};
use relive_types::CliAgent;

use crate::additions::{spawn, uuid};
use crate::support::{Fixture, append};

/// A CLI agent whose model calls went through the gateway, the last one of them refused.
pub(crate) fn make(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    let (agent, dialect) = ("claude".to_owned(), "claude".to_owned());
    let agent = CliAgent { agent, dialect, command: vec!["claude".to_owned()], ..CliAgent::default() };
    append(&mut writer, vec![Body::Cli(CliRecord { agent: Some(Box::new(agent)), ..CliRecord::default() })]);
    let gateway = Some(CliGateway { port: 4711, token: "5e".repeat(32) });
    let launched = Some(CliLaunch { argv: vec!["claude".to_owned()], how: CliStart::New, gateway });
    append(&mut writer, vec![Body::Cli(CliRecord { launched, ..CliRecord::default() })]);
    let cost_usd = Some(Usd::from_nanos(5));
    let usage = Usage { tokens_in: 100, tokens_out: 20, cost_usd, cache_read: 40, ..Usage::default() };
    let first = CliModelCall {
        number: 1,
        offset: 300,
        model: "anthropic/claude-opus-5".to_owned(),
        usage,
        status: Some(200),
        first_ms: Some(12),
        ms: 90,
        ..CliModelCall::default()
    };
    let cut = CliModelCall {
        number: 2,
        offset: 600,
        usage: Usage { estimated: true, ..usage },
        subagent: Some("a1".to_owned()),
        cut: Some("gateway".to_owned()),
        ..first.clone()
    };
    let free = Usage { cost_usd: Some(Usd::default()), ..Usage::default() };
    let limited = CliModelCall {
        number: 3,
        offset: 800,
        usage: free,
        status: Some(429),
        resets_at: Some(Timestamp::from_second(1_800_000_000).unwrap()),
        ..first.clone()
    };
    let refused = Some("the budget is used up".to_owned());
    let refused = CliModelCall { number: 4, offset: 950, usage: free, status: Some(402), refused, ..first.clone() };
    for call in [first, cut, limited, refused] {
        append(&mut writer, vec![Body::Cli(CliRecord { call: Some(Box::new(call)), ..CliRecord::default() })]);
    }
}

pub(crate) fn check(fixture: &Fixture) {
    let history = fixture.history(uuid());
    let facts = history.cli.as_deref().unwrap();
    assert_eq!((facts.called_to, facts.calls), (950, 3));
    assert_eq!(facts.gateway.as_ref().map(|gateway| gateway.port), Some(4711));
    assert_eq!((history.spent.tokens_in, history.spent.tokens_out, history.spent.estimated), (200, 40, true));
    assert_eq!(history.spent.cost_usd.map(Usd::nanos), Some(10));
    let entry = history.ledger.last().unwrap();
    assert_eq!((entry.model.as_str(), entry.tokens_in), ("anthropic/claude-opus-5", 200));
    // A fork has a log of its own.
    let fork = fixture.fork(uuid(), ForkPoint::End).unwrap();
    let facts = fork.history().cli.as_deref().unwrap();
    assert_eq!((facts.called_to, facts.calls, facts.gateway.is_none()), (0, 0, true));
}

/// An ACP agent that said what it can do, asked for something else, crashed and was started again.
pub(crate) fn make_crashed(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    let (agent, dialect) = ("opencode".to_owned(), "acp".to_owned());
    let agent = CliAgent { agent, dialect, command: vec!["opencode".to_owned()], ..CliAgent::default() };
    append(&mut writer, vec![Body::Cli(CliRecord { agent: Some(Box::new(agent)), ..CliRecord::default() })]);
    let launched = |how| Some(CliLaunch { argv: vec!["opencode".to_owned()], how, gateway: None });
    let new = CliRecord { launched: launched(CliStart::New), ..CliRecord::default() };
    append(&mut writer, vec![Body::Cli(new)]);
    let capabilities = Some(CliCapabilities { version: 1, load: true, resume: false, fork: true });
    append(&mut writer, vec![Body::Cli(CliRecord { capabilities, ..CliRecord::default() })]);
    let session = Some(CliSession { id: "ses_1".to_owned(), model: None });
    append(&mut writer, vec![Body::Cli(CliRecord { session, ..CliRecord::default() })]);
    let unsupported = Some("\"a1\"".to_owned());
    append(&mut writer, vec![Body::Cli(CliRecord { unsupported, ..CliRecord::default() })]);
    append(&mut writer, vec![Body::Cli(CliRecord { crashed: Some(1), ..CliRecord::default() })]);
    let again = CliRecord { launched: launched(CliStart::Resume), ..CliRecord::default() };
    append(&mut writer, vec![Body::Cli(again)]);
}

pub(crate) fn check_crashed(fixture: &Fixture) {
    let history = fixture.history(uuid());
    let facts = history.cli.as_deref().unwrap();
    let capabilities = CliCapabilities { version: 1, load: true, resume: false, fork: true };
    assert_eq!(facts.capabilities, Some(capabilities));
    assert_eq!((facts.restarts.len(), facts.launches.len()), (1, 2));
    assert_eq!(facts.crashed.map(|crashed| crashed.session), Some(1));
    // A fork is made with what its origin can do, and has crashed never.
    let fork = fixture.fork(uuid(), ForkPoint::End).unwrap();
    let facts = fork.history().cli.as_deref().unwrap();
    assert_eq!((facts.capabilities, facts.crashed, facts.restarts.len()), (Some(capabilities), None, 0));
}

#[test]
fn a_step_that_the_next_daemon_begins_again_leaves_the_cost_known() {
    let fixture = Fixture::new();
    make(&fixture);
    let mut writer = fixture.resume(uuid());
    let started = |model: &str| {
        let model = model.to_owned();
        Body::ModelStarted(ModelStarted { model, reserved_tokens: 0, reserved_cost_usd: None, purpose: None })
    };
    append(&mut writer, vec![started("anthropic/m")]);
    drop(writer);
    let mut writer = fixture.resume(uuid());
    append(&mut writer, vec![started("anthropic/m")]);
    drop(writer);
    let spent = fixture.history(uuid()).spent;
    assert_eq!((spent.tokens_in, spent.cost_usd.map(Usd::nanos)), (200, Some(10)));
}
