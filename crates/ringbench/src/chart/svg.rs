//! The canvas: colours, text, and the SVG element around it all.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, RGBAColor, RGBColor, TextStyle};

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Stands for the colour of the text around the chart.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);

/// Apart for those who see fewer colours (after Okabe and Ito, "Color Universal Design", 2008), and each
/// with a contrast of at least 3 to 1 both to white and to the dark background of the page (WCAG 2.2, 1.4.11).
pub(super) const SERIES: [RGBColor; 8] = [
    RGBColor(0x1f, 0x7f, 0xc4),
    RGBColor(0xd2, 0x6a, 0x13),
    RGBColor(0x12, 0x91, 0x66),
    RGBColor(0xb8, 0x5a, 0xa6),
    RGBColor(0x97, 0x80, 0x1a),
    RGBColor(0x1b, 0x93, 0xa8),
    RGBColor(0xd8, 0x4f, 0x4f),
    RGBColor(0x7b, 0x80, 0x88),
];

/// Pixels of the text on axes and in legends.
pub(super) const TEXT_PX: f64 = 12.0;

/// Characters that a name may have in a chart; the table below it has the whole one.
pub(super) const NAME_CHARS_MAX: usize = 45;

/// Draws on a canvas of so many pixels, which a page may shrink or stretch by a little: the text shrinks along.
pub(super) fn draw(
    (width, height): (u32, u32),
    label: &str,
    draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
    draw(&area)?;
    area.present()?;
    drop(area);
    // The quotes are part of what is replaced: in text, they are escaped.
    let body = text.split_once('>').map_or("", |(_, body)| body);
    let body = body
        .replace("\"#010203\"", "\"currentColor\"")
        .replace(" opacity=\"1\"", "")
        .replace(" font-family=\"sans-serif\"", "");
    Ok(format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\" \
         style=\"min-width:{}px;max-width:{}px\">{body}",
        escape(label),
        width * 17 / 20,
        width * 5 / 4,
    ))
}

/// Text for HTML, in elements and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
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

pub(super) fn ink(opacity: f64) -> RGBAColor {
    INK.mix(opacity)
}

pub(super) fn text(px: f64, color: RGBAColor) -> TextStyle<'static> {
    style(px, FontStyle::Normal, color)
}

pub(super) fn bold(px: f64, color: RGBAColor) -> TextStyle<'static> {
    style(px, FontStyle::Bold, color)
}

fn style(px: f64, style: FontStyle, color: RGBAColor) -> TextStyle<'static> {
    // The backend divides sizes by 1.24.
    let font = FontDesc::new(FontFamily::SansSerif, px * 1.24, style);
    TextStyle { font, color: color.to_backend_color(), pos: LEFT }
}

pub(super) const LEFT: Pos = Pos { h_pos: HPos::Left, v_pos: VPos::Center };
pub(super) const RIGHT: Pos = Pos { h_pos: HPos::Right, v_pos: VPos::Center };
pub(super) const MIDDLE: Pos = Pos { h_pos: HPos::Center, v_pos: VPos::Center };

/// Pixels that a text takes, about: there is no font to ask. Digits and lower-case letters of the usual
/// sans-serif fonts are 0.5 to 0.6 em wide.
pub(super) fn width(text: &str, px: f64) -> i32 {
    let em: f64 = text.chars().map(|c| if c >= '\u{1100}' { 1.0 } else { 0.56 }).sum();
    (em * px).ceil() as i32
}

/// How far two colours are apart, from 1 to 21 (WCAG 2.2, contrast ratio).
pub(super) fn contrast(a: RGBColor, b: RGBColor) -> f64 {
    let luminance = |RGBColor(red, green, blue): RGBColor| {
        let linear = |part: u8| match f64::from(part) / 255.0 {
            c if c <= 0.04045 => c / 12.92,
            c => ((c + 0.055) / 1.055).powf(2.4),
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// A name in one line, cut where it is too long.
pub(super) fn shorten(name: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.chars().map(clean).collect();
    }
    name.chars().take(NAME_CHARS_MAX - 1).map(clean).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_seen_on_light_and_on_dark() {
        // The backgrounds of export/page.css.
        for background in [RGBColor(255, 255, 255), RGBColor(0x15, 0x18, 0x1c)] {
            for color in SERIES {
                let contrast = contrast(background, color);
                assert!(contrast >= 3.0, "{color:?} on {background:?}: {contrast:.2}");
            }
        }
    }

    #[test]
    fn the_ink_is_that_of_the_page_and_text_stays_text() {
        let svg = draw((100, 50), "a \"label\"", |area| {
            let name = "<b>\"#010203\"\n";
            area.draw_text(&shorten(name), &text(TEXT_PX, ink(1.0)), (5, 5))?;
            Ok(())
        })
        .unwrap();
        assert!(
            svg.starts_with(
                "<svg viewBox=\"0 0 100 50\" role=\"img\" aria-label=\"a &quot;label&quot;\""
            ),
            "{svg}"
        );
        assert!(
            svg.contains("fill=\"currentColor\"") && svg.trim_end().ends_with("</svg>"),
            "{svg}"
        );
        assert!(svg.contains("&lt;b&gt;&quot;#010203&quot;"), "{svg}");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shorten("b2sum"), "b2sum");
        let cut = shorten(&"é".repeat(60));
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (NAME_CHARS_MAX, true));
    }
}
