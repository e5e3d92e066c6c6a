//! Random trees, whose nodes run as often and end as they would have without any kill.

use std::collections::BTreeMap;
use std::time::Duration;

use relive_api::FlowRequest;
use relive_core::Uuid;
use relive_flow::{ComposeFile, Decision, Definition, Event, Flow, Outcome};
use serde_json::json;

use crate::daemon::Places;
use crate::dice::{Dice, fresh_seed, number};

const TREES: u64 = 4;
const NODES: u64 = 24;

/// A file, and the exit code of each of its nodes.
fn random_tree(dice: &mut Dice, places: &Places, tree: u64) -> (String, Vec<i32>) {
    let (mut text, mut codes) = ("nodes:\n".to_owned(), Vec::new());
    for node in 0..NODES {
        let mut on = BTreeMap::new();
        for _ in 0..dice.between(0, 3) {
            if node > 0 {
                let word = ["succeeded", "succeeded", "completed", "started"][dice.between(0, 4) as usize];
                on.insert(dice.between(node.saturating_sub(6), node), word);
            }
        }
        let on: Vec<String> = on.iter().map(|(other, word)| format!("n{other}: {word}")).collect();
        let code = if dice.chance(15) { 3 } else { 0 };
        codes.push(code);
        let (pause, lines) = (dice.between(0, 120), places.lines.display());
        let retries = dice.between(0, 3);
        text.push_str(&format!(
            "  n{node}:\n    command: [sh, -c, 'echo t{tree}n{node} >> {lines}; sleep 0.{pause:03}; exit {code}']\n    \
             depends_on: {{{}}}\n    retries: {{max: {retries}, backoff: 5ms}}\n",
            on.join(", ")
        ));
    }
    (text, codes)
}

/// What becomes of a tree that nobody disturbs: how often each node runs, and its last state.
fn expected(text: &str, codes: &[i32]) -> Vec<(u32, &'static str)> {
    let mut flow = Flow::new(Definition::Compose(ComposeFile::parse("tree", text).unwrap()));
    let (mut starts, mut next) = (vec![0; codes.len()], 0);
    loop {
        // The end of time, so that nothing waits to be tried again.
        let decisions = flow.decide(u64::MAX, usize::MAX);
        if let [Decision::Finish(_)] = decisions[..] {
            return starts.into_iter().zip(flow.slots().map(|slot| slot.state.word())).collect();
        }
        for decision in decisions {
            if let Decision::Start { slot, start } = decision {
                next += 1;
                starts[slot[1..].parse::<usize>().unwrap()] += 1;
                let (uuid, is_awaited) = (Uuid::from_u128(next), flow.is_start_awaited(&slot));
                flow.apply(&Event::Starting { slot: slot.clone(), uuid, start }).unwrap();
                if is_awaited {
                    flow.apply(&Event::Started { slot, uuid }).unwrap();
                }
            }
        }
        let running = flow.slots().find_map(|slot| Some((slot.name.to_owned(), slot.state.living()?)));
        if let Some((slot, uuid)) = running {
            let outcome = match codes[slot[1..].parse::<usize>().unwrap()] {
                0 => Outcome::Succeeded,
                code => Outcome::Failed { code },
            };
            flow.apply(&Event::Ended {
                slot,
                uuid,
                outcome,
                at_ms: 0,
                at_end: relive_flow::AtEnd::default(),
                result: None,
                note: None,
            })
            .unwrap();
        }
    }
}

#[test]
fn trees_end_as_they_would_have_whenever_their_daemon_is_killed() {
    let seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
    let kills = number("RELIVE_KILLS").unwrap_or(100) / 4;
    println!("RELIVE_SEED={seed} RELIVE_KILLS={}", kills * 4);
    let (mut dice, places) = (Dice::new(seed), Places::new(None, 10_000));
    let mut daemon = places.start();
    places.until_it_answers(&mut daemon).unwrap();
    let client = places.client();
    let trees: Vec<(Uuid, String, Vec<i32>)> = (0..TREES)
        .map(|tree| {
            let (uuid, (text, codes)) = (dice.uuid(), random_tree(&mut dice, &places, tree));
            let request = json!({
                "uuid": uuid, "kind": "compose", "file": "tree.yaml", "text": text, "cwd": places.work,
                "env": {"PATH": "/usr/bin:/bin"},
            });
            let request: FlowRequest = serde_json::from_value(request).unwrap();
            client.call(|client| client.start_flow(&request)).unwrap();
            (uuid, text, codes)
        })
        .collect();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(dice.between(0, 150)));
        daemon.kill();
        daemon = places.start();
        if dice.chance(70) {
            places.until_it_answers(&mut daemon).unwrap();
        }
    }
    places.until_it_answers(&mut daemon).unwrap();
    for (tree, (uuid, text, codes)) in trees.iter().enumerate() {
        let id = uuid.to_string();
        let answer = client.call(|client| client.wait_for_end(&id)).unwrap();
        let expected = expected(text, codes);
        let failed = expected.iter().any(|(_, state)| *state == "failed");
        assert_eq!(answer.exit_code, u8::from(failed), "seed {seed}: {answer:?} in {}", places.root.display());
        let status = client.call(|client| client.flow(&id)).unwrap();
        let lines = std::fs::read_to_string(&places.lines).unwrap_or_default();
        for (node, (starts, state)) in status.nodes.iter().zip(expected) {
            let line = format!("t{tree}{}", node.name);
            let ran = u32::try_from(lines.lines().filter(|other| **other == line).count()).unwrap();
            let found = (ran, node.starts, node.state.as_str());
            assert_eq!(found, (starts, starts, state), "seed {seed}: {line} in {}", places.root.display());
        }
    }
    daemon.stop(&client).unwrap();
    places.remove();
}
