# SPDX-License-Identifier: MIT OR Apache-2.0
# Prepares for longer than it may take.
$| = 1;
sleep 11;
print "ready\n";
sleep 1 while 1;
