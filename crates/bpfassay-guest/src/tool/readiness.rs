// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits until a tool is ready.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bpfassay_protocol::tool_job::{BpfObject, Ready};

use super::{PERIOD, QUIET, RunningTool, endpoint};
use crate::{
    bpf::{self, ObjectKind},
    children::{Children, ended_how},
    error::{Result, quoted},
};

impl RunningTool {
    /// Returns `Some` with the reason if the tool will not become ready.
    pub(super) fn wait_until_ready(
        &mut self,
        named: Option<&regex_lite::Regex>,
        children: &mut Children,
    ) -> Result<Option<String>> {
        let deadline = self.started + Duration::from_millis(self.tool.patience_ms);
        let mut programs = BTreeMap::new();
        let (mut last, mut since) = (0, Instant::now());
        loop {
            self.wait(PERIOD)?;
            self.take()?;
            children.reap()?;
            if let Some(status) = children.end_of(self.pid) {
                self.take()?;
                return Ok(Some(format!(
                    "{} before it was ready{}",
                    ended_how(status),
                    quoted(&self.output.tail().to_string())
                )));
            }
            let ready = match &self.tool.ready {
                Ready::Programs { count, .. } => {
                    self.look_for_programs(&mut programs)?;
                    let is_named = |name: &&String| named.is_none_or(|pattern| pattern.is_match(name));
                    let now = programs.values().filter(is_named).count();
                    if now != last {
                        (last, since) = (now, Instant::now());
                    }
                    now >= *count as usize && since.elapsed() >= QUIET
                }
                Ready::Line { .. } => self.output.is_ready(),
                Ready::Port(port) => endpoint::accepts(*port),
                Ready::Started => true,
            };
            if ready {
                self.note_ready()?;
                return Ok(None);
            }
            if Instant::now() >= deadline {
                let waited = match &self.tool.ready {
                    Ready::Programs { count, named: None } => format!("has loaded {last} programs, not {count},"),
                    Ready::Programs { count, named: Some(pattern) } => {
                        format!("has loaded {last} programs with a match of `{pattern}`, not {count},")
                    }
                    Ready::Line { pattern, .. } => format!("has not printed a line that matches `{pattern}`"),
                    Ready::Port(port) => format!("does not accept connections on port {port}"),
                    Ready::Started => "was not started".to_owned(),
                };
                let seconds = self.tool.patience_ms / 1000;
                return Ok(Some(format!(
                    "{waited} {seconds} s after its start{}",
                    quoted(&self.output.tail().to_string())
                )));
            }
        }
    }

    /// Updates `programs`, names by id, with the programs that the tool has made.
    fn look_for_programs(&self, programs: &mut BTreeMap<u32, String>) -> Result<()> {
        let ids = self.programs()?;
        programs.retain(|id, _| ids.contains(id));
        let new = ids.into_iter().filter(|id| !programs.contains_key(id)).collect::<Vec<_>>();
        programs
            .extend(bpf::objects(ObjectKind::Program, new)?.into_iter().map(|BpfObject { id, name, .. }| (id, name)));
        Ok(())
    }
}
