//! Bars that lie: a name to the left, a length, its number behind it.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    frame::{X_AXIS, draw, text},
    palette::{GRID, INK, series},
};

pub struct Bar {
    pub name: String,
    pub value: f64,
    /// As it is written behind the bar.
    pub shown: String,
    /// Of the palette.
    pub colour: usize,
    /// The least and the greatest that were seen: a thin line over the bar.
    pub spread: Option<(f64, f64)>,
}

/// The axis below: what it says, with the unit, how its numbers are written, and where it ends.
pub struct Below {
    pub title: &'static str,
    pub label: fn(f64) -> String,
    pub end: f64,
    /// Something that all bars are to be compared with.
    pub line: Option<f64>,
}

/// The drawing alone. A bar that goes beyond the axis ends there.
pub fn across(title: &str, below: &Below, bars: &[Bar]) -> String {
    draw(X_AXIS + 30 + 26 * bars.len() as u32, title, |root| {
        let many = bars.len() as f64;
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(96)
            .x_label_area_size(X_AXIS)
            .y_label_area_size(214)
            .build_cartesian_2d(0.0..below.end, 0.0..many)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(text(12.0))
            .axis_desc_style(text(13.0))
            .x_labels(6)
            .x_label_formatter(&|value| (below.label)(*value))
            .x_desc(below.title)
            .draw()?;
        for (place, bar) in bars.iter().enumerate() {
            let within = |value: f64| value.clamp(0.0, below.end);
            let from = many - place as f64 - 0.85;
            let (middle, value) = (from + 0.35, within(bar.value));
            let body = Rectangle::new([(0.0, from), (value, from + 0.7)], series(bar.colour).filled());
            chart.draw_series([body])?;
            let mut end = value;
            if let Some((least, most)) = bar.spread {
                end = end.max(within(most));
                let ends = [(within(least), middle), (within(most), middle)];
                chart.draw_series(LineSeries::new(ends, INK.stroke_width(1)))?;
            }
            let side = |anchor| text(12.0).pos(Pos::new(anchor, VPos::Center));
            let label =
                EmptyElement::at((0.0, middle)) + Text::new(bar.name.clone(), (-8, 0), side(HPos::Right));
            chart.draw_series([label])?;
            let number =
                EmptyElement::at((end, middle)) + Text::new(bar.shown.clone(), (6, 0), side(HPos::Left));
            chart.draw_series([number])?;
        }
        if let Some(at) = below.line.filter(|at| *at <= below.end) {
            chart.draw_series(LineSeries::new([(at, 0.0), (at, many)], INK.stroke_width(2)))?;
        }
        Ok(())
    })
}
