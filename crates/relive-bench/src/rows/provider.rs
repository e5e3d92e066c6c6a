//! The cost of a provider's request: a question with a long conversation, sent over HTTP to a server in this program, next
//! to a short one. Up to the `Model` trait a step costs the same however long the conversation is; a request cannot.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use relive_api::Environment;
use serde_json::json;

use crate::Result;
use crate::daemon::{Daemon, Home, cpu_seconds, memory, peak};
use crate::options::Options;
use crate::place::Place;
use crate::runs::{self, Work};
use crate::table::{Mark, Row, kilobytes, milliseconds};

/// What each step adds to the conversation.
const STEP_BYTES: usize = 32 << 10;
/// How many questions are measured at the beginning and at the end.
const WINDOW: usize = 16;
const MODEL: &str = "openai-chat/bench";
/// More than the whole conversation.
const CONFIG: &str = "context_window: {openai-chat/bench: 100000000, openai/bench: 100000000}\n";
const WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("provider")?;
    let steps = options.question_bytes.div_ceil(STEP_BYTES);
    eprintln!("provider: {} MB in {steps} questions", options.question_bytes >> 20);
    let work = Work::new(root.join("work"), "")?;
    fs::write(work.path().join("note.txt"), "a line that is as long as most.\n".repeat(STEP_BYTES / 32))?;
    let server = Server::start(steps)?;
    let home = Home::new(root.join("home"))?;
    home.configure(CONFIG)?;
    let (_, daemon) = Daemon::start(&home)?;
    let (base, _) = memory(daemon.os_pid())?;
    let mut env = Environment::default();
    env.set("OPENAI_BASE_URL".to_owned(), format!("http://127.0.0.1:{}/v1/", server.port));
    env.set("OPENAI_API_KEY".to_owned(), "bench".to_owned());
    let client = daemon.client()?;
    let uuid = runs::begin_with(&client, &work, MODEL, env)?.uuid;
    let mut at = Vec::new();
    for bound in [1, 1 + WINDOW, steps - WINDOW, steps] {
        server.until_asked(bound)?;
        at.push(cpu_seconds(daemon.os_pid())?);
    }
    runs::wait_for(&client, uuid)?;
    let more = peak(daemon.os_pid())?.saturating_sub(base);
    let (early, late) = (at[1] - at[0], at[3] - at[2]);
    #[expect(clippy::cast_precision_loss, reason = "a ratio is not exact")]
    let (window, memory_ratio) = (WINDOW as f64, more as f64 / options.question_bytes as f64);
    Ok(vec![
        Row {
            name: format!("CPU of a {} MB question, by HTTP", options.question_bytes >> 20),
            ours: milliseconds(late / window),
            peer: format!("{}  of 0.3 MB", milliseconds(early / window)),
            ratio: (late / early).into(),
            mark: Mark::None,
        },
        Row {
            name: "  peak memory".to_owned(),
            ours: kilobytes(more),
            peer: format!("{}  said", kilobytes(options.question_bytes as u64)),
            ratio: memory_ratio.into(),
            mark: Mark::None,
        },
    ])
}

/// A server that speaks chat completions: it asks for the same file until it has said so often enough.
struct Server {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Server {
    fn start(steps: usize) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (port, asked) = (listener.local_addr()?.port(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        // It ends with this program.
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // The daemon closes connections whenever it likes.
                let _ = answer_all(connection, &counted, steps);
            }
        });
        Ok(Self { port, asked })
    }

    fn until_asked(&self, count: usize) -> Result<()> {
        let begun = Instant::now();
        while self.asked.load(Ordering::Acquire) < count {
            if begun.elapsed() > WITHIN {
                return Err(format!("question {count} was not asked within {WITHIN:?}").into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

fn answer_all(connection: TcpStream, asked: &AtomicUsize, steps: usize) -> Result<()> {
    let mut writer = connection.try_clone()?;
    let mut reader = BufReader::with_capacity(1 << 20, connection);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
        let number = asked.fetch_add(1, Ordering::AcqRel);
        let body = answer(number, steps);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream";
        write!(writer, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
    }
}

fn answer(number: usize, steps: usize) -> String {
    let (delta, reason) = if number < steps {
        let function = json!({"name": "read", "arguments": "{\"path\":\"note.txt\"}"});
        let call = json!({"index": 0, "id": format!("call-{number}"), "type": "function", "function": function});
        (json!({"tool_calls": [call]}), "tool_calls")
    } else {
        (json!({"content": "That was all."}), "stop")
    };
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
    let first = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage});
    format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n")
}
