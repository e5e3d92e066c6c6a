//! Amounts of memory and cores as people type them.

pub(crate) use relive_types::size::bytes;

/// Parses `512K`, `64M`, `2G`, powers of 1024. A bare number is refused, because its unit is unclear.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "use a size such as 512K, 64M or 2G".to_owned();
    let upper = text.to_ascii_uppercase();
    let short = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("a size needs a unit, such as {text}M or {text}G"));
    }
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

/// Parses `2` or `0.5` cores, as thousandths.
pub(crate) fn parse_processors(text: &str) -> Result<u32, String> {
    // The kernel counts in thousandths of a second, of each tenth of one.
    const LEAST: u32 = 10;
    const MOST: u32 = 1_000_000;
    let wrong = || "use a number such as 2, 1.5 or 0.25, at least 0.01".to_owned();
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return Err(wrong());
    }
    let (whole, part) = (whole.parse::<u32>(), format!("{part:0<3}").parse::<u32>());
    let thousandths = whole.ok().zip(part.ok()).and_then(|(whole, part)| whole.checked_mul(1000)?.checked_add(part));
    thousandths.filter(|thousandths| (LEAST..=MOST).contains(thousandths)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_as_typed() {
        let check = |text: &str, thousandths| assert_eq!(parse_processors(text).ok(), thousandths, "{text}");
        check("2", Some(2000));
        check("0.5", Some(500));
        check("1.25", Some(1250));
        check("0.01", Some(10));
        for bad in ["", "0", ".", ".5", "1.", "-1", "+1", "0.001", "1.2345", "99999999", "1e3", "50%"] {
            check(bad, None);
        }
    }

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

    #[test]
    fn amounts_of_bytes() {
        let check = |count, text: &str| assert_eq!(bytes(count), text);
        check(0, "0 bytes");
        check(1, "1 byte");
        check(1_023, "1023 bytes");
        check(1_999, "1.9 KiB");
        check(50_000_000, "47.6 MiB");
        check((2 << 30) - 1, "1.9 GiB");
        check(u64::MAX, "16777215.9 TiB");
        for typed in ["1K", "512M", "2G", "3T"] {
            // A limit is shown as it was typed.
            assert_eq!(bytes(parse_size(typed).unwrap()).replace(' ', "").replace("iB", ""), typed);
        }
    }
}
