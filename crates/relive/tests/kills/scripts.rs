//! What the agents do. Every effect has a text of its own within its process, so that a repeated one shows.

use std::fs;

use serde_json::json;

use crate::daemon::Places;

/// The scripts an agent is started on. `child` is only spawned by `parent`.
pub(crate) const NAMES: [&str; 9] =
    ["steps", "parallel", "files", "parent", "sleeper", "stream", "commands", "background", "asks"];

/// How many exit codes the commands have.
pub(crate) const CODES: u64 = 3;

/// Writes the scripts.
pub(crate) fn write(places: &Places) {
    let world = places.world.display();
    let effect = |text: &str| format!("{{name: append_outside, args: {{path: '{world}', text: '{text}'}}}}");
    let put = |name: &str, text: String| fs::write(places.work.join(format!("{name}.yaml")), text).unwrap();
    put(
        "steps",
        format!("turns:\n  - delay: 5ms\n    calls: [{}]\n    repeat: 60\n  - text: over\n", effect("s{{turn}}")),
    );
    let several = [effect("p{{turn}}a"), effect("p{{turn}}b"), effect("p{{turn}}c"), effect("p{{turn}}d")].join(", ");
    put(
        "parallel",
        format!(
            "turns:\n  - delay: 5ms\n    calls: [{several}]\n    repeat: 20\n  \
             - calls: [{{name: done, args: {{summary: enough}}}}]\n  - calls: [{}]\n",
            effect("after done")
        ),
    );
    put(
        "files",
        "turns:\n  - calls: [{name: write, args: {path: 'count-{{uuid}}.txt', content: 'n=1 '}}]\n".to_owned()
            + &(1..=40).map(count).collect::<String>()
            + "  - calls: [{name: read, args: {path: 'count-{{uuid}}.txt'}}]\n  - text: over\n",
    );
    put(
        "parent",
        format!(
            "turns:\n  - calls: [{spawn}, {before}]\n  - calls: [{spawn}]\n  - calls: [{wait1}, {after}]\n  \
             - calls: [{wait2}]\n  - text: over\n",
            spawn = "{name: spawn_agent, args: {intent: help, model: script/child.yaml}}",
            before = effect("spawned one"),
            wait1 = "{name: wait_agent, args: {uuid: '{{child.1}}'}}",
            wait2 = "{name: wait_agent, args: {uuid: '{{child.2}}'}}",
            after = effect("waited for one"),
        ),
    );
    put(
        "child",
        format!("turns:\n  - delay: 30ms\n    calls: [{}]\n    repeat: 12\n  - text: over\n", effect("c{{turn}}")),
    );
    put(
        "sleeper",
        format!(
            "turns:\n  - calls: [{{name: sleep, args: {{duration: 200ms}}}}, {}]\n    repeat: 4\n  - text: over\n",
            effect("z{{turn}}")
        ),
    );
    let long = vec!["'a piece of a long answer, '"; 20].join(", ");
    put(
        "stream",
        format!(
            "turns:\n  - text: [{long}]\n    chunk_delay: 5ms\n    calls: [{}]\n    repeat: 4\n  - text: over\n",
            effect("l{{turn}}")
        ),
    );
    let ask = "{name: ask, args: {question: 'which one in turn {{turn}}?', choices: [left, right]}}";
    put("asks", format!("turns:\n  - calls: [{ask}, {}]\n    repeat: 6\n  - text: over\n", effect("a{{turn}}")));
    sessions(places);
}

/// A command that leaves one line in the world, says the same, and exits with a code of its turn. How long it takes is
/// a matter of its pid.
fn command(places: &Places, meanwhile: &str) -> String {
    let lines = places.lines.display();
    let command = format!(
        "{meanwhile} echo begun q{{{{turn}}}}; sleep 0.0$(($$ % 10)); echo \"$RELIVE_SESSION q{{{{turn}}}}\" >> {lines}; \
         sleep 0.0$(($$ / 10 % 10)); echo over q{{{{turn}}}}; exit $(({{{{turn}}}} % {CODES}))"
    );
    format!("{{name: shell, args: {}}}", json!({ "command": command }))
}

fn sessions(places: &Places) {
    let put = |name: &str, call: &str, repeat: u32| {
        let text = format!("turns:\n  - calls: [{call}]\n    repeat: {repeat}\n  - text: over\n");
        fs::write(places.work.join(format!("{name}.yaml")), text).unwrap();
    };
    put("commands", &command(places, ""), 8);
    // One that outlives its command, unless it is ended with it, and one that may or may not come to write.
    let lines = places.lines.display();
    let away =
        format!("setsid sleep 300 & setsid sh -c 'sleep 0.03; echo \"$RELIVE_SESSION b{{{{turn}}}}\" >> {lines}' & ");
    put("background", &command(places, &away), 6);
}

/// One edit: it can be done once and not again.
fn count(n: u32) -> String {
    let next = n + 1;
    format!("  - calls: [{{name: edit, args: {{path: 'count-{{{{uuid}}}}.txt', old: 'n={n} ', new: 'n={next} '}}}}]\n")
}
