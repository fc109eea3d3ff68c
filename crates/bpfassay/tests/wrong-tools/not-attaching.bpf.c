// On a function that no kernel has.
#include "wrong.h"
u64 calls;
SEC("kprobe/bpfassay_no_such_function") int on_nothing(void *registers)
{
	calls++;
	return 0;
}
