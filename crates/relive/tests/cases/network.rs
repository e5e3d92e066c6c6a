//! Programs and agents whose network is a list of hosts.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::isolation::{RELIVE, worlds};
use crate::world::{Begun, World};

/// A server of this machine that answers every connection with a line.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsesame\n");
        }
    });
    port
}

/// A command that asks the proxy for a host and prints the answer.
fn get(host: &str, port: u16) -> String {
    let request = format!("GET http://{host}:{port}/ HTTP/1.1\\r\\n\\r\\n");
    format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf \"{request}\" >&3; cat <&3'")
}

/// An agent that runs these commands, one after the other.
fn shell(commands: &[String]) -> String {
    let call = |command: &String| json!({"calls": [{"name": "shell", "args": {"command": command}}]});
    let turns: Vec<Value> = commands.iter().map(call).chain([json!({"text": "done"})]).collect();
    json!({ "turns": turns }).to_string()
}

/// The requests that `strace` shows, as `host verdict`.
fn requests(world: &World, id: &str) -> Vec<String> {
    let shown = world.relive(&["strace", "--json", id]).ok().stdout;
    let events = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
    events
        .filter(|event| event["kind"] == "network")
        .map(|event| format!("{} {}", text(&event, "host"), text(&event, "verdict")))
        .collect()
}

fn results(world: &World, begun: &Begun) -> Vec<String> {
    let ended = world.records(&begun.uuid, "call_ended").into_iter();
    ended.map(|record| record["result"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn case_77_an_allowed_host_answers_and_another_is_refused_by_name_and_recorded() {
    for world in worlds() {
        let port = server();
        let script = format!("{}; {}", get("good.localhost", port), get("bad.localhost", port));
        let net = ["--isolation", "confined", "--net", "allow:good.localhost"];
        let args = [&["exec", "--name", "listed"], &net[..], &["--", "sh", "-c", &script]].concat();
        let shown = world.relive(&args);
        assert!(shown.stdout.contains("sesame"), "{shown:?}");
        assert!(shown.stdout.contains("403 bad.localhost is not in the allow list"), "{shown:?}");
        assert_eq!(requests(&world, "listed"), ["good.localhost allowed", "bad.localhost refused"]);
        assert_eq!(world.info("listed")["session"]["network"], "allow:good.localhost");
        let info = world.relive(&["info", "listed"]).ok().stdout;
        assert!(info.contains("NETWORK    allow:good.localhost\n"), "{info}");
        world.relive(&["exec", "--net", "allow:a b", "--", "true"]).fails(2, &["is not a domain"]);
    }
}

#[test]
fn a_child_reaches_no_host_that_its_parent_does_not() {
    for world in worlds() {
        let script = format!(
            "{RELIVE} exec -d --name kid --net allow:a.localhost,b.localhost -- true; {RELIVE} wait kid; \
             {RELIVE} exec -d --name open --net full -- true; {RELIVE} wait open"
        );
        let net = ["--isolation", "confined", "--net", "allow:b.localhost,c.localhost"];
        world.relive(&[&["exec"], &net[..], &["--", "sh", "-c", &script]].concat());
        assert_eq!(world.info("kid")["session"]["network"], "allow:b.localhost");
        assert_eq!(world.info("open")["session"]["network"], "allow:b.localhost,c.localhost");
    }
}

#[test]
fn the_network_of_confined_programs_comes_from_the_configuration_and_of_an_agent_from_its_file() {
    for world in worlds() {
        world.configure("isolation: {network: [conf.localhost]}\n");
        let exec = |name: &str, flags: &[&str]| {
            world.relive(&[&["exec", "--name", name], flags, &["--", "true"]].concat()).ok();
            world.info(name)["session"]["network"].clone()
        };
        assert_eq!(exec("one", &["--isolation", "confined"]), "allow:conf.localhost");
        assert_eq!(exec("two", &["--isolation", "confined", "--net", "full"]), "full");
        assert_eq!(exec("three", &["--isolation", "sealed"]), "none");
        assert_eq!(exec("four", &[]), "full");
        let agents = world.root().join("config/relive/agents");
        std::fs::create_dir_all(&agents).unwrap();
        std::fs::write(agents.join("held.yaml"), "network: [file.localhost]\n").unwrap();
        let run = |flags: &[&str]| {
            let begun = world.run_with("turns: [{text: done}]", flags);
            world.info(&begun.uuid)["network"].clone()
        };
        assert_eq!(run(&[]), json!({"allow": ["conf.localhost"]}));
        assert_eq!(run(&["--agent", "held"]), json!({"allow": ["file.localhost"]}));
        assert_eq!(run(&["--agent", "held", "--net", "none"]), "none");
    }
}

#[test]
fn case_77_a_program_keeps_its_proxy_while_there_is_no_daemon() {
    for world in worlds() {
        let port = server();
        let script = format!(
            "touch ready; while [ ! -e go ]; do sleep 0.02; done; {}; touch asked; while [ ! -e end ]; do sleep 0.02; done",
            get("good.localhost", port)
        );
        let net = ["--isolation", "confined", "--net", "allow:good.localhost"];
        let begun = [&["exec", "-d", "--json", "--name", "kept"], &net[..], &["--", "sh", "-c", &script]].concat();
        world.relive(&begun).ok();
        let wait = |name: &str| crate::world::wait_until(name, || world.work().join(name).exists());
        wait("ready");
        world.kill_daemon();
        std::fs::write(world.work().join("go"), "").unwrap();
        wait("asked");
        std::fs::write(world.work().join("end"), "").unwrap();
        world.relive(&["wait", "kept"]).ok();
        assert!(world.relive(&["logs", "kept"]).ok().stdout.contains("sesame"));
        crate::world::wait_until("the request is shown", || requests(&world, "kept") == ["good.localhost allowed"]);
    }
}

#[test]
fn case_77_an_unknown_host_parks_the_agent_and_the_answer_reaches_its_command() {
    for world in worlds() {
        let port = server();
        // A rule allows no command with a redirection.
        for host in ["new.localhost", "worse.localhost"] {
            std::fs::write(world.work().join(host), get(host, port)).unwrap();
        }
        let model =
            world.script(&shell(&["sh new.localhost", "sh worse.localhost", "sh new.localhost"].map(str::to_owned)));
        let begun = world.run_model(&model, &["--allow", "shell:sh *", "--net", "allow:good.localhost"]);
        let asked = world.await_display(&begun.uuid, "approval");
        assert_eq!(asked["approval"]["tool"], "network", "{asked}");
        assert_eq!(asked["approval"]["args"]["host"], "new.localhost");
        let shown = world.relive(&["resolve", &begun.uuid]).ok().stdout;
        assert!(shown.contains("asks to reach new.localhost"), "{shown}");
        // The question and the command outlive the daemon.
        world.kill_daemon();
        world.await_display(&begun.uuid, "approval");
        world.relive(&["resolve", &begun.uuid, "--allow"]).ok();
        let asked = world.await_display(&begun.uuid, "approval");
        assert_eq!(asked["approval"]["args"]["host"], "worse.localhost");
        world.relive(&["resolve", &begun.uuid, "--deny"]).ok();
        world.relive(&["wait", &begun.uuid]).ok();
        let results = results(&world, &begun);
        assert!(results[0].contains("sesame"), "{results:?}");
        assert!(results[1].contains("403 worse.localhost was denied by the user"), "{results:?}");
        assert!(results[2].contains("sesame"), "it is not asked again: {results:?}");
    }
}

#[test]
fn case_77_without_a_person_an_unknown_host_is_refused() {
    for world in worlds() {
        let port = server();
        let model = world.script(&shell(&[get("new.localhost", port)]));
        let begun = world.run_model(&model, &["--yes", "--net", "allow:good.localhost"]);
        world.relive(&["wait", &begun.uuid]).ok();
        let results = results(&world, &begun);
        assert!(results[0].contains("403 new.localhost is not in the allow list"), "{results:?}");
        assert_eq!(requests(&world, &begun.uuid), ["new.localhost refused"]);
    }
}

#[test]
fn the_commands_of_an_agent_are_confined_by_default_and_it_is_said() {
    for world in worlds() {
        let model = world.script(&shell(&["echo x > here; echo x > ../outside".into()]));
        let begun = world.run_model(&model, &["--yes"]);
        world.relive(&["wait", &begun.uuid]).ok();
        assert_eq!(world.info(&begun.uuid)["isolation"], "confined");
        assert!(world.work().join("here").exists() && !world.root().join("outside").exists());
        let info = world.relive(&["info", &begun.uuid]).ok().stdout;
        assert!(info.contains("ISOLATION  confined\n"), "{info}");
        if world.user().is_none() {
            let line = format!("run --yes --model {model} again");
            let first = world.on_terminal(&line).stdout;
            assert!(
                first.lines().next().unwrap().ends_with("; its commands can write only in this directory"),
                "{first}"
            );
        }
        world.configure("isolation: {agents: none}\n");
        let begun = world.run_model(&model, &["--yes"]);
        world.relive(&["wait", &begun.uuid]).ok();
        assert!(world.root().join("outside").exists(), "at none it is written");
        let info = world.relive(&["info", &begun.uuid]).ok().stdout;
        assert!(info.contains("ISOLATION  none\n"), "{info}");
    }
}

#[test]
fn an_agent_runs_without_isolation_and_says_so_if_the_machine_cannot_confine() {
    for world in worlds() {
        // Inside of a confined program there are no more namespaces: a machine that cannot confine. It cannot launch either.
        std::fs::write(world.work().join("agent.yaml"), "turns: [{text: done}]").unwrap();
        let script = format!(
            "for name in $(env | grep -o '^RELIVE_[A-Z_]*'); do unset $name; done; mkdir inner; \
             export RELIVE_DATA_DIR=$PWD/inner/data RELIVE_SOCKET=$PWD/inner/socket XDG_CONFIG_HOME=$PWD/inner; \
             {RELIVE} run -d --yes --name inside --model script/agent.yaml go >&2 && {RELIVE} wait inside >&2 && \
             {RELIVE} info inside; {RELIVE} run -d --isolation confined --model script/agent.yaml go; {RELIVE} daemon stop >&2"
        );
        let shown = world.relive(&["exec", "--isolation", "confined", "--", "sh", "-c", &script]);
        assert!(shown.stdout.contains("ISOLATION  none\n"), "{shown:?}");
        assert!(shown.stderr.contains("this machine cannot enforce isolation confined"), "{shown:?}");
    }
}
