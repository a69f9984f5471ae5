//! Progress on standard error, if it is a terminal: the current case, and the remaining time.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar whose length is the estimated time of the run, in milliseconds.
pub(super) fn bar(is_wanted: bool) -> ProgressBar {
    let bar = match is_wanted {
        // It draws on terminals only.
        true => ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()),
        false => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {msg}, at most {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
