// SPDX-License-Identifier: MIT OR Apache-2.0
//! Services that tools expect and guests lack: those that a tool file names, and those that a tool
//! reports as missing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A service that no guest has: process 1 is the agent, which starts none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Service", rename_all = "lowercase")]
pub enum MissingService {
    /// systemd with its journal.
    Systemd,
    /// The D-Bus system bus.
    DBus,
    /// containerd.
    Containerd,
    /// The Docker daemon.
    Docker,
    /// CRI-O.
    #[serde(rename = "cri-o")]
    CriO,
    /// udev.
    Udev,
}

impl MissingService {
    /// The names in tool files.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("systemd", Self::Systemd),
        ("dbus", Self::DBus),
        ("containerd", Self::Containerd),
        ("docker", Self::Docker),
        ("cri-o", Self::CriO),
        ("udev", Self::Udev),
    ];

    /// Name of the service in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::DBus => "D-Bus",
            Self::Containerd => "containerd",
            Self::Docker => "Docker",
            Self::CriO => "CRI-O",
            Self::Udev => "udev",
        }
    }
}

/// Texts by which a tool reports that a service is missing.
struct Signs {
    of: MissingService,
    /// Lower-case texts that appear only if the service is missing.
    says: &'static [&'static str],
    /// Programs, sockets and directories of the service, in lower case. A line with one of them and
    /// a text in [`MISSING`] reports the service as missing.
    parts: &'static [&'static str],
}

/// Lower-case messages of ENOENT, ECONNREFUSED and EHOSTDOWN, and the messages of shells and Go
/// about a missing program.
const MISSING: [&str; 6] = [
    "no such file or directory",
    "connection refused",
    "host is down",
    "command not found",
    ": not found",
    "executable file not found in $path",
];

const SIGNS: &[Signs] = &[
    // Sources: systemctl (src/shared/bus-util.c and src/systemctl/systemctl.c of systemd, 252),
    // go-systemd (dbus/dbus.go).
    Signs {
        of: MissingService::Systemd,
        says: &["system has not been booted with systemd as init system"],
        parts: &["/run/systemd/", "systemctl", "journalctl", "systemd-run", "org.freedesktop.systemd1"],
    },
    Signs {
        of: MissingService::DBus,
        says: &["failed to connect to bus: ", "failed to connect to system scope bus "],
        parts: &["/run/dbus/system_bus_socket", "dbus-daemon", "dbus_system_bus_address"],
    },
    Signs { of: MissingService::Containerd, says: &[], parts: &["/run/containerd/"] },
    Signs { of: MissingService::Docker, says: &["cannot connect to the docker daemon"], parts: &["/run/docker.sock"] },
    Signs { of: MissingService::CriO, says: &[], parts: &["/run/crio/"] },
    Signs { of: MissingService::Udev, says: &[], parts: &["/run/udev/", "udevadm"] },
];

/// Finds the first service that `message` reports as missing, with the line.
pub(crate) fn missing(message: &str) -> Option<(MissingService, &str)> {
    message.lines().find_map(|line| {
        let lower = line.to_lowercase();
        let has = |texts: &[&str]| texts.iter().any(|text| lower.contains(text));
        let is_missing = |signs: &&Signs| has(signs.says) || has(signs.parts) && has(&MISSING);
        SIGNS.iter().find(is_missing).map(|signs| (signs.of, line.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_that_a_tool_does_not_find_is_named() {
        let printed = [
            (
                "System has not been booted with systemd as init system (PID 1). Can't operate.\nFailed to connect to bus: Host is down",
                Some("systemd"),
            ),
            ("Failed to connect to system scope bus via local transport: No such file or directory", Some("D-Bus")),
            ("dial unix /run/systemd/private: connect: no such file or directory", Some("systemd")),
            ("dial unix /var/run/dbus/system_bus_socket: connect: no such file or directory", Some("D-Bus")),
            ("Failed to connect to socket /run/dbus/system_bus_socket: Connection refused", Some("D-Bus")),
            ("exec: \"systemctl\": executable file not found in $PATH", Some("systemd")),
            ("./start.sh: 3: systemctl: not found", Some("systemd")),
            ("dial unix /run/containerd/containerd.sock: connect: no such file or directory", Some("containerd")),
            (
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
                Some("Docker"),
            ),
            // Services that the tool found, searched in other places, or worked without.
            ("reading /run/systemd/container\n/etc/tool.conf: no such file or directory", None),
            ("/etc/systemd/tool.conf: no such file or directory", None),
            ("listening, started by systemctl", None),
            ("", None),
        ];
        for (message, expected) in printed {
            assert_eq!(missing(message).map(|(service, _)| service.name()), expected, "{message}");
        }
        let line = "its last output: a\n  dial unix /run/systemd/private: connect: no such file or directory \nb";
        let (_, quoted) = missing(line).unwrap();
        assert_eq!(quoted, "dial unix /run/systemd/private: connect: no such file or directory");
    }
}
