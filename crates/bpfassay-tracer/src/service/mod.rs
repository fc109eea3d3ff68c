// SPDX-License-Identifier: MIT OR Apache-2.0
<<<<<<< HEAD
// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes on while programs count: commands on standard input, samples on standard output, pages over HTTP.
=======
//! The life of a tracer while its programs count: commands on standard input, samples on standard output, pages over HTTP.
>>>>>>> main

pub(crate) mod command;
pub(crate) mod endpoint;
pub(crate) mod metrics;
pub(crate) mod object;
mod sampler;
pub(crate) mod serve;
mod signals;
