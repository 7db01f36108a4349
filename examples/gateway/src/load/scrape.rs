//! Reading what Prometheus would read.

use std::collections::BTreeMap;

/// The whole numbers of an exposition, by name and labels as they are written. Buckets and sums of histograms are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrape(BTreeMap<String, i64>);

impl Scrape {
    /// Reads the text format.
    pub fn read(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            let value: f64 = value.parse().ok()?;
            // Exact up to 2^53.
            (value.fract() == 0.0).then(|| (name.to_owned(), value as i64))
        });
        Scrape(samples.collect())
    }

    /// What has been added since.
    #[must_use]
    pub fn since(&self, before: &Scrape) -> Scrape {
        let of = |name: &String| before.0.get(name).copied().unwrap_or_default();
        Scrape(self.0.iter().map(|(name, value)| (name.clone(), value - of(name))).collect())
    }

    /// The sum over all samples of a name that have these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> i64 {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let is_it = |sample: &str| {
            let (found, rest) = sample.split_once('{').unwrap_or((sample, ""));
            found == name && labels.iter().all(|label| rest.contains(label.as_str()))
        };
        self.0.iter().filter(|(sample, _)| is_it(sample)).map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let text = "# TYPE a_total counter\na_total{k=\"x\",r=\"ok\"} 3\na_total{k=\"y\",r=\"ok\"} 4\nb 2.0\nc 0.5\n";
        let scrape = Scrape::read(text);
        assert_eq!(scrape.sum("a_total", &[]), 7);
        assert_eq!(scrape.sum("a_total", &[("k", "y")]), 4);
        assert_eq!((scrape.sum("b", &[]), scrape.sum("c", &[]), scrape.sum("a", &[])), (2, 0, 0));
        let later = Scrape::read("a_total{k=\"x\",r=\"ok\"} 5\na_total{k=\"z\",r=\"ok\"} 1\n").since(&scrape);
        assert_eq!(later.sum("a_total", &[]), 3);
    }
}
