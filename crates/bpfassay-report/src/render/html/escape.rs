// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text in SVG that this program writes itself.

/// `text` as the content of an element.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
