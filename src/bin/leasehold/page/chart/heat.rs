//! The heat map: load of resources over time.

use plotters::prelude::*;

use super::{
    Figure,
    frame::{X_AXIS, Y_AXIS, draw, text},
    palette::{self, HEAT, INK},
};
use crate::{
    load::result::Heat,
    page::table::{Cell, digits, table},
};

/// Columns of the table behind it at the most.
const TOLD: usize = 8;

/// `resources`: how many there are, of which the last row may stand for fewer than the others. `greatest`: the load that has the last step of the scale.
pub fn heat(name: &str, heat: &Heat, resources: u32, greatest: f32) -> Figure {
    let step_of = |load: f32| palette::heat(load / greatest.max(0.001));
    let rows = heat.rows.len();
    let columns = heat.rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let seconds = columns as f64 * heat.seconds_of_a_column;
    // The rows' resources, from the first to before the second.
    let range_of = |row: usize| {
        let first = row as u32 * heat.resources_of_a_row;
        (first, first.saturating_add(heat.resources_of_a_row).min(resources.max(first + 1)))
    };
    let end = f64::from(range_of(rows.saturating_sub(1)).1);
    let row_height = (360 / rows.max(1) as u32).clamp(6, 16);
    let together = heat.resources_of_a_row;
    let title = match together {
        0 | 1 => format!("Utilisation of each resource, {name}"),
        _ => format!("Utilisation of {together} resources at a time, {name}"),
    };
    let svg = draw(X_AXIS + 30 + row_height * rows as u32, &title, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(26)
            .x_label_area_size(X_AXIS)
            .y_label_area_size(Y_AXIS)
            .build_cartesian_2d(0.0..seconds, 0.0..end)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(INK)
            .label_style(text(12.0))
            .axis_desc_style(text(13.0))
            .y_labels(rows.clamp(2, 8))
            .y_label_formatter(&|value| format!("{value:.0}"))
            .x_desc("time in the last round, s")
            .y_desc("resource, by its number")
            .draw()?;
        for (index, row) in heat.rows.iter().enumerate() {
            let (bottom, top) = range_of(index);
            let (bottom, top) = (f64::from(bottom), f64::from(top));
            // Neighbours of one colour are one rectangle.
            let mut from = 0;
            while from < row.len() {
                let step = step_of(row[from]);
                let run = row[from..].iter().take_while(|load| step_of(**load) == step).count();
                let at = |column: usize| column as f64 * heat.seconds_of_a_column;
                let corners = [(at(from), bottom), (at(from + run), top)];
                chart.draw_series([Rectangle::new(corners, HEAT[step].filled())])?;
                from += run;
            }
        }
        Ok(())
    });
    // So many columns fit onto a page.
    let every = columns.div_ceil(TOLD);
    let told = (0..columns).step_by(every);
    let mean = |row: &[f32]| row.iter().sum::<f32>() / row.len().max(1) as f32;
    let cells = heat.rows.iter().enumerate().map(|(index, row)| {
        let (first, after) = range_of(index);
        let last = after - 1;
        let least = row.iter().copied().reduce(f32::min).unwrap_or(0.0);
        let most = row.iter().copied().reduce(f32::max).unwrap_or(0.0);
        let range = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let numbers = [mean(row), least, most].into_iter().map(Some);
        let numbers = numbers.chain(told.clone().map(|column| row.get(column).copied()));
        let cell =
            |load: Option<f32>| load.map_or_else(|| "–".to_owned(), |load| format!("{:.1}", load * 100.0));
        [Cell::from(range)].into_iter().chain(numbers.map(|load| cell(load).into())).collect()
    });
    let moments =
        told.clone().map(|column| format!("from {} s", digits(column as f64 * heat.seconds_of_a_column)));
    let headings: Vec<String> = ["resources", "mean, %", "least, %", "most, %"]
        .map(str::to_owned)
        .into_iter()
        .chain(moments)
        .collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let thinned = if every > 1 {
        format!(
            "<p class=\"faint\">Of {columns} columns one out of {every}, in %; mean, least and most are of all.</p>"
        )
    } else {
        String::new()
    };
    let scale: String = HEAT
        .iter()
        .map(|RGBColor(r, g, b)| format!("<i style=\"background:#{r:02X}{g:02X}{b:02X}\"></i>"))
        .collect();
    Figure {
        title,
        note: if together > 1 {
            format!(
                "Leases out over capacity: a row is the mean of {together} neighbours, among which one may be full and others idle. A resource that is \
                 away or rests is idle."
            )
        } else {
            "Leases out over capacity; a resource that is away or rests is idle.".into()
        },
        legend: Vec::new(),
        svg: format!("<p class=\"scale\">0 % {scale} {:.0} %</p>{svg}", greatest * 100.0),
        table: thinned + &table(&headings, cells),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_may_stand_for_fewer() {
        let seen = Heat { resources_of_a_row: 3, seconds_of_a_column: 1.0, rows: vec![vec![0.5, 0.5]; 34] };
        let figure = heat("a", &seen, 100, 1.0);
        assert!(figure.table.contains(">96 to 98<") && figure.table.contains(">99<"), "{}", figure.table);
        assert!(!figure.table.contains("to 101"));
    }

    /// What is drawn is told: loads from column to column, and that some are left out.
    #[test]
    fn loads_are_in_the_table() {
        let rows = vec![(0..20).map(|column| column as f32 / 20.0).collect()];
        let seen = Heat { resources_of_a_row: 1, seconds_of_a_column: 0.5, rows };
        let figure = heat("a", &seen, 1, 1.0);
        for part in ["Of 20 columns one out of 3", ">from 1.50 s<", ">15.0<", ">from 9.00 s<", ">90.0<"] {
            assert!(figure.table.contains(part), "{part}: {}", figure.table);
        }
        let two = heat("a", &Heat { rows: vec![vec![0.25, 1.5]], ..seen }, 1, 1.5);
        assert!(two.table.contains(">150.0<") && !two.table.contains("one out of"), "{}", two.table);
    }

    /// A mean of many is not called a resource.
    #[test]
    fn a_row_says_for_how_many_it_stands() {
        let seen = |resources_of_a_row| Heat {
            resources_of_a_row,
            seconds_of_a_column: 1.0,
            rows: vec![vec![0.5, 0.5]; 2],
        };
        let one = heat("a", &seen(1), 2, 1.0);
        assert!(one.title.contains("each resource") && !one.note.contains("mean"), "{}", one.note);
        let many = heat("a", &seen(7), 14, 1.0);
        assert!(
            !many.title.contains("each") && many.note.contains("the mean of 7 neighbours"),
            "{}",
            many.note
        );
    }
}
