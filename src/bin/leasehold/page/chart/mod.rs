//! Charts as SVG, each with a title, axes with units, a legend and, behind it, a table.
//!
//! Colours are written into the SVG as the light page has them; the style sheet names the same colours and exchanges them
//! in the dark, so [`palette`] and `style.css` belong together, which a test watches.

mod across;
mod bars;
mod frame;
mod heat;
mod lines;
pub mod palette;
mod utilisation;

pub use self::{
    across::{Bar, Below, across},
    bars::{fairness, rank_errors},
    frame::up_to,
    heat::heat,
    lines::{Axis, Line, lines},
    utilisation::utilisation,
};
use super::table::escape;

/// A picture and what belongs to it.
pub struct Figure {
    pub title: String,
    /// What there is to see, in a sentence.
    pub note: String,
    pub legend: Vec<String>,
    pub svg: String,
    /// HTML.
    pub table: String,
}

impl Figure {
    pub fn html(&self) -> String {
        let legend: String = self
            .legend
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let colour = index % palette::SERIES.len();
                let again = palette::dash(index)
                    .map_or("\"".to_owned(), |length| format!(" again\" style=\"--dash: {length}px\""));
                format!("<li class=\"c{colour}{again}>{}</li>", escape(name))
            })
            .collect();
        let legend = if legend.is_empty() { legend } else { format!("<ul class=\"legend\">{legend}</ul>") };
        format!(
            "<figure><figcaption><h3>{}</h3><p>{}</p></figcaption>{legend}<div class=\"wide\">{}</div>\
             <details><summary>Table</summary>{}</details></figure>\n",
            escape(&self.title),
            escape(&self.note),
            self.svg,
            self.table,
        )
    }
}
