//! Listens for holds that are published. What is lost while there is no connection is fetched after the next renewal.
//!
//! It *hears* from when the server has confirmed the subscription until the connection fails. The client takes a refusal for a confirmation
//! (`PubSub::subscribe`), so the request is sent, and its answer read, by hand. Where nothing is published for a while it asks whether anybody is
//! there: of a connection that was cut without a word nothing else tells.

use std::{sync::PoisonError, time::Duration};

use redis::{Client, PushKind, Value, cmd};

use super::wire;
use crate::{
    cluster::engine::HoldNote,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
        spawn, wait_for,
    },
};

/// How long the thread blocks at most before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// How long it rests after a failure, and at most after several: twice as long each time.
const REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(8);
/// Looks without a message after which it asks whether the server is there: every five seconds.
const SILENT: u32 = 25;

#[derive(Default)]
struct Shared {
    heard: Mutex<Vec<HoldNote>>,
    rest: Condvar,
    ends: AtomicBool,
    hears: AtomicBool,
}

/// Whether the server has confirmed a subscription.
fn is_confirmed(answer: &Value) -> bool {
    let (parts, kind) = match answer {
        Value::Push { kind: PushKind::Subscribe, data } => (data.as_slice(), true),
        Value::Array(parts) => match parts.split_first() {
            Some((Value::BulkString(word), rest)) => (rest, word == b"subscribe"),
            Some((Value::SimpleString(word), rest)) => (rest, word == "subscribe"),
            _ => return false,
        },
        _ => return false,
    };
    kind && matches!(parts, [_, Value::Int(1..)])
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
    fn listen(&self, client: &Client, channel: &str, patience: Duration) -> Option<()> {
        let mut connection = client.get_connection_with_timeout(patience).ok()?;
        connection.set_read_timeout(Some(patience)).ok()?;
        connection.set_write_timeout(Some(patience)).ok()?;
        connection.send_packed_command(&cmd("SUBSCRIBE").arg(channel).get_packed_command()).ok()?;
        is_confirmed(&connection.recv_response().ok()?).then_some(())?;
        self.set_hears(true);
        let mut channels = connection.as_pubsub();
        channels.set_read_timeout(Some(LOOK)).ok()?;
        let mut silent = 0;
        while !self.ends() {
            match channels.get_message() {
                Ok(message) => {
                    let text: String = message.get_payload().ok()?;
                    self.heard().extend(wire::read_note(&text));
                    silent = 0;
                }
                Err(error) if error.is_timeout() => silent += 1,
                Err(_) => return None,
            }
            if silent == SILENT {
                channels.set_read_timeout(Some(patience)).ok()?;
                channels.ping::<Value>().ok()?;
                channels.set_read_timeout(Some(LOOK)).ok()?;
                silent = 0;
            }
        }
        Some(())
    }

    fn set_hears(&self, hears: bool) {
        // Relaxed: for people.
        self.hears.store(hears, Ordering::Relaxed);
    }

    fn run(&self, client: &Client, channel: &str, patience: Duration) {
        let mut rest = REST;
        while !self.ends() {
            let _ = self.listen(client, channel, patience);
            // Relaxed: this thread has set it.
            if self.hears.swap(false, Ordering::Relaxed) {
                rest = REST;
            }
            if !self.ends() {
                drop(wait_for(&self.rest, self.heard(), Some(rest)));
                rest = LONGEST_REST.min(rest * 2);
            }
        }
    }
}

/// What the thread has heard. The thread itself ends soon after this is dropped, and nobody waits for that: it may be in a read, or connect.
pub struct Listener {
    shared: Arc<Shared>,
    turn: usize,
}

impl Listener {
    /// `None` if the system starts no thread: it is tried again with the next request.
    pub fn start(client: Client, channel: Arc<str>, turn: usize, patience: Duration) -> Option<Self> {
        let shared = Arc::new(Shared::default());
        // The socket takes no limit of zero.
        let patience = patience.max(Duration::from_millis(1));
        {
            let shared = Arc::clone(&shared);
            spawn("leasehold-news".into(), move || shared.run(&client, &channel, patience)).ok()?;
        }
        Some(Listener { shared, turn })
    }

    /// Which of the addresses it listens to.
    pub fn turn(&self) -> usize {
        self.turn
    }

    /// Whether it is subscribed.
    pub fn hears(&self) -> bool {
        // Relaxed: see `set_hears`.
        self.shared.hears.load(Ordering::Relaxed)
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
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_a_confirmation_is_one() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let data = || vec![bulk("news"), Value::Int(1)];
        assert!(is_confirmed(&Value::Array([vec![bulk("subscribe")], data()].concat())));
        assert!(is_confirmed(&Value::Push { kind: PushKind::Subscribe, data: data() }));
        assert!(!is_confirmed(&Value::Push { kind: PushKind::Unsubscribe, data: data() }));
        assert!(!is_confirmed(&Value::Array(vec![bulk("subscribe"), bulk("news"), Value::Int(0)])));
        assert!(!is_confirmed(&Value::Okay));
    }
}
