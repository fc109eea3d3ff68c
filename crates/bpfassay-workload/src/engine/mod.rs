//! The embedded engine: IOR's work without IOR and MPI, for the POSIX and MMAP interfaces.
//!
//! It makes the same system calls on the test files as the real IOR with the same options, rank by rank and in the
//! same order, and writes the same JSON summary. Ranks are processes forked before any work; barriers and reductions
//! go through shared memory and futexes, so that only the test itself does file I/O.

mod error;
mod io;
mod pattern;
mod random;
mod record;

pub use error::EngineError;
