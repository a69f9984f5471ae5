//! The canvas: shapes and text in pixels, and the colors of series.

use std::fmt::Write;

/// Colors that people with color blindness can distinguish (after Okabe and Ito, "Color Universal
/// Design", 2008). Each has a contrast of at least 3 to 1 to white and to the dark background of the page
/// (WCAG 2.2, 1.4.11).
const SERIES: [&str; 8] =
    ["#1f7fc4", "#d26a13", "#129166", "#b85aa6", "#97801a", "#1b93a8", "#d84f4f", "#7b8088"];

/// Longest name in a chart, in characters; the table below it has the whole name.
const NAME_CHARS_MAX: usize = 45;

/// The horizontal alignment of text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// An SVG element in the making. Attributes are written as they are; `page.css` has the classes.
pub(super) struct Canvas {
    size: (i32, i32),
    body: String,
}

impl Canvas {
    pub(super) fn new(size: (i32, i32)) -> Canvas {
        Canvas { size, body: String::new() }
    }

    // (Writing to a string does not fail.)

    pub(super) fn line(&mut self, from: (i32, i32), to: (i32, i32), attributes: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" {attributes}/>"
        );
    }

    pub(super) fn rect(&mut self, at: (i32, i32), size: (i32, i32), attributes: &str) {
        let ((x, y), (width, height)) = (at, size);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {attributes}/>"
        );
    }

    pub(super) fn circle(&mut self, (x, y): (i32, i32), radius: i32, attributes: &str) {
        let _ = writeln!(self.body, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" {attributes}/>");
    }

    pub(super) fn polyline(&mut self, points: &[(i32, i32)], attributes: &str) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
        let points = points.join(" ");
        let _ = writeln!(self.body, "<polyline points=\"{points}\" fill=\"none\" {attributes}/>");
    }

    /// Text that is centered vertically.
    pub(super) fn text(
        &mut self,
        (x, y): (i32, i32),
        anchor: Anchor,
        attributes: &str,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" {attributes}>{text}</text>"
        );
    }

    /// The element; a page may scale it a little. `label` describes it for screen readers.
    pub(super) fn finish(self, label: &str) -> String {
        let (Canvas { size: (width, height), body }, label) = (self, escape(label));
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\" \
             style=\"min-width:{}px;max-width:{}px\">\n{body}</svg>",
            width * 17 / 20,
            width * 5 / 4,
        )
    }
}

/// The color of a series.
pub(super) fn color(number: usize) -> &'static str {
    SERIES[number % SERIES.len()]
}

/// The attributes of the line of a series: after eight, colors repeat, and lines are dashed.
pub(super) fn stroke(number: usize, width: u32) -> String {
    let dash = ["", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"3 4\""];
    let dash = dash[number / SERIES.len() % dash.len()];
    format!("stroke=\"{}\" stroke-width=\"{width}\"{dash}", color(number))
}

/// Escapes text for HTML, in elements and in quoted attributes.
pub(in crate::report) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() && c != '\n' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The width of a text of 12 px, in pixels, estimated: characters of the usual sans-serif fonts are 0.5
/// to 0.6 em wide.
pub(super) fn width(text: &str) -> i32 {
    text.chars().map(|c| if c >= '\u{1100}' { 12 } else { 7 }).sum()
}

/// The width of the widest of several texts, in pixels, estimated.
pub(super) fn width_max<T: AsRef<str>>(texts: &[T]) -> i32 {
    texts.iter().map(|text| width(&shorten(text.as_ref()))).max().unwrap_or(0)
}

/// A name in one line, cut if it is too long.
pub(super) fn shorten(name: &str) -> String {
    cut(name, NAME_CHARS_MAX)
}

/// Text in one line of at most so many characters.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    match text.chars().count() <= chars_max {
        true => clean.collect(),
        false => clean.take(chars_max.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The contrast of two colors, from 1 to 21 (WCAG 2.2, contrast ratio).
#[cfg(test)]
pub(super) fn contrast(a: &str, b: &str) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn text_is_never_markup() {
        let mut canvas = Canvas::new((100, 50));
        canvas.text((5, 5), Anchor::End, "class=\"soft\"", &shorten("<b>\"\n"));
        let svg = canvas.finish("a \"label\"");
        assert!(
            svg.starts_with(
                "<svg viewBox=\"0 0 100 50\" role=\"img\" aria-label=\"a &quot;label&quot;\""
            ),
            "{svg}"
        );
        assert!(svg.contains("class=\"soft\">&lt;b&gt;&quot; </text>"), "{svg}");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shorten("b2sum"), "b2sum");
        let cut = shorten(&"é".repeat(60));
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (NAME_CHARS_MAX, true));
    }
}
