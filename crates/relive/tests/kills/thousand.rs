//! Many agents at once.

use std::time::Instant;

use serde_json::json;

use crate::daemon::Places;
use crate::dice::Dice;

const AGENTS: usize = 1000;
const STEPS: u32 = 20;
/// So many ask at once.
const CLIENTS: usize = 32;

#[test]
fn a_thousand_agents_finish() {
    let places = Places::new(None, 10_000);
    let script =
        format!("turns:\n  - calls: [{{name: list, args: {{}}}}]\n    repeat: {}\n  - text: over\n", STEPS - 1);
    std::fs::write(places.work.join("list.yaml"), script).unwrap();
    let mut daemon = places.start();
    places.until_it_answers(&mut daemon).unwrap();
    let (client, mut dice, begun) = (places.client(), Dice::new(1), Instant::now());
    let uuids: Vec<_> = (0..AGENTS).map(|_| dice.uuid()).collect();
    std::thread::scope(|scope| {
        let (client, places) = (&client, &places);
        for uuids in uuids.chunks(AGENTS.div_ceil(CLIENTS)) {
            scope.spawn(move || {
                for uuid in uuids {
                    let request =
                        json!({"uuid": uuid, "intent": "list", "model": "script/list.yaml", "cwd": places.work});
                    let answer = client.post("/v1/processes", &request).unwrap();
                    assert!(answer.is_ok(), "{}", answer.body);
                }
            });
        }
    });
    println!("{AGENTS} agents begun after {:?}", begun.elapsed());
    for uuid in &uuids {
        let answer = client.post(&format!("/v1/processes/{uuid}/wait"), &json!({})).unwrap();
        assert_eq!(answer.body["exit_code"], 0, "{}", answer.body);
    }
    println!("{AGENTS} agents of {STEPS} steps finished after {:?}", begun.elapsed());
    daemon.stop(&client).unwrap();
    println!("stopped after {:?}", begun.elapsed());
    places.remove();
}
