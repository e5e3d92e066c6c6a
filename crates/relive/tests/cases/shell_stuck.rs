//! A shell tool of which one process waits in the kernel, where no freezer reaches it.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::world::{World, wait_for, wait_until};

/// Lets a thread lock a page that nobody provides, so that it waits in the kernel (`D`), and says how to provide it.
const STUCK: &str = r#"
import ctypes, fcntl, os, platform, struct, sys, threading
libc = ctypes.CDLL(None)
number = {"x86_64": 323, "aarch64": 282}.get(platform.machine())
fd = libc.syscall(number, os.O_CLOEXEC) if number else -1
if fd < 0:
    sys.exit(77)
libc.mmap.restype = ctypes.c_void_p
page = libc.mmap(None, 4096, 3, 0x22, -1, 0)
fcntl.ioctl(fd, 0xc018aa3f, bytearray(struct.pack("QQQ", 0xaa, 0, 0)))
fcntl.ioctl(fd, 0xc020aa00, bytearray(struct.pack("QQQQ", page, 4096, 1, 0)))
waits = threading.Thread(target=lambda: libc.mlock(ctypes.c_void_p(page), 4096))
waits.start()
while " D " not in open("/proc/self/task/%d/stat" % waits.native_id).read():
    pass
open("there.new", "w").write("%d %d %d" % (os.getpid(), fd, page))
os.rename("there.new", "there")
waits.join()
"#;

/// Provides the page from outside, because its own process is frozen.
const PROVIDE: &str = r#"
import ctypes, fcntl, struct, sys
pid, fd, page = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
own = libc.syscall(438, libc.syscall(434, pid, 0), fd, 0)
if own < 0:
    sys.exit("pidfd_getfd: %d" % ctypes.get_errno())
fcntl.ioctl(own, 0xc020aa04, bytearray(struct.pack("QQQQ", page, 4096, 0, 0)))
"#;

#[test]
fn a_pause_of_a_shell_tool_is_pausing_until_all_of_it_stands_still() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root reaches the page of another process");
    }
    let world = World::with_config("tools: {shell: allow}\nisolation: {agents: none}\n");
    let file = |name: &str| world.work().join(name);
    fs::write(file("stuck.py"), STUCK).unwrap();
    let counts = "(python3 stuck.py || touch skipped) & n=0; while :; do n=$((n+1)); echo $n > count; done";
    let args = json!({ "command": counts });
    let script = format!("turns: [{{calls: [{{name: shell, args: {args}}}]}}, {{text: waiting, hang: true}}]");
    let process = world.run(&script);
    wait_until("it waits in the kernel", || file("there").exists() || file("skipped").exists());
    if file("skipped").exists() {
        return eprintln!("skipped: no program can wait in the kernel here: python3 and userfaultfd are needed");
    }
    let count = || fs::read_to_string(file("count")).unwrap_or_default();
    wait_until("it counts", || !count().is_empty());

    world.relive(&["pause", "--now", &process.uuid]).ok();
    let still = wait_for("whoever can stand still does", || {
        let before = count();
        world.relive(&["ps"]).ok();
        (count() == before).then_some(before)
    });
    assert_eq!(world.info(&process.uuid)["display"], "pausing", "one process could still run");
    assert!(world.records(&process.uuid, "call_ended").is_empty());

    let there = fs::read_to_string(file("there")).unwrap();
    let provided = Command::new("python3").args(["-c", PROVIDE]).args(there.split(' ')).output().unwrap();
    assert!(provided.status.success(), "{provided:?}");
    world.await_display(&process.uuid, "suspended");
    assert_eq!(count(), still, "nothing ran meanwhile");
    world.relive(&["resume", &process.uuid]).ok();
    wait_until("it counts on", || count() != still);
    world.relive(&["kill", "-s", "KILL", &process.uuid]).ok();
    world.relive(&["wait", &process.uuid]).exits(1);
}
