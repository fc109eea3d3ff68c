// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes libFuzzer's inputs to the target that `BPFASSAY_FUZZ_TARGET` names.
#![no_main]

use std::{env, sync::LazyLock};

use bpfassay_spans::fuzz as spans;

static NAME: LazyLock<String> =
    LazyLock::new(|| env::var("BPFASSAY_FUZZ_TARGET").expect("BPFASSAY_FUZZ_TARGET names the target"));

libfuzzer_sys::fuzz_target!(|input: &[u8]| match NAME.as_str() {
    // Readers of the workspace in `spans/`, which also tests them on stable Rust.
    "spans_darshan" => spans::darshan(input),
    "spans_environment" => spans::environment(input),
    "spans_events" => spans::events(input),
    "spans_library" => spans::library(input),
    "spans_otlp" => spans::otlp(input),
    name => bpfassay_fuzz::run(name, input),
});
