use super::*;

type Resource = crate::Entry<u32, u32, ()>;

fn ticket() -> Ticket<Resource> {
    Ticket {
        node: NonNull::dangling(),
        value: NonNull::dangling(),
        exclusive: true,
        #[cfg(feature = "telemetry")]
        since: 0,
    }
}

#[track_caller]
fn terms(since: u64, deadline: u64) -> Option<Terms> {
    Some(Terms { since, deadline, site: Location::caller() })
}

#[test]
fn a_token_that_was_never_minted_is_foreign_and_an_old_one_is_stale() {
    let tokens = Tokens::<Resource>::new(7);
    let token = tokens.mint(ticket(), false, None);
    let generation = token.generation();
    assert!(tokens.redeem(token).is_ok());
    assert!(matches!(
        tokens.redeem(token),
        Err(ReleaseError::Stale { generation: old, current }) if old == generation && current == generation + 1
    ));
    // The generation that comes next: free, and nobody's yet. And one far ahead, and other entries, and another table.
    for (slot, generation) in [(0, generation + 1), (0, generation + 9), (1, generation), (9_999, generation)]
    {
        assert!(matches!(tokens.redeem(tokens.token(slot, generation)), Err(ReleaseError::Foreign)));
    }
    assert!(matches!(
        Tokens::<Resource>::new(8).redeem(tokens.mint(ticket(), false, None)),
        Err(ReleaseError::Foreign)
    ));
}

/// A guard that was overtaken finds out by whom; its entry is free only then.
#[test]
fn a_guard_ends_after_its_token_or_a_revocation() {
    let tokens = Tokens::<Resource>::new(7);
    let token = tokens.mint(ticket(), true, None);
    let (slot, generation) = (token.slot(), token.generation());
    assert!(tokens.redeem(token).is_ok());
    assert!(!tokens.is_revoked(slot));
    assert!(matches!(tokens.redeem(token), Err(ReleaseError::Stale { .. })), "returned, though not free");
    let current = generation + 1;
    assert_eq!(tokens.end(slot, generation), Err(ReleaseError::Stale { generation, current }));

    let token = tokens.mint(ticket(), true, None);
    assert_eq!((token.slot(), token.generation()), (slot, current), "the entry was free");
    assert!(tokens.revoke(token).is_ok());
    assert!(tokens.is_revoked(slot));
    assert_eq!(tokens.redeem(token).err(), Some(ReleaseError::Revoked { generation: current }));
    assert_eq!(tokens.revoke(token).err(), Some(ReleaseError::Revoked { generation: current }));
    assert_eq!(tokens.renew(slot, current, 5), Err(ReleaseError::Revoked { generation: current }));
    assert_eq!(tokens.end(slot, current), Err(ReleaseError::Revoked { generation: current }));
    assert!(!tokens.is_revoked(slot));

    let token = tokens.mint(ticket(), true, None);
    assert_eq!(tokens.end(slot, token.generation()), Ok(()), "nobody was earlier");
    assert_eq!(tokens.mint(ticket(), false, None).slot(), slot);
    assert!(!tokens.is_revoked(9_999), "no such entry");
}

#[test]
fn the_last_revoked_tokens_are_remembered() {
    let tokens = Tokens::<Resource>::new(7);
    let revoked: Vec<Token> = (0..=KEPT)
        .map(|_| {
            let token = tokens.mint(ticket(), false, None);
            assert!(tokens.revoke(token).is_ok());
            token
        })
        .collect();
    let (first, rest) = revoked.split_first().expect("more than one");
    assert!(matches!(tokens.redeem(*first), Err(ReleaseError::Stale { .. })), "one too many");
    for token in rest {
        let generation = token.generation();
        assert_eq!(tokens.redeem(*token).err(), Some(ReleaseError::Revoked { generation }));
    }
    // Only what was forgotten is used again.
    assert_eq!(tokens.mint(ticket(), false, None).slot(), first.slot());
    assert_eq!(tokens.mint(ticket(), false, None).slot() as usize, KEPT + 1);
}

#[test]
fn who_looks_finds_the_recorded_leases_that_are_out() {
    let tokens = Tokens::<Resource>::new(7);
    let unrecorded = tokens.mint(ticket(), true, None);
    let one = tokens.mint(ticket(), true, terms(3, 13));
    let line = line!() - 1;
    let two = tokens.mint(ticket(), false, terms(4, 14));
    let look = || -> Vec<(Token, u64, u64)> {
        let out = tokens.recorded();
        out.map(|out| (out.token, out.terms.since, out.terms.deadline)).collect()
    };
    assert_eq!(look(), [(one, 3, 13), (two, 4, 14)]);
    assert!(tokens.recorded().all(|out| out.terms.site.file() == file!()));
    assert_eq!(tokens.recorded().next().map(|out| out.terms.site.line()), Some(line));
    assert_eq!(tokens.renew(one.slot(), one.generation(), 20), Ok(()));
    assert!(tokens.redeem(two).is_ok());
    assert_eq!(look(), [(one, 3, 20)]);
    assert!(tokens.revoke(one).is_ok());
    assert_eq!(look(), []);
    assert!(tokens.redeem(unrecorded).is_ok());
}

/// What was seen before a renewal is not acted upon after it; what was noticed once is not noticed again.
#[test]
fn an_overdue_lease_is_noticed_once_and_taken_back_unless_it_was_renewed() {
    let tokens = Tokens::<Resource>::new(7);
    let token = tokens.mint(ticket(), true, terms(0, 10));
    let (slot, generation) = (token.slot(), token.generation());
    let seen = || tokens.recorded().next().expect("it is out");
    let old = seen();
    assert!(!old.is_noticed());
    assert!(tokens.notice(&old));
    assert!(!tokens.notice(&old), "somebody was earlier");
    assert!(seen().is_noticed() && !tokens.notice(&seen()));
    let noticed = seen();
    assert_eq!(tokens.renew(slot, generation, 30), Ok(()));
    assert!(!tokens.revoke_overdue(&noticed), "it was renewed");
    assert!(!seen().is_noticed(), "a renewal begins anew");
    assert!(tokens.revoke_overdue(&seen()));
    assert!(tokens.recorded().next().is_none());
    assert!(tokens.is_revoked(slot));
}

#[test]
fn a_guard_that_parts_leaves_the_token() {
    let tokens = Tokens::<Resource>::new(7);
    let token = tokens.mint(ticket(), true, None);
    tokens.part(token.slot(), token.generation());
    assert!(tokens.redeem(token).is_ok());
    // After the return the parting frees the entry.
    let token = tokens.mint(ticket(), true, None);
    assert!(tokens.redeem(token).is_ok());
    tokens.part(token.slot(), token.generation());
    let next = tokens.mint(ticket(), true, None);
    assert_eq!(next.slot(), token.slot());
    // After a revocation it leaves what is remembered.
    assert!(tokens.revoke(next).is_ok());
    tokens.part(next.slot(), next.generation());
    let generation = next.generation();
    assert_eq!(tokens.redeem(next).err(), Some(ReleaseError::Revoked { generation }));
    assert_ne!(tokens.mint(ticket(), true, None).slot(), next.slot());
}

#[test]
fn the_end_of_the_table_finds_what_is_still_claimed() {
    let mut tokens = Tokens::<Resource>::new(7);
    let guarded = tokens.mint(ticket(), true, None);
    let lone = tokens.mint(ticket(), false, None);
    let returned = tokens.mint(ticket(), true, None);
    let spent = tokens.mint(ticket(), false, None);
    assert!(tokens.redeem(returned).is_ok());
    assert!(tokens.redeem(spent).is_ok());
    assert_eq!((guarded.slot(), lone.slot()), (0, 1));
    let left: Vec<(bool, bool)> = tokens.drain().into_iter().map(|left| (left.unit, left.pin)).collect();
    assert_eq!(left, [(true, true), (true, false), (false, true)]);
    assert!(tokens.drain().is_empty(), "once");
}
