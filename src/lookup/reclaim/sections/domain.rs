//! Who is in a section, and when all those are gone. The protocol is told in the header of `sections`.

use std::{marker::PhantomData, ptr::NonNull};

use crate::sync::{
    CachePadded,
    atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
    barrier,
};

/// All threads that ever were in a section of one domain.
pub struct Domain {
    records: AtomicPtr<Record>,
}

/// One thread's count of entries and exits: odd while it is in a section. On a line of its own, which in the long run only its
/// thread touches.
pub struct Record {
    count: CachePadded<AtomicU64>,
    /// A living thread has it.
    taken: AtomicBool,
    /// Never changes once the record is linked.
    next: *const Record,
}

// SAFETY: `next` points to a record of the same domain, which lives as long; the rest is atomic.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Sync for Record {}

/// The sections that were open at one moment.
pub struct Grace<'d> {
    /// Those that have not been seen to end.
    open: Vec<(NonNull<Record>, u64)>,
    domain: PhantomData<&'d Domain>,
}

// SAFETY: what it points to is `Sync` and lives as long as the domain.
unsafe impl Send for Grace<'_> {}

impl Domain {
    /// Nobody yet.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn empty() -> Self {
        Domain { records: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Nobody yet.
    #[cfg(any(loom, shuttle))]
    pub fn empty() -> Self {
        Domain { records: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        // Acquire: pairs with the Release in `enrol`.
        // - a record is seen: so are its `next` and its first count;
        // - it is not: its thread has not entered a section yet, or see S2 and G1.
        let mut next = self.records.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a record of this domain, which frees none before its own end.
            let record = unsafe { next.as_ref() }?;
            next = record.next;
            Some(record)
        })
    }

    /// A record for the running thread, which must not be in a section of another one.
    pub fn enrol(&self) -> &Record {
        barrier::prepare();
        for record in self.records() {
            // Acquire: pairs with the Release in `resign`: the count goes on from where the last owner has left it.
            // Relaxed: whoever seems to have it may have left, and another record will do as well.
            let taken = !record.taken.load(Ordering::Relaxed)
                && record.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if taken {
                return record;
            }
        }
        let record = Box::into_raw(Box::new(Record {
            count: CachePadded::new(AtomicU64::new(0)),
            taken: AtomicBool::new(true),
            next: std::ptr::null(),
        }));
        let mut head = self.records.load(Ordering::Relaxed);
        loop {
            // SAFETY: just allocated, and not linked yet.
            unsafe { (*record).next = head };
            // Release: pairs with the Acquire in `records`; outcomes there. It also hands on what came before `head`.
            match self.records.compare_exchange(head, record, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: freed with the domain.
                Ok(_) => return unsafe { &*record },
                Err(found) => head = found,
            }
        }
    }

    /// How many threads have had a record of their own at the same time.
    #[cfg(test)]
    pub fn enrolled(&self) -> usize {
        self.records().count()
    }

    /// No sections: a grace that is over.
    pub fn no_grace(&self) -> Grace<'_> {
        Grace { open: Vec::new(), domain: PhantomData }
    }

    /// G1 and G2, in the memory of a grace that is of no use any more. `None` if there was no barrier: nothing is known then.
    pub fn grace<'d>(&'d self, mut spent: Grace<'d>) -> Option<Grace<'d>> {
        if !barrier::heavy() {
            return None;
        }
        let open = self.records().filter_map(|record| {
            // Acquire: pairs with the Release of S4, and of S1, which comes after the S4 before it.
            // - it reads an even count: the accesses of all sections up to that S4 came before us;
            // - it reads an odd one: that section is noted.
            let count = record.count.load(Ordering::Acquire);
            (!count.is_multiple_of(2)).then(|| (NonNull::from(record), count))
        });
        spent.open.clear();
        spent.open.extend(open);
        Some(spent)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Relaxed: nobody else is here.
        let mut next = self.records.load(Ordering::Relaxed);
        while !next.is_null() {
            // SAFETY: from the box in `enrol`; `&mut self` rules out that anybody uses it.
            next = unsafe { Box::from_raw(next) }.next.cast_mut();
        }
    }
}

impl Record {
    /// Whether the caller, who is the record's owner, is in a section.
    pub fn is_inside(&self) -> bool {
        // Relaxed: our own stores.
        !self.count.load(Ordering::Relaxed).is_multiple_of(2)
    }

    /// S1 and S2. The caller is the record's owner; `false` if it is in a section already.
    #[inline]
    pub fn enter(&self) -> bool {
        // Relaxed: our own stores.
        let count = self.count.load(Ordering::Relaxed);
        if !count.is_multiple_of(2) {
            return false;
        }
        // S1. Release: pairs with the Acquire of G2 and G3, which may read this store instead of the S4 before it.
        self.count.store(count + 1, Ordering::Release);
        // S2.
        barrier::light();
        true
    }

    /// S4. The caller is the record's owner, and in a section.
    #[inline]
    pub fn leave(&self) {
        // Relaxed: our own stores.
        let count = self.count.load(Ordering::Relaxed);
        // Release: pairs with the Acquire of G2 and G3.
        // - they read it, or a later one: all accesses of the section came before what they free;
        // - they read an older one: they free nothing that the section may have seen.
        self.count.store(count + 1, Ordering::Release);
    }

    /// Gives the record up; the caller is in no section.
    pub fn resign(&self) {
        debug_assert!(!self.is_inside());
        // Release: pairs with the Acquire in `enrol`.
        self.taken.store(false, Ordering::Release);
    }
}

impl Grace<'_> {
    /// G3: whether all sections that were open then have been left.
    pub fn is_over(&mut self) -> bool {
        while let Some((record, count)) = self.open.last() {
            // SAFETY: a record lives as long as its domain.
            // Acquire: pairs with the Release of S4 and S1; outcomes there.
            if unsafe { record.as_ref() }.count.load(Ordering::Acquire) == *count {
                return false;
            }
            self.open.pop();
        }
        true
    }
}
