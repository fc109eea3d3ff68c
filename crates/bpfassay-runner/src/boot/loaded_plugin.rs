// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the plugin that a QEMU loads by starting QEMU with each of them.

use bpfassay_plugin::{Plugin, plugins};
use bpfassay_vm::{PluginUse, Qemu};

/// A plugin that QEMU loads before the C library. It hides the host's load from the guest.
#[derive(Debug, Clone)]
pub struct LoadedPlugin {
    /// The plugin.
    pub plugin: Plugin,
    /// Why the plugin cannot count instructions in this QEMU; `None` if it can.
    pub refusal: Option<String>,
}

/// Finds the plugin that `qemu` loads. Logs what does not work with this QEMU, and why.
///
/// # Errors
/// One line with the reason if `qemu` does not start with any plugin.
pub(crate) async fn find(qemu: &Qemu) -> Result<LoadedPlugin, String> {
    let mut refusal = "this program was compiled without it".to_owned();
    for plugin in plugins() {
        match qemu.try_plugin(plugin.code, PluginUse::Counts).await {
            Ok(()) => return Ok(LoadedPlugin { plugin, refusal: None }),
            Err(reason) => refusal = reason,
        }
    }
    let mut loaded = None;
    let mut lacking = "there will be no direct costs, and figures can differ from those of other hosts";
    if let Some(plugin) = plugins().pop()
        && qemu.try_plugin(plugin.code, PluginUse::HoldsMainLoop).await.is_ok()
    {
        loaded = Some(LoadedPlugin { plugin, refusal: Some(refusal.clone()) });
        lacking = "there will be no direct costs";
    }
    tracing::warn!("{} does not load bpfassay's plugin: {lacking}: {refusal}", qemu.program.display());
    loaded.ok_or(refusal)
}
