# SPDX-License-Identifier: MIT OR Apache-2.0
# Tidies up for longer than it may take.
$| = 1;
$SIG{INT} = sub { sleep 6; exit 0 };
print "ready\n";
sleep 1 while 1;
