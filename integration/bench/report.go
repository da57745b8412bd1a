package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// print writes the table and what the project promises of it. It fails if the measurement was disturbed.
func (m measurements) print(out io.Writer, all []*subject) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(at setting, s *subject) {
		fmt.Fprintf(w, "%s\t%s\t%.0f ns\n", at, s.name, m.median(at, s))
	}
	fmt.Fprintf(w, "PROBES\tFRAMES\tPER CALL\n")
	for _, at := range []setting{bare, firstPair, chosenPair} {
		row(at, all[1])
	}
	for _, at := range []setting{reusing, walkingEach} {
		for _, s := range all {
			row(at, s)
		}
	}
	pair := m.median(chosenPair, all[1])
	fmt.Fprintln(w, "\t\t")
	for _, s := range all {
		if s.python > 0 {
			fmt.Fprintf(w, "agent / empty pair at the chosen offset\t%s\t%.2f (promised: below 5)\n", s.name, m.median(reusing, s)/pair)
		}
	}
	for _, at := range []setting{walkingEach, reusing} {
		promise := ""
		if at == walkingEach {
			promise = " (promised: below 130 ns)"
		}
		shallow, deep := all[0], all[2]
		each := (m.median(at, deep) - m.median(at, shallow)) / float64(deep.native-shallow.native)
		fmt.Fprintf(w, "%s, per native frame\tfrom %d to %d\t%.1f ns%s\n", at, shallow.native, deep.native, each, promise)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Medians of %d repeats of %d calls, in %d rounds over all settings.\n", rounds*repeats, calls, rounds)
	if 2*m.median(bare, all[1]) > pair {
		return errors.New("a call without a probe cannot take so long: end the other profilers on this machine, which probe the driver too")
	}
	return nil
}
