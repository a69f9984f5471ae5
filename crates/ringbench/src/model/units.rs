//! Numbers with their units, parsed and printed.

/// Parses a size in bytes, with K, M, G or T for powers of 1024: `4096`, `64K`, `1 GiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "not a size such as 4096, 64K or 1G".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim_start().trim_end_matches(['i', 'B', 'b']) {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let size = number.checked_shl(shift).filter(|size| size >> shift == number && *size > 0);
    size.ok_or_else(|| "a size is from 1 byte to 16777215T".to_owned())
}

/// A size as an option takes it: `512K`.
pub(crate) fn show_size(bytes: impl Into<u64>) -> String {
    let bytes = bytes.into();
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Three digits and a decimal prefix: `3.81 G`.
pub(crate) fn show_scaled(value: f64) -> String {
    show_in(&[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")], value)
}

/// A time with three digits: `81.3 ms`.
pub(crate) fn show_seconds(value: f64) -> String {
    show_in(&[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")], value)
}

/// A value in the largest unit that it reaches, or in the last one.
fn show_in(units: &[(f64, &str)], value: f64) -> String {
    let reached = units.iter().find(|(unit, _)| value.abs() >= *unit).or(units.last());
    let (unit, name) = reached.copied().unwrap_or((1.0, ""));
    let value = value / unit;
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_shown() {
        let sizes = [("512", 512), ("4K", 4096), ("4KiB", 4096), ("1m", 1 << 20), ("2GB", 2 << 30)];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for wrong in ["", "K", "-1", "0", "1.5G", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((&*show_size(4096_u64), &*show_size(1000_u32)), ("4K", "1000"));
    }
}
