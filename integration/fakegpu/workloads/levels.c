/* Frames without frame pointers, of the sizes that one meets, over a loop that calls the driver. */
#define _GNU_SOURCE
#include "levels.h"
#include "cuda.h"
#include <execinfo.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

__attribute__((noinline, noclone)) static void *level_1(struct run *r)
{
	void *pc[256];
	CUdeviceptr one, *all = r->batch ? malloc(r->calls * sizeof(*all)) : 0;
	double start;

	r->depth = backtrace(pc, 256) + 1;
	for (long i = 0; r->batch && i < r->calls; i++) /* once untimed, for the memory that the fake driver itself needs */
		cuMemAlloc_v2(&all[i], 4096);
	for (long i = 0; r->batch && i < r->calls; i++)
		cuMemFree_v2(all[i]);
	start = now();
	if (r->batch)
		for (long i = 0; i < r->calls; i++)
			cuMemAlloc_v2(&all[i], 4096);
	else
		for (long i = 0; i < r->calls; i++) {
			cuMemAlloc_v2(&one, 4096);
			cuMemFree_v2(one);
		}
	r->ns = now() - start;
	for (long i = 0; r->batch && i < r->calls; i++)
		cuMemFree_v2(all[i]);
	free(all);
	return r;
}

#define L(n, below, bytes) \
	__attribute__((noinline, noclone)) static void *level_##n(struct run *r) \
	{ \
		volatile char frame[bytes]; \
		frame[0] = 0; \
		char *p = level_##below(r); \
		return p + frame[0]; \
	}
L(2, 1, 16) L(3, 2, 200) L(4, 3, 8) L(5, 4, 24) L(6, 5, 64) L(7, 6, 8)
L(8, 7, 1000) L(9, 8, 8) L(10, 9, 8) L(11, 10, 40) L(12, 11, 16) L(13, 12, 104)
L(14, 13, 8) L(15, 14, 40) L(16, 15, 16) L(17, 16, 200) L(18, 17, 8) L(19, 18, 24)
L(20, 19, 64) L(21, 20, 8) L(22, 21, 1000) L(23, 22, 8) L(24, 23, 8) L(25, 24, 40)
L(26, 25, 16) L(27, 26, 104) L(28, 27, 8) L(29, 28, 40) L(30, 29, 16) L(31, 30, 200)
L(32, 31, 8) L(33, 32, 24) L(34, 33, 64) L(35, 34, 8) L(36, 35, 1000) L(37, 36, 8)
L(38, 37, 8) L(39, 38, 40) L(40, 39, 16) L(41, 40, 104) L(42, 41, 8) L(43, 42, 40)
L(44, 43, 16) L(45, 44, 200) L(46, 45, 8) L(47, 46, 24) L(48, 47, 64) L(49, 48, 8)
L(50, 49, 1000) L(51, 50, 8) L(52, 51, 8) L(53, 52, 40) L(54, 53, 16) L(55, 54, 104)
L(56, 55, 8) L(57, 56, 40) L(58, 57, 16) L(59, 58, 200) L(60, 59, 8) L(61, 60, 24)
L(62, 61, 64) L(63, 62, 8) L(64, 63, 1000) L(65, 64, 8) L(66, 65, 8) L(67, 66, 40)
L(68, 67, 16) L(69, 68, 104) L(70, 69, 8) L(71, 70, 40) L(72, 71, 16) L(73, 72, 200)
L(74, 73, 8) L(75, 74, 24) L(76, 75, 64) L(77, 76, 8) L(78, 77, 1000) L(79, 78, 8)
L(80, 79, 8) L(81, 80, 40) L(82, 81, 16) L(83, 82, 104) L(84, 83, 8) L(85, 84, 40)
L(86, 85, 16) L(87, 86, 200) L(88, 87, 8) L(89, 88, 24) L(90, 89, 64) L(91, 90, 8)
L(92, 91, 1000) L(93, 92, 8) L(94, 93, 8) L(95, 94, 40) L(96, 95, 16)

static level *const levels[] = {
	level_1, level_2, level_3, level_4, level_5, level_6, level_7, level_8, level_9, level_10,
	level_11, level_12, level_13, level_14, level_15, level_16, level_17, level_18, level_19, level_20,
	level_21, level_22, level_23, level_24, level_25, level_26, level_27, level_28, level_29, level_30,
	level_31, level_32, level_33, level_34, level_35, level_36, level_37, level_38, level_39, level_40,
	level_41, level_42, level_43, level_44, level_45, level_46, level_47, level_48, level_49, level_50,
	level_51, level_52, level_53, level_54, level_55, level_56, level_57, level_58, level_59, level_60,
	level_61, level_62, level_63, level_64, level_65, level_66, level_67, level_68, level_69, level_70,
	level_71, level_72, level_73, level_74, level_75, level_76, level_77, level_78, level_79, level_80,
	level_81, level_82, level_83, level_84, level_85, level_86, level_87, level_88, level_89, level_90,
	level_91, level_92, level_93, level_94, level_95, level_96,
};

level *bench_levels(int n) { return n >= 1 && n <= 96 ? levels[n - 1] : 0; }

int bench_at_depth(int depth, struct run *r)
{
	void *pc[256];
	level *l = bench_levels(depth - 1 - backtrace(pc, 256)); /* less the driver, this function and those above it */

	if (!l)
		return -1;
	l(r);
	return 0;
}
