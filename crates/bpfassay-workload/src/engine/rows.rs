// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of all forms of results: rows, totals and settings of a test.

use super::{
    host_facts::{self, Host},
    io::Space,
    result::{Figures, ResultSpread, TestResult, rates, spread},
};
use bpfassay_ior::{AccessOrder, Options, ReorderRandom};

pub(crate) const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

/// The version of IOR that the engine imitates.
pub(crate) const IOR_VERSION: &str = "4.1.0+dev";

/// Distinguishes a report from the real IOR's.
pub(crate) const ENGINE: &str = concat!("embedded engine of bpfassay ", env!("CARGO_PKG_VERSION"));

/// The figures of one phase, as all forms show them.
pub(crate) struct PhaseRow {
    pub(crate) access: &'static str,
    pub(crate) bandwidth: f64,
    pub(crate) iops: f64,
    pub(crate) block_kib: f64,
    pub(crate) transfer_kib: f64,
    pub(crate) figures: Figures,
}

/// The figures of one direction of one test, as all forms show them.
pub(crate) struct DirectionTotals {
    pub(crate) access: &'static str,
    pub(crate) bandwidth: ResultSpread,
    pub(crate) operations: ResultSpread,
    pub(crate) mean_time: f64,
    /// Mean time and bandwidth at the deadline, if there is wear-out.
    pub(crate) stonewall: Option<(f64, f64)>,
    /// MiB moved in the first repetition.
    pub(crate) moved_mib: f64,
}

/// Name and displayed value of one setting.
pub(crate) enum Setting {
    Text(&'static str, String),
    Number(&'static str, i64),
}

pub(crate) fn per_node(options: &Options, ranks: u32) -> u32 {
    options.tasks_on_node0.unwrap_or(ranks)
}

pub(crate) fn totals(options: &Options, tasks: u32, result: &TestResult, is_write: bool) -> DirectionTotals {
    let points = result.points(is_write);
    let rates = rates(points, options.repetitions);
    let operations: Vec<_> = rates.iter().map(|(moved, time)| (moved / options.transfer_size as f64, *time)).collect();
    let count = rates.len() as f64;
    let stonewall = options.wear_out.then(|| {
        let walls = points.iter().filter_map(|(_, point)| point.stonewall);
        let (seconds, bytes) = walls.fold((0.0, 0.0), |(seconds, bytes), wall| {
            (seconds + wall.seconds, bytes + (wall.total_bytes / u64::from(tasks)) as f64)
        });
        (seconds / count, bytes / seconds)
    });
    DirectionTotals {
        access: if is_write { "write" } else { "read" },
        bandwidth: spread(&rates),
        operations: spread(&operations),
        mean_time: rates.iter().map(|(_, time)| time).sum::<f64>() / count,
        stonewall,
        moved_mib: rates.first().map_or(0.0, |(moved, _)| moved / MIB),
    }
}

pub(crate) fn parameters(options: &Options, index: u32, per_node: u32) -> Vec<Setting> {
    use Setting::{Number, Text};
    // IOR's letters for the packets here differ from the letters of the option.
    let letter = ["g", "t", "o", "i"].get(usize::from(options.packet.number())).copied().unwrap_or_default();
    let number = |key, value: bool| Number(key, value.into());
    vec![
        Number("testID", index.into()),
        Number("refnum", options.reference.into()),
        Text("api", options.api.name().to_owned()),
        Text("platform", Host::get().platform()),
        Text("testFileName", options.test_file.clone()),
        Number("deadlineForStonewall", options.deadline.into()),
        number("stoneWallingWearOut", options.wear_out),
        Number("maxTimeDuration", options.max_time.into()),
        Number("outlierThreshold", 0),
        Text("options", "(null)".to_owned()),
        Number("dryRun", 0),
        Number("nodes", options.nodes.unwrap_or(1).into()),
        Number("memoryPerTask", 0),
        Number("memoryPerNode", 0),
        Number("tasksPerNode", per_node.into()),
        Number("repetitions", options.repetitions.into()),
        number("multiFile", options.multi_file),
        Number("interTestDelay", options.inter_test_delay.into()),
        number("fsync", options.fsync),
        number("fsyncperwrite", options.fsync_per_write),
        number("useExistingTestFile", options.use_existing),
        number("uniqueDir", options.unique_dir),
        number("singleXferAttempt", options.single_attempt),
        number("readFile", options.read),
        number("writeFile", options.write),
        number("filePerProc", options.file_per_process),
        number("reorderTasks", options.reorder_tasks),
        Number("reorderTasksRandom", options.reorder_random.level().into()),
        Number("reorderTasksRandomSeed", options.reorder_random_seed.into()),
        Number("randomOffset", options.order.level().into()),
        number("checkWrite", options.check_write),
        number("checkRead", options.check_read),
        Number("dataPacketType", options.packet.number().into()),
        number("keepFile", options.keep),
        number("keepFileWithError", options.keep_with_error),
        Number("warningAsErrors", 0),
        Number("verbose", options.verbose.into()),
        Text("data packet type", letter.to_owned()),
        Number("setTimeStampSignature/incompressibleSeed", options.signature.into()),
        number("collective", options.collective),
        Number("segmentCount", options.segments as i64),
        Number("transferSize", options.transfer_size as i64),
        Number("blockSize", options.block_size as i64),
    ]
}

pub(crate) fn setup(options: &Options, tasks: u32, per_node: u32) -> Vec<Setting> {
    use Setting::{Number, Text};
    let text = |key, value: &str| Text(key, value.to_owned());
    let mut setup = vec![
        text("api", options.api.name()),
        text("apiVersion", ""),
        text("test filename", &options.test_file),
        text("access", if options.file_per_process { "file-per-process" } else { "single-shared-file" }),
        text("type", if options.collective { "collective" } else { "independent" }),
        Number("segments", options.segments as i64),
        text("ordering in a file", if options.order == AccessOrder::Sequential { "sequential" } else { "random" }),
    ];
    if options.reorder_tasks {
        setup.push(text("ordering inter file", "constant task offset"));
        setup.push(Number("task offset", options.task_per_node_offset.into()));
    } else if options.reorder_random == ReorderRandom::Off {
        setup.push(text("ordering inter file", "no tasks offsets"));
    }
    if options.reorder_random == ReorderRandom::Draw {
        setup.push(text("ordering inter file", "random task offset"));
        setup.push(Number("task offset", options.task_per_node_offset.into()));
        setup.push(Number("reorder random seed", options.reorder_random_seed.into()));
    }
    setup.extend([
        Number("nodes", options.nodes.unwrap_or(1).into()),
        Number("tasks", tasks.into()),
        Number("clients per node", per_node.into()),
        text("memoryBuffer", "CPU"),
        text("dataAccess", "CPU"),
        text("GPUDirect", "0"),
        Number("repetitions", options.repetitions.into()),
        Text("xfersize", host_facts::human(options.transfer_size)),
        Text("blocksize", host_facts::human(options.block_size)),
        Text("aggregate filesize", host_facts::human(options.aggregate_size(tasks).unwrap_or_default())),
    ]);
    if options.verbose > 0 {
        setup.push(Number("verbose", options.verbose.into()));
    }
    if options.deadline > 0 {
        setup.push(Number("stonewallingTime", options.deadline.into()));
        setup.push(Number("stoneWallingWearOut", options.wear_out.into()));
    }
    setup
}

/// The displayed facts of the file system.
pub(crate) struct Capacity {
    pub(crate) capacity: String,
    pub(crate) used: String,
    pub(crate) inodes: String,
    pub(crate) used_inodes: String,
}

impl Capacity {
    pub(crate) fn new(space: Space) -> Self {
        let total = space.blocks as f64 * space.block_size as f64;
        let free = space.free_blocks as f64 * space.block_size as f64;
        let size = total / GIB;
        Self {
            capacity: if size > 1024.0 { format!("{:.1} TiB", size / 1024.0) } else { format!("{size:.1} GiB") },
            used: format!("{:.1}%", (1.0 - free / total) * 100.0),
            inodes: format!("{:.1} Mi", space.files as f64 / MIB),
            used_inodes: format!("{:.1}%", (1.0 - space.free_files as f64 / space.files as f64) * 100.0),
        }
    }
}
