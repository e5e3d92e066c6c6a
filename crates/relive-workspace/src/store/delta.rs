//! Deltas: an object as copies from another one plus bytes of its own.

use std::collections::HashMap;

/// Bytes that have to be equal before a copy is considered.
const BLOCK: usize = 16;
/// The largest copy one instruction can make.
const COPY_MAX: usize = 0xff_ffff;
const INSERT_MAX: usize = 127;

/// Describes `target` as changes to `base`.
pub(super) fn encode(base: &[u8], target: &[u8]) -> Vec<u8> {
    let block = |bytes: &[u8], at: usize| {
        bytes.get(at..at + BLOCK).and_then(|block| block.try_into().ok()).map(u128::from_le_bytes)
    };
    let mut blocks = HashMap::new();
    for at in (0..base.len()).step_by(BLOCK) {
        if let Some(block) = block(base, at) {
            blocks.entry(block).or_insert(at);
        }
    }
    let mut delta = Vec::new();
    write_size(&mut delta, base.len());
    write_size(&mut delta, target.len());
    // Bytes from `literal` up to `at` are not encoded yet.
    let (mut literal, mut at) = (0, 0);
    while at < target.len() {
        let Some(&from) = block(target, at).and_then(|block| blocks.get(&block)) else {
            at += 1;
            continue;
        };
        let back = base[..from].iter().rev().zip(target[literal..at].iter().rev()).take_while(|(a, b)| a == b).count();
        let ahead = base[from..].iter().zip(&target[at..]).take_while(|(a, b)| a == b).count();
        insert(&mut delta, &target[literal..at - back]);
        copy(&mut delta, from - back, back + ahead);
        at += ahead;
        literal = at;
    }
    insert(&mut delta, &target[literal..]);
    delta
}

fn insert(delta: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(INSERT_MAX) {
        #[expect(clippy::cast_possible_truncation, reason = "a piece has at most 127 bytes")]
        delta.push(piece.len() as u8);
        delta.extend_from_slice(piece);
    }
}

fn copy(delta: &mut Vec<u8>, mut from: usize, mut len: usize) {
    while len > 0 {
        let taken = len.min(COPY_MAX);
        let command = delta.len();
        delta.push(0x80);
        let (offset, size) = (from.to_le_bytes(), taken.to_le_bytes());
        for (bit, &byte) in offset[..4].iter().chain(&size[..3]).enumerate() {
            if byte != 0 {
                delta[command] |= 1 << bit;
                delta.push(byte);
            }
        }
        from += taken;
        len -= taken;
    }
}

/// Rebuilds an object; `None` if the delta is damaged.
pub(super) fn apply(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut rest = delta.iter();
    if read_size(&mut rest)? != base.len() {
        return None;
    }
    let size = read_size(&mut rest)?;
    let mut whole = Vec::with_capacity(size.min(1 << 24));
    while let Some(&command) = rest.next() {
        if command & 0x80 == 0 {
            let (piece, behind) = rest.as_slice().split_at_checked(usize::from(command))?;
            if piece.is_empty() {
                return None;
            }
            whole.extend_from_slice(piece);
            rest = behind.iter();
        } else {
            let mut fields = [0_usize; 2];
            for bit in 0..7 {
                if command & 1 << bit != 0 {
                    let (field, shift) = if bit < 4 { (0, bit) } else { (1, bit - 4) };
                    fields[field] |= usize::from(*rest.next()?) << (8 * shift);
                }
            }
            let len = if fields[1] == 0 { 0x1_0000 } else { fields[1] };
            whole.extend_from_slice(base.get(fields[0]..fields[0].checked_add(len)?)?);
        }
        if whole.len() > size {
            return None;
        }
    }
    (whole.len() == size).then_some(whole)
}

/// Writes the distance to the base of a delta.
pub(super) fn write_offset(bytes: &mut Vec<u8>, mut back: u64) {
    let start = bytes.len();
    bytes.push((back & 0x7f) as u8);
    while back > 0x7f {
        back = (back >> 7) - 1;
        bytes.push(0x80 | (back & 0x7f) as u8);
    }
    bytes[start..].reverse();
}

/// Reads the output of [`write_offset`].
pub(crate) fn read_offset(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut byte = bytes.next()?;
    let mut back = u64::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = bytes.next()?;
        back = (back.checked_add(1)?).checked_mul(128)? | u64::from(byte & 0x7f);
    }
    Some(back)
}

fn write_size(bytes: &mut Vec<u8>, mut size: usize) {
    while size > 0x7f {
        bytes.push(0x80 | (size & 0x7f) as u8);
        size >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most 127")]
    bytes.push(size as u8);
}

fn read_size(bytes: &mut std::slice::Iter<'_, u8>) -> Option<usize> {
    let (mut size, mut shift) = (0_usize, 0);
    loop {
        let byte = *bytes.next()?;
        size |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &[u8], target: &[u8]) -> usize {
        let delta = encode(base, target);
        assert_eq!(apply(base, &delta).as_deref(), Some(target));
        delta.len()
    }

    #[test]
    fn a_delta_rebuilds_its_target() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut edited = text.clone();
        edited.splice(1_000..1_010, *b"something else here");
        assert!(check(&text, &edited) < 100);
        assert!(check(&text, &text) < 20);
        check(b"", b"only new");
        check(b"only old", b"");
        check(&text[..50], &edited);
    }

    #[test]
    fn a_damaged_delta_is_refused() {
        let (base, delta) =
            (b"0123456789abcdef0123456789abcdef", encode(b"0123456789abcdef0123456789abcdef", b"0123456789abcdef!"));
        for at in 0..delta.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut broken = delta.clone();
                broken[at] = value;
                let _ = apply(base, &broken);
                let _ = apply(base, &broken[..at]);
            }
        }
        assert_eq!(apply(b"another base", &delta), None);
    }

    #[test]
    fn offsets_are_unchanged_after_writing_and_reading() {
        for back in [1, 127, 128, 129, 16_511, 16_512, u64::from(u32::MAX) * 9] {
            let mut bytes = Vec::new();
            write_offset(&mut bytes, back);
            assert_eq!(read_offset(&mut bytes.into_iter()), Some(back));
        }
    }
}
