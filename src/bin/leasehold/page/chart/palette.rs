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

/// Those that have the same colour as one before them are told apart by the length of their dashes, in pixels; the first ones are whole.
pub fn dash(index: usize) -> Option<i32> {
    const LENGTHS: [i32; 3] = [10, 3, 22];
    let turn = index / SERIES.len();
    (turn > 0).then(|| LENGTHS[(turn - 1) % LENGTHS.len()])
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
        for colour in SERIES.into_iter().chain([INK, GRID]) {
            let RGBColor(r, g, b) = colour;
            for attribute in ["fill", "stroke"] {
                // The grid has lines and nothing else.
                let rule = format!("[{attribute}=\"#{r:02X}{g:02X}{b:02X}\"] {{ {attribute}: var(--");
                assert!(css.contains(&rule) || (colour, attribute) == (GRID, "fill"), "{rule}");
            }
        }
        // Each variable has another value in the dark.
        let dark = css.split("prefers-color-scheme: dark").nth(1).unwrap().split("}\n}").next().unwrap();
        let value =
            |css: &str, name: &str| css.split(name).nth(1).unwrap().split(';').next().unwrap().to_owned();
        for name in
            ["--page: ", "--ink: ", "--line: ", "--c0: ", "--c1: ", "--c2: ", "--c3: ", "--c4: ", "--c5: "]
        {
            assert_ne!(value(css, name), value(dark, name), "{name}");
        }
    }

    /// More subjects than colours: no two look the same.
    #[test]
    fn no_two_series_look_the_same() {
        let looks: Vec<_> = (0..4 * SERIES.len()).map(|index| (series(index), dash(index))).collect();
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[..place].contains(look), "{place}");
        }
    }

    #[test]
    fn loads_have_steps() {
        assert_eq!([-1.0, 0.0, 0.5, 1.0, 2.0].map(heat), [0, 0, 4, 7, 7]);
    }
}
