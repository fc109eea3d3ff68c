// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes results as tables for people, in IOR's layout.

use std::io::{self, Write};

use super::{
    phase::Stonewall,
    result::Figures,
    rows::{Capacity, DirectionTotals, ENGINE, IOR_VERSION, MIB, PhaseRow, Setting},
};
use bpfassay_ior::Options;

const GIB: f64 = 1024.0 * MIB;

pub(crate) struct Table<W> {
    out: W,
}

impl<W: Write> Table<W> {
    pub(crate) const fn new(out: W) -> Self {
        Self { out }
    }

    fn pair(&mut self, key: &str, value: &str) -> io::Result<()> {
        writeln!(self.out, "{key:<20}: {value}")
    }

    pub(crate) fn begin(&mut self, began: &str, command: &str, machine: &str) -> io::Result<()> {
        writeln!(self.out, "IOR-{IOR_VERSION}: {ENGINE}")?;
        self.pair("Began", began)?;
        self.pair("Command line", command)?;
        self.pair("Machine", machine)
    }

    pub(crate) fn begin_test(
        &mut self,
        index: u32,
        start: &str,
        path: &str,
        space: Option<&Capacity>,
        setup: &[Setting],
    ) -> io::Result<()> {
        self.pair("TestID", &index.to_string())?;
        self.pair("StartTime", start)?;
        if let Some(Capacity { capacity, used, inodes, used_inodes }) = space {
            self.pair("Path", path)?;
            let line = format!("{capacity}   Used FS: {used}   Inodes: {inodes}   Used Inodes: {used_inodes}");
            self.pair("FS", &line)?;
        }
        writeln!(self.out, "\nOptions: ")?;
        for setting in setup {
            match setting {
                Setting::Text(key, value) => self.pair(key, value)?,
                Setting::Number(key, value) => self.pair(key, &value.to_string())?,
            }
        }
        writeln!(self.out, "\nResults: ")?;
        self.out.flush()
    }

    pub(crate) fn begin_results(&mut self) -> io::Result<()> {
        const NAMES: [&str; 11] = [
            "access",
            "bw(MiB/s)",
            "IOPS",
            "Latency(s)",
            "block(KiB)",
            "xfer(KiB)",
            "open(s)",
            "wr/rd(s)",
            "close(s)",
            "total(s)",
            "iter",
        ];
        writeln!(self.out)?;
        self.cells(&NAMES.map(str::to_owned))?;
        self.cells(&NAMES.map(|name| "-".repeat(name.len())))
    }

    fn cells(&mut self, cells: &[String; 11]) -> io::Result<()> {
        let [first, rest @ .., last] = cells;
        write!(self.out, "{first:<10}")?;
        for (index, cell) in rest.iter().enumerate() {
            // The name of the latency fills its column.
            let gap = if index == 2 { "  " } else { " " };
            write!(self.out, "{cell:<10}{gap}")?;
        }
        writeln!(self.out, "{last:<4}")
    }

    pub(crate) fn result(&mut self, row: &PhaseRow, repetition: u32, stonewall: Option<&Stonewall>) -> io::Result<()> {
        if let Some(Stonewall { seconds, min_pairs, max_pairs, min_bytes, total_bytes }) = stonewall {
            writeln!(
                self.out,
                "stonewalling pairs accessed min: {min_pairs} max: {max_pairs} -- min data: {:.1} GiB data: {:.1} GiB time: {seconds:.1}s",
                *min_bytes as f64 / GIB,
                *total_bytes as f64 / GIB
            )?;
        }
        let PhaseRow { access, bandwidth, iops, block_kib, transfer_kib, figures } = row;
        let Figures { total_s, open_s, transfer_s, close_s, latency_s } = figures;
        let [bandwidth, iops, latency, block, transfer, open, moving, close, total] =
            [bandwidth / MIB, *iops, *latency_s, *block_kib, *transfer_kib, *open_s, *transfer_s, *close_s, *total_s]
                .map(number);
        let iteration = repetition.to_string();
        self.cells(&[
            (*access).to_owned(),
            bandwidth,
            iops,
            latency,
            block,
            transfer,
            open,
            moving,
            close,
            total,
            iteration,
        ])?;
        self.out.flush()
    }

    pub(crate) fn removed(&mut self, repetition: u32, seconds: f64) -> io::Result<()> {
        let mut cells: [String; 11] = std::array::from_fn(|_| "-".to_owned());
        cells[0] = "remove".to_owned();
        cells[9] = number(seconds);
        cells[10] = repetition.to_string();
        self.cells(&cells)
    }

    pub(crate) fn maxima(&mut self, maxima: &[(bool, &str, f64); 2]) -> io::Result<()> {
        for (_, operation, rate) in maxima.iter().filter(|(is_done, ..)| *is_done) {
            let name = if *operation == "write" { "Max Write: " } else { "Max Read:  " };
            writeln!(self.out, "{name}{:.2} MiB/sec ({:.2} MB/sec)", rate / MIB, rate / 1e6)?;
        }
        Ok(())
    }

    pub(crate) fn begin_summary(&mut self) -> io::Result<()> {
        write!(self.out, "\nSummary of all tests:\n{:<9}", "Operation")?;
        for name in [
            "Max(MiB)",
            "Min(MiB)",
            "Mean(MiB)",
            "StdDev",
            "Max(OPs)",
            "Min(OPs)",
            "Mean(OPs)",
            "StdDev",
            "Mean(s)",
            "Stonewall(s)",
        ] {
            write!(self.out, " {name:>10}")?;
        }
        writeln!(
            self.out,
            " {:>13} Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum",
            "Stonewall(MiB)"
        )
    }

    pub(crate) fn summary(
        &mut self,
        index: i64,
        options: &Options,
        tasks: u32,
        per_node: u32,
        totals: &DirectionTotals,
    ) -> io::Result<()> {
        write!(self.out, "{:<9} ", totals.access)?;
        for (spread, unit) in [(totals.bandwidth, MIB), (totals.operations, 1.0)] {
            for value in [spread.max, spread.min, spread.mean, spread.deviation] {
                write!(self.out, "{:>10.2} ", value / unit)?;
            }
        }
        write!(self.out, "{:>10.5} ", totals.mean_time)?;
        match totals.stonewall {
            Some((seconds, bandwidth)) => write!(self.out, "{seconds:>10.2} {:>13.2} ", bandwidth / MIB)?,
            None => write!(self.out, "{:>10} {:>13} ", "NA", "NA")?,
        }
        writeln!(
            self.out,
            "{index:>5} {tasks:>6} {per_node:>3} {:>4} {:>3} {:>5} {:>8} {:>9} {:>4} {:>6} {:>8} {:>8} {:>9.1} {:>3} {:>6}",
            options.repetitions,
            u8::from(options.file_per_process),
            u8::from(options.reorder_tasks),
            options.task_per_node_offset,
            options.reorder_random.level(),
            options.reorder_random_seed,
            options.segments,
            options.block_size,
            options.transfer_size,
            totals.moved_mib,
            options.api,
            options.reference
        )
    }

    pub(crate) fn finish(&mut self, finished: &str) -> io::Result<()> {
        self.pair("Finished", finished)?;
        self.out.flush()
    }
}

/// Formats a number in a column of ten, with as many decimals as in IOR.
fn number(value: f64) -> String {
    match value {
        value if value < 0.0 => "-".to_owned(),
        value if value < 1.0 => format!("{value:.6}"),
        value if value < 3600.0 => format!("{value:.2}"),
        value => format!("{value:.0}"),
    }
}
