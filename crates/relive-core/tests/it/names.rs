//! Looking up processes by name, UUID and PID, and the authority to name them.

use relive_core::{ErrorCode, Event, Holder, Pid, Refusal, Rights, Spec, Table};

use crate::support::{World, uuid};

fn check(world: &World, text: &str, expect: Result<Pid, ErrorCode>) {
    let resolved = world.table.look_up(Holder::Person, text).map_err(|refusal| refusal.code());
    assert_eq!(resolved, expect, "{text}");
}

#[test]
fn digits_are_a_pid_and_other_text_is_a_name_or_a_uuid() {
    let mut world = World::new();
    let coder = world.run_named(Pid::RUNTIME, "coder");
    let trap = world.run_named(Pid::RUNTIME, "1");
    let hex = world.run_named(Pid::RUNTIME, "0198f3c1");
    check(&world, "1", Ok(coder));
    check(&world, "2", Ok(trap));
    check(&world, "007", Err(ErrorCode::NotFound));
    check(&world, "99999999999999999999", Err(ErrorCode::NotFound));
    check(&world, "coder", Ok(coder));
    check(&world, &uuid(coder.0).to_string(), Ok(coder));
    check(&world, &uuid(coder.0).to_string().to_uppercase(), Ok(coder));
    check(&world, "0198f3c1", Ok(hex));
    check(&world, "0198f3c1-", Err(ErrorCode::Invalid));
    check(&world, &uuid(trap.0).to_string()[..35], Err(ErrorCode::Invalid));
    for nothing in ["", "Coder2x", "019", "-1", "../1", "0198f3c1-1"] {
        check(&world, nothing, Err(ErrorCode::NotFound));
    }
}

#[test]
fn an_ambiguous_name_lists_its_candidates() {
    let mut world = World::new();
    let first = world.run_named(Pid::RUNTIME, "worker");
    let second = world.run_named(Pid::RUNTIME, "worker");
    let refusal = world.table.look_up(Holder::Person, "worker").unwrap_err();
    assert_eq!(refusal.to_string(), "`worker` is ambiguous, it could be: PID 1, PID 2");
    world.finish(first);
    check(&world, "worker", Ok(second));
    world.finish(second);
    check(&world, "worker", Ok(second));
    world.release(second);
    check(&world, "worker", Ok(second));

    for _ in 0..10 {
        world.run(Pid::RUNTIME);
    }
    let Refusal::Ambiguous { candidates, .. } = world.table.look_up(Holder::Person, "0198f3c1-").unwrap_err() else {
        panic!("many begin like this")
    };
    assert_eq!((candidates.len(), candidates.last().unwrap().as_str()), (6, "..."));
}

#[test]
fn an_unknown_name_suggests_the_closest_one() {
    let mut world = World::new();
    world.run_named(Pid::RUNTIME, "reviewer");
    let refusal = world.table.look_up(Holder::Person, "reviwer").unwrap_err();
    assert_eq!(refusal.hint().unwrap(), "did you mean `reviewer`?");
    let refusal = world.table.look_up(Holder::Person, "zzz").unwrap_err();
    assert_eq!(refusal.hint().unwrap(), "relive ps -a");
}

#[test]
fn suggestions_come_from_living_processes_and_sorted_neighbours() {
    let mut world = World::new();
    let ended = world.run_named(Pid::RUNTIME, "reviewer");
    world.finish(ended);
    world.release(ended);
    for number in 0..200 {
        world.run_named(Pid::RUNTIME, &format!("reviewed-{number}"));
        world.run_named(Pid::RUNTIME, "reviewer");
    }
    world.run_named(Pid::RUNTIME, "alpha");
    let check = |text: &str, expect: &str| {
        let refusal = world.table.look_up(Holder::Person, text).unwrap_err();
        assert_eq!(refusal.hint().unwrap(), format!("did you mean `{expect}`?"), "{text}");
    };
    check("reviewers", "reviewer");
    check("xlpha", "alpha");
}

/// The cost of an unknown name must not grow with the number of ended processes.
#[test]
#[expect(clippy::disallowed_methods, reason = "only the ratio of two times counts")]
fn an_unknown_name_costs_the_same_among_many_that_ended() {
    let cost = |count: u32| {
        let mut world = World::new();
        for number in 0..count {
            let pid = world.run_named(Pid::RUNTIME, &format!("worker-of-the-build-{number}"));
            world.finish(pid);
            world.release(pid);
        }
        let one = || {
            let begun = std::time::Instant::now();
            for _ in 0..20 {
                assert!(world.table.look_up(Holder::Person, "worker-of-the-xxxxx-17").is_err());
            }
            begun.elapsed()
        };
        (0..5).map(|_| one()).min().unwrap()
    };
    let (few, many) = (cost(200), cost(20_000));
    assert!(many < few * 10, "{few:?} among 200, {many:?} among 20,000");
}

#[test]
fn a_uuid_finds_its_current_incarnation() {
    let mut world = World::new();
    let first = world.run(Pid::RUNTIME);
    world.finish(first);
    world.release(first);
    let mut spec = world.spec(Pid::RUNTIME);
    (spec.uuid, spec.generation) = (uuid(first.0), world.of(first).generation.next());
    let second = world.spawn_as(spec);
    check(&world, &uuid(first.0).to_string(), Ok(second));
    check(&world, &first.to_string(), Ok(first));
}

#[test]
fn pids_arrive_in_any_order_and_are_never_used_twice() {
    let mut world = World::new();
    let now = world.now();
    let spec = |pid, name| Spec::new(Pid(pid), uuid(name), Pid::RUNTIME, now);
    for pid in [5, 2, 4, 9, 1, 3] {
        world.table.spawn(spec(pid, pid)).unwrap();
        assert!(matches!(world.table.spawn(spec(pid, 100)), Err(Refusal::PidUsed { .. })), "{pid} again");
    }
    assert_eq!(world.table.last_pid(), Pid(9));
    let used: Vec<u32> = (1..=9).filter(|pid| world.table.clone().spawn(spec(*pid, 100)).is_err()).collect();
    assert_eq!(used, [1, 2, 3, 4, 5, 9]);
}

fn neighbours() -> (World, [Pid; 4]) {
    let mut world = World::new();
    let asking = world.run_named(Pid::RUNTIME, "asking");
    let below = world.run_named(asking, "below");
    let beside = world.run_named(Pid::RUNTIME, "beside");
    let handed = world.run_named(beside, "handed");
    world.hand(Holder::Person, asking, handed, Rights::Observer).unwrap();
    (world, [asking, below, beside, handed])
}

#[test]
fn a_process_may_name_itself_its_descendants_and_its_handles() {
    let (world, [asking, below, beside, handed]) = neighbours();
    let rights = |caller: Pid, target: Pid| world.table.rights(Holder::Process(caller), target);
    assert_eq!(rights(asking, asking), Some(Rights::Owner));
    assert_eq!(rights(asking, below), Some(Rights::Owner));
    assert_eq!(rights(asking, handed), Some(Rights::Observer));
    assert_eq!((rights(asking, beside), rights(below, asking), rights(handed, beside)), (None, None, None));
    assert_eq!(rights(asking, Pid::RUNTIME), None);
    assert_eq!(world.table.rights(Holder::Person, beside), Some(Rights::Owner));

    let code = |target, needed| world.table.authorize(Holder::Process(asking), target, needed).map_err(|r| r.code());
    assert_eq!(code(below, Rights::Owner), Ok(()));
    assert_eq!(code(handed, Rights::Observer), Ok(()));
    assert_eq!(code(handed, Rights::Controller), Err(ErrorCode::Permission));
}

#[test]
fn unknown_and_forbidden_processes_are_refused_alike() {
    let (mut world, [asking, _, beside, handed]) = neighbours();
    let caller = Holder::Process(asking);
    let check = |table: &Table, text: &str| {
        let refusal = table.look_up(caller, text).unwrap_err();
        assert_eq!(refusal, Refusal::NotFound { what: text.into(), suggestion: None });
    };
    for text in ["3", "99", "beside", "nobody", &uuid(beside.0).to_string(), &uuid(99).to_string(), "besidd"] {
        check(&world.table, text);
    }
    let forbidden = world.table.authorize(caller, beside, Rights::Observer).unwrap_err();
    let unknown = world.table.authorize(caller, Pid(99), Rights::Observer).unwrap_err();
    assert_eq!(forbidden.to_string().replace('3', "99"), unknown.to_string());
    assert_eq!((forbidden.code(), forbidden.hint()), (unknown.code(), unknown.hint()));

    world.run_named(Pid::RUNTIME, "handed");
    assert_eq!(world.table.look_up(caller, "handed"), Ok(handed), "a namesake that it may not see is no rival");
    assert_eq!(world.table.look_up(caller, "handde").unwrap_err().hint().unwrap(), "did you mean `handed`?");
}

#[test]
fn authority_ends_with_the_process_and_with_the_handle() {
    let (mut world, [asking, below, _, handed]) = neighbours();
    let caller = Holder::Process(asking);
    world.hand(Holder::Person, asking, handed, Rights::Controller).unwrap();
    assert_eq!(world.table.rights(caller, handed), Some(Rights::Controller), "the stronger of two handles");
    assert_eq!(world.table.release_handles(asking, handed), Some(Rights::Controller));
    assert_eq!(world.table.rights(caller, handed), None);
    world.hand(Holder::Person, asking, handed, Rights::Observer).unwrap();
    world.finish(asking);
    for target in [asking, below, handed] {
        assert_eq!(world.table.rights(caller, target), None);
    }
}

#[test]
fn only_an_owner_hands_handles_and_only_to_processes_that_have_not_ended() {
    let (mut world, [asking, below, beside, handed]) = neighbours();
    let (queued, ended) = (world.spawn(asking), world.run(asking));
    world.finish(ended);
    let caller = Holder::Process(asking);
    let before = world.table.clone();
    let mut check = |to: Pid, target: Pid, expect: ErrorCode| {
        assert_eq!(world.hand(caller, to, target, Rights::Observer).unwrap_err().code(), expect);
        assert!(world.table == before);
    };
    check(below, handed, ErrorCode::Permission);
    check(below, beside, ErrorCode::NotFound);
    check(beside, below, ErrorCode::NotFound);
    check(ended, below, ErrorCode::Conflict);
    assert!(world.table.open(caller, handed, Rights::Controller).is_err());
    for to in [handed, queued] {
        world.hand(caller, to, below, Rights::Controller).unwrap();
    }
    assert_eq!(world.table.rights(Holder::Process(handed), below), Some(Rights::Controller));
}

#[test]
fn a_process_may_still_name_its_ended_descendants() {
    let mut world = World::new();
    let top = world.run(Pid::RUNTIME);
    let middle = world.run(top);
    let bottom = world.spawn_as(Spec { name: Some("bottom".into()), ..world.spec(middle) });
    world.effects(bottom, Event::Start);
    for pid in [bottom, middle] {
        world.finish(pid);
        world.release(pid);
    }
    assert_eq!(world.table.look_up(Holder::Process(top), "bottom"), Ok(bottom));
    assert_eq!(world.table.look_up(Holder::Process(top), "bottmo").unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn a_process_is_found_by_the_end_of_its_uuid_as_by_its_beginning() {
    let mut world = World::new();
    let mut run = |end: &str| {
        let mut spec = world.spec(Pid::RUNTIME);
        spec.uuid = format!("0198f3c1-0000-7000-8000-0000{end}").parse().unwrap();
        world.spawn_as(spec)
    };
    let first = run("0c9d1e77");
    let second = run("1c9d1e77");
    let third = run("12345678");
    check(&world, "0c9d1e77", Ok(first));
    check(&world, "1C9D1E77", Ok(second));
    check(&world, "00000c9d1e77", Ok(first));
    check(&world, "8000-00000c9d1e77", Ok(first));
    check(&world, "c9d1e77", Err(ErrorCode::Invalid));
    check(&world, "1e77", Err(ErrorCode::Invalid));
    // Digits alone are a PID.
    check(&world, "12345678", Err(ErrorCode::NotFound));
    check(&world, "80000000-12345678", Err(ErrorCode::NotFound));
    check(&world, "-000012345678", Err(ErrorCode::NotFound));
    check(&world, "0198f3c1-0000-7000-8000-000012345678", Ok(third));
    check(&world, "77", Err(ErrorCode::NotFound));
    world.effects(first, Event::Start);
    world.finish(first);
    world.release(first);
    check(&world, "0c9d1e77", Ok(first));
    let swept = world.table.sweep(relive_core::Moment { up_ms: u64::MAX, ..world.now() });
    assert_eq!(swept, [first]);
    check(&world, "0c9d1e77", Err(ErrorCode::NotFound));
}
