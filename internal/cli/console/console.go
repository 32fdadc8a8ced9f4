// Package console is the program `brine console`: the web console of the master on this machine,
// for its administrator, without salt-api and external_auth.
package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/log"
	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/cli/frame"
	"brine/internal/daemons/api"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
)

var command = frame.Command{
	Name: "console",
	Doc: "Serves the web console of the master on this machine at 127.0.0.1, until Ctrl-C, and prints a link that lets one browser in with the rights " +
		"of the user who runs this: root, or the user of the master. It needs neither salt-api nor external_auth. On a server without a browser, forward " +
		"the port: ssh -L PORT:127.0.0.1:PORT HOST.",
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "the web console of the master on this machine, for its administrator", Run: run}
}

type options struct {
	frame.Config
	frame.Logging `group:"Logging Options"`
	Port          int `flag:"--port" arg:"PORT" default:"0" doc:"Port of 127.0.0.1 to listen on; 0 is a free one. Default: %default."`
}

const maxPort = 65535

func run(ctx context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	if len(inv.Args) > 0 {
		return command.Fail(env, "console takes no arguments")
	}
	if o.Port < 0 || o.Port > maxPort {
		return command.Fail(env, "--port takes a number from 0 to "+strconv.Itoa(maxPort))
	}
	if err := serve(ctx, env, o); err != nil {
		env.Errorf("console: %v", err)
		return config.ExitCode(err)
	}
	return frame.ExitOK
}

func serve(ctx context.Context, env *frame.Env, o *options) error {
	var held log.Held // until the log level is known
	tree, err := config.Load(config.Path(config.MasterKind, o.Resolve(env), env.Getenv), config.MasterKind, held.Logger())
	if err != nil {
		return err
	}
	cfg, err := config.NewMaster(tree, config.ThisMachine(), held.Logger())
	if err != nil {
		return err
	}
	var rest api.Options // besides config.Master
	if err := config.Decode(tree, &rest); err != nil {
		return err
	}
	lo := cfg.Log
	lo.File = "" // the configured file is the daemon's
	logger, err := o.Logging.Open(env, lo, nil)
	if err != nil {
		return err
	}
	defer logger.Close()

	caller := client.Caller(env.Getenv)
	if caller != cfg.Files.User && caller != "root" && !strings.HasPrefix(caller, "sudo_") {
		return salt.Errorf(salt.Denied, "run it as root or as the user of the master, %s: it has all rights on the master", cfg.Files.User)
	}
	place, err := cfg.Place()
	if err != nil {
		return err
	}
	local, err := client.NewLocal(place, caller, logger.Logger)
	if err != nil {
		return err
	}
	defer local.Close()
	c := client.New(cfg.Client, cfg.Files.ConfFile, local, local, logger.Logger)
	if err := answers(ctx, c, cfg.Files.ConfFile); err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "brine-console-")
	if err != nil {
		return fmt.Errorf("cannot make a directory for sessions: %w", err)
	}
	defer os.RemoveAll(dir)
	door := api.NewDoor(caller)
	set, err := api.ForDoor(door, o.Port, dir, rest.Timeout)
	if err != nil {
		return err
	}
	for name := range cfg.Auth.External.All() {
		set.EAuth = append(set.EAuth, value.Str(name))
	}
	slices.Sort(set.EAuth)
	server, err := api.New(*set, door.Master(c), local, logger.Logger)
	if err != nil {
		return fmt.Errorf("cannot listen on port %d of 127.0.0.1: %w", o.Port, err)
	}
	base := "http://" + server.Addr().String()
	_, port, _ := net.SplitHostPort(server.Addr().String())
	door.Opened = func(from string) {
		fmt.Fprintf(env.Stderr, "A browser at %s came in by the link. For another one: %s%s\n", from, base, door.Link())
	}
	fmt.Fprintf(env.Stdout, "%s%s\n", base, door.Link())
	fmt.Fprintf(env.Stderr, "The link works once, for the console of this machine's master with all rights of %s.\n"+
		"From another machine, first: ssh -L %s:127.0.0.1:%s HOST\nEnd with Ctrl-C.\n", caller, port, port)
	return server.Run(ctx)
}

// answers checks that the master runs, is Brine, and knows this user's key.
func answers(ctx context.Context, c *client.Client, confFile string) error {
	_, err := c.LookTrusted(ctx, "fleet.topology", value.NewDict(0))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrNoLook):
		return err
	case salt.KindOf(err) == salt.Denied:
		return fmt.Errorf("the master refuses the key of this user: %w; is cachedir in %s that of the running master?", err, confFile)
	}
	return fmt.Errorf("the master configured in %s does not answer: %w; start salt-master first", confFile, err)
}
