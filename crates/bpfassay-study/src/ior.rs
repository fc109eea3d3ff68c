//! The border to bpfassay-workload, which knows IOR's options and scripts.

use crate::IorTest;

/// The tests of a script, in order.
pub(crate) fn tests_of_script(name: &str, text: &str) -> Result<Vec<IorTest>, String> {
    let _ = (name, text);
    Err("IOR scripts cannot be read yet".to_owned())
}

/// The one test that options on a line describe.
pub(crate) fn test_of_words(words: &[String]) -> Result<IorTest, String> {
    let _ = words;
    Err("IOR options cannot be read yet".to_owned())
}
