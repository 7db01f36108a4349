//! Giving units back, by guards and by tokens.

use std::time::Duration;

use leasehold::{Outcome, ReleaseError, Token};

use super::super::{
    op::{Ended, Op},
    oracle::LeaseFacts,
};
use super::{Driver, guard::Held};

impl Driver<'_> {
    pub(super) fn returning(&mut self, op: &Op) -> &'static str {
        let real = self.real;
        match op {
            Op::End { lease, ended } => {
                if self.held.is_empty() {
                    return "no lease";
                }
                let held = self.held.swap_remove(usize::from(*lease) % self.held.len());
                held.check();
                let Held { guard, facts, token } = held;
                let (deadline, outcome) = self.end_of(*ended);
                guard.end(*ended);
                match token {
                    None => {
                        self.oracle.give_back(&facts, deadline, outcome);
                        "ok"
                    }
                    Some(token) => {
                        let out = self.redeem(token).is_some();
                        if out {
                            self.oracle.give_back(&facts, deadline, outcome);
                        }
                        self.oracle.unpin(facts.node);
                        if out { "before its token" } else { "after its token" }
                    }
                }
            }
            Op::Token { lease } => {
                if self.held.is_empty() {
                    return "no lease";
                }
                let index = usize::from(*lease) % self.held.len();
                let token = self.held[index].guard.token();
                if let Some(earlier) = self.held[index].token {
                    assert_eq!(token, earlier, "asked again, the token is the same");
                    return "again";
                }
                self.held[index].token = Some(token);
                let facts = self.held[index].facts.clone();
                self.mint(token, &facts);
                self.oracle.pin(facts.node);
                "ok"
            }
            Op::IntoToken { lease } => {
                if self.held.is_empty() {
                    return "no lease";
                }
                let Held { guard, facts, token } =
                    self.held.swap_remove(usize::from(*lease) % self.held.len());
                let minted = guard.into_token();
                match token {
                    Some(token) => {
                        assert_eq!(token, minted);
                        self.oracle.unpin(facts.node);
                        "again"
                    }
                    None => {
                        self.mint(minted, &facts);
                        "ok"
                    }
                }
            }
            Op::Redeem { token, outcome } => {
                if self.tokens.is_empty() {
                    return "no token";
                }
                let token = self.tokens[usize::from(*token) % self.tokens.len()];
                let deadline = outcome.and_then(|outcome| self.cooling_of(outcome));
                let result = match outcome {
                    None => real.release(token),
                    Some(outcome) => real.finish(token, *outcome),
                };
                match self.redeem(token) {
                    Some(facts) => {
                        assert_eq!(result, Ok(()), "the token's lease is out");
                        self.oracle.give_back(&facts, deadline, *outcome);
                        "ok"
                    }
                    None => {
                        let current = self.oracle.tokens[&token.slot()].0;
                        let generation = token.generation();
                        assert_eq!(result, Err(ReleaseError::Stale { generation, current }));
                        "stale"
                    }
                }
            }
            Op::RedeemForeign { bits } => {
                // Another scheduler's, and (if there is one to be bent) one of a slot or generation that never was.
                let base = self.tokens.first().map_or([0x55; 16], |token| token.to_bytes());
                let mut other = base;
                other[15] ^= 1 | bits;
                assert_eq!(real.release(Token::from_bytes(other)), Err(ReleaseError::Foreign));
                let mut beyond = base;
                beyond[0] |= 0x80;
                assert_eq!(real.release(Token::from_bytes(beyond)), Err(ReleaseError::Foreign));
                let mut early = base;
                early[4] = 0x40;
                assert_eq!(real.release(Token::from_bytes(early)), Err(ReleaseError::Foreign));
                "refused"
            }
            _ => unreachable!("told apart by the caller"),
        }
    }

    pub(super) fn end_of(&self, ended: Ended) -> (Option<u64>, Option<Outcome>) {
        match ended {
            Ended::Dropped | Ended::Released => (None, None),
            Ended::After(span) => (self.rest(span), None),
            Ended::Finished(outcome) => (self.cooling_of(outcome), Some(outcome)),
        }
    }

    pub(super) fn cooling_of(&self, outcome: Outcome) -> Option<u64> {
        match outcome {
            Outcome::RateLimited { retry_after } => self.rest(retry_after),
            _ => None,
        }
    }

    /// No rest is none.
    fn rest(&self, span: Duration) -> Option<u64> {
        (!span.is_zero()).then(|| self.deadline(span))
    }

    /// The lease of a token, if it is out: its entry is then free again.
    pub(super) fn redeem(&mut self, token: Token) -> Option<LeaseFacts> {
        let (generation, lease) = self.oracle.tokens.get_mut(&token.slot())?;
        if *generation != token.generation() {
            return None;
        }
        let facts = lease.take()?;
        *generation += 1;
        Some(facts)
    }

    pub(super) fn mint(&mut self, token: Token, facts: &LeaseFacts) {
        let (generation, lease) = self.oracle.tokens.entry(token.slot()).or_insert((1, None));
        assert_eq!(token.generation(), *generation, "a new token has its entry's generation");
        assert!(lease.is_none(), "the entry is in use");
        *lease = Some(facts.clone());
        let bytes = Token::from_bytes(token.to_bytes());
        assert_eq!(bytes, token);
        self.tokens.push(token);
    }
}
