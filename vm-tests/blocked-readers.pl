# SPDX-License-Identifier: MIT OR Apache-2.0
# 40 processes wait for bytes of pipes that nobody writes, and one reads a file of 64 KiB 100 times.
# Before that, 20 reads return nothing, each in a process of its own.
use strict;
use warnings;

sub in_child {
	my ($what) = @_;
	my $child = fork() // die "cannot fork: $!";
	return $child if $child;
	$what->();
	exit 0;
}

open(my $file, '>', 'file') or die "cannot write: $!";
syswrite($file, 'x' x 65536) == 65536 or die "cannot write: $!";
close($file) or die "cannot write: $!";
for (1 .. 20) {
	my $child = in_child(sub { open(my $empty, '<', '/dev/null') or die $!; sysread($empty, my $nothing, 1) });
	waitpid($child, 0);
	die "$?" if $?;
}
pipe(my $read, my $write) or die "no pipe: $!";
my @waiting = map { in_child(sub { sysread($read, my $nothing, 1) }) } 1 .. 40;
select(undef, undef, undef, 0.5);
open(my $again, '<', 'file') or die "cannot read: $!";
for (1 .. 100) {
	sysseek($again, 0, 0) or die "cannot seek: $!";
	sysread($again, my $buffer, 65536) == 65536 or die "cannot read: $!";
}
kill 'KILL', @waiting;
waitpid($_, 0) for @waiting;
exit 0;
