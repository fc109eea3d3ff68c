//! The border to bpfassay-ior, which parses IOR's options and scripts.

use bpfassay_ior::{Api, Invocation, Options, OptionsError};

use crate::{Interface, IorTest};

/// The tests of a script, in order.
pub(crate) fn tests_of_script(name: &str, text: &str) -> Result<Vec<IorTest>, String> {
    let invocation = Invocation { script: Some(name.to_owned()), ..Invocation::default() };
    let plan = invocation.plan(Some(text)).map_err(|error| format!("{name}: {}", error.full()))?;
    Ok(plan.tests.into_iter().map(test).collect())
}

/// The one test that options on a line describe.
pub(crate) fn test_of_args(args: &[&str]) -> Result<IorTest, String> {
    let options = options(args).map_err(|error| error.full())?;
    if options.script.is_some() {
        return Err("`-f` names a script: use the key `script` in place of `options`".to_owned());
    }
    let plan = options.plan(None).map_err(|error| error.full())?;
    plan.tests.into_iter().next().map(test).ok_or_else(|| "the options describe no test".to_owned())
}

/// Bytes that lie in the test's files at least, with `ranks` ranks; `None` where the number is out of range.
pub(crate) fn least_size(test: &IorTest, ranks: u32) -> Option<u64> {
    let args: Vec<&str> = test.options.iter().map(String::as_str).collect();
    options(&args).ok()?.defaults.aggregate_size(ranks)
}

fn options(args: &[&str]) -> Result<Invocation, OptionsError> {
    Invocation::parse(args.iter().copied())
}

fn test(options: Options) -> IorTest {
    let interface = match options.api {
        Api::Posix => Interface::Posix,
        Api::Mmap => Interface::Mmap,
        Api::MpiIo => Interface::Mpiio,
    };
    let transfer_size = options.transfer_size;
    // Where the files lie is the agent's to say.
    let options = Options { test_file: Options::default().test_file, ..options };
    IorTest { options: options.to_args(), interface, transfer_size }
}
