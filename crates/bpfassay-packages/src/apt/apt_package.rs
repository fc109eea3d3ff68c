// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packages, as listed in package indexes and in apt's lists of downloads.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SnapshotTime;
use crate::{
    digest::Digest,
    error::apt_failure::ParseError,
    safe_names::{PackageArchitecture, PackageName, PackageVersion},
};

/// One version of one Debian package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// The package name, such as `linux-image-amd64`.
    pub name: PackageName,
    /// The version, with its epoch if it has one.
    pub version: PackageVersion,
    /// Debian's name of the architecture, or `all`.
    pub architecture: PackageArchitecture,
    /// Length of the package file in bytes.
    pub size: u64,
    /// SHA-256 of the package file.
    pub sha256: Digest,
}

/// A package and the path of its file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Located {
    /// The package itself.
    pub package: Package,
    /// The path relative to the archive (`pool/main/l/linux/….deb`), from the field `Filename` of
    /// the index. Empty if not known.
    pub path: String,
    /// When the archive had the package. `None` if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotTime>,
}

/// A package in an index, with its dependencies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexedPackage {
    /// The package and the path of its file.
    pub found: Located,
    /// Names in `Depends` and `Pre-Depends`, including alternatives.
    pub depends: Vec<String>,
}

impl Package {
    /// Returns `NAME:ARCHITECTURE=VERSION`, the form that `apt-get` accepts.
    #[must_use]
    pub fn specification(&self) -> String {
        if self.architecture == "all" {
            return format!("{}={}", self.name, self.version);
        }
        format!("{}:{}={}", self.name, self.architecture, self.version)
    }

    /// Returns the name that `apt-get download` gives to the package file.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}_{}_{}.deb", self.name, self.version.replace(':', "%3a"), self.architecture)
    }
}

/// Parses the packages of a `Packages` index whose names `keep` selects, and skips the others.
///
/// # Errors
/// [`ParseError`] for a line that is not a field, and for a selected package that lacks a field.
pub fn parse_index(text: &str, mut keep: impl FnMut(&str) -> bool) -> Result<Vec<IndexedPackage>, ParseError> {
    let mut packages = Vec::new();
    let mut start = 0;
    for paragraph in text.split(PARAGRAPHS) {
        // A suite has 60,000 packages; callers need a few.
        if named(paragraph).is_none_or(&mut keep) {
            parse_paragraph(paragraph, &mut keep, &mut packages).map_err(|error| {
                let before = text.get(..start).unwrap_or_default().matches('\n').count();
                ParseError { line: before + error.line, ..error }
            })?;
        }
        start += paragraph.len() + PARAGRAPHS.len();
    }
    Ok(packages)
}

/// The separator between paragraphs of an index.
const PARAGRAPHS: &str = "\n\n";

/// Returns the name of the package in `paragraph`, if that is the first field.
fn named(paragraph: &str) -> Option<&str> {
    let rest = paragraph.trim_start_matches('\n').strip_prefix("Package:")?;
    Some(rest.split('\n').next().unwrap_or_default().trim())
}

fn parse_paragraph(
    paragraph: &str,
    keep: &mut impl FnMut(&str) -> bool,
    packages: &mut Vec<IndexedPackage>,
) -> Result<(), ParseError> {
    let mut fields = StanzaFields::default();
    let mut end = 0;
    for (index, line) in paragraph.lines().enumerate() {
        end = index + 1;
        if line.trim().is_empty() {
            fields.finish(end, keep, packages)?;
        } else if line.starts_with([' ', '\t']) {
            // A continuation line. The fields read here have one line each.
        } else {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| ParseError { line: end, problem: format!("`{}` is no field", cut(line)) })?;
            fields.set(name, value.trim());
        }
    }
    fields.finish(end, keep, packages)
}

#[derive(Default)]
struct StanzaFields<'a> {
    any: bool,
    name: Option<&'a str>,
    version: Option<&'a str>,
    architecture: Option<&'a str>,
    size: Option<&'a str>,
    sha256: Option<&'a str>,
    path: Option<&'a str>,
    depends: Vec<&'a str>,
}

impl<'a> StanzaFields<'a> {
    fn set(&mut self, name: &str, value: &'a str) {
        self.any = true;
        match name {
            "Package" => self.name = Some(value),
            "Version" => self.version = Some(value),
            "Architecture" => self.architecture = Some(value),
            "Size" => self.size = Some(value),
            "SHA256" => self.sha256 = Some(value),
            "Filename" => self.path = Some(value),
            "Depends" | "Pre-Depends" => self.depends.push(value),
            _ => {}
        }
    }

    fn finish(
        &mut self,
        line: usize,
        keep: &mut impl FnMut(&str) -> bool,
        packages: &mut Vec<IndexedPackage>,
    ) -> Result<(), ParseError> {
        let fields = std::mem::take(self);
        if !fields.any {
            return Ok(());
        }
        let need = |value: Option<&'a str>, field: &str| {
            value.filter(|value| !value.is_empty()).ok_or_else(|| ParseError {
                line,
                problem: format!("the package before this line ({}) has no {field}", fields.name.unwrap_or("?")),
            })
        };
        let name = need(fields.name, "Package")?;
        if !keep(name) {
            return Ok(());
        }
        let bad = |field: &str, value: &str| ParseError {
            line,
            problem: format!("the package before this line ({}) has {field} `{}`", cut(name), cut(value)),
        };
        let (size, sha256) = (need(fields.size, "Size")?, need(fields.sha256, "SHA256")?);
        let (version, architecture) = (need(fields.version, "Version")?, need(fields.architecture, "Architecture")?);
        let path = need(fields.path, "Filename")?;
        let path = path.strip_prefix("./").unwrap_or(path);
        if !is_path(path) {
            return Err(bad("Filename", path));
        }
        let package = Package {
            name: plain(need(Some(name), "Package")?).ok_or_else(|| bad("Package", name))?,
            version: plain(version).ok_or_else(|| bad("Version", version))?,
            architecture: plain(architecture).ok_or_else(|| bad("Architecture", architecture))?,
            size: positive(size).ok_or_else(|| bad("Size", size))?,
            sha256: sha256.parse().map_err(|_| bad("SHA256", sha256))?,
        };
        packages.push(IndexedPackage {
            found: Located { package, path: path.to_owned(), snapshot: None },
            depends: fields.depends.iter().flat_map(|list| relations(list)).collect(),
        });
        Ok(())
    }
}

/// Returns the names in a relation field such as `Depends`.
fn relations(list: &str) -> impl Iterator<Item = String> {
    list.split([',', '|']).filter_map(|relation| {
        let name = relation.trim().split([' ', '(', ':', '[']).next().unwrap_or_default();
        (!name.is_empty()).then(|| name.to_owned())
    })
}

/// Parses the output of `apt-get install --print-uris` with SHA-256 hashes.
///
/// # Errors
/// [`ParseError`] for a line that is not `'URI' FILE SIZE SHA256:DIGEST`.
pub fn parse_print_uris(text: &str) -> Result<Vec<Located>, ParseError> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            uri_line(line).ok_or_else(|| ParseError {
                line: index + 1,
                problem: format!("expected 'URI' FILE SIZE SHA256:DIGEST, found `{}`", cut(line)),
            })
        })
        .collect()
}

fn uri_line(line: &str) -> Option<Located> {
    let (uri, rest) = line.strip_prefix('\'')?.split_once("' ")?;
    let mut fields = rest.split_ascii_whitespace();
    let (file, size, hash) = (fields.next()?, fields.next()?, fields.next()?);
    let mut parts = file.strip_suffix(".deb")?.split('_');
    let (name, version, architecture) = (parts.next()?, parts.next()?, parts.next()?);
    let version = version.replace("%3a", ":");
    // Packages lie below `pool`, wherever the archive is, except in archives of one directory.
    let path = uri.rfind("/pool/").map_or(uri.rsplit('/').next(), |pool| uri.get(pool + 1..)).and_then(decoded)?;
    if parts.next().is_some() || !is_path(&path) {
        return None;
    }
    let package = Package {
        name: plain(name)?,
        version: plain(&version)?,
        architecture: plain(architecture)?,
        size: positive(size)?,
        sha256: hash.strip_prefix("SHA256:")?.parse().ok()?,
    };
    Some(Located { package, path, snapshot: None })
}

/// Decodes the percent-encoding in `part` of a URI (RFC 3986, section 2.1).
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes the path `text` for a URI.
pub(super) fn encoded(text: &str) -> String {
    let is_literal = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-~+:".contains(byte);
    let encode = |byte: u8| if is_literal(&byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") };
    text.bytes().map(encode).collect()
}

/// Whether `path` is a relative path of a package file that stays inside the archive.
#[must_use]
pub fn is_path(path: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '~' | '_' | '%' | ':'))
    };
    path.ends_with(".deb") && path.split('/').all(is_part)
}

/// Parses a size in bytes. It limits reading, and no package has 0.
fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|&size| size > 0)
}

/// Whether a name, version or architecture has only characters that Debian's policy allows (5.6.1,
/// 5.6.12). The text becomes part of file names and of arguments for apt.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '~' | ':'))
}

/// Parses a name, version or architecture that Debian's policy allows.
fn plain<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| is_plain(text))
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A shortened index in the form of forky's of November 2026.
    const INDEX: &str = include_str!("testdata/Packages");

    #[test]
    fn an_index_is_read_with_dependencies() {
        let packages = parse_index(INDEX, |name| name.starts_with("linux-")).unwrap();
        let names: Vec<_> = packages.iter().map(|p| p.found.package.name.as_str()).collect();
        assert_eq!(names, ["linux-binary-7.2.12+deb14-amd64", "linux-image-7.2.12+deb14-amd64"]);
        assert_eq!(packages[0].found.package.version, "7.2.12-1");
        assert_eq!(packages[0].found.package.size, 14_251_100);
        assert_eq!(
            packages[0].found.package.sha256.to_string(),
            "362463390b32bcd1ab8b081de4f3900a88de8bcc81cf54097c5806d4b5ff6554"
        );
        assert_eq!(
            packages[1].depends,
            [
                "dracut",
                "initramfs-tools",
                "linux-initramfs-tool",
                "linux-base-7.2.12+deb14-amd64",
                "linux-binary-7.2.12+deb14-amd64",
                "linux-modules-7.2.12+deb14-amd64",
                "linux-base",
            ]
        );
    }

    #[test]
    fn a_package_without_hash_is_refused_when_it_is_wanted() {
        let text = "Package: a\nVersion: 1\nArchitecture: all\nSize: 3\nFilename: pool/a.deb\n";
        assert_eq!(parse_index(text, |_| false), Ok(vec![]));
        let error = parse_index(text, |_| true).unwrap_err();
        assert_eq!(error.to_string(), "line 5: the package before this line (a) has no SHA256");
    }

    #[test]
    fn a_package_that_is_not_wanted_is_not_read() {
        let digest = Digest::of(b"x");
        let wanted =
            format!("Package: b\nVersion: 1\nArchitecture: all\nFilename: ./b.deb\nSize: 3\nSHA256: {digest}\n");
        let text = format!("Package: a\n<html>\n\n{wanted}\n\n{wanted}Size\n");
        let error = parse_index(&text, |name| name == "b").unwrap_err();
        assert_eq!(error, ParseError { line: 18, problem: "`Size` is no field".to_owned() });
        let before = text.rsplit_once("Size").unwrap().0;
        assert_eq!(parse_index(before, |name| name == "b").unwrap().len(), 2);
        let error = parse_index(&text, |name| name == "a").unwrap_err();
        assert_eq!(error, ParseError { line: 2, problem: "`<html>` is no field".to_owned() });
    }

    #[test]
    fn a_line_that_is_no_field_is_named() {
        let error = parse_index("Package: a\n<html>\n", |_| true).unwrap_err();
        assert_eq!(error, ParseError { line: 2, problem: "`<html>` is no field".to_owned() });
    }

    #[test]
    fn names_and_versions_that_lead_elsewhere_are_refused() {
        let digest = Digest::of(b"x");
        for (name, version) in
            [("../a", "1"), ("-oDir=x", "1"), ("a", "../1"), ("a", "1 2"), ("a/b", "1"), ("a", "1/2")]
        {
            let rest = format!("Architecture: all\nSize: 3\nFilename: pool/x.deb\nSHA256: {digest}\n");
            let text = format!("Package: {name}\nVersion: {version}\n{rest}");
            assert!(parse_index(&text, |_| true).is_err(), "{name} {version}");
            let text = format!("'http://m/x.deb' {name}_{version}_all.deb 3 SHA256:{digest}\n");
            assert!(parse_print_uris(&text).is_err(), "{name} {version}");
        }
    }

    #[test]
    fn paths_that_lead_out_of_the_archive_are_refused() {
        let digest = Digest::of(b"x");
        for path in [
            "../x.deb",
            "pool/../x.deb",
            "/pool/x.deb",
            "pool//x.deb",
            "pool/x",
            "pool/a b.deb",
            "pool/.x.deb",
            "pool/x.deb\u{301}",
        ] {
            let text =
                format!("Package: a\nVersion: 1\nArchitecture: all\nSize: 3\nFilename: {path}\nSHA256: {digest}\n");
            assert!(parse_index(&text, |_| true).is_err(), "{path}");
        }
        for uri in ["http://m/pool/%2e%2e/a_1_all.deb", "http://m/pool/%zz/a_1_all.deb", "http://m/pool/%"] {
            let text = format!("'{uri}' a_1_all.deb 3 SHA256:{digest}\n");
            assert!(parse_print_uris(&text).is_err(), "{uri}");
        }
    }

    #[test]
    fn lists_of_downloads_are_read() {
        let digest = Digest::of(b"x");
        let text = format!("'http://m/pool/l/a_1%253a2-3_amd64.deb' a_1%3a2-3_amd64.deb 12 SHA256:{digest}\n");
        let packages = parse_print_uris(&text).unwrap();
        assert_eq!(packages[0].package.version, "1:2-3");
        assert_eq!(packages[0].package.file_name(), "a_1%3a2-3_amd64.deb");
        assert_eq!(packages[0].package.specification(), "a:amd64=1:2-3");
        assert_eq!(packages[0].path, "pool/l/a_1%3a2-3_amd64.deb");
        assert_eq!(encoded(&packages[0].path), "pool/l/a_1%253a2-3_amd64.deb");
        assert!(parse_print_uris("'http://m/a_1_amd64.deb' a_1_amd64.deb 12 MD5Sum:00").is_err());
    }

    fn package() -> impl Strategy<Value = Located> {
        (
            "[a-z0-9][a-z0-9+.-]{1,20}",
            "([0-9]:)?[0-9][A-Za-z0-9.+~-]{0,12}",
            "amd64|arm64|riscv64|all",
            any::<u64>(),
            any::<u64>(),
        )
            .prop_map(|(name, version, architecture, size, seed)| {
                let (name, version) = (name.parse().unwrap(), version.parse().unwrap());
                let architecture = architecture.parse().unwrap();
                let sha256 = Digest::of(&seed.to_le_bytes());
                let package = Package { name, version, architecture, size, sha256 };
                Located { path: format!("pool/{}", package.file_name()), package, snapshot: None }
            })
    }

    proptest! {
        #[test]
        fn indexes_read_back_as_written(packages in prop::collection::vec(package(), 0..6), gap in "\n{1,3}") {
            let text: String = packages
                .iter()
                .map(|p| format!(
                    "Package: {}\nVersion: {}\nArchitecture: {}\nDescription: x\n more: text\nFilename: {}\nSize: {}\nSHA256: {}\n{gap}",
                    p.package.name, p.package.version, p.package.architecture, p.path, p.package.size, p.package.sha256
                ))
                .collect();
            let read: Vec<_> = parse_index(&text, |_| true).unwrap().into_iter().map(|p| p.found).collect();
            prop_assert_eq!(read, packages);
        }

        #[test]
        fn downloads_read_back_as_written(packages in prop::collection::vec(package(), 0..6)) {
            let text: String = packages
                .iter()
                .map(|p| {
                    let (uri, of) = (encoded(&p.path), &p.package);
                    format!("'http://m/{uri}' {} {} SHA256:{}\n", of.file_name(), of.size, of.sha256)
                })
                .collect();
            prop_assert_eq!(parse_print_uris(&text).unwrap(), packages);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(\\PC|\n|: |'|_){0,200}") {
            let _ = parse_index(&text, |_| true);
            let _ = parse_print_uris(&text);
        }
    }
}
