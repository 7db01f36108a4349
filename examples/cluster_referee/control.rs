//! Whether the machine lets threads run when they want to: a bar in time is held against the fleet only while it does.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How often each of the threads looks at the time.
const STEP: Duration = Duration::from_millis(10);

/// Later than that a thread is late.
const LATE: Duration = Duration::from_millis(100);

/// Threads that do nothing but sleep, one for each processor, and how late they were woken.
#[derive(Clone, Default)]
pub struct Control(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    /// When each thread is to run next.
    due: Vec<Instant>,
    delays: Vec<Delay>,
}

/// When a thread should have run, and when it did.
struct Delay {
    due: Instant,
    ran: Instant,
}

impl Control {
    /// For as long as the process lives.
    pub fn start() -> Self {
        let control = Control::default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        control.book().due = vec![Instant::now() + STEP; processors];
        for place in 0..processors {
            let control = control.clone();
            thread::spawn(move || {
                loop {
                    let due = Instant::now() + STEP;
                    control.book().due[place] = due;
                    thread::sleep(STEP);
                    control.note(due, Instant::now());
                }
            });
        }
        control
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, due: Instant, ran: Instant) {
        if ran.saturating_duration_since(due) >= LATE {
            self.book().delays.push(Delay { due, ran });
        }
    }

    /// Whether no thread was late by so much since then. What began before counts from then on.
    pub fn was_punctual(&self, since: Instant, by: Duration) -> bool {
        let (now, book) = (Instant::now(), self.book());
        let late = |due: Instant, ran: Instant| ran.saturating_duration_since(due.max(since)) >= by;
        // One that has not run yet may be the last to run after all were kept waiting.
        !book.delays.iter().any(|delay| late(delay.due, delay.ran))
            && !book.due.iter().any(|due| late(*due, now))
    }

    /// The same, by what is late.
    pub fn was_on_time(&self, since: Instant) -> bool {
        self.was_punctual(since, LATE)
    }

    /// How often a thread was late.
    pub fn count(&self) -> usize {
        self.book().delays.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_late_is_known_from_when_on() {
        let (control, due) = (Control::default(), Instant::now());
        control.note(due, due + LATE / 2);
        assert!(control.was_on_time(due) && control.count() == 0);
        control.note(due, due + LATE * 3);
        assert!(!control.was_on_time(due) && !control.was_on_time(due + LATE * 2));
        assert!(control.was_on_time(due + LATE * 5 / 2), "hardly any of it was later");
        assert!(control.was_punctual(due, LATE * 4) && !control.was_punctual(due, LATE * 3));
    }
}
