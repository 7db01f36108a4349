//! The built-in workload: an hour of a chat service, made from one seed and integers alone.
//!
//! In each millisecond a request arrives with a probability that follows the minute of the hour: 5 a second in calm
//! minutes, 12 in every tenth. Token counts follow the quantiles of the Azure conversation trace of 2023 (Azure Public
//! Dataset, CC-BY-4.0), with straight lines between them.

use leasehold::SplitMix64;

use super::Row;

/// How many requests there are.
const REQUESTS: u64 = 20_000;

const CALM_PER_SECOND: u32 = 5;
const BURST_PER_SECOND: u32 = 12;

/// Per mille of requests, and the tokens up to which they have. Each line starts where the one before it ends.
type Quantiles = [(u32, u32); 8];

const CONTEXT: Quantiles =
    [(0, 2), (100, 207), (250, 396), (500, 1_020), (750, 1_189), (900, 2_735), (990, 4_142), (1_000, 14_050)];
const GENERATED: Quantiles =
    [(0, 7), (100, 54), (250, 85), (500, 129), (750, 395), (900, 424), (990, 601), (1_000, 1_000)];

pub struct Workload {
    random: SplitMix64,
    millisecond: u64,
    left: u64,
}

impl Workload {
    pub fn new(seed: u64) -> Self {
        Workload { random: SplitMix64::new(SplitMix64::mix(seed)), millisecond: 0, left: REQUESTS }
    }

    pub fn next_row(&mut self) -> Option<Row> {
        self.left = self.left.checked_sub(1)?;
        loop {
            self.millisecond += 1;
            let minute = self.millisecond / 60_000;
            let per_second = if minute % 10 == 9 { BURST_PER_SECOND } else { CALM_PER_SECOND };
            if self.random.below(1_000) < per_second {
                break;
            }
        }
        let nanos = self.millisecond * 1_000_000 + u64::from(self.random.below(1_000_000));
        Some(Row {
            at: i128::from(nanos),
            context_tokens: draw(&CONTEXT, &mut self.random),
            generated_tokens: draw(&GENERATED, &mut self.random),
        })
    }
}

/// Inverse transform: a uniform position, looked up on the straight lines.
fn draw(quantiles: &Quantiles, random: &mut SplitMix64) -> u32 {
    const FINE: u32 = 1_000;
    let position = random.below(1_000 * FINE);
    let line =
        quantiles.windows(2).find(|line| position < line[1].0 * FINE).expect("the last line ends at 1000");
    let [(from, low), (to, high)] = [line[0], line[1]];
    let (along, whole) = (u64::from(position - from * FINE), u64::from((to - from) * FINE));
    low + (u64::from(high - low) * along / whole) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(seed: u64) -> Vec<Row> {
        let mut workload = Workload::new(seed);
        std::iter::from_fn(|| workload.next_row()).collect()
    }

    #[test]
    fn follows_from_the_seed() {
        assert_eq!(rows(7), rows(7));
        assert_ne!(rows(7), rows(8));
    }

    #[test]
    fn is_the_same_on_every_machine() {
        let mixed = rows(1).iter().fold(0, |sum: u64, row| {
            let tokens = u64::from(row.context_tokens) << 32 | u64::from(row.generated_tokens);
            SplitMix64::mix(sum ^ row.at as u64 ^ tokens)
        });
        assert_eq!(mixed, 9_693_256_469_725_298_824);
    }

    #[test]
    fn looks_like_a_chat_service() {
        let rows = rows(1);
        assert_eq!(rows.len(), 20_000);
        assert!(rows.windows(2).all(|pair| pair[0].at < pair[1].at));
        let minutes = rows.last().unwrap().at / 60_000_000_000;
        assert!((50..=70).contains(&minutes), "{minutes} minutes");
        let mean = rows.iter().map(|row| u64::from(row.generated_tokens)).sum::<u64>() / 20_000;
        assert!((190..=240).contains(&mean), "{mean} tokens");
        assert!(rows.iter().all(|row| (2..14_050).contains(&row.context_tokens)));
    }
}
