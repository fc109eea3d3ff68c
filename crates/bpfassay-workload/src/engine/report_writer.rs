// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as IOR writes them: JSON, CSV, or tables for people.

use std::{
    fs,
    io::{self, BufWriter, Write},
};

use super::{
    EngineError,
    host_facts::{self, Host},
    io::Space,
    json_writer::Json,
    result::{Figures, PhaseResult, TestResult, rates},
    results_table::Table,
    rows::{
        Capacity, DirectionTotals, ENGINE, IOR_VERSION, MIB, PhaseRow, Setting, parameters, per_node, setup, totals,
    },
};
use bpfassay_ior::{Options, Output, SummaryFormat};

const KIB: f64 = 1024.0;

/// The report's destination, and its state.
pub(crate) struct ReportWriter {
    form: Form,
    destination: String,
    verbose: u8,
    /// Number of ranks of the run. All of them count as tasks on a single node.
    ranks: u32,
}

enum Form {
    Json(Json<Box<dyn Write>>),
    Csv(Box<dyn Write>),
    Table(Table<Box<dyn Write>>),
}

impl ReportWriter {
    pub(crate) fn open(output: &Output, ranks: u32) -> Result<Self, EngineError> {
        let (destination, out): (_, Box<dyn Write>) = match &output.file {
            Some(path) => {
                let file = fs::File::create(path).map_err(|source| EngineError::File {
                    action: "write",
                    path: path.clone(),
                    source,
                })?;
                (path.clone(), Box::new(BufWriter::new(file)))
            }
            None => ("standard output".to_owned(), Box::new(BufWriter::new(io::stdout()))),
        };
        let form = match output.format {
            SummaryFormat::Json => Form::Json(Json::new(out)),
            SummaryFormat::Csv => Form::Csv(out),
            SummaryFormat::Default => Form::Table(Table::new(out)),
        };
        Ok(Self { form, destination, verbose: 0, ranks })
    }

    fn checked(&self, result: io::Result<()>) -> Result<(), EngineError> {
        result.map_err(|source| EngineError::File { action: "write", path: self.destination.clone(), source })
    }

    /// Returns whether tests have a heading. If not, its contents need not be determined.
    pub(crate) const fn shows_tests(&self) -> bool {
        !matches!(self.form, Form::Csv(_))
    }

    pub(crate) fn begin(&mut self, args: &[String], verbose: u8) -> Result<(), EngineError> {
        let machine = Host::get().machine(verbose >= 2);
        let (began, command) = (host_facts::local_time(), args.join(" "));
        let result = match &mut self.form {
            Form::Json(json) => (|| {
                json.begin_object("")?;
                json.text("Version", &format!("{IOR_VERSION}, {ENGINE}"))?;
                json.text("Began", &began)?;
                json.text("Command line", &command)?;
                json.text("Machine", &machine)?;
                json.begin_array("tests")?;
                json.flush()
            })(),
            Form::Csv(_) => Ok(()),
            Form::Table(table) => table.begin(&began, &command, &machine),
        };
        self.checked(result)
    }

    pub(crate) fn begin_test(
        &mut self,
        options: &Options,
        index: u32,
        tasks: u32,
        path: &str,
        space: Option<Space>,
    ) -> Result<(), EngineError> {
        self.verbose = options.verbose;
        let (start, space) = (host_facts::local_time(), space.map(Capacity::new));
        let per_node = per_node(options, self.ranks);
        let setup = setup(options, tasks, per_node);
        let result = match &mut self.form {
            Form::Json(json) => (|| {
                json.begin_object("")?;
                json.integer("TestID", index.into())?;
                json.text("StartTime", &start)?;
                if let Some(space) = space {
                    json.text("Path", path)?;
                    json.text("Capacity", &space.capacity)?;
                    json.text("Used Capacity", &space.used)?;
                    json.text("Inodes", &space.inodes)?;
                    json.text("Used Inodes", &space.used_inodes)?;
                }
                json.begin_object("Parameters")?;
                settings(json, &parameters(options, index, per_node))?;
                json.end()?;
                json.begin_object("Options")?;
                settings(json, &setup)?;
                json.end()?;
                json.begin_array("Results")?;
                json.flush()
            })(),
            Form::Csv(_) => Ok(()),
            Form::Table(table) => table.begin_test(index, &start, path, space.as_ref(), &setup),
        };
        self.checked(result)
    }

    pub(crate) fn begin_results(&mut self) -> Result<(), EngineError> {
        let result = match &mut self.form {
            Form::Json(_) => Ok(()),
            Form::Csv(out) => writeln!(
                out,
                "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),numTasks,iter"
            ),
            Form::Table(table) => table.begin_results(),
        };
        self.checked(result)
    }

    pub(crate) fn result(
        &mut self,
        options: &Options,
        is_write: bool,
        repetition: u32,
        tasks: u32,
        point: &PhaseResult,
    ) -> Result<(), EngineError> {
        let row = PhaseRow {
            access: if is_write { "write" } else { "read" },
            bandwidth: point.moved as f64 / point.figures.total_s,
            iops: (point.moved / options.transfer_size) as f64 / point.figures.transfer_s,
            block_kib: options.block_size as f64 / KIB,
            transfer_kib: options.transfer_size as f64 / KIB,
            figures: point.figures,
        };
        let result = match &mut self.form {
            Form::Json(json) => (|| {
                json.begin_object("")?;
                json.text("access", row.access)?;
                json.number("bwMiB", row.bandwidth / MIB)?;
                json.number("blockKiB", row.block_kib)?;
                json.number("xferKiB", row.transfer_kib)?;
                json.number("iops", row.iops)?;
                json.number("latency", row.figures.latency_s)?;
                json.number("openTime", row.figures.open_s)?;
                json.number("wrRdTime", row.figures.transfer_s)?;
                json.number("closeTime", row.figures.close_s)?;
                json.number("totalTime", row.figures.total_s)?;
                json.end()?;
                json.flush()
            })(),
            Form::Csv(out) => csv(out, &row, tasks, repetition),
            Form::Table(table) => table.result(&row, repetition, point.stonewall.as_ref()),
        };
        self.checked(result)
    }

    pub(crate) fn removed(&mut self, repetition: u32, seconds: f64) -> Result<(), EngineError> {
        if self.verbose == 0 {
            return Ok(());
        }
        let result = match &mut self.form {
            Form::Json(json) => (|| {
                json.begin_object("")?;
                json.text("access", "remove")?;
                json.number("totalTime", seconds)?;
                json.end()
            })(),
            Form::Csv(_) => Ok(()),
            Form::Table(table) => table.removed(repetition, seconds),
        };
        self.checked(result)
    }

    pub(crate) fn end_test(&mut self, options: &Options, result: &TestResult) -> Result<(), EngineError> {
        let most = |is_write: bool| {
            rates(result.points(is_write), options.repetitions)
                .into_iter()
                .map(|(moved, time)| moved / time)
                .fold(0.0, f64::max)
        };
        let maxima = [(options.write, "write", most(true)), (options.read, "read", most(false))];
        let is_verbose = self.verbose > 0;
        let written = match &mut self.form {
            Form::Json(json) => (|| {
                json.end()?;
                if is_verbose {
                    json.begin_object("max")?;
                    for (_, name, rate) in maxima.into_iter().filter(|&(is_done, ..)| is_done) {
                        json.number(&format!("{name}MiB"), rate / MIB)?;
                        json.number(&format!("{name}MB"), rate / 1e6)?;
                    }
                    json.end()?;
                }
                json.end()?;
                json.flush()
            })(),
            Form::Csv(out) => out.flush(),
            Form::Table(table) if is_verbose => table.maxima(&maxima),
            Form::Table(_) => Ok(()),
        };
        self.checked(written)
    }

    /// Writes the summary of all tests and ends the report. `tests` are options, number of tasks,
    /// and result of each test.
    pub(crate) fn finish(mut self, tests: &[(&Options, u32, TestResult)]) -> Result<(), EngineError> {
        let (finished, ranks) = (host_facts::local_time(), self.ranks);
        let rows = || {
            tests.iter().enumerate().flat_map(|(index, (options, tasks, result))| {
                [(options.write, true), (options.read || options.check_read, false)]
                    .into_iter()
                    .filter(|(is_done, _)| *is_done)
                    .map(move |(_, is_write)| {
                        (index as i64, *options, *tasks, totals(options, *tasks, result, is_write))
                    })
            })
        };
        let result = match &mut self.form {
            Form::Json(json) => (|| {
                json.end()?;
                json.begin_array("summary")?;
                for (index, options, tasks, totals) in rows() {
                    json.begin_object("")?;
                    summary(json, index, options, tasks, per_node(options, ranks), &totals)?;
                    json.end()?;
                }
                json.end()?;
                json.text("Finished", &finished)?;
                json.end()?;
                json.flush()
            })(),
            Form::Csv(out) => out.flush(),
            Form::Table(table) => (|| {
                table.begin_summary()?;
                for (index, options, tasks, totals) in rows() {
                    table.summary(index, options, tasks, per_node(options, ranks), &totals)?;
                }
                table.finish(&finished)
            })(),
        };
        self.checked(result)
    }
}

fn settings(json: &mut Json<Box<dyn Write>>, settings: &[Setting]) -> io::Result<()> {
    for setting in settings {
        match setting {
            Setting::Text(key, value) => json.text(key, value)?,
            Setting::Number(key, value) => json.integer(key, *value)?,
        }
    }
    Ok(())
}

fn csv(out: &mut impl Write, row: &PhaseRow, tasks: u32, repetition: u32) -> io::Result<()> {
    let PhaseRow { access, bandwidth, iops, block_kib, transfer_kib, figures } = row;
    let Figures { total_s, open_s, transfer_s, close_s, latency_s } = figures;
    writeln!(
        out,
        "{access},{:.4},{iops:.4},{latency_s:.4},{block_kib:.4},{transfer_kib:.4},{open_s:.4},{transfer_s:.4},{close_s:.4},{total_s:.4},{tasks},{repetition}",
        bandwidth / MIB
    )?;
    out.flush()
}

fn summary(
    json: &mut Json<Box<dyn Write>>,
    index: i64,
    options: &Options,
    tasks: u32,
    per_node: u32,
    totals: &DirectionTotals,
) -> io::Result<()> {
    json.text("operation", totals.access)?;
    json.text("API", options.api.name())?;
    json.integer("TestID", index)?;
    json.integer("ReferenceNumber", options.reference.into())?;
    json.integer("segmentCount", options.segments as i64)?;
    json.integer("blockSize", options.block_size as i64)?;
    json.integer("transferSize", options.transfer_size as i64)?;
    json.integer("numTasks", tasks.into())?;
    json.integer("tasksPerNode", per_node.into())?;
    json.integer("repetitions", options.repetitions.into())?;
    json.integer("filePerProc", options.file_per_process.into())?;
    json.integer("reorderTasks", options.reorder_tasks.into())?;
    json.integer("taskPerNodeOffset", options.task_per_node_offset.into())?;
    json.integer("reorderTasksRandom", options.reorder_random.level().into())?;
    json.integer("reorderTasksRandomSeed", options.reorder_random_seed.into())?;
    for (spread, keys, unit) in [
        (totals.bandwidth, ["bwMaxMIB", "bwMinMIB", "bwMeanMIB", "bwStdMIB"], MIB),
        (totals.operations, ["OPsMax", "OPsMin", "OPsMean", "OPsSD"], 1.0),
    ] {
        for (key, value) in keys.into_iter().zip([spread.max, spread.min, spread.mean, spread.deviation]) {
            json.number(key, value / unit)?;
        }
    }
    json.number("MeanTime", totals.mean_time)?;
    if let Some((seconds, bandwidth)) = totals.stonewall {
        json.number("StoneWallTime", seconds)?;
        json.number("StoneWallbwMeanMIB", bandwidth / MIB)?;
    }
    json.number("xsizeMiB", totals.moved_mib)
}
