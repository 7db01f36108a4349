//! Closures as jobs.

use std::{fmt, sync::PoisonError};

use super::{
    Finished, Job, JobHandle, Metrics, Pool, SubmitError,
    job::{Context, Ending, Failure},
};
use crate::sync::{Arc, Mutex};

type Body = Box<dyn FnOnce(&Context<'_>) -> Result<(), Failure> + Send>;

/// A closure that is a job's payload. One allocation, or two with a result.
///
/// ```
/// use leasehold::pool::{Pool, Task};
///
/// let pool = Pool::<Task>::builder().workers(1).build()?;
/// let answer = pool.spawn(|_| 6 * 7)?;
/// assert_eq!(answer.wait().unwrap(), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Task(Option<Body>);

impl Task {
    /// A task that calls `body`.
    pub fn new(body: impl FnOnce(&Context<'_>) -> Result<(), Failure> + Send + 'static) -> Self {
        Task(Some(Box::new(body)))
    }

    /// A job that calls `body`.
    pub fn job(body: impl FnOnce(&Context<'_>) -> Result<(), Failure> + Send + 'static) -> Job<Task> {
        Task(Some(Box::new(body))).into_job()
    }

    /// What the closure holds, be it a lease, is let go when the job has ended, though nobody has asked its handle yet.
    fn into_job(self) -> Job<Task> {
        let job = Job::new(self, |task, context| match task.0.take() {
            Some(body) => body(context),
            None => Ok(()),
        });
        job.cleanup(|task, _| drop(task.0.take()))
    }
}

type Slot<R> = Arc<Mutex<Option<R>>>;

#[cfg(not(any(loom, shuttle)))]
impl Task {
    /// A job whose closure comes later, or never; the handle of its result, and where that belongs.
    pub(super) fn unset<R>() -> (Job<Task>, TaskHandle<R>, Slot<R>) {
        let result = Arc::new(Mutex::new(None));
        let (job, handle) = Task(None).into_job().with_handle();
        (job, TaskHandle { result: Arc::clone(&result), handle }, result)
    }

    /// Gives a job its closure.
    pub(super) fn set(
        job: &mut Job<Task>,
        body: impl FnOnce(&Context<'_>) -> Result<(), Failure> + Send + 'static,
    ) {
        if let Some(task) = job.payload_mut() {
            task.0 = Some(Box::new(body));
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("was_called", &self.0.is_none()).finish()
    }
}

/// Awaits a closure's result: a thread by [`wait`](TaskHandle::wait), a task by [`finished`](TaskHandle::finished).
#[must_use]
pub struct TaskHandle<R> {
    result: Slot<R>,
    handle: JobHandle<Task>,
}

impl<R> TaskHandle<R> {
    fn result(result: &Mutex<Option<R>>, finished: Finished<Task>) -> Result<R, Ending> {
        let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.ok_or(finished.ending)
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// How it ended, if there is none: it panicked, or was dropped without having been run.
    pub fn wait(self) -> Result<R, Ending> {
        let finished = self.handle.wait();
        Self::result(&self.result, finished)
    }

    /// As [`wait`](TaskHandle::wait), for a task. Cancel-safe: dropping it leaves the closure alone.
    ///
    /// # Errors
    /// As `wait`.
    pub async fn finished(self) -> Result<R, Ending> {
        let finished = self.handle.await;
        Self::result(&self.result, finished)
    }
}

impl<R> fmt::Debug for TaskHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<M: Metrics> Pool<Task, M> {
    /// Submits a closure, waiting for room if there is none. Its result is at the handle.
    ///
    /// *Blocking*, as [`submit`](Pool::submit).
    ///
    /// # Errors
    /// As `submit`.
    pub fn spawn<R: Send + 'static>(
        &self,
        body: impl FnOnce(&Context<'_>) -> R + Send + 'static,
    ) -> Result<TaskHandle<R>, SubmitError<Task>> {
        let result = Arc::new(Mutex::new(None));
        let here = Arc::clone(&result);
        let job = Task::job(move |context| {
            let value = body(context);
            *here.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        });
        let (job, handle) = job.with_handle();
        self.submit(job)?;
        Ok(TaskHandle { result, handle })
    }
}
