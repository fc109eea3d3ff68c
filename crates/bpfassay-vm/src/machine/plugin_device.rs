// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plugin that counts executed instructions. The guest does not see it.

use std::ffi::OsString;

use crate::device::{MachineDevice, descriptor, path_of};

/// A plugin of QEMU's translator, which writes its counts to an inherited file.
#[derive(Debug, Clone)]
pub(crate) struct TranslatorPlugin {
    pub(crate) on: bool,
    /// The model of caches and branches in the plugin's notation, without commas.
    pub(crate) model: Option<String>,
}

impl MachineDevice for TranslatorPlugin {
    fn arguments(&self) -> Vec<OsString> {
        if !self.on {
            return Vec::new();
        }
        let mut file = OsString::from("file=");
        file.push(path_of(descriptor::PLUGIN));
        file.push(format!(",output={}", descriptor::COUNTS));
        if let Some(model) = &self.model {
            file.push(format!(",model={model}"));
        }
        vec!["-plugin".into(), file]
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::Arch;

    use crate::machine::Machine;

    #[test]
    fn a_plugin_is_loaded_from_a_descriptor_and_writes_to_another() {
        let mut machine = Machine::new(Arch::X86_64, "kernel");
        assert!(machine.arguments().iter().all(|argument| argument != "-plugin"));
        machine.plugin = true;
        let arguments = machine.arguments();
        let at = arguments.iter().position(|argument| argument == "-plugin").unwrap();
        assert_eq!(arguments[at + 1], "file=/dev/fd/905,output=906");
        machine.model = Some("64-2".to_owned());
        assert_eq!(machine.arguments()[at + 1], "file=/dev/fd/905,output=906,model=64-2");
    }
}
