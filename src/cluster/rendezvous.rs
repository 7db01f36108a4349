//! Which member an id belongs to, the same everywhere: weighted rendezvous hashing.
//!
//! Each member has a score for the id, from a hash of both, and the highest wins: `-weight / ln(u)` with `u` uniform in (0, 1) wins in
//! proportion to the weights, and a member that comes or goes moves only the ids that it wins or had won. Source: Thaler and Ravishankar,
//! "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking 6(1), 1998; the logarithm from Schindelhauer and
//! Schomaker, "Weighted distributed hash tables", SPAA 2005.

use super::engine::MemberView;
use crate::{ring::affinity_hash, sync::SplitMix64};

fn score(member: &str, weight: u32, hash: u64) -> f64 {
    let mixed = SplitMix64::mix(hash ^ affinity_hash(member));
    let uniform = uniform(mixed);
    -f64::from(weight) / uniform.ln()
}

/// Never 0 or 1: 52 bits and a half are exact in 53.
fn uniform(mixed: u64) -> f64 {
    ((mixed >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// The member that an id belongs to, by the id's hash; none if nobody has a weight.
pub fn choose(members: &[MemberView], hash: u64) -> Option<&MemberView> {
    members.iter().filter(|view| view.line.weight > 0).max_by(|a, b| {
        let of = |view: &MemberView| score(&view.member, view.line.weight, hash);
        // Equal scores are decided by name, so that everybody decides alike.
        of(a).total_cmp(&of(b)).then_with(|| b.member.cmp(&a.member))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::engine::Line;

    fn members(weights: &[u32]) -> Vec<MemberView> {
        let of = |(place, weight): (usize, &u32)| MemberView {
            member: format!("member-{place}").into(),
            line: Line { weight: *weight, ..Line::default() },
        };
        weights.iter().enumerate().map(of).collect()
    }

    fn owners(members: &[MemberView]) -> Vec<Option<String>> {
        let of = |id: u64| choose(members, affinity_hash(&id)).map(|view| view.member.to_string());
        (0..20_000).map(of).collect()
    }

    #[test]
    fn shares_follow_weights() {
        let members = members(&[1, 2, 0, 5]);
        let owners = owners(&members);
        for (place, weight) in [1u32, 2, 0, 5].into_iter().enumerate() {
            let name = format!("member-{place}");
            let share = owners.iter().filter(|owner| owner.as_deref() == Some(&name)).count() as f64;
            let fair = 20_000.0 * f64::from(weight) / 8.0;
            // Six standard deviations of a binomial share.
            assert!((share - fair).abs() <= 6.0 * (20_000.0f64 / 4.0).sqrt(), "{name}: {share} of {fair}");
        }
        assert!(choose(&[], 1).is_none());
    }

    #[test]
    fn scores_are_finite() {
        assert!(uniform(0) > 0.0 && uniform(u64::MAX) < 1.0);
    }

    #[test]
    fn only_ids_of_the_member_that_goes_move() {
        let all = members(&[3, 1, 2]);
        let (before, after) = (owners(&all), owners(&all[..2]));
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || before.as_deref() == Some("member-2"));
        }
    }
}
