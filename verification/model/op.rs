//! Every operation of the public interface, as a value.

use std::time::Duration;

use leasehold::{Capacity, Outcome};

use super::resource::{Slope, Spec};

/// How many keys there are.
pub const KEYS: u8 = 16;

/// Which resources a filter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    All,
    None,
    Key(u8),
    From(u8),
    Even,
}

impl Accept {
    pub fn accepts(self, key: u8) -> bool {
        match self {
            Accept::All => true,
            Accept::None => false,
            Accept::Key(only) => key == only,
            Accept::From(first) => key >= first,
            Accept::Even => key.is_multiple_of(2),
        }
    }
}

/// What `update_with` makes of the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    To(Spec),
    /// One worse.
    Worsen,
    /// Another key, which must be refused.
    Rename,
}

/// How a lease is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Dropped,
    Released,
    After(Duration),
    Finished(Outcome),
}

/// One operation. Numbers that choose among leases or tokens wrap around.
#[derive(Clone, Debug)]
pub enum Op {
    Insert(Spec),
    InsertBatch(Vec<Spec>),
    Update(Spec),
    UpdateWith { key: u8, change: Change },
    Remove(u8),
    Get { key: u8, keep: bool },
    Acquire { owned: bool },
    AcquireKey { key: u8, owned: bool },
    AcquireWhere { accept: Accept, owned: bool },
    AcquireExcluding { keys: Vec<u8>, owned: bool },
    AcquireByAffinity { id: u8, owned: bool },
    AcquireMany { count: u8, owned: bool },
    End { lease: u8, ended: Ended },
    Token { lease: u8 },
    IntoToken { lease: u8 },
    Redeem { token: u8, outcome: Option<Outcome> },
    RedeemForeign { bits: u8 },
    Exclude(u8),
    Include(u8),
    Cool { key: u8, span: Duration },
    Warm(u8),
    Eject(u8),
    Readmit(u8),
    Drain(u8),
    Undrain(u8),
    EvictWorst,
    Peek { keep: bool },
    PeekByAffinity { id: u8 },
    PeekWorst,
    DropPeeks,
    Advance(Duration),
    SetWeights(Vec<u32>),
    Snapshot,
    Close,
}

fn span(byte: u8) -> Duration {
    match byte {
        255 => Duration::MAX,
        _ => Duration::from_nanos(u64::from(byte % 32)),
    }
}

fn spec(a: u8, b: u8, c: u8) -> Spec {
    Spec {
        key: a % KEYS,
        base: match b & 7 {
            7 => u64::MAX,
            base => u64::from(base),
        },
        slope: [Slope::Flat, Slope::Flat, Slope::Rising, Slope::Falling][(b >> 3 & 3) as usize],
        capacity: match b >> 5 {
            0..=2 => Capacity::Exclusive,
            3 => Capacity::Limited(1 + u32::from(c & 3)),
            4 => Capacity::Limited(2),
            5 => Capacity::Limited(3),
            6 => Capacity::Unlimited,
            _ if c & 15 == 15 => Capacity::Limited(if c & 16 == 0 { 0 } else { Capacity::MAX + 1 }),
            _ => Capacity::Limited(2),
        },
        home: match c >> 4 {
            0..=9 => None,
            // Eight and nine do not exist anywhere.
            wanted @ 10..=13 => Some(usize::from(wanted - 10)),
            _ => Some(usize::from(c & 15) % 10),
        },
    }
}

fn outcome(a: u8, b: u8) -> Outcome {
    match a % 5 {
        0 => Outcome::Ok { latency: Duration::from_micros(u64::from(b)) },
        1 => Outcome::Failed,
        2 => Outcome::Cancelled,
        _ => Outcome::RateLimited { retry_after: span(b) },
    }
}

impl Op {
    /// Any six bytes make an operation. All zeros make the simplest one, and smaller bytes a simpler one: for shrinking.
    pub fn decode(bytes: [u8; 6]) -> Op {
        let [kind, a, b, c, d, e] = bytes;
        let key = a % KEYS;
        let owned = e >= 192;
        let accept = match b % 5 {
            0 => Accept::All,
            1 => Accept::None,
            2 => Accept::Key(c % KEYS),
            3 => Accept::From(c % KEYS),
            _ => Accept::Even,
        };
        match kind % 96 {
            0..=13 => Op::Insert(spec(a, b, c)),
            14..=16 => Op::InsertBatch(
                (0..d % 6)
                    .map(|i| spec(a.wrapping_add(i.wrapping_mul(e | 1)), b.rotate_left(i.into()), c ^ i))
                    .collect(),
            ),
            17..=20 => Op::Update(spec(a, b, c)),
            21..=23 => Op::UpdateWith {
                key,
                change: match d % 8 {
                    0 => Change::Rename,
                    1..=4 => Change::Worsen,
                    _ => Change::To(spec(a, b, c)),
                },
            },
            24..=27 => Op::Remove(key),
            28 => Op::Get { key, keep: b % 4 == 0 },
            29..=42 => Op::Acquire { owned },
            43..=45 => Op::AcquireKey { key, owned },
            46..=48 => Op::AcquireWhere { accept, owned },
            49 => Op::AcquireExcluding { keys: [a, b, c, d][..e as usize % 5].to_vec(), owned },
            50..=52 => Op::AcquireByAffinity { id: a % 8, owned },
            53..=54 => Op::AcquireMany { count: a % 7, owned },
            55..=66 => Op::End {
                lease: a,
                ended: match b % 8 {
                    0..=2 => Ended::Dropped,
                    3 => Ended::Released,
                    4..=5 => Ended::After(span(c)),
                    _ => Ended::Finished(outcome(c, d)),
                },
            },
            67..=68 => Op::Token { lease: a },
            69..=70 => Op::IntoToken { lease: a },
            71..=74 => Op::Redeem { token: a, outcome: if b % 2 == 0 { None } else { Some(outcome(c, d)) } },
            75 => Op::RedeemForeign { bits: a },
            76..=77 => Op::Exclude(key),
            78..=79 => Op::Include(key),
            80..=81 => Op::Cool { key, span: span(b) },
            82 => Op::Warm(key),
            83 => Op::Eject(key),
            84 => Op::Readmit(key),
            85 => Op::Drain(key),
            86 => Op::Undrain(key),
            87 => Op::EvictWorst,
            88 => Op::Peek { keep: a % 4 == 0 },
            89 => Op::PeekByAffinity { id: a % 8 },
            90 => Op::PeekWorst,
            91 => Op::DropPeeks,
            92..=93 => Op::Advance(Duration::from_nanos(u64::from(a % 32))),
            94 => match a % 4 {
                0 => Op::Snapshot,
                length => {
                    // One too many at times.
                    let weights = [b % 3, c % 3, d % 3, e % 3, 1];
                    Op::SetWeights(
                        weights[..4 + usize::from(length == 3)].iter().map(|&w| w.into()).collect(),
                    )
                }
            },
            // Rare: nothing but returns and looks is left afterwards.
            _ if a >= 224 => Op::Close,
            _ => Op::Snapshot,
        }
    }

    /// The operation's name, for coverage.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Insert(_) => "insert",
            Op::InsertBatch(_) => "insert_batch",
            Op::Update(_) => "update",
            Op::UpdateWith { .. } => "update_with",
            Op::Remove(_) => "remove",
            Op::Get { .. } => "get",
            Op::Acquire { .. } => "acquire",
            Op::AcquireKey { .. } => "acquire_key",
            Op::AcquireWhere { .. } => "acquire_where",
            Op::AcquireExcluding { .. } => "acquire_excluding",
            Op::AcquireByAffinity { .. } => "acquire_by_affinity",
            Op::AcquireMany { .. } => "acquire_many",
            Op::End { .. } => "end",
            Op::Token { .. } => "token",
            Op::IntoToken { .. } => "into_token",
            Op::Redeem { .. } => "redeem",
            Op::RedeemForeign { .. } => "redeem_foreign",
            Op::Exclude(_) => "exclude",
            Op::Include(_) => "include",
            Op::Cool { .. } => "cool",
            Op::Warm(_) => "warm",
            Op::Eject(_) => "eject",
            Op::Readmit(_) => "readmit",
            Op::Drain(_) => "drain",
            Op::Undrain(_) => "undrain",
            Op::EvictWorst => "evict_worst",
            Op::Peek { .. } => "peek",
            Op::PeekByAffinity { .. } => "peek_by_affinity",
            Op::PeekWorst => "peek_worst",
            Op::DropPeeks => "drop_peeks",
            Op::Advance(_) => "advance",
            Op::SetWeights(_) => "set_weights",
            Op::Snapshot => "snapshot",
            Op::Close => "close",
        }
    }

    /// How many kinds there are.
    pub const KINDS: usize = 34;
}
