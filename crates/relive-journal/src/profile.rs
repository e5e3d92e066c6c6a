//! `ctx-profile.json`: what filled an agent's context, for whoever wonders where its tokens went. Derived from the
//! journal at each end, never read by Relive, and missed by nobody if it is deleted.
//!
//! Tokens are estimated from bytes. `read_tokens` is the heat: an item's tokens, once for every question that held it.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use crate::conversation::Said;
use crate::directory::ProcessDirectory;
use crate::disk::Disk;
use crate::line::{self, VERSION};
use crate::meta::ProcessMeta;
use crate::payload::{Json, Text};
use crate::record::{Body, Compacted, ModelEnded};
use crate::regular;
use crate::scan::for_each_record;

/// The number of largest items that are listed.
const LARGEST_MAX: usize = 10;
const BYTES_PER_TOKEN: u64 = 4;

#[derive(Debug, Default, Serialize)]
struct Profile {
    v: u32,
    /// The number of model calls.
    questions: u64,
    /// The tokens of the last question.
    context_tokens: u64,
    kinds: BTreeMap<&'static str, Weight>,
    /// The results, by the tool they are of.
    results: BTreeMap<String, Weight>,
    steps: Vec<StepProfile>,
    compactions: Vec<Compaction>,
    largest: Vec<Item>,
}

#[derive(Debug, Default, Serialize)]
struct Weight {
    items: u64,
    bytes: u64,
    tokens: u64,
    read_tokens: u64,
}

#[derive(Debug, Serialize)]
struct StepProfile {
    step: u32,
    /// The tokens of its question.
    context_tokens: u64,
    /// The tokens that its provider counted.
    tokens_in: u64,
    /// The estimated tokens that it added, by kind.
    added: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct Compaction {
    seq: u64,
    step: u32,
    through: u64,
    tokens_before: u64,
    tokens_after: u64,
}

#[derive(Debug, Clone, Serialize)]
struct Item {
    /// Of its record; 0 for what it was given at its start.
    seq: u64,
    step: u32,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    bytes: u64,
    tokens: u64,
    /// In how many questions it was.
    questions: u64,
}

/// Reads the journal and writes the profile; the caller syncs the directory. Nothing happens for what is no agent.
pub(crate) fn write(disk: &Disk, directory: &ProcessDirectory) -> io::Result<()> {
    let Ok(meta) = ProcessMeta::read(directory) else { return Ok(()) };
    let mut fold = Fold::default();
    fold.add(0, "system", None, meta.system_prompt.len() as u64);
    fold.add(0, "tools", None, meta.tools.get().len() as u64);
    for_each_record(&regular::open(&directory.steps())?, |head, line| {
        if let Some(Ok(body)) = Body::decode(&head.kind, line) {
            fold.step = head.step;
            fold.take(head.seq, body);
        }
    })?;
    disk.put(&directory.ctx_profile(), &line::encode_file(&fold.finish())?)
}

#[derive(Debug, Default)]
struct Fold {
    profile: Profile,
    step: u32,
    /// The items in the context; the questions of an item are those before it.
    held: Vec<Item>,
    /// Their tokens, counted once and not for each question.
    held_tokens: u64,
    gone: Vec<Item>,
    /// The tools of the last answer's calls.
    asked: Vec<String>,
}

impl Fold {
    fn take(&mut self, seq: u64, body: Body) {
        if let Body::Cli(cli) = &body {
            let used = cli.call.as_ref().map_or(0, |call| call.usage.tokens_in);
            if let Some(step) = self.profile.steps.last_mut() {
                step.tokens_in += used;
            }
        }
        match Said::of(body) {
            Some(Said::Input(input)) => self.add(seq, "user", None, bytes(&input.text)),
            Some(Said::Asked) => self.ask(),
            Some(Said::Answer(answer)) => self.answer(seq, answer),
            Some(Said::Result { call, ok: _, text }) => {
                let tool = self.asked.get(call as usize).cloned();
                self.add(seq, "result", tool, bytes(&text));
            }
            Some(Said::Summary(compacted)) => self.compact(seq, &compacted),
            Some(Said::CutOff) | None => {}
        }
    }

    fn ask(&mut self) {
        self.profile.questions += 1;
        let context_tokens = self.held_tokens;
        self.profile.context_tokens = context_tokens;
        match self.profile.steps.last_mut() {
            // Asked again, or for a summary first.
            Some(last) if last.step == self.step => last.context_tokens = context_tokens,
            Some(_) | None => {
                let (step, added) = (self.step, BTreeMap::new());
                self.profile.steps.push(StepProfile { step, context_tokens, tokens_in: 0, added });
            }
        }
    }

    fn answer(&mut self, seq: u64, answer: ModelEnded) {
        if let Some(step) = self.profile.steps.last_mut() {
            step.tokens_in += answer.usage.tokens_in;
        }
        for (kind, said) in [("thinking", &answer.thinking), ("text", &answer.text)] {
            if let Some(said) = said {
                self.add(seq, kind, None, bytes(said));
            }
        }
        self.asked.clear();
        for call in answer.calls {
            self.add(seq, "call", Some(call.name.clone()), call.name.len() as u64 + json(&call.args));
            self.asked.push(call.name);
        }
    }

    fn compact(&mut self, seq: u64, compacted: &Compacted) {
        let tokens_before = self.held_tokens;
        let stays = |item: &mut Item| item.seq == 0 || (item.seq > compacted.through && item.kind != "summary");
        let questions = self.profile.questions;
        let leaving = self.held.extract_if(.., |item| !stays(item));
        self.gone.extend(leaving.map(|item| Item { questions: questions - item.questions, ..item }));
        self.held_tokens = self.held.iter().map(|item| item.tokens).sum();
        self.add(seq, "summary", None, bytes(&compacted.summary));
        let (step, through, tokens_after) = (self.step, compacted.through, self.held_tokens);
        self.profile.compactions.push(Compaction { seq, step, through, tokens_before, tokens_after });
    }

    fn add(&mut self, seq: u64, kind: &'static str, tool: Option<String>, bytes: u64) {
        let tokens = bytes.div_ceil(BYTES_PER_TOKEN);
        if let Some(step) = self.profile.steps.last_mut() {
            *step.added.entry(kind).or_default() += tokens;
        }
        self.held_tokens += tokens;
        self.held.push(Item { seq, step: self.step, kind, tool, bytes, tokens, questions: self.profile.questions });
    }

    fn finish(self) -> Profile {
        let Self { mut profile, held, gone, .. } = self;
        let asked = profile.questions;
        let mut items = gone;
        items.extend(held.into_iter().map(|item| Item { questions: asked - item.questions, ..item }));
        for item in &items {
            profile.kinds.entry(item.kind).or_default().count(item);
            if let ("result", Some(tool)) = (item.kind, &item.tool) {
                profile.results.entry(tool.clone()).or_default().count(item);
            }
        }
        items.sort_by_key(|item| (std::cmp::Reverse(item.bytes), item.seq));
        items.truncate(LARGEST_MAX);
        (profile.v, profile.largest) = (VERSION, items);
        profile
    }
}

impl Weight {
    fn count(&mut self, item: &Item) {
        self.items += 1;
        self.bytes += item.bytes;
        self.tokens += item.tokens;
        self.read_tokens += item.tokens * item.questions;
    }
}

fn bytes(text: &Text) -> u64 {
    match text {
        Text::Inline(text) => text.len() as u64,
        Text::Blob(blob) => blob.bytes,
    }
}

fn json(json: &Json) -> u64 {
    match json {
        Json::Inline(json) => json.get().len() as u64,
        Json::Blob(blob) => blob.bytes,
    }
}
