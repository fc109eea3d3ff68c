// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The init of the test guests: writes the file /data to the first virtio-serial port, then executes /end, one
 * letter after the other. Freestanding.
 *
 *   p  power off      r  restart        x  exit (the kernel panics)    h  wait for ever
 *   w  wait for one byte from the port  sC write the letter C to /proc/sysrq-trigger
 *   k  write /text to /dev/kmsg        t  wait for a line from the console
 *   n  take 20000 naps of 50 us and write to /dev/kmsg a hash of how long each one took
 *
 * init-ARCH beside this file is its binary, compiled by GCC 16 as
 *   ARCH-linux-gnu-gcc -Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-pic -no-pie \
 *     -fno-asynchronous-unwind-tables -fno-tree-loop-distribute-patterns \
 *     -Wl,--build-id=none,-n,-z,noseparate-code,-z,norelro,-s init.c -o init-ARCH
 */
typedef long i64;
#if defined(__x86_64__)
enum { READ = 0, WRITE = 1, OPENAT = 257, MOUNT = 165, REBOOT = 169, EXIT = 60, YIELD = 24, PPOLL = 271, NAP = 35, CLOCK = 228, PRCTL = 157 };
static inline i64 sys(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e)
{
	i64 ret;
	register i64 r10 __asm__("r10") = d;
	register i64 r8 __asm__("r8") = e;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return ret;
}
#else
enum { READ = 63, WRITE = 64, OPENAT = 56, MOUNT = 40, REBOOT = 142, EXIT = 93, YIELD = 124, PPOLL = 73, NAP = 101, CLOCK = 113, PRCTL = 167 };
#if defined(__aarch64__)
#define R(x) "x" #x
#define NR "x8"
#define TRAP "svc #0"
#else
#define R(x) "a" #x
#define NR "a7"
#define TRAP "ecall"
#endif
static inline i64 sys(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e)
{
	register i64 nr __asm__(NR) = n;
	register i64 r0 __asm__(R(0)) = a;
	register i64 r1 __asm__(R(1)) = b;
	register i64 r2 __asm__(R(2)) = c;
	register i64 r3 __asm__(R(3)) = d;
	register i64 r4 __asm__(R(4)) = e;
	__asm__ volatile(TRAP : "+r"(r0) : "r"(nr), "r"(r1), "r"(r2), "r"(r3), "r"(r4) : "memory");
	return r0;
}
#endif

#define RDONLY 0
#define WRONLY 1
#define RDWR 2

static inline i64 open(const char *path, i64 flags)
{
	return sys(OPENAT, -100, (i64)path, flags, 0, 0);
}

static inline void copy(i64 from, i64 to)
{
	char buffer[512];
	i64 count;
	while ((count = sys(READ, from, (i64)buffer, sizeof buffer, 0, 0)) > 0)
		for (i64 done = 0; done < count;) {
			i64 wrote = sys(WRITE, to, (i64)(buffer + done), count - done, 0, 0);
			if (wrote <= 0)
				return;
			done += wrote;
		}
}

static inline void naps(i64 kmsg)
{
	i64 nap[2] = { 0, 50000 }, now[2];
	unsigned long hash = 0;
	/* Volatile, or the compiler calls memcpy to fill it. */
	volatile char text[22];
	/* PR_SET_TIMERSLACK: each nap has a deadline of its own. */
	sys(PRCTL, 29, 1, 0, 0, 0);
	for (int i = 0; i < 20000; i++) {
		sys(NAP, (i64)nap, 0, 0, 0, 0);
		/* CLOCK_MONOTONIC */
		sys(CLOCK, 1, (i64)now, 0, 0, 0);
		hash = hash * 31 + now[1];
	}
	text[0] = 'n';
	text[1] = 'a';
	text[2] = 'p';
	text[3] = 's';
	text[4] = ' ';
	for (int i = 0; i < 16; i++)
		text[5 + i] = 'a' + (hash >> 4 * i & 15);
	text[21] = '\n';
	sys(WRITE, kmsg, (i64)text, sizeof text, 0, 0);
}

__attribute__((section(".text.start"))) void _start(void)
{
	sys(MOUNT, (i64) "x", (i64) "/dev", (i64) "devtmpfs", 0, 0);
	sys(MOUNT, (i64) "x", (i64) "/proc", (i64) "proc", 0, 0);
	i64 port;
	while ((port = open("/dev/vport0p1", RDWR)) < 0)
		sys(YIELD, 0, 0, 0, 0, 0);
	copy(open("/data", RDONLY), port);
	i64 end = open("/end", RDONLY);
	char letter;
	while (sys(READ, end, (i64)&letter, 1, 0, 0) == 1) {
		if (letter == 'p')
			sys(REBOOT, 0xfee1dead, 672274793, 0x4321fedc, 0, 0);
		if (letter == 'r')
			sys(REBOOT, 0xfee1dead, 672274793, 0x1234567, 0, 0);
		if (letter == 'x')
			sys(EXIT, 0, 0, 0, 0, 0);
		if (letter == 'h')
			sys(PPOLL, 0, 0, 0, 0, 0);
		if (letter == 'w') {
			/* Until the host has opened its side, a read returns 0 bytes. */
			while (sys(READ, port, (i64)&letter, 1, 0, 0) != 1)
				sys(YIELD, 0, 0, 0, 0, 0);
		}
		if (letter == 't')
			sys(READ, open("/dev/console", RDONLY), (i64)&letter, 1, 0, 0);
		if (letter == 's') {
			sys(READ, end, (i64)&letter, 1, 0, 0);
			sys(WRITE, open("/proc/sysrq-trigger", WRONLY), (i64)&letter, 1, 0, 0);
		}
		if (letter == 'n')
			naps(open("/dev/kmsg", WRONLY));
		if (letter == 'k')
			copy(open("/text", RDONLY), open("/dev/kmsg", WRONLY));
	}
	sys(EXIT, 1, 0, 0, 0, 0);
}
