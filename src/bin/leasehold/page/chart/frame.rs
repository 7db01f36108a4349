//! What all charts have in common.

use std::{error::Error, ops::Range};

use plotters::{
    coord::{Shift, types::RangedCoordf64},
    prelude::*,
    style::{FontDesc, FontFamily, FontStyle, TextStyle},
};

use super::palette::{GRID, INK};

pub const WIDTH: u32 = 760;
pub const HEIGHT: u32 = 330;
pub const Y_AXIS: u32 = 78;
pub const X_AXIS: u32 = 48;

/// Draws on a canvas of this height. The background stays the page's own.
pub fn draw<F>(height: u32, label: &str, paint: F) -> String
where
    F: FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>>,
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

/// Axes go no further: beyond it a step of theirs would change nothing, and they would never come to their end.
const FURTHEST: f64 = 1e15;

/// A range that is one, whatever the values are: from 0 to a little above the greatest.
pub fn up_to(greatest: f64) -> Range<f64> {
    // Less than that is nothing: its steps would have no size.
    0.0..if greatest > 1e-12 { greatest.min(FURTHEST) * 1.06 } else { 1.0 }
}

/// Axes for bars, each with its range and what it says.
pub fn for_bars<'a, 'b>(
    root: &DrawingArea<SVGBackend<'b>, Shift>,
    (across, across_says): (Range<f64>, &str),
    (up, up_says): (Range<f64>, &str),
) -> Result<ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>, Box<dyn Error>>
where
    'b: 'a,
{
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(26)
        .x_label_area_size(X_AXIS)
        .y_label_area_size(Y_AXIS)
        .build_cartesian_2d(across, up)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text(12.0))
        .axis_desc_style(text(13.0))
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .x_desc(across_says)
        .y_desc(up_says)
        .draw()?;
    Ok(chart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_one() {
        for greatest in
            [f64::NEG_INFINITY, -1.0, 0.0, 1e-300, 1e-9, 1.0, 1e15, 1e308, f64::INFINITY, f64::NAN]
        {
            let range = up_to(greatest);
            assert!(range.start < range.end && range.end <= 1.1e15, "{greatest}: {range:?}");
        }
    }
}
