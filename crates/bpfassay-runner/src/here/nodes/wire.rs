// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of JSON between the command and the relay of each node (through srun's standard streams),
//! and between a relay and the processes of its own node (through sockets without a place in the
//! file system). A line is bounded; whatever is none of these messages ends the connection.

use std::{collections::BTreeMap, ffi::OsStr, io, path::PathBuf};

use bpfassay_protocol::{frame::MAX_PAYLOAD, job::Job, message::GuestMessage, run_name};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Longest line between command and relay, in bytes: a message of the agent, and what is around it.
pub(super) const MAX_LINE: usize = MAX_PAYLOAD + (64 << 10);

/// Longest line between processes of one node, in bytes: the arguments of IOR, or a problem.
pub(super) const MAX_LOCAL: usize = 256 << 10;

/// What the command sends to a relay.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "to_node", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToNode {
    /// First line: what the agent of this node is to do.
    Begin(Box<Begin>),
    /// IOR has ended, or is not started: what waits in place of it ends.
    Over {
        /// Why there is nothing to measure; `None`: IOR succeeded.
        problem: Option<String>,
    },
}

/// What the agent of a node is to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    /// Where the file system under test is mounted.
    pub(super) mount: PathBuf,
    /// What the agent does.
    pub(super) job: Job,
    /// Whether the first rank of IOR, which writes the summary, is of this node.
    pub(super) is_first: bool,
}

/// What a relay sends to the command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "from_node", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromNode {
    /// The agent has been started; these are the programs, by name, with their SHA-256.
    Begun {
        /// The programs.
        programs: BTreeMap<String, String>,
    },
    /// A message of the agent.
    Message(Box<GuestMessage>),
    /// The agent has begun a run and waits for IOR.
    Waiting(Waiting),
    /// The agent is gone: how it ended. Nothing follows.
    Ended {
        /// How, as the system reports it; `None`: it exited with 0, after it had reported that all
        /// is done, or what it failed at.
        problem: Option<String>,
    },
}

/// What the agent of a node started in place of IOR.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Waiting {
    /// The arguments of IOR.
    pub(super) arguments: Vec<String>,
    /// Its working directory, on the file system under test.
    pub(super) directory: PathBuf,
    /// How many ranks have joined the run on this node so far: 0 when it begins.
    #[serde(default)]
    pub(super) ranks: u32,
}

impl Waiting {
    /// Whether it is the IOR of this run, by the directory that the agent has made for it.
    pub(super) fn is_of(&self, run: &str) -> bool {
        self.directory.file_name() == Some(OsStr::new(&run_name::of(run)))
    }
}

/// What a process of the node sends to the relay.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "to_relay", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToRelay {
    /// It stands in the place of IOR, in the cgroup (v2) of the run.
    Stand {
        /// The arguments of IOR.
        arguments: Vec<String>,
        /// Its working directory.
        directory: PathBuf,
        /// Its cgroup, from the root of the hierarchy.
        cgroup: String,
    },
    /// It is a rank of IOR.
    Rank,
}

/// What the relay answers to such a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "from_relay", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromRelay {
    /// IOR has ended. To what stands in its place.
    Over {
        /// Why there is nothing to measure.
        problem: Option<String>,
        /// Whether the summary is written on this node, by the first rank.
        is_first: bool,
    },
    /// To a rank: the cgroup that it has to join.
    Join {
        /// From the root of the hierarchy.
        cgroup: String,
    },
    /// To a rank: there is no run that it could be one of.
    NoRun,
}

/// A line that has `message`.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] where it has no JSON form.
pub(super) fn line<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    line.push(b'\n');
    Ok(line)
}

/// The message in `line`.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] where it has none of this kind.
pub(super) fn message<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    serde_json::from_slice(line).map_err(|error| {
        let begins: String = String::from_utf8_lossy(line).chars().take(80).collect();
        io::Error::new(io::ErrorKind::InvalidData, format!("`{begins}` is no message ({error})"))
    })
}

/// The next message of `reader`; `None` where it has ended.
///
/// # Errors
/// Those of reading; [`io::ErrorKind::InvalidData`] for a line that is longer than `most`, ends
/// without a newline, or has no such message.
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
        let waiting = Waiting { arguments: Vec::new(), directory, ranks: 0 };
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
