// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool's output as captured in a guest, not interpreted.

use bpfassay_protocol::loaded_object::{MAX_PAGE, MapPage};

use crate::Stream;

/// Everything captured in one run of a tool. Times are in nanoseconds of the guest's
/// `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCapture {
    /// Pieces of the output, in order.
    pub pieces: Vec<CapturedPiece>,
    /// Answers of the tool's endpoints, in order.
    pub pages: Vec<CapturedPage>,
    /// Contents of the tool's maps, in order.
    pub dumps: Vec<Dump>,
    /// Whether the guest dropped something because there was too much.
    pub cut: bool,
}

/// Bytes that a tool wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPiece {
    /// Time when the guest read them.
    pub at_ns: u64,
    /// The stream of the bytes.
    pub stream: Stream,
    /// The bytes. A line can begin in one piece and end in another.
    pub bytes: Vec<u8>,
}

/// One answer of an HTTP endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPage {
    /// Time of the request.
    pub at_ns: u64,
    /// Index of the endpoint, from 0.
    pub place: usize,
    /// The body of an answer with status 200.
    pub body: Vec<u8>,
}

/// One reading of a BPF map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// Time when reading began.
    pub at_ns: u64,
    /// Name of the map in the object.
    pub map: String,
    /// Copies of each value: possible CPUs for a per-CPU map, else 1. Each copy of a per-CPU map is
    /// padded to a multiple of 8 bytes (as in `bpf_percpu_hash_copy`, kernel/bpf/hashtab.c, 6.12).
    pub copies: u32,
    /// Keys and values.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Dump {
    /// Parses an answer of the bundled tracer that was requested at `at_ns`: one [`MapPage`] per
    /// map. Also returns whether some data did not fit ([`ToolCapture::cut`]).
    ///
    /// # Errors
    /// A message if the answer is too long or is not a list of such pages.
    pub fn of_answer(at_ns: u64, answer: &[u8]) -> Result<(Vec<Self>, bool), String> {
        // Pages of several maps are separated by line feeds.
        if answer.len() > MAX_PAGE + 64 {
            return Err(format!("the page of a map has {} bytes, and may have {MAX_PAGE}", answer.len()));
        }
        let mut is_cut = false;
        let dump = |page: &[u8]| {
            let MapPage { map, copies, entries, cut } = serde_json::from_slice(page)
                .map_err(|error| format!("what the tracer answers is no page of a map: {error}"))?;
            is_cut |= cut;
            let entries = entries.into_iter().map(|(key, value)| (key.0, value.0)).collect();
            Ok(Self { at_ns, map, copies, entries })
        };
        let dumps = answer.split(|&byte| byte == b'\n').map(dump).collect::<Result<_, String>>()?;
        Ok((dumps, is_cut))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_is_a_reading() {
        let page = br#"{"map":"counts","copies":2,"entries":[["01","0a00"]],"cut":true}"#;
        let dump = Dump { at_ns: 7, map: "counts".into(), copies: 2, entries: vec![(vec![1], vec![10, 0])] };
        assert_eq!(Dump::of_answer(7, page), Ok((vec![dump.clone()], true)));
        let other = br#"{"map":"other","copies":1,"entries":[],"cut":false}"#;
        let (dumps, cut) = Dump::of_answer(7, &[other.as_slice(), b"\n", page].concat()).unwrap();
        assert_eq!((dumps[0].map.as_str(), &dumps[1], cut), ("other", &dump, true));
    }

    #[test]
    fn other_pages_are_reported() {
        let error = Dump::of_answer(7, b"<html>").unwrap_err();
        assert!(error.starts_with("what the tracer answers is no page of a map: "), "{error}");
        let long = Dump::of_answer(7, &vec![b' '; MAX_PAGE + 65]).unwrap_err();
        assert_eq!(long, "the page of a map has 204865 bytes, and may have 204800");
    }

    proptest! {
        #[test]
        fn entries_come_home_as_they_were(entries in proptest::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..20), copies: u32) {
            let page = MapPage::new("counts", copies, entries.clone(), false);
            let (dumps, cut) = Dump::of_answer(3, &serde_json::to_vec(&page).unwrap()).unwrap();
            let [dump] = dumps.as_slice() else { panic!("{dumps:?}") };
            prop_assert_eq!((&dump.entries, dump.copies, cut), (&entries, copies, false));
        }

        #[test]
        fn any_bytes_end_in_a_reading_or_a_message(bytes: Vec<u8>, at in 0usize..60, byte: u8) {
            let _ = Dump::of_answer(0, &bytes);
            let mut page = br#"{"map":"counts","copies":2,"entries":[["01","0a00"]],"cut":true}"#.to_vec();
            page[at] = byte;
            let _ = Dump::of_answer(0, &page);
        }
    }
}
