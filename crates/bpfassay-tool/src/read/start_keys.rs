// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads `[start]`: how a tool is started, what it needs for that, and when it is ready.

use std::collections::BTreeMap;

use bpfassay_input::document::{Field, Reported, Section, suggestion};
use bpfassay_protocol::privileges::{Capability, Privileges};

use super::{HOUR_MS, MAX_ENTRIES, arguments, check_length, is_word, one_of, pattern, places::argument};
use crate::{Ready, file::KernelNeeds, service::MissingService};

/// Default deadline until a tool is ready, in milliseconds.
const DEADLINE_MS: u64 = 60_000;

/// The largest user ID. 2³² − 1 means no change in system calls (setresuid(2)).
const MAX_USER: u32 = u32::MAX - 1;

/// The part `[start]`.
#[derive(Clone)]
pub(super) struct StartPart {
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) privileges: Privileges,
    pub(super) needs: Vec<MissingService>,
    pub(super) kernel: KernelNeeds,
    pub(super) ready: Ready,
    pub(super) deadline_ms: u64,
}

impl StartPart {
    /// The defaults for programs.
    pub(super) const fn of_programs() -> Self {
        Self {
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            privileges: Privileges { user: 0, capabilities: None, user_namespace: false },
            needs: Vec::new(),
            kernel: KernelNeeds { modules: Vec::new(), headers: false },
            ready: Ready::Programs { count: 1, named: None },
            deadline_ms: DEADLINE_MS,
        }
    }
}

/// The keys of `[start]`.
pub(super) const START_KEYS: &[&str] = &[
    "arguments",
    "environment",
    "user",
    "capabilities",
    "user_namespace",
    "needs",
    "modules",
    "kernel_headers",
    "ready",
    "deadline",
];

/// Reads the section `[start]`.
pub(super) fn start(field: &Field<'_, '_>, default: StartPart, is_object: bool) -> Result<StartPart, Reported> {
    let section = field.table()?;
    section.only(START_KEYS);
    start_part(&section, default, is_object)
}

/// Reads the keys of `[start]` from `section`.
pub(super) fn start_part(
    section: &Section<'_, '_>,
    default: StartPart,
    is_object: bool,
) -> Result<StartPart, Reported> {
    let arguments = section.or("arguments", default.arguments, |field| match is_object {
        true => Err(field.error("a bare object is not started with arguments")),
        false => arguments(field),
    });
    let environment = section.or("environment", default.environment, |field| match is_object {
        true => Err(field.error("a bare object has no program that would read variables")),
        false => variables(field),
    });
    let privileges = privileges(section, default.privileges);
    let needs = section.or("needs", default.needs, |field| match is_object {
        true => Err(field.error("a bare object has no program that would need a service")),
        false => field.distinct("service", |service| service.choice(MissingService::NAMES)),
    });
    let modules = section.or("modules", default.kernel.modules, modules);
    let headers = section.or("kernel_headers", default.kernel.headers, |field| match is_object {
        true => Err(field.error("a bare object is not compiled in the guest")),
        false => field.boolean(),
    });
    let ready = section.or("ready", default.ready, ready);
    let deadline_ms = section.or("deadline", default.deadline_ms, |field| field.milliseconds(1000..=HOUR_MS));
    Ok(StartPart {
        arguments: arguments?,
        environment: environment?,
        privileges: privileges?,
        needs: needs?,
        kernel: KernelNeeds { modules: modules?, headers: headers? },
        ready: ready?,
        deadline_ms: deadline_ms?,
    })
}

/// Reads environment variables.
fn variables(field: &Field<'_, '_>) -> Result<BTreeMap<String, String>, Reported> {
    let section = field.table()?;
    let variable = |(index, (name, field)): (usize, (&str, Field<'_, '_>))| {
        // Rule for names: POSIX.1-2024, 8.1.
        let is_name = is_word(name) && !name.starts_with(|c: char| c.is_ascii_digit());
        if !is_name || index >= MAX_ENTRIES {
            return Err(field.error(format!(
                "give at most {MAX_ENTRIES} variables, with names of letters, digits and `_` that begin with no digit"
            )));
        }
        Ok((name.to_owned(), argument(&field)?))
    };
    section.entries().enumerate().map(variable).collect::<Vec<_>>().into_iter().collect()
}

fn privileges(section: &Section<'_, '_>, default: Privileges) -> Result<Privileges, Reported> {
    let user = section.or("user", default.user, |field| field.number(0..=MAX_USER));
    let user_namespace = section.or("user_namespace", default.user_namespace, Field::boolean);
    let capabilities = section.optional("capabilities", |field| match section.has("user_namespace") {
        true => Err(field.error("root of a user namespace has all capabilities in it: leave out one of the two")),
        false => capabilities(field),
    });
    Ok(Privileges {
        user: user?,
        capabilities: capabilities?.or(default.capabilities),
        user_namespace: user_namespace?,
    })
}

/// Reads names of capabilities.
fn capabilities(field: &Field<'_, '_>) -> Result<Vec<Capability>, Reported> {
    field.distinct("capability", |capability| {
        let name = capability.text()?;
        name.parse().map_err(|_unknown| {
            let near = suggestion(name, Capability::ALL.iter().map(|one| one.name()));
            capability.error(format!("give a capability of capabilities(7), such as \"CAP_BPF\"{near}"))
        })
    })
}

/// Reads names of kernel modules.
fn modules(field: &Field<'_, '_>) -> Result<Vec<String>, Reported> {
    let modules = field.distinct("module", |module| {
        let name = module.text()?.replace('-', "_");
        if is_word(&name) { Ok(name) } else { Err(module.error("give the name of a kernel module, such as \"xfs\"")) }
    })?;
    check_length(field, modules.len())?;
    Ok(modules)
}

fn ready(field: &Field<'_, '_>) -> Result<Ready, Reported> {
    const KNOWN: &[&str] = &["line", "port", "programs", "started"];
    let section = field.table()?;
    section.only(&[KNOWN, &["stream", "named"]].concat());
    let (kind, value) = one_of(&section, KNOWN)?;
    for (key, of) in [("stream", "line"), ("named", "programs")] {
        if let Some(other) = section.get(key)
            && kind != of
        {
            return Err(other.error(format!("belongs to `{of}`")));
        }
    }
    Ok(match kind {
        "line" => {
            let stream = section.optional("stream", Field::name);
            Ready::Line { pattern: pattern(&value)?.into(), stream: stream? }
        }
        "port" => Ready::Port(value.number(1..=u16::MAX)?),
        "programs" => {
            let named = section.optional("named", |field| pattern(field).map(String::from));
            Ready::Programs { count: value.number(1..=10_000)?, named: named? }
        }
        _ if value.boolean()? => Ready::Started,
        _ => return Err(value.error("give `true`, or name another sign")),
    })
}
