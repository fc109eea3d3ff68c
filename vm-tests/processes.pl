# SPDX-License-Identifier: MIT OR Apache-2.0
# Two processes read a file: 500 times, and 300 times under another name.
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
for (1 .. $child ? 500 : 300) {
	sysseek($again, 0, 0) or die "cannot seek: $!";
	$bytes += sysread($again, $buffer, 4096);
}
exit 0 unless $child;
waitpid($child, 0);
print "read $bytes bytes\n";
exit $?;
