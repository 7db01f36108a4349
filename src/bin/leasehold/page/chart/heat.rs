//! The heat map: load of resources over time.

use plotters::prelude::*;

use super::{
    Figure,
    frame::{X_AXIS, Y_AXIS, draw, text},
    palette::{self, HEAT, INK},
};
use crate::{
    load::result::Heat,
    page::table::{Cell, table},
};

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
    let title = format!("Utilisation of each resource, {name}");
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
    let mean = |row: &[f32]| row.iter().sum::<f32>() / row.len().max(1) as f32;
    let cells = heat.rows.iter().enumerate().map(|(index, row)| {
        let (first, after) = range_of(index);
        let last = after - 1;
        let least = row.iter().copied().fold(1.0, f32::min);
        let most = row.iter().copied().fold(0.0, f32::max);
        let range = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let numbers = [mean(row), least, most].map(|load| Cell::from(format!("{:.1}", load * 100.0)));
        [Cell::from(range)].into_iter().chain(numbers).collect()
    });
    let scale: String = HEAT
        .iter()
        .map(|RGBColor(r, g, b)| format!("<i style=\"background:#{r:02X}{g:02X}{b:02X}\"></i>"))
        .collect();
    Figure {
        title,
        note: "Leases out over capacity; a resource that is away or rests is idle.".into(),
        legend: Vec::new(),
        svg: format!("<p class=\"scale\">0 % {scale} {:.0} %</p>{svg}", greatest * 100.0),
        table: table(&["resources", "mean, %", "least, %", "most, %"], cells),
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
}
