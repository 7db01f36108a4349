//! A progress bar on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use crate::trace::Arrivals;

/// Disappears when dropped, so that an error line stands alone.
pub struct Progress {
    bar: ProgressBar,
    in_bytes: bool,
}

/// The bar is drawn for one request in this many: the others cost a mask and a branch.
const EVERY: u64 = 4_096;

impl Progress {
    /// `size` is the length of the trace in bytes, if it has one.
    pub fn new(size: Option<u64>) -> Self {
        // indicatif itself draws nothing where standard error is no terminal.
        let (bar, template) = match size {
            Some(bytes) => (ProgressBar::new(bytes), "{wide_bar} {bytes}/{total_bytes} {msg} eta {eta}"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the templates above are well formed"));
        Progress { bar, in_bytes: size.is_some() }
    }

    pub fn update(&self, arrivals: &Arrivals) {
        let count = arrivals.count();
        if count.is_multiple_of(EVERY) {
            self.bar.set_message(format!("{count} requests"));
            if self.in_bytes {
                self.bar.set_position(arrivals.trace().bytes());
            } else {
                self.bar.tick();
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
