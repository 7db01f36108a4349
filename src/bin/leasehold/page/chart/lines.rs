//! Lines: over time, over shares of requests, or points of a curve.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    Figure,
    frame::{HEIGHT, X_AXIS, Y_AXIS, draw, text, up_to},
    palette::{GRID, INK, series},
};
use crate::page::table::{Cell, digits, table};

/// What an axis says.
pub struct Axis {
    /// With the unit.
    pub title: String,
    pub label: fn(f64) -> String,
    /// Values are decimal logarithms: labels stand at whole ones.
    pub is_logarithm: bool,
}

pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Of each point; with them the points stand alone, without them they are a line.
    pub labels: Vec<String>,
}

/// Rows of the table behind it at the most.
const ROWS: usize = 60;

pub fn lines(title: &str, note: &str, x: &Axis, y: &Axis, lines: &[Line]) -> Figure {
    let points = || lines.iter().flat_map(|line| &line.points);
    let greatest = |pick: fn(&(f64, f64)) -> f64| points().map(pick).fold(f64::NEG_INFINITY, f64::max);
    let least = |pick: fn(&(f64, f64)) -> f64| points().map(pick).fold(f64::INFINITY, f64::min);
    let range = |axis: &Axis, least: f64, greatest: f64| {
        if !axis.is_logarithm {
            return up_to(greatest);
        }
        let (from, to) = if least <= greatest { (least.floor(), greatest.ceil()) } else { (0.0, 1.0) };
        from..if to > from { to } else { from + 1.0 }
    };
    let x_range = range(x, least(|point| point.0), greatest(|point| point.0));
    let y_range = range(y, least(|point| point.1), greatest(|point| point.1));
    let labels = |axis: &Axis, range: &std::ops::Range<f64>| {
        if axis.is_logarithm { (range.end - range.start) as usize + 1 } else { 6 }
    };
    let svg = draw(HEIGHT, title, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(26)
            .x_label_area_size(X_AXIS)
            .y_label_area_size(Y_AXIS)
            .build_cartesian_2d(x_range.clone(), y_range.clone())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(text(12.0))
            .axis_desc_style(text(13.0))
            .x_labels(labels(x, &x_range))
            .y_labels(labels(y, &y_range))
            .x_label_formatter(&|value| (x.label)(*value))
            .y_label_formatter(&|value| (y.label)(*value))
            .x_desc(&x.title)
            .y_desc(&y.title)
            .draw()?;
        for (index, line) in lines.iter().enumerate() {
            let colour = series(index);
            if line.labels.is_empty() {
                chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
                continue;
            }
            let style = text(11.0).pos(Pos::new(HPos::Center, VPos::Bottom));
            chart.draw_series(line.points.iter().zip(&line.labels).map(|(&point, label)| {
                EmptyElement::at(point)
                    + Circle::new((0, 0), 4, colour.filled())
                    + Text::new(label.clone(), (0, -6), style.clone())
            }))?;
        }
        Ok(())
    });
    Figure {
        title: title.into(),
        note: note.into(),
        legend: lines.iter().map(|line| line.name.clone()).collect(),
        svg,
        table: points_table(x, y, lines),
    }
}

/// A row for each point of each line, thinned out evenly.
fn points_table(x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let each = (ROWS / lines.len().max(1)).max(8);
    let rows = lines.iter().flat_map(|line| {
        let step = line.points.len().div_ceil(each).max(1);
        let last = line.points.len().saturating_sub(1);
        let kept =
            line.points.iter().enumerate().filter(move |(index, _)| index % step == 0 || *index == last);
        kept.map(|(_, &(at, value))| {
            let shown =
                |axis: &Axis, value: f64| if axis.is_logarithm { (axis.label)(value) } else { digits(value) };
            vec![Cell::from(line.name.clone()), shown(x, at).into(), shown(y, value).into()]
        })
    });
    table(&["line", &x.title, &y.title], rows)
}
