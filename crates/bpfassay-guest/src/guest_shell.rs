// SPDX-License-Identifier: MIT OR Apache-2.0
//! An interactive shell on the console.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::Command,
    time::Duration,
};

use bpfassay_protocol::{
    layout,
    message::{GuestFacts, Phase},
};

use crate::{
    agent_link::Link,
    children::{Children, pid_of},
    error::{Error, Result},
    system,
    workload::PATH,
};

/// Directory for busybox's commands.
const COMMANDS: &str = "/bpfassay/bin";

/// Longer than any use of a shell. The wait ends earlier with the shell.
const WATCH: Duration = Duration::from_secs(3600);

/// Runs the shell until it ends.
pub(crate) fn run(facts: &GuestFacts, link: &Link, children: &mut Children) -> Result<()> {
    link.phase(Phase::Shell, None)?;
    if !Path::new(layout::BUSYBOX).exists() {
        return Err(Error::Order(format!("the image holds no {}: it was not made for a shell", layout::BUSYBOX)));
    }
    install(children)?;
    let active = system::read("/sys/class/tty/console/active")?;
    let device = format!(
        "/dev/{}",
        console(&active)
            .ok_or_else(|| { Error::unexpected("/sys/class/tty/console/active", "the name of a console", &active) })?
    );
    // Kernel messages would be mixed with what is typed. dmesg still shows them.
    system::write("/proc/sys/kernel/printk", "1\n")?;
    let mut terminal = OpenOptions::new().read(true).write(true).open(&device).map_err(Error::file("open", &device))?;
    terminal.write_all(banner(facts).as_bytes()).map_err(Error::file("write", &device))?;
    let pid = start(&terminal, &facts.mount.path)?;
    children.expect(pid);
    while children.wait_for(pid, WATCH)?.is_none() {}
    Ok(())
}

/// Makes busybox's commands available by name.
fn install(children: &mut Children) -> Result<()> {
    fs::create_dir_all(COMMANDS).map_err(Error::file("make directory", COMMANDS))?;
    let spawn_error = |source| Error::Spawn { program: layout::BUSYBOX.to_owned(), source };
    let child = Command::new(layout::BUSYBOX).args(["--install", "-s", COMMANDS]).spawn().map_err(spawn_error)?;
    let pid = pid_of(&child)?;
    children.expect(pid);
    match children.wait_for(pid, Duration::from_secs(60))? {
        Some(status) if status.success() => Ok(()),
        other => Err(Error::Program {
            program: layout::BUSYBOX.to_owned(),
            problem: format!("did not install its commands ({other:?})"),
            output: String::new(),
        }),
    }
}

/// Starts the shell as leader of a session whose terminal is the console, which job control needs.
fn start(terminal: &File, directory: &str) -> Result<rustix::process::Pid> {
    let spawn_error = |source| Error::Spawn { program: layout::BUSYBOX.to_owned(), source };
    let mut command = Command::new(layout::BUSYBOX);
    command
        .arg0("-sh")
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("TERM", "vt100")
        .env("PS1", "\\w # ")
        .current_dir(directory)
        .stdin(terminal.try_clone().map_err(spawn_error)?)
        .stdout(terminal.try_clone().map_err(spawn_error)?)
        .stderr(terminal.try_clone().map_err(spawn_error)?);
    let prepare = || {
        rustix::process::setsid()?;
        // Standard input is the console. The new session takes it over from the session that has
        // it.
        rustix::process::ioctl_tiocsctty(io::stdin())?;
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes only two system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn().map_err(spawn_error)?;
    pid_of(&child)
}

/// Returns the console that the kernel prefers: the last one named.
pub(crate) fn console(active: &str) -> Option<&str> {
    active.split_whitespace().next_back().filter(|name| !name.contains('/'))
}

/// Returns a text that lists what is available.
fn banner(facts: &GuestFacts) -> String {
    let GuestFacts { kernel_release, machine, mount, .. } = facts;
    let mut text = format!(
        "\r\nbpfassay: {machine}, kernel {kernel_release}; {} mounted at {}\r\n",
        mount.file_system, mount.path
    );
    let programs: [(&str, &str); 3] = [
        (layout::TRACER, "the tracer: tracer --probe fexit --map percpu --loader libbpf"),
        (layout::IOR, "the embedded IOR: ior -w -r -t 1m -b 16m"),
        (layout::EXTERNAL_IOR, "the real IOR: external-ior"),
    ];
    for (path, hint) in programs {
        if Path::new(path).exists() {
            text.push_str("  ");
            text.push_str(hint);
            text.push_str("\r\n");
        }
    }
    text.push_str("`exit` powers the guest off.\r\n\r\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_console_is_the_preferred_one() {
        assert_eq!(console("tty0 ttyS0"), Some("ttyS0"));
        assert_eq!(console("ttyAMA0\n"), Some("ttyAMA0"));
        assert_eq!(console(""), None);
        assert_eq!(console("../mem"), None);
    }

    #[test]
    fn the_banner_names_kernel_and_mount() {
        let mut facts = GuestFacts { kernel_release: "6.1.0-50-amd64".to_owned(), ..GuestFacts::default() };
        facts.mount.path = "/mnt/nfs".to_owned();
        let banner = banner(&facts);
        assert!(banner.contains("6.1.0-50-amd64") && banner.contains("/mnt/nfs"), "{banner}");
    }
}
