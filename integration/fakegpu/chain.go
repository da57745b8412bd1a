package fakegpu

// ChainFunctions are the functions of an allocation by the chain workload, demangled, innermost first: from the one that
// calls the driver to the one whose caller is the C library. Between "outer_compare" and "outer_sort" come frames of the C
// library's qsort, of which there are more or fewer by its version. In a thread other than the main one the last two,
// "work_all" and "main", are not there.
func ChainFunctions() []string {
	return []string{
		"inner_call_driver", "inner_1", "inner_2", "inner_3", "inner_4", "inner_5", "inner_alloca", "inner_6", "inner_7",
		"inner_aligned", "inner_8", "inner_9", "inner_begin",
		"chain::Pool<double>::take(request*, unsigned long)",
		"chain::Arena::reserve(request*)::{lambda(unsigned long)#1}::operator()(unsigned long) const",
		"chain::Arena::reserve(request*)", "pool_begin",
		"outer_1", "outer_2", "outer_recursion", "outer_recursion", "outer_recursion", "outer_recursion", "outer_recursion",
		"outer_descend", "outer_compare", "outer_sort", "outer_3", "outer_4", "outer_5", "outer_6", "chain_allocate",
		"work", "work_all", "main",
	}
}
