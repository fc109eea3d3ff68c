// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutations of inputs. The same seed and number give the same input on every machine.

use bpfassay_stats::random::Generator;

use crate::MAX_INPUT;

/// Numbers at which readers tend to fail.
const NUMBERS: [&[u8]; 16] = [
    b"0",
    b"1",
    b"-1",
    b"65536",
    b"2147483648",
    b"4294967295",
    b"4294967296",
    b"9007199254740993",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"1e308",
    b"1e999",
    b"0x7fffffff",
];

/// Words and bytes with a meaning for some reader.
const TOKENS: [&[u8]; 26] = [
    b"\0",
    b"\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\x",
    b"\\134",
    b"{",
    b"}",
    b"[",
    b"]",
    b"=",
    b":",
    b",",
    b"-",
    b"#",
    b"null",
    b"true",
    b"nan",
    b"\x1b[2J",
    b"\xff\xfe",
    b"\xf0\x9f\x92\xa9",
    b"\xe2\x80\xae",
];

/// Integers in binary formats.
const BINARY: [u64; 9] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, u64::MAX];

/// Returns input `number` of the stream `seed`, made from `corpus`.
#[must_use]
pub fn input(corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let mut random = Generator::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = match corpus.get(random.index(corpus.len())) {
        // The first inputs are those of the corpus, unchanged.
        Some(_) if number < corpus.len() as u64 => return corpus[number as usize].clone(),
        // Sometimes, noise.
        Some(chosen) if random.index(50) != 0 => chosen.clone(),
        _ => (0..random.index(200)).map(|_| random.next_u64() as u8).collect(),
    };
    for _ in 0..1 + random.index(6) {
        mutate(&mut bytes, corpus, &mut random);
        bytes.truncate(MAX_INPUT);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Generator) {
    let at = random.index(bytes.len() + 1);
    let one_of = |list: &[&'static [u8]], random: &mut Generator| list[random.index(list.len())];
    match random.index(14) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.index(8);
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next_u64() as u8;
            }
        }
        3 => drop(bytes.splice(at..at, one_of(&TOKENS, random).iter().copied())),
        4 => drop(bytes.splice(number(bytes, at), one_of(&NUMBERS, random).iter().copied())),
        5 => {
            let value = binary(random);
            let end = bytes.len().min(at + value.len());
            bytes.splice(at..end, value);
        }
        6 => {
            let end = bytes.len().min(at + 1 + length(random));
            bytes.drain(at..end);
        }
        7 => bytes.truncate(at),
        8 => {
            let piece = piece(bytes, random).to_vec();
            bytes.splice(at..at, piece);
        }
        9 => {
            // Repetition: nesting, long tokens, many lines.
            let size = 1 + random.index(40);
            let start = at.min(bytes.len().saturating_sub(size));
            let unit = bytes[start..bytes.len().min(start + size)].to_vec();
            let times = 2 << random.index(10);
            bytes.splice(start..start, unit.repeat(times.min(MAX_INPUT / unit.len().max(1))));
        }
        10 => {
            if let Some(other) = corpus.get(random.index(corpus.len())) {
                let piece = piece(other, random).to_vec();
                let end = if random.index(2) == 0 { at } else { bytes.len().min(at + piece.len()) };
                bytes.splice(at..end, piece);
            }
        }
        11 => line(bytes, at, random),
        12 => {
            let start = random.index(bytes.len() + 1);
            let size = length(random).min(bytes.len() - at.max(start));
            bytes.copy_within(start..start + size, at);
        }
        _ => {
            let unit = one_of(&TOKENS, random);
            let many = unit.repeat(1 << random.index(13));
            bytes.splice(at..at, many);
        }
    }
}

/// Draws a binary number of any size and byte order.
fn binary(random: &mut Generator) -> Vec<u8> {
    let value = BINARY[random.index(BINARY.len())].to_le_bytes();
    let mut value = value[..[1, 2, 4, 8][random.index(4)]].to_vec();
    if random.index(2) == 0 {
        value.reverse();
    }
    value
}

/// Draws a length, mostly a short one.
fn length(random: &mut Generator) -> usize {
    let bound = 4 << random.index(9);
    random.index(bound)
}

fn piece<'a>(bytes: &'a [u8], random: &mut Generator) -> &'a [u8] {
    let start = random.index(bytes.len() + 1);
    let end = bytes.len().min(start + length(random));
    &bytes[start..end]
}

/// Returns the range of the digits at or after `at`.
fn number(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|first| at + first) else { return at..at };
    let end =
        bytes[start..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |digits| start + digits);
    start..end
}

/// Removes, moves or duplicates the line at `at`.
fn line(bytes: &mut Vec<u8>, at: usize, random: &mut Generator) {
    let start = bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let end = bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| at + end + 1);
    let line = bytes[start..end].to_vec();
    if random.index(3) != 0 {
        bytes.drain(start..end);
    }
    if random.index(3) != 0 {
        let to = random.index(bytes.len() + 1);
        let to = bytes[to..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| to + end + 1);
        bytes.splice(to..to, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_depend_on_seed_and_number_alone_and_stay_bounded() {
        let corpus = [b"a 12 b\nline\n".to_vec(), vec![0; MAX_INPUT], Vec::new()];
        let inputs = |seed| (0..500).map(|number| input(&corpus, seed, number)).collect::<Vec<_>>();
        let first = inputs(1);
        assert_eq!(first, inputs(1));
        assert_ne!(first, inputs(2));
        assert_eq!(first[..3], corpus);
        assert!(first.iter().all(|input| input.len() <= MAX_INPUT));
        assert!(first[3..].iter().filter(|input| !corpus.contains(input)).count() > 400);
    }

    #[test]
    fn without_a_corpus_there_is_noise() {
        assert!((0..100).any(|number| input(&[], 1, number).len() > 20));
    }
}
