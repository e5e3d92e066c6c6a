//! Supervisors, and nodes that are resumed, whose daemon is killed all the time.

use std::fs;
use std::time::Duration;

use relive_api::{FlowRequest, FlowStatus, NodeRequest};
use relive_client::BlockingClient;
use relive_core::Uuid;
use serde_json::json;

use crate::daemon::{Daemon, Places};
use crate::dice::{Dice, fresh_seed, number};

/// Daemons that are killed at random moments, and what runs under them.
struct Killed {
    seed: u64,
    dice: Dice,
    places: Places,
    daemon: Option<Daemon>,
    client: BlockingClient,
}

impl Killed {
    fn new() -> Self {
        let seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
        println!("RELIVE_SEED={seed}");
        let places = Places::new(None, 10_000);
        let mut daemon = places.start();
        places.until_it_answers(&mut daemon).unwrap();
        let client = places.client();
        Self { seed, dice: Dice::new(seed), places, daemon: Some(daemon), client }
    }

    fn start(&mut self, kind: &str, text: &str) -> String {
        let uuid: Uuid = self.dice.uuid();
        let request = json!({
            "uuid": uuid, "kind": kind, "file": "tree.yaml", "text": text, "cwd": self.places.work,
            "env": {"PATH": "/usr/bin:/bin"},
        });
        let request: FlowRequest = serde_json::from_value(request).unwrap();
        self.client.call(|client| client.start_flow(&request)).unwrap();
        uuid.to_string()
    }

    /// Kills daemons, so many of all that a run has.
    fn kill(&mut self, share: u64) {
        for _ in 0..(number("RELIVE_KILLS").unwrap_or(100) / share).max(1) {
            std::thread::sleep(Duration::from_millis(self.dice.between(0, 150)));
            if let Some(daemon) = self.daemon.take() {
                daemon.kill();
            }
            let mut daemon = self.places.start();
            if self.dice.chance(70) {
                self.places.until_it_answers(&mut daemon).unwrap();
            }
            self.daemon = Some(daemon);
        }
        if let Some(daemon) = &mut self.daemon {
            self.places.until_it_answers(daemon).unwrap();
        }
    }

    /// Waits for the end of a tree, and returns its exit code and its nodes.
    fn ended(&self, id: &str) -> (u8, FlowStatus) {
        let answer = self.client.call(|client| client.wait_for_end(id)).unwrap();
        (answer.exit_code, self.client.call(|client| client.flow(id)).unwrap())
    }

    /// How often a line was written.
    fn ran(&self, line: &str) -> usize {
        let lines = fs::read_to_string(&self.places.lines).unwrap_or_default();
        lines.lines().filter(|other| *other == line).count()
    }

    fn finish(mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop(&self.client).unwrap();
        }
        self.places.remove();
    }
}

fn words(status: &FlowStatus) -> String {
    let word = |node: &relive_api::NodeStatus| format!("{}={}", node.name, node.state);
    status.nodes.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn supervisors_restart_each_child_as_often_as_it_fails() {
    let mut killed = Killed::new();
    let lines = killed.places.lines.display().to_string();
    // Each child fails until it has run so many times; what finished is not started again.
    let mut child = |name: &str| {
        let runs = killed.dice.between(1, 9);
        let script =
            format!("echo {name} >> {lines}; sleep 0.0{}; test $(grep -cx {name} {lines}) -ge {runs}", runs * 7);
        (name.to_owned(), runs, format!("{{command: [sh, -c, '{script}'], restart: transient}}"))
    };
    let (outer, inner): (Vec<_>, Vec<_>) =
        (["a", "b", "c"].iter().map(|name| child(name)).collect(), ["d", "e"].iter().map(|name| child(name)).collect());
    let listed = |children: &[(String, u64, String)], margin: &str| -> String {
        children.iter().map(|(name, _, child)| format!("{margin}{name}: {child}\n")).collect()
    };
    let head = "max_restarts: 1000\nwithin: 24h\nbackoff: 5ms\nchildren:\n";
    let nested = head.replace('\n', "\n      ");
    let text = format!(
        "{head}{}  inner:\n    restart: transient\n    supervisor:\n      {}{}",
        listed(&outer, "  "),
        nested.trim_end().to_owned() + "\n",
        listed(&inner, "        ")
    );
    let id = killed.start("supervisor", &text);
    killed.kill(4);
    let (code, status) = killed.ended(&id);
    let at = format!("seed {}: {} in {}", killed.seed, words(&status), killed.places.root.display());
    assert_eq!((code, words(&status).as_str()), (0, "a=succeeded b=succeeded c=succeeded inner=succeeded"), "{at}");
    for (name, runs, _) in outer.iter().chain(&inner) {
        assert_eq!(killed.ran(name) as u64, *runs, "{name}, {at}");
    }
    killed.finish();
}

#[test]
fn a_resumed_node_runs_once_more_and_then_what_depends_on_it() {
    let mut killed = Killed::new();
    let (lines, work) = (killed.places.lines.display().to_string(), killed.places.work.display().to_string());
    let text = format!(
        "nodes:
  first: {{command: [sh, -c, 'echo first >> {lines}']}}
  bad: {{command: [sh, -c, 'echo bad >> {lines}; sleep 0.05; test -e {work}/fixed'], depends_on: [first]}}
  then: {{command: [sh, -c, 'echo then >> {lines}; sleep 0.05'], depends_on: [bad]}}
  last: {{command: [sh, -c, 'echo last >> {lines}; sleep 0.05'], depends_on: [then]}}
  beside: {{command: [sh, -c, 'echo beside >> {lines}'], depends_on: [first]}}
"
    );
    let id = killed.start("compose", &text);
    killed.kill(16);
    let (code, status) = killed.ended(&id);
    let at = format!("seed {}: {} in {}", killed.seed, words(&status), killed.places.root.display());
    assert_eq!(
        (code, words(&status).as_str()),
        (1, "first=succeeded bad=failed then=skipped last=skipped beside=succeeded"),
        "{at}"
    );
    fs::write(killed.places.work.join("fixed"), "").unwrap();
    let expected =
        |rounds: usize| [("first", 1), ("bad", rounds + 1), ("then", rounds), ("last", rounds), ("beside", 1)];
    for round in 1..4 {
        let client = killed.places.client();
        let (node, run) = (NodeRequest { node: "bad".to_owned(), ..NodeRequest::default() }, id.clone());
        // The request is repeated until a daemon answers it, and carried out once.
        let asked = std::thread::spawn(move || client.call(|client| client.resume_node(&run, &node)));
        killed.kill(16);
        asked.join().unwrap().unwrap();
        let (code, status) = killed.ended(&id);
        let at = format!("seed {}: {} in {}", killed.seed, words(&status), killed.places.root.display());
        assert_eq!(code, 0, "{at}");
        for (name, runs) in expected(round) {
            assert_eq!(killed.ran(name), runs, "{name} in round {round}, {at}");
        }
    }
    killed.finish();
}
