// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rank's data a rank reads, and the seeds of IOR's random choices.

use bpfassay_ior::ReorderRandom;

use super::TestRun;
use crate::engine::{EngineError, io::Io, ior_random::Rand};

impl<I: Io> TestRun<'_, I> {
    /// Returns the seed of `-z`. The default is the time of the first phase. If there is a file per
    /// process, the first phase uses this time unchanged, and later phases add the task.
    pub(super) fn draw_seed(&mut self, task: u32) -> Result<u32, EngineError> {
        let is_own = self.options().file_per_process;
        let seed = match self.seed {
            Some(seed) if is_own => (seed as u32).wrapping_add(task),
            Some(seed) => seed as u32,
            None => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec as u32;
                let seed = if is_own { now } else { self.team.value_of_first(now.into())? as u32 };
                self.seed = Some(seed as i32);
                seed
            }
        };
        Ok(seed)
    }

    /// Returns the distance in ranks to the task `nodes` nodes away. Each node has as many ranks as
    /// this one, unless the options place them otherwise.
    pub(super) fn distance(&self, nodes: i32) -> i64 {
        i64::from(nodes) * self.per_node() % i64::from(self.team.tasks())
    }

    fn per_node(&self) -> i64 {
        self.options().tasks_on_node0.unwrap_or(self.team.world_size()).into()
    }

    /// Chooses the rank whose data are read (`-C`, `-Z`, `-Q`, `-X`).
    pub(super) fn reorder(&mut self, repetition: u32) -> Result<(), EngineError> {
        let options = self.options();
        let tasks = u64::from(self.team.tasks());
        if options.reorder_tasks {
            self.rank_offset = self.distance(options.task_per_node_offset);
        }
        let seed = match options.reorder_random_seed {
            // The seed changes with every repetition.
            seed if seed < 0 => seed.unsigned_abs().wrapping_add(repetition),
            seed => seed as u32,
        };
        match options.reorder_random {
            ReorderRandom::Off => {}
            ReorderRandom::Draw => {
                let last_node = i64::from(options.nodes.unwrap_or(self.team.nodes())) - 1;
                let least = i64::from(options.task_per_node_offset).min(last_node) * self.per_node();
                if least >= tasks as i64 {
                    let what =
                        "no rank is far enough away to read from (-Z with -Q, numNodes and numTasksOnNode0): reduce -Q"
                            .to_owned();
                    return Err(EngineError::Test { rank: self.rank(), what });
                }
                let mut generator = Rand::new(self.rank().wrapping_add(seed));
                self.rank_offset = generator.below(tasks) as i64;
                while self.rank_offset < least {
                    self.rank_offset = generator.below(tasks) as i64;
                }
            }
            ReorderRandom::Shuffle => {
                let mut generator = Rand::new(seed);
                let mut order: Vec<i64> = (0..tasks as i64).collect();
                for index in 0..order.len() {
                    let other = index + generator.below((order.len() - index) as u64) as usize;
                    order.swap(index, other);
                }
                let rank = self.rank();
                self.rank_offset = order.get(rank as usize).map_or(0, |task| task - i64::from(rank));
            }
        }
        Ok(())
    }
}
