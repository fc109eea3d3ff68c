// SPDX-License-Identifier: MIT OR Apache-2.0
//! Escapes text in SVG that this program writes itself.

/// Escapes `text` as the content of an element.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
