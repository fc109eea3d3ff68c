// SPDX-License-Identifier: MIT OR Apache-2.0
// Stands for a real IOR: writes 1 MiB, reads it, and writes a summary as IOR 4.1 does. The
// reference number (-A) selects the fault of the summary: 0 none, 1 a bandwidth of 0 and a time of
// 55 years, 2 a line that is not JSON, 3 twice the real bandwidth of writes.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRANSFER = 256 << 10, TRANSFERS = 4 };

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void result(FILE *summary, const char *access, double bandwidth, double time, const char *end)
{
	fprintf(summary,
		"{\"access\": \"%s\", \"bwMiB\": %.9f, \"blockKiB\": 1024.0, \"xferKiB\": 256.0,"
		" \"iops\": %.9f, \"latency\": 0, \"openTime\": 0, \"wrRdTime\": %.9f,"
		" \"closeTime\": 0, \"totalTime\": %.9f}%s\n",
		access, bandwidth, bandwidth * TRANSFERS, time, time, end);
}

int main(int count, char **arguments)
{
	static char buffer[TRANSFER];
	const char *path = NULL, *target = NULL;
	int wrong = 0;
	for (int i = 1; i < count; i++) {
		const char *file = strstr(arguments[i], "summaryFile=");
		if (file)
			target = file + strlen("summaryFile=");
		else if (!strcmp(arguments[i], "-o") && i + 1 < count)
			path = arguments[++i];
		else if (!strcmp(arguments[i], "-A") && i + 1 < count)
			wrong = atoi(arguments[++i]);
	}
	double start = now();
	int file = path ? open(path, O_RDWR | O_CREAT, 0644) : -1;
	for (int i = 0; i < TRANSFERS; i++)
		if (write(file, buffer, TRANSFER) != TRANSFER) return 1;
	double written = now();
	if (lseek(file, 0, SEEK_SET) != 0) return 1;
	for (int i = 0; i < TRANSFERS; i++)
		if (read(file, buffer, TRANSFER) != TRANSFER) return 1;
	double read_again = now();
	close(file);
	unlink(path);

	FILE *summary = target ? fopen(target, "w") : NULL;
	if (!summary) return 2;
	fputs("{\"Version\": \"4.1.0+dev\", \"Began\": \"x\", \"Command line\": \"ior\", \"Machine\": \"x\",\n"
	      "\"tests\": [{\"TestID\": 0, \"StartTime\": \"x\",\n"
	      "\"Parameters\": {\"testID\": 0, \"api\": \"POSIX\", \"deadlineForStonewall\": 0,"
	      " \"repetitions\": 1, \"segmentCount\": 1, \"transferSize\": 262144, \"blockSize\": 1048576},\n"
	      "\"Options\": {\"api\": \"POSIX\", \"tasks\": 1, \"repetitions\": 1},\n\"Results\": [\n", summary);
	if (wrong == 2) fputs("Commencing write performance test: Thu Jan  1\n", summary);
	double seconds = written - start;
	double bandwidth = wrong == 1 ? 0 : (wrong == 3 ? 2 : 1) / seconds;
	result(summary, "write", bandwidth, wrong == 1 ? 1751892628 : seconds, ",");
	result(summary, "read", 1 / (read_again - written), read_again - written, "");
	fputs("]}],\n\"summary\": [\n", summary);
	const char *operations[] = { "write", "read" };
	for (int i = 0; i < 2; i++)
		fprintf(summary,
			"{\"operation\": \"%s\", \"API\": \"POSIX\", \"TestID\": 0, \"blockSize\": 1048576,"
			" \"transferSize\": 262144, \"numTasks\": 1, \"tasksPerNode\": 1, \"repetitions\": 1,"
			" \"bwMaxMIB\": 100.0, \"MeanTime\": 0.01, \"xsizeMiB\": 1.0}%s\n",
			operations[i], i ? "" : ",");
	fputs("],\n\"Finished\": \"x\"}\n", summary);
	return fclose(summary) != 0;
}
