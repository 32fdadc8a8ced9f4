// Command brine is all of Brine's programs in one binary: salt, salt-key,
// salt-master and the others, chosen by the name it is called by.
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
