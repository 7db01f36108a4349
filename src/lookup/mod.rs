//! Finding a resource by its key: a lock-free hash map of items that carry their own key.
//!
//! The map strings its items on one list; it never allocates, frees, clones or moves an item. It allocates segments of cells,
//! and keeps them until it is dropped. Hashing is the caller's, so that a user's `Hash` runs where the caller decides; the
//! user's `Eq` runs inside the map, at moments at which a panic leaves nothing behind.
//!
//! A split-ordered list (O. Shalev, N. Shavit: Split-ordered lists: lock-free extensible hash tables, Journal of the ACM 53,
//! 2006), with the removal of M. Michael (High performance dynamic lock-free hash tables and list-based sets, SPAA 2002) after
//! T. Harris. Both leave the buckets' memory to a table of pointers to extra nodes; here a bucket *is* a member of the list, a
//! word wide. A lookup reads the level and the directory (both rarely written, so cached by all), a cell, and the item: two
//! cache misses in a large map. A 16-bit fragment of the hash in each link keeps other items' keys out of it.
//!
//! # The list
//!
//! ```text
//!   cell 0 ---> item ---> item ---> cell 2 ---> cell 1 ---> item ---> cell 3 ---> end        four buckets
//! ```
//!
//! A hash is *spread* (`buckets`): its trailing bits are the index of its bucket, and the list is sorted by the spread read
//! backwards, its *order*. A cell has the order of its index and stands before the items of that order. So the items of bucket
//! i lie between its cell and the next one, whatever the number of buckets, and if that number is doubled, the new cell i + n
//! comes into the middle of bucket i: nothing moves, and nothing that was right becomes wrong.
//!
//! # States of an item
//!
//! | from | to | by | meaning of the new state |
//! |---|---|---|---|
//! | outside | linked | I: CAS of the link before its place | in the map |
//! | linked | marked | R2: CAS of its own link, which sets the mark | its remover is known; nothing can be linked behind it |
//! | marked | out | R3: CAS of the link before it, to where its own leads | not in the map |
//!
//! A link is changed only while its owner is not marked, for the mark is in the word that each CAS expects. So what is marked
//! leads for ever to where it led, and a marked item's successor stays in the list until that item is out: taking it out would
//! change a marked link.
//!
//! * **Insertion** walks from its bucket's cell to the first item or cell of a greater order. Items of the same hash come before,
//!   in the order of their insertion, so two inserters of one key meet at the same link.
//! * **Removal** marks, then takes out. Any writer that meets a marked item takes it out before it goes on; so R3 may be
//!   another's, and the remover, as well as whoever comes second, does not answer before it has been done.
//! * **Lookup and iteration** follow links, marked or not, and write nothing.
//!
//! # Growth
//!
//! | level | to | by |
//! |---|---|---|
//! | n | n, growing | G1: a CAS by an inserter that finds the buckets full, after it has published a segment of n cells |
//! | n, growing | 2n | G3: the last to report cells of that segment as linked |
//!
//! In between, each insertion takes charge of some cells (G2), and links them: each is linked by one thread, once. Below the
//! number of a level every cell is in the list, so a lookup never meets one that is not. Nobody waits for a thread that stalls
//! with cells in hand: buckets stay as long as they are until it is back.
//!
//! Nothing is counted. One in so many insertions, chosen by a part of the hash, looks at a sample of the buckets from its own on, and
//! before that one is believed, at larger ones. Of one bucket no more than four items count, so that equal hashes do not make buckets for ever.
//! The number of buckets never becomes smaller: 8 bytes each, at most 43 an item at the time of the largest crowd.
//!
//! # Why it is linearizable
//!
//! The moments are I and R3.
//!
//! **What is met was in the map.** *Every item or cell that a walk comes to was not out at some moment of the walk.* True of the cell
//! it starts at. If a walk reads the link of something that was not out at moment t of the walk: either the link is not marked, then
//! its target is not out when it is read; or it is, since m. If m is in the walk, the target was not out at m. If m is before the walk,
//! the owner was marked, yet not out, at t, so that its successor could not be out either.
//!
//! **What stays is found.** *A walk does not pass by an item that is not out from its beginning to its end*: at the moment at which the
//! target above was not out, the list led from it to the item, and the order of a target is never beyond that of the item. So an
//! answer of "none" is right at the end of the walk, or at a moment at which one item with the key was out and the next one not yet in; there
//! is such a moment if there were several, because each insertion took out what it met of its key.
//!
//! **One item per key.** Both inserters exchange the link behind the last item of their hash. If another item of that hash has come,
//! that link has changed; if its owner was removed, it is marked.
//!
//! **The end of a bucket.** A walk that comes to a cell is at the end of its bucket if the level is the one that it began with, and
//! not growing: who sees a cell of a later level in the list sees that this has begun. Otherwise the cell's order tells.
//!
//! **Safe to retire.** When `remove_item` has answered, the item is out: a walk that did not pass by it has ended. Nothing leads
//! to it then but the links of items that were out before, and a guard that is younger comes to none of those.
//!
//! # Progress
//!
//! | operation | progress | steps |
//! |---|---|---|
//! | `get` | wait-free, but for items that are inserted before it as fast as it walks | one bucket; while the map grows, that and its other half |
//! | `insert`, `remove_item` | lock-free | one bucket; an insertion while the map grows also links up to 16 cells, one in n / 8, or in 512, looks at a sample |
//! | `iter` | as `get`, over the whole list | |
//! | `reserve`, `finish_growth` | lock-free | a doubling for each that is needed |
//!
//! Buckets have up to 3/8 of an item by the mean, more while a thread stalls with cells in hand.
//!
//! # Memory orderings
//!
//! | site | ordering | partner |
//! |---|---|---|
//! | CAS of a link | Release | Acquire loads of links: the contents of what it leads to, and what came before a removal |
//! | load of a link | Acquire | as above |
//! | CAS of the level, and the store of G3 | Release | Acquire loads of the level: segments, and cells that are linked |
//! | load of the level | Acquire | as above |
//! | report of linked cells | AcqRel | itself: the last sees those of all others |
//! | origin of a segment, in G1 | Acquire, Release | itself: whoever publishes a level may not be the one who has brought its segment |
//! | links of what nobody can see yet | Relaxed | the CAS or level that publishes them |
//! | claims | Relaxed | only their own arithmetic matters; each is a read-modify-write |
//!
//! No CAS of a link needs Acquire: each replaces a word that its thread has loaded with Acquire before, or null. No store-then-load handshake is
//! needed anywhere, hence no fence.
//!
//! # Rules for the unsafe parts
//!
//! `unsafe` is in `raw` (following items), `buckets` (cells and their memory) and `reclaim`; the other files call them.
//!
//! 1. An item's address comes into a link by `insert` only, whose contract keeps the item valid until it has been
//!    removed and, after that, every guard of that time is gone.
//! 2. An address loaded through a guard from a link of the list, or of an item that the guard's walk has come to, may be followed while
//!    the guard lives: the item was not out at some moment of the guard's life.
//! 3. A cell is reached by the number of a level that was read, by a claim, or by a link. Its segment lives as long as the map.
//! 4. `&mut Map` means that no other thread is inside, and that guards which are left protect items only.

// Clippy resolves the facade's names to the types behind them and cannot tell the way through it from the way around.
#![allow(clippy::disallowed_types)]

mod buckets;
mod find;
mod grow;
mod insert;
mod iterate;
mod link;
mod map;
mod raw;
pub mod reclaim;
mod remove;
mod walk;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use iterate::Iter;
pub use link::Link;
pub use map::{Keyed, Map, Occupied, Statistics};
#[cfg(not(any(loom, shuttle)))]
pub use reclaim::collect_garbage;
pub use reclaim::{DefaultReclaim, Guard, Published, Reclaim};
