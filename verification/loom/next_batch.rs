//! A peek that begins while one batch is half absorbed and ends while the next one is staged: what it has learnt of the first
//! must not be believed of the second, which is refused.
//!
//! From the beginning, that takes three preemptions and more executions than the fast tier has time for. So the peek's thread
//! is started in the middle of the first batch, by user code that runs there: the `Clone` of a key, for an event.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Mutex,
};

use leasehold::{
    InsertError, Overflow, Resource, Scheduler, Strategy,
    internals::sync::{Arc, thread},
};

use crate::{
    common::{model, spawn},
    driver::Fixed,
};

/// What happens at the clone of a key after so many others.
#[derive(Default)]
struct Cue {
    clones: u32,
    act: Option<Box<dyn FnOnce() + Send>>,
}

struct Key {
    number: u8,
    cue: std::sync::Arc<Mutex<Cue>>,
}

impl Clone for Key {
    fn clone(&self) -> Self {
        let act = {
            let mut cue = self.cue.lock().expect("no panic while held");
            match cue.clones {
                0 => cue.act.take(),
                _ => {
                    cue.clones -= 1;
                    None
                }
            }
        };
        if let Some(act) = act {
            act();
        }
        Key { number: self.number, cue: self.cue.clone() }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.number);
    }
}

struct Numbered {
    number: u8,
    cue: std::sync::Arc<Mutex<Cue>>,
}

impl Resource for Numbered {
    type Key = Key;
    type Priority = u8;

    fn key(&self) -> Key {
        Key { number: self.number, cue: self.cue.clone() }
    }

    fn priority(&self, _in_flight: u32) -> u8 {
        self.number
    }
}

#[test]
fn peek_batch_then_full_batch() {
    model(|| {
        let cue = std::sync::Arc::<Mutex<Cue>>::default();
        let fleet = Scheduler::<Numbered>::builder()
            .shards(1)
            .strategy(Strategy::BestOf { choices: 1 })
            .hasher(Fixed)
            .seed(7)
            .expected_resources(4)
            .event_capacity(4)
            .max_resources(2, Overflow::Reject)
            .build()
            .expect("valid settings");
        let fleet = Arc::new(fleet);
        let batch = |numbers: std::ops::Range<u8>| {
            numbers.map(|number| Numbered { number, cue: cue.clone() }).collect::<Vec<_>>()
        };
        // The first clone is of the key that a refusal would name; the second is for the event of the first admission.
        let peek = std::sync::Arc::<Mutex<Option<thread::JoinHandle<()>>>>::default();
        *cue.lock().expect("no panic") = Cue {
            clones: 1,
            act: Some(Box::new({
                let (fleet, peek) = (Arc::clone(&fleet), peek.clone());
                move || {
                    let started = spawn(move || {
                        let shown = fleet.peek().map(|shown| shown.number);
                        assert!(shown.is_some_and(|number| number >= 5), "shown: {shown:?}");
                    });
                    *peek.lock().expect("no panic while held") = Some(started);
                }
            })),
        };
        assert_eq!(fleet.insert_batch(batch(5..7)).map_err(|rejected| rejected.error).ok(), Some(2));
        let refused = fleet.insert_batch(batch(0..1)).map_err(|rejected| rejected.error);
        assert!(matches!(refused, Err(InsertError::Full { .. })));
        let peek = peek.lock().expect("no panic").take().expect("the peek was started");
        peek.join().expect("no panic");
        fleet.check_invariants();
    });
}
