use super::*;

fn surroundings() -> Surroundings {
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    Surroundings {
        cwd: "/home/a/work".into(),
        temporary: paths(&["/tmp", "/var/tmp"]),
        caches: paths(&["/home/a/.cache"]),
        hidden: vec![("/home/a/.ssh".into(), Shape::Directory), ("/run/docker.sock".into(), Shape::Other)],
        devices: paths(&["/dev/null"]),
        proc_controls: paths(&["/proc/sys"]),
        ..Surroundings::default()
    }
}

fn machine() -> Machine {
    Machine { no_namespaces: None, landlock_abi: SCOPE_ABI }
}

fn confined() -> Policy {
    Policy { isolation: Isolation::Confined, ..Policy::default() }
}

/// Returns the mounts as `KIND PATH`, in their order.
fn drawn(found: &Surroundings, policy: &Policy) -> Vec<String> {
    let plan = Plan::new(policy, found, &machine()).unwrap();
    let word = |mount: &Mount| match mount {
        Mount::Writable { .. } => "writable",
        Mount::ReadOnly { .. } => "read-only",
        Mount::Console { .. } => "console",
        Mount::Temporary { .. } => "temporary",
        Mount::Hidden { .. } => "hidden",
        Mount::HiddenFile { .. } => "hidden-file",
        Mount::Devices { .. } => "devices",
        Mount::Terminals { .. } => "terminals",
        Mount::Proc { .. } => "proc",
        Mount::ProcReadOnly { .. } => "proc-read-only",
    };
    plan.mounts.iter().map(|mount| format!("{} {}", word(mount), mount.at().display())).collect()
}

fn position(drawn: &[String], line: &str) -> usize {
    drawn.iter().position(|other| other == line).unwrap_or_else(|| panic!("{line} is not in {drawn:#?}"))
}

#[test]
fn secrets_inside_of_the_working_directory_are_hidden_after_it() {
    let drawn = drawn(&Surroundings { cwd: "/home/a".into(), ..surroundings() }, &confined());
    assert!(position(&drawn, "writable /home/a") < position(&drawn, "hidden /home/a/.ssh"));
}

#[test]
fn a_working_directory_below_the_temporary_one_is_mounted_in_the_private_one() {
    let found = Surroundings { cwd: "/tmp/x/work".into(), ..surroundings() };
    let drawn = drawn(&found, &confined());
    assert!(position(&drawn, "temporary /tmp") < position(&drawn, "writable /tmp/x/work"));
    let here = drawn_of_temporary_itself();
    assert!(!here.contains(&"temporary /tmp".to_owned()), "the working directory itself is not covered");
    position(&here, "writable /tmp");
}

fn drawn_of_temporary_itself() -> Vec<String> {
    drawn(&Surroundings { cwd: "/tmp".into(), ..surroundings() }, &confined())
}

#[test]
fn the_state_of_a_program_is_writable_except_for_the_parts_that_execute_commands() {
    let state = crate::FoundState {
        writable: vec!["/home/a/.cli".into()],
        fixed: vec![
            ("/home/a/.cli/settings.json".into(), Shape::Other),
            ("/home/a/.cli/plugins".into(), Shape::Directory),
        ],
        private: vec!["/home/a/.cli/scripts".into()],
        ..crate::FoundState::default()
    };
    let found = Surroundings { state: state.clone(), ..surroundings() };
    let own = drawn(&found, &confined());
    assert!(position(&own, "writable /home/a/.cli") < position(&own, "read-only /home/a/.cli/settings.json"));
    position(&own, "read-only /home/a/.cli/plugins");
    position(&own, "temporary /home/a/.cli/scripts");
    let inside = drawn(&Surroundings { cwd: "/home/a/.cli/plugins".into(), ..found.clone() }, &confined());
    position(&inside, "writable /home/a/.cli/plugins");
    let linked = crate::FoundState { problems: vec!["/home/a/.cli is a link".to_owned()], ..state.clone() };
    let refused = Plan::new(&confined(), &Surroundings { state: linked, ..surroundings() }, &machine()).unwrap_err();
    assert!(refused.to_string().contains("/home/a/.cli is a link"), "{refused}");
    let open = crate::FoundState { unprotected: vec!["/home/a/.cli/x is a link".to_owned()], ..state };
    let found = Surroundings { state: open, ..surroundings() };
    assert!(Plan::new(&confined(), &found, &machine()).is_err());
    let degraded = Plan::new(&Policy { unheld: Unheld::Say, ..confined() }, &found, &machine()).unwrap().degraded;
    assert_eq!(degraded, ["isolation: /home/a/.cli/x is a link"]);
}

#[test]
fn a_part_of_the_state_that_was_missing_is_read_only_too_and_so_cannot_be_made_by_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    let fixed = |at: &str, missing| crate::Fixed { at: at.into(), missing };
    let state = crate::State {
        base: base.clone(),
        directories: vec![".cli".into()],
        fixed: vec![
            fixed(".cli/hooks", crate::Missing::Directory),
            fixed(".cli/settings.json", crate::Missing::File("{}".to_owned())),
            fixed(".cli/tmp/bin", crate::Missing::Directory),
        ],
        ..crate::State::default()
    };
    let found = Surroundings { state: crate::FoundState::look(&[state], &[]), ..surroundings() };
    let drawn = drawn(&found, &confined());
    let line = |word: &str, at: &str| format!("{word} {}", base.join(at).display());
    position(&drawn, &line("read-only", ".cli/hooks"));
    position(&drawn, &line("read-only", ".cli/settings.json"));
    // Mounted on itself, so that it cannot be renamed.
    let pinned = position(&drawn, &line("writable", ".cli/tmp"));
    assert!(pinned < position(&drawn, &line("read-only", ".cli/tmp/bin")));
}

#[test]
fn a_program_is_shown_where_an_empty_directory_would_cover_it_and_left_alone_elsewhere() {
    let programs = ["/tmp/bin/relive", "/home/a/work/relive", "/home/a/.ssh/relive", "/usr/bin/relive"];
    let found = Surroundings { programs: programs.iter().map(PathBuf::from).collect(), ..surroundings() };
    let drawn = drawn(&found, &confined());
    assert!(position(&drawn, "temporary /tmp") < position(&drawn, "read-only /tmp/bin/relive"));
    let mounted: Vec<&String> = drawn.iter().filter(|line| line.ends_with("relive")).collect();
    assert_eq!(mounted, ["read-only /tmp/bin/relive"]);
}

#[test]
fn a_private_directory_may_contain_what_is_shown_and_nobody_works_in_a_hidden_one() {
    let private = || vec![PathBuf::from("/data"), "/run/relive".into()];
    let shown = vec![("/run/relive/self".into(), Shape::Directory)];
    let drawn = drawn(&Surroundings { private: private(), shown, ..surroundings() }, &confined());
    assert!(position(&drawn, "hidden /run/relive") < position(&drawn, "read-only /run/relive/self"));
    for cwd in ["/home/a/.ssh", "/home/a/.ssh/keys", "/data", "/data/steps/7"] {
        let found = Surroundings { cwd: cwd.into(), private: private(), ..surroundings() };
        let refused = Plan::new(&confined(), &found, &machine()).unwrap_err();
        assert_eq!(refused.to_string(), format!("the working directory {cwd} is hidden at isolation confined"));
    }
}

#[test]
fn a_path_below_a_hidden_one_is_not_mounted_again() {
    let found = Surroundings {
        hidden: vec![("/home/a".into(), Shape::Directory), ("/home/a/.ssh".into(), Shape::Directory)],
        cwd: "/srv".into(),
        ..surroundings()
    };
    let drawn = drawn(&found, &confined());
    position(&drawn, "hidden /home/a");
    assert!(!drawn.iter().any(|line| line.contains("/home/a/")), "neither secrets nor caches: {drawn:#?}");
}

#[test]
fn the_configuration_of_a_repository_is_protected_unless_the_policy_says_otherwise() {
    let git = crate::GitDirectory {
        pinned: vec!["/home/a/work/.git".into()],
        protected: vec!["/home/a/work/.git/hooks".into()],
        configs: vec!["/home/a/work/.git/config".into()],
    };
    let found = Surroundings { git: vec![git], ..surroundings() };
    let careful = drawn(&found, &confined());
    // Mounted on itself, so that it cannot be renamed.
    assert!(position(&careful, "writable /home/a/work") < position(&careful, "writable /home/a/work/.git"));
    position(&careful, "read-only /home/a/work/.git/config");
    let free = drawn(&found, &Policy { git_config: GitConfig::Writable, ..confined() });
    position(&free, "read-only /home/a/work/.git/hooks");
    assert!(!free.iter().any(|line| line.ends_with("/config")));
}

#[test]
fn protected_files_cannot_be_replaced_by_renaming_their_directory() {
    let settings = "/home/a/work/.claude/settings.json";
    let git = crate::GitDirectory {
        pinned: vec!["/home/a/work/.git".into()],
        protected: vec!["/home/a/work/.git/hooks".into()],
        configs: Vec::new(),
    };
    let at = |cwd: &str| {
        let protected = vec!["/home/a/.mcp.json".into(), settings.into()];
        drawn(&Surroundings { cwd: cwd.into(), protected, git: vec![git.clone()], ..surroundings() }, &confined())
    };
    let drawn = at("/home/a/work");
    assert!(position(&drawn, "writable /home/a/work/.claude") < position(&drawn, &format!("read-only {settings}")));
    assert!(!drawn.iter().any(|line| line.ends_with("/.mcp.json")), "nothing there is writable: {drawn:#?}");
    position(&at("/home/a/work/.claude"), &format!("read-only {settings}"));
    position(&at("/home/a/work/.git/hooks"), "read-only /home/a/work/.git/hooks");
}

#[test]
fn the_namespaces_follow_from_the_word_and_the_user() {
    let check = |policy: Policy, is_root: bool, expect: &str| {
        let found = Surroundings { is_root, ..surroundings() };
        let plan = Plan::new(&policy, &found, &machine()).unwrap();
        assert_eq!(plan.namespaces.iter().map(NamespaceKind::name).collect::<Vec<_>>().join(" "), expect);
    };
    let sealed = Policy { isolation: Isolation::Sealed, ..Policy::default() };
    check(confined(), true, "pid mount ipc");
    check(confined(), false, "user pid mount ipc");
    check(Policy { network: Network::None, ..confined() }, true, "pid mount net ipc");
    check(sealed.clone(), true, "user pid mount net ipc uts cgroup");
    check(Policy { network: Network::Full, ..sealed }, true, "user pid mount ipc uts cgroup");
    check(Policy { namespaces: Namespaces::of([NamespaceKind::Pid]), ..Policy::default() }, true, "pid mount");
    check(Policy { namespaces: Namespaces::of([NamespaceKind::Uts]), ..Policy::default() }, false, "user uts");
    check(Policy::default(), false, "");
}

#[test]
fn a_guarantee_that_cannot_be_given_is_refused_or_said() {
    let weak = Machine { no_namespaces: Some("EPERM".into()), landlock_abi: 3 };
    let refused = Plan::new(&confined(), &surroundings(), &weak).unwrap_err();
    assert!(
        refused.to_string().starts_with("this machine cannot enforce isolation confined: Landlock and seccomp only")
    );
    let plan = Plan::new(&Policy { unheld: Unheld::Say, ..confined() }, &surroundings(), &weak).unwrap();
    assert_eq!(plan.degraded, [LANDLOCK_ONLY]);
    assert!(
        matches!(&plan.landlock, Landlock::Files { version: 3, writable } if writable.contains(&"/home/a/work".into()))
    );

    let found = Surroundings { own_temporary: Some("/home/a".into()), ..surroundings() };
    let plan = Plan::new(&Policy { unheld: Unheld::Say, ..confined() }, &found, &weak).unwrap();
    let Landlock::Files { writable, .. } = plan.landlock else { panic!("{plan:?}") };
    assert!(writable.contains(&"/tmp".into()) && !writable.contains(&"/home/a".into()), "the program chooses TMPDIR");

    let none = Machine { landlock_abi: 0, ..weak };
    let refused = Plan::new(&confined(), &surroundings(), &none).unwrap_err().to_string();
    let missing = "files are not restricted: no namespaces (EPERM) and no Landlock";
    assert_eq!(refused, format!("this machine cannot enforce isolation confined: {missing}"));
    let plan = Plan::new(&Policy { unheld: Unheld::Say, ..confined() }, &surroundings(), &none).unwrap();
    assert_eq!(plan.degraded, [format!("isolation: {missing}")]);

    let old = Machine { no_namespaces: None, landlock_abi: 4 };
    assert!(Plan::new(&confined(), &surroundings(), &old).is_err());
    let offline = Policy { network: Network::None, ..confined() };
    assert_eq!(Plan::new(&offline, &surroundings(), &old).unwrap().degraded, [""; 0], "no sockets but its own");
}

#[test]
fn a_plan_is_the_same_after_it_was_written_down() {
    let plan = Plan::new(&confined(), &surroundings(), &machine()).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn a_program_below_an_isolated_one_works_in_its_directory_only() {
    let check = |cwd: &str, allowed: bool| {
        let found = Surroundings { cwd: cwd.into(), within: Some("/home/a/work".into()), ..surroundings() };
        assert_eq!(Plan::new(&confined(), &found, &machine()).is_ok(), allowed, "{cwd}");
    };
    check("/home/a/work", true);
    check("/home/a/work/below", true);
    check("/home/a/workshop", false);
    check("/home/a", false);
}
