//! The keeper: the thread that drives a member over a real scheduler.

use std::{hash::BuildHasher, sync::PoisonError, time::Duration};

use super::{
    desk::Desk,
    engine::{MemberView, Reply},
    member::{Local, Member},
    post::{Mail, Order, Post, Wish},
    spent::Spent,
    stats::ClusterStats,
};
use crate::{
    node::quietly,
    resource::Resource,
    sync::{Arc, Clock, Condvar, MonotonicClock, Mutex, MutexGuard, Timestamp},
};

/// How often the keeper looks at the scheduler: leases that have come back, demand, holds.
const PACE: Duration = Duration::from_millis(25);
/// The same while leases are to be revoked that cannot be seen yet.
const HURRY: Duration = Duration::from_millis(1);

/// What keeper and handle share. Its mutex is held for some numbers at most: what is as long as the fleet is put there as a whole, and read
/// outside of it.
#[derive(Default)]
pub struct Board {
    state: Mutex<Posted>,
    pub changed: Condvar,
}

/// What is posted there.
#[derive(Default)]
pub struct Posted {
    /// But for the members.
    pub stats: ClusterStats,
    members: Arc<Vec<MemberView>>,
    /// The time to live that the engine insists on.
    pub refused: Option<Duration>,
    pub has_left: bool,
    pub has_ended: bool,
    /// Units that the application wants to have at least.
    pub floor: Option<u32>,
}

impl Board {
    pub fn lock(&self) -> MutexGuard<'_, Posted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members, as of the last renewal.
    pub fn members(&self) -> Arc<Vec<MemberView>> {
        Arc::clone(&self.lock().members)
    }

    /// How it stands, with the members.
    pub fn stats(&self) -> ClusterStats {
        let (stats, members) = {
            let posted = self.lock();
            (posted.stats.clone(), Arc::clone(&posted.members))
        };
        ClusterStats { members: members.to_vec(), ..stats }
    }
}

/// See the module.
pub struct Keeper<R: Resource, S> {
    pub member: Member,
    pub desk: Desk<R, S>,
    pub post: Arc<Post>,
    pub board: Arc<Board>,
    pub clock: Arc<dyn Clock>,
    /// But for the members: those are on the board alone.
    pub stats: ClusterStats,
    pub spent: Arc<Spent<R>>,
    /// How long it waits at the end for leases that cannot be revoked yet.
    pub patience: Duration,
}

impl<R: Resource, S: BuildHasher> Keeper<R, S> {
    /// The thread.
    pub fn run(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            // User code runs in here: callbacks of resources, clones and hashes of keys.
            match quietly(|| self.turn(pause)) {
                Some(Some(next)) => pause = next,
                Some(None) => break,
                None => {
                    // What is where is not sure any more: nothing is lent, and the session ends by itself.
                    let _ = quietly(|| self.desk.stop());
                    let _ = quietly(|| self.wind_up());
                    self.stats.last_error = Some(
                        "a callback has panicked in the cluster's thread: the cluster has stopped".to_owned(),
                    );
                    break;
                }
            }
        }
        self.post.end();
        // Whatever has become of it: nothing is lent.
        let stats = &mut self.stats;
        (stats.live, stats.suspended, stats.hears_news) = (false, false, false);
        (stats.held, stats.lendable, stats.namesakes) = (0, 0, 0);
        let mut posted = self.board.lock();
        posted.stats = self.stats;
        posted.has_ended = true;
        drop(posted);
        self.board.changed.notify_all();
    }

    /// One turn; answers for how long to wait before the next. `None` when it is to end.
    fn turn(&mut self, pause: Duration) -> Option<Duration> {
        let Mail { answer, news, hears, commands, order } = self.post.collect(pause);
        let now = self.clock.now();
        if let Some((result, took)) = answer {
            self.stats.took(took);
            self.stats.connected = result.is_ok();
            let reply: Option<Reply> = match result {
                Ok(reply) => {
                    if let Reply::Refused { ttl } = &reply {
                        self.stats.last_error = Some(format!(
                            "refused: the fleet has a time to live of {ttl:?}; this member does not ask again"
                        ));
                    }
                    Some(reply)
                }
                Err(error) => {
                    self.stats.last_error = Some(error.to_string());
                    None
                }
            };
            self.member.answered(now, reply, &mut self.desk);
        }
        if let Some(hears) = hears {
            self.stats.hears_news = hears;
        }
        self.member.hear(now, &news, &mut self.desk);
        for command in commands {
            match command.wish {
                Wish::Hold(kind, set) => self.member.command(now, command.place, kind, set, &mut self.desk),
                Wish::Drained(drained) => self.member.decline(command.place, drained, &mut self.desk),
            }
        }
        self.spent.end(now);
        // Nothing is lent any more, by the application's wish: others may have it.
        let retired = self.desk.is_closed() || self.desk.drains_all();
        self.member.retire(retired, &mut self.desk);
        match order {
            Some(Order::Leave) => self.member.leave(&mut self.desk),
            Some(Order::Abandon) => {
                // Units that were just given back by their leases are returned, not lost.
                self.member.tick(now, &mut self.desk);
                self.member.abandon(&mut self.desk);
            }
            Some(Order::End) => {
                // Whatever has become of the orders before: with the thread nobody keeps the deadlines any more.
                if !self.member.has_left() {
                    self.member.tick(now, &mut self.desk);
                    self.member.abandon(&mut self.desk);
                }
                self.wind_up();
                self.publish();
                return None;
            }
            None => {}
        }
        self.member.tick(now, &mut self.desk);
        self.desk.tidy();
        // The moment before it is sent.
        let before = self.clock.now();
        if let Some(request) = self.member.poll(before, &mut self.desk) {
            self.post.send(request);
        }
        self.publish();
        let left = |until: Timestamp| until.saturating_since(self.clock.now());
        // Whoever has not picked up his lease for so long may never do so.
        let hurries = self.desk.is_in_excess_since(before, self.patience);
        let pause = if hurries { HURRY } else { self.member.deadline().map_or(PACE, left) };
        Some(pause.clamp(HURRY, PACE))
    }

    /// Revokes what should not be out any more. A lease that was handed to somebody who has not woken up yet is waited for.
    fn wind_up(&mut self) {
        // Not the cluster's clock, which need not run.
        let clock = MonotonicClock::new();
        let end = clock.now().saturating_add(self.patience);
        loop {
            self.desk.tidy();
            if !self.desk.is_in_excess() {
                break;
            }
            if clock.now() >= end {
                self.desk.give_up();
                break;
            }
            let _ = self.post.collect(HURRY);
        }
        (self.stats.revoked, self.stats.outlived) = (self.desk.revoked, self.desk.outlived);
    }

    fn publish(&mut self) {
        let counts = self.member.counts();
        let stats = &mut self.stats;
        stats.live = self.member.is_live();
        stats.suspended = self.member.is_suspended();
        stats.held = self.member.held();
        stats.lendable = self.member.lendable();
        (stats.renewals, stats.claimed, stats.returned) = (counts.renewals, counts.claimed, counts.returned);
        (stats.losses, stats.reinstated, stats.epochs) = (counts.lost, counts.reinstated, counts.epochs);
        (stats.requests, stats.failures) = (counts.requests, counts.failures);
        (stats.revoked, stats.outlived, stats.faults) =
            (self.desk.revoked, self.desk.outlived, self.desk.faults);
        if let Some(refusal) = self.desk.refusal.take() {
            stats.last_error = Some(refusal);
        }
        stats.free = self.member.view().free;
        stats.imbalance = self.member.imbalance();
        let namesakes = self.member.namesakes();
        if namesakes > 0 && stats.namesakes == 0 {
            stats.last_error = Some(format!(
                "another process is a member of the fleet under the name {:?}: give each a name of its own",
                self.member.name()
            ));
        }
        stats.namesakes = namesakes;
        let mut stats = stats.clone();
        let seen = &self.member.view().members;
        let mut members = Arc::clone(&self.board.members());
        if *members != *seen {
            members = Arc::new(seen.clone());
        }
        let mut posted = self.board.lock();
        // What was there goes when the lock is free.
        std::mem::swap(&mut posted.stats, &mut stats);
        std::mem::swap(&mut posted.members, &mut members);
        posted.refused = self.member.refused();
        posted.has_left = self.member.has_left();
        if let Some(floor) = posted.floor.take() {
            self.member.set_floor(floor);
        }
        drop(posted);
        self.board.changed.notify_all();
    }
}
