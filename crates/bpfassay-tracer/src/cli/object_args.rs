// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of the mode `object`.

use std::ffi::OsString;

use crate::service::object_service::{ObjectConfig, ObjectSource};

/// First argument of a command line of this mode.
pub(crate) const NAME: &str = "object";

/// The text of `object --help`.
pub(crate) const HELP: &str = "\
Loads an eBPF object, attaches its programs by the names of their sections, and serves maps of it over HTTP.
Programs whose sections name no target (xdp, tc) stay unattached. No map is pinned.

The first line of standard output lists what the programs read that the kernel's functions do not have. A `loaded` line has
what loading took, what the verifier's log has of each program (instructions, states, time), and what is not attached.
It accepts connections after attaching, answers `GET /map` with keys and values in hexadecimal, a line for each map, and
ends at SIGINT and SIGTERM.

Usage: bpfassay-tracer object [OPTIONS] --port PORT FILE
       bpfassay-tracer object [OPTIONS] --port PORT --bundled NAME

Exit status: 0 at a requested end, 2 for invalid arguments, 3 when the kernel or libbpf refuses the
object (after a `refused` line), 1 for anything else.

Options:
      --port PORT     The TCP port to listen on, on the loopback interface
      --bundled NAME  Load the object of a bundled tool in place of a file
      --program NAME  Load this program only; may be given several times; default: all
      --contents JSON What its maps and constants hold before anything is attached:
                      {\"set\":[{\"map\":\"NAME\",\"key\":{\"FIELD\":0},\"value\":{\"FIELD\":0}}],\"rodata\":{\"NAME\":0}}
      --map NAME      A map to serve; may be given several times; default: none
      --pin DIRECTORY Pin the links below this directory of a bpf file system, as PROGRAM-PROCESSID: they stay
                      attached after the end
  -h, --help          Print this
";

/// A request on the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ObjectRequest {
    /// Print [`HELP`].
    Help,
    Load(ObjectConfig),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectArgumentError {
    #[error("{0} (`object --help` lists the options)")]
    Syntax(#[from] lexopt::Error),
    #[error("{0} is given twice")]
    Twice(&'static str),
    #[error("--contents: {0} (`object --help` shows their form)")]
    Contents(#[source] serde_json::Error),
    #[error("{0} is missing (`object --help` lists the options)")]
    Missing(&'static str),
}

impl ObjectRequest {
    /// Reads a command line, without the names of the program and of the mode.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, ObjectArgumentError> {
        use lexopt::{
            Arg::{Long, Short, Value},
            ValueExt as _,
        };

        let (mut object, mut contents, mut pin, mut port) = (None, None, None, None);
        let (mut programs, mut maps) = (Vec::new(), Vec::new());
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(option) = parser.next()? {
            match option {
                Long("help") | Short('h') => return Ok(Self::Help),
                Long("bundled") => {
                    set(&mut object, "FILE or --bundled", ObjectSource::Bundled(parser.value()?.string()?))?
                }
                Long("program") => programs.push(parser.value()?.string()?),
                Long("contents") => {
                    let of = serde_json::from_str(&parser.value()?.string()?).map_err(ObjectArgumentError::Contents)?;
                    set(&mut contents, "--contents", of)?;
                }
                Long("map") => maps.push(parser.value()?.string()?),
                Long("pin") => set(&mut pin, "--pin", parser.value()?.into())?,
                Long("port") => set(&mut port, "--port", parser.value()?.parse()?)?,
                Value(path) => set(&mut object, "FILE or --bundled", ObjectSource::File(path.into()))?,
                other => return Err(other.unexpected().into()),
            }
        }
        let object = object.ok_or(ObjectArgumentError::Missing("FILE"))?;
        let port = port.ok_or(ObjectArgumentError::Missing("--port"))?;
        let contents = contents.unwrap_or_default();
        Ok(Self::Load(ObjectConfig { object, programs, contents, maps, pin, port }))
    }
}

fn set<T>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), ObjectArgumentError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ObjectArgumentError::Twice(name)),
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::contents::{Constant, Contents};

    use super::*;

    fn parse(line: &str) -> Result<ObjectRequest, String> {
        ObjectRequest::parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_line_names_a_file_and_a_port() {
        let args = ObjectConfig {
            object: ObjectSource::File("/x.o".into()),
            programs: vec![],
            contents: Contents::default(),
            maps: vec![],
            pin: None,
            port: 9,
        };
        assert_eq!(parse("/x.o --port 9"), Ok(ObjectRequest::Load(args)));
        let args = ObjectConfig {
            object: ObjectSource::File("x.o".into()),
            programs: vec!["a".into(), "b".into()],
            contents: Contents { rodata: [("pid".to_owned(), Constant::Number(7))].into(), ..Contents::default() },
            maps: vec!["m".into(), "n".into()],
            pin: Some("/p".into()),
            port: 65535,
        };
        assert_eq!(
            parse(
                r#"--program a --map m x.o --map n --port=65535 --pin /p --program b --contents {"rodata":{"pid":7}}"#
            ),
            Ok(ObjectRequest::Load(args))
        );
        assert_eq!(parse("x.o --help"), Ok(ObjectRequest::Help));
    }

    #[test]
    fn invalid_arguments_are_refused_with_a_reason() {
        assert_eq!(parse("x.o"), Err("--port is missing (`object --help` lists the options)".to_owned()));
        assert_eq!(parse("--port 1"), Err("FILE is missing (`object --help` lists the options)".to_owned()));
        for twice in ["x.o y.o --port 1", "x.o --bundled y --port 1"] {
            assert_eq!(parse(twice), Err("FILE or --bundled is given twice".to_owned()));
        }
        assert_eq!(parse("x.o --port 1 --port 2"), Err("--port is given twice".to_owned()));
        let contents = parse("x.o --port 1 --contents {\"sets\":[]}").unwrap_err();
        assert!(contents.starts_with("--contents: unknown field `sets`"), "{contents}");
        for wrong in ["x.o --port 65536", "x.o --port", "x.o --port 1 --probe fexit", "x.o --port 1 -x"] {
            assert!(parse(wrong).unwrap_err().contains("`object --help` lists the options"), "{wrong}");
        }
    }
}
