// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads that run any program: `command`, and `fio`, a command with fixed arguments and
//! metrics.

use bpfassay_study::{Study, WorkloadKind};

use super::{GOOD, parse};

/// Parses [`GOOD`] with a workload of type `command` in place of its own.
fn command(lines: &str) -> Result<Study, String> {
    let workload = format!("type = \"command\"\n{lines}");
    parse(&GOOD.replace("options = \"-a POSIX -w -r -t 256k -b 4m\"", &workload)).map_err(|error| error.to_string())
}

#[test]
fn a_command_declares_how_it_is_read() {
    let source = "source = { guest = { program = \"/bin/x\" } }";
    let figure = "name = \"rate\", unit = \"1/s\", better = \"higher\"";
    let study = command(&format!(
        "{source}\narguments = [\"-v\", \"{{directory}}\"]\ndeadline = \"10min\"\n\
         figures = [{{ {figure}, pattern = '^(?<value>\\d+)$' }}]\nbytes = {{ readv = {{ pointer = \"/b\" }} }}"
    ))
    .unwrap();
    let WorkloadKind::Command(spec) = &study.workload("w").unwrap().kind else { panic!("{study:?}") };
    assert_eq!((spec.deadline_ms, spec.figures[0].name.to_string()), (600_000, "rate".to_owned()));
    assert!(spec.bytes.contains_key(&bpfassay_protocol::Operation::Readv));
    // The guest reports the program's end before the host gives up.
    assert!(study.deadlines.workload_ms > 600_000);

    for (lines, said) in [
        ("", "key `source` is missing"),
        ("source = { object = { path = \"a.o\" } }", "unknown key `object`"),
        ("source = { binary = { arch = \"x86_64\", path = \"x\", kernels = \"6.1\" } }", "unknown key `kernels`"),
        ("source = { guest = { program = \"x\" } }", "give a program by its absolute path"),
        ("source = { binary = { arch = \"x86_64\", path = \"../x\" } }", "give a path below the directory"),
        ("SOURCE\nfigure = []", "did you mean `figures`?"),
        ("SOURCE\nfigures = [{ FIGURE }]", "give either `pattern` or `pointer`"),
        ("SOURCE\nfigures = [{ FIGURE, pattern = 'a' }]", "it has no group `(?<value>…)`"),
        ("SOURCE\nfigures = [{ FIGURE, pattern = '(' }]", "no regular expression"),
        ("SOURCE\nfigures = [{ FIGURE, pointer = 'a' }]", "give a JSON pointer"),
        ("SOURCE\nfigures = [{ FIGURE, pointer = '/a' }, { FIGURE, pointer = '/b' }]", "exists already"),
        ("SOURCE\nfigures = [{ name = \"work\", unit = \"s\", better = \"lower\", pointer = '/a' }]", "another row"),
        ("SOURCE\nfigures = [{ name = \"A b\", unit = \"s\", better = \"lower\", pointer = '/a' }]", "at most 24"),
        ("SOURCE\nfigures = [{ name = \"a\", unit = \"s\", better = \"more\", pointer = '/a' }]", "higher, lower"),
        ("SOURCE\nbytes = { wirte = { pointer = '/a' } }", "did you mean `write`?"),
        ("SOURCE\nbytes = { open = { pointer = '/a' } }", "no operation of that name moves data"),
        ("SOURCE\ndeadline = \"1ms\"", "is not from 1000 ms"),
    ] {
        let lines = lines.replace("SOURCE", source).replace("FIGURE", figure);
        let message = command(&lines).unwrap_err();
        assert!(message.contains(said), "{lines}: {message}");
    }
    let nameless = format!("{GOOD}\n[[workloads]]\ntype = \"command\"\n{source}\n");
    assert!(parse(&nameless).unwrap_err().to_string().contains("key `name` is missing"));
}

#[test]
fn fio_is_a_command() {
    let study =
        parse(&GOOD.replace("options = \"-a POSIX -w -r -t 256k -b 4m\"", "type = \"fio\"\naccess = \"random\""))
            .unwrap();
    let WorkloadKind::Command(spec) = &study.workload("w").unwrap().kind else { panic!("{study:?}") };
    let arguments = spec.arguments.join(" ");
    for option in [
        "--rw=randwrite",
        "--rw=randread",
        "--size=4194304",
        "--bs=4096",
        "--randrepeat=1",
        "--thread",
        "--ioengine=psync",
    ] {
        assert!(arguments.contains(option), "{arguments}");
    }
    let names: Vec<String> = spec.figures.iter().map(|figure| figure.name.to_string()).collect();
    assert!(
        names.len() == 6
            && names.iter().any(|name| name == "write-latency")
            && names.iter().all(|name| !name.is_empty()),
        "{names:?}"
    );
    assert_eq!(spec.bytes.len(), 2);
    // Shortened start of the output of fio 3.39.
    let job = |one: &str, other: &str| {
        format!(
            r#"{{"jobname":"{one}","{one}":{{"io_bytes":4194304,"bw":2048,"iops":512.5,"lat_ns":{{"mean":1234.5}}}},"{other}":{{"io_bytes":0}}}}"#
        )
    };
    let output = format!(r#"{{"fio version":"fio-3.39","jobs":[{},{}]}}"#, job("write", "read"), job("read", "write"));
    assert_eq!(study.workload("w").unwrap().unreadable(&output), None);
    assert!(
        study
            .workload("w")
            .unwrap()
            .unreadable(&output.replace("iops", "x"))
            .unwrap()
            .contains("the figure write-iops: there is nothing at")
    );
}
