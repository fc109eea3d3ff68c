# SPDX-License-Identifier: MIT OR Apache-2.0
# Two processes read a file: 500 times, and 300 times under another name. The second one reads a
# directory 22 times, which fails (EISDIR, 21). The first one calls fsync 33
# times and fdatasync 8 times, of which 4 and 1 fail, executes programs 10 times, and 3 that are not
# there, and opens what is not there 7 times.
use strict;
use warnings;
use Fcntl;

open(my $file, '>', 'file') or die "cannot write: $!";
syswrite($file, 'x' x 65536) == 65536 or die "cannot write: $!";
close($file) or die "cannot write: $!";
my $child = fork() // die "cannot fork: $!";
$0 = 'other' unless $child;
sysopen(my $again, 'file', O_RDONLY) or die "cannot read: $!";
my ($bytes, $buffer) = (0, '');
for (1 .. ($child ? 500 : 300)) {
	sysseek($again, 0, 0) or die "cannot seek: $!";
	$bytes += sysread($again, $buffer, 4096);
}
unless ($child) {
	sysopen(my $directory, '.', O_RDONLY) or die "cannot open a directory: $!";
	for (1 .. 22) {
		defined(sysread($directory, $buffer, 16)) and die 'read a directory';
	}
	exit 0;
}
waitpid($child, 0);
die "$?" if $?;
my ($fsync, $fdatasync) = (74, 75); # x86_64
for (1 .. 33) {
	syscall($fsync, $_ > 4 ? fileno($again) : 999);
}
for (1 .. 8) {
	syscall($fdatasync, $_ > 1 ? fileno($again) : 999);
}
for (1 .. 10) {
	system($^X, '-e', 'open(F, "file"); sysread(F, $_, 9) for 1 .. 40') == 0 or die "cannot execute: $?";
}
for (1 .. 3) {
	no warnings 'exec';
	system('./not-there', 'x') == -1 or die 'executed what is not there';
}
for (1 .. 7) {
	sysopen(my $none, 'not-there', O_RDONLY) and die 'opened what is not there';
}
print "read $bytes bytes\n";
exit 0;
