//! Finding a resource by its key: a lock-free hash map of items that carry their own key.
//!
//! The map stores pointers. It never allocates, frees, clones or moves an item; it allocates tables and retires them
//! through the guard. Hashing is the caller's, so that a user's `Hash` runs where the caller decides; the user's `Eq`
//! runs inside the map, at moments at which a panic leaves nothing behind.
//!
//! Open addressing with linear probing over one word per slot. A lookup reads the root, the table's header (both
//! rarely written, so cached by all), one or two neighbouring slots, and the item: two cache misses in a large map. A
//! 15-bit fragment of the hash in the upper bits of each slot keeps other items' memory out of it.
//!
//! # States of a slot
//!
//! ```text
//!             insert, copy              remove
//!   EMPTY ----------------> item -----------------> DEAD item
//!     |                       |
//!     | seal                  | freeze
//!     v                       v           copied
//!   SEALED                FROZEN item ------------> MOVED
//! ```
//!
//! | from | to | by | meaning of the new state |
//! |---|---|---|---|
//! | `EMPTY` | item | `insert` of a key that is not in the chain, or a copy | the item is in the map |
//! | item | `DEAD` item | `remove_item`: the winner | removed; the address stays as a mark and is never followed |
//! | item | `FROZEN` item | any writer, once there is a next table | in the map; can no longer be removed here |
//! | `FROZEN` item | `MOVED` | any writer that has seen it in the next table | look in the next table |
//! | `EMPTY` | `SEALED` | any writer, once there is a next table | chain ends here for ever; look in the next table |
//!
//! Every step is one compare-and-swap. Nothing leads back to `EMPTY`, and no slot ever holds a second item. The
//! *chain* of a hash is its home slot and those after it up to the first `EMPTY` or `SEALED` one; so a chain only
//! ever grows at its end, and two inserters of one key meet at the same `EMPTY` slot.
//!
//! # Resize
//!
//! Since slots are used once, a table wears out, by growth or by churn alone. When its allowance (`budget`) is used
//! up, a writer hangs a *next* table off it, sized for the items that are alive: larger, equal or smaller. From then
//! on:
//!
//! * each writer that comes by moves one chunk of slots; chunks are handed out by a counter;
//! * an inserter first *seals* the chain of its hash: moves every item in it and turns its `EMPTY` end into `SEALED`.
//!   After that the old table cannot receive or hold the key, and the insertion is a plain one in the next table;
//! * a remover that meets its item frozen moves it, then removes it from the next table;
//! * a reader takes a frozen item as what it is, one of the map; if it met `MOVED` or `SEALED` in the chain and not its
//!   key, it goes on to the next table. One that reaches `EMPTY` without having met them is done: no item of this hash
//!   has left the table.
//!
//! Whoever completes the last chunk makes the next table the root and retires the old one. Nobody waits for a thread
//! that stalls with a chunk in hand: the next table has room for all that can come from the old one and a part of its
//! own; who finds that part used up moves the whole remainder himself. So there are never more than two tables, and
//! the second can only start to move after the first has been left.
//!
//! # Why it is linearizable
//!
//! **No resurrection.** Two threads may copy one frozen item, and the slower may come when the item has been copied,
//! removed and even retired. A copy therefore looks for the item's *address* in the chain of the next table first and
//! takes any state of it, `DEAD` included, as "already copied". `MOVED` or `SEALED` there mean that the next table is
//! itself being left, so that this copy was completed long ago. The address is that of this very item, not of an
//! earlier one at the same place: that earlier one would have to have been in the next table, removed and freed
//! before our item was allocated, and our item's `insert` looks for a next table before it uses the old one.
//!
//! **One item per key.** In one table by the shared `EMPTY` slot. Across two tables: an insertion into the next table
//! happens after the seal, and by then every item of that chain is in the next table or dead.
//!
//! **Lookups.** An item that is live or frozen was in the map when its slot was read: while it is frozen nobody can
//! remove it here, and it cannot be removed from the next table before this slot is `MOVED`. An answer of "none" is
//! right at the moment the last `EMPTY` was read: the items of the key that were passed on the way were dead, or had
//! moved to the table that was searched next.
//!
//! **Safe to retire.** When `remove_item` has answered, the address is left in `DEAD` slots only: the remover has seen
//! the old table's slot `MOVED` (or that table replaced as root) before it marked the next table's.
//!
//! # Progress
//!
//! | operation | progress | steps |
//! |---|---|---|
//! | `get` | wait-free but for a table's replacement | one chain per table; a further table is visited only if a whole resize (at least 3/8 of its slots inserted) was completed while this call read one chain |
//! | `insert`, `remove_item` | lock-free | one chain per table, one chunk; an insertion that finds both tables full moves the rest of the old one |
//! | `iter` | as `get`, for each group of equal leading hash bits | |
//!
//! # Memory orderings
//!
//! | site | ordering | partner |
//! |---|---|---|
//! | CAS of a slot | Release | Acquire loads of slots: the item's contents, and all that earlier owners of the chain did |
//! | load of a slot | Acquire | as above |
//! | CAS of `next` | Release | Acquire loads of `next`: the new table's contents |
//! | CAS of the root | Release | Acquire loads of the root: every slot of the table left behind is final |
//! | loads of links in `promote` | Relaxed | they are compared and passed on, not followed |
//! | chunk progress | AcqRel | itself: the last to add sees the slots of all others as final |
//! | allowances, claims | Relaxed | only their own arithmetic matters; each is a read-modify-write |
//!
//! No CAS needs Acquire: each replaces a word that its thread has loaded with Acquire before, or null.
//!
//! No store-then-load handshake is needed anywhere, hence no fence.
//!
//! # Rules for the unsafe parts
//!
//! `unsafe` is in `raw` (following pointers), `table` (allocation) and `reclaim`; the other files call them.
//!
//! 1. An item's address comes into a slot by `insert` only, whose contract keeps the item valid until it has been
//!    removed and, after that, every guard of that time is gone.
//! 2. An address loaded through a guard from a slot in the state item or `FROZEN` may be followed while the guard
//!    lives: at the load the item was not removed.
//! 3. A table is reachable from the root, or as `next` of a table that a guard protects. It is retired by the one
//!    thread that replaced it as root, through a guard. A guard that reached it through an older table was live before
//!    that older one was retired, hence before this one.
//! 4. `&mut Map` means that no other thread is inside, and that guards which are left protect items only.

// Clippy resolves the facade's names to the types behind them and cannot tell the way through it from the way around.
#![allow(clippy::disallowed_types)]

mod budget;
mod find;
mod insert;
mod iterate;
mod map;
mod raw;
pub mod reclaim;
mod remove;
mod resize;
mod table;
mod word;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use iterate::Iter;
pub use map::{Keyed, Map, Occupied, Statistics};
#[cfg(not(any(loom, shuttle)))]
pub use reclaim::collect_garbage;
pub use reclaim::{DefaultReclaim, Guard, Reclaim};
