//! Between a cluster's two threads: the keeper, who must never wait for the engine, and the courier, who does nothing else.

use std::{sync::PoisonError, time::Duration};

use super::engine::{Engine, EngineError, HoldKind, HoldNote, Reply, Request};
use crate::sync::{Arc, Clock, Condvar, MonotonicClock, Mutex, MutexGuard, wait_for};

/// How often the courier asks for news, while there is nothing else.
const PACE: Duration = Duration::from_millis(20);

/// What the keeper is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Give everything back as leases return, then leave.
    Leave,
    /// Leave now.
    Abandon,
    /// End, whatever has been reached.
    End,
}

/// What somebody here wants of a resource.
#[derive(Clone, Copy, Debug)]
pub enum Wish {
    /// A hold of the fleet is set, or cleared.
    Hold(HoldKind, bool),
    /// This process has none of it, or may have some again.
    Drained(bool),
}

/// That, by the resource's place in the roll.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub place: usize,
    pub wish: Wish,
}

/// A reply, and how long it took, in nanoseconds.
pub type Answer = (Result<Reply, EngineError>, u64);

/// What has come for the keeper.
#[derive(Default)]
pub struct Mail {
    pub answer: Option<Answer>,
    pub news: Vec<HoldNote>,
    /// Whether news are heard, if that has changed.
    pub hears: Option<bool>,
    pub commands: Vec<Command>,
    pub order: Option<Order>,
}

impl Mail {
    fn is_empty(&self) -> bool {
        let Mail { answer, news, hears, commands, order } = self;
        answer.is_none() && news.is_empty() && hears.is_none() && commands.is_empty() && order.is_none()
    }
}

#[derive(Default)]
struct Desk {
    request: Option<Request>,
    mail: Mail,
    ends: bool,
    has_ended: bool,
}

/// See the module.
#[derive(Default)]
pub struct Post {
    desk: Mutex<Desk>,
    for_courier: Condvar,
    for_keeper: Condvar,
    for_closer: Condvar,
}

impl Post {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn send(&self, request: Request) {
        self.desk().request = Some(request);
        self.for_courier.notify_one();
    }

    pub fn order(&self, order: Order) {
        self.desk().mail.order = Some(order);
        self.for_keeper.notify_one();
    }

    pub fn command(&self, command: Command) {
        self.desk().mail.commands.push(command);
        self.for_keeper.notify_one();
    }

    /// The courier ends after the call that it is at.
    pub fn end(&self) {
        self.desk().ends = true;
        self.for_courier.notify_one();
    }

    /// What has come for the keeper; waits for it for at most `pause`.
    pub fn collect(&self, pause: Duration) -> Mail {
        let mut desk = self.desk();
        if desk.mail.is_empty() && !pause.is_zero() {
            desk = wait_for(&self.for_keeper, desk, Some(pause));
        }
        std::mem::take(&mut desk.mail)
    }

    /// Waits until the courier is about to return, for at most `limit`; answers whether it is.
    pub fn courier_ends(&self, limit: Duration) -> bool {
        let clock = MonotonicClock::new();
        let end = clock.now().saturating_add(limit);
        let mut desk = self.desk();
        while !desk.has_ended {
            let left = end.saturating_since(clock.now());
            if left.is_zero() {
                return false;
            }
            desk = wait_for(&self.for_closer, desk, Some(left));
        }
        true
    }

    /// The courier's thread.
    pub fn carry(&self, engine: Box<dyn Engine>, patience: Duration, clock: &Arc<dyn Clock>) {
        // Somebody's engine may panic when it is dropped, too.
        let _ = crate::node::quietly(|| self.serve(engine, patience, clock));
        self.desk().has_ended = true;
        self.for_closer.notify_all();
    }

    fn serve(&self, mut engine: Box<dyn Engine>, patience: Duration, clock: &Arc<dyn Clock>) {
        let mut heard = false;
        loop {
            let request = {
                let mut desk = self.desk();
                if desk.ends {
                    return;
                }
                if desk.request.is_none() {
                    desk = wait_for(&self.for_courier, desk, Some(PACE));
                }
                desk.request.take()
            };
            if let Some(request) = request {
                // The user's code, as the engine is. How long it took is a figure, no more.
                let now = || crate::node::quietly(|| clock.now());
                let began = now();
                // A panic of somebody's engine is a failure like others.
                let result = crate::node::quietly(|| engine.call(&request, patience))
                    .unwrap_or_else(|| Err(EngineError::new("the engine has panicked")));
                let took =
                    now().zip(began).map_or(0, |(now, began)| now.saturating_since(began).as_nanos() as u64);
                self.desk().mail.answer = Some((result, took));
                self.for_keeper.notify_one();
            }
            let news = crate::node::quietly(|| engine.news()).unwrap_or_default();
            if !news.is_empty() {
                self.desk().mail.news.extend(news);
                self.for_keeper.notify_one();
            }
            let hears = crate::node::quietly(|| engine.hears_news()).unwrap_or(false);
            if std::mem::replace(&mut heard, hears) != hears {
                self.desk().mail.hears = Some(hears);
                self.for_keeper.notify_one();
            }
        }
    }
}
