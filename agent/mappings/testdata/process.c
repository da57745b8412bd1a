// Does what stdin says, line by line, and answers each line with one of its own when it is done. The lines are read by a
// second thread, so that the first one can leave.
//   cc -pthread -o process process.c
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static sem_t leave;

static void *idle(void *arg) { return arg; }

// Whether this process's first thread has ended, as /proc sees it.
static int first_ended(void)
{
	char b[256] = "";
	FILE *f = fopen("/proc/self/stat", "r");
	if (!f || !fgets(b, sizeof b, f))
		exit(2);
	fclose(f);
	return strstr(b, ") Z ") != NULL;
}

// Children that run a program, eight at a time.
static void storm(int n, const char *program)
{
	for (int running = 0; n > 0 || running > 0;) {
		if (n > 0 && running < 8) {
			pid_t child = fork();
			if (child == 0) {
				execl(program, program, (char *)NULL);
				_exit(127);
			}
			printf("%d ", child);
			n--;
			running++;
			continue;
		}
		int status;
		if (wait(&status) < 0 || status)
			exit(3);
		running--;
	}
}

static void *commands(void *unused)
{
	static char line[8192], arg[4096];
	int n;

	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "dlopen %4095[^\n]", arg) == 1) {
			printf("%d", dlopen(arg, RTLD_NOW) != NULL);
		} else if (!strcmp(line, "fork\n")) {
			pid_t child = fork();
			if (child == 0) {
				close(0);
				close(1);
				pause();
			}
			printf("%d", child);
		} else if (!strcmp(line, "thread\n")) {
			pthread_t t;
			printf("%d", pthread_create(&t, NULL, idle, NULL) || pthread_join(t, NULL));
		} else if (!strcmp(line, "jit\n")) {
			void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			printf("%p", mprotect(p, 4096, PROT_READ | PROT_EXEC) ? NULL : p);
		} else if (!strcmp(line, "leave\n")) {
			sem_post(&leave);
			while (!first_ended())
				sched_yield();
			printf("left");
		} else if (sscanf(line, "exec %4095[^\n]", arg) == 1) {
			execl(arg, arg, (char *)NULL);
			exit(4);
		} else if (sscanf(line, "storm %d %4095[^\n]", &n, arg) == 2) {
			storm(n, arg);
		} else {
			exit(5);
		}
		printf("\n");
		fflush(stdout);
	}
	exit(0);
}

int main(void)
{
	pthread_t t;
	if (sem_init(&leave, 0, 0) || pthread_create(&t, NULL, commands, NULL))
		return 1;
	while (sem_wait(&leave))
		;
	pthread_exit(NULL);
}
