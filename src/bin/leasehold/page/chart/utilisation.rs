//! Utilisation of each resource over a whole run, subjects side by side.

use plotters::prelude::*;

use super::{
    Figure,
    frame::{HEIGHT, draw, for_bars, up_to},
    palette::{dash, series},
};
use crate::page::{
    section::Row,
    table::{Cell, table},
};

/// Groups of bars at the most: of a larger fleet neighbours are averaged.
const GROUPS: usize = 48;
/// Rows of the table behind it at the most.
const ROWS: usize = 200;

/// `None` if nothing is known of it.
pub fn utilisation(rows: &[Row]) -> Option<Figure> {
    let known: Vec<(usize, &Row)> =
        rows.iter().enumerate().filter(|(_, row)| !row.utilisation.is_empty()).collect();
    let resources = known.iter().map(|(_, row)| row.utilisation.len()).max()?;
    let together = resources.div_ceil(GROUPS);
    let groups = |row: &Row| -> Vec<f64> {
        let mean =
            |part: &[(String, f64)]| part.iter().map(|(_, load)| load).sum::<f64>() / part.len() as f64;
        row.utilisation.chunks(together).map(|part| mean(part) * 100.0).collect()
    };
    let bars: Vec<(usize, Vec<f64>)> = known.iter().map(|&(place, row)| (place, groups(row))).collect();
    let greatest = bars.iter().flat_map(|(_, loads)| loads).copied().fold(0.0, f64::max);
    let title = if together > 1 { "Utilisation of resources" } else { "Utilisation of each resource" };
    let svg = draw(HEIGHT, title, |root| {
        let (across, up) = ("resource, by its place in the fleet", "% of its slots in use");
        let mut chart = for_bars(root, (0.0..resources as f64, across), (up_to(greatest), up))?;
        let width = together as f64 * 0.86 / bars.len() as f64;
        for (beside, (place, loads)) in bars.iter().enumerate() {
            let bar = |(group, &load): (usize, &f64)| {
                let from = (group * together) as f64 + together as f64 * 0.07 + beside as f64 * width;
                let to = (from + width).min(resources as f64);
                // Hollow where the colour is somebody's already.
                let colour = series(*place);
                let paint =
                    dash(*place).map_or(colour.filled(), |length| colour.stroke_width(1 + length as u32 / 8));
                Rectangle::new([(from, 0.0), (to, load)], paint)
            };
            chart.draw_series(loads.iter().enumerate().map(bar))?;
        }
        Ok(())
    });
    let headings: Vec<&str> =
        ["resource"].into_iter().chain(known.iter().map(|(_, row)| row.name.as_str())).collect();
    let cells = (0..resources.min(ROWS)).map(|index| {
        let name = known.iter().find_map(|(_, row)| row.utilisation.get(index)).map(|(key, _)| key.clone());
        let loads = known.iter().map(|(_, row)| {
            let load = row.utilisation.get(index);
            Cell::from(load.map_or("–".into(), |(_, load)| format!("{:.1} %", load * 100.0)))
        });
        [Cell::from(name.unwrap_or_default())].into_iter().chain(loads).collect()
    });
    let mut note = String::from("Slots in use, averaged from the first arrival to the last event.");
    if together > 1 {
        note += &format!(" A bar is the mean of {together} neighbours.");
    }
    if resources > ROWS {
        note += &format!(" The table has the first {ROWS}.");
    }
    Some(Figure {
        title: title.into(),
        note,
        // By their place, as the colours are.
        legend: rows.iter().map(|row| row.name.clone()).collect(),
        svg,
        table: table(&headings, cells),
    })
}
