//! Cooling: a resource rests until a deadline and comes back by itself. No timer, no thread, no window.

use std::{sync::Arc, time::Duration};

use leasehold::{AcquireError, Entry, ManualClock, Scheduler};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A clock that we move by hand; leave it out for the machine's own.
    let clock = Arc::new(ManualClock::new());
    let accounts =
        Scheduler::<Entry<&str, u32, ()>>::builder().shards(1).clock(Arc::clone(&clock)).build()?;
    accounts.insert(Entry::new("alice", 1, ()))?;
    accounts.insert(Entry::new("bob", 2, ()))?;
    let seconds = Duration::from_secs;

    // Return and rest are one transition: nobody can get alice in between.
    accounts.acquire()?.release_after(seconds(50));
    assert_eq!(*accounts.acquire()?.key(), "bob");

    // Cooling may begin while a lease is out. The lease stays valid.
    let bob = accounts.acquire()?;
    assert!(accounts.cool("bob", seconds(10))?);
    drop(bob);

    // Nothing is eligible, and the error says until when.
    let Err(AcquireError::NoneEligible(none)) = accounts.acquire() else { panic!("both are cooling") };
    assert_eq!((none.reasons.cooling, none.retry_after), (2, Some(seconds(10))));
    println!("as expected: {none}");

    // Extending never shortens: this asks for less than is left, and changes nothing.
    assert!(!accounts.cool("alice", seconds(5))?);

    clock.advance(seconds(10));
    assert_eq!(*accounts.acquire()?.key(), "bob");
    clock.advance(seconds(39));
    assert_eq!(*accounts.acquire()?.key(), "bob");
    clock.advance(seconds(1));
    assert_eq!(*accounts.acquire()?.key(), "alice");

    // Holds are independent of each other: warming ends cooling and nothing else.
    accounts.exclude("alice")?;
    accounts.cool("alice", seconds(60))?;
    accounts.warm("alice")?;
    assert_eq!(*accounts.acquire()?.key(), "bob");
    accounts.include("alice")?;
    assert_eq!(*accounts.acquire()?.key(), "alice");
    Ok(())
}
