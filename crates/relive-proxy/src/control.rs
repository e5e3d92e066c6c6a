//! The proxy's side of its socket: the daemon sends a person's answers, and gets a byte for every change of the log.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::relay::Proxy;

/// The longest list of answers.
const LINE_MAX: u64 = 1 << 20;

pub(crate) async fn accept_all(proxy: Arc<Proxy>, listener: UnixListener) {
    // The directory of the session is the user's alone.
    while let Ok((stream, _)) = listener.accept().await {
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            // The daemon connects again.
            let _ = serve(&proxy, stream).await;
        });
    }
}

async fn serve(proxy: &Proxy, stream: UnixStream) -> io::Result<()> {
    let mut recorded = proxy.recorded();
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let told = async {
        while recorded.changed().await.is_ok() {
            to.write_all(b"\n").await?;
        }
        Ok(())
    };
    let heard = async {
        loop {
            line.clear();
            if (&mut from).take(LINE_MAX).read_until(b'\n', &mut line).await? == 0 {
                return Ok(());
            }
            proxy.set_answers(serde_json::from_slice(&line)?);
        }
    };
    tokio::select! {
        ended = told => ended,
        ended = heard => ended,
    }
}
