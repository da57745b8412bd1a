/* Calls of the driver by name, and what they should give. */
#pragma once
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef uint64_t u64;
typedef uint32_t u32;
#define MiB (1ull << 20)

static void *library;

static void *symbol(const char *name)
{
	void *p = dlsym(library, name);
	if (!p) {
		fprintf(stderr, "no %s\n", name);
		exit(1);
	}
	return p;
}

static int call(const char *name, const u64 *a)
{
	return ((int (*)(u64, u64, u64, u64, u64, u64))symbol(name))(a[0], a[1], a[2], a[3], a[4], a[5]);
}
#define P(x) ((u64)(x))
#define DO(name, ...) call(#name, (u64[6]){__VA_ARGS__})
#define WANT(want, got) do { \
	long long w_ = (long long)(want), g_ = (long long)(got); \
	if (w_ != g_) { fprintf(stderr, "line %d: %s is %lld, want %lld\n", __LINE__, #got, g_, w_); exit(1); } \
} while (0)
