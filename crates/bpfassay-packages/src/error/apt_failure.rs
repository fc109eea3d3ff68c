// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classifies apt's error messages.

/// Why a text is not a package index or a list of downloads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// The problem in this line.
    pub problem: String,
}

/// Why packages could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AptError {
    /// The host's apt sources name no Debian archive.
    #[error(
        "the host's apt sources name no Debian archive with component main: name one with --mirror URL, add one to \
         /etc/apt/sources.list, or pass a testbed made elsewhere with --manifest"
    )]
    NoArchive,
    /// The release file has expired: the mirror has not been updated.
    #[error(
        "the mirror of suite {suite} is stale: its release file expired {age} ago. Try again later, or with \
         another mirror in the host's apt sources; to accept it as it is, add --accept-stale"
    )]
    Stale {
        /// Name of the suite.
        suite: String,
        /// How long ago, as apt prints it (`14d 19h 48min 16s`).
        age: String,
    },
    /// The release file is not valid yet by this machine's clock.
    #[error("the release file of suite {suite} is valid only from {wait} on: set this machine's clock")]
    NotYetValid {
        /// Name of the suite.
        suite: String,
        /// How long from now, as apt prints it.
        wait: String,
    },
    /// The mirror is being updated.
    #[error(
        "the mirror of suite {suite} is in the middle of an update, {attempts} attempts failed ({detail}): try again \
         in some minutes, or with another mirror in the host's apt sources"
    )]
    MidSync {
        /// Name of the suite.
        suite: String,
        /// How often the mirror was asked.
        attempts: u32,
        /// apt's message.
        detail: String,
    },
    /// The mirror does not respond.
    #[error(
        "the mirror of suite {suite} cannot be reached ({detail}): check the network; what was fetched before runs with --offline"
    )]
    Unreachable {
        /// Name of the suite.
        suite: String,
        /// apt's message.
        detail: String,
    },
    /// The mirror does not have the requested file.
    #[error(
        "the mirror of suite {suite} does not have what was asked for ({detail}): mirrors drop old suites; name a mirror that has it in the host's apt sources"
    )]
    Missing {
        /// Name of the suite.
        suite: String,
        /// apt's message.
        detail: String,
    },
    /// The signature of the release file cannot be checked.
    #[error(
        "the release file of suite {suite} is not signed by a key that this host trusts ({detail}): install a newer \
         debian-archive-keyring"
    )]
    Untrusted {
        /// Name of the suite.
        suite: String,
        /// apt's message.
        detail: String,
    },
    /// Packages do not exist, or cannot be installed together.
    #[error("cannot install {packages} from suite {suite}: {detail}")]
    Unsatisfiable {
        /// Name of the suite.
        suite: String,
        /// The packages asked for, separated by commas.
        packages: String,
        /// apt's message.
        detail: String,
    },
    /// apt failed with a message that is not recognized here.
    #[error("apt failed on suite {suite}: {detail}")]
    Other {
        /// Name of the suite.
        suite: String,
        /// apt's message.
        detail: String,
    },
    /// A package index or list of downloads cannot be parsed.
    #[error("the package index of suite {suite} cannot be read ({source}): fetch it again with --refresh")]
    Parse {
        /// Name of the suite.
        suite: String,
        /// The line of the index, and the problem.
        source: ParseError,
    },
    /// A path cannot be written into apt's configuration.
    #[error("`{0}` cannot be written into apt's configuration (quotes or line breaks): choose another cache directory")]
    Quote(String),
}

impl AptError {
    /// Returns apt's message, without advice.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::MidSync { detail, .. }
            | Self::Unreachable { detail, .. }
            | Self::Missing { detail, .. }
            | Self::Untrusted { detail, .. }
            | Self::Other { detail, .. } => detail.clone(),
            other => other.to_string(),
        }
    }

    /// Whether another attempt can succeed soon.
    pub(crate) const fn is_passing(&self) -> bool {
        matches!(self, Self::MidSync { .. } | Self::Unreachable { .. })
    }

    /// Classifies what `apt-get` wrote to standard error in the last of `attempts` attempts.
    pub(crate) fn from_output(suite: &str, stderr: &str, attempts: u32) -> Self {
        let suite = suite.to_owned();
        let find = |needles: &[&str]| {
            stderr.lines().find(|line| needles.iter().any(|needle| line.contains(needle))).map(clean)
        };
        if let Some(line) = find(&["is expired (invalid since"]) {
            return Self::Stale { suite, age: between(&line, "invalid since ", ")") };
        }
        if let Some(line) = find(&["is not valid yet"]) {
            return Self::NotYetValid { suite, wait: between(&line, "invalid for another ", ")") };
        }
        if let Some(detail) = find(&["unexpected size", "Hash Sum mismatch", "Mirror sync in progress"]) {
            return Self::MidSync { suite, attempts, detail };
        }
        if let Some(detail) = find(&["NO_PUBKEY", "couldn't be verified", "is not signed", "Missing key"]) {
            return Self::Untrusted { suite, detail };
        }
        if let Some(detail) = find(&[
            "Temporary failure resolving",
            "Could not resolve",
            "Could not connect",
            "Cannot initiate the connection",
            "Unable to connect",
            "Connection failed",
            "Connection timed out",
            "Connection refused",
            "Network is unreachable",
            "500  Internal",
            "502  Bad",
            "503  Service",
        ]) {
            return Self::Unreachable { suite, detail };
        }
        if let Some(detail) = find(&["does not have a Release file", "404 "]) {
            return Self::Missing { suite, detail };
        }
        let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("E: ")).map(clean).collect();
        let detail = if errors.is_empty() { stderr.trim().to_owned() } else { errors.join("; ") };
        Self::Other { suite, detail }
    }
}

fn clean(line: &str) -> String {
    line.trim_start_matches(['E', 'W', ':']).trim().to_owned()
}

fn between(line: &str, before: &str, after: &str) -> String {
    let rest = line.split_once(before).map_or(line, |(_, rest)| rest);
    rest.split_once(after).map_or(rest, |(inside, _)| inside).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(stderr: &str) -> AptError {
        AptError::from_output("forky", stderr, 3)
    }

    #[test]
    fn a_stale_mirror_is_reported_with_which_suite_and_how_old() {
        let error = classify(
            "E: Release file for http://m.example/debian/dists/forky/InRelease is expired (invalid since 14d 19h 48min \
             16s). Updates for this repository will not be applied.\n",
        );
        assert_eq!(error, AptError::Stale { suite: "forky".into(), age: "14d 19h 48min 16s".into() });
        assert!(error.to_string().contains("suite forky is stale: its release file expired 14d 19h 48min 16s ago"));
        assert!(error.to_string().contains("--accept-stale"));
        assert!(!error.is_passing());
    }

    #[test]
    fn an_update_in_progress_is_distinguished_from_a_network_failure() {
        let error = classify(
            "E: Failed to fetch http://m.example/debian/dists/x/Packages.xz  File has unexpected size (248120 != 253648). \
             Mirror sync in progress? [IP: 203.0.113.1 80]\n   Hashes of expected file:\n    - Filesize:253648 [weak]\n\
             E: Some index files failed to download. They have been ignored, or old ones used instead.\n",
        );
        assert!(matches!(&error, AptError::MidSync { attempts: 3, .. }), "{error}");
        assert!(error.to_string().contains("(248120 != 253648)"));
        assert!(error.is_passing());
        let error =
            classify("W: Failed to fetch http://m.example/InRelease  Temporary failure resolving 'm.example'\n");
        assert!(matches!(error, AptError::Unreachable { .. }), "{error}");
        assert!(error.is_passing());
    }

    #[test]
    fn missing_suites_keys_and_clocks_have_their_own_remedies() {
        let error =
            classify("E: The repository 'http://m.example/debian buster Release' does not have a Release file.\n");
        assert!(matches!(error, AptError::Missing { .. }), "{error}");
        let error = classify(
            "W: GPG error: http://m.example/debian forky InRelease: The following signatures couldn't be verified because \
             the public key is not available: NO_PUBKEY 6ED0E7B82643E131\nE: The repository 'x' is not signed.\n",
        );
        assert!(error.to_string().contains("debian-archive-keyring"), "{error}");
        let error = classify("E: Release file for x is not valid yet (invalid for another 2h 3min 1s). Updates …\n");
        assert_eq!(error, AptError::NotYetValid { suite: "forky".into(), wait: "2h 3min 1s".into() });
        let error = classify("E: Unable to locate package nosuch\n");
        assert_eq!(error, AptError::Other { suite: "forky".into(), detail: "Unable to locate package nosuch".into() });
    }
}
