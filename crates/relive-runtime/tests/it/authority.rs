//! Random trees, grants, releases, pauses, ends, hours and crashes, through the verbs as the daemon's server uses them ([`Access`]),
//! against a model that only remembers who was given what. The same for the table alone is in `relive-core`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use relive_api::{GateRequest, GrantRequest, ListQuery, ReleaseRequest, ResumeRequest, SignalMaskRequest};
use relive_core::{ErrorCode, Rights, Uuid};
use relive_runtime::{Access, Caller, Error};

use crate::world::{Daemon, PAUSE_NOW, World, resume};

const HOUR_MS: u64 = 3_600_000;
/// The UUID of nobody.
const NEVER: Uuid = Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_abcd);

#[derive(Debug, Clone, Copy)]
enum Operation {
    Spawn,
    End,
    Grant(Rights),
    Release,
    /// A caller pauses a process.
    Pause,
    /// A caller resumes a process.
    Resume,
    Hour,
    Crash,
}

type Step = (Operation, Index, Index, Index);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let operation = prop_oneof![
        6 => Just(Operation::Spawn),
        3 => Just(Operation::End),
        4 => Just(Operation::Grant(Rights::Observer)),
        4 => Just(Operation::Grant(Rights::Controller)),
        3 => Just(Operation::Release),
        3 => Just(Operation::Pause),
        4 => Just(Operation::Resume),
        2 => Just(Operation::Hour),
        1 => Just(Operation::Crash),
    ];
    vec((operation, any::<Index>(), any::<Index>(), any::<Index>()), 4..32)
}

/// Who was given what.
#[derive(Default)]
struct Model {
    parents: BTreeMap<Uuid, Option<Uuid>>,
    living: BTreeSet<Uuid>,
    /// How many hours ago each ended, as long as somebody may ask.
    ended: BTreeMap<Uuid, u64>,
    /// By holder and target.
    given: BTreeMap<(Uuid, Uuid), Rights>,
    /// Those that somebody paused.
    paused: BTreeSet<Uuid>,
}

impl Model {
    fn rights(&self, holder: Uuid, target: Uuid) -> Option<Rights> {
        if !self.living.contains(&target) && !self.ended.contains_key(&target) {
            return None;
        }
        let mut here = Some(target);
        while let Some(uuid) = here {
            if uuid == holder {
                return Some(Rights::Owner);
            }
            here = self.parents[&uuid];
        }
        self.given.get(&(holder, target)).copied()
    }

    /// What a person or a process may do to a process.
    fn may(&self, caller: Option<Uuid>, target: Uuid) -> Option<Rights> {
        match caller {
            Some(caller) => self.rights(caller, target),
            None => (self.living.contains(&target) || self.ended.contains_key(&target)).then_some(Rights::Owner),
        }
    }

    /// Resumes a process, and the paused ones above it up to the first that the caller may not control.
    fn resume(&mut self, caller: Option<Uuid>, target: Uuid) {
        let mut here =
            Some(target).filter(|target| self.paused.remove(target)).and_then(|target| self.parents[&target]);
        while let Some(above) = here.filter(|above| self.living.contains(above)) {
            if self.paused.contains(&above) && self.may(caller, above) < Some(Rights::Controller) {
                return;
            }
            self.paused.remove(&above);
            here = self.parents[&above];
        }
    }

    /// Forgets what ended an hour ago, unless somebody has a handle to it.
    fn sweep(&mut self) {
        let held: BTreeSet<Uuid> = self.given.keys().map(|(_, target)| *target).collect();
        self.ended.retain(|uuid, hours| *hours == 0 || held.contains(uuid));
    }
}

struct Place {
    world: World,
    daemon: Option<Daemon>,
    model: Model,
}

impl Place {
    fn new() -> Self {
        let world = World::with_clocks();
        let daemon = Some(world.start());
        Self { world, daemon, model: Model::default() }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// The verbs of a caller, as the server begins each request.
    fn access(&self, caller: Option<Uuid>) -> Access {
        let access = Access::new(Arc::clone(&self.daemon().runtime), caller.map_or(Caller::Person, Caller::Process));
        self.daemon().block(access.ready());
        access
    }

    fn pick(&self, of: &BTreeSet<Uuid>, index: Index) -> Option<Uuid> {
        (!of.is_empty()).then(|| *of.iter().nth(index.index(of.len())).unwrap())
    }

    fn everybody(&self) -> BTreeSet<Uuid> {
        self.model.parents.keys().copied().collect()
    }

    fn run(&mut self, (operation, first, second, third): Step) {
        let (everybody, living) = (self.everybody(), self.model.living.clone());
        // The person, or a process.
        let caller = self.pick(&living, third).filter(|_| third.index(4) > 0);
        match operation {
            Operation::Spawn => {
                // A child of one that is paused waits for it.
                let running = living.difference(&self.model.paused).copied().collect();
                let parent = self.pick(&running, first).filter(|_| second.index(4) > 0);
                let created = self.daemon().block(self.access(parent).run(self.world.hanging())).unwrap();
                self.daemon().until_records(&self.world, created.uuid, "model_started", 1);
                self.model.parents.insert(created.uuid, parent);
                self.model.living.insert(created.uuid);
                self.model.given.extend(parent.map(|parent| ((parent, created.uuid), Rights::Owner)));
            }
            Operation::End => {
                let Some(uuid) = self.pick(&living, first) else { return };
                self.daemon().signal(uuid, "KILL", None);
                self.daemon().wait(uuid);
                self.daemon().until_at_rest(uuid);
                self.model.living.remove(&uuid);
                self.model.paused.remove(&uuid);
                self.model.given.retain(|(holder, _), _| *holder != uuid);
                self.model.ended.insert(uuid, 0);
            }
            Operation::Grant(rights) => {
                let (Some(to), Some(target)) = (self.pick(&everybody, first), self.pick(&everybody, second)) else {
                    return;
                };
                self.grant(caller, to, target, rights);
            }
            Operation::Release => {
                let (Some(holder), Some(target)) = (self.pick(&living, first), self.pick(&everybody, second)) else {
                    return;
                };
                let request = ReleaseRequest { target: target.to_string(), of: None };
                let released = self.daemon().block(self.access(Some(holder)).release(request, None));
                let is_seen = self.model.rights(holder, target).is_some();
                assert_eq!(released.is_ok(), is_seen, "{holder} releases {target}: {released:?}");
                self.model.given.remove(&(holder, target));
            }
            Operation::Pause => {
                let Some(target) = self.pick(&everybody, first) else { return };
                let paused = self.daemon().block(self.access(caller).pause(&target.to_string(), PAUSE_NOW, None));
                // The person also reads what nobody else may see any more. What has ended is left as it is.
                let may = caller.is_none() || self.model.may(caller, target) >= Some(Rights::Controller);
                assert_eq!(paused.is_ok(), may, "{caller:?} pauses {target}: {paused:?}");
                if may && living.contains(&target) {
                    self.daemon().until_display(target, "suspended");
                    self.model.paused.insert(target);
                }
                self.check_paused();
            }
            Operation::Resume => {
                let Some(target) = self.pick(&living, first) else { return };
                let resumed = self.daemon().block(self.access(caller).resume(&target.to_string(), resume(), None));
                let allowed = self.model.may(caller, target) >= Some(Rights::Controller);
                assert_eq!(resumed.is_ok(), allowed, "{caller:?} resumes {target}: {resumed:?}");
                if allowed {
                    self.model.resume(caller, target);
                }
                self.check_paused();
            }
            Operation::Hour => {
                self.world.clocks.pass(HOUR_MS);
                self.model.ended.values_mut().for_each(|hours| *hours += 1);
            }
            Operation::Crash => {
                self.daemon = None;
                self.daemon = Some(self.world.start());
            }
        }
        self.model.sweep();
    }

    /// Checks that those stand still that somebody has paused who may, and no others.
    fn check_paused(&self) {
        let is_suspended = |uuid: &Uuid| self.daemon().display(*uuid) == "suspended";
        assert_eq!(self.model.living.iter().copied().filter(is_suspended).collect::<BTreeSet<_>>(), self.model.paused);
    }

    fn grant(&mut self, caller: Option<Uuid>, to: Uuid, target: Uuid, rights: Rights) {
        let request = GrantRequest { target: target.to_string(), to: to.to_string(), rights };
        let granted = self.daemon().block(self.access(caller).grant(request, None));
        let allowed = self.model.may(caller, target) == Some(Rights::Owner)
            && caller != Some(target)
            && self.model.may(caller, to).is_some()
            && self.model.living.contains(&to);
        assert_eq!(granted.is_ok(), allowed, "{caller:?} gives {to} a handle to {target}: {granted:?}");
        if allowed {
            let held = self.model.given.entry((to, target)).or_insert(rights);
            *held = (*held).max(rights);
        }
    }

    /// Checks that a process lists, reads and changes what it may, and that whatever else there is or was does not exist
    /// for it.
    fn check(&self, holder: Uuid) {
        let (access, daemon) = (self.access(Some(holder)), self.daemon());
        let page = daemon.block(access.page(ListQuery { all: true, ..ListQuery::default() })).unwrap();
        let listed: BTreeSet<Uuid> = page.processes.iter().map(|process| process.uuid).collect();
        let is_seen = |uuid: &Uuid| self.model.rights(holder, *uuid).is_some();
        assert_eq!(listed, self.everybody().into_iter().filter(is_seen).collect(), "the list of {holder}");
        for target in self.everybody() {
            let rights = self.model.rights(holder, target);
            let id = target.to_string();
            let seen = [
                daemon.block(access.info(&id)).map(drop),
                daemon.block(access.wait(&id, Some(std::time::Duration::ZERO))).map(drop),
                daemon.block(access.lineage(&id)).map(drop),
            ];
            for answer in seen {
                assert_eq!(answer.is_ok(), rights.is_some(), "{holder} looks at {target}: {answer:?}");
                check_refusal(answer.err(), None, rights, Rights::Observer, target);
            }
            // An agent has no gate, and nothing is no signal: whoever may ask is told that.
            let gate = daemon.block(access.proceed(&id, GateRequest::default())).unwrap_err();
            let no_gate = if self.model.living.contains(&target) { ErrorCode::Invalid } else { ErrorCode::Conflict };
            check_refusal(Some(gate), Some(no_gate), rights, Rights::Controller, target);
            if rights < Some(Rights::Controller) {
                // Refused, so nothing happens to it.
                let paused = daemon.block(access.pause(&id, PAUSE_NOW, None)).err();
                check_refusal(paused, None, rights, Rights::Controller, target);
                let resumed = daemon.block(access.resume(&id, resume(), None)).err();
                check_refusal(resumed, None, rights, Rights::Controller, target);
            }
            let nothing = SignalMaskRequest { off: vec!["NOTHING".to_owned()], ..SignalMaskRequest::default() };
            let mask = daemon.block(access.set_signal_mask(&id, nothing, None)).unwrap_err();
            check_refusal(Some(mask), Some(ErrorCode::Invalid), rights, Rights::Owner, target);
        }
        let unknown = daemon.block(access.info(&NEVER.to_string())).unwrap_err();
        check_refusal(Some(unknown), None, None, Rights::Observer, NEVER);
    }
}

/// Checks the refusal of something that needs these rights: whoever has them is refused with `otherwise`.
fn check_refusal(
    refusal: Option<Error>,
    otherwise: Option<ErrorCode>,
    rights: Option<Rights>,
    needed: Rights,
    id: Uuid,
) {
    let expect = match rights {
        None => Some(ErrorCode::NotFound),
        Some(rights) if rights < needed => Some(ErrorCode::Permission),
        Some(_) => otherwise,
    };
    assert_eq!(refusal.as_ref().map(Error::code), expect, "{refusal:?}");
    if let (None, Some(refusal)) = (rights, refusal) {
        // The same words as for what never was.
        assert_eq!(
            (refusal.to_string(), refusal.hint()),
            (format!("no process `{id}`"), Some("relive ps -a".to_owned()))
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_verb_reaches_what_was_not_given_and_nothing_is_seen_after_its_last_handle_and_its_hour(steps in steps()) {
        let mut place = Place::new();
        for (operation, first, second, third) in steps {
            place.run((operation, first, second, third));
            if let Some(holder) = place.pick(&place.model.living, first) {
                place.check(holder);
            }
        }
        for holder in place.model.living.clone() {
            place.check(holder);
        }
    }
}

#[test]
fn limits_and_models_are_changed_by_owners_and_handles_to_oneself_by_nobody() {
    let world = World::new();
    let daemon = world.start();
    let [one, other] = [(), ()].map(|()| daemon.run_hanging(&world).uuid);
    let (person, process) = (access(&daemon, Caller::Person), access(&daemon, Caller::Process(one)));
    let grant = |target: Uuid, to: Uuid| GrantRequest {
        target: target.to_string(),
        to: to.to_string(),
        rights: Rights::Controller,
    };
    let refused = daemon.block(process.grant(grant(one, one), None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Permission);
    daemon.block(person.grant(grant(other, one), None)).unwrap();
    let with = |change: fn(&mut ResumeRequest)| {
        let mut request = resume();
        change(&mut request);
        daemon.block(process.resume(&other.to_string(), request, None)).map(drop)
    };
    let raised = with(|request| request.limits.max_steps = Some(99));
    let changed = with(|request| request.model = Some("script/other.yaml".to_owned()));
    assert_eq!([raised, changed].map(|answer| answer.unwrap_err().code()), [ErrorCode::Permission; 2]);
    with(|_| {}).unwrap();
}

fn access(daemon: &Daemon, caller: Caller) -> Access {
    Access::new(Arc::clone(&daemon.runtime), caller)
}
