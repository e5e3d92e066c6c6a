//! What the calls of a process are doing.

use std::sync::Arc;

use super::Served;

/// Something that a call does, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Doing {
    served: Arc<Served>,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Asking,
    Waiting,
    Wanting(u64),
    /// Waits for space on the disk.
    Recording,
    Existing,
}

impl Doing {
    pub(super) fn begin(served: &Arc<Served>, what: What) -> Self {
        match what {
            What::Asking => served.state().in_flight += 1,
            What::Waiting => served.state().held += 1,
            What::Recording => served.state().unrecorded += 1,
            What::Wanting(_) => {}
            What::Existing => served.open.send_modify(|open| *open += 1),
        }
        served.publish();
        Self { served: Arc::clone(served), what }
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        match self.what {
            What::Asking => self.served.state().in_flight -= 1,
            What::Waiting => self.served.state().held -= 1,
            What::Recording => self.served.state().unrecorded -= 1,
            What::Wanting(number) => drop(self.served.state().wanted.remove(&number)),
            What::Existing => self.served.open.send_modify(|open| *open -= 1),
        }
        self.served.publish();
    }
}
