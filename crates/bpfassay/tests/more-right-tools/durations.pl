# SPDX-License-Identifier: MIT OR Apache-2.0
# How long reads of the workload took and what they returned, from the kernel's trace events: as tables of libbpf-tools in each second's report
# (`log2` of microseconds in the last second, `linear` of KiB since the beginning), or as pages of metrics (`pages`).
use strict;
use warnings;
use Fcntl;
use IO::Socket::INET;
no warnings 'portable';
$| = 1;
my ($form) = @ARGV;
my $instance = "/sys/kernel/tracing/instances/bpfassay-$form";
my @events = map { ("sys_enter_$_", "sys_exit_$_") } qw(read pread64);
my @bounds = (0.000_001, 0.000_1, 0.01, 1);
mkdir $instance or die "cannot trace: $!";

sub set {
	my ($file, $text) = @_;
	open(my $setting, '>', "$instance/$file") or die "cannot open $file: $!";
	syswrite($setting, $text) or die "cannot write $file: $!";
}
for my $event (@events) {
	set("events/syscalls/$event/filter", 'comm == "ior"');
	set("events/syscalls/$event/enable", '1');
}
sysopen(my $pipe, "$instance/trace_pipe", O_RDONLY | O_NONBLOCK) or die "no pipe: $!";

# When a call of each thread began; microseconds and bytes of those that ended.
my (%began, @durations, @sizes, $rest);
$rest = '';

sub look {
	while (sysread($pipe, $rest, 65536, length $rest)) {
		while ($rest =~ s/^(.*)\n//) {
			next unless $1 =~ /^\s*ior-(\d+)\s.*\s(\d+\.\d+): sys_\w+(?:\(| -> (0x[0-9a-f]+))/;
			my ($thread, $at, $returned) = ($1, $2, $3);
			if (!defined $returned) {
				$began{$thread} = $at;
				next;
			}
			my $bytes = unpack('q', pack('Q', hex $returned));
			push @durations, int(1e6 * ($at - (delete $began{$thread} // $at)) + 0.5);
			push @sizes, $bytes > 0 ? $bytes : 0;
		}
	}
}

sub table {
	my ($title, $least, $most, @values) = @_;
	return unless @values;
	my @counts;
	$counts[$_]++ for @values;
	print "comm = 'ior'\n     $title              : count    distribution\n";
	for my $bucket (0 .. $#counts) {
		my $count = $counts[$bucket] // 0;
		my $range = $least->($bucket) == $most->($bucket) ? $most->($bucket) : $least->($bucket) . ' -> ' . $most->($bucket);
		printf("%-20s : %-8d |%-40s|\n", $range, $count, '*' x ($count > 40 ? 40 : $count));
	}
}

sub log2 {
	my ($value) = @_;
	my $bucket = 0;
	$bucket++ while $value >> ($bucket + 1);
	return $bucket;
}

sub pages {
	my $server = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 9436, Listen => 4, ReuseAddr => 1)
		or die "cannot listen: $!";
	while (my $client = $server->accept) {
		my $asked = <$client> // '';
		while (my $line = <$client>) {
			last if $line =~ /^\r?\n$/;
		}
		look();
		my $body;
		if ($asked =~ m{ /sizes }) {
			my $sum = 0;
			$sum += $_ for @sizes;
			$body = "# TYPE read_bytes counter\nread_bytes_total{process=\"ior\"} $sum\n";
		} else {
			my ($number, $sum) = (scalar @durations, 0);
			$sum += $_ for @durations;
			$body = "# TYPE read_seconds histogram\n";
			for my $bound (@bounds) {
				my $count = grep { $_ <= 1e6 * $bound + 0.5 } @durations;
				$body .= "read_seconds_bucket{process=\"ior\",le=\"$bound\"} $count\n";
			}
			$body .= "read_seconds_bucket{process=\"ior\",le=\"+Inf\"} $number\n";
			$body .= sprintf("read_seconds_sum{process=\"ior\"} %f\nread_seconds_count{process=\"ior\"} %d\n", $sum / 1e6, $number);
		}
		print $client "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
		close $client;
	}
}

sub tables {
	my $seconds = 0;
	while (1) {
		sleep 1;
		look();
		print ++$seconds, " s\n";
		if ($form eq 'log2') {
			table('usecs', sub { $_[0] && 1 << $_[0] }, sub { (1 << ($_[0] + 1)) - 1 }, map { log2($_) } @durations);
			(@durations, @sizes) = ();
		} else {
			table('kbytes', sub { $_[0] }, sub { $_[0] }, map { $_ >> 10 } @sizes);
		}
	}
}

# What was begun is left at the signal.
eval {
	local $SIG{INT} = sub { die "ended\n" };
	print "ready\n";
	$form eq 'pages' ? pages() : tables();
};
die $@ unless $@ eq "ended\n";
set("events/syscalls/$_/enable", '0') for @events;
close $pipe;
rmdir $instance or die "cannot end tracing: $!";
