//! The rows about what holds the programs that sessions run.

use relive_session::tree::Ladder;

use super::Row;

const DELEGATE: &str = "run the daemon as root, or in a cgroup of its own: systemd-run --user --scope -p Delegate=yes \
                        relive daemon restart";
const NAMESPACE: &str = "run the daemon as root, or in a cgroup of its own: systemd-run --user --scope -p Delegate=yes \
                         relive daemon restart; for ssh and sudo alone: RELIVE_LADDER=process-group relive daemon restart";
const CONTROLLER: &str = "run the daemon as root, or where this cgroup controller is given to it";

pub(super) fn rows(ladder: &Ladder) -> [Row; 6] {
    let rungs = &ladder.rungs;
    let mut rows = [
        tree(&rungs.tree),
        pause(&rungs.pause),
        kill(&rungs.kill),
        pids(&rungs.pids),
        memory(&rungs.memory),
        cpu(&rungs.cpu),
    ];
    for row in &mut rows {
        // What the ladder itself calls weak.
        let about = |line: &&String| line.split(": ").next() == Some(row.name);
        if let Some((_, said)) = ladder.rungs.degraded.iter().find(about).and_then(|line| line.split_once(": ")) {
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
            row("every program has cgroups of its own").weak("mount cgroup2: it kills at once what v1 sweeps up")
        }
        "pid-namespace" => row("every program has a PID namespace of its own, and sees no other pids").weak(NAMESPACE),
        _ => row("programs are held by their shims only").weak(DELEGATE),
    }
}

fn pause(rung: &str) -> Row {
    let row = |means| Row::ok("pause", rung, means);
    match rung {
        "cgroup2-freeze" => row("the kernel lets all of a program stand still"),
        "cgroup1-freezer" => row("the kernel lets all of a program stand still").weak("mount cgroup2"),
        _ => row("every process is stopped by a signal its parent can see").weak(DELEGATE),
    }
}

fn kill(rung: &str) -> Row {
    let row = |means| Row::ok("kill", rung, means);
    match rung {
        "cgroup-kill" => row("all of a program dies at once"),
        "cgroup-sweep" => row("a program is held still, then killed one by one").weak("Linux 5.14 with cgroup2"),
        "pid-namespace" => row("all of a program dies with its first process"),
        _ => row("what is below the shim is stopped, then killed one by one").weak(DELEGATE),
    }
}

fn pids(rung: &str) -> Row {
    let row = |means| Row::ok("pids", rung, means);
    match rung {
        "cgroup2" | "cgroup1" => row("how many processes a program has can be limited"),
        "rlimit" => row("how many processes a program has can be limited").weak(CONTROLLER),
        _ => row("how many processes a program has cannot be limited").weak(CONTROLLER),
    }
}

fn cpu(rung: &str) -> Row {
    let row = |means| Row::ok("cpu", rung, means);
    match rung {
        "cgroup2" | "cgroup1" => row("how much processor time a program has can be limited"),
        _ => row("a program that asks for a limit of processor time is refused").weak(CONTROLLER),
    }
}

fn memory(rung: &str) -> Row {
    let row = |means| Row::ok("memory", rung, means);
    match rung {
        "cgroup2" | "cgroup1" => row("how much memory a program has can be limited"),
        _ => row("a program that asks for a limit of memory is refused").weak(CONTROLLER),
    }
}
