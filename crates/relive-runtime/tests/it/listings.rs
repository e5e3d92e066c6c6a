//! Lists in pages, with filters.

use relive_api::{GcRequest, ListQuery, Process};
use relive_core::{ErrorCode, Pid, Uuid};

use crate::world::{Daemon, World};

fn all() -> ListQuery {
    ListQuery { all: true, ..ListQuery::default() }
}

/// Reads a list page by page.
fn read(daemon: &Daemon, query: &ListQuery, limit: usize) -> Vec<Process> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let query = ListQuery { limit: Some(limit), cursor, ..query.clone() };
        let page = daemon.block(daemon.runtime.page(query)).unwrap();
        assert!(page.processes.len() <= limit);
        found.extend(page.processes);
        cursor = page.next;
        if cursor.is_none() {
            return found;
        }
    }
}

#[track_caller]
fn check(daemon: &Daemon, query: ListQuery, expect: &[Uuid]) {
    for limit in [1, 2, 3, 100] {
        let found: Vec<Uuid> = read(daemon, &query, limit).into_iter().map(|process| process.uuid).collect();
        assert_eq!(found, expect, "{query:?} in pages of {limit}");
    }
}

/// An agent that failed, one that ended well, a suspended one and a running one.
fn four(world: &World, daemon: &Daemon) -> [Uuid; 4] {
    let run = |script: &str, name: Option<&str>, cwd: &str| {
        let mut request = world.request(&world.script(script));
        request.name = name.map(str::to_owned);
        request.cwd = format!("{}{cwd}", request.cwd);
        daemon.run(request).uuid
    };
    std::fs::create_dir_all(world.work().join("below")).unwrap();
    let failed = run("turns: [{fail: broken}]", Some("api-1"), "");
    daemon.wait(failed);
    let done = run("turns: [{text: done}]", Some("api-2"), "/below");
    daemon.wait(done);
    let suspended = run("turns: [{hang: true}]", Some("web-1"), "/below");
    daemon.until_records(world, suspended, "model_started", 1);
    daemon.pause(suspended, crate::world::PAUSE_NOW, None);
    daemon.until_display(suspended, "suspended");
    let running = run("turns: [{hang: true}]", None, "");
    daemon.until_records(world, running, "model_started", 1);
    [failed, done, suspended, running]
}

#[test]
fn pages_and_filters_are_the_same_for_the_table_and_for_the_index() {
    let world = World::new();
    let daemon = world.start();
    let four = four(&world, &daemon);
    let [failed, done, suspended, running] = four;
    let below = world.work().join("below").display().to_string();
    let dead_at = daemon.info(done).dead_at.unwrap();
    let check_all = |daemon: &Daemon| {
        check(daemon, all(), &[failed, done, suspended, running]);
        check(daemon, ListQuery { newest: true, ..all() }, &[running, suspended, done, failed]);
        check(daemon, ListQuery::default(), &[suspended, running]);
        check(daemon, ListQuery { state: Some("dead".into()), ..all() }, &[failed, done]);
        check(daemon, ListQuery { state: Some("suspended".into()), ..all() }, &[suspended]);
        check(daemon, ListQuery { name: Some("api-*".into()), ..all() }, &[failed, done]);
        check(daemon, ListQuery { name: Some("*-1".into()), ..all() }, &[failed, suspended]);
        check(daemon, ListQuery { name: Some("*-1".into()), ..ListQuery::default() }, &[suspended]);
        check(daemon, ListQuery { cwd: Some(below.clone()), ..all() }, &[done, suspended]);
        check(daemon, ListQuery { failed: true, ..all() }, &[failed]);
        check(daemon, ListQuery { since: Some(dead_at), ..all() }, &[done, suspended, running]);
        check(daemon, ListQuery { failed: true, name: Some("api-2".into()), ..all() }, &[]);
    };
    check_all(&daemon);
    drop(daemon);
    let daemon = world.start();
    daemon.until_display(running, "running");
    check_all(&daemon);
    let resumable: Vec<Uuid> =
        daemon.block(daemon.runtime.resumable(all())).unwrap().processes.into_iter().map(|it| it.uuid).collect();
    assert_eq!(resumable, [failed, done, suspended]);
}

#[test]
fn invalid_list_queries_are_refused() {
    let daemon = World::new().start();
    let wrong = [
        ListQuery { state: Some("sleeping".into()), ..all() },
        ListQuery { cursor: Some("7".into()), ..all() },
        ListQuery { cwd: Some("here".into()), ..all() },
        ListQuery { name: Some("*".repeat(300)), ..all() },
    ];
    for query in wrong {
        assert_eq!(daemon.block(daemon.runtime.page(query)).unwrap_err().code(), ErrorCode::Invalid);
    }
}

#[test]
fn a_process_collected_during_a_listing_is_left_out_and_hides_no_other() {
    let world = World::with(|config| config.gc.max_entries = 1);
    let daemon = world.start();
    let model = world.script("turns: [{text: done}]");
    // One after the other: the one that ended last is kept.
    let run = |_| {
        let uuid = daemon.run(world.request(&model)).uuid;
        daemon.wait(uuid);
        uuid
    };
    let ended: Vec<Uuid> = (0..6).map(run).collect();
    let first = daemon.block(daemon.runtime.page(ListQuery { limit: Some(2), ..all() })).unwrap();
    assert_eq!(first.processes.len(), 2);
    daemon.block(daemon.runtime.gc(GcRequest::default())).unwrap();
    let kept = *ended.last().unwrap();
    check(&daemon, ListQuery { cursor: first.next, ..all() }, &[kept]);
    check(&daemon, all(), &[kept]);
    drop(daemon);
    check(&world.start(), all(), &[kept]);
}

#[test]
fn a_process_that_is_resumed_while_it_is_listed_moves_to_its_new_pid() {
    let world = World::new();
    let daemon = world.start();
    let model = world.script("turns: [{text: done}, {hang: true}]");
    let [first, second] = [(); 2].map(|()| daemon.run(world.request(&model)).uuid);
    [first, second].iter().for_each(|uuid| drop(daemon.wait(*uuid)));
    drop(daemon);
    let daemon = world.start();
    let page = daemon.block(daemon.runtime.page(ListQuery { limit: Some(1), ..all() })).unwrap();
    assert_eq!(page.processes[0].uuid, first);
    let resumed = daemon.resume(first, crate::world::resume(), None);
    let rest = ListQuery { cursor: page.next, limit: Some(9), ..all() };
    let rest = daemon.block(daemon.runtime.page(rest)).unwrap().processes;
    let listed: Vec<(Pid, Uuid)> = rest.iter().map(|process| (process.pid, process.uuid)).collect();
    assert_eq!(listed.last(), Some(&(resumed.pid, first)));
    assert_eq!(listed[0].1, second);
}
