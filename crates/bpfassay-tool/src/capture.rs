//! What a guest brings home from a tool, uninterpreted.

use crate::Stream;

/// Everything that was captured of one run of a tool. Times are nanoseconds of the guest's `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capture {
    /// What it wrote, in order.
    pub pieces: Vec<Piece>,
    /// What its endpoint answered, in order.
    pub pages: Vec<Page>,
    /// What its maps held, in order.
    pub dumps: Vec<Dump>,
    /// Whether the guest left something out because there was too much.
    pub cut: bool,
}

/// Some bytes that a tool wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// When they were read from it.
    pub at_ns: u64,
    /// Where it wrote them.
    pub stream: Stream,
    /// The bytes; a line may begin in one piece and end in another.
    pub bytes: Vec<u8>,
}

/// One answer of an HTTP endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// When it was asked.
    pub at_ns: u64,
    /// The body of an answer with status 200.
    pub body: Vec<u8>,
}

/// One reading of a BPF map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// When reading began.
    pub at_ns: u64,
    /// The map's name in the object.
    pub map: String,
    /// How often each value is there: possible CPUs for a per-CPU map, each copy padded to a multiple of 8 bytes (as
    /// `bpf_percpu_hash_copy` does, kernel/bpf/hashtab.c, 6.12); else 1.
    pub copies: u32,
    /// Keys and values.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}
