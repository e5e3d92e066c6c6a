//! Subagents that a CLI agent reports.

use std::fs;

use serde_json::{Value, json};

use crate::world::{World, begun, wait_for};

/// An agent that speaks the language of claude, and starts a subagent for each message. It ends when there is a file `go`.
const PROGRAM: &str = r#"while read -r line; do
  printf '{"type":"system","subtype":"init","session_id":"%s","model":"m","tools":["Task"],"uuid":"u"}\n' "$2"
  printf '{"type":"assistant","message":{"id":"1","role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"Task","input":{"description":"look","prompt":"look","subagent_type":"reviewer"}}]},"session_id":"%s","uuid":"u"}\n' "$2"
  printf '{"type":"assistant","message":{"id":"2","role":"assistant","content":[{"type":"text","text":"I look."}]},"parent_tool_use_id":"toolu_1","session_id":"%s","uuid":"u"}\n' "$2"
  while [ ! -e go ]; do sleep 0.02; done
  printf '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"seen"}]},"session_id":"%s","uuid":"u"}\n' "$2"
  printf '{"type":"assistant","message":{"id":"3","role":"assistant","content":[{"type":"text","text":"done"}]},"session_id":"%s","uuid":"u"}\n' "$2"
  printf '{"type":"result","subtype":"success","is_error":false,"session_id":"%s","usage":{"input_tokens":3,"output_tokens":1}}\n' "$2"
done
"#;

fn await_subagent(world: &World, uuid: &str, state: &str) -> Value {
    wait_for(&format!("the subagent is {state}"), || {
        let info = world.info(uuid);
        (info["agent"]["subagents"][0]["state"] == state).then_some(info)
    })
}

#[test]
fn a_subagent_is_listed_below_its_agent_and_cannot_be_controlled() {
    let world = World::new();
    let agents = world.root().join("config/relive/agents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(world.root().join("program"), PROGRAM).unwrap();
    let program = world.root().join("program");
    let file = format!("command: [sh, {}]\ndialect: claude\nstart: [begin, '{{session}}']\n", program.display());
    fs::write(agents.join("mine.yaml"), file).unwrap();
    let process = begun(&world.relive(&["run", "-d", "--json", "--agent", "mine", "look"]).ok().json());
    let info = await_subagent(&world, &process.uuid, "running");
    let subagent = &info["agent"]["subagents"][0];
    assert_eq!((&subagent["id"], &subagent["name"]), (&json!("toolu_1"), &json!("reviewer")), "{info}");
    let tree = world.relive(&["ps", "--tree"]).ok().stdout;
    let row = tree.lines().find(|line| line.contains("reviewer")).unwrap_or_default();
    assert!(row.contains("observed") && row.contains("subagent toolu_1"), "{tree}");
    assert!(!world.relive(&["ps"]).ok().stdout.contains("reviewer"), "only a tree shows it");
    let refused = world.relive(&["kill", "toolu_1"]);
    refused.fails(4, &["a subagent of PID", "cannot be controlled", "relive info"]);
    // A daemon that adopts the agent knows it, too.
    world.kill_daemon();
    await_subagent(&world, &process.uuid, "running");
    fs::write(world.work().join("go"), "").unwrap();
    await_subagent(&world, &process.uuid, "ended");
    let shown = world.relive(&["info", &process.uuid]).ok().stdout;
    assert!(shown.contains("SUBAGENT   reviewer, toolu_1: ") && shown.contains("only observed"), "{shown}");
    assert!(
        !world.relive(&["ps", "--tree"]).ok().stdout.contains("reviewer"),
        "those that have ended are not in the tree"
    );
    world.relive(&["kill", &process.uuid]).ok();
}
