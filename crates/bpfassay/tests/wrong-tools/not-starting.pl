# SPDX-License-Identifier: MIT OR Apache-2.0
# Never prints the line that it should be ready with.
$| = 1;
print "waiting for a service that nobody started\n";
sleep 1 while 1;
