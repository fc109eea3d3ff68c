// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels and initramfs for tests that boot real guests.
#![allow(dead_code, reason = "each test program uses its part")]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use bpfassay_protocol::Arch;
use bpfassay_vm::{BootOptions, Guest, GuestClock, GuestDeadlines, Initramfs, Machine, PluginUse, Qemu};
use tempfile::TempDir;

/// Returns a kernel to boot: that of `BPFASSAY_TEST_KERNEL_X86_64` (and similar variables for other
/// architectures), or 6.12 of the testbed manifest `BPFASSAY_TEST_MANIFEST`. The kernel must be
/// 6.12 or newer, and have the virtio console built in. Returns `None` with a message if neither is
/// set and `BPFASSAY_VM_TESTS` does not require these tests.
pub(crate) fn kernel(arch: Arch) -> Option<PathBuf> {
    let variable = format!("BPFASSAY_TEST_KERNEL_{}", arch.name().to_uppercase());
    let kernel = env::var_os(&variable).map(PathBuf::from).or_else(|| {
        let manifest = fs::read(env::var_os("BPFASSAY_TEST_MANIFEST")?).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let targets = manifest["targets"].as_array().unwrap();
        let target = targets.iter().find(|target| target["arch"] == arch.name() && target["name"] == "6.12")?;
        target["kernel"]["image"]["path"].as_str().map(PathBuf::from)
    });
    if kernel.is_none() {
        let required = env::var("BPFASSAY_VM_TESTS").is_ok_and(|value| value == "required");
        assert!(
            !required,
            "BPFASSAY_VM_TESTS=required, but neither {variable} nor BPFASSAY_TEST_MANIFEST names a kernel"
        );
        println!("skipped: {variable} is not set to a kernel image");
    }
    kernel
}

/// A machine to boot, with a temporary directory for its initramfs and its log.
pub(crate) struct TestBoot {
    pub(crate) machine: Machine,
    pub(crate) options: BootOptions,
    pub(crate) directory: TempDir,
    qemu: Qemu,
}

impl TestBoot {
    /// Creates a machine without initramfs. Its kernel panics.
    pub(crate) async fn new(arch: Arch) -> Option<Self> {
        let kernel = kernel(arch)?;
        let directory = tempfile::tempdir().unwrap();
        // QEMU's user must be able to enter the directory.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = bpfassay_chaos::fake_qemu::program(arch, directory.path()).unwrap();
        let qemu = Qemu::find(arch, Some(&program)).await.unwrap();
        let mut options = BootOptions::new(directory.path().join("console.log"));
        options.deadlines = GuestDeadlines { boot: Some(60), ..GuestDeadlines::default() };
        Some(Self { machine: Machine { memory_mib: 512, ..Machine::new(arch, kernel) }, options, directory, qemu })
    }

    /// Creates a machine whose init writes `data` to the agent's port, and then executes `end` (see
    /// init/init.c).
    pub(crate) async fn with_init(arch: Arch, data: &[u8], end: &str, text: &str) -> Option<Self> {
        let mut test = Self::new(arch).await?;
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/init");
        let init = fs::read(programs.join(format!("init-{arch}"))).unwrap();
        let mut archive = Vec::new();
        for directory in ["dev", "proc"] {
            entry(&mut archive, directory, 0o040_755, &[]);
        }
        entry(&mut archive, "init", 0o100_755, &init);
        entry(&mut archive, "data", 0o100_644, data);
        entry(&mut archive, "end", 0o100_644, end.as_bytes());
        entry(&mut archive, "text", 0o100_644, text.as_bytes());
        entry(&mut archive, "TRAILER!!!", 0, &[]);
        let initrd = test.directory.path().join("initramfs");
        fs::write(&initrd, archive).unwrap();
        test.machine.initrd = Some(Initramfs::Path(initrd));
        Some(test)
    }

    /// Puts the machine under the instruction clock, and makes QEMU load the plugin.
    pub(crate) async fn count_instructions(&mut self) {
        self.machine.clock = GuestClock::Instructions;
        for plugin in bpfassay_plugin::plugins() {
            if self.qemu.try_plugin(plugin.code, PluginUse::Counts).await.is_ok() {
                self.options.plugin = Some(plugin.code);
                return;
            }
        }
        panic!("{} loads no plugin", self.qemu.program.display());
    }

    pub(crate) async fn boot(&self) -> Guest {
        Guest::boot(&self.qemu, &self.machine, self.options.clone()).await.unwrap()
    }

    pub(crate) fn qemu(&self) -> &Qemu {
        &self.qemu
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.options.log_path).unwrap()).into_owned()
    }
}

/// Returns whether a process with this id runs. A zombie does not.
pub(crate) fn runs(process: u32) -> bool {
    fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

/// Appends one entry of a newc archive (Documentation/driver-api/early-userspace/buffer-format.rst
/// of the kernel).
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) {
    let fields = [0, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(content);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}
