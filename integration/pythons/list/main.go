// Command list fetches the CPythons under test and says which they are.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/vramprof/vramprof/integration/pythons"
)

func main() {
	found, err := pythons.Find(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "pythons under test:", err)
		os.Exit(1)
	}
	fmt.Print("pythons under test:")
	for _, i := range found {
		fmt.Print(" ", i)
	}
	fmt.Println()
}
