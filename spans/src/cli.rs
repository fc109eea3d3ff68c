// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};

use crate::{
    attach::Way,
    export::Limits,
    otlp::{OtlpReceiver, Protocol, ReceiverUri},
};

/// Traces MPI-IO: each call becomes a span of OpenTelemetry. Traces all processes that use an MPI
/// library, until SIGINT or SIGTERM.
#[derive(Debug, Clone, Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Exit status: 0 where every event became a span that the receiver took, 4 where some were lost (the last line counts them), 3 where the \
                  kernel refuses the programs, 2 for invalid arguments, 1 for everything else."
)]
pub(crate) struct SpansArguments {
    /// Do something other than tracing.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// An MPI library or a static program (at most four times).
    #[arg(long = "library", value_name = "FILE", required = true)]
    pub libraries: Vec<PathBuf>,
    /// The receiver, http://HOST:PORT [default: the usual port on this machine].
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub endpoint: Option<ReceiverUri>,
    /// How spans are sent.
    #[arg(long, value_enum, default_value = "grpc", env = "OTEL_EXPORTER_OTLP_PROTOCOL")]
    pub protocol: Protocol,
    /// The name of the service in the spans.
    #[arg(long, value_name = "NAME", default_value = "mpi-io", env = "OTEL_SERVICE_NAME")]
    pub service: String,
    /// Leave out system calls within calls. Their tracepoints need tracefs at /sys/kernel/tracing,
    /// and the kernel's BTF.
    #[arg(long)]
    pub no_system_calls: bool,
    /// How uprobes are attached [default: together if the kernel can].
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) uprobes: Option<Way>,
    /// Size of the ring buffer of events, a power of two.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = ring_bytes)]
    pub ring_bytes: u32,
    /// Most spans that wait to be sent. If there are more, events stay in the ring buffer.
    #[arg(long, value_name = "SPANS", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queue: u32,
    /// Most spans in a message.
    #[arg(long, value_name = "SPANS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: u32,
    /// How long a span waits for others in its message.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub delay: u64,
    /// How long the receiver may take to answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub timeout: u64,
    /// How long a message is repeated if the receiver asks for that or is out of reach.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub patience: u64,
    /// How long the rest may take to be sent at the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub flush: u64,
}

/// Commands that do not trace.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Command {
    /// Compare spans with Darshan's record of the same run: bytes by rank and by time, as lines of
    /// JSON.
    ///
    /// Exit status: 0 if all bytes are equal (by rank as far as Darshan has ranks), 4 if they
    /// differ.
    Darshan {
        /// The spans as a collector's file exporter writes them: one OTLP message in JSON per line.
        #[arg(long, value_name = "FILE")]
        spans: PathBuf,
        /// The output of `darshan-parser` for the log.
        #[arg(long, value_name = "FILE")]
        parsed: PathBuf,
    },
}

/// Parses a size of the ring buffer.
fn ring_bytes(text: &str) -> Result<u32, String> {
    let bytes: u32 = text.parse().map_err(|error| format!("{error}"))?;
    let is_possible = bytes.is_power_of_two() && (1 << 16..=1 << 30).contains(&bytes);
    if is_possible { Ok(bytes) } else { Err("it is not a power of two from 65536 to 1073741824".to_owned()) }
}

impl SpansArguments {
    /// Returns the limits for sending spans.
    #[must_use]
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            queue: self.queue as usize,
            batch: self.batch as usize,
            delay: Duration::from_millis(self.delay),
            patience: Duration::from_secs(self.patience),
            flush: Duration::from_secs(self.flush),
        }
    }

    /// Returns the receiver.
    ///
    /// # Errors
    /// If a default of [`Protocol::usual_endpoint`] is not an address, which does not happen.
    pub(crate) fn target(&self) -> Result<OtlpReceiver, String> {
        let endpoint = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => self.protocol.usual_endpoint().parse()?,
        };
        let timeout = Duration::from_secs(self.timeout);
        Ok(OtlpReceiver { endpoint, protocol: self.protocol, timeout, service: self.service.clone() })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<SpansArguments, clap::Error> {
        SpansArguments::try_parse_from([&["bpfassay-spans", "--library", "libmpi.so"], arguments].concat())
    }

    #[test]
    fn defaults_are_those_of_a_collector_on_this_machine() {
        let of = |arguments| parse(arguments).unwrap().target().unwrap();
        assert_eq!(of(&[]).endpoint, "http://127.0.0.1:4317".parse().unwrap());
        let http = of(&["--protocol", "http/protobuf"]);
        assert_eq!((http.endpoint, http.protocol), ("http://127.0.0.1:4318".parse().unwrap(), Protocol::Http));
        assert_eq!(parse(&[]).unwrap().limits().queue, 65_536);
    }

    /// Sources without the pages (Nix, a package) have nothing to compare.
    #[test]
    fn the_page_names_options_that_exist() {
        let Ok(page) = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/spans.md")) else {
            return;
        };
        let command = SpansArguments::command();
        let of = |command: &clap::Command| -> Vec<String> {
            command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
        };
        let known = [of(&command), command.get_subcommands().flat_map(of).collect()].concat();
        let is_part = |c: char| !(c.is_ascii_lowercase() || c == '-');
        let named: Vec<&str> = page.split(is_part).filter_map(|word| word.strip_prefix("--")).collect();
        let of_others = ["release", "help"];
        let unknown: Vec<&&str> = named
            .iter()
            .filter(|name| name.starts_with(char::is_alphabetic) && !of_others.contains(name))
            .filter(|name| !known.iter().any(|option| option == **name))
            .collect();
        assert!(named.len() > 10 && unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        assert!(SpansArguments::try_parse_from(["bpfassay-spans"]).is_err());
        for wrong in [
            ["--ring-bytes", "100000"],
            ["--ring-bytes", "4096"],
            ["--queue", "0"],
            ["--batch", "2000"],
            ["--endpoint", "https://collector"],
            ["--protocol", "http/json"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse(&["--ring-bytes", "65536"]).unwrap().ring_bytes, 65536);
        assert!(parse(&["darshan", "--spans", "a", "--parsed", "b"]).is_err(), "it traces nothing");
        let darshan =
            SpansArguments::try_parse_from(["bpfassay-spans", "darshan", "--spans", "a", "--parsed", "b"]).unwrap();
        assert!(matches!(darshan.command, Some(Command::Darshan { .. })));
    }
}
