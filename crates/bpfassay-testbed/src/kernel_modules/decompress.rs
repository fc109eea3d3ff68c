// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounded decompression of kernel modules and kernels. The first bytes distinguish xz, zstd, gzip
//! and uncompressed content.

use std::{
    io::{self, Read},
    path::Path,
};

use super::ModulesError;

pub(super) const SUFFIXES: [&str; 3] = [".xz", ".zst", ".gz"];

/// The reason why bytes cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// The compressed stream is damaged or uses something that the decoder does not support.
    #[error("the {format} stream is damaged or cut short")]
    Damaged {
        /// The format found.
        format: &'static str,
        /// The decoder's message.
        #[source]
        source: io::Error,
    },
    /// The decompressed content exceeds the limit.
    #[error("it is larger than {limit} bytes when decompressed")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
}

/// Decompresses `bytes` to at most `limit` bytes. Returns them unchanged if they do not begin like
/// a compressed stream. Ignores everything after the first stream, because kernels have four bytes
/// after theirs.
///
/// # Errors
/// [`DecompressError`] if the stream is damaged, or has more than `limit` bytes in it.
pub fn decompress(bytes: Vec<u8>, limit: u64) -> Result<Vec<u8>, DecompressError> {
    let input = bytes.as_slice();
    let (format, result) = if input.starts_with(b"\xfd7zXZ\0") {
        ("xz", bounded(lzma_rust2::XzReader::new(input, false), limit))
    } else if input.starts_with(b"\x28\xb5\x2f\xfd") {
        let reader = ruzstd::decoding::StreamingDecoder::new(input).map_err(io::Error::other);
        ("zstd", reader.and_then(|reader| bounded(reader, limit)))
    } else if input.starts_with(b"\x1f\x8b") {
        ("gzip", bounded(flate2::bufread::GzDecoder::new(input), limit))
    } else if bytes.len() as u64 > limit {
        return Err(DecompressError::TooLarge { limit });
    } else {
        return Ok(bytes);
    };
    let output = result.map_err(|source| DecompressError::Damaged { format, source })?;
    if output.len() as u64 > limit { Err(DecompressError::TooLarge { limit }) } else { Ok(output) }
}

/// Reads at most one byte more than `limit`, which is enough to detect a longer stream.
fn bounded(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    reader.take(limit.saturating_add(1)).read_to_end(&mut output)?;
    Ok(output)
}

/// Reads and decompresses the module at `path`.
///
/// # Errors
/// [`ModulesError::Read`] if the file cannot be read or is larger than `limit`.
/// [`ModulesError::Decompress`] if its content is damaged or decompresses to more.
pub(super) fn module(path: &Path, limit: u64) -> Result<Vec<u8>, ModulesError> {
    let bytes =
        bpfassay_input::read(path, limit).map_err(|source| ModulesError::Read { path: path.to_owned(), source })?;
    decompress(bytes, limit).map_err(|source| ModulesError::Decompress { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use bpfassay_packages::test_support::lacks;
    use proptest::prelude::*;

    use super::*;

    fn compressed(program: &[&str], text: &[u8]) -> Vec<u8> {
        let mut child =
            Command::new(program[0]).args(&program[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        child.wait_with_output().unwrap().stdout
    }

    #[test]
    fn the_streams_of_the_usual_programs_are_read() {
        let text: Vec<u8> =
            (0u32..60_000).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[..2].to_vec()).collect();
        for (package, program) in [
            ("xz-utils", &["xz", "--check=crc32", "--lzma2=dict=1MiB", "-c"][..]),
            ("zstd", &["zstd", "-19", "-c", "-q"]),
            ("gzip", &["gzip", "-9", "-n", "-c"]),
        ] {
            if lacks(program[0], package) {
                continue;
            }
            let mut stream = compressed(program, &text);
            assert_ne!(stream, text);
            assert_eq!(decompress(stream.clone(), 1 << 20).unwrap(), text, "{program:?}");
            assert!(matches!(decompress(stream.clone(), 100), Err(DecompressError::TooLarge { limit: 100 })));
            let half = stream[..stream.len() / 2].to_vec();
            assert!(matches!(decompress(half, 1 << 20), Err(DecompressError::Damaged { .. })), "{program:?}");
            stream.extend(120_000u32.to_le_bytes());
            assert_eq!(decompress(stream, 1 << 20).unwrap(), text, "{program:?} with a kernel's size field behind it");
        }
    }

    #[test]
    fn what_is_not_compressed_stays_as_it_is() {
        assert_eq!(decompress(b"\x7fELF".to_vec(), 4).unwrap(), b"\x7fELF");
        assert!(decompress(b"\x7fELF".to_vec(), 3).is_err());
        assert!(decompress(Vec::new(), 3).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_bytes_or_an_error(
            magic in prop::sample::select(vec![&b"\xfd7zXZ\0"[..], b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b""]),
            rest: Vec<u8>,
        ) {
            let _ = decompress([magic, &rest].concat(), 1 << 16);
        }
    }
}
