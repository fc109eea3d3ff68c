# SPDX-License-Identifier: MIT OR Apache-2.0
# Prints a count under another name than its file has.
$| = 1;
print "ready\n";
while (1) {
	print qq({"reads": 7}\n);
	sleep 1;
}
