//! What a program printed, read from its log by a thread of its own, so that a reader of ours who is slow holds up
//! neither the program nor Ctrl-C.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use relive_session::log::{Chunk, Item, Reader, Stream};
use tokio::sync::{oneshot, watch};

/// What is said of output that the disk did not take.
pub(crate) const OUTPUT_LOST: &str = "-- some of the output is missing: the disk did not take it --";

/// Something being shown.
#[derive(Debug)]
pub(crate) struct Output {
    /// Gone once nothing will be added to the log.
    grown: Option<SyncSender<()>>,
    done: oneshot::Receiver<io::Result<()>>,
    shown: watch::Receiver<u64>,
}

impl Output {
    /// Begins to show a log from an offset on. `sink` is given what there is, and at last `None`.
    pub(crate) fn start(
        folder: &Path,
        from: u64,
        sink: impl FnMut(Option<Item>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let mut reader = Reader::open(folder, from)?;
        let (grown, nudges) = sync_channel(1);
        let (finished, done) = oneshot::channel();
        let (showing, shown) = watch::channel(from);
        thread::Builder::new().name("output".into()).spawn(move || {
            let mut sink = sink;
            let mut sink = |item: Option<Item>| {
                let upto = item.as_ref().map(|item| match item {
                    Item::Chunk(chunk) => chunk.next,
                    Item::Gap { to, .. } => *to,
                });
                sink(item)?;
                if let Some(upto) = upto {
                    showing.send_replace(upto);
                }
                Ok(())
            };
            let mut shown = drain(&mut reader, &mut sink);
            while shown.is_ok() && nudges.recv().is_ok() {
                shown = drain(&mut reader, &mut sink);
            }
            // Nothing is added any more; what came after the last look is still there to be read.
            let shown = shown.and_then(|()| drain(&mut reader, &mut sink)).and_then(|()| sink(None));
            // Whoever does not listen has left.
            let _ = finished.send(shown);
        })?;
        Ok(Self { grown: Some(grown), done, shown })
    }

    /// There is more.
    pub(crate) fn grown(&self) {
        if let Some(grown) = &self.grown {
            // A nudge that is still there is enough.
            let _ = grown.try_send(());
        }
    }

    /// Up to which offset all is shown.
    pub(crate) fn shown(&self) -> watch::Receiver<u64> {
        self.shown.clone()
    }

    /// There will be no more.
    pub(crate) fn end(&mut self) {
        self.grown = None;
    }

    /// When all is shown, or could not be.
    pub(crate) async fn finished(&mut self) -> io::Result<()> {
        (&mut self.done).await.unwrap_or_else(|_| Err(io::Error::other("the thread that writes has gone")))
    }
}

fn drain(reader: &mut Reader, sink: &mut impl FnMut(Option<Item>) -> io::Result<()>) -> io::Result<()> {
    while let Some(item) = reader.next()? {
        sink(Some(item))?;
    }
    Ok(())
}

/// Writes it where the program wrote it, byte for byte.
pub(crate) fn plainly(item: Option<Item>) -> io::Result<()> {
    match item {
        Some(Item::Chunk(Chunk { stream, bytes, .. })) => write(stream, &bytes),
        Some(Item::Gap { from, to }) => {
            say_gap(from, to);
            Ok(())
        }
        None => Ok(()),
    }
}

pub(crate) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Err => io::stderr().lock().write_all(bytes),
    }
}

/// Older output is dropped when there is too much of it; that is never silent.
pub(crate) fn say_gap(from: u64, to: u64) {
    let _ = writeln!(io::stderr(), "-- about {} bytes of output are no longer there --", to - from);
}
