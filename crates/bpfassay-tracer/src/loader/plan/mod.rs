// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common part of the loaders: options and results, which functions are hooked and how, and
//! decisions before a program is loaded.

pub(crate) mod attach_order;
pub(crate) mod descriptors;
pub(crate) mod hooked;
pub(crate) mod loaded;
pub(crate) mod object_files;
pub(crate) mod probes;
pub(crate) mod prototypes;
pub(crate) mod refusal;
pub(crate) mod renamed;
pub(crate) mod return_probe;
pub(crate) mod settings;
pub(crate) mod tracer_options;
pub(crate) mod uprobes;
pub(crate) mod usual;
