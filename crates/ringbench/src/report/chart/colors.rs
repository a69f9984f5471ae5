//! The colors of series, and of values from the worst to the best.

/// Colors that people with color blindness can distinguish (after Okabe and Ito, "Color Universal
/// Design", 2008). Each has a contrast of at least 3 to 1 to white and to the dark background of the page
/// (WCAG 2.2, 1.4.11).
const SERIES: [&str; 8] =
    ["#1f7fc4", "#d26a13", "#129166", "#b85aa6", "#97801a", "#1b93a8", "#d84f4f", "#7b8088"];

/// Styles of a line, as CSS and as SVG: after eight series, colors repeat.
const STYLES: [(&str, &str); 3] = [("solid", "none"), ("dashed", "7 4"), ("dotted", "2 3")];

/// Five colors of the map viridis, at equal distances: its lightness grows evenly.
const VIRIDIS: [[f64; 3]; 5] = [
    [68.0, 1.0, 84.0],
    [59.0, 82.0, 139.0],
    [33.0, 145.0, 140.0],
    [94.0, 201.0, 98.0],
    [253.0, 231.0, 37.0],
];

/// The place from which on black text is more legible than white text.
const BLACK_FROM: f64 = 0.44;

pub(super) fn of_series(number: usize) -> &'static str {
    SERIES[number % SERIES.len()]
}

/// The style of the line of a series, as CSS and as SVG.
pub(super) fn style_of_series(number: usize) -> (&'static str, &'static str) {
    STYLES[number / SERIES.len() % STYLES.len()]
}

/// The color of a place from 0, the worst, to 1, the best, and the color of text on it.
pub(super) fn of_place(place: f64) -> (String, &'static str) {
    let at = place.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let index = (at as usize).min(VIRIDIS.len() - 2);
    let mix = |part: usize| {
        let (from, to) = (VIRIDIS[index][part], VIRIDIS[index + 1][part]);
        (from + (to - from) * (at - index as f64)).round() as u8
    };
    let text = if place < BLACK_FROM { "#ffffff" } else { "#000000" };
    (format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2)), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast of two colors, from 1 to 21 (WCAG 2.2, contrast ratio).
    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |color: &str| {
            let linear = |place: usize| {
                let part = u8::from_str_radix(&color[place..place + 2], 16).unwrap();
                match f64::from(part) / 255.0 {
                    c if c <= 0.04045 => c / 12.92,
                    c => ((c + 0.055) / 1.055).powf(2.4),
                }
            };
            0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5)
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn series_are_visible_on_light_and_on_dark() {
        // The backgrounds of page.css.
        for background in ["#ffffff", "#15181c"] {
            for color in SERIES {
                let contrast = contrast(background, color);
                assert!(contrast >= 3.0, "{color} on {background}: {contrast:.2}");
            }
        }
    }

    #[test]
    fn text_is_legible_on_every_place() {
        for place in (0..=100).map(|place| f64::from(place) / 100.0) {
            let (color, text) = of_place(place);
            assert!(contrast(&color, text) >= 4.5, "{place}: {:.2}", contrast(&color, text));
        }
    }
}
