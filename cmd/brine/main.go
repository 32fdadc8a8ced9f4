// Command brine contains all of Brine's programs in one binary: salt, salt-key, salt-master and the
// others. The name by which it is called selects the program.
package main

import (
	"context"
	"os"

	"brine/internal/cli"
	"brine/internal/cli/frame"
)

func main() {
	ctx, stop := frame.Signals(context.Background())
	code := cli.Main(ctx, frame.OSEnv(), cli.Applets(), os.Args)
	stop()
	os.Exit(code)
}
