use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;
use rustix::fs::OFlags;

use super::reader::older;
use super::*;
use crate::directory::SessionDirectory;

fn make() -> (tempfile::TempDir, SessionDirectory) {
    let outer = tempfile::tempdir().unwrap();
    let (directory, _lock) = SessionDirectory::create(outer.path().join("s")).unwrap();
    (outer, directory)
}

fn rest(reader: &mut Reader) -> Vec<Item> {
    std::iter::from_fn(|| reader.next().unwrap()).collect()
}

fn chunks(directory: &Path) -> Vec<(Stream, Vec<u8>)> {
    let items = rest(&mut Reader::open(directory, 0).unwrap());
    let chunk = |item| match item {
        Item::Chunk(chunk) => (chunk.stream, chunk.bytes),
        Item::Gap { from, to } => panic!("a gap from {from} to {to}"),
    };
    items.into_iter().map(chunk).collect()
}

fn names(directory: &Path) -> usize {
    std::fs::read_dir(directory)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().to_string_lossy().contains("log"))
        .count()
}

#[test]
fn output_is_read_in_order_with_its_stream() {
    let (_outer, directory) = make();
    let mut reader = Reader::open(directory.path(), 0).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    let mut writer = Writer::open(&directory, 1 << 20).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    writer.append(Stream::Out, b"one\n").unwrap();
    writer.append(Stream::Err, b"two\n").unwrap();
    writer.append(Stream::Out, b"").unwrap();
    let Some(Item::Chunk(first)) = reader.next().unwrap() else { panic!() };
    assert_eq!((first.stream, &first.bytes[..], first.offset), (Stream::Out, &b"one\n"[..], 20));
    let Some(Item::Chunk(second)) = reader.next().unwrap() else { panic!() };
    assert_eq!((second.stream, &second.bytes[..], second.offset), (Stream::Err, &b"two\n"[..], first.next));
    assert_eq!(second.next, writer.end());
    assert_eq!(reader.next().unwrap(), None);
    writer.sync().unwrap();
}

#[test]
fn an_exit_record_at_the_end_is_no_output() {
    let (_outer, directory) = make();
    let mut writer = Writer::open(&directory, 1 << 20).unwrap();
    assert_eq!(read_exit(&directory).unwrap(), None);
    writer.append(Stream::Out, b"last words").unwrap();
    let end = writer.end();
    writer.append_exit(b"{}").unwrap();
    assert_eq!(writer.end(), end);
    assert_eq!(read_exit(&directory).unwrap().as_deref(), Some(&b"{}"[..]));
    assert_eq!(chunks(directory.path()), [(Stream::Out, b"last words".to_vec())]);
    assert_eq!(read_ends(directory.path(), 100, 100).unwrap().head, b"last words");
}

#[test]
fn half_an_exit_record_is_none() {
    let (_outer, directory) = make();
    let mut writer = Writer::open(&directory, 1 << 20).unwrap();
    writer.append(Stream::Out, b"last words").unwrap();
    writer.append_exit(b"0123456789").unwrap();
    let file = std::fs::File::from(directory.open_file("log", OFlags::RDWR).unwrap());
    let length = file.metadata().unwrap().len();
    file.set_len(length - 1).unwrap();
    assert_eq!(read_exit(&directory).unwrap(), None);
    // The length got onto the disk and the bytes did not.
    file.set_len(length - 10 - HEAD as u64).unwrap();
    file.set_len(length).unwrap();
    assert_eq!(read_exit(&directory).unwrap(), None);
}

#[test]
fn a_long_write_becomes_several_chunks() {
    let (_outer, directory) = make();
    let mut writer = Writer::open(&directory, 1 << 20).unwrap();
    let long: Vec<u8> = (0..3 * FRAME_MAX / 2).map(|i| i as u8).collect();
    writer.append(Stream::Out, &long).unwrap();
    let read = chunks(directory.path());
    assert_eq!(read.len(), 2);
    assert_eq!(read.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>(), long);
}

#[test]
fn a_torn_tail_is_not_read_and_the_next_writer_cuts_it_off() {
    let (_outer, directory) = make();
    let mut writer = Writer::open(&directory, 1 << 20).unwrap();
    writer.append(Stream::Out, b"whole").unwrap();
    let end = writer.end();
    drop(writer);
    let mut reader = Reader::open(directory.path(), 0).unwrap();
    assert_eq!(rest(&mut reader).len(), 1);
    for torn in [&Head { stream: 1, length: 100, at_ms: 5 }.encode()[..], &[1, 0][..], &[0; 40][..]] {
        let mut file = std::fs::File::from(directory.open_file(NAME, OFlags::WRONLY | OFlags::APPEND).unwrap());
        file.write_all(torn).unwrap();
        assert_eq!(reader.next().unwrap(), None);
        assert_eq!(Writer::open(&directory, 1 << 20).unwrap().end(), end);
    }
    Writer::open(&directory, 1 << 20).unwrap().append(Stream::Err, b"more").unwrap();
    let Some(Item::Chunk(chunk)) = reader.next().unwrap() else { panic!() };
    assert_eq!((chunk.offset, &chunk.bytes[..]), (end, &b"more"[..]));
}

#[test]
fn a_log_continues_after_its_writer_died_during_a_rotation() {
    let (_outer, directory) = make();
    let mut writer = Writer::open(&directory, 1 << 20).unwrap();
    writer.append(Stream::Out, b"before").unwrap();
    let end = writer.end();
    drop(writer);
    rustix::fs::renameat(directory.dir(), NAME, directory.dir(), name_of(0)).unwrap();
    let mut reader = Reader::open(directory.path(), 0).unwrap();
    assert_eq!(rest(&mut reader).len(), 1);
    let mut writer = Writer::open(&directory, 1 << 20).unwrap();
    assert_eq!(writer.end(), end + MARK_SIZE as u64);
    writer.append(Stream::Out, b"after").unwrap();
    assert_eq!(rest(&mut reader).len(), 1);
    assert_eq!(chunks(directory.path()).len(), 2);
}

#[test]
fn the_oldest_output_is_dropped_and_late_readers_get_a_gap() {
    let (_outer, directory) = make();
    let mut writer = Writer::open(&directory, 0).unwrap();
    let mut slow = Reader::open(directory.path(), 0).unwrap();
    for _ in 0..100 {
        writer.append(Stream::Out, &[b'x'; 32 * 1024]).unwrap();
    }
    let kept: u64 = (older(directory.dir()).unwrap().iter().map(|first| name_of(*first)).chain([NAME.into()]))
        .map(|name| std::fs::metadata(directory.path().join(name)).unwrap().len())
        .sum();
    assert!((256 * 1024..=512 * 1024).contains(&kept), "{kept}");
    assert_eq!(names(directory.path()), 2);
    let items = rest(&mut slow);
    let Some(Item::Gap { from: 0, to }) = items.first() else { panic!("{:?}", items.first()) };
    assert_eq!(*to, writer.end() - kept);
}

#[test]
fn tail_and_read_ends_return_the_first_and_last_bytes() {
    let (_outer, directory) = make();
    assert_eq!(Reader::tail(directory.path(), 10).unwrap(), 0);
    assert_eq!(read_ends(directory.path(), 4, 4).unwrap(), Ends::default());
    let mut writer = Writer::open(&directory, 1 << 20).unwrap();
    for text in ["abcd", "efgh", "ijkl"] {
        writer.append(Stream::Out, text.as_bytes()).unwrap();
    }
    let at = Reader::tail(directory.path(), 5).unwrap();
    assert_eq!(at, writer.end() - 16);
    let check = |head, tail, expect: (&str, u64, &str)| {
        let ends = read_ends(directory.path(), head, tail).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!((text(&ends.head).as_str(), ends.left_out, text(&ends.tail).as_str()), expect);
    };
    check(6, 3, ("abcdef", 3, "jkl"));
    check(6, 6, ("abcdef", 0, "ghijkl"));
    check(100, 6, ("abcdefghijkl", 0, ""));
    check(0, 2, ("", 10, "kl"));
}

/// One writer and one reader on two threads during rotations: nothing is lost or read twice.
#[test]
fn a_reader_keeps_up_with_rotation() {
    const LINES: u32 = 20_000;
    let (_outer, directory) = make();
    let mut writer = Writer::with_segments(&directory, 64 * 1024 * 1024, 4096).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..LINES).for_each(|n| writer.append(Stream::Out, &n.to_be_bytes()).unwrap()));
        let mut reader = Reader::open(directory.path(), 0).unwrap();
        let mut expected = 0u32;
        while expected < LINES {
            match reader.next().unwrap() {
                None => std::thread::yield_now(),
                Some(Item::Gap { from, to }) => panic!("a gap from {from} to {to}"),
                Some(Item::Chunk(chunk)) => {
                    assert_eq!(chunk.bytes, expected.to_be_bytes());
                    expected += 1;
                }
            }
        }
    });
}

#[derive(Debug, Clone)]
enum Act {
    Append(usize),
    Reopen,
    Read(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1usize..300).prop_map(Act::Append),
        1 => Just(Act::Reopen),
        2 => (0usize..20).prop_map(Act::Read),
    ]
}

proptest! {
    /// Appended output is read, or is in a reported gap, wherever a reader begins.
    #[test]
    fn lost_output_is_always_reported_as_a_gap(
        acts in proptest::collection::vec(act(), 1..120),
        max in 1024u64..8192,
        start in 0.0f64..1.0,
    ) {
        let (_outer, directory) = make();
        let open = || Writer::with_segments(&directory, max, 512).unwrap();
        let mut writer = open();
        let mut written: Vec<(u64, u8)> = Vec::new();
        let mut following = Follower::new(&directory, 0);
        for (n, act) in acts.into_iter().enumerate() {
            match act {
                Act::Append(length) => {
                    writer.append(Stream::Out, &vec![n as u8; length]).unwrap();
                    written.push((writer.end() - (HEAD + length) as u64, n as u8));
                }
                Act::Reopen => writer = open(),
                Act::Read(count) => following.read(count),
            }
        }
        following.read(usize::MAX);
        following.check(&written)?;
        let mut late = Follower::new(&directory, (writer.end() as f64 * start) as u64);
        late.read(usize::MAX);
        late.check(&written)?;
    }
}

struct Follower {
    reader: Reader,
    from: u64,
    read: Vec<(u64, u8)>,
    gaps: Vec<(u64, u64)>,
    next: u64,
}

impl Follower {
    fn new(directory: &SessionDirectory, from: u64) -> Self {
        let reader = Reader::open(directory.path(), from).unwrap();
        Self { reader, from, read: Vec::new(), gaps: Vec::new(), next: from }
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            match self.reader.next().unwrap() {
                None => return,
                Some(Item::Gap { from, to }) => {
                    assert!(from < to);
                    self.gaps.push((from, to));
                    self.next = to;
                }
                Some(Item::Chunk(chunk)) => {
                    assert!(chunk.next > self.next);
                    self.read.push((chunk.offset, chunk.bytes[0]));
                    self.next = chunk.next;
                }
            }
        }
    }

    /// Checks that everything written at or after the beginning was read once and in order, except for gaps.
    fn check(&self, written: &[(u64, u8)]) -> Result<(), TestCaseError> {
        let covered = |offset: u64| self.gaps.iter().any(|(from, to)| (*from..*to).contains(&offset));
        let expected: Vec<_> = written.iter().filter(|(at, _)| *at >= self.from && !covered(*at)).copied().collect();
        // The chunk in whose middle the reader began is returned whole.
        let read: Vec<_> = self.read.iter().filter(|(at, _)| *at >= self.from).copied().collect();
        prop_assert_eq!(read, expected);
        Ok(())
    }
}
