// Command brine-hub is the bus of a federation of sites. It is a program of its own, because it
// contains a server of NATS, which no other program needs.
package main

import (
	"context"
	"os"

	"brine/internal/cli/frame"
	"brine/internal/cli/hub"
)

func main() {
	ctx, stop := frame.Signals(context.Background())
	code := hub.Main(ctx, frame.OSEnv(), os.Args[1:])
	stop()
	os.Exit(code)
}
