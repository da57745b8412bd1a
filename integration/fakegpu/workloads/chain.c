/* chain: allocates through a deep chain of native functions in several shared objects, none of which keeps a frame
 * pointer. The driver is loaded late, with dlopen, in whichever process and at whichever time it is first needed. */
#define _GNU_SOURCE
#include "chain.h"
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
	"usage: chain [options]\n"
	"  --iterations N   allocations of each thread (10)\n"
	"  --threads N      threads that allocate at once (1: the main thread)\n"
	"  --size BYTES     least size; each allocation adds to it (1048576)\n"
	"  --keep N         allocations of each thread that are never freed (0); the others are freed one behind\n"
	"  --mix            use the driver's functions in turn, not cuMemAlloc_v2 only\n"
	"  --interval USEC  pause after each allocation (0)\n"
	"  --fork N         do it in N children at once, each of which loads the driver itself, and wait for them\n"
	"  --exec           the children run this program anew\n"
	"  --wait-load      print \"load\" and wait before the driver is loaded\n"
	"  --wait           print \"start\" and wait once it is loaded, before the first allocation\n"
	"  --hold           print \"hold\" and wait at the end, with what was kept\n"
	"waiting ends with a line on standard input or with SIGUSR1\n";

static long iterations = 10, threads = 1, size = 1 << 20, keep, interval, children;
static int mix, exec_too, wait_load, wait_start, hold;
static int (*allocate)(struct request *), (*release)(struct request *);

static void wait_for(const char *what)
{
	sigset_t usr1;
	char byte;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	struct pollfd from[2] = {{ signalfd(-1, &usr1, SFD_CLOEXEC), POLLIN }, { STDIN_FILENO, POLLIN }};
	printf("%s\n", what);
	fflush(stdout);
	for (;;) {
		if (poll(from, 2, -1) < 0 && errno != EINTR)
			exit(1);
		if (from[0].revents & POLLIN)
			break;
		if (from[1].revents) {
			ssize_t n = read(STDIN_FILENO, &byte, 1);
			if (n <= 0)
				from[1].fd = -1; /* closed: only the signal is left */
			else if (byte == '\n')
				break;
		}
	}
	close(from[0].fd);
}

static void load(void)
{
	void *outer = dlopen("libchain_outer.so", RTLD_NOW | RTLD_GLOBAL);

	if (outer) {
		allocate = (int (*)(struct request *))dlsym(outer, "chain_allocate");
		release = (int (*)(struct request *))dlsym(RTLD_DEFAULT, "chain_free");
	}
	if (!allocate || !release) {
		fprintf(stderr, "chain: %s\n", dlerror());
		exit(1);
	}
}

static FRAME void *work(void *number)
{
	struct request *all = calloc(iterations, sizeof(*all));
	long freed = 0;

	for (long i = 0; i < iterations; i++) {
		all[i] = (struct request){ mix ? i % KINDS : KIND_DEVICE, 0, size + 4096 * (i % 16) + 256 * (long)number, 0 };
		allocate(&all[i]);
		for (; freed < i && freed < iterations - keep; freed++)
			if (!all[freed].result)
				release(&all[freed]);
		if (interval)
			usleep(interval);
	}
	for (; freed < iterations - keep; freed++)
		if (!all[freed].result)
			release(&all[freed]);
	free(all);
	return 0;
}

static FRAME void work_all(void)
{
	pthread_t t[64];

	load();
	if (wait_start)
		wait_for("start");
	if (threads == 1)
		work(0);
	for (long i = 0; threads > 1 && i < threads; i++)
		pthread_create(&t[i], 0, work, (void *)i);
	for (long i = 0; threads > 1 && i < threads; i++)
		pthread_join(t[i], 0);
	if (hold)
		wait_for("hold");
}

static int work_in_children(char **argv)
{
	int failed = 0, status;

	for (long i = 0; i < children; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			perror("chain: fork");
			return 1;
		}
		if (pid)
			continue;
		if (exec_too) {
			setenv("CHAIN_CHILD", "1", 1);
			execv("/proc/self/exe", argv);
			perror("chain: exec");
			_exit(1);
		}
		work_all();
		exit(0);
	}
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"iterations", 1, 0, 'n'}, {"threads", 1, 0, 't'}, {"size", 1, 0, 's'}, {"keep", 1, 0, 'k'}, {"mix", 0, &mix, 1},
		{"interval", 1, 0, 'i'}, {"fork", 1, 0, 'f'}, {"exec", 0, &exec_too, 1}, {"wait-load", 0, &wait_load, 1},
		{"wait", 0, &wait_start, 1}, {"hold", 0, &hold, 1}, {"help", 0, 0, 'h'}, {0},
	};
	sigset_t usr1;
	int option;

	while ((option = getopt_long(argc, argv, "", options, 0)) != -1)
		switch (option) {
		case 0: break;
		case 'n': iterations = atol(optarg); break;
		case 't': threads = atol(optarg); break;
		case 's': size = atol(optarg); break;
		case 'k': keep = atol(optarg); break;
		case 'i': interval = atol(optarg); break;
		case 'f': children = atol(optarg); break;
		default:
			fputs(usage, option == 'h' ? stdout : stderr);
			return option == 'h' ? 0 : 2;
		}
	if (iterations < 0 || threads < 1 || threads > 64 || keep < 0 || keep > iterations) {
		fputs(usage, stderr);
		return 2;
	}
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, 0);
	if (getenv("CHAIN_CHILD"))
		children = wait_load = 0;
	if (wait_load)
		wait_for("load");
	if (children)
		return work_in_children(argv);
	work_all();
	return 0;
}
