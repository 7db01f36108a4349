//! The token table: of equal tokens one is redeemed, no entry belongs to two leases, and a guard whose token was given out
//! returns its unit once.
//!
//! A chunk has two entries, then two, then four. Leases are taken before the race, so that it is about the table alone.

use leasehold::{
    OwnedLease, ReleaseError, Token,
    internals::sync::{Arc, thread},
};

use crate::{
    common::{model, model_within},
    driver::{Fleet, Res, Setup},
};

type Leases = Vec<OwnedLease<Res>>;

/// A fleet of one resource with eight units, this many of them lent.
fn lent(count: usize) -> (Arc<Fleet>, Leases) {
    let fleet = Arc::new(Fleet::new(Setup { units: 8, ..Setup::default() }));
    fleet.scheduler.insert(fleet.resource(0)).expect("new");
    let leases = (0..count).map(|_| fleet.scheduler.acquire_owned().expect("a unit is free")).collect();
    (fleet, leases)
}

fn spawn<T: 'static>(fleet: &Arc<Fleet>, body: impl FnOnce(&Fleet) -> T + 'static) -> thread::JoinHandle<T> {
    let fleet = Arc::clone(fleet);
    crate::common::spawn(move || body(&fleet))
}

/// Every token is redeemed once, and once only; then nothing is out. Two more tokens are minted before, so that a free list
/// that leads to an entry in use, or in a circle, is found out.
fn settle(fleet: Arc<Fleet>, tokens: &[Token]) {
    let more = [(); 2].map(|()| fleet.scheduler.acquire_owned().expect("a unit is free").into_token());
    let tokens = &[tokens, &more].concat();
    for (i, token) in tokens.iter().enumerate() {
        assert!(!tokens[..i].contains(token), "no two leases have one token");
        fleet.scheduler.release(*token).expect("nobody has redeemed it");
    }
    for token in tokens {
        assert!(matches!(fleet.scheduler.release(*token), Err(ReleaseError::Stale { .. })));
    }
    nothing_out(fleet);
}

fn nothing_out(fleet: Arc<Fleet>) {
    assert_eq!(fleet.scheduler.check_invariants().in_flight, 0);
    let Ok(fleet) = Arc::try_unwrap(fleet) else { panic!("all threads are gone") };
    fleet.finish();
}

#[test]
fn redeem_redeem() {
    model(|| {
        let (fleet, mut leases) = lent(1);
        let token = leases.remove(0).into_token();
        let other = spawn(&fleet, move |fleet| fleet.scheduler.release(token).is_ok());
        let mine = fleet.scheduler.release(token).is_ok();
        assert!(mine != other.join().expect("no panic"), "one of two wins");
        nothing_out(fleet);
    });
}

#[test]
fn redeem_redeem_redeem() {
    model_within(1, || {
        let (fleet, mut leases) = lent(1);
        let token = leases.remove(0).into_token();
        let others: Vec<_> = (0..2)
            .map(|_| spawn(&fleet, move |fleet| u32::from(fleet.scheduler.release(token).is_ok())))
            .collect();
        let mut won = u32::from(fleet.scheduler.release(token).is_ok());
        won += others.into_iter().map(|other| other.join().expect("no panic")).sum::<u32>();
        assert_eq!(won, 1, "one of three wins");
        nothing_out(fleet);
    });
}

/// The third token needs a second chunk: both make it, one is used.
#[test]
fn mint_mint_chunk() {
    model(|| {
        let (fleet, mut leases) = lent(4);
        let mut tokens: Vec<_> = leases.drain(..2).map(OwnedLease::into_token).collect();
        let (one, two) = (leases.remove(0), leases.remove(0));
        let other = spawn(&fleet, move |_| one.into_token());
        tokens.push(two.into_token());
        tokens.push(other.join().expect("no panic"));
        settle(fleet, &tokens);
    });
}

/// The entry that is freed is taken by the other.
#[test]
fn mint_redeem() {
    model(|| {
        let (fleet, mut leases) = lent(2);
        let (first, second) = (leases.remove(0), leases.remove(0));
        let token = first.into_token();
        let other = spawn(&fleet, move |fleet| fleet.scheduler.release(token));
        let minted = second.into_token();
        other.join().expect("no panic").expect("nobody else has it");
        settle(fleet, &[minted]);
    });
}

/// The token travels to another thread as soon as it exists.
#[test]
fn mint_hand_over_redeem() {
    model(|| {
        use leasehold::internals::sync::Mutex;
        let (fleet, mut leases) = lent(1);
        let lease = leases.remove(0);
        let channel = Arc::new(Mutex::new(None));
        let other = {
            let channel = Arc::clone(&channel);
            spawn(&fleet, move |_| *channel.lock().expect("no panic") = Some(lease.into_token()))
        };
        let received = *channel.lock().expect("no panic");
        if let Some(token) = received {
            fleet.scheduler.release(token).expect("minted before it was sent");
        }
        other.join().expect("no panic");
        let token = channel.lock().expect("no panic").take().expect("sent");
        assert_eq!(fleet.scheduler.release(token).is_ok(), received.is_none());
        nothing_out(fleet);
    });
}

/// Somebody guesses a token while it is minted: the entry's word alone orders what he finds in the entry, which was another
/// resource's before.
#[test]
fn mint_guess_redeem() {
    model(|| {
        let fleet = Arc::new(Fleet::new(Setup::default()));
        (0..2).for_each(|key| fleet.scheduler.insert(fleet.resource(key)).expect("new"));
        let earlier = fleet.scheduler.acquire_key_owned(&0).expect("eligible").into_token();
        fleet.scheduler.release(earlier).expect("live");
        let mut bytes = earlier.to_bytes();
        bytes[7] += 1;
        let guess = Token::from_bytes(bytes);
        let lease = fleet.scheduler.acquire_key_owned(&1).expect("eligible");
        let other = spawn(&fleet, move |fleet| fleet.scheduler.release(guess).is_ok());
        let minted = lease.into_token();
        assert_eq!(minted, guess, "the next generation of the same entry");
        let mine = fleet.scheduler.release(minted).is_ok();
        assert!(mine != other.join().expect("no panic"), "one of two wins");
        nothing_out(fleet);
    });
}

/// A pop fails because of a push, and goes on with what was pushed: an entry after which, before, another one came that is in
/// use by now.
#[test]
fn mint_redeem_of_a_used_entry() {
    model(|| {
        let (fleet, leases) = lent(6);
        let release = |token| fleet.scheduler.release(token).expect("live");
        let mut mint = leases.into_iter().map(OwnedLease::into_token);
        let mut next = || mint.next().expect("a lease is left");
        let [first, second, third] = [next(), next(), next()];
        release(third);
        release(second);
        let [second, third] = [next(), next()];
        assert!(second.slot() == 1 && third.slot() == 2, "the list was the second, then the third");
        release(first);
        let other = spawn(&fleet, move |fleet| fleet.scheduler.release(second).expect("live"));
        let minted = next();
        other.join().expect("no panic");
        settle(fleet, &[minted, third]);
    });
}

/// A free list of two. One pops; the other pops both and pushes the first back, so that the head is what it was, and the
/// entry after it is not: whoever comes next must not be given that one.
#[test]
fn free_list_aba() {
    model(|| {
        let (fleet, mut leases) = lent(6);
        let freed: Vec<_> = leases.drain(..2).map(OwnedLease::into_token).collect();
        freed.into_iter().rev().for_each(|token| fleet.scheduler.release(token).expect("live"));
        let (mine, first, second) = (leases.remove(0), leases.remove(0), leases.remove(0));
        let other = spawn(&fleet, move |fleet| {
            let (first, second) = (first.into_token(), second.into_token());
            fleet.scheduler.release(first).expect("live");
            second
        });
        let minted = mine.into_token();
        let second = other.join().expect("no panic");
        let last = leases.remove(0).into_token();
        settle(fleet, &[minted, second, last]);
    });
}

/// Two pushes and a pop.
#[test]
fn redeem_redeem_mint() {
    model_within(1, || {
        let (fleet, mut leases) = lent(3);
        let tokens: Vec<_> = leases.drain(..2).map(OwnedLease::into_token).collect();
        let last = leases.remove(0);
        let (one, two) = (tokens[0], tokens[1]);
        let first = spawn(&fleet, move |fleet| fleet.scheduler.release(one).expect("live"));
        let second = spawn(&fleet, move |fleet| fleet.scheduler.release(two).expect("live"));
        let minted = last.into_token();
        first.join().expect("no panic");
        second.join().expect("no panic");
        settle(fleet, &[minted]);
    });
}

/// The guard ends in one thread, its token in another: the unit comes back once.
#[test]
fn guard_drop_redeem() {
    model(|| {
        let (fleet, mut leases) = lent(1);
        let mut lease = leases.remove(0);
        let token = lease.token();
        assert_eq!(token, lease.token(), "asked again, the token is the same");
        let other = spawn(&fleet, move |fleet| fleet.scheduler.release(token));
        lease.check();
        drop(lease);
        let _ = other.join().expect("no panic");
        assert!(fleet.scheduler.release(token).is_err(), "spent either way");
        nothing_out(fleet);
    });
}

/// As before, and the resource goes meanwhile: the guard still reads its value, and the node is freed once.
#[test]
fn guard_redeem_remove() {
    model_within(2, || {
        let (fleet, mut leases) = lent(1);
        let mut lease = leases.remove(0);
        let token = lease.token();
        let other = spawn(&fleet, move |fleet| {
            let _ = fleet.scheduler.release(token);
            fleet.scheduler.remove(&0).expect("nobody else removes");
        });
        lease.check();
        drop(lease);
        other.join().expect("no panic");
        nothing_out(fleet);
    });
}

/// As before, with the value superseded.
#[test]
fn guard_redeem_update() {
    model_within(2, || {
        let (fleet, mut leases) = lent(1);
        let mut lease = leases.remove(0);
        let token = lease.token();
        let other = spawn(&fleet, move |fleet| {
            let _ = fleet.scheduler.release(token);
            drop(fleet.scheduler.update(fleet.resource(0)));
        });
        lease.check();
        drop(lease);
        other.join().expect("no panic");
        nothing_out(fleet);
    });
}

/// The guard becomes its token while a copy of it is redeemed.
#[test]
fn into_token_redeem() {
    model(|| {
        let (fleet, mut leases) = lent(1);
        let mut lease = leases.remove(0);
        let token = lease.token();
        let other = spawn(&fleet, move |fleet| fleet.scheduler.release(token).is_ok());
        let same = lease.into_token();
        assert_eq!(same, token);
        let mine = fleet.scheduler.release(same).is_ok();
        assert!(mine != other.join().expect("no panic"), "one of two wins");
        nothing_out(fleet);
    });
}

/// A guard whose token was given out ends while the token is redeemed, and `last` happens in a third thread.
fn pinned_three(setup: Setup, last: fn(&Fleet), after: fn(&Fleet)) {
    model_within(1, move || {
        let fleet = Arc::new(Fleet::new(setup));
        fleet.scheduler.insert(fleet.resource(0)).expect("new");
        let mut lease = fleet.scheduler.acquire_owned().expect("a unit is free");
        let token = lease.token();
        let one = spawn(&fleet, move |fleet| fleet.scheduler.release(token).is_ok());
        let two = spawn(&fleet, last);
        lease.check();
        drop(lease);
        let _ = one.join().expect("no panic");
        two.join().expect("no panic");
        after(&fleet);
        assert!(fleet.scheduler.release(token).is_err(), "spent either way");
        nothing_out(fleet);
    });
}

/// Who frees the node: the removal, the redemption, or the end of the pin.
#[test]
fn pinned_redeem_remove() {
    pinned_three(
        Setup::default(),
        |fleet| assert!(fleet.scheduler.remove(&0).is_ok(), "nobody else removes"),
        |fleet| assert!(fleet.scheduler.is_empty()),
    );
}

/// As before; the load ranks the resource anew after the unlock.
#[test]
fn pinned_redeem_remove_by_load() {
    pinned_three(
        Setup { units: 2, by_load: true, ..Setup::default() },
        |fleet| assert!(fleet.scheduler.remove(&0).is_ok(), "nobody else removes"),
        |fleet| assert!(fleet.scheduler.is_empty()),
    );
}

/// Who frees the superseded value: the update, the redemption, or the end of the pin.
#[test]
fn pinned_redeem_update() {
    pinned_three(
        Setup::default(),
        |fleet| drop(fleet.scheduler.update_with(&0, |old| old.again(1))),
        |fleet| assert_eq!(fleet.scheduler.acquire().expect("returned").version, 1),
    );
}

/// The unit that the token has returned is lent again before the guard ends.
#[test]
fn pinned_redeem_acquire() {
    pinned_three(
        Setup::default(),
        |fleet| {
            assert!(
                fleet.scheduler.acquire().is_ok_and(|lease| lease.check() == 0) || fleet.scheduler.len() == 1
            )
        },
        |fleet| assert_eq!(fleet.scheduler.acquire().expect("returned").check(), 0),
    );
}

/// The guard ends with a cooling, the token without: one of them counts.
#[test]
fn pinned_release_after_redeem() {
    model(|| {
        let (fleet, mut leases) = lent(1);
        let mut lease = leases.remove(0);
        let token = lease.token();
        let other = spawn(&fleet, move |fleet| fleet.scheduler.release(token).is_ok());
        lease.release_after(crate::driver::FOR_EVER);
        let by_token = other.join().expect("no panic");
        assert_eq!(fleet.scheduler.acquire().is_ok(), by_token, "it cools unless the token came first");
        nothing_out(fleet);
    });
}

/// Two guards of one superseded value, both with tokens: the last claim frees it.
#[test]
fn pinned_twice_update() {
    model_within(1, || {
        let (fleet, mut leases) = lent(2);
        let (mut mine, mut other) = (leases.remove(0), leases.remove(0));
        let (one, two) = (mine.token(), other.token());
        let other = spawn(&fleet, move |fleet| {
            fleet.scheduler.update_with(&0, |old| old.again(1)).expect("a member");
            other.check();
            assert_eq!(other.version, 0);
            let _ = fleet.scheduler.release(one);
            drop(other);
        });
        let _ = fleet.scheduler.release(two);
        mine.check();
        assert_eq!(mine.version, 0);
        drop(mine);
        other.join().expect("no panic");
        nothing_out(fleet);
    });
}
