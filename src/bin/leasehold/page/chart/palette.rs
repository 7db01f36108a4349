//! The colours: of Okabe and Ito, who chose them to be told apart by everybody (<https://jfly.uni-koeln.de/color/>), without
//! their yellow, which is too light for lines.

use plotters::style::RGBColor;

pub const SERIES: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

pub const INK: RGBColor = RGBColor(34, 34, 34);
pub const GRID: RGBColor = RGBColor(221, 221, 221);

/// From idle to full: steps of one hue, so that they keep their order in grey and for everybody.
pub const HEAT: [RGBColor; 8] = [
    RGBColor(239, 243, 250),
    RGBColor(211, 224, 242),
    RGBColor(173, 201, 232),
    RGBColor(128, 172, 218),
    RGBColor(84, 140, 199),
    RGBColor(47, 108, 174),
    RGBColor(22, 77, 141),
    RGBColor(8, 48, 100),
];

pub fn series(index: usize) -> RGBColor {
    SERIES[index % SERIES.len()]
}

/// The step of a load from 0 to 1.
pub fn heat(load: f32) -> usize {
    ((load.clamp(0.0, 1.0) * (HEAT.len() - 1) as f32).round()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the chart is drawn with is what the style sheet exchanges in the dark.
    #[test]
    fn the_style_sheet_knows_every_colour() {
        let css = include_str!("../style.css");
        for RGBColor(r, g, b) in SERIES.into_iter().chain([INK, GRID]) {
            let name = format!("#{r:02X}{g:02X}{b:02X}");
            assert!(css.contains(&name), "{name}");
        }
    }

    #[test]
    fn loads_have_steps() {
        assert_eq!([-1.0, 0.0, 0.5, 1.0, 2.0].map(heat), [0, 0, 4, 7, 7]);
    }
}
