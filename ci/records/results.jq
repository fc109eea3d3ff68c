# SPDX-License-Identifier: MIT OR Apache-2.0
# Strict reading of results.json, for the scripts that make tables of it: a key that is not there is an error, not an empty field.

def must($key): if type == "object" and has($key) then .[$key] else error("no key `\($key)`: results of another version?") end;

# Results of the version that the scripts know.
def known: if must("version") == 3 then . else error("results of version \(.version), not 3") end;

# Text of others in a cell of a table: its first line.
def line: split("\n")[0] | gsub("\\|"; "\\|");

# What `value` makes of a figure, or why it was not measured.
def figure(value): if has("value") then .value | value else "not measured: \(must("not_measured") | line)" end;

# The target of a cell.
def target: must("target") | "\(must("arch")) \(must("kernel"))";
