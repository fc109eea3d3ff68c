# SPDX-License-Identifier: MIT OR Apache-2.0
# Asks ten times a second whether there is anything to do, a while each time.
$| = 1;
print "ready\n";
while (1) {
	for (my $asked = 0; $asked < 10_000; $asked++) { }
	select undef, undef, undef, 0.1;
}
