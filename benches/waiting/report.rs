//! Bars, and whether they hold.

use std::{process::ExitCode, time::Duration};

#[derive(Default)]
pub struct Report {
    held: u32,
    missed: u32,
}

impl Report {
    /// A ratio that must be at most `bar`.
    pub fn bar(&mut self, what: &str, ratio: f64, bar: f64) {
        let holds = ratio <= bar;
        *(if holds { &mut self.held } else { &mut self.missed }) += 1;
        println!("{} {what}: {ratio:.3}, at most {bar}", if holds { "holds " } else { "FAILED" });
    }

    pub fn verdict(&self) -> ExitCode {
        println!("{} bars hold, {} do not", self.held, self.missed);
        if self.missed == 0 && self.held > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value that a share of all does not exceed; sorts.
pub fn percentile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    values[((values.len() - 1) as f64 * share) as usize]
}

pub fn mean(values: &[Duration]) -> Duration {
    values.iter().sum::<Duration>() / values.len() as u32
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
