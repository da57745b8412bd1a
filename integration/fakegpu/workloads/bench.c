/* bench: the time of the driver's cuMemAlloc_v2 below a chosen number of native frames without frame pointers. */
#include "levels.h"
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: bench [--depth N] [--calls N] [--repeats N] [--batch] [--wait]\n"
	"  --depth N    native frames, the driver's own and those of the thread's start included: 4 to 98 (34)\n"
	"  --calls N    allocations of a repeat (200000)\n"
	"  --repeats N  how often to measure (5)\n"
	"  --batch      time allocations alone; otherwise pairs of an allocation and its free\n"
	"  --wait       print \"ready\" and wait for a line on standard input before each repeat; its end ends the program\n"
	"prints a line of JSON for each repeat\n";

int main(int argc, char **argv)
{
	static int batch, wait_first;
	static const struct option options[] = {
		{"depth", 1, 0, 'd'}, {"calls", 1, 0, 'c'}, {"repeats", 1, 0, 'r'}, {"batch", 0, &batch, 1},
		{"wait", 0, &wait_first, 1}, {"help", 0, 0, 'h'}, {0},
	};
	int depth = 34, repeats = 5, option;
	long calls = 200000;
	char line[256];

	while ((option = getopt_long(argc, argv, "", options, 0)) != -1)
		switch (option) {
		case 0: break;
		case 'd': depth = atoi(optarg); break;
		case 'c': calls = atol(optarg); break;
		case 'r': repeats = atoi(optarg); break;
		default:
			fputs(usage, option == 'h' ? stdout : stderr);
			return option == 'h' ? 0 : 2;
		}
	level *l = bench_levels(depth - 3); /* less the driver, start_thread and clone */
	if (!l || calls < 1) {
		fputs(usage, stderr);
		return 2;
	}
	for (int i = 0; i < repeats; i++) {
		struct run r = { calls, batch, 0, 0 };
		pthread_t t;
		if (wait_first) {
			puts("ready");
			fflush(stdout);
			if (!fgets(line, sizeof(line), stdin))
				break;
		}
		if (pthread_create(&t, 0, (void *(*)(void *))l, &r) || pthread_join(t, 0)) {
			fprintf(stderr, "bench: no thread\n");
			return 1;
		}
		printf("{\"depth\":%d,\"python\":0,\"calls\":%ld,\"batch\":%s,\"ns\":%.1f}\n", r.depth, calls, batch ? "true" : "false", r.ns / calls);
		fflush(stdout);
	}
	return 0;
}
