// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal under the progress bar.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{Mutex, PoisonError},
};

use indicatif::{ProgressDrawTarget, TermLike};

use super::{filtered, stderr};

/// The largest rate at which the bar is drawn, per second.
const RATE: u8 = 20;

/// Standard error as a terminal for the progress bar: text goes through the filter, and only the
/// movements below are possible.
#[derive(Debug, Default)]
pub(crate) struct Bar {
    /// Text to draw at once.
    drawn: Mutex<String>,
}

impl Bar {
    /// Returns where the bar is drawn; hidden if standard error is not a terminal that can move the
    /// cursor.
    pub(crate) fn target() -> ProgressDrawTarget {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_dumb || !stderr().stream.is_terminal() {
            return ProgressDrawTarget::hidden();
        }
        ProgressDrawTarget::term_like_with_hz(Box::new(Self::default()), RATE)
    }

    /// Returns the width of the terminal in columns.
    pub(crate) fn columns() -> usize {
        Self::default().width().into()
    }

    fn push(&self, text: &str) {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }

    fn move_cursor(&self, count: usize, way: char) {
        if count > 0 {
            self.push(&format!("\x1b[{count}{way}"));
        }
    }

    fn size(&self) -> Option<(u16, u16)> {
        let size = rustix::termios::tcgetwinsize(&stderr().stream).ok()?;
        (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
    }
}

impl TermLike for Bar {
    fn width(&self) -> u16 {
        self.size().map_or(80, |(columns, _)| columns)
    }

    fn height(&self) -> u16 {
        self.size().map_or(24, |(_, rows)| rows)
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'A');
        Ok(())
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'B');
        Ok(())
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'C');
        Ok(())
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.move_cursor(count, 'D');
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)?;
        self.push("\n");
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.push(&filtered(text.as_bytes(), false));
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.push("\r\x1b[2K");
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let drawn = std::mem::take(&mut *self.drawn.lock().unwrap_or_else(PoisonError::into_inner));
        let mut terminal = stderr().stream;
        terminal.write_all(drawn.as_bytes())?;
        terminal.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_filtered_and_movements_pass() {
        let bar = Bar::default();
        bar.move_cursor_up(2).unwrap();
        bar.move_cursor_down(0).unwrap();
        bar.clear_line().unwrap();
        bar.write_line("a\x1b[2J\u{9b}1A\r").unwrap();
        bar.write_str("\x1b[31mb").unwrap();
        let drawn = bar.drawn.into_inner().unwrap();
        assert_eq!(drawn, "\x1b[2A\r\x1b[2Ka\\x1b[2J\\u{9b}1A\\x0d\n\\x1b[31mb");
    }
}
