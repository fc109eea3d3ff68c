# SPDX-License-Identifier: MIT OR Apache-2.0
package Events;
use strict;
use warnings;

# The trace events at which reads return.
sub of_reads { return qw(sys_exit_read sys_exit_pread64); }

1;
