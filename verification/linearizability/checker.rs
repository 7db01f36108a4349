//! Whether a concurrent history can be explained by a sequential one: Wing and Gong's search with Lowe's memory.
//!
//! The search is depth first over *the position in each thread's list of operations* together with the state that the
//! specification has reached; both are remembered, so that no situation is tried twice. An operation may go next if its
//! call came before every other thread's next return. It stops at a budget of situations, and says so: that is neither
//! a yes nor a no.
//!
//! Every recorded operation is complete, since the recorders join their threads; there is no pending one to leave out.

use std::{collections::HashSet, fmt::Debug, hash::Hash};

/// One operation of one thread, with what it answered. Stamps come from one counter, taken before and after.
#[derive(Clone, Debug)]
pub struct Event<O, A> {
    pub op: O,
    pub answer: A,
    pub call: u64,
    pub done: u64,
}

/// What each thread did, in its own order.
pub type History<O, A> = Vec<Vec<Event<O, A>>>;

/// A sequential specification.
pub trait Specification: Clone + Eq + Hash + Debug {
    type Op: Clone + Debug;
    type Answer: Clone + Debug;

    /// The state after `op`, if it may answer `answer` in this state.
    fn step(&self, op: &Self::Op, answer: &Self::Answer) -> Option<Self>;
}

/// What the search found.
#[derive(Debug)]
pub enum Verdict<S> {
    /// There is an order; this is the state at its end, and how many situations were looked at.
    Linearizable { end: S, situations: usize },
    /// There is none. `explained` is the longest beginning that has one: how far each thread got, and the state there.
    Wrong { explained: Vec<usize>, state: S },
    /// The budget ran out first.
    Undecided,
}

/// Situations that a search may look at. Histories of 4 x 25 operations need some hundreds.
pub const BUDGET: usize = 2_000_000;

pub fn check<S: Specification>(start: &S, history: &History<S::Op, S::Answer>) -> Verdict<S> {
    let mut search =
        Search { history, seen: HashSet::new(), longest: (0, vec![0; history.len()], start.clone()) };
    match search.go(vec![0; history.len()], start.clone()) {
        Found::Yes(end) => Verdict::Linearizable { end, situations: search.seen.len() },
        Found::No => Verdict::Wrong { explained: search.longest.1, state: search.longest.2 },
        Found::OutOfBudget => Verdict::Undecided,
    }
}

enum Found<S> {
    Yes(S),
    No,
    OutOfBudget,
}

struct Search<'h, S: Specification> {
    history: &'h History<S::Op, S::Answer>,
    seen: HashSet<(Vec<usize>, S)>,
    longest: (usize, Vec<usize>, S),
}

impl<S: Specification> Search<'_, S> {
    fn go(&mut self, at: Vec<usize>, state: S) -> Found<S> {
        // A stack of situations that are still to be tried; the history's length bounds nothing but memory.
        let mut stack = vec![(at, state)];
        while let Some((at, state)) = stack.pop() {
            if !self.seen.insert((at.clone(), state.clone())) {
                continue;
            }
            if self.seen.len() > BUDGET {
                return Found::OutOfBudget;
            }
            let explained = at.iter().sum();
            if explained > self.longest.0 {
                self.longest = (explained, at.clone(), state.clone());
            }
            let next: Vec<_> = self.history.iter().zip(&at).map(|(thread, &i)| thread.get(i)).collect();
            if next.iter().all(Option::is_none) {
                return Found::Yes(state);
            }
            let first_done = next.iter().flatten().map(|event| event.done).min().unwrap_or(u64::MAX);
            for (thread, event) in next.iter().enumerate() {
                if let Some(event) = event
                    && event.call <= first_done
                    && let Some(after) = state.step(&event.op, &event.answer)
                {
                    let mut at = at.clone();
                    at[thread] += 1;
                    stack.push((at, after));
                }
            }
        }
        Found::No
    }
}

/// Panics, with all that is needed to understand it, unless `history` is linearizable. Answers with the state at its end.
pub fn demand<S: Specification>(start: &S, history: &History<S::Op, S::Answer>) -> S {
    match check(start, history) {
        Verdict::Linearizable { end, .. } => end,
        Verdict::Undecided => panic!("undecided after {BUDGET} situations: shorten the history"),
        Verdict::Wrong { explained, state } => {
            let mut text = String::new();
            for (thread, (events, upto)) in history.iter().zip(&explained).enumerate() {
                for (i, event) in events.iter().enumerate() {
                    let mark = match i.cmp(upto) {
                        std::cmp::Ordering::Less => ' ',
                        std::cmp::Ordering::Equal => '>',
                        std::cmp::Ordering::Greater => '.',
                    };
                    let Event { op, answer, call, done } = event;
                    text +=
                        &format!("  {mark} thread {thread} [{call:>3}..{done:>3}] {op:?} -> {answer:?}\n");
                }
            }
            panic!(
                "not linearizable; explained up to the marks '>' from\n  {start:?}\nto\n  {state:?}\n{text}"
            );
        }
    }
}
