//! Listens for holds that are published. What is lost while there is no connection is fetched after the next renewal.

use std::{sync::PoisonError, time::Duration};

use redis::Client;

use super::wire;
use crate::{
    cluster::engine::HoldNote,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
        spawn, thread, wait_for,
    },
};

/// How long the thread blocks at most before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// How long it rests after a failure.
const REST: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Shared {
    heard: Mutex<Vec<HoldNote>>,
    rest: Condvar,
    ends: AtomicBool,
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Vec<HoldNote>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> bool {
        // Relaxed: the flag alone matters; what was heard is behind the mutex.
        self.ends.load(Ordering::Relaxed)
    }

    /// Listens on one connection until it fails, or until the end.
    fn listen(&self, client: &Client, channel: &str) -> Option<()> {
        let mut connection = client.get_connection_with_timeout(LOOK).ok()?;
        connection.set_read_timeout(Some(LOOK)).ok()?;
        connection.set_write_timeout(Some(LOOK)).ok()?;
        let mut channels = connection.as_pubsub();
        channels.subscribe(channel).ok()?;
        while !self.ends() {
            match channels.get_message() {
                Ok(message) => {
                    let text: String = message.get_payload().ok()?;
                    self.heard().extend(wire::read_note(&text));
                }
                Err(error) if error.is_timeout() => {}
                Err(_) => return None,
            }
        }
        Some(())
    }

    fn run(&self, client: &Client, channel: &str) {
        while !self.ends() {
            if self.listen(client, channel).is_none() && !self.ends() {
                drop(wait_for(&self.rest, self.heard(), Some(REST)));
            }
        }
    }
}

/// The thread, and what it has heard.
pub struct Listener {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
    turn: usize,
}

impl Listener {
    /// `None` if the system starts no thread: it is tried again with the next request.
    pub fn start(client: Client, channel: Arc<str>, turn: usize) -> Option<Self> {
        let shared = Arc::new(Shared::default());
        let thread = {
            let shared = Arc::clone(&shared);
            spawn("leasehold-news".into(), move || shared.run(&client, &channel)).ok()?
        };
        Some(Listener { shared, thread: Some(thread), turn })
    }

    /// Which of the addresses it listens to.
    pub fn turn(&self) -> usize {
        self.turn
    }

    pub fn take(&self) -> Vec<HoldNote> {
        std::mem::take(&mut *self.shared.heard())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Relaxed: see `ends`.
        self.shared.ends.store(true, Ordering::Relaxed);
        self.shared.rest.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
