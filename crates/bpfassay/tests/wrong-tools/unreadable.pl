# SPDX-License-Identifier: MIT OR Apache-2.0
# Prints text where its file promises a number.
$| = 1;
print "ready\n";
while (1) {
	print "reads many\n";
	sleep 1;
}
