//! Damage, limits, and rebuilding during changes.

use std::io::Write as _;
use std::path::Path;

use relive_core::{Pid, Uuid};
use relive_index::{Error, Filter, Freshness, Index, Order, PAGE_MAX, Row, entries};
use relive_journal::Disk;

use crate::support::{World, now};

fn overwrite(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_damaged_database_is_deleted_at_the_start() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("rubbish", |path| {
            overwrite(path, b"this is no database at all, and long enough to look like one".repeat(99).as_slice())
        }),
        ("another version", |path| {
            let connection = rusqlite::Connection::open(path).unwrap();
            connection.execute_batch("PRAGMA user_version = 99").unwrap();
        }),
        ("a directory", |path| {
            Disk::new().remove_tree(path).unwrap();
            Disk::new().mkdir(path).unwrap();
        }),
        ("a link to itself", |path| {
            Disk::new().remove_tree(path).unwrap();
            std::os::unix::fs::symlink(path, path).unwrap();
        }),
        ("cut short", |path| {
            let bytes = std::fs::read(path).unwrap();
            overwrite(path, &bytes[..bytes.len() / 2]);
        }),
        ("a file in place of the directory", |path| {
            Disk::new().remove_tree(path.parent().unwrap()).unwrap();
            overwrite(path.parent().unwrap(), b"file");
        }),
    ];
    for (what, damage) in damages {
        let mut world = World::new();
        let uuid = world.begin(Some("worker"), "/");
        world.index = Index::in_memory().unwrap();
        damage(&world.temp.path().join("index/index.db"));
        world.open_index();
        // Damage that is found later counts as well: the index is empty from then on.
        let known = world.index.by_name("worker");
        assert!(matches!(known, Ok(None) | Err(Error::Corrupt { .. })), "{what}: {known:?}");
        assert!(!world.index.is_complete().unwrap(), "{what}");
        world.rebuild();
        assert!(world.index.is_complete().unwrap(), "{what}");
        assert_eq!(world.index.by_name("worker").unwrap(), Some(uuid), "{what}");
        world.open_index();
        assert_eq!(world.index.by_name("worker").unwrap(), Some(uuid), "{what}: it is on the disk");
    }
}

#[test]
fn a_database_that_turns_out_damaged_is_replaced_by_an_empty_one() {
    for sql in ["DROP TABLE pid", "UPDATE info SET json = x'00'", "UPDATE process SET uuid = 'rubbish'"] {
        let mut world = World::new();
        let uuid = world.begin(Some("worker"), "/");
        world.index = Index::in_memory().unwrap();
        rusqlite::Connection::open(world.temp.path().join("index/index.db")).unwrap().execute_batch(sql).unwrap();
        world.open_index();
        let asked = [
            world.index.by_pid(Pid(1)).map(|_| ()),
            world.index.row(uuid).map(|_| ()),
            world.index.by_name("worker").map(|_| ()),
        ];
        let damaged = asked.iter().filter(|answer| matches!(answer, Err(Error::Corrupt { .. }))).count();
        assert_eq!(damaged, 1, "{sql}: it is said once: {asked:?}");
        assert!(!world.index.is_complete().unwrap(), "{sql}");
        world.rebuild();
        assert_eq!(world.index.by_name("worker").unwrap(), Some(uuid), "{sql}");
    }
}

#[test]
fn updates_during_a_rebuild_win_over_the_entries_that_are_read() {
    let world = World::new();
    let [first, second, third] = ["first", "second", "third"].map(|name| world.begin(Some(name), "/"));
    world.end(third, 0);
    // Read before the change, and added after it.
    let stale: Vec<_> = entries(&world.data).collect();
    let told = std::iter::once_with(|| {
        world.end(first, 1);
        world.collect(third);
        world.begin(Some("fourth"), "/");
        Ok(relive_index::Entry::Unreadable(second))
    });
    world.index.rebuild(told.chain(stale)).unwrap();
    let row = world.index.row(first).unwrap().unwrap();
    assert_eq!(Freshness::of(&row.info, &world.data.directory(first)).unwrap(), Freshness::Current);
    assert!(world.index.collected(third).unwrap().is_some() && world.index.row(third).unwrap().is_none());
    assert!(world.index.by_name("fourth").unwrap().is_some());
}

#[test]
fn a_stopped_rebuild_leaves_the_index_incomplete() {
    let world = World::new();
    let uuid = world.begin(Some("worker"), "/");
    let row = Row::read(&world.data, uuid).unwrap().unwrap();
    let stopped = [Ok(relive_index::Entry::Here(Box::new(row))), Err(Error::Stopped)];
    assert!(matches!(world.index.rebuild(stopped), Err(Error::Stopped)));
    assert!(!world.index.is_complete().unwrap());
    assert!(matches!(world.index.refresh(&world.data, || true), Err(Error::Stopped)));
    assert!(!world.index.is_complete().unwrap());
    world.index.refresh(&world.data, || false).unwrap();
    assert!(world.index.is_complete().unwrap());
}

#[test]
fn a_refresh_adds_lost_rows_and_removes_rows_of_deleted_processes() {
    let world = World::new();
    let [changed, collected, vanished] = [(); 3].map(|()| world.begin(Some("worker"), "/"));
    world.end(collected, 0);
    let old = [changed, collected, vanished].map(|uuid| Row::read(&world.data, uuid).unwrap().unwrap());
    world.end(changed, 7);
    world.collect(collected);
    Disk::new().remove_tree(world.data.directory(vanished).path()).unwrap();
    for row in &old {
        world.index.upsert(row).unwrap();
    }
    let stale = world.index.row(changed).unwrap().unwrap();
    assert_eq!(Freshness::of(&stale.info, &world.data.directory(changed)).unwrap(), Freshness::Stale);
    assert_eq!(Freshness::of(&old[1].info, &world.data.directory(collected)).unwrap(), Freshness::Gone);
    let done = world.index.refresh(&world.data, || false).unwrap();
    assert_eq!((done.read, done.removed), (1, 2));
    assert!(world.index.row(changed).unwrap().unwrap().info.end.is_some());
    assert!(world.index.collected(collected).unwrap().is_some());
    assert!(world.index.row(vanished).unwrap().is_none() && world.index.collected(vanished).unwrap().is_none());
    assert_eq!(world.index.by_pid(old[2].info.pids[0]).unwrap(), None);
}

#[test]
fn a_process_with_an_unreadable_journal_is_found_by_its_id() {
    let world = World::new();
    let good = world.begin(Some("worker"), "/");
    let bad = world.begin(Some("broken"), "/");
    let steps = world.data.directory(bad).steps();
    Disk::new().unlink(&steps).unwrap();
    Disk::new().mkdir(&steps).unwrap();
    world.rebuild();
    assert!(world.index.is_complete().unwrap());
    assert_eq!(world.index.by_prefix(&bad.to_string(), 9).unwrap(), [bad]);
    assert_eq!(world.index.row(bad).unwrap(), None);
    let page = world.index.page(&Filter::default(), Order::Pid, None, 9).unwrap();
    assert_eq!(page.rows.iter().map(|info| info.uuid).collect::<Vec<_>>(), [good]);
}

#[test]
fn answers_are_bounded_and_no_search_text_is_an_error() {
    let world = World::new();
    for _ in 0..5 {
        world.begin(Some("worker"), "/");
    }
    assert_eq!(world.index.by_prefix("0", 3).unwrap().len(), 3);
    assert_eq!(world.index.page(&Filter::default(), Order::Pid, None, 0).unwrap().rows.len(), 1);
    assert_eq!(world.index.page(&Filter::default(), Order::Pid, None, PAGE_MAX * 9).unwrap().rows.len(), 5);
    for typed in ["", "'", "%", "\0", "x", "ffff", "-", "*", "[", "0'; DROP TABLE process; --", &"f".repeat(10_000)] {
        assert_eq!(world.index.by_name(typed).unwrap(), None, "{typed:?}");
        assert_eq!(world.index.by_prefix(typed, 9).unwrap(), Vec::<Uuid>::new(), "{typed:?}");
        assert_eq!(world.index.by_suffix(typed, 9).unwrap(), Vec::<Uuid>::new(), "{typed:?}");
        for filter in [
            Filter { name: Some(typed.to_owned()), ..Filter::default() },
            Filter { cwd: Some(typed.to_owned()), ..Filter::default() },
        ] {
            world.index.page(&filter, Order::Created, None, 9).unwrap();
        }
    }
    assert_eq!(world.index.by_pid(Pid(u32::MAX)).unwrap(), None);
}

#[test]
fn a_process_with_many_incarnations_answers_for_each() {
    let world = World::new();
    let uuid = world.begin(None, "/");
    for _ in 0..30 {
        world.end(uuid, 3);
    }
    let row = world.index.row(uuid).unwrap().unwrap();
    assert_eq!(row.incarnations.len(), 31);
    for pair in row.incarnations.windows(2) {
        let entry = world.index.by_pid(pair[0].pid).unwrap().unwrap();
        assert_eq!((entry.uuid, entry.successor), (uuid, Some(pair[1].pid)));
        assert_eq!(entry.end, pair[0].end);
    }
    for _ in 0..40 {
        world.alias(uuid);
    }
    let aliases = (0..=world.last_pid().0).filter(|pid| world.index.by_pid(Pid(*pid)).unwrap().is_some()).count();
    assert_eq!(aliases, 31 + relive_journal::data::NOTED_MAX, "the newest are kept");
}

#[test]
fn processes_collected_long_ago_are_forgotten() {
    let world = World::new();
    let uuid = world.begin(None, "/");
    let long_ago = relive_core::Timestamp::from_millisecond(now().as_millisecond() - 400 * 86_400_000).unwrap();
    world.index.remove(uuid, long_ago).unwrap();
    assert_eq!(world.index.collected(uuid).unwrap(), Some(long_ago));
    for number in 0..1_100_u128 {
        world.index.remove(Uuid::from_u128(number), now()).unwrap();
    }
    assert_eq!(world.index.collected(uuid).unwrap(), None);
    assert!(world.index.collected(Uuid::from_u128(1)).unwrap().is_some());
    assert_eq!(world.index.by_pid(Pid(1)).unwrap(), None);
}

#[test]
fn of_too_many_unseen_ends_the_newest_are_listed() {
    let world = World::new();
    let ended: Vec<Uuid> = (0..4).map(|_| world.begin(None, "/")).collect();
    ended.iter().for_each(|uuid| world.end_unseen(*uuid));
    let listed: Vec<Uuid> = world.index.unseen(2).unwrap().into_iter().map(|info| info.uuid).collect();
    assert_eq!(listed, [ended[3], ended[2]]);
    assert_eq!(world.index.unseen(10).unwrap().len(), 4);
}
