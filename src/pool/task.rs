//! Closures as jobs.

use std::{fmt, sync::PoisonError};

use super::{
    Finished, Job, JobHandle, Metrics, Pool, SubmitError,
    job::{Context, Ending, Failure},
};
use crate::{
    node::quietly,
    sync::{Arc, Mutex},
};

pub(super) type Body = Box<dyn FnOnce(&Context<'_>) -> Result<(), Failure> + Send>;

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
pub struct Task {
    body: Option<Body>,
    /// What is done when it has ended. In a box of its own: most have none, and a job that is moved about is small.
    cleanup: Option<Box<Cleanup>>,
}

/// What is done when a task has ended, however.
pub(super) type Cleanup = Box<dyn FnOnce(&Ending) + Send>;

impl Task {
    /// A task that calls `body`.
    pub fn new(body: impl FnOnce(&Context<'_>) -> Result<(), Failure> + Send + 'static) -> Self {
        Task { body: Some(Box::new(body)), cleanup: None }
    }

    /// A job that calls `body`.
    pub fn job(body: impl FnOnce(&Context<'_>) -> Result<(), Failure> + Send + 'static) -> Job<Task> {
        Task::new(body).into_job()
    }

    /// A job that calls `body`, and a handle of what that returns. A token and a priority may be given to the job; another handle
    /// may not: this one would be told that it was dropped.
    ///
    /// ```
    /// use leasehold::pool::{CancelToken, JobPriority, Pool, Task};
    ///
    /// let pool = Pool::<Task>::builder().workers(1).build()?;
    /// let (job, answer) = Task::returning(|_| 6 * 7);
    /// pool.try_submit(job.priority(JobPriority::HIGHEST).cancel_with(CancelToken::new()))?;
    /// assert_eq!(answer.wait().unwrap(), 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn returning<R: Send + 'static>(
        body: impl FnOnce(&Context<'_>) -> R + Send + 'static,
    ) -> (Job<Task>, TaskHandle<R>) {
        let result = Arc::new(Mutex::new(None));
        let here = Arc::clone(&result);
        let (job, handle) = Task::job(move |context| {
            let value = body(context);
            *here.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        })
        .awaited(false);
        (job, TaskHandle { result, handle })
    }

    /// What the closure holds, be it a lease, is let go when the job has ended, before it is counted, though somebody has a [`JobHandle`] that he has not asked yet.
    /// A job of which another cleanup is set lets go of it when its payload is dropped, which a [`TaskHandle`] does not keep.
    fn into_job(self) -> Job<Task> {
        let job = Job::new(self, |task, context| match task.body.take() {
            Some(body) => body(context),
            None => Ok(()),
        });
        job.cleanup(|task, ending| {
            // User code, and the cleanup comes in any case.
            let _ = quietly(|| drop(task.body.take()));
            if let Some(cleanup) = task.cleanup.take() {
                cleanup(ending);
            }
        })
    }
}

/// Where a result belongs.
pub(super) type Slot<R> = Arc<Mutex<Option<R>>>;

impl Task {
    /// A job whose closure comes later, or never, and the handle of the result that will be in `result`.
    pub(super) fn unset<R>(result: Slot<R>) -> (Job<Task>, TaskHandle<R>) {
        let (job, handle) = Task { body: None, cleanup: None }.into_job().awaited(false);
        (job, TaskHandle { result, handle })
    }

    /// Gives a job its closure.
    pub(super) fn set(job: &mut Job<Task>, body: Body) {
        if let Some(task) = job.payload_mut() {
            task.body = Some(body);
        }
    }

    /// Sets what is done when a job has ended, after its closure is gone.
    pub(super) fn set_cleanup(job: &mut Job<Task>, cleanup: Cleanup) {
        if let Some(task) = job.payload_mut() {
            task.cleanup = Some(Box::new(cleanup));
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("was_called", &self.body.is_none()).finish()
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
    /// How it ended, if there is none: it panicked, was cancelled, or was dropped without having been run.
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
        let (job, handle) = Task::returning(body);
        self.submit(job)?;
        Ok(handle)
    }
}
