//! What the rest of the program knows of a tracer, whichever library loaded it.

use bpfassay_protocol::{
    ProbeConfiguration,
    probe::Loader,
    tracer::{Attached, CounterRow, Losses, Refusal, Step},
};

use crate::{
    ledger::{Filter, LedgerError},
    libbpf,
    mounts::MountsError,
    objects, probes,
};

/// Programs that are attached and count. Dropping it detaches them.
pub(crate) trait Tracer {
    /// What was attached.
    fn attached(&self) -> &Attached;

    /// The counters since attaching, one row per key, sorted by key.
    ///
    /// # Errors
    /// [`ReadError`].
    fn rows(&self) -> Result<Vec<CounterRow>, ReadError>;

    /// Events known to be lost since attaching.
    ///
    /// # Errors
    /// [`ReadError`].
    fn losses(&self) -> Result<Losses, ReadError>;
}

/// A reading of the counters that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read the map `{map}`")]
    Map { map: &'static str, source: libbpf_rs::Error },
    #[error("the map `{map}` holds what no probe writes")]
    Ledger { map: &'static str, source: LedgerError },
    #[error("cannot ask the kernel about the program `{program}`")]
    Program { program: String, source: std::io::Error },
    #[error("cannot read the misses of kprobes from {path}: leave tracefs mounted while the tracer runs")]
    Profile { path: &'static str, source: std::io::Error },
    #[error(transparent)]
    Mounts(MountsError),
    #[error("{path} does not list the kprobe on `{function}`: something else removed it")]
    Unlisted { path: &'static str, function: String },
}

/// Loads and attaches one probe configuration.
///
/// # Errors
/// A [`Refusal`] that says which step failed and in whose words; nothing stays attached then.
pub(crate) fn bring_up(configuration: ProbeConfiguration, filter: Filter) -> Result<Box<dyn Tracer>, Refusal> {
    let found = objects::find(configuration.probe, configuration.map).zip(probes::attachment(configuration.probe));
    let Some((object, attachment)) = found else {
        return Err(Refusal {
            step: Step::Open,
            program: None,
            errno: None,
            message: format!("this build of the tracer has no programs for `{configuration}`"),
            verifier: None,
            findings: Vec::new(),
        });
    };
    match configuration.loader {
        Loader::Libbpf => libbpf::bring_up(configuration, object, attachment, filter)
            .map(|tracer| Box::new(tracer) as Box<dyn Tracer>),
    }
}
