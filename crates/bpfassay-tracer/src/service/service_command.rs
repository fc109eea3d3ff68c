// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands on standard input, one per line.

/// Longest label in bytes. Longer labels are refused, so that a sender without newlines is
/// detected.
const MAX_LABEL: usize = 1024;
const SAMPLE: &[u8] = b"sample ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServiceCommand {
    /// Write a sample that carries this label.
    Sample(String),
    Attach,
    Detach,
}

/// Input that is not a command.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("unknown command {line:?} on standard input: there is {}", known(*keeps_loaded))]
    Unknown { line: String, keeps_loaded: bool },
    #[error("the command `{command}` arrived on standard input while the programs are {state}")]
    Untimely { command: &'static str, state: &'static str },
    #[error("a command on standard input is longer than {MAX_LABEL} bytes")]
    TooLong,
    #[error("standard input ended inside a command ({rest:?}): end each with a newline")]
    Truncated { rest: String },
}

const fn known(keeps_loaded: bool) -> &'static str {
    if keeps_loaded { "`attach`, `detach` and `sample LABEL`" } else { "`sample LABEL` only" }
}

impl ServiceCommand {
    /// Returns the error for a command that is not valid while the programs are in this state.
    pub(crate) const fn untimely(&self, state: &'static str) -> CommandError {
        let command = match self {
            Self::Sample(_) => "sample",
            Self::Attach => "attach",
            Self::Detach => "detach",
        };
        CommandError::Untimely { command, state }
    }
}

/// Accepts bytes as they arrive and returns whole commands.
#[derive(Debug)]
pub(crate) struct Commands {
    buffer: Vec<u8>,
    /// Whether programs are attached and detached by commands.
    keeps_loaded: bool,
}

impl Commands {
    /// Creates an instance without any bytes.
    pub(crate) const fn new(keeps_loaded: bool) -> Self {
        Self { buffer: Vec::new(), keeps_loaded }
    }

    /// Adds bytes that were read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next command, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`CommandError`]. No more input is accepted then.
    pub(crate) fn next(&mut self) -> Result<Option<ServiceCommand>, CommandError> {
        let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') else {
            return if self.buffer.len() > SAMPLE.len() + MAX_LABEL { Err(CommandError::TooLong) } else { Ok(None) };
        };
        let line: Vec<u8> = self.buffer.drain(..=end).take(end).collect();
        if line.len() > SAMPLE.len() + MAX_LABEL {
            return Err(CommandError::TooLong);
        }
        match (line.as_slice(), line.strip_prefix(SAMPLE).map(str::from_utf8)) {
            (_, Some(Ok(label))) if !label.is_empty() => Ok(Some(ServiceCommand::Sample(label.to_owned()))),
            (b"attach", _) if self.keeps_loaded => Ok(Some(ServiceCommand::Attach)),
            (b"detach", _) if self.keeps_loaded => Ok(Some(ServiceCommand::Detach)),
            _ => {
                let line = String::from_utf8_lossy(&line).into_owned();
                Err(CommandError::Unknown { line, keeps_loaded: self.keeps_loaded })
            }
        }
    }

    /// Ends the input.
    ///
    /// # Errors
    /// [`CommandError::Truncated`] if a command has begun and not ended.
    pub(crate) fn finish(self) -> Result<(), CommandError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        Err(CommandError::Truncated { rest: String::from_utf8_lossy(&self.buffer).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<ServiceCommand>, CommandError> {
        let mut commands = Commands::new(false);
        commands.push(bytes);
        let mut found = Vec::new();
        while let Some(command) = commands.next()? {
            found.push(command);
        }
        commands.finish()?;
        Ok(found)
    }

    #[test]
    fn labels_are_taken_as_they_are() {
        let expected = vec![ServiceCommand::Sample("begin write 0".into()), ServiceCommand::Sample(" é".into())];
        assert_eq!(all("sample begin write 0\nsample  é\n".as_bytes()), Ok(expected));
    }

    #[test]
    fn programs_are_attached_by_command_where_they_are_kept() {
        let mut commands = Commands::new(true);
        commands.push(b"attach\nsample x\ndetach\nattached\n");
        assert_eq!(commands.next(), Ok(Some(ServiceCommand::Attach)));
        assert_eq!(commands.next(), Ok(Some(ServiceCommand::Sample("x".to_owned()))));
        assert_eq!(commands.next(), Ok(Some(ServiceCommand::Detach)));
        let error = commands.next().unwrap_err().to_string();
        assert!(error.ends_with("there is `attach`, `detach` and `sample LABEL`"), "{error}");
        let error = ServiceCommand::Attach.untimely("attached").to_string();
        assert_eq!(error, "the command `attach` arrived on standard input while the programs are attached");
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            &b"attach\n"[..],
            b"detach\n",
            b"sample\n",
            b"sample \n",
            b"\n",
            b"Sample x\n",
            b"quit\n",
            b"sample \xff\n",
        ] {
            assert!(matches!(all(wrong), Err(CommandError::Unknown { .. })), "{wrong:?}");
        }
        assert!(matches!(all(b"sample x"), Err(CommandError::Truncated { .. })));
    }

    #[test]
    fn a_line_without_end_is_refused_in_time() {
        let mut commands = Commands::new(false);
        commands.push(&[b'x'; SAMPLE.len() + MAX_LABEL]);
        assert_eq!(commands.next(), Ok(None));
        commands.push(b"x");
        assert_eq!(commands.next(), Err(CommandError::TooLong));
        assert_eq!(all(&[&b"sample "[..], &[b'x'; MAX_LABEL + 1], b"\n"].concat()), Err(CommandError::TooLong));
        assert!(all(&[&b"sample "[..], &[b'x'; MAX_LABEL], b"\n"].concat()).is_ok());
    }

    proptest! {
        #[test]
        fn commands_survive_any_fragmentation(labels in prop::collection::vec("[^\n]{1,40}", 0..8), cut in 1usize..9) {
            let stream: Vec<u8> = labels.iter().flat_map(|label| format!("sample {label}\n").into_bytes()).collect();
            let mut commands = Commands::new(false);
            let mut found = Vec::new();
            for piece in stream.chunks(cut) {
                commands.push(piece);
                while let Some(ServiceCommand::Sample(label)) = commands.next().unwrap() {
                    found.push(label);
                }
            }
            prop_assert_eq!(found, labels);
            prop_assert_eq!(commands.finish(), Ok(()));
        }

        #[test]
        fn any_bytes_end_in_a_command_an_error_or_a_wait(bytes: Vec<u8>) {
            let _ = all(&bytes);
        }
    }
}
