//! Amounts of memory as people type them.

/// Reads `512K`, `64M`, `2G`, powers of 1024. A bare number is refused: nobody knows its unit.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "say it like 512K, 64M or 2G".to_owned();
    let upper = text.to_ascii_uppercase();
    let short = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let split = short.len().checked_sub(1).filter(|split| short.is_char_boundary(*split)).ok_or_else(wrong)?;
    let shift = match &short[split..] {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let count: u64 = short[..split].parse().map_err(|_| wrong())?;
    count.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_typed() {
        let check = |text: &str, bytes: Option<u64>| assert_eq!(parse_size(text).ok(), bytes, "{text}");
        check("512K", Some(512 << 10));
        check("64m", Some(64 << 20));
        check("2GB", Some(2 << 30));
        check("2GiB", Some(2 << 30));
        for bad in ["", "64", "M", "B", "-1M", "1.5G", "0M", "99999999999T", "\u{20ac}"] {
            check(bad, None);
        }
    }
}
