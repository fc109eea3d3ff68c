# SPDX-License-Identifier: MIT OR Apache-2.0
# Sets a trace event, and leaves it so.
use strict;
use warnings;
$| = 1;
my ($file, $text) = @ARGV;
open(my $setting, '>', "/sys/kernel/tracing/events/sched/sched_process_exit/$file") or die "cannot open $file: $!";
syswrite($setting, "$text\n") or die "cannot write $file: $!";
close $setting;
print "ready\n";
sleep 1 while 1;
