// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which plugin a QEMU loads, found out by starting it with each.

use bpfassay_plugin::{Plugin, plugins};
use bpfassay_vm::Qemu;

/// The plugin that `qemu` loads. Where it loads none, the reason goes to the log: nothing but the direct cost is missing then.
pub(crate) async fn find(qemu: &Qemu) -> Option<Plugin> {
    let mut refusal = "this program was compiled without it".to_owned();
    for plugin in plugins() {
        match qemu.try_plugin(plugin.code).await {
            Ok(()) => return Some(plugin),
            Err(reason) => refusal = reason,
        }
    }
    tracing::warn!("{} does not load the plugin that counts direct costs: {refusal}", qemu.program.display());
    None
}
