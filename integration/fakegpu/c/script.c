/* Settings and script, from the environment. Both are read while the library is loaded and only read afterwards, but for
 * the count of each rule. A setting that cannot be understood ends the process: a test must not run on another model
 * than the one it asked for. */
#define _GNU_SOURCE
#include "fakegpu.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct device devices[MAX_DEVICES];
int n_devices;
u64 capacity;
bool scripted;

static struct rule {
	char function[64];
	u64 every, nth;
	struct script does;
	u64 calls;
} rules[32];
static int n_rules;

static void refuse(const char *setting, const char *value, const char *want)
{
	fprintf(stderr, "fakegpu: %s: cannot read \"%s\": %s\n", setting, value, want);
	exit(2);
}

struct unit { const char *name; u64 times; };

static u64 number(const char *setting, const char *text, const struct unit *units)
{
	char *rest;
	u64 n;

	errno = 0;
	n = strtoull(text, &rest, 10);
	if (rest == text || errno)
		refuse(setting, text, "want a whole number");
	for (; units->name; units++)
		if (!strcmp(rest, units->name))
			return n * units->times;
	refuse(setting, text, "unknown unit");
	return 0;
}

static const struct unit plain[] = {{"", 1}, {0}};
static const struct unit bytes[] = {{"", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {0}};
static const struct unit durations[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {0}};

static void read_rule(char *text)
{
	struct rule *r = &rules[n_rules];
	char *pair, *save = 0, *keys = strchr(text, ':');

	if (!keys || keys - text >= (long)sizeof(r->function) || n_rules == sizeof(rules) / sizeof(*rules))
		refuse("FAKEGPU_SCRIPT", text, "want at most 32 rules FUNCTION:KEY=VALUE,...");
	*keys++ = 0;
	strcpy(r->function, text);
	for (pair = strtok_r(keys, ",", &save); pair; pair = strtok_r(0, ",", &save)) {
		char *value = strchr(pair, '=');
		if (!value)
			refuse("FAKEGPU_SCRIPT", pair, "want KEY=VALUE");
		*value++ = 0;
		if (!strcmp(pair, "every"))
			r->every = number("FAKEGPU_SCRIPT", value, plain);
		else if (!strcmp(pair, "nth"))
			r->nth = number("FAKEGPU_SCRIPT", value, plain);
		else if (!strcmp(pair, "result"))
			r->does.result = number("FAKEGPU_SCRIPT", value, plain);
		else if (!strcmp(pair, "delay"))
			r->does.delay_ns = number("FAKEGPU_SCRIPT", value, durations);
		else if (!strcmp(pair, "linger"))
			r->does.linger_ns = number("FAKEGPU_SCRIPT", value, durations);
		else
			refuse("FAKEGPU_SCRIPT", pair, "want every, nth, result, delay or linger");
	}
	n_rules++;
}

/* A UUID that stays the same for a device's number. */
void device_uuid(int number, unsigned char uuid[16])
{
	memcpy(uuid, "\xfa\x6e\x97\x00\x00\x00\x40\x00\x80\x00\x00\x00\x00\x00\x00", 15);
	uuid[15] = number;
}

static int device_named(const char *name, int n)
{
	unsigned char u[16];
	char text[64], *rest;

	for (int i = 0; i < n; i++) {
		device_uuid(i, u);
		snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
			 u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
		if (!strncmp(name, "GPU-", 4) && !strncmp(text, name, strlen(name)))
			return i;
	}
	long i = strtol(name, &rest, 10);
	return rest == name || *rest || i < 0 || i >= n ? -1 : (int)i;
}

void settings_read(void)
{
	char *memory = getenv("FAKEGPU_MEMORY"), *count = getenv("FAKEGPU_DEVICES"), *visible = getenv("CUDA_VISIBLE_DEVICES"),
	     *script = getenv("FAKEGPU_SCRIPT"), *item, *save = 0;

	capacity = number("FAKEGPU_MEMORY", memory ? memory : "80GiB", bytes);
	u64 n = number("FAKEGPU_DEVICES", count ? count : "1", plain);
	if (n < 1 || n > MAX_DEVICES)
		refuse("FAKEGPU_DEVICES", count, "want 1 to 16");
	if (visible) { /* the first name that is no device hides those after it, as the real driver has it */
		visible = strdup(visible);
		for (item = strtok_r(visible, ",", &save); item && n_devices < MAX_DEVICES; item = strtok_r(0, ",", &save)) {
			int number = device_named(item, n);
			if (number < 0)
				break;
			devices[n_devices++].number = number;
		}
		free(visible);
	} else
		for (; n_devices < (int)n; n_devices++)
			devices[n_devices].number = n_devices;
	if (script) {
		script = strdup(script);
		save = 0;
		for (item = strtok_r(script, ";", &save); item; item = strtok_r(0, ";", &save))
			read_rule(item);
		free(script);
	}
	scripted = n_rules > 0;
}

struct script script_for(const struct function *f)
{
	struct script sum = {0};

	for (struct rule *r = rules; r < rules + n_rules; r++) {
		if (strcmp(r->function, f->symbol) && strcmp(r->function, "*"))
			continue;
		u64 n = __atomic_add_fetch(&r->calls, 1, __ATOMIC_RELAXED);
		if ((r->every && n % r->every) || (r->nth && n != r->nth))
			continue;
		if (r->does.result)
			sum.result = r->does.result;
		sum.delay_ns += r->does.delay_ns;
		sum.linger_ns += r->does.linger_ns;
	}
	return sum;
}

void wait_ns(u64 ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}
