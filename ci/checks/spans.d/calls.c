/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls functions of MPI-IO of each shape, and prints how often each rank called each of them and how many bytes were moved: what MPI itself
 * reports, by MPI_Get_count. `calls FILE [WRITES]`
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 10000, MOST = 64 };

static struct {
	const char *name;
	long calls, bytes;
} counted[MOST];

static void count(const char *name, long bytes)
{
	int i = 0;

	while (i < MOST - 1 && counted[i].name && strcmp(counted[i].name, name))
		i++;
	counted[i].name = name;
	counted[i].calls++;
	counted[i].bytes += bytes;
}

/* A call that must succeed; `bytes` is evaluated after it. */
#define CALL(function, bytes, ...)                                                    \
	do {                                                                          \
		if (function(__VA_ARGS__) != MPI_SUCCESS) {                           \
			fprintf(stderr, "calls: " #function " failed\n");             \
			MPI_Abort(MPI_COMM_WORLD, 1);                                 \
		}                                                                     \
		count(#function, bytes);                                              \
	} while (0)

static long moved(MPI_Status *status)
{
	int bytes;

	MPI_Get_count(status, MPI_BYTE, &bytes);
	return bytes;
}

int main(int argc, char **argv)
{
	static char buffer[BYTES];
	MPI_Datatype pair;
	MPI_Request request;
	MPI_Status status;
	MPI_Offset mine;
	MPI_File file;
	int rank, ranks, i;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	mine = (MPI_Offset)rank * BYTES;
	MPI_Type_contiguous(2, MPI_INT, &pair);
	MPI_Type_commit(&pair);

	/* A file that is not there: an error, and no file. */
	if (MPI_File_open(MPI_COMM_SELF, "/nowhere/at/all", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) == MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 1);
	count("MPI_File_open", 0);

	CALL(MPI_File_open, 0, MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
	CALL(MPI_File_set_size, 0, file, 0);
	for (i = 0; i < (argc > 2 ? atoi(argv[2]) : 5); i++)
		CALL(MPI_File_write_at, moved(&status), file, mine + 100 * (i % 10), buffer, 100, MPI_BYTE, &status);
	/* Count and datatype say how much it is. */
	CALL(MPI_File_write_at, 800, file, mine + 1000, buffer, 100, MPI_DOUBLE, MPI_STATUS_IGNORE);
	/* A datatype of which only the status says it, with MPICH. */
	CALL(MPI_File_write_at, moved(&status), file, mine + 2000, buffer, 25, pair, &status);
	CALL(MPI_File_write_at_all, moved(&status), file, mine, buffer, BYTES, MPI_BYTE, &status);
	CALL(MPI_File_seek, 0, file, mine, MPI_SEEK_SET);
	CALL(MPI_File_write, moved(&status), file, buffer, 300, MPI_BYTE, &status);
	CALL(MPI_File_write_all, moved(&status), file, buffer, 400, MPI_BYTE, &status);
	CALL(MPI_File_iwrite_at, 0, file, mine, buffer, 500, MPI_BYTE, &request);
	MPI_Wait(&request, &status);
	CALL(MPI_File_write_at_all_begin, 0, file, mine, buffer, 600, MPI_BYTE);
	CALL(MPI_File_write_at_all_end, moved(&status), file, buffer, &status);
	CALL(MPI_File_sync, 0, file);
	CALL(MPI_File_read_at, moved(&status), file, mine, buffer, 700, MPI_BYTE, &status);
	CALL(MPI_File_read_at_all, moved(&status), file, mine, buffer, 800, MPI_BYTE, &status);
	/* Behind the end of the file there is nothing. */
	CALL(MPI_File_read_at, moved(&status), file, (MPI_Offset)ranks * BYTES - 50, buffer, 900, MPI_BYTE, &status);
	CALL(MPI_File_set_view, 0, file, mine, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
	CALL(MPI_File_read, moved(&status), file, buffer, 64, MPI_BYTE, &status);
	CALL(MPI_File_close, 0, &file);
	/* One that is never closed. */
	CALL(MPI_File_open, 0, MPI_COMM_SELF, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);

	for (i = 0; i < MOST && counted[i].name; i++)
		printf("%d %s %ld %ld\n", rank, counted[i].name, counted[i].calls, counted[i].bytes);
	MPI_Finalize();
	return 0;
}
