// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which plugin a QEMU loads, found out by starting it with each.

use bpfassay_plugin::{Plugin, plugins};
use bpfassay_vm::Qemu;

/// The plugin that `qemu` loads. Where it loads none, the reason goes to the log, too: nothing but the direct cost is missing then.
///
/// # Errors
/// Why it loads none, in one line.
pub(crate) async fn find(qemu: &Qemu) -> Result<Plugin, String> {
    let mut refusal = "this program was compiled without it".to_owned();
    for plugin in plugins() {
        match qemu.try_plugin(plugin.code).await {
            Ok(()) => return Ok(plugin),
            Err(reason) => refusal = reason,
        }
    }
    tracing::warn!("{} does not load the plugin that counts direct costs: {refusal}", qemu.program.display());
    Err(refusal)
}
