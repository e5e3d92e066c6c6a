//! The stages of a program: what it reaches, what stops it on the way, what is known of it afterwards.

use std::fs;

use serde_json::json;

use super::world::{World, wait_until};

#[test]
fn case_30_a_program_reaches_its_end_and_its_arguments_and_folder_arrive() {
    for world in World::of_each_kind() {
        let gated = world.exec(&["--gate"], &["true"]);
        assert_eq!(world.await_stage(&gated, "ready")["result"], json!(null));
        world.relive(&["proceed", &gated.uuid]).ok();
        let answer = world.ends(&gated, 0);
        assert_eq!(answer["status"], json!({"kind": "exited", "code": 0}));
        let session = &world.info(&gated.uuid)["session"];
        assert_eq!((&session["stage"], &session["result"]), (&json!("exited"), &json!({"exited": 0})));
        let compact = format!("<spawn exited(0) host={}>", session["host_pid"]);
        assert_eq!(session["compact"], json!(compact));
        assert!(world.relive(&["info", &gated.uuid]).ok().stdout.contains(&compact));

        let failing = world.exec(&[], &["false"]);
        world.ends(&failing, 1);
        assert_eq!(world.info(&failing.uuid)["session"]["result"], json!({"exited": 1}));

        let missing = world.exec(&[], &["no-such-program"]);
        let answer = world.ends(&missing, 127);
        let status = json!({"kind": "startup_failed", "stage": "execve", "errno": "ENOENT", "code": 2});
        assert_eq!(answer["status"], status);
        let session = &world.info(&missing.uuid)["session"];
        assert_eq!(session["stage"], "errored");
        assert_eq!(session["result"], json!({"error": {"stage": "execve", "errno": "ENOENT", "code": 2}}));
        world.relive(&["exec", "--", "no-such-program"]).fails(127, &["execve", "ENOENT"]);
        world.relive(&["exec", "--", "/etc/passwd"]).fails(126, &["execve", "EACCES"]);

        fs::create_dir_all(world.work().join("below")).unwrap();
        let typed = ["exec", "--cwd", "below", "--", "sh", "-c", "pwd; printf '<%s>' \"$@\"", "sh", "a b", "", "-t"];
        let shown = world.relive(&typed).ok();
        let below = fs::canonicalize(world.work().join("below")).unwrap();
        assert_eq!(shown.stdout, format!("{}\n<a b><><-t>", below.display()));
    }
}

#[test]
fn case_31_a_signal_ends_it_or_waits_for_it_at_the_gate() {
    for world in World::of_each_kind() {
        let sleeper = world.exec(&[], &["sleep", "1000"]);
        world.await_stage(&sleeper, "running");
        world.relive(&["kill", &sleeper.uuid]).ok();
        let answer = world.ends(&sleeper, 143);
        assert_eq!(answer["why"], "user");
        assert_eq!(world.info(&sleeper.uuid)["session"]["result"], json!({"signaled": 15}));
        let told = world.relive(&["kill", &sleeper.uuid]).ok();
        assert!(told.stdout.contains("ended"), "{told:?}");

        let gated = world.exec(&["--gate"], &["sleep", "1000"]);
        world.await_stage(&gated, "ready");
        world.relive(&["kill", "-s", "INT", &gated.uuid]).ok();
        assert_eq!(world.info(&gated.uuid)["session"]["stage"], "ready", "it is kept");
        world.relive(&["proceed", &gated.uuid]).ok();
        world.ends(&gated, 130);
        assert_eq!(world.info(&gated.uuid)["session"]["result"], json!({"signaled": 2}));

        let gated = world.exec(&["--gate"], &["touch", "it-ran"]);
        world.await_stage(&gated, "ready");
        world.relive(&["kill", "-s", "KILL", &gated.uuid]).ok();
        world.ends(&gated, 137);
        assert!(!world.work().join("it-ran").exists(), "SIGKILL does not wait for the gate");
    }
}

#[test]
fn case_32_what_is_aborted_at_the_gate_never_runs() {
    for world in World::of_each_kind() {
        let gated = world.exec(&["--gate"], &["touch", "it-ran"]);
        world.await_stage(&gated, "ready");
        world.relive(&["abort", &gated.uuid]).ok();
        let answer = world.ends(&gated, 125);
        assert_eq!((&answer["why"], &answer["exit"]["reason"]), (&json!("aborted"), &json!("aborted")));
        assert_eq!(world.info(&gated.uuid)["session"]["result"], "aborted");
        assert!(!world.work().join("it-ran").exists());
        world.relive(&["proceed", &gated.uuid]).fails(3, &["no process"]);
        world.relive(&["abort", &gated.uuid]).fails(3, &["no process"]);

        let sleeper = world.exec(&[], &["sleep", "1000"]);
        world.await_stage(&sleeper, "running");
        world.relive(&["abort", &sleeper.uuid]).fails(3, &["running"]);
        assert_eq!(world.info(&sleeper.uuid)["display"], "running");
        world.relive(&["kill", "-s", "KILL", &sleeper.uuid]).ok();
        world.ends(&sleeper, 137);
    }
}

#[test]
fn case_33_the_pid_on_the_host_is_known_also_in_a_namespace_and_after_the_end() {
    for world in World::of_each_kind() {
        for (flags, own) in [(&["--ns", "pid"][..], Some(2)), (&["--ns", "pid", "--init=false"], Some(1)), (&[], None)]
        {
            let sleeper = world.exec(flags, &["sleep", "1000"]);
            if let Some(failed) = world.info(&sleeper.uuid)["status"].as_object() {
                eprintln!("skipped: no PID namespace can be made here: {failed:?}");
                continue;
            }
            let session = world.await_stage(&sleeper, "running");
            let host = session["host_pid"].as_u64().unwrap();
            let status = fs::read_to_string(format!("/proc/{host}/status")).unwrap();
            let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
            let inner: u64 = inner.split_whitespace().last().unwrap().parse().unwrap();
            assert_eq!(session["child_pid"], inner);
            if let Some(own) = own {
                assert_eq!(inner, own);
                assert_eq!(session["init_pid"].is_u64(), own == 2);
            }
            assert_eq!(
                fs::read_to_string(format!("/proc/{host}/comm")).unwrap(),
                "sleep\n",
                "the program, not its init"
            );
            world.relive(&["kill", "-s", "KILL", &sleeper.uuid]).ok();
            world.ends(&sleeper, 137);
            let after = &world.info(&sleeper.uuid)["session"];
            assert_eq!((&after["host_pid"], &after["child_pid"]), (&session["host_pid"], &session["child_pid"]));
            wait_until("it is gone", || !super::sessions_support::is_alive(host));
        }
    }
}
