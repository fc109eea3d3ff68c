// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages of our crates, through `tracing`.

use std::fmt::{self, Debug};

use bpfassay_results::plain;
use tracing::field::{Field, Visit};
use tracing_subscriber::{
    Layer as _,
    field::RecordFields,
    filter::Targets,
    fmt::{FormatFields, format::Writer},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::{coloured_stderr, colours, stderr};

/// The largest number of shown characters of a field.
const MOST: usize = 4000;

/// The filters by how often `-v` is given.
const DEFAULT_FILTERS: [&str; 3] = [
    "warn,bpfassay=info,bpfassay_packages=info,bpfassay_testbed=info,bpfassay_vm=warn,bpfassay_runner=warn,bpfassay_here=warn",
    "warn,bpfassay=debug,bpfassay_packages=debug,bpfassay_testbed=debug,bpfassay_vm=debug,bpfassay_runner=debug,bpfassay_here=debug",
    "trace",
];

/// Sends messages to standard error. Our own crates report their steps (`-v`: more, `-vv`:
/// everything), and others only problems. `RUST_LOG` overrides both.
pub(crate) fn log_to_stderr(verbose: u8) {
    let filter = std::env::var("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(colours(&stderr().stream))
        .fmt_fields(EscapedFields)
        .with_writer(coloured_stderr)
        // If standard error is closed, a message about that would end the thread that writes it.
        .log_internal_errors(false)
        .with_target(false)
        .without_time();
    let filter = filter.unwrap_or_else(|| DEFAULT_FILTERS[usize::from(verbose).min(2)].parse().unwrap_or_default());
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

/// Formats every field on one line, with every hazard escaped: messages contain foreign text, too.
struct EscapedFields;

impl<'writer> FormatFields<'writer> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut shown = EscapedWriter { writer, is_first: true, result: Ok(()) };
        fields.record(&mut shown);
        shown.result
    }
}

struct EscapedWriter<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    result: fmt::Result,
}

impl EscapedWriter<'_> {
    fn show(&mut self, field: &Field, value: &str) {
        let between = if std::mem::take(&mut self.is_first) { "" } else { " " };
        let value = plain::excerpt(value, MOST);
        let written = match field.name() {
            "message" => write!(self.writer, "{between}{value}"),
            name => write!(self.writer, "{between}{name}={value}"),
        };
        self.result = self.result.and(written);
    }
}

impl Visit for EscapedWriter<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.show(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.show(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use super::*;
    use crate::output::EscapedStream;

    #[derive(Clone, Default)]
    struct KeptText(Arc<Mutex<Vec<u8>>>);

    impl Write for KeptText {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn colours_are_ours_only() {
        let kept = KeptText::default();
        let stream = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(true)
            .fmt_fields(EscapedFields)
            .with_writer(move || EscapedStream { stream: stream.clone(), colours: true })
            .with_target(false)
            .without_time()
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let theirs = "a\x1b[31mred\x1b]0;title\x07\nforged \u{9b}2J\u{202e}";
            tracing::warn!(block = theirs, error = %theirs, "{theirs}");
        });
        let shown = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert!(shown.contains("\x1b[33m WARN\x1b[0m"), "{shown:?}");
        assert_eq!(shown.matches('\x1b').count(), 2, "{shown:?}");
        assert_eq!(shown.matches(r"a\x1b[31mred\x1b]0;title\x07 forged \u{9b}2J\u{202e}").count(), 3, "{shown:?}");
        assert_eq!(shown.matches('\n').count(), 1, "{shown:?}");
    }
}
