//! Lines: over time, over shares of requests, or points of a curve.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    Figure,
    frame::{HEIGHT, X_AXIS, Y_AXIS, draw, text, up_to},
    palette::{GRID, INK, dash, series},
};
use crate::page::table::{Cell, digits, escape, table};

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
    /// Of points that stand alone those that are joined all the same, in this order.
    pub joined: Vec<usize>,
    /// What the table says of each point, where something else is drawn: as where a logarithm has no zero.
    pub told: Vec<[String; 2]>,
}

impl Line {
    /// Of points that are drawn as they are.
    pub fn new(name: String, points: Vec<(f64, f64)>) -> Self {
        Line { name, points, labels: Vec::new(), joined: Vec::new(), told: Vec::new() }
    }
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
                let points = line.points.iter().copied();
                match dash(index) {
                    None => chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?,
                    Some(length) => {
                        chart.draw_series(DashedLineSeries::new(points, length, 4, colour.stroke_width(2)))?
                    }
                };
                continue;
            }
            if line.joined.len() > 1 {
                let joined = line.joined.iter().filter_map(|&place| line.points.get(place).copied());
                chart.draw_series(LineSeries::new(joined, colour.stroke_width(1)))?;
            }
            // Hollow, and larger than others, where the colour is somebody's already.
            let (size, paint) = match dash(index) {
                None => (4, colour.filled()),
                Some(length) => (5 + length / 4, colour.stroke_width(2)),
            };
            chart.draw_series(line.points.iter().map(|&point| Circle::new(point, size, paint)))?;
        }
        // After all points, of all lines: those of several may be near each other.
        let labelled = || lines.iter().flat_map(|line| line.points.iter().zip(&line.labels));
        let places = labelled().map(|(point, label)| (chart.backend_coord(point), label.chars().count()));
        let style = text(11.0).pos(Pos::new(HPos::Center, VPos::Bottom));
        for ((&point, label), up) in labelled().zip(apart(places)) {
            chart
                .draw_series([EmptyElement::at(point) + Text::new(label.clone(), (0, up), style.clone())])?;
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

/// What a letter of a label takes at the most, and a line of it.
const LETTER: i32 = 8;
const LINE: i32 = 14;
/// Where the foot of a label may be, from its point: over it, under it, and further away.
const PLACES: [i32; 8] = [-6, 20, -20, 34, -34, 48, -48, 62];

/// For each label, of so many letters and of a point there: where its foot is, so that it covers none of those before it.
fn apart(labels: impl Iterator<Item = ((i32, i32), usize)>) -> Vec<i32> {
    let mut taken: Vec<(i32, i32, i32)> = Vec::new();
    let place = |((x, y), letters): ((i32, i32), usize)| {
        let half = letters as i32 * LETTER / 2;
        let is_free = |up: &&i32| {
            let foot = y + **up;
            let on_it = (LINE..=(HEIGHT - X_AXIS) as i32).contains(&foot);
            on_it
                && taken.iter().all(|&(other, its_foot, its_half)| {
                    (x - other).abs() >= half + its_half || (foot - its_foot).abs() >= LINE
                })
        };
        let up = PLACES.iter().find(is_free).copied().unwrap_or(PLACES[0]);
        taken.push((x, y + up, half));
        up
    };
    labels.map(place).collect()
}

/// A row for each point of each line, thinned out evenly, which is said; with its label, if it has one.
fn points_table(x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let each = (ROWS / lines.len().max(1)).max(8);
    let step_of = |line: &Line| line.points.len().div_ceil(each).max(1);
    let is_labelled = lines.iter().any(|line| !line.labels.is_empty());
    let rows = lines.iter().flat_map(|line| {
        let step = step_of(line);
        let last = line.points.len().saturating_sub(1);
        let kept =
            line.points.iter().enumerate().filter(move |(index, _)| index % step == 0 || *index == last);
        kept.map(move |(index, &(at, value))| {
            let shown =
                |axis: &Axis, value: f64| if axis.is_logarithm { (axis.label)(value) } else { digits(value) };
            let name = Some(Cell::from(line.name.clone()));
            let label =
                is_labelled.then(|| line.labels.get(index).map_or(String::new(), Clone::clone).into());
            let told = line.told.get(index).cloned();
            let numbers = told.unwrap_or_else(|| [shown(x, at), shown(y, value)]).map(Cell::from);
            name.into_iter().chain(label).chain(numbers).collect()
        })
    });
    let label = is_labelled.then_some("point");
    let headings: Vec<&str> = ["line"].into_iter().chain(label).chain([&*x.title, &*y.title]).collect();
    let thinned: Vec<String> = lines
        .iter()
        .filter(|line| step_of(line) > 1)
        .map(|line| format!("of {} one point out of {}", line.name, step_of(line)))
        .collect();
    let note = match &thinned[..] {
        [] => String::new(),
        some => {
            format!("<p class=\"faint\">Thinned out: {}, and the last one.</p>", escape(&some.join(", ")))
        }
    };
    note + &table(&headings, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(title: &str) -> Axis {
        Axis { title: title.into(), label: digits, is_logarithm: false }
    }

    fn line(name: &str, labels: &[&str]) -> Line {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        Line { labels, ..Line::new(name.into(), vec![(1.0, 2.0), (3.0, 4.0)]) }
    }

    /// What is left out of the table is said, and what is drawn in another place is told as it is.
    #[test]
    fn tables_say_what_they_leave_out() {
        let many = Line::new("<many>".into(), (0..200).map(|at| (f64::from(at), 1.0)).collect());
        let told = vec![["0.000".to_owned(), "none".to_owned()]; 2];
        let few = Line { told, ..line("few", &[]) };
        let figure = lines("t", "n", &axis("x"), &axis("y"), &[many, few]);
        for part in ["of &lt;many&gt; one point out of 7, and the last one", ">none<", ">0.000<", ">199<"] {
            assert!(figure.table.contains(part), "{part}: {}", figure.table);
        }
        assert!(!figure.table.contains("of few") && !figure.table.contains(">3.00<"), "{}", figure.table);
        let few = lines("t", "n", &axis("x"), &axis("y"), &[line("few", &[])]);
        assert!(!few.table.contains("Thinned"), "{}", few.table);
    }

    /// What is told by the labels of points is told by the table behind them as well.
    #[test]
    fn labels_are_in_the_table() {
        let figure = lines("t", "n", &axis("x"), &axis("y"), &[line("small", &["strict", "sticky"])]);
        for part in [">point<", ">strict<", ">sticky<", ">small<"] {
            assert!(figure.table.contains(part), "{part}: {}", figure.table);
        }
        let plain = lines("t", "n", &axis("x"), &axis("y"), &[line("small", &[])]);
        assert!(!plain.table.contains("point"), "{}", plain.table);
    }

    /// Labels of points that are at the same place, or nearly, do not cover each other; one that is alone stays over its point.
    #[test]
    fn labels_are_pushed_apart() {
        let near = [(300, 150), (304, 151), (310, 148), (300, 150), (330, 155)];
        let points = near.into_iter().chain([(600, 150), (300, 282), (303, 282)]);
        let points: Vec<((i32, i32), usize)> = points.map(|point| (point, 9)).collect();
        let ups = apart(points.iter().copied());
        assert_eq!((ups[0], ups[5]), (-6, -6));
        let boxes: Vec<(i32, i32)> = points.iter().zip(&ups).map(|(&((x, y), _), up)| (x, y + up)).collect();
        for (at, one) in boxes.iter().enumerate() {
            assert!((LINE..=(HEIGHT - X_AXIS) as i32).contains(&one.1), "{one:?}");
            for other in &boxes[at + 1..] {
                let clear = (one.0 - other.0).abs() >= 9 * LETTER || (one.1 - other.1).abs() >= LINE;
                assert!(clear, "{one:?} {other:?}");
            }
        }
    }

    /// The seventh line has the colour of the first, and dashes.
    #[test]
    fn lines_of_one_colour_differ() {
        let seven: Vec<Line> = (0..7).map(|index| line(&index.to_string(), &[])).collect();
        let figure = lines("t", "n", &axis("x"), &axis("y"), &seven);
        let RGBColor(r, g, b) = series(0);
        let parts = figure.svg.matches(&format!("stroke=\"#{r:02X}{g:02X}{b:02X}\"")).count();
        assert!(parts > 5, "{parts} parts");
        assert!(figure.html().contains("class=\"c0 again\""), "{}", figure.html());
    }
}
