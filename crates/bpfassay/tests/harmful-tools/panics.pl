# SPDX-License-Identifier: MIT OR Apache-2.0
# Ends on its signal, and leaves a process outside its cgroup that panics the kernel some milliseconds later.
$| = 1;
my $ms = shift;
$SIG{INT} = sub {
    if (fork() == 0) {
        open(my $group, '>', '/sys/fs/cgroup/cgroup.procs') or die $!;
        syswrite($group, "$$\n");
        close $group;
        fork() and exit 0;
        close $_ for (*STDIN, *STDOUT, *STDERR);
        select(undef, undef, undef, $ms / 1000);
        open(my $trigger, '>', '/proc/sysrq-trigger');
        syswrite($trigger, "c");
        exit 0;
    }
    exit 0;
};
print "ready\n";
sleep 1 while 1;
