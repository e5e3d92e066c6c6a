//! Many agents at once.

use std::time::Instant;

use relive_api::RunRequest;
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
        let places = &places;
        for uuids in uuids.chunks(AGENTS.div_ceil(CLIENTS)) {
            scope.spawn(move || {
                let client = places.client();
                for uuid in uuids {
                    let request =
                        json!({"uuid": uuid, "intent": "list", "model": "script/list.yaml", "cwd": places.work});
                    let request: RunRequest = serde_json::from_value(request).unwrap();
                    client.call(|client| client.run(&request)).unwrap();
                }
            });
        }
    });
    println!("{AGENTS} agents begun after {:?}", begun.elapsed());
    for uuid in &uuids {
        let id = uuid.to_string();
        let answer = client.call(|client| client.wait_for_end(&id)).unwrap();
        assert_eq!(answer.exit_code, 0, "{answer:?}");
    }
    println!("{AGENTS} agents of {STEPS} steps finished after {:?}", begun.elapsed());
    daemon.stop(&client).unwrap();
    println!("stopped after {:?}", begun.elapsed());
    places.remove();
}
