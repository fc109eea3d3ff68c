// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of JSON between the command and the relay of each node through srun's standard streams,
//! and between a relay and the processes of its node through abstract sockets. The length of a line
//! is limited, and an unknown message ends the connection.

use std::{collections::BTreeMap, ffi::OsStr, io, path::PathBuf};

use bpfassay_protocol::{frame::MAX_PAYLOAD, job::Job, message::GuestMessage, run_name};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Longest line between command and relay, in bytes: a message of the agent with its envelope.
pub(super) const MAX_LINE: usize = MAX_PAYLOAD + (64 << 10);

/// Longest line between processes of one node, in bytes: the arguments of IOR, or a problem.
pub(super) const MAX_LOCAL: usize = 256 << 10;

/// A message of the command to a relay.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "to_node", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToNode {
    /// First line: the work of the node's agent.
    Begin(Box<Begin>),
    /// IOR has ended or will not start, so the stand-in ends.
    Over {
        /// Why there is nothing to measure; `None` if IOR succeeded.
        problem: Option<String>,
    },
}

/// The work of a node's agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    /// The mount point of the file system under test.
    pub(super) mount: PathBuf,
    pub(super) job: Job,
    /// Whether this node has the first rank of IOR, which writes the summary.
    pub(super) is_first: bool,
}

/// A message of a relay to the command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "from_node", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromNode {
    /// The agent has been started.
    Begun {
        /// SHA-256 of each program, by the program's name.
        programs: BTreeMap<String, String>,
    },
    /// A message of the agent.
    Message(Box<GuestMessage>),
    /// The agent has begun a run and waits for IOR.
    Waiting(WaitingStandIn),
    /// The agent has ended. Nothing follows.
    Ended {
        /// The agent's exit status as the system describes it. `None` if it exited with 0, after it
        /// had reported that everything is done, or a failure.
        problem: Option<String>,
    },
}

/// The stand-in that a node's agent started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitingStandIn {
    /// The arguments of IOR.
    pub(super) arguments: Vec<String>,
    /// The working directory of IOR, on the file system under test.
    pub(super) directory: PathBuf,
    /// Number of ranks that have joined the run on this node: 0 when it begins.
    #[serde(default)]
    pub(super) ranks: u32,
}

impl WaitingStandIn {
    /// Returns whether the stand-in belongs to `run`, whose agent made a directory for it.
    pub(super) fn is_of(&self, run: &str) -> bool {
        self.directory.file_name() == Some(OsStr::new(&run_name::of(run)))
    }
}

/// A message of a process of the node to the relay.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "to_relay", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToRelay {
    /// The process is the stand-in, in the cgroup (v2) of the run.
    Stand {
        /// The arguments of IOR.
        arguments: Vec<String>,
        /// The working directory of the process.
        directory: PathBuf,
        /// The cgroup of the process, from the root of the hierarchy.
        cgroup: String,
    },
    /// The process is a rank of IOR.
    Rank,
}

/// The relay's answer to a process of its node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "from_relay", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromRelay {
    /// To the stand-in: IOR has ended.
    Over {
        /// Why there is nothing to measure.
        problem: Option<String>,
        /// Whether the first rank writes the summary on this node.
        is_first: bool,
    },
    /// The cgroup that a rank has to join.
    Join {
        /// The cgroup, from the root of the hierarchy.
        cgroup: String,
    },
    /// No run is being measured that a rank could join.
    NoRun,
}

/// Encodes `message` as a line.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it has no JSON form.
pub(super) fn line<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    line.push(b'\n');
    Ok(line)
}

/// Decodes the message in `line`.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is not a message of this type.
pub(super) fn message<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|error| {
        let begins: String = String::from_utf8_lossy(line).chars().take(80).collect();
        io::Error::new(io::ErrorKind::InvalidData, format!("`{begins}` is no message ({error})"))
    })
}

/// Reads the next message; `None` at the end of `reader`.
///
/// # Errors
/// The reader's error. [`io::ErrorKind::InvalidData`] for a line that is longer than `most`, has no
/// newline, or is not a message of this type.
pub(super) async fn next<T: DeserializeOwned>(
    reader: &mut (impl AsyncBufRead + Unpin),
    most: usize,
) -> io::Result<Option<T>> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut whole = Vec::new();
    loop {
        let read = reader.fill_buf().await?;
        if read.is_empty() {
            return match whole.is_empty() {
                true => Ok(None),
                false => Err(wrong("it ended within a line")),
            };
        }
        let end = read.iter().position(|&byte| byte == b'\n');
        let (part, taken) = end.map_or((read, read.len()), |end| (&read[..end], end + 1));
        if whole.len() + part.len() > most {
            return Err(wrong("a line is longer than any message"));
        }
        whole.extend_from_slice(part);
        reader.consume(taken);
        if end.is_some() {
            return message(&whole).map(Some);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    async fn read(text: &[u8], most: usize) -> io::Result<Vec<FromRelay>> {
        let mut reader = BufReader::with_capacity(3, text);
        let mut all = Vec::new();
        while let Some(message) = next(&mut reader, most).await? {
            all.push(message);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn messages_are_lines_of_bounded_length() {
        let join = line(&FromRelay::Join { cgroup: "/a\n".to_owned() }).unwrap();
        let two = [join.clone(), line(&FromRelay::NoRun).unwrap()].concat();
        let found = read(&two, join.len()).await.unwrap();
        assert!(matches!(found.as_slice(), [FromRelay::Join { cgroup }, FromRelay::NoRun] if cgroup == "/a\n"));
        assert!(read(&two, join.len() - 2).await.unwrap_err().to_string().contains("longer"));
        assert!(read(&two[..two.len() - 1], 100).await.unwrap_err().to_string().contains("within a line"));
        let unknown = br#"{"from_relay":"join","cgroup":"/","more":1}"#;
        assert!(read(&[unknown.as_slice(), b"\n"].concat(), 100).await.unwrap_err().to_string().contains("no message"));
    }

    #[test]
    fn what_waits_is_of_the_run_whose_directory_it_is_in() {
        let directory = PathBuf::from("/scratch/.bpfassay-here-1").join(run_name::of("posix_r1_fexit@aya"));
        let waiting = WaitingStandIn { arguments: Vec::new(), directory, ranks: 0 };
        assert!(waiting.is_of("posix_r1_fexit@aya"));
        assert!(!waiting.is_of("posix_r1_none") && !waiting.is_of(""));
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_survived(text: Vec<u8>) {
            let _ = message::<FromNode>(&text);
            let _ = message::<ToRelay>(&text);
        }
    }
}
