//! Properties of any bytes in the place of a journal. The fuzz target `open` runs the same function.

use std::convert::Infallible;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use relive_core::{Moment, Pid, Timestamp, Uuid};
use relive_journal::reader::{Cursor, Entry, Item, Reader};
use relive_journal::record::{Body, Input, OpenedBy};
use relive_journal::{DataDirectory, Disk, Durability, Health, Next, Opening, ProcInfo, WriteError, Writer};

/// Reads `bytes` as the journal of process `uuid`, opens it if possible, writes to it, and reads it again.
pub(crate) fn open_and_repair(data: &DataDirectory, uuid: Uuid, bytes: &[u8]) {
    let directory = data.directory(uuid);
    Disk::new().remove_tree(directory.path()).unwrap();
    Disk::new().mkdir(directory.path()).unwrap();
    write(&directory.steps(), bytes);

    let (before, health) = data.history(uuid).unwrap();
    read_all(&directory.steps());
    let _ = (before.plan().next == Next::Input, ProcInfo::of(&before));
    before.conversation(&fs::File::open(directory.steps()).unwrap()).unwrap();

    let now = Moment { at: Timestamp::UNIX_EPOCH, up_ms: 0 };
    let (by, boot_id) = (OpenedBy::Recovery, "boot".to_owned());
    let opening = Opening { pid: Pid(7), by, boot_id, now, req: None, seen: None, cause: None };
    let opened = data.open_journal(uuid, &opening, None, |_| Ok::<_, Infallible>(Vec::new())).map_err(WriteError::from);
    let sound = match &health {
        Health::Good => bytes.len(),
        Health::Torn { offset, bytes: cut } => {
            assert_eq!(offset + cut, bytes.len() as u64, "what is torn reaches to the end");
            usize::try_from(*offset).unwrap()
        }
        Health::Damaged(hole) | Health::ReadOnly(hole) => {
            let refused = opened.unwrap_err();
            let named = matches!(&refused, WriteError::Damaged { hole: named, .. } | WriteError::ReadOnly { hole: named, .. } if named == hole);
            assert!(named, "refused for something else than reading it finds: {refused}");
            assert!(fs::read(directory.steps()).unwrap() == bytes, "a refusal changes nothing");
            return;
        }
    };
    let prefix = directory.path().join("prefix");
    write(&prefix, &bytes[..sound]);
    let entries = read_all(&prefix);
    let mut writer = opened.unwrap();
    check_repair(&writer, &bytes[sound..]);
    let input = Input { id: "after".to_owned(), from: None, text: "go on".into() };
    writer.append(now, vec![Body::Input(input)], Durability::Synced).unwrap();
    let left = writer.history().clone();
    drop(writer);

    assert!(fs::read(directory.steps()).unwrap().starts_with(&bytes[..sound]), "what was good is as it was");
    assert_eq!(data.history(uuid).unwrap(), (left, Health::Good));
    let now = read_all(&directory.steps());
    assert!(now.starts_with(&entries), "every whole record before the torn end is still there");
    let added: Vec<&str> = now[entries.len()..].iter().map(|entry| entry.kind.as_str()).collect();
    let expected: &[&str] = if sound < bytes.len() { &["opened", "repair", "input"] } else { &["opened", "input"] };
    assert_eq!(added, expected);
}

fn check_repair(writer: &Writer, cut: &[u8]) {
    if cut.is_empty() {
        return;
    }
    let repair = writer.history().repairs.last().unwrap();
    assert_eq!(repair.cut_bytes, cut.len() as u64);
    assert!(writer.blobs().get(repair.blob).unwrap() == cut, "what was cut is kept");
}

fn read_all(path: &Path) -> Vec<Entry> {
    let mut reader = Reader::new(path.to_owned(), Cursor::default());
    let mut entries = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Record(entry) => entries.push(entry),
            Item::Damaged { .. } => {}
        }
    }
    entries
}

/// Corrects the checksum of every line that looks like a record, so that the code after that check is reached too.
pub(crate) fn reseal(bytes: &[u8]) -> Vec<u8> {
    const TAIL: usize = r#","crc":"01234567"}"#.len();
    let mut sealed = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let body = line.strip_suffix(b"\n").unwrap_or(line);
        match body.len().checked_sub(TAIL).map(|at| body.split_at(at)) {
            Some((covered, tail)) if tail.starts_with(br#","crc":""#) => {
                let crc = crc32c::crc32c_append(crc32c::crc32c(covered), b"}");
                sealed.extend_from_slice(covered);
                write!(sealed, ",\"crc\":\"{crc:08x}\"}}").unwrap();
                sealed.extend_from_slice(&line[body.len()..]);
            }
            _ => sealed.extend_from_slice(line),
        }
    }
    sealed
}

fn write(path: &Path, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}
