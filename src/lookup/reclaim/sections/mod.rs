//! Grace periods by counting sections; entering one costs two plain stores on a line of the thread's own.
//!
//! # Protocol
//!
//! Each thread has a count: odd while it is in a section.
//!
//! ```text
//!   reader                               whoever retires
//!     S1  count := odd                     (the pointer was unlinked)
//!     S2  light barrier                    G1  heavy barrier
//!     S3  load pointers, follow them       G2  read every count; note the odd ones
//!     S4  count := even                    G3  every noted count has changed: free
//! ```
//!
//! **Why nothing is freed under a reader.** S2 and G1 are a full fence on both sides (`sync::barrier`), so one comes first.
//! If it is G1, every S3 sees the pointer unlinked. If it is S2, G2 sees the section's S1, or something later: an odd count
//! is waited for, a later one means that S4 came before. A thread whose record G2 does not meet has enrolled later: the same
//! argument, with the link of its record in place of S1.
//!
//! What is retired is put into a bag of the running thread. A full bag is *sealed* when the thread leaves its section: one G1 and
//! one G2 for all of it; then, and when the next one is sealed, it is seen to whether its grace is over. So the price of G1, a system
//! call that interrupts whoever else is running, is shared by 128 pointers, or by 64 KiB of what they point to (less where there are many
//! threads, see below), and memory is freed by the thread that retired it, as a rule, into its allocator's own lists. Once a thread has as
//! many bags as wait at a time, it uses them again: to retire allocates nothing.
//!
//! # What waits to be freed
//!
//! | with | a bag is full with 128 pointers, or with so many bytes | all bags that are being filled, at most |
//! |---|---|---|
//! | up to 16 threads | 64 KiB | 1 MiB |
//! | 17 to 256 | 1 MiB for each of them | 1 MiB |
//! | more | 4 KiB | 4 KiB for each |
//!
//! Threads are those that live and have been in a section; bytes are the type's own and those that `retire_owner` was told. To each bag comes
//! the pointer that has filled it, and whatever else its section retires; what was put in while there were fewer threads counts as it did then.
//!
//! Beside the bag that it fills a thread keeps those that it has sealed and whose grace was not over when it looked last, which is when it
//! sealed the last of them: with short sections one or none. **Behind a reader that stays there is no bound but what is retired meanwhile**; and a
//! thread that then retires nothing more keeps its part of that until it ends, or calls `collect_garbage`. The bags themselves take 2 KiB
//! each, of which a thread keeps up to four.
//!
//! `tests/large_values.rs` measures that, and the other reclaimers beside it, which know numbers only: 64 pointers a thread and what waits in one
//! queue for all (`Epoch`), or 32, or as many as there are processors if these are more (`Seize`), of whatever size.
//!
//! User code, the `Drop` of what is freed, runs at the end of a section whose thread has a full bag, in `collect_garbage`, and at the
//! end of a thread; not where something is retired, which may be in the middle of an operation.
//!
//! A thread that ends adds its bag to one that is *left behind*, for all that have ended. Whoever fills that one seals it and frees
//! what is due of those before it: so threads that live for one operation each keep no more than a few bags, and pay for one barrier
//! in 128, as others do. A thread that is ending (its destructors run) and comes back here does so at the end of each of its sections.
//!
//! # What is not covered
//!
//! A section that is never left (a leaked guard) keeps all that is retired after it was entered, in the whole process. So does a child
//! of `fork` that goes on without `exec`: sections that other threads of the parent were in stay open there. If a sandbox forbids the
//! system call that it allowed before, nothing is freed any more, and nothing is freed too early.
//!
//! There is one domain for the process: a thread needs one record, however many schedulers there are.
//!
//! The idea of a barrier on one side only is that of the membarrier system call's `urcu` (M. Desnoyers et al., "User-level
//! implementations of read-copy update", 2012).

mod domain;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use domain::{Domain, Grace, Record};

#[cfg(all(test, not(any(loom, shuttle))))]
use threads::records;
#[cfg(not(any(loom, shuttle)))]
pub use threads::{Sections, SectionsGuard, collect_garbage};

/// Where the threads of production keep their bags. In a model there is no place that each has for itself and that outlives it.
#[cfg(not(any(loom, shuttle)))]
mod threads {
    #![allow(clippy::disallowed_types)]

    use std::{
        cell::{Cell, RefCell},
        collections::VecDeque,
        marker::PhantomData,
        mem::ManuallyDrop,
        ptr,
        sync::{Mutex, PoisonError},
    };

    use super::{Domain, Grace, Record};
    use crate::{
        lookup::reclaim::{Guard, Reclaim},
        sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
    };

    /// Pointers that share one heavy barrier. Up to three bags of a thread may wait for their time.
    const BAG: usize = if cfg!(miri) { 8 } else { 128 };
    /// So many bytes count as one more pointer: what a thread keeps of large things is bounded by bytes.
    const LARGE: usize = 512;
    /// More threads than this share what so many may keep.
    const FEW: usize = 16;
    /// But not to the last byte: a bag must be worth its barrier.
    const LEAST: usize = 32;

    /// Emptied bags that a thread keeps for their memory: as many as may wait.
    const SPARES: usize = 3;

    /// As how many pointers one to so many bytes counts, with so many threads.
    const fn weight(bytes: usize, threads: usize) -> usize {
        if threads <= FEW {
            return 1 + bytes / LARGE;
        }
        let share = LARGE * FEW / threads;
        1 + bytes / if share < LEAST { LEAST } else { share }
    }

    static DOMAIN: Domain = Domain::empty();
    /// Threads that live and have a record.
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    static LEFT_BEHIND: Mutex<LeftBehind> =
        Mutex::new(LeftBehind { loose: Vec::new(), weight: 0, sealed: Vec::new() });
    /// How many sealed bags there are; a hint that spares a look.
    static LEFT: AtomicUsize = AtomicUsize::new(0);

    /// What threads had not freed when they ended.
    struct LeftBehind {
        /// Not sealed yet: less than a bag of each.
        loose: Vec<Retired>,
        /// What counts towards a bag of that.
        weight: usize,
        sealed: Vec<Sealed>,
    }

    /// Reclamation by counted sections.
    #[derive(Debug, Default)]
    pub struct Sections(());

    /// A thread in a section. Sections of one thread nest.
    pub struct SectionsGuard<'a> {
        // Lives while the guard does, and is touched by its own thread only: a raw pointer stays where it is.
        local: *const Local,
        // Keeps the signature of the reclaimers that own their collector.
        reclaim: PhantomData<&'a Sections>,
    }

    struct Retired {
        pointer: *mut (),
        reclaim: unsafe fn(*mut ()),
    }

    // SAFETY: by `retire`'s contract `reclaim` may run on any thread.
    unsafe impl Send for Retired {}

    /// A full bag and the sections that may still read what is in it.
    struct Sealed {
        bag: Vec<Retired>,
        grace: Grace<'static>,
    }

    impl Sealed {
        /// An empty bag that waits for nobody.
        fn spent() -> Self {
            Sealed { bag: Vec::new(), grace: DOMAIN.no_grace() }
        }
    }

    impl LeftBehind {
        /// Seals what is loose, if it is so much.
        fn seal(&mut self, least: usize) {
            if !self.loose.is_empty()
                && self.weight.max(self.loose.len()) >= least
                && let Some(grace) = DOMAIN.grace(DOMAIN.no_grace())
            {
                self.weight = 0;
                self.sealed.push(Sealed { bag: std::mem::take(&mut self.loose), grace });
            }
            // Relaxed, wherever it is used: a hint.
            LEFT.store(self.sealed.len(), Ordering::Relaxed);
        }
    }

    /// What belongs to one thread.
    struct Local {
        record: &'static Record,
        /// Sections in the one that the record counts.
        nested: Cell<usize>,
        /// There is more to do at the end of a section than to leave it: `nested` is not 0, or something is `due`.
        attention: Cell<bool>,
        bag: RefCell<Vec<Retired>>,
        /// Of what the bag has got since it was sealed last, or could not be.
        weight: Cell<usize>,
        sealed: RefCell<VecDeque<Sealed>>,
        /// Emptied ones, kept for their memory.
        spares: RefCell<Vec<Sealed>>,
        freeing: Cell<bool>,
        /// The bag is full, or the thread is ending: there is something to do at the end of a section.
        due: Cell<bool>,
        /// The thread is ending: nobody will come to look after its bags, nor after this.
        ending: Cell<bool>,
    }

    std::thread_local! {
        /// The thread's own, or null. A plain cell without a destructor: reading it is one load.
        static LOCAL: Cell<*const Local> = const { Cell::new(ptr::null()) };
        static LEAVER: Leaver = const { Leaver };
    }

    /// Its drop is the thread's end.
    struct Leaver;

    impl Drop for Leaver {
        fn drop(&mut self) {
            let local = LOCAL.get();
            if local.is_null() {
                return;
            }
            // SAFETY: made by `Local::enrol`; only this thread has the pointer.
            let here = unsafe { &*local };
            here.ending.set(true);
            here.set_due(true);
            // A guard that is still there, in a thread-local that is dropped later, goes on using it, and is the last one to. One
            // that was leaked keeps it for ever.
            if !here.record.is_inside() {
                // SAFETY: outside of sections.
                unsafe { Local::depart(local) };
            }
        }
    }

    impl Local {
        #[cold]
        fn enrol() -> *const Local {
            let ending = LEAVER.try_with(|_| ()).is_err();
            // Relaxed, wherever it is used: a size, which says nothing of anything else.
            THREADS.fetch_add(1, Ordering::Relaxed);
            let local = Box::into_raw(Box::new(Local {
                record: DOMAIN.enrol(),
                nested: Cell::new(0),
                attention: Cell::new(ending),
                bag: RefCell::default(),
                weight: Cell::new(0),
                sealed: RefCell::default(),
                spares: RefCell::default(),
                freeing: Cell::new(false),
                due: Cell::new(ending),
                ending: Cell::new(ending),
            }));
            LOCAL.set(local);
            local
        }

        #[inline]
        fn of_thread() -> *const Local {
            let local = LOCAL.get();
            if local.is_null() { Self::enrol() } else { local }
        }

        /// A section in a section begins.
        #[cold]
        #[inline(never)]
        fn deeper(&self) {
            self.nested.set(self.nested.get() + 1);
            self.attention.set(true);
        }

        fn set_due(&self, due: bool) {
            self.due.set(due);
            self.attention.set(due || self.nested.get() > 0);
        }

        /// A section ends with `attention`.
        ///
        /// # Safety
        /// `local` is the running thread's, in a section, and not used afterwards but by sections around this one.
        #[cold]
        #[inline(never)]
        unsafe fn leave_attentively(local: *const Self) {
            // SAFETY: by the contract.
            let here = unsafe { &*local };
            let nested = here.nested.get();
            if nested > 0 {
                here.nested.set(nested - 1);
                here.set_due(here.due.get());
                return;
            }
            here.record.leave();
            // SAFETY: outside of sections.
            unsafe { Local::attend(local) };
        }

        /// Takes care of a bag that has become full, or of the end of the thread.
        ///
        /// # Safety
        /// `local` is the running thread's, in no section, and not used afterwards.
        #[cold]
        unsafe fn attend(local: *const Self) {
            // SAFETY: by the contract.
            let here = unsafe { &*local };
            if std::thread::panicking() {
                // Next time: user code is not wanted now.
                return;
            }
            if here.ending.get() {
                // SAFETY: passed on.
                return unsafe { Self::depart(local) };
            }
            here.set_due(false);
            here.seal();
            here.free();
        }

        fn seal(&self) {
            if self.bag.borrow().is_empty() {
                return;
            }
            let Sealed { bag, grace } = self.spares.borrow_mut().pop().unwrap_or_else(Sealed::spent);
            self.weight.set(0);
            // Without a barrier it stays as it is, and is tried again when it has grown by as much again.
            let Some(grace) = DOMAIN.grace(grace) else { return };
            let bag = self.bag.replace(bag);
            self.sealed.borrow_mut().push_back(Sealed { bag, grace });
        }

        /// Leaves everything to whoever comes by, and gives the record up.
        ///
        /// Does nothing in user code that is being freed: then it is called again further up. And only half of it if that user code has left
        /// a guard behind, in a thread-local that is dropped later: then its end calls it again.
        ///
        /// # Safety
        /// As for `attend`.
        unsafe fn depart(local: *const Self) {
            // SAFETY: by the contract.
            let here = unsafe { &*local };
            let Some(freeing) = here.begin_to_free() else { return };
            here.leave_behind();
            here.free_left();
            // What that user code has retired.
            here.leave_behind();
            if here.record.is_inside() {
                return;
            }
            LOCAL.set(ptr::null());
            here.record.resign();
            THREADS.fetch_sub(1, Ordering::Relaxed);
            drop(freeing);
            // SAFETY: from the box of `enrol`; neither the cell nor a guard has the pointer any more.
            drop(unsafe { Box::from_raw(local.cast_mut()) });
        }

        fn leave_behind(&self) {
            let (mut bag, mut sealed) = (self.bag.borrow_mut(), self.sealed.borrow_mut());
            if bag.is_empty() && sealed.is_empty() {
                return;
            }
            let mut left = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
            let LeftBehind { loose, weight, sealed: all } = &mut *left;
            loose.append(&mut bag);
            *weight = weight.saturating_add(self.weight.take());
            all.extend(sealed.drain(..));
            left.seal(BAG);
        }

        /// `None` if the running thread is freeing already, further up. Freeing ends with the guard.
        fn begin_to_free(&self) -> Option<Freeing<'_>> {
            (!self.freeing.replace(true)).then(|| Freeing(&self.freeing))
        }

        /// Frees what may be freed: user code. Not again from inside; and not what that user code retires in its turn, which may
        /// have no end.
        fn free(&self) {
            let Some(_freeing) = self.begin_to_free() else { return };
            // The oldest first: as long as its grace is not over, no later one's is.
            let own = self.sealed.borrow().len();
            for _ in 0..own {
                let Some(due) = self.take_own() else { break };
                self.empty(due);
            }
            self.free_left();
        }

        /// Frees what ended threads have left behind and nobody can be reading any more.
        fn free_left(&self) {
            for due in take_left() {
                self.empty(due);
            }
        }

        fn take_own(&self) -> Option<Sealed> {
            let mut sealed = self.sealed.borrow_mut();
            if sealed.front_mut()?.grace.is_over() { sealed.pop_front() } else { None }
        }

        /// Frees what is in a bag whose grace is over.
        fn empty(&self, mut due: Sealed) {
            /// Keeps what is left if one of them panics.
            struct Rest<'a>(&'a Local, ManuallyDrop<Sealed>);
            impl Drop for Rest<'_> {
                fn drop(&mut self) {
                    // SAFETY: taken once, here.
                    let due = unsafe { ManuallyDrop::take(&mut self.1) };
                    if !due.bag.is_empty() {
                        return self.0.sealed.borrow_mut().push_front(due);
                    }
                    let mut spares = self.0.spares.borrow_mut();
                    // One that has grown while its thread did not come out of a section is not kept.
                    if spares.len() < SPARES && due.bag.capacity() <= 2 * BAG {
                        spares.push(due);
                    }
                }
            }
            // The first retired is freed first.
            due.bag.reverse();
            let mut rest = Rest(self, ManuallyDrop::new(due));
            while let Some(Retired { pointer, reclaim }) = rest.1.bag.pop() {
                // SAFETY: the contract of `retire`: every section that was open then has been left.
                unsafe { reclaim(pointer) };
            }
        }
    }

    struct Freeing<'a>(&'a Cell<bool>);

    impl Drop for Freeing<'_> {
        fn drop(&mut self) {
            self.0.set(false);
        }
    }

    /// The bags of ended threads whose time has come; none if somebody else is looking.
    fn take_left() -> Vec<Sealed> {
        if LEFT.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let Ok(mut left) = LEFT_BEHIND.try_lock() else { return Vec::new() };
        let due = left.sealed.extract_if(.., |sealed| sealed.grace.is_over()).collect();
        LEFT.store(left.sealed.len(), Ordering::Relaxed);
        due
    }

    #[cfg(test)]
    pub(super) fn records() -> usize {
        DOMAIN.enrolled()
    }

    /// Frees what the running thread has removed or replaced, and what ended threads have left behind, of all schedulers of the
    /// process, as far as nobody can be reading it any more.
    ///
    /// Never needed: it happens by itself, every so many removals and updates. Worth calling where a thread that has removed large
    /// values, or such as must be closed in time, then does something else.
    ///
    /// Neither waits for anybody nor frees what somebody may still be reading: that is freed later. The values' `Drop` runs here; a
    /// panic in it stops here. One system call (on Linux), an allocation, O(threads) and what is freed; after the end of many threads
    /// also O(what they have left behind), with a mutex held that they take when they end.
    ///
    /// ```
    /// use leasehold::{Entry, Scheduler};
    ///
    /// let scheduler = Scheduler::<Entry<u8, u32, Vec<u8>>>::builder().build()?;
    /// scheduler.insert(Entry::new(1, 0, vec![0; 1 << 20]))?;
    /// scheduler.remove(&1)?;
    /// leasehold::collect_garbage();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn collect_garbage() {
        let local = Local::of_thread();
        // SAFETY: the thread's own; not freed before its end.
        let here = unsafe { &*local };
        here.seal();
        if let Ok(mut left) = LEFT_BEHIND.try_lock() {
            left.seal(1);
        }
        here.free();
        if here.ending.get() && !here.record.is_inside() {
            // SAFETY: outside of sections, and not used any more.
            unsafe { Local::depart(local) };
        }
    }

    // SAFETY: rules 1 and 3 are the module's argument. A guard keeps its thread's count odd.
    unsafe impl Reclaim for Sections {
        type Guard<'a> = SectionsGuard<'a>;

        fn new() -> Self {
            Sections(())
        }

        #[inline]
        fn pin(&self) -> SectionsGuard<'_> {
            let local = Local::of_thread();
            // SAFETY: the thread's own; not freed in a section.
            let here = unsafe { &*local };
            // What nests is rare, and counted out of line.
            if here.record.enter() {
                #[cfg(leasehold_counted)]
                crate::sync::traffic::note_pin();
            } else {
                here.deeper();
            }
            SectionsGuard { local, reclaim: PhantomData }
        }

        #[inline(always)]
        fn owns(&self, _guard: &SectionsGuard<'_>) -> bool {
            // One domain serves all instances.
            true
        }
    }

    impl Drop for SectionsGuard<'_> {
        #[inline]
        fn drop(&mut self) {
            // SAFETY: as in `pin`.
            let here = unsafe { &*self.local };
            if here.attention.get() {
                // SAFETY: this section's end; the guard is not used any more.
                unsafe { Local::leave_attentively(self.local) };
            } else {
                here.record.leave();
            }
        }
    }

    // SAFETY: as for `Sections`.
    unsafe impl Guard for SectionsGuard<'_> {
        #[inline(always)]
        fn protect<T>(&self, pointer: &AtomicPtr<T>, order: Ordering) -> *mut T {
            // The section is all the protection there is.
            pointer.load(order)
        }

        #[inline]
        unsafe fn retire<T: Send + 'static>(&self, pointer: *mut T, reclaim: unsafe fn(*mut T)) {
            // SAFETY: passed on.
            unsafe { self.retire_owner(pointer, 0, reclaim) }
        }

        #[inline]
        unsafe fn retire_owner<T: Send + 'static>(
            &self,
            pointer: *mut T,
            bytes: usize,
            reclaim: unsafe fn(*mut T),
        ) {
            // SAFETY: functions that differ in the type behind a thin pointer only have the same call.
            let reclaim = unsafe { std::mem::transmute::<unsafe fn(*mut T), unsafe fn(*mut ())>(reclaim) };
            // SAFETY: as in `pin`.
            let here = unsafe { &*self.local };
            let mut bag = here.bag.borrow_mut();
            if bag.capacity() == 0 {
                bag.reserve_exact(BAG);
            }
            bag.push(Retired { pointer: pointer.cast(), reclaim });
            let bytes = size_of::<T>().saturating_add(bytes);
            let weight = here.weight.get().saturating_add(weight(bytes, THREADS.load(Ordering::Relaxed)));
            // Stays as it is until the bag is sealed, or left behind to count there.
            here.weight.set(weight);
            if weight >= BAG {
                here.set_due(true);
            }
        }
    }

    impl std::fmt::Debug for SectionsGuard<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("SectionsGuard").finish_non_exhaustive()
        }
    }
}
