// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that bpfassay starts in QEMU's place.

use std::{
    ffi::OsString,
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use crate::{
    agent::{
        arguments::{home, job, runs, value},
        player,
    },
    script::{Action, AgentScript, BootPoint},
};

/// The player's first argument.
pub const PLAYER: &str = "--chaos-player";

/// Options of QEMU that define its confinement. The real QEMU gets them unchanged.
const CONFINEMENT: [&str; 3] = ["-sandbox", "-run-with", "-runas"];

/// Whether this program was started as `name`, in QEMU's place.
#[must_use]
pub fn is_started_as_qemu(name: &OsString) -> bool {
    Path::new(name).file_name().is_some_and(|name| name.to_string_lossy().starts_with("qemu-system-"))
}

/// Does what QEMU with `arguments` would do. The first argument is the name of this program.
#[must_use]
pub fn run(arguments: &[OsString]) -> ExitCode {
    let outcome = match arguments.get(1) {
        Some(argument) if argument == PLAYER => player::run(arguments),
        _ => start(arguments).map(|never| match never {}),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // If standard error is closed, nobody reads the message.
            let _ = writeln!(io::stderr(), "the stand-in for QEMU: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Replaces this process by QEMU.
///
/// # Errors
/// Whenever it returns: the script or the job cannot be read, the driver does not do the host's
/// part, or the player or QEMU cannot be started.
fn start(arguments: &[OsString]) -> io::Result<std::convert::Infallible> {
    let script = AgentScript::read(&home(arguments))?;
    let mut qemu = Command::new(&script.qemu);
    if value(arguments, "-initrd").is_none() {
        // There is no guest: QEMU only prints its version, or is tried.
        return Err(qemu.args(&arguments[1..]).exec());
    }
    let job = job(arguments)?;
    let runs: Vec<&str> = runs(&job).iter().map(|run| run.id.as_str()).collect();
    match script.action(&BootPoint::Launch, &runs) {
        Some(Action::Refuse { status, message }) => {
            // In any case, it has exited.
            let _ = writeln!(io::stderr(), "{message}");
            std::process::exit((*status).into());
        }
        Some(Action::Kill(signal)) => {
            crate::command_process::signal(std::process::id(), *signal)?;
        }
        Some(Action::Host(index)) => crate::chaos_control::ask(&script.state, *index)?,
        _ => {}
    }
    let (ours, theirs) = UnixStream::pair()?;
    let name = arguments.first().cloned().unwrap_or_default();
    let mut player = Command::new(name);
    player.arg(PLAYER).args(&arguments[1..]).stdin(Stdio::from(OwnedFd::from(ours))).stdout(Stdio::null());
    player.spawn()?;
    // Only QEMU has this end of the socket. The end closes when QEMU exits, and a player that
    // starts later notices this.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    qemu.args(machine(arguments, theirs.as_raw_fd()));
    Err(qemu.exec())
}

/// The arguments of a QEMU whose processor is stopped, with bpfassay's monitor and ours.
fn machine(arguments: &[OsString], monitor: i32) -> Vec<OsString> {
    const BARE: [&str; 14] = [
        "-S",
        "-no-user-config",
        "-nodefaults",
        "-display",
        "none",
        "-nic",
        "none",
        "-no-reboot",
        "-machine",
        "pc-q35-7.2,i8042=off,sata=off,smbus=off,usb=off",
        "-accel",
        "tcg",
        "-m",
        "16M",
    ];
    let mut args: Vec<OsString> = BARE.map(OsString::from).to_vec();
    for pair in arguments.windows(2) {
        let [option, value] = pair else { continue };
        let text = value.to_string_lossy();
        let is_monitor = (option == "-chardev" && text.contains("id=monitor,"))
            || (option == "-mon" && text.contains("chardev=monitor,"));
        if is_monitor || CONFINEMENT.iter().any(|argument| option == argument) {
            args.extend([option.clone(), value.clone()]);
        }
    }
    args.extend(["-chardev".into(), format!("socket,id=chaos,fd={monitor}").into()]);
    args.extend(["-mon".into(), "chardev=chaos,mode=control".into()]);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_qemu_gets_the_monitor_and_the_confinement() {
        let given = "/x/qemu-system-x86_64 -nodefaults -sandbox on,spawn=deny -chardev socket,id=monitor,fd=902 -mon \
                     chardev=monitor,mode=control -chardev file,id=agent,path=/dev/fd/901 -kernel k -initrd i";
        let given: Vec<OsString> = given.split_whitespace().map(OsString::from).collect();
        assert!(is_started_as_qemu(&given[0]));
        assert_eq!(home(&given), Path::new("/x"));
        let args = machine(&given, 7);
        let text: Vec<_> = args.iter().map(|argument| argument.to_string_lossy()).collect();
        let text = text.join(" ");
        assert!(text.contains("-sandbox on,spawn=deny -chardev socket,id=monitor,fd=902"), "{text}");
        assert!(text.contains("fd=7") && !text.contains("agent") && !text.contains("-kernel"), "{text}");
    }
}
