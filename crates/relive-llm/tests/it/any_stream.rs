//! Arbitrary bytes as the answer of a provider. The fuzz target `model_stream` does the same with its own bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use relive_llm::{Access, Delta, Message, ModelError, Prices, Purpose, Question, Secret, Windows};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// One model of each wire format.
pub(crate) const NAMES: [&str; 6] = [
    "anthropic/claude-sonnet-4-5",
    "openai-chat/gpt-5",
    "openai-responses/gpt-5",
    "gemini/gemini-2.5-flash",
    "ollama/qwen3",
    "deepseek/deepseek-reasoner",
];

/// The longest arguments that are collected, and one more piece.
const ARGS_MAX: usize = (2 << 20) + (1 << 20);

/// The result of an answer.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) text: String,
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) progress: usize,
    pub(crate) error: Option<ModelError>,
}

/// Serves the pieces to one question, repeatedly if `endless`, and returns the result.
pub(crate) async fn serve(name: &str, pieces: Vec<Vec<u8>>, endless: bool) -> Outcome {
    let limit = if endless { u64::MAX } else { 0 };
    serve_status(name, "200 OK", pieces, limit).await.0
}

/// Serves the pieces with this status, repeatedly until `limit` bytes are sent, and returns the result and the number
/// of bytes.
pub(crate) async fn serve_status(name: &str, status: &str, pieces: Vec<Vec<u8>>, limit: u64) -> (Outcome, u64) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let (count, status) = (sent.clone(), status.to_owned());
    let server = tokio::spawn(async move {
        let Ok((mut connection, _)) = listener.accept().await else { return };
        request(&mut connection).await;
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n");
        let mut open = connection.write_all(head.as_bytes()).await.is_ok();
        while open {
            for piece in &pieces {
                open = open && connection.write_all(piece).await.is_ok();
                count.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
            open = open && count.load(Ordering::Relaxed) < limit;
        }
        let _ = connection.shutdown().await;
    });
    let base_url =
        if name.starts_with("openai") { format!("http://{address}/v1") } else { format!("http://{address}") };
    let access = Access { base_url: Some(base_url), key: Some(Secret::new("key")) };
    let model = relive_llm::open(name, access, &Prices::builtin(), &Windows::builtin()).unwrap();
    let outcome = tokio::time::timeout(Duration::from_secs(120), ask(model.as_ref())).await;
    server.abort();
    (outcome.map_err(|_| format!("{name}: the answer did not end")).unwrap(), sent.load(Ordering::Relaxed))
}

async fn ask(model: &dyn relive_llm::Model) -> Outcome {
    let question = Question {
        step: 1,
        system_prompt: "".into(),
        tools: "[]".into(),
        messages: vec![Message::User { text: "go".to_owned() }].into(),
        answers: 0,
        purpose: Purpose::Step,
    };
    let mut outcome = Outcome::default();
    let mut answer = match model.ask(question).await {
        Ok(answer) => answer,
        Err(error) => return Outcome { error: Some(error), ..outcome },
    };
    while let Some(delta) = answer.next().await {
        assert!(outcome.error.is_none(), "nothing follows an error");
        match delta {
            Ok(Delta::Text(piece)) => outcome.text.push_str(&piece),
            Ok(Delta::Call(call)) => outcome.calls.push((call.name, call.args)),
            Ok(Delta::Progress) => outcome.progress += 1,
            Ok(Delta::Thinking(_) | Delta::Carry(_) | Delta::Usage(_)) => {}
            Err(error) => outcome.error = Some(error),
        }
        if outcome.text.len() > 8 << 20 {
            // The agent loop cuts here.
            break;
        }
    }
    outcome
}

/// Reads a whole request.
async fn request(connection: &mut TcpStream) {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 65536]);
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return;
            }
        }
        match connection.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Checks that any bytes give an answer or an error, within bounds.
pub(crate) async fn check(name: &str, bytes: &[u8]) {
    let outcome = serve(name, vec![bytes.to_vec()], false).await;
    assert!(outcome.calls.iter().all(|(_, args)| args.len() <= ARGS_MAX), "{name}");
}
