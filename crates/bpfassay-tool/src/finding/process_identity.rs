// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of a process, by kind.

use bpfassay_protocol::tracer_messages::Task;

/// The names that a tool can use for a thread and its process, by kind. Empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessNames {
    /// The id of the process.
    pub id: Vec<String>,
    /// The id of the thread, and both ids in one number (`bpf_get_current_pid_tgid`).
    pub thread: Vec<String>,
    /// The name of the thread.
    pub name: Vec<String>,
}

impl From<&Task> for ProcessNames {
    fn from(task: &Task) -> Self {
        let thread = task.thread.unwrap_or(task.process);
        let both = u64::from(task.process) << 32 | u64::from(thread);
        Self {
            id: vec![task.process.to_string()],
            thread: vec![thread.to_string(), both.to_string()],
            name: vec![task.name.clone()],
        }
    }
}

/// The kind of name that a tool uses for processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessKey {
    /// The process id.
    Id,
    /// The thread id.
    Thread,
    /// The name of the thread.
    Name,
}

impl ProcessKey {
    pub(super) const ALL: [Self; 3] = [Self::Id, Self::Thread, Self::Name];

    pub(super) fn names(self, process: &ProcessNames) -> &[String] {
        match self {
            Self::Id => &process.id,
            Self::Thread => &process.thread,
            Self::Name => &process.name,
        }
    }

    /// Text for messages if names of this kind are unknown.
    pub(super) const fn unknown(self) -> &'static str {
        match self {
            Self::Id => "which process, by its id,",
            Self::Thread => "which thread",
            Self::Name => "which process, by its name,",
        }
    }
}
