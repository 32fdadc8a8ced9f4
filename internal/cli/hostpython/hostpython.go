// Package hostpython is the program `brine python`: the package salt for users' Python programs on
// the machine of a master, where Salt is not installed.
package hostpython

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"brine/internal/call/python"
	"brine/internal/cli/frame"
)

var command = frame.Command{
	Name: "python", Usage: "install|serve [options] DIR|FILE",
	Doc: "Lets Python programs on this machine use salt.client, salt.runner, salt.wheel, salt.utils.event and salt.config without Salt.",
	Subs: []frame.Sub{
		{Name: "install", Args: "DIR",
			Doc: "Writes the Python package salt to a directory, which a program needs in PYTHONPATH or in a .pth file. The package brine-python does so " +
				"for the system's python3.", Example: "brine python install /opt/brine-python"},
		{Name: "serve", Args: "[FILE]",
			Doc: "Connects a program to the master that a configuration file is for. The package salt calls it; it speaks on its standard input and output."},
	},
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "Salt's Python names for programs on this machine, without Salt", Run: run}
}

type options struct{}

func run(ctx context.Context, env *frame.Env, args []string) int {
	inv, code, ok := command.Parse(env, &options{}, args)
	if !ok {
		return code
	}
	what, rest := "", []string(nil)
	if len(inv.Args) > 0 {
		what, rest = inv.Args[0], inv.Args[1:]
	}
	switch what {
	case "install":
		if len(rest) != 1 {
			return command.Fail(env, "install takes one directory")
		}
		if err := install(rest[0]); err != nil {
			env.Errorf("python: %v", err)
			return frame.ExitFailure
		}
		return frame.ExitOK
	case "serve":
		if len(rest) > 1 {
			return command.Fail(env, "serve takes at most one file")
		}
		file := ""
		if len(rest) == 1 {
			file = rest[0]
		}
		if err := serve(ctx, env, file); err != nil {
			env.Errorf("python: %v", err)
			return frame.ExitFailure
		}
		return frame.ExitOK
	case "":
		return command.Fail(env, "subcommand missing: install or serve")
	}
	return command.Fail(env, "unknown subcommand "+what+"; expected install or serve")
}

// install writes the package. A package salt that is not Brine's stays as it is.
func install(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "salt")); err == nil {
		if _, err := os.Stat(filepath.Join(dir, "brine_host.py")); err != nil {
			return fmt.Errorf("%s has a package salt that is not Brine's: name another directory", dir)
		}
	}
	if err := python.Install(dir); err != nil {
		return fmt.Errorf("cannot write the package salt: %w", err)
	}
	return nil
}
