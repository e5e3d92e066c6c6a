//! How numbers of bytes are written.

/// Returns a number of bytes in units that are powers of 1024: `22 bytes`, `1.9 KiB`, `512 MiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| count >> shift > 0) {
        Some((name, shift)) if count.trailing_zeros() >= *shift => format!("{} {name}", count >> shift),
        Some((name, shift)) => {
            let rest = count & ((1 << shift) - 1);
            format!("{}.{} {name}", count >> shift, ((rest >> (shift - 10)) * 10) >> 10)
        }
        None if count == 1 => "1 byte".to_owned(),
        None => format!("{count} bytes"),
    }
}
