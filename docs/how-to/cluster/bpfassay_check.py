# SPDX-License-Identifier: MIT OR Apache-2.0
"""A study of bpfassay as a benchmark of ReFrame: it is run as a job, and its direct costs are figures of the test.

    reframe --checkpath docs/how-to/cluster/bpfassay_check.py --run --performance-report
    reframe … --setvar BpfassayCheck.study=cost --setvar BpfassayCheck.program=/opt/bpfassay

The command's exit code is the verdict of the study's gates: 0 is a pass, 4 and above are not (`bpfassay run --help` has the list).
"""

import json
import os
import re

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function, variable


@rfm.simple_test
class BpfassayCheck(rfm.RunOnlyRegressionTest):
    """Runs a study in the stage directory of the test, and reads the figures of its results.json."""

    descr = "does the tracer attach, count right, and what does it cost"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    program = variable(str, value="bpfassay")
    study = variable(str, value="quick")
    arguments = variable(str, value="")

    @run_before("run")
    def set_command(self):
        # A study file keeps its place: the job is executed in another directory.
        study = os.path.abspath(self.study) if os.path.exists(self.study) else self.study
        self.executable = self.program
        self.executable_opts = ["run", study, "--yes", "--output", "results", *self.arguments.split()]

    @sanity_function
    def measured(self):
        """Every run ended as expected, and every byte was counted."""
        return sn.all([sn.assert_eq(self.job.exitcode, 0), sn.assert_found(r"^fingerprint of the raw figures: ", self.stdout)])

    @run_before("performance")
    def set_figures(self):
        """A figure for each direct cost: TARGET_PROBE_METRIC, in instructions per call."""
        with open(os.path.join(self.stagedir, "results", "results.json"), encoding="utf-8") as file:
            results = json.load(file)
        for cell in results["cells"]:
            for metric in cell["metrics"]:
                direct = (metric.get("direct") or {}).get("value")
                if direct and direct["per_call"]["mean"] > 0:
                    name = re.sub(r"\W+", "_", f"{cell['cell']}_{metric['name']}")
                    mean = direct["per_call"]["mean"]
                    self.perf_variables[name] = sn.make_performance_function(float, "instructions/call", mean)
