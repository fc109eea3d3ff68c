// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOR's directives: `key=value`, in scripts and after `-O`.

use crate::{
    OptionsError,
    error::shown,
    ior_options::{AccessOrder, Api, MmapOptions, Options, Packet, PosixOptions, ReorderRandom},
    ior_output::{Output, SummaryFormat},
};

/// The destination of directives. IOR keeps the settings of the POSIX and MMAP interfaces separate
/// (see [`super::ior_script`]).
pub(crate) struct Target<'a> {
    pub(crate) options: &'a mut Options,
    pub(crate) output: &'a mut Output,
    pub(crate) posix: &'a mut PosixOptions,
    pub(crate) mmap: &'a mut MmapOptions,
}

/// Directives for features that this project does not have. Zero, their default, is accepted.
const UNSUPPORTED: &[&str] = &[
    "allocatebufferongpu",
    "debug",
    "dualmount",
    "gpudirect",
    "gpuid",
    "interiodelay",
    "memorypernode",
    "memorypertask",
    "outlierthreshold",
    "platform",
    "saveperopdatacsv",
    "saverankperformancedetailscsv",
    "summaryalways",
    "warningaserrors",
    "--warningaserrors",
    "--dryrun",
    "--randomprefill",
];

/// Applies one line of comma-separated directives. `#` starts a comment.
pub(crate) fn line(text: &str, target: &mut Target<'_>) -> Result<(), OptionsError> {
    let text = text.split('#').next().unwrap_or_default();
    for piece in text.split(',') {
        let (key, value) = split(piece).ok_or_else(|| OptionsError::Directive { text: shown(piece.trim()) })?;
        directive(key, value, target)?;
    }
    Ok(())
}

/// Returns key and value of one directive, without blanks.
fn split(piece: &str) -> Option<(&str, &str)> {
    let (key, value) = piece.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let is_word = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
    (is_word(key) && is_word(value)).then_some((key, value))
}

fn directive(key: &str, value: &str, target: &mut Target<'_>) -> Result<(), OptionsError> {
    let Target { options, output, posix, mmap } = target;
    let flag = || match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(OptionsError::bad(key, value, "0 or 1")),
    };
    let signed = || value.parse::<i32>().map_err(|_| OptionsError::bad(key, value, "a 32-bit number"));
    let unsigned = || count(value).ok_or_else(|| OptionsError::bad(key, value, "a number from 0 to 2147483647"));
    let size = || bytes(value).ok_or_else(|| OptionsError::bad(key, value, SIZE));
    let lower = key.to_ascii_lowercase();
    match lower.as_str() {
        "api" => options.api = api(key, value)?,
        "summaryfile" => output.file = Some(value.to_owned()),
        "summaryformat" => {
            output.format = SummaryFormat::from_name(value)
                .ok_or_else(|| OptionsError::bad(key, value, "one of default, JSON, CSV"))?;
        }
        "refnum" => options.reference = signed()?,
        "testfile" => options.test_file = value.to_owned(),
        "deadlineforstonewalling" => options.deadline = unsigned()?,
        "stonewallingwearout" => options.wear_out = flag()?,
        "stonewallingwearoutiterations" => {
            options.wear_out_iterations = value
                .parse::<u64>()
                .ok()
                .filter(|&n| i64::try_from(n).is_ok())
                .ok_or_else(|| OptionsError::bad(key, value, "a number from 0"))?;
        }
        "stonewallingstatusfile" => options.status_file = Some(value.to_owned()),
        "maxtimeduration" => options.max_time = unsigned()?,
        "mintimeduration" => options.min_time = unsigned()?,
        "numnodes" => options.nodes = Some(unsigned()?),
        "numtasks" => options.tasks = Some(unsigned()?),
        "numtasksonnode0" => options.tasks_on_node0 = Some(unsigned()?),
        "repetitions" => options.repetitions = unsigned()?,
        "intertestdelay" => options.inter_test_delay = unsigned()?,
        "readfile" => options.read = flag()?,
        "writefile" => options.write = flag()?,
        "fileperproc" => options.file_per_process = flag()?,
        "taskpernodeoffset" => options.task_per_node_offset = unsigned()?.try_into().unwrap_or(i32::MAX),
        "reordertasks" | "reordertasksconstant" => options.reorder_tasks = flag()?,
        "reordertasksrandom" => {
            options.reorder_random = ReorderRandom::from_level(unsigned()?.into())
                .ok_or_else(|| OptionsError::bad(key, value, "0, 1 or 2"))?;
        }
        "reordertasksrandomseed" => options.reorder_random_seed = signed()?,
        "checkwrite" => options.check_write = flag()?,
        "checkread" => options.check_read = flag()?,
        "keepfile" => options.keep = flag()?,
        "keepfilewitherror" => options.keep_with_error = flag()?,
        "multifile" => options.multi_file = flag()?,
        "segmentcount" => options.segments = size()?,
        "blocksize" => options.block_size = size()?,
        "transfersize" => options.transfer_size = size()?,
        "singlexferattempt" => options.single_attempt = flag()?,
        "intratestbarriers" => options.intra_test_barriers = flag()?,
        "verbose" => {
            options.verbose = value.parse().map_err(|_| OptionsError::bad(key, value, "a number from 0 to 255"))?;
        }
        "collective" | "--collective" => options.collective = flag()?,
        "settimestampsignature" => options.signature = signed()?,
        "datapackettype" | "--datapackettype" => options.packet = packet(key, value)?,
        "uniquedir" => options.unique_dir = flag()?,
        "useexistingtestfile" => options.use_existing = flag()?,
        "fsyncperwrite" => options.fsync_per_write = flag()?,
        "fsync" => options.fsync = flag()?,
        "randomoffset" => {
            options.order = AccessOrder::from_level(unsigned()?.into())
                .ok_or_else(|| OptionsError::bad(key, value, "0, 1 or 2"))?;
        }
        "--random-offset-seed" => options.random_seed = seed(key, value)?,
        "useo_direct" | "--posix.odirect" => posix.direct = flag()?,
        "--posix.rangelocks" => posix.range_locks = flag()?,
        "--mmap.madv_dont_need" => mmap.dont_need = flag()?,
        "--mmap.madv_pattern" => mmap.pattern = flag()?,
        other if UNSUPPORTED.contains(&other) => {
            if value != "0" {
                return Err(OptionsError::Unsupported { option: shown(key) });
            }
        }
        _ => return Err(OptionsError::UnknownOption { option: shown(key) }),
    }
    Ok(())
}

/// A description of what [`bytes`] accepts, for messages.
pub(crate) const SIZE: &str = "a number of bytes such as 8, 4k, 2m, 1g";

/// Parses a size in IOR's format: a number and maybe a letter of k, m, g, t, p (powers of 1024).
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, letter) if letter.is_ascii_alphabetic() => {
            let power = "kmgtp".find(letter.to_ascii_lowercase())? + 1;
            (&text[..at], 10 * power)
        }
        _ => (text, 0),
    };
    let value = digits_only(digits)?.parse::<u64>().ok()?;
    value.checked_mul(1 << shift).filter(|&value| i64::try_from(value).is_ok())
}

/// Parses a number from 0 that fits into IOR's `int`.
pub(crate) fn count(text: &str) -> Option<u32> {
    digits_only(text)?.parse::<u32>().ok().filter(|&value| i32::try_from(value).is_ok())
}

fn digits_only(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

/// Parses the seed of `-z`. IOR uses −1 for "none given".
pub(crate) fn seed(option: &str, value: &str) -> Result<Option<i32>, OptionsError> {
    let seed = value.parse::<i32>().map_err(|_| OptionsError::bad(option, value, "a 32-bit number"))?;
    Ok((seed != -1).then_some(seed))
}

pub(crate) fn api(option: &str, value: &str) -> Result<Api, OptionsError> {
    Api::from_name(value).ok_or_else(|| OptionsError::bad(option, value, "one of POSIX, MMAP, MPIIO"))
}

pub(crate) fn packet(option: &str, value: &str) -> Result<Packet, OptionsError> {
    Packet::from_name(value)
        .ok_or_else(|| OptionsError::bad(option, value, "one of timestamp, offset, incompressible, random"))
}
