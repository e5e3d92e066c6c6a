//! A disk that is full while calls are made.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use relive_fake_model::{FakeModel, Turn};
use relive_gateway::{Exhausted, Lease};

use crate::place::{Place, wait_until};

const PAGE: u64 = 4096;
/// How much of the next line fits.
const LEFT: u64 = 20;

/// The directory of a process on a file system of its own.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(directory: &Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(directory).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(directory.to_owned()));
        }
        eprintln!("skipped: no small disk can be mounted here");
        None
    }

    fn log(&self) -> PathBuf {
        self.0.join("gateway.jsonl")
    }

    fn log_length(&self) -> u64 {
        self.log().metadata().unwrap().len()
    }

    /// Leaves space for a part of a line only, and returns the length of the log with that part.
    fn fill(&self) -> u64 {
        let length = self.log_length();
        let full = (length + LEFT).next_multiple_of(PAGE);
        let padding = usize::try_from(full - LEFT - length).unwrap();
        File::options().append(true).open(self.log()).unwrap().write_all(&vec![b'\n'; padding]).unwrap();
        let mut filler = File::options().create(true).append(true).open(self.0.join("filler")).unwrap();
        while filler.write_all(&[b'x'; 512]).is_ok() {}
        full
    }

    fn free(&self) {
        rustix::fs::unlink(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_space_before_it_is_made() {
    let server = FakeModel::start_for_agents([Turn::text("Hello.").usage(300, 7, 0)]);
    let place = Place::new(&server);
    let Some(disk) = SmallDisk::at(&place.directory()) else { return };
    let served = place.start().await;
    let first = served.ask("/v1/messages").await;
    let full = disk.fill();
    let second = tokio::spawn(served.asking("/v1/messages"));
    wait_until("the call is recorded as far as it fits", || disk.log_length() == full);
    served.facts(|facts| facts.is_disk_full).await;
    assert_eq!(server.requests().len(), 1, "what is not recorded is not asked");
    disk.free();
    assert_eq!(second.await.unwrap(), first);
    served.facts(|facts| !facts.is_disk_full).await;
    let calls = place.calls();
    assert_eq!(calls.iter().map(|(call, _)| (call.tokens_in, call.estimated)).collect::<Vec<_>>(), [(300, false); 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_answer_waits_for_space_and_is_counted() {
    let server = FakeModel::start_for_agents([Turn::text("Hello ").then("there.").usage(300, 7, 0).waits_after(2)]);
    let place = Place::new(&server);
    let Some(disk) = SmallDisk::at(&place.directory()) else { return };
    let served = place.start().await;
    let answer = tokio::spawn(served.asking("/v1/messages"));
    wait_until("the answer has begun", || server.under_way() == 1);
    let full = disk.fill();
    server.let_go();
    wait_until("its end is recorded as far as it fits", || disk.log_length() == full);
    assert!(!answer.is_finished(), "its last byte is not passed on");
    disk.free();
    let (status, text) = answer.await.unwrap();
    assert!(status == 200 && text.contains("there.") && text.contains("message_stop"), "{status} {text}");
    let calls = place.calls();
    let counted: Vec<_> = calls.iter().map(|(call, _)| (call.tokens_in, call.tokens_out, call.estimated)).collect();
    assert_eq!(counted, [(300, 7, false)]);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_waits_for_space_only_as_long_as_its_agent() {
    let server = FakeModel::start_for_agents([Turn::text("Hello.").usage(300, 7, 0)]);
    let place = Place::new(&server);
    let Some(disk) = SmallDisk::at(&place.directory()) else { return };
    let lease = Lease { tokens_left: Some(1), exhausted: Exhausted::Refuse, ..Lease::default() };
    let served = place.start_with(lease).await;
    served.ask("/v1/messages").await;
    disk.fill();
    let refused = tokio::spawn(served.asking("/v1/messages"));
    served.facts(|facts| facts.is_disk_full).await;
    refused.abort();
    served.facts(|facts| !facts.is_disk_full).await;
    assert_eq!(place.calls().len(), 1, "there is still no space");
}
