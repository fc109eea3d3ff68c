# SPDX-License-Identifier: MIT OR Apache-2.0
# Prints what bpftrace prints whose buffer is too small: it loses 42 events, and says so.
$| = 1;
print qq({"type": "attached_probes", "data": {"probes": 1}}\n);
my $lost = 42;
while (1) {
	print qq({"type": "lost_events", "data": {"events": $lost}}\n) if $lost;
	$lost = 0;
	print qq({"type": "map", "data": {"\@reads": 1}}\n);
	sleep 1;
}
