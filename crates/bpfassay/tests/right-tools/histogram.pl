# SPDX-License-Identifier: MIT OR Apache-2.0
# Prints what the bundled tracer measured as tables of libbpf-tools, every second.
use strict;
use warnings;
use IO::Socket::INET;
$| = 1;
my $pid = open(my $tracer, '-|', '/bpfassay/tracer', '--probe', 'kretprobe', '--latency', '--listen', '127.0.0.1:9438')
	or die "no tracer: $!";
while (my $line = <$tracer>) {
	last if $line =~ /"type":"ready"/;
}
my $ended = 0;
$SIG{INT} = sub { $ended = 1; };
print "ready\n";
while (!$ended) {
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => 9438) or last;
	print $socket "GET /metrics HTTP/1.0\r\n\r\n";
	my %tables;
	while (my $line = <$socket>) {
		next unless $line =~ /^bpfassay_latency_seconds_bucket\{operation="([^"]+)",mount="([^"]*)".*le="([^"]+)"\} (\d+)/;
		# By mount alone: what its cgroups have is added up.
		$tables{"mount = '$2' operation = '$1'"}{$3 eq '+Inf' ? 1e18 : $3} += $4;
	}
	print time() . "\n";
	for my $heading (sort keys %tables) {
		my ($least, $before) = (0, 0);
		print "$heading\n     nsecs               : count    distribution\n";
		for my $bound (sort { $a <=> $b } keys %{$tables{$heading}}) {
			my $most = $bound == 1e18 ? 9223372036854775807 : int($bound * 1e9 + 0.5);
			my $count = $tables{$heading}{$bound} - $before;
			printf("%10d -> %-10d : %-8d |%-40s|\n", $least, $most, $count, '*' x ($count > 40 ? 40 : $count));
			($least, $before) = ($most + 1, $before + $count) if $bound != 1e18;
		}
	}
	sleep 1;
}
kill 'INT', $pid;
waitpid($pid, 0);
