// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of targets.

mod btf;
mod ior;
mod plugin;
mod protocol;
mod report;
mod study;
mod testbed;
mod tool;

use bpfassay_guest::fuzz as guest;
use bpfassay_packages::fuzz as package;
use bpfassay_testbed::fuzz as private;
use bpfassay_tracer::fuzz as tracer;
use bpfassay_vm::fuzz as vm;

use crate::Target;

const OPENMETRICS: [&str; 2] =
    ["crates/bpfassay-tracer/tests/golden/metrics.openmetrics", "crates/bpfassay-tracer/tests/golden/metrics.text"];
const OBJECTS: [&str; 2] =
    ["crates/bpfassay-tool/tests/data/counts.bpf.o", "crates/bpfassay-btf/tests/data/reads.bpf.o"];
const MOUNTINFO: [&str; 1] = ["crates/bpfassay-guest/tests/golden/mountinfo-6.1"];
const STUDIES: [&str; 2] = ["crates/bpfassay-study/studies", "vm-tests"];

/// Every entry point for bytes from outside. A new target needs a function, a line in this table,
/// and a corpus.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    // Data that guests, tools and workloads send to the host.
    Target::bytes("frames", 700, &[], protocol::frames),
    Target::bytes("messages", 6000, &[], protocol::messages),
    Target::bytes("lines", 4000, &[], protocol::lines),
    Target::text("names", 700, &MOUNTINFO, protocol::names),
    Target::bytes("plugin_windows", 2000, &[], plugin::windows),
    Target::bytes("console", 200, &["crates/bpfassay-vm/tests/console"], vm::console),
    Target::bytes("tool_json_lines", 1000, &[], tool::json_lines),
    Target::bytes("tool_table", 200, &[], tool::table),
    Target::bytes("tool_histogram", 1000, &[], tool::histogram),
    Target::bytes("tool_events", 1000, &[], tool::events),
    Target::bytes("tool_bpftrace", 6000, &[], tool::bpftrace),
    Target::bytes("tool_openmetrics", 400, &OPENMETRICS, tool::openmetrics),
    Target::bytes("tool_map_page", 6000, &[], tool::map_page),
    Target::bytes("tool_map_object", 6000, &OBJECTS, tool::map_object),
    Target::text("command_output", 40, &[], study::command_output),
    Target::bytes("ior_summary", 1000, &["crates/bpfassay-ior/tests/data"], ior::summary),
    Target::bytes("btf", 6000, &["crates/bpfassay-btf/tests/data/kernel.btf"], btf::btf),
    Target::bytes("btf_object", 6000, &OBJECTS, btf::object),
    Target::bytes("btf_kernel", 6000, &["crates/bpfassay-btf/tests/data/kernel.btf"], btf::kernel),
    // Files from others: studies, tools, journals, results.
    Target::text("study", 200, &STUDIES, study::study),
    Target::text("study_values", 700, &[], study::values),
    Target::text("document", 1000, &["kernels"], study::document),
    Target::text("tool_file", 3000, &["crates/bpfassay-tool/tools", "crates/bpfassay/tests/wrong-tools"], tool::tool_file),
    Target::text("tool_finding", 2000, &[], tool::finding),
    Target::text("ior_options", 6000, &[], ior::options),
    Target::text("ior_script", 6000, &["ior-configs"], ior::script),
    Target::bytes("journal", 60, &[], report::journal).with(report::journals),
    Target::bytes("journal_records", 40, &[], report::records),
    Target::bytes("results", 100, &[], report::results).with(report::stored),
    Target::bytes("events", 4000, &[], report::events),
    Target::text("kernel_order", 100, &[], report::kernel_order),
    // Kernels, packages and testbeds.
    Target::bytes("kernel_image", 6000, &[], testbed::kernel_image),
    Target::bytes("bz_image", 6000, &[], private::bz_image),
    Target::bytes("compressed", 3000, &[], testbed::compressed),
    Target::bytes("kernel_module", 6000, &[], testbed::module),
    Target::bytes("initramfs", 6000, &[], private::initramfs),
    Target::bytes("package_file", 3000, &[], package::package),
    Target::bytes("program", 6000, &OBJECTS, private::program),
    Target::text("packages", 700, &["crates/bpfassay-packages/src/apt/testdata"], testbed::packages),
    Target::text("release", 4000, &[], testbed::release),
    Target::text("apt_output", 1000, &[], testbed::program_output),
    Target::text("debian_versions", 1000, &[], testbed::versions),
    Target::text("catalogue", 200, &["kernels/debian.toml"], testbed::catalogue),
    Target::text("testbed_lock", 100, &["testbed.lock"], testbed::lock),
    Target::bytes("manifest", 6000, &["crates/bpfassay-testbed/src/manifest/testdata"], testbed::manifest),
    Target::bytes("payload_index", 6000, &[], testbed::payload_index),
    Target::bytes("testbed_spec", 6000, &[], testbed::testbed_spec),
    Target::text("testbed_values", 1000, &[], testbed::values),
    Target::text("qemu_version", 6000, &[], vm::qemu_version),
    Target::text("cpuinfo", 6000, &[], vm::cpuinfo),
    // Data that the agent reads in the guest.
    Target::text("guest_mountinfo", 6000, &MOUNTINFO, guest::mountinfo),
    Target::text("guest_mountstats", 1000, &["crates/bpfassay-guest/tests/golden/mountstats-6.1"], guest::mountstats),
    Target::text("guest_timer_list", 6000, &[], guest::timer_list),
    Target::text("guest_kernel_texts", 700, &[], guest::kernel_texts),
    Target::bytes("guest_rpc_call", 6000, &[], guest::rpc_call),
    Target::bytes("guest_upcall", 6000, &[], guest::upcall),
    Target::bytes("guest_uevent", 6000, &[], guest::uevent),
    Target::bytes("guest_control_channel", 3000, &[], guest::control_channel),
    Target::bytes("guest_tracer_line", 1000, &["fuzz/corpus/lines"], guest::tracer_line),
    Target::bytes("guest_tool_output", 100, &[], guest::tool_output),
    Target::bytes("guest_http_answer", 6000, &[], guest::http_answer),
    Target::text("guest_here_arguments", 6000, &[], guest::here_arguments),
    Target::bytes("guest_run_outcome", 800, &[], guest::run_outcome),
    // Data that the tracer reads.
    Target::bytes("tracer_mountinfo", 6000, &MOUNTINFO, tracer::mountinfo),
    Target::bytes("tracer_commands", 6000, &[], tracer::commands),
    Target::bytes("tracer_kernel_lists", 900, &[], tracer::kernel_lists),
    Target::text("tracer_symbol_cache", 6000, &[], tracer::symbol_cache),
    Target::bytes("tracer_http_request", 6000, &[], tracer::http_request),
    Target::text("tracer_verifier_log", 6000, &[], tracer::verifier_log),
    Target::bytes("tracer_arguments", 6000, &[], tracer::arguments),
    Target::bytes("tracer_maps", 6000, &[], tracer::maps),
    Target::bytes("tracer_object", 4000, &OBJECTS, tracer::object),
    Target::text("tracer_names", 1000, &[], tracer::names),
];
