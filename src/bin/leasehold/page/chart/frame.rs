//! What all charts have in common.

use plotters::{
    prelude::*,
    style::{FontDesc, FontFamily, FontStyle, TextStyle},
};

use super::palette::INK;

pub const WIDTH: u32 = 760;
pub const HEIGHT: u32 = 330;
pub const Y_AXIS: u32 = 78;
pub const X_AXIS: u32 = 48;

/// Draws on a canvas of this height. The background stays the page's own.
pub fn draw<F>(height: u32, label: &str, paint: F) -> String
where
    F: FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<(), Box<dyn std::error::Error>>,
{
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        paint(&root).expect("writing to memory cannot fail, and every range is a range");
        root.present().expect("writing to memory cannot fail");
    }
    // For those who do not see it.
    svg.replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{}\" ", crate::page::table::escape(label)),
        1,
    )
}

pub fn text(size: f64) -> TextStyle<'static> {
    FontDesc::new(FontFamily::SansSerif, size * 1.24, FontStyle::Normal).color(&INK)
}

/// A range that is one, whatever the values are: from 0 to a little above the greatest.
pub fn up_to(greatest: f64) -> std::ops::Range<f64> {
    0.0..if greatest > 0.0 { greatest * 1.06 } else { 1.0 }
}
