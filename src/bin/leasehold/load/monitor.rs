//! Looks at a round while it goes on: the series, the heat map, the progress bar, the soak, and whether to end early.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use super::{
    asset::Census,
    outcome::Counts,
    referee::Referee,
    result::{Heat, Point},
    soak::{self, Garbage, Watch},
    worker::Round,
};
use crate::compare::live_bytes;

/// Points of a round's series at the most, but for long ones, which have one a second.
const POINTS: u32 = 150;
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// What a look at the garbage may take; one that takes longer was interrupted by the machine.
const ONE_MOMENT: Duration = Duration::from_millis(50);
/// Rows and columns of the heat map at the most.
const ROWS: u32 = 48;
const COLUMNS: usize = 100;

/// What was seen of a round.
pub struct Seen {
    /// When it was over, or somebody ended it.
    pub ended: u64,
    pub series: Vec<Point>,
    pub heat: Heat,
}

/// What is shown of all rounds.
pub struct Progress {
    bar: ProgressBar,
    /// Told of each point instead, if there is somebody.
    told: Option<fn(&Point)>,
}

impl Progress {
    /// For so many rounds of this length.
    pub fn new(rounds: u64, length: Duration) -> Self {
        let bar = ProgressBar::new(rounds * length.as_millis() as u64);
        let style = ProgressStyle::with_template("{wide_bar} {msg} eta {eta}");
        bar.set_style(style.expect("the template above is well formed"));
        Progress { bar, told: None }
    }

    /// Shown by somebody else.
    #[cfg(all(feature = "cluster", unix))]
    pub fn told(told: fn(&Point)) -> Self {
        Progress { bar: ProgressBar::hidden(), told: Some(told) }
    }

    /// So much of all rounds is over.
    #[cfg(all(feature = "cluster", unix))]
    pub fn at(&self, at: Duration, what: impl Into<std::borrow::Cow<'static, str>>) {
        self.bar.set_position(at.as_millis() as u64);
        self.bar.set_message(what);
    }

    fn tell(&self, name: &str, before: Duration, at: Duration, point: &Point) {
        if let Some(told) = self.told {
            return told(point);
        }
        self.bar.set_position((before + at).as_millis() as u64);
        self.bar.set_message(rates(name, point.completed, point.p99, point.waiting));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What a bar says of a moment.
pub fn rates(name: &str, completed: f64, p99: u64, waiting: u64) -> String {
    format!("{name}: {completed:.0}/s, p99 {:.2} ms, {waiting} waiting", p99 as f64 / 1e6)
}

/// What the monitor needs beside the round.
pub struct Monitor<'a> {
    pub name: &'a str,
    pub progress: &'a Progress,
    /// Set by Ctrl-C.
    pub interrupted: &'a AtomicBool,
    /// What rounds of other subjects and of this one have taken before.
    pub before_all: Duration,
    pub before: Duration,
    pub census: &'a Census,
    pub soak: Option<(&'a Watch, &'a mut Garbage)>,
}

impl Monitor<'_> {
    /// Until the round is over, or somebody wants it to be. Whoever called it then stops the round.
    pub fn watch(mut self, round: &Round) -> Seen {
        let length = round.scenario.duration.0;
        let tick = (length / POINTS).clamp(SHORTEST.min(length), LONGEST);
        let clock = &round.clock;
        let mut rows = Rows::new(&round.referee);
        let mut series = Vec::new();
        let mut meter = Meter::new(round.recorder.look().counts, round.begins.max(clock.now()));
        let mut moment = round.begins;
        let mut seconds = 0.0;
        let ends = round.begins + length.as_nanos() as u64;
        while moment < ends && !self.is_interrupted() {
            let last = moment;
            moment = (moment + tick.as_nanos() as u64).min(ends);
            // Between two points the fleet is looked at more often, unless it is large; a soak must see a reader come and go.
            let looks: u32 = match round.referee.lineages() {
                _ if self.soak.is_some() => 10,
                0..=5_000 => 5,
                _ => 1,
            };
            for look in 1..=looks {
                sleep_until(round, last + (moment - last) * u64::from(look) / u64::from(looks));
                rows.look(&round.referee);
                self.look_at_garbage(round);
            }
            rows.end_column();
            let now = round.recorder.look();
            let [completed, refused, failed] = meter.read(&now.counts, clock.now());
            let at = Duration::from_nanos(meter.at.saturating_sub(round.begins)).min(length);
            let quantile = |share| now.fresh.value_at_quantile(share).min(now.fresh.max());
            let point = Point {
                round: round.number,
                at: (self.before + at).as_secs_f64(),
                completed,
                refused,
                failed,
                waiting: now.waiting,
                in_flight: now.in_flight,
                p50: quantile(0.5),
                p99: quantile(0.99),
            };
            series.push(point);
            self.progress.tell(self.name, self.before_all, at, &point);
            if let Some((_, garbage)) = &mut self.soak {
                // A look that comes late stands for each second that it has missed.
                while at.as_secs_f64() - seconds >= 1.0 {
                    seconds += 1.0;
                    garbage.heap(live_bytes().max(0) as u64);
                }
            }
        }
        let heat = rows.finish(tick.as_secs_f64());
        Seen { ended: clock.now(), series, heat }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// What waits is compared with what was retired since a reader came: the numbers are of one moment, or they are left out, as are those of a
    /// look across which the reader comes or goes.
    fn look_at_garbage(&mut self, round: &Round) {
        let Some((watch, garbage)) = &mut self.soak else { return };
        let Some(fleet) = round.subject.fleet() else { return };
        let (begins, stays) = (round.clock.now(), watch.now());
        let waits = soak::waiting(self.census, (fleet.len)());
        let retired = round.retired.load(Ordering::Relaxed);
        let took = Duration::from_nanos(round.clock.now().saturating_sub(begins));
        if watch.now() == stays && took < ONE_MOMENT {
            garbage.look(waits, retired, stays);
        }
    }
}

/// Rates between looks, by the moments at which these really were: on a busy machine they come late, and what was counted until then has
/// happened until then.
struct Meter {
    counts: Counts,
    at: u64,
}

impl Meter {
    fn new(counts: Counts, at: u64) -> Self {
        Meter { counts, at }
    }

    /// Requests a second since the last look: completed, refused by the scheduler, failed by the backend.
    fn read(&mut self, counts: &Counts, at: u64) -> [f64; 3] {
        let seconds = (at.saturating_sub(self.at)) as f64 / 1e9;
        let rate = |pick: fn(&Counts) -> u64| (pick(counts) - pick(&self.counts)) as f64 / seconds.max(1e-9);
        let picks: [fn(&Counts) -> u64; 3] =
            [|counts| counts.completed, Counts::by_scheduler, Counts::by_backend];
        let rates = picks.map(rate);
        *self = Meter { counts: counts.clone(), at };
        rates
    }
}

fn sleep_until(round: &Round, moment: u64) {
    thread::sleep(Duration::from_nanos(moment.saturating_sub(round.clock.now())));
}

/// The heat map as it grows.
struct Rows {
    rows: Vec<Vec<f32>>,
    sums: Vec<f64>,
    looks: u32,
    resources_of_a_row: u32,
    lineages: u32,
}

impl Rows {
    fn new(referee: &Referee) -> Self {
        let resources_of_a_row = referee.lineages().div_ceil(ROWS);
        let lineages = referee.lineages();
        let rows = lineages.div_ceil(resources_of_a_row) as usize;
        Rows { rows: vec![Vec::new(); rows], sums: vec![0.0; rows], looks: 0, resources_of_a_row, lineages }
    }

    fn look(&mut self, referee: &Referee) {
        self.looks += 1;
        for lineage in 0..referee.lineages() {
            self.sums[(lineage / self.resources_of_a_row) as usize] += referee.load(lineage);
        }
    }

    fn end_column(&mut self) {
        for (index, (row, sum)) in self.rows.iter_mut().zip(&mut self.sums).enumerate() {
            // The last row may stand for fewer.
            let before = index as u32 * self.resources_of_a_row;
            let resources = self.resources_of_a_row.min(self.lineages - before);
            let looked = f64::from(self.looks.max(1)) * f64::from(resources);
            row.push((std::mem::take(sum) / looked) as f32);
        }
        self.looks = 0;
    }

    /// As many columns as can be told apart: neighbours are averaged.
    fn finish(self, seconds_of_a_column: f64) -> Heat {
        let columns = self.rows.first().map_or(0, Vec::len);
        let together = columns.div_ceil(COLUMNS).max(1);
        let average = |part: &[f32]| {
            let mean = part.iter().sum::<f32>() / part.len() as f32;
            (mean * 1e3).round() / 1e3
        };
        Heat {
            resources_of_a_row: self.resources_of_a_row,
            seconds_of_a_column: seconds_of_a_column * together as f64,
            rows: self.rows.iter().map(|row| row.chunks(together).map(average).collect()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand a second all the time, and a look that comes 100 ms late: before and after it the rate is what it is.
    #[test]
    fn a_late_look_changes_no_rate() {
        let until = |millis: u64| Counts { completed: millis, ..Counts::default() };
        let mut meter = Meter::new(until(0), 0);
        for millis in [50, 200, 210, 250] {
            let [completed, refused, failed] = meter.read(&until(millis), millis * 1_000_000);
            assert!((completed - 1_000.0).abs() < 1e-6, "{completed} at {millis} ms");
            assert_eq!((refused, failed), (0.0, 0.0));
        }
    }
}
