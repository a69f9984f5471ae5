//! Progress on standard error, if it is a terminal: what is measured, and for how long.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Columns of the bar.
const WIDTH: usize = 24;

/// A bar whose length is the estimated time of the run, in milliseconds. It moves with what is done (`=`),
/// and ahead of that with time (`-`). Its line is cut at the width of the terminal.
pub(super) fn bar(is_wanted: bool) -> ProgressBar {
    let bar = match is_wanted {
        // It draws on terminals only.
        true => ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()),
        false => ProgressBar::hidden(),
    };
    let template = "[{both}] {elapsed} of about {duration}  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        let both = |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&draw(
                state.pos(),
                state.elapsed().as_millis() as u64,
                state.len().unwrap_or(0),
            ));
        };
        bar.set_style(style.with_key("both", both));
    }
    if is_wanted {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}

fn draw(done_ms: u64, elapsed_ms: u64, length_ms: u64) -> String {
    let columns =
        |ms: u64| (ms.saturating_mul(WIDTH as u64) / length_ms.max(1)).min(WIDTH as u64) as usize;
    let done = columns(done_ms);
    let elapsed = columns(elapsed_ms).max(done);
    format!("{}{}{}", "=".repeat(done), "-".repeat(elapsed - done), " ".repeat(WIDTH - elapsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_moves_with_time_and_with_what_is_done() {
        assert_eq!(draw(0, 0, 24_000), " ".repeat(24));
        assert_eq!(draw(2000, 5000, 24_000), format!("==---{}", " ".repeat(19)));
        assert_eq!(draw(8000, 5000, 24_000), format!("========{}", " ".repeat(16)));
        assert_eq!(draw(90_000, 90_000, 24_000), "=".repeat(24));
        assert_eq!(draw(0, 1, 0).chars().count(), WIDTH);
    }
}
