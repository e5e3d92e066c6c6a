//! Completeness of the index, budgets of trees, and a full disk.

use relive_index::{Error, Filter, Index, Order, Row};
use relive_journal::Disk;

use crate::support::{World, now};

#[test]
fn only_a_closed_index_is_complete_at_the_next_start() {
    let mut world = World::new();
    world.begin(None, "/");
    assert!(!world.index.begin(&world.data).unwrap(), "nobody closed it");
    world.index.close(&world.data).unwrap();
    world.open_index();
    assert!(world.index.begin(&world.data).unwrap());
    world.open_index();
    assert!(!world.index.begin(&world.data).unwrap(), "a daemon that has begun and not closed it was killed");
    world.index.close(&world.data).unwrap();
    world.index.mark_incomplete().unwrap();
    assert!(!world.index.begin(&world.data).unwrap(), "something was missed");
}

#[test]
fn an_index_is_incomplete_if_a_process_was_created_after_it_was_closed() {
    let mut world = World::new();
    world.begin(None, "/");
    world.index.close(&world.data).unwrap();
    world.open_index();
    // Created by a daemon without an index.
    let closed = std::mem::replace(&mut world.index, Index::in_memory().unwrap());
    world.begin(None, "/");
    assert!(!closed.begin(&world.data).unwrap());
}

#[test]
fn a_database_that_was_removed_or_replaced_is_noticed() {
    let mut world = World::new();
    world.index.check_place().unwrap();
    Disk::new().remove_tree(&world.temp.path().join("index")).unwrap();
    assert!(matches!(world.index.check_place(), Err(Error::Removed { .. })));
    world.open_index();
    world.index.check_place().unwrap();
    let path = world.temp.path().join("index/index.db");
    Disk::new().replace(&path, b"another").unwrap();
    assert!(matches!(world.index.check_place(), Err(Error::Removed { .. })));
    Index::in_memory().unwrap().check_place().unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_keeps_earlier_rows() {
    let world = World::new();
    let uuid = world.begin(Some("worker"), "/");
    world.index.limit_pages(1).unwrap();
    let mut row = world.index.row(uuid).unwrap().unwrap();
    row.info.intent = "x".repeat(1 << 20);
    assert!(matches!(world.index.upsert(&row), Err(Error::Database { .. })));
    assert_eq!(world.index.by_name("worker").unwrap(), Some(uuid));
}

#[test]
fn dependents_of_a_budget_are_found_at_any_depth_and_after_collection() {
    let world = World::new();
    let root = world.begin(None, "/");
    let child = world.begin_below(Some(root), None, "/");
    let grandchild = world.begin_below(Some(child), None, "/");
    world.begin(None, "/");
    let below = |world: &World| {
        let mut found: Vec<_> = world.index.dependents(root).unwrap().into_iter().map(|it| it.uuid).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(below(&world), [child, grandchild]);
    let mut row = Row::read(&world.data, grandchild).unwrap().unwrap();
    row.info.spent.tokens_in = 7;
    world.index.upsert(&row).unwrap();
    world.end(child, 0);
    world.collect(child);
    assert_eq!(below(&world), [child, grandchild], "a tombstone says whose budget it was");
    let spent = world.index.dependents(child).unwrap();
    assert_eq!((spent.len(), spent[0].spent.tokens_in), (1, 7));
    world.rebuild();
    assert_eq!(below(&world), [child, grandchild], "also one that was read again");
}

#[test]
fn a_listing_can_be_limited_to_recent_processes() {
    let world = World::new();
    world.begin(None, "/");
    let since = Some(now());
    let later = world.begin(None, "/");
    let page = world.index.page(&Filter { since, ..Filter::default() }, Order::Pid, None, 9).unwrap();
    assert_eq!(page.rows.iter().map(|info| info.uuid).collect::<Vec<_>>(), [later]);
}
