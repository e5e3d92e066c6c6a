//! A CLI agent behind the gateway, while the daemon is killed again and again.

use std::fs;
use std::time::{Duration, Instant};

use relive_api::{InputRequest, Process, RunRequest, SignalRequest};
use relive_client::BlockingClient;
use relive_core::State;
use relive_fake_model::{FakeModel, Turn};
use serde_json::json;

use crate::daemon::Places;
use crate::dice::{Dice, fresh_seed, number};
use crate::left;
use crate::oracle::Oracle;

/// One of so many kills of the whole run is for this agent.
const SHARE: u64 = 8;
const KILLS_MIN: u64 = 6;
/// How long its work may take on a crowded machine.
const WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Speaks the language of claude: asks its model each message through the gateway, with the whole conversation, and notes
/// the message.
const PROGRAM: &str = r#"
import json, os, sys, urllib.request
session = sys.argv[-1]
messages = []
def say(**fields):
    print(json.dumps(dict(fields, session_id=session, uuid="u")), flush=True)
for line in sys.stdin:
    content = json.loads(line)["message"]["content"]
    text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
    with open("heard", "a") as heard:
        heard.write(text + "\n")
    say(type="system", subtype="init", model="m", tools=[])
    messages.append({"role": "user", "content": text})
    tool = {"name": "none", "description": "none", "input_schema": {"type": "object"}}
    body = {"model": "m", "max_tokens": 9, "stream": True, "tools": [tool], "messages": messages}
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    answer = ""
    for event in urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)):
        if event.startswith(b"data: "):
            answer += json.loads(event[6:]).get("delta", {}).get("text", "")
    messages.append({"role": "assistant", "content": answer})
    say(type="assistant", message={"id": "1", "role": "assistant", "content": [{"type": "text", "text": answer}]})
    say(type="result", subtype="success", is_error=False, usage={"input_tokens": 1, "output_tokens": 1})
"#;

/// An agent that answers, and what it was told.
struct Watched<'a> {
    places: &'a Places,
    client: BlockingClient,
    id: String,
}

impl Watched<'_> {
    fn process(&self) -> Process {
        self.client.call(|client| client.process(&self.id)).unwrap()
    }

    #[track_caller]
    fn until(&self, what: &str, is: impl Fn(&Process) -> bool) -> Process {
        let begun = Instant::now();
        loop {
            let process = self.process();
            if is(&process) {
                return process;
            }
            assert!(begun.elapsed() < WITHIN, "not {what}: {process:?}\n{}", self.places.log_tail());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn heard(&self) -> Vec<String> {
        let text = fs::read_to_string(self.places.work.join("heard")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The records of the journal that have this field.
    fn records(&self, field: &str) -> usize {
        let text = fs::read_to_string(self.places.data.join("steps").join(&self.id).join("steps.jsonl")).unwrap();
        let mark = format!("\"{field}\":");
        text.lines().filter(|line| line.contains("\"kind\":\"cli\"") && line.contains(&mark)).count()
    }
}

#[test]
fn a_cli_agent_hears_each_message_once_and_every_token_is_counted() {
    let kills = (number("RELIVE_KILLS").unwrap_or(100) / SHARE).max(KILLS_MIN);
    let seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
    println!("RELIVE_SEED={seed}, {kills} kills");
    let mut dice = Dice::new(seed);
    // Each answer has its own usage, so none can stand for another one.
    let server =
        FakeModel::start_for_agents((0..=kills).map(|n| Turn::text("said").then(" so").usage(100 + n, 3 + n, 0)));
    let places = Places::new(None, 10_000);
    let script = places.root.join("program.py");
    fs::write(&script, PROGRAM).unwrap();
    let agents = places.root.join("config/relive/agents");
    fs::create_dir_all(&agents).unwrap();
    let file = format!(
        "dialect: claude\ncommand: [python3, {}]\nstart: ['{{session}}']\nresume: ['{{session}}']\n",
        script.display()
    );
    fs::write(agents.join("mine.yaml"), file).unwrap();
    let mut daemon = places.start();
    places.until_it_answers(&mut daemon).unwrap();
    let uuid = dice.uuid();
    let env = json!({"PATH": "/usr/bin:/bin", "ANTHROPIC_BASE_URL": server.base_url(), "ANTHROPIC_API_KEY": "planted"});
    let request = json!({"uuid": uuid, "intent": "message 0", "agent": "mine", "cwd": places.work, "env": env});
    let request: RunRequest = serde_json::from_value(request).unwrap();
    let watched = Watched { places: &places, client: places.client(), id: uuid.to_string() };
    watched.client.call(|client| client.run(&request)).unwrap();
    for number in 1..=kills {
        let message = InputRequest { id: format!("m{number}"), text: format!("message {number}"), eof: false };
        watched.client.call(|client| client.input(&watched.id, &message)).unwrap();
        std::thread::sleep(Duration::from_millis(dice.between(0, 250)));
        daemon.kill();
        daemon = places.start();
        places.until_it_answers(&mut daemon).unwrap();
    }
    let (input, output) = (0..=kills).fold((0, 0), |(input, output), n| (input + 100 + n, output + 3 + n));
    let is_done = |process: &Process| {
        let is_idle = process.agent.as_ref().is_some_and(|agent| agent["lifecycle"] == "idle");
        is_idle && watched.heard().len() as u64 > kills && process.tokens_in >= input
    };
    let process = watched.until("all messages are answered", is_done);
    let expected: Vec<String> = (0..=kills).map(|number| format!("message {number}")).collect();
    assert_eq!(watched.heard(), expected, "each message is heard once, in order");
    assert_eq!(server.handed_out(), (input, output), "each call is made once");
    assert_eq!((process.tokens_in, process.tokens_out), (input, output), "{process:?}");
    watched.until("every call is recorded", |_| watched.records("call") as u64 == kills + 1);
    assert_eq!(watched.records("launched"), 1, "one program did all of it");
    let kill = SignalRequest { signal: "KILL".to_owned(), subtree: false };
    watched.client.call(|client| client.signal(&watched.id, &kill)).unwrap();
    watched.until("it has ended", |process| process.state == State::Dead);
    daemon.stop(&watched.client).unwrap();
    let oracle = Oracle::default();
    left::nothing(&places, &oracle);
    let violations = std::mem::take(&mut oracle.lock().violations);
    assert!(violations.is_empty(), "{violations:?}");
    places.remove();
}
