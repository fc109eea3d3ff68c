// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests with input from a terminal.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

/// The text on the screen at the end of a session.
const OVER: &str = "ALLDONE";

/// Boots a guest by `bpfassay shell` in `directory` and types `session`. Returns the output before
/// the prompt, and the lines of the session.
pub(crate) fn session(directory: &Path, arguments: &str, session: &str) -> (String, Vec<String>) {
    let shell = format!("{} shell --yes {arguments}", env!("CARGO_BIN_EXE_bpfassay"));
    // A shell needs a terminal: `script` provides it.
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", &shell, "/dev/null"])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    let mut shown = String::new();
    // Skip everything before the prompt; the guest prints nothing more until it receives input.
    let mut line = Vec::new();
    while !shown.ends_with("# ") {
        line.clear();
        assert!(screen.read_until(b' ', &mut line).unwrap() > 0, "the guest went away: {shown}");
        shown.push_str(&String::from_utf8_lossy(&line));
    }
    // The typed text differs from the text to wait for.
    let typed = format!("stty -echo\n{session}\necho ALL''DONE\n");
    keyboard.write_all(typed.as_bytes()).unwrap();
    keyboard.flush().unwrap();
    let mut lines = Vec::new();
    loop {
        line.clear();
        assert!(screen.read_until(b'\n', &mut line).unwrap() > 0, "the guest went away: {}", lines.join("\n"));
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if text.ends_with(OVER) {
            break;
        }
        lines.push(text);
    }
    keyboard.write_all(b"exit\n").unwrap();
    drop(keyboard);
    // The guest powers off; its output in the meantime is discarded.
    std::io::copy(&mut screen, &mut std::io::sink()).unwrap();
    child.wait().unwrap();
    (shown, lines)
}
