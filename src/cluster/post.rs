//! Between a cluster's two threads: the keeper, who must never wait for the engine, and the courier, who does nothing else.

use std::{sync::PoisonError, time::Duration};

use super::engine::{Engine, EngineError, HoldNote, Reply, Request};
use crate::sync::{Arc, Clock, Condvar, Mutex, MutexGuard, wait_for};

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

/// A reply, and how long it took, in nanoseconds.
pub type Answer = (Result<Reply, EngineError>, u64);

#[derive(Default)]
struct Desk {
    request: Option<Request>,
    answer: Option<Answer>,
    news: Vec<HoldNote>,
    order: Option<Order>,
    ends: bool,
}

/// See the module.
#[derive(Default)]
pub struct Post {
    desk: Mutex<Desk>,
    for_courier: Condvar,
    for_keeper: Condvar,
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
        self.desk().order = Some(order);
        self.for_keeper.notify_one();
    }

    /// The courier ends after the call that it is at.
    pub fn end(&self) {
        self.desk().ends = true;
        self.for_courier.notify_one();
    }

    /// What has come for the keeper; waits for it for at most `pause`.
    pub fn collect(&self, pause: Duration) -> (Option<Answer>, Vec<HoldNote>, Option<Order>) {
        let mut desk = self.desk();
        if desk.answer.is_none() && desk.news.is_empty() && desk.order.is_none() && !pause.is_zero() {
            desk = wait_for(&self.for_keeper, desk, Some(pause));
        }
        (desk.answer.take(), std::mem::take(&mut desk.news), desk.order.take())
    }

    /// The courier's thread.
    pub fn carry(&self, mut engine: Box<dyn Engine>, patience: Duration, clock: &Arc<dyn Clock>) {
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
                let began = clock.now();
                // A panic of somebody's engine is a failure like others.
                let result = crate::node::quietly(|| engine.call(&request, patience))
                    .unwrap_or_else(|| Err(EngineError::new("the engine has panicked")));
                let took = clock.now().saturating_since(began).as_nanos() as u64;
                self.desk().answer = Some((result, took));
                self.for_keeper.notify_one();
            }
            let news = crate::node::quietly(|| engine.news()).unwrap_or_default();
            if !news.is_empty() {
                self.desk().news.extend(news);
                self.for_keeper.notify_one();
            }
        }
    }
}
