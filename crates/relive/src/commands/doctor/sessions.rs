//! The rows about the process trees of sessions.

use relive_session::spec::Machine;
use relive_session::tree::Rungs;
use serde_json::{Value, json};

use super::Row;

const DELEGATE: &str = "run the daemon as root, or in a cgroup of its own: systemd-run --user --scope -p Delegate=yes \
                        relive daemon restart";
const NAMESPACE: &str = "run the daemon as root, or in a cgroup of its own: systemd-run --user --scope -p Delegate=yes \
                         relive daemon restart; for ssh and sudo alone: RELIVE_LADDER=process-group relive daemon restart";
const CONTROLLER: &str = "run the daemon as root, or in a cgroup to which this controller is delegated";

pub(super) fn rows(rungs: &Rungs) -> [Row; 6] {
    let mut rows = [
        tree(&rungs.tree),
        pause(&rungs.pause),
        kill(&rungs.kill),
        pids(&rungs.pids),
        memory(&rungs.memory),
        cpu(&rungs.cpu),
    ];
    for row in &mut rows {
        // The ladder's own list of weaknesses.
        let about = |line: &&String| line.split(": ").next() == Some(row.name);
        if let Some((_, said)) = rungs.degraded.iter().find(about).and_then(|line| line.split_once(": ")) {
            row.means = format!("{}; {said}", row.means);
        }
    }
    rows
}

fn tree(rung: &str) -> Row {
    let row = |means| Row::ok("tree", rung, means);
    match rung {
        "cgroup2" => row("every program has a cgroup of its own"),
        "cgroup1" => {
            row("every program has cgroups of its own").weak("mount cgroup2, which can kill a whole program at once")
        }
        "pid-namespace" => row("every program has a PID namespace of its own, and sees no other pids").weak(NAMESPACE),
        _ => row("a program has no cgroup, only a process group that its processes can leave").weak(DELEGATE),
    }
}

fn pause(rung: &str) -> Row {
    let row = |means| Row::ok("pause", rung, means);
    match rung {
        "cgroup2-freeze" => row("the kernel freezes all processes of a program"),
        "cgroup1-freezer" => row("the kernel freezes all processes of a program").weak("mount cgroup2"),
        _ => row("each process is stopped by a signal, which its parent can see").weak(DELEGATE),
    }
}

fn kill(rung: &str) -> Row {
    let row = |means| Row::ok("kill", rung, means);
    match rung {
        "cgroup-kill" => row("the kernel kills all processes of a program at once"),
        "cgroup-sweep" => row("the processes of a program are frozen, then killed one by one")
            .weak("use Linux 5.14 or newer with cgroup2"),
        "pid-namespace" => row("the kernel kills all processes of a program with its first one"),
        _ => row("the descendants of the shim are stopped, then killed one by one").weak(DELEGATE),
    }
}

fn pids(rung: &str) -> Row {
    let row = |means| Row::ok("pids", rung, means);
    match rung {
        "cgroup2" | "cgroup1" => row("the number of processes of a program can be limited"),
        "rlimit" => row("the number of processes of a program can be limited").weak(CONTROLLER),
        _ => row("the number of processes of a program cannot be limited").weak(CONTROLLER),
    }
}

fn cpu(rung: &str) -> Row {
    let row = |means| Row::ok("cpu", rung, means);
    match rung {
        "cgroup2" | "cgroup1" => row("the processor time of a program can be limited"),
        _ => row("a program with --cpu is refused, because the limit cannot be enforced").weak(CONTROLLER),
    }
}

pub(super) fn isolation(machine: &Machine) -> Row {
    const NAMESPACES: &str =
        "see user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns in sysctl -a";
    let row = |value: String, means: String| Row::ok("isolation", value, means);
    match (&machine.no_namespaces, machine.landlock_abi) {
        (None, abi @ 6..) => {
            row(format!("namespaces, Landlock {abi}"), "a program can be confined or sealed".to_owned())
        }
        (None, _) => row(
            "namespaces".to_owned(),
            "a program can be sealed; a confined one reaches abstract sockets of others".to_owned(),
        )
        .weak("use Linux 6.12 or newer with Landlock"),
        (Some(refusal), 1..) => row(
            "Landlock".to_owned(),
            format!("a confined program reads secrets and reaches sockets, so it needs --allow-degraded: {refusal}"),
        )
        .weak(NAMESPACES),
        (Some(refusal), 0) => row("none".to_owned(), format!("no program can be confined: {refusal}")).weak(NAMESPACES),
    }
}

/// Returns how much of each isolation this machine gives: `full`, `degraded` or `none`.
pub(super) fn grades(machine: &Machine) -> Value {
    let (confined, sealed) = match (&machine.no_namespaces, machine.landlock_abi) {
        (None, 6..) => ("full", "full"),
        (None, _) => ("degraded", "full"),
        (Some(_), 1..) => ("degraded", "none"),
        (Some(_), 0) => ("none", "none"),
    };
    json!({ "confined": confined, "sealed": sealed })
}

fn memory(rung: &str) -> Row {
    let row = |means| Row::ok("memory", rung, means);
    match rung {
        "cgroup2" | "cgroup1" => row("the memory of a program can be limited"),
        _ => row("a program with --memory is refused, because the limit cannot be enforced").weak(CONTROLLER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_isolation_has_a_grade() {
        let check = |no_namespaces: Option<&str>, landlock_abi, confined: &str, sealed: &str| {
            let machine = Machine { no_namespaces: no_namespaces.map(Into::into), landlock_abi };
            assert_eq!(grades(&machine), json!({ "confined": confined, "sealed": sealed }));
        };
        check(None, 6, "full", "full");
        check(None, 3, "degraded", "full");
        check(Some("EPERM"), 3, "degraded", "none");
        check(Some("EPERM"), 0, "none", "none");
    }
}
