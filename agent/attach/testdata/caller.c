// caller LIBRARY: loads a library, then for each line "FUNCTION COUNT" of its input calls the function that often and
// prints what it returned last and the nanoseconds per call.
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

typedef long (*function)(long, long, long, long, long, long);

int main(int argc, char **argv) {
	void *library = argc == 2 ? dlopen(argv[1], RTLD_LAZY) : NULL;
	if (!library) {
		fprintf(stderr, "caller: %s\n", argc == 2 ? dlerror() : "no library given");
		return 1;
	}
	char name[64];
	long count;
	while (scanf("%63s %ld", name, &count) == 2) {
		function f = (function)dlsym(library, name);
		if (!f) {
			fprintf(stderr, "caller: %s\n", dlerror());
			return 1;
		}
		struct timespec from, to;
		long last = 0;
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (long i = 0; i < count; i++)
			last = f(1, 2, 3, 4, 5, 6);
		clock_gettime(CLOCK_MONOTONIC, &to);
		double ns = (to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec);
		printf("%ld %.1f\n", last, ns / count);
		fflush(stdout);
	}
	return 0;
}
