//! Bars: how often each rank error was seen, and how even the work was spread.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    Figure,
    across::{Bar, Below, across},
    frame::{HEIGHT, draw, for_bars, text, up_to},
    palette::{INK, series},
};
use crate::page::{
    section::{Rank, Row},
    table::{Cell, count, digits, table},
};

/// Bars of a histogram at the most: what is beyond is in the last one.
const BARS: u64 = 40;

/// The histogram of one subject, its mean, and the mean that best-of-two has over as many queues.
pub fn rank_errors(name: &str, rank: &Rank, colour: usize) -> Figure {
    let total: u64 = rank.histogram.iter().map(|&(_, count)| count).sum();
    let law = rank.law();
    let greatest = rank.max.max(rank.mean.ceil() as u64).max(law.unwrap_or(0.0).ceil() as u64).max(4);
    // Of the long tail only as much as there is room for.
    let shown =
        greatest.min(rank.p99.max(law.unwrap_or(0.0).ceil() as u64).max(rank.mean.ceil() as u64 + 2).max(4));
    let width = (shown + 1).div_ceil(BARS);
    let bars = (shown / width + 1) as usize;
    let mut shares = vec![0.0; bars];
    for &(error, count) in &rank.histogram {
        shares[((error / width) as usize).min(bars - 1)] += count as f64 / total.max(1) as f64 * 100.0;
    }
    let highest = shares.iter().copied().fold(0.0, f64::max);
    let title = format!("Rank error of {name}");
    let svg = draw(HEIGHT, &title, |root| {
        let end = (bars as u64 * width) as f64;
        let (across, up) = ("resources that could be had and were better", "% of leases");
        let mut chart = for_bars(root, (0.0..end, across), (up_to(highest), up))?;
        let bar = |(index, &share): (usize, &f64)| {
            let from = (index as u64 * width) as f64;
            let gap = width as f64 * 0.08;
            Rectangle::new([(from + gap, 0.0), (from + width as f64 - gap, share)], series(colour).filled())
        };
        chart.draw_series(shares.iter().enumerate().map(bar))?;
        let top = up_to(highest).end;
        let mut upright =
            |at: f64, label: String, height: f64, dashed: bool| -> Result<(), Box<dyn std::error::Error>> {
                let at = at.min(end);
                if dashed {
                    chart.draw_series(DashedLineSeries::new(
                        [(at, 0.0), (at, top)],
                        6,
                        4,
                        INK.stroke_width(2),
                    ))?;
                } else {
                    chart.draw_series(LineSeries::new([(at, 0.0), (at, top)], INK.stroke_width(2)))?;
                }
                let (place, anchor) = if at > end * 0.7 { (-6, HPos::Right) } else { (6, HPos::Left) };
                let style = text(12.0).pos(Pos::new(anchor, VPos::Top));
                chart.draw_series([
                    EmptyElement::at((at, top * height)) + Text::new(label, (place, 0), style)
                ])?;
                Ok(())
            };
        upright(rank.mean, format!("mean {}", digits(rank.mean)), 0.99, false)?;
        if let Some(law) = law {
            upright(law, format!("5n/6 law {}", digits(law)), 0.88, true)?;
        }
        Ok(())
    });
    let mut note = format!(
        "{} leases looked at; mean {}, 99 % at most {}, greatest {}.",
        count(total as f64),
        digits(rank.mean),
        rank.p99,
        rank.max
    );
    if let (Some(shards), Some(law)) = (rank.shards, law) {
        note += &format!(" Best of two random queues would have {} with n = {shards}.", digits(law));
    }
    let last = shares.len() - 1;
    let rows = shares.iter().enumerate().map(|(index, share)| {
        let (from, to) = (index as u64 * width, (index as u64 + 1) * width - 1);
        let range = match (index == last && greatest > to, from == to) {
            (true, _) => format!("{from} and more"),
            (false, true) => from.to_string(),
            (false, false) => format!("{from} to {to}"),
        };
        vec![Cell::from(range), format!("{share:.3}").into()]
    });
    Figure { title, note, legend: Vec::new(), svg, table: table(&["rank error", "% of leases"], rows) }
}

/// Jain's index of each subject, over resources and over workers. `None`: nobody has had a lease, so there is nothing to be fair about.
pub fn fairness(rows: &[Row]) -> Option<Figure> {
    let bars: Vec<Bar> = rows
        .iter()
        .enumerate()
        .flat_map(|(index, row)| {
            let bar = |of, value: f64| Bar {
                name: format!("{}: {of}", row.name),
                value,
                shown: format!("{value:.3}"),
                colour: index,
                spread: None,
            };
            let of = [
                row.fairness.map(|index| ("resources", index)),
                row.fairness_of_workers.map(|index| ("workers", index)),
            ];
            of.into_iter().flatten().map(|(of, index)| bar(of, index)).collect::<Vec<_>>()
        })
        .collect();
    if bars.is_empty() {
        return None;
    }
    let title = "Fairness";
    let below =
        Below { title: "Jain's index, no unit", label: |value| format!("{value:.1}"), end: 1.0, line: None };
    let svg = across(title, &below, &bars);
    let cells = bars.iter().map(|bar| vec![Cell::from(bar.name.clone()), format!("{:.4}", bar.value).into()]);
    Some(Figure {
        title: title.into(),
        note: "1: all have the same share for their capacity, within their tier; 1/n: one has everything. Where ranks are fixed the best \
               are to be preferred, so a low index over resources is their purpose; over workers it never is."
            .into(),
        legend: Vec::new(),
        svg,
        table: table(&["of", "Jain's index"], cells),
    })
}
