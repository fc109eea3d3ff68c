// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands on standard input, one per line.

/// Longest label in bytes; longer ones are refused, so that a sender without newlines is noticed.
const MAX_LABEL: usize = 1024;
const SAMPLE: &[u8] = b"sample ";

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Write a sample that carries this label.
    Sample(String),
}

/// Input that is not a command.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("unknown command {line:?} on standard input: the only one is `sample LABEL`")]
    Unknown { line: String },
    #[error("a command on standard input is longer than {MAX_LABEL} bytes")]
    TooLong,
    #[error("standard input ended inside a command ({rest:?}): end each with a newline")]
    Truncated { rest: String },
}

/// Takes bytes as they come and gives back whole commands.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    buffer: Vec<u8>,
}

impl Commands {
    /// Adds bytes read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next command, or `None` until more bytes come.
    ///
    /// # Errors
    /// [`CommandError`]; no more input is taken.
    pub(crate) fn next(&mut self) -> Result<Option<Command>, CommandError> {
        let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') else {
            return if self.buffer.len() > SAMPLE.len() + MAX_LABEL { Err(CommandError::TooLong) } else { Ok(None) };
        };
        let line: Vec<u8> = self.buffer.drain(..=end).take(end).collect();
        if line.len() > SAMPLE.len() + MAX_LABEL {
            return Err(CommandError::TooLong);
        }
        match line.strip_prefix(SAMPLE).map(str::from_utf8) {
            Some(Ok(label)) if !label.is_empty() => Ok(Some(Command::Sample(label.to_owned()))),
            _ => Err(CommandError::Unknown { line: String::from_utf8_lossy(&line).into_owned() }),
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

    fn all(bytes: &[u8]) -> Result<Vec<Command>, CommandError> {
        let mut commands = Commands::default();
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
        let expected = vec![Command::Sample("begin write 0".into()), Command::Sample(" é".into())];
        assert_eq!(all("sample begin write 0\nsample  é\n".as_bytes()), Ok(expected));
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [&b"sample\n"[..], b"sample \n", b"\n", b"Sample x\n", b"quit\n", b"sample \xff\n"] {
            assert!(matches!(all(wrong), Err(CommandError::Unknown { .. })), "{wrong:?}");
        }
        assert!(matches!(all(b"sample x"), Err(CommandError::Truncated { .. })));
    }

    #[test]
    fn a_line_without_end_is_refused_in_time() {
        let mut commands = Commands::default();
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
            let mut commands = Commands::default();
            let mut found = Vec::new();
            for piece in stream.chunks(cut) {
                commands.push(piece);
                while let Some(Command::Sample(label)) = commands.next().unwrap() {
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
