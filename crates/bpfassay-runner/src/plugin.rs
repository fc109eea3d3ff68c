// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which plugin a QEMU loads, found out by starting it with each.

use bpfassay_plugin::{Plugin, plugins};
use bpfassay_vm::Qemu;

/// The plugin that `qemu` loads. Where it loads none, the reason goes to the log, too: there are no direct costs then, and a busy host can change figures.
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
    tracing::warn!(
        "{} does not load bpfassay's plugin: there will be no direct costs, and a few figures can differ from those of other hosts while \
         this host is busy: {refusal}",
        qemu.program.display()
    );
    Err(refusal)
}
