//! The units that a member holds, and which of them it lends.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::cluster::unit::Claim;

/// What is held of one resource.
#[derive(Clone, Debug, Default)]
pub struct Holding {
    pub claims: Vec<Claim>,
    /// How many of them are lent; the others are leaving.
    pub lendable: u32,
}

/// All holdings, by the resource's place in the roll, which is the order of ranks.
#[derive(Clone, Debug, Default)]
pub struct Book {
    holdings: BTreeMap<usize, Holding>,
    leaving: BTreeSet<usize>,
    held: u32,
    lendable: u32,
}

impl Book {
    pub fn held(&self) -> u32 {
        self.held
    }

    pub fn lendable(&self) -> u32 {
        self.lendable
    }

    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    pub fn lendable_of(&self, place: usize) -> u32 {
        self.holdings.get(&place).map_or(0, |holding| holding.lendable)
    }

    pub fn held_of(&self, place: usize) -> u32 {
        self.claims_of(place).len() as u32
    }

    pub fn claims_of(&self, place: usize) -> &[Claim] {
        self.holdings.get(&place).map_or(&[], |holding| &holding.claims)
    }

    /// Places in the order of ranks, with what is lent there.
    pub fn lent(&self) -> impl DoubleEndedIterator<Item = (usize, u32)> + '_ {
        self.holdings
            .iter()
            .map(|(place, holding)| (*place, holding.lendable))
            .filter(|(_, lendable)| *lendable > 0)
    }

    pub fn places(&self) -> Vec<usize> {
        self.holdings.keys().copied().collect()
    }

    pub fn leaving(&self) -> Vec<usize> {
        self.leaving.iter().copied().collect()
    }

    pub fn claims(&self) -> impl Iterator<Item = (usize, &Claim)> + '_ {
        self.holdings.iter().flat_map(|(place, holding)| holding.claims.iter().map(|claim| (*place, claim)))
    }

    /// A new unit, to be lent.
    pub fn add(&mut self, place: usize, claim: Claim) {
        let holding = self.holdings.entry(place).or_default();
        holding.claims.push(claim);
        holding.lendable += 1;
        self.held += 1;
        self.lendable += 1;
    }

    /// From now on `by` units less are lent.
    pub fn lower(&mut self, place: usize, by: u32) {
        if let Some(holding) = self.holdings.get_mut(&place) {
            let by = by.min(holding.lendable);
            holding.lendable -= by;
            self.lendable -= by;
            if by > 0 {
                self.leaving.insert(place);
            }
        }
    }

    /// Units that are leaving are lent again: at most `by`. Answers how many.
    pub fn raise(&mut self, place: usize, by: u32) -> u32 {
        let Some(holding) = self.holdings.get_mut(&place) else { return 0 };
        let by = by.min(holding.claims.len() as u32 - holding.lendable);
        holding.lendable += by;
        self.lendable += by;
        if holding.lendable == holding.claims.len() as u32 {
            self.leaving.remove(&place);
        }
        by
    }

    /// Units of a resource are gone. O(units of it).
    pub fn remove_all(&mut self, place: usize, claims: &[Claim]) {
        let Some(holding) = self.holdings.get_mut(&place) else { return };
        let before = holding.claims.len();
        // Tokens are one of a kind.
        let gone: HashSet<u64> = claims.iter().map(|claim| claim.token).collect();
        holding.claims.retain(|held| !gone.contains(&held.token));
        self.held -= (before - holding.claims.len()) as u32;
        let left = holding.claims.len() as u32;
        let less = holding.lendable.saturating_sub(left);
        holding.lendable -= less;
        self.lendable -= less;
        if holding.lendable == left {
            self.leaving.remove(&place);
        }
        if left == 0 {
            self.holdings.remove(&place);
        }
    }

    /// Everything is gone.
    pub fn clear(&mut self) -> BTreeMap<usize, Holding> {
        std::mem::take(self).holdings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::unit::Unit;

    fn claim(index: u32) -> Claim {
        Claim { unit: Unit { name: "a".into(), index }, token: u64::from(index) + 1 }
    }

    #[test]
    fn units_come_leave_and_come_back() {
        let mut book = Book::default();
        (0..3).for_each(|index| book.add(4, claim(index)));
        book.lower(4, 2);
        assert_eq!((book.held(), book.lendable(), book.leaving()), (3, 1, vec![4]));
        assert_eq!(book.raise(4, 1), 1);
        book.remove_all(4, &[claim(0)]);
        assert_eq!((book.held(), book.lendable(), book.leaving()), (2, 2, vec![]));
        assert_eq!(book.raise(4, 9), 0);
        book.remove_all(4, &[claim(7)]);
        book.remove_all(4, &[claim(1), claim(2)]);
        assert!(book.is_empty() && book.places().is_empty());
    }
}
