/* The ledger: one JSON line a call, written whole with one write to a file opened for appending, so that threads,
 * children and other processes may share the file. */
#define _GNU_SOURCE
#include "fakegpu.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int ledger = -1;

static const char *const names[CLASSES] = {
	[DEVICE] = "device", [MANAGED] = "managed", [VMM] = "vmm", [POOL] = "pool", [ARRAY] = "array", [PINNED] = "pinned",
	[REGISTERED] = "registered", [IMPORTED] = "imported", [GRAPH] = "graph",
};
static struct { u64 bytes, objects; } freed[CLASSES];
static bool any_freed;

static void fail(const char *step)
{
	/* A ledger with a hole is worse than none: it would be taken for the truth. */
	fprintf(stderr, "fakegpu: FAKEGPU_LEDGER: %s: %s\n", step, strerror(errno));
	abort();
}

void ledger_open(void)
{
	const char *path = getenv("FAKEGPU_LEDGER");

	if (!path || !*path)
		return;
	ledger = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (ledger < 0)
		fail(path);
}

/* Memory ended during this call. */
void ledger_freed(enum class class, u64 bytes)
{
	if (ledger < 0)
		return;
	freed[class].bytes += bytes;
	freed[class].objects++;
	any_freed = true;
}

struct line { char text[4096]; size_t n; };

__attribute__((format(printf, 2, 3))) static void print(struct line *l, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	l->n += vsnprintf(l->text + l->n, sizeof(l->text) - l->n, format, args);
	va_end(args);
	if (l->n >= sizeof(l->text))
		abort();
}

static void print_text(struct line *l, const char *text)
{
	print(l, ",\"text\":\"");
	for (int i = 0; text[i] && i < 512; i++)
		if (text[i] < ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\')
			print(l, "\\u%04x", (unsigned char)text[i]);
		else
			print(l, "%c", text[i]);
	print(l, "\"");
}

void ledger_append(const struct call *c, int result)
{
	struct line l;
	struct timespec t;
	const char *comma = "";

	l.n = 0;
	clock_gettime(CLOCK_BOOTTIME, &t);
	print(&l, "{\"time\":%lld,\"pid\":%d,\"tid\":%ld,\"function\":\"%s\",\"arguments\":[", t.tv_sec * 1000000000ll + t.tv_nsec, getpid(),
	      syscall(SYS_gettid), c->function->symbol);
	for (int i = 0; i < c->function->arguments; i++)
		print(&l, "%s%llu", i ? "," : "", (unsigned long long)c->a[i]);
	print(&l, "],\"result\":%d", result);
	if (c->text)
		print_text(&l, c->text);
	if (c->class)
		print(&l, ",\"class\":\"%s\",\"size\":%llu", names[c->class], (unsigned long long)c->size);
	if (c->pointer)
		print(&l, ",\"pointer\":%llu", (unsigned long long)c->pointer);
	if (any_freed) {
		print(&l, ",\"freed\":{");
		for (int i = 0; i < CLASSES; i++) {
			if (!freed[i].objects)
				continue;
			print(&l, "%s\"%s\":{\"bytes\":%llu,\"objects\":%llu}", comma, names[i], (unsigned long long)freed[i].bytes,
			      (unsigned long long)freed[i].objects);
			comma = ",";
		}
		print(&l, "}");
		memset(freed, 0, sizeof(freed));
		any_freed = false;
	}
	print(&l, "}\n");
	for (;;) {
		ssize_t n = write(ledger, l.text, l.n);
		if (n == (ssize_t)l.n)
			return;
		if (n >= 0 || errno != EINTR)
			fail("write");
	}
}
