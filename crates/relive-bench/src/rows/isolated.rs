//! `/bin/true` in isolation, by the library with gate, log and exit record, and by programs that isolate, one after the other.

use std::path::Path;

use relive_sandbox::Isolation;
use relive_session::stage::SessionResult;

use super::launchers::{Launcher, ratio, status, take_turns};
use super::sessions::quiet;
use crate::Result;
use crate::lab::Lab;
use crate::options::Options;
use crate::place::Place;
use crate::table::{Mark, Row};

const PROGRAM: &str = "/bin/true";
/// Beside `bwrap --unshare-all`, with gate, log and exit record.
const BESIDE_BWRAP_MAX: f64 = 1.0;
const BUNDLE: &str = "bundle";

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let lab = Lab::new(place)?;
    let work = place.directory("isolated")?;
    let bundle = work.join(BUNDLE);
    write_bundle(&bundle)?;
    let mut launchers = Vec::new();
    for (name, isolation) in [("confined", Isolation::Confined), ("sealed", Isolation::Sealed)] {
        let Some(spec) = lab.isolated(&[PROGRAM], isolation, &work) else {
            eprintln!("isolated: this machine cannot isolate: not measured");
            return Ok(Vec::new());
        };
        let lab = &lab;
        launchers.push(Launcher::new(name, move || {
            let connection = lab.launch(&lab.next()?, &spec)?;
            lab.ended(&connection, &SessionResult::Exited(0))
        }));
    }
    let bundle = bundle.display().to_string();
    let container = format!("relive-bench-{}", std::process::id());
    let runc = ["run", "--bundle", &bundle, &container].map(str::to_owned).to_vec();
    // It does not work with the two kinds of cgroups side by side.
    let crun = ["--cgroup-manager=disabled".to_owned()].into_iter().chain(runc.clone()).collect();
    let flags = if rustix::process::geteuid().is_root() { "-impuCf" } else { "-rimpuCf" };
    let beside = [
        ("bwrap", ["--unshare-all", "--ro-bind", "/", "/", PROGRAM].map(str::to_owned).to_vec()),
        ("unshare", [flags, "-n", "--mount-proc", PROGRAM].map(str::to_owned).to_vec()),
        ("crun", crun),
        ("runc", runc),
    ];
    for (name, arguments) in beside {
        if status(quiet(&[name]).args(&arguments)).is_ok() {
            launchers.push(Launcher::new(name, move || status(quiet(&[name]).args(&arguments))));
        } else {
            eprintln!("isolated: {name} is not there, or does not work here: not measured");
        }
    }
    take_turns(options, &mut launchers)?;
    let row = |ours: &str, peer: &str, mark| ratio(&launchers, ours, peer, format!("/bin/true {ours}"), mark);
    let mut rows = Vec::new();
    for ours in ["confined", "sealed"] {
        rows.extend(row(ours, "bwrap", Mark::AtMost(BESIDE_BWRAP_MAX)));
        rows.extend(["unshare", "crun", "runc"].into_iter().filter_map(|peer| row(ours, peer, Mark::None)));
    }
    Ok(rows)
}

/// Writes what `crun` and `runc` run: the program in namespaces like those of `sealed`, with the machine's programs and
/// libraries, read-only.
fn write_bundle(bundle: &Path) -> Result<()> {
    let namespaces: Vec<_> =
        ["pid", "mount", "ipc", "uts", "network", "cgroup"].map(|kind| serde_json::json!({"type": kind})).into();
    let present = ["/usr", "/bin", "/lib", "/lib64"].into_iter().filter(|path| Path::new(path).exists());
    let bound = present.map(
        |path| serde_json::json!({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]}),
    );
    let proc = serde_json::json!({"destination": "/proc", "type": "proc", "source": "proc"});
    let dev = serde_json::json!({
        "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"],
    });
    let mounts: Vec<_> = bound.chain([proc, dev]).collect();
    let config = serde_json::json!({
        "ociVersion": "1.0.2",
        "process": {"args": [PROGRAM], "cwd": "/", "env": ["PATH=/usr/bin:/bin"], "user": {"uid": 0, "gid": 0}},
        "root": {"path": "root", "readonly": true},
        "mounts": mounts,
        "linux": {"namespaces": namespaces},
    });
    std::fs::create_dir_all(bundle.join("root"))?;
    std::fs::write(bundle.join("config.json"), config.to_string())?;
    Ok(())
}
