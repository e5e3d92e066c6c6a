//! The graph of a run, as text and as a picture.

use relive_api::{FlowStatus, NodeStatus};
use relive_flow::Graph;

const BOX_WIDTH: usize = 160;
const BOX_HEIGHT: usize = 40;
const GAP_X: usize = 60;
const GAP_Y: usize = 20;

fn levels(flow: &FlowStatus) -> Vec<Vec<usize>> {
    let place = |name: &String| flow.nodes.iter().position(|node| node.name == *name);
    let on = |node: &NodeStatus| node.depends_on.iter().filter_map(place).collect();
    Graph::new(flow.nodes.iter().map(on).collect()).levels()
}

/// Lists the nodes by level, each with its state and what it waits for.
pub(super) fn text(flow: &FlowStatus) -> String {
    let mut lines = String::new();
    for (level, places) in levels(flow).into_iter().enumerate() {
        for place in places {
            let node = &flow.nodes[place];
            let after = match node.depends_on.is_empty() {
                true => String::new(),
                false => format!(" <- {}", node.depends_on.join(", ")),
            };
            lines.push_str(&format!("{}{} [{}]{after}\n", "  ".repeat(level), node.name, node.state));
        }
    }
    lines
}

fn colour(state: &str) -> &'static str {
    match state {
        "succeeded" => "#d7f0d7",
        "failed" | "stopped" | "halted" => "#f6d5d5",
        "running" | "stopping" => "#d5e4f6",
        _ => "#eeeeee",
    }
}

/// Draws the nodes in columns by their level. Names have no characters that a picture could not hold.
pub(super) fn svg(flow: &FlowStatus) -> String {
    let levels = levels(flow);
    let mut places = vec![(0, 0); flow.nodes.len()];
    for (column, nodes) in levels.iter().enumerate() {
        for (row, place) in nodes.iter().enumerate() {
            places[*place] = (GAP_Y + column * (BOX_WIDTH + GAP_X), GAP_Y + row * (BOX_HEIGHT + GAP_Y));
        }
    }
    let width = GAP_Y + levels.len() * (BOX_WIDTH + GAP_X);
    let height = GAP_Y + levels.iter().map(Vec::len).max().unwrap_or(0) * (BOX_HEIGHT + GAP_Y);
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n"
    );
    for (node, (x, y)) in flow.nodes.iter().zip(&places) {
        for name in &node.depends_on {
            if let Some(from) = flow.nodes.iter().position(|other| other.name == *name) {
                let (from_x, from_y) = (places[from].0 + BOX_WIDTH, places[from].1 + BOX_HEIGHT / 2);
                let to_y = y + BOX_HEIGHT / 2;
                picture.push_str(&format!(
                    "<line x1=\"{from_x}\" y1=\"{from_y}\" x2=\"{x}\" y2=\"{to_y}\" stroke=\"#888888\"/>\n"
                ));
            }
        }
    }
    for (node, (x, y)) in flow.nodes.iter().zip(&places) {
        let (text_x, text_y, fill) = (x + BOX_WIDTH / 2, y + BOX_HEIGHT / 2, colour(&node.state));
        picture.push_str(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"4\" fill=\"{fill}\" \
             stroke=\"#888888\"/>\n<text x=\"{text_x}\" y=\"{text_y}\" text-anchor=\"middle\" \
             dominant-baseline=\"middle\">{} ({})</text>\n",
            node.name, node.state
        ));
    }
    picture + "</svg>\n"
}
