// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of a tracer while its programs count: commands on standard input, samples on standard
//! output, pages over HTTP.

pub(crate) mod endpoint;
pub(crate) mod metrics;
pub(crate) mod object_service;
mod sampler;
pub(crate) mod serve;
pub(crate) mod service_command;
mod stop_signals;
