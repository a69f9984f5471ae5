//! What the values of options may be: sizes and times.

use std::time::Duration;

/// A size in bytes, with K, M, G or T (of 1024) after it.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim_end_matches(['i', 'B', 'b']) {
        text if text.ends_with(['K', 'k']) => (&text[..text.len() - 1], 10),
        text if text.ends_with(['M', 'm']) => (&text[..text.len() - 1], 20),
        text if text.ends_with(['G', 'g']) => (&text[..text.len() - 1], 30),
        text if text.ends_with(['T', 't']) => (&text[..text.len() - 1], 40),
        text => (text, 0),
    };
    let number: u64 = digits
        .trim()
        .parse()
        .map_err(|_| "a number of bytes such as 4096, 64K or 1G".to_owned())?;
    number
        .checked_shl(shift)
        .filter(|size| size >> shift == number && *size > 0)
        .ok_or_else(|| "from 1 byte to 16777215T".to_owned())
}

/// A size of a block.
pub(crate) fn parse_block(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    let most = blockring::BLOCK_BYTES_MAX;
    let size =
        u32::try_from(size).ok().filter(|size| (blockring::BLOCK_BYTES_MIN..=most).contains(size));
    size.ok_or_else(|| format!("from {} bytes to {}M", blockring::BLOCK_BYTES_MIN, most >> 20))
}

/// A time, with its unit.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let time: jiff::SignedDuration =
        text.parse().map_err(|_| "a time such as 90s, 10m or 500ms".to_owned())?;
    Duration::try_from(time)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "more than no time at all".to_owned())
}

/// A size as it is typed: `512K`.
pub(crate) fn show_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_as_they_are_typed() {
        let sizes = [("512", 512), ("4K", 4096), ("4KiB", 4096), ("1m", 1 << 20), ("2GB", 2 << 30)];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for wrong in ["", "K", "-1", "0", "1.5G", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((&*show_size(4096), &*show_size(1000)), ("4K", "1000"));
        assert_eq!(parse_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7200)));
        assert!(
            parse_time("0s").is_err() && parse_time("soon").is_err() && parse_time("-1s").is_err()
        );
        assert!(parse_block("256").is_err() && parse_block("1G").is_err());
    }
}
