# SPDX-License-Identifier: MIT OR Apache-2.0
# Prints what each read returned to the workload, as the kernel's trace events say. With a number, it loses every so many events, and says so.
use strict;
use warnings;
use Events;
use Fcntl;
no warnings 'portable';
$| = 1;
my ($loses) = @ARGV;
my $instance = '/sys/kernel/tracing/instances/bpfassay-events';
mkdir $instance or die "cannot trace: $!";
my @events = Events::of_reads();
sub set {
	my ($file, $text) = @_;
	open(my $setting, '>', "$instance/$file") or die "cannot open $file: $!";
	syswrite($setting, $text) or die "cannot write $file: $!";
}
for my $event (@events) {
	# What reads the events would make events itself, as would who waits for its end.
	set("events/syscalls/$event/filter", 'comm == "ior"');
	set("events/syscalls/$event/enable", '1');
}
sysopen(my $pipe, "$instance/trace_pipe", O_RDONLY | O_NONBLOCK) or die "no pipe: $!";
my ($ended, $rest, $number) = (0, '', 0);
$SIG{INT} = sub { $ended = time; };
print "ready\n";
while (1) {
	my $wanted = '';
	vec($wanted, fileno($pipe), 1) = 1;
	my $found = select($wanted, undef, undef, 0.2);
	last if $ended && ($found <= 0 || time > $ended + 1);
	next if $found <= 0;
	sysread($pipe, $rest, 65536, length $rest) or next;
	while ($rest =~ s/^(.*)\n//) {
		next unless $1 =~ /^\s*ior-\d+\s.*: sys_\w+ -> (0x[0-9a-f]+)/;
		my $returned = unpack('q', pack('Q', hex $1));
		if ($loses && ++$number % $loses == 0) {
			print STDERR "lost 1 events\n";
			next;
		}
		print "ior $returned\n";
	}
}
set("events/syscalls/$_/enable", '0') for @events;
close $pipe;
rmdir $instance or die "cannot end tracing: $!";
