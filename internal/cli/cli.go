// Package cli finds the program to run: by the name by which the binary was called (salt-key), or
// by the first argument (brine salt-key, brine key). The programs are in the subdirectories;
// package frame is the code that they share.
package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/cli/frame"
)

// name is the name of the binary.
const name = "brine"

// prefix is the part of a program's name that may be omitted after brine.
const prefix = "salt-"

// Main runs the program that argv names and returns its exit code.
func Main(ctx context.Context, env *frame.Env, applets []frame.Applet, argv []string) int {
	if len(argv) == 0 {
		argv = []string{name}
	}
	self := strings.TrimSuffix(filepath.Base(argv[0]), ".exe")
	if a := find(applets, self); a != nil {
		return a.Run(ctx, env, argv[1:])
	}
	if why, ok := absent[self]; ok {
		return refuse(env, self, why)
	}
	if len(argv) < 2 {
		fmt.Fprint(env.Stderr, usage(applets))
		return frame.ExitUsage
	}
	word := argv[1]
	switch word {
	case "-h", "--help", "help":
		fmt.Fprint(env.Stdout, usage(applets))
		return frame.ExitOK
	case "--version", "version":
		fmt.Fprintln(env.Stdout, frame.VersionLine(name))
		return frame.ExitOK
	case "-V", "--versions-report":
		fmt.Fprint(env.Stdout, frame.VersionsReport())
		return frame.ExitOK
	}
	for _, try := range []string{word, prefix + word} {
		if a := find(applets, try); a != nil {
			return a.Run(ctx, env, argv[2:])
		}
		if why, ok := absent[try]; ok {
			return refuse(env, try, why)
		}
	}
	fmt.Fprint(env.Stderr, usage(applets)+"\n"+unknown(applets, word))
	return frame.ExitUsage
}

// refuse reports why the program does not exist.
func refuse(env *frame.Env, program, why string) int {
	env.Errorf("%s: error: Brine has no %s: %s.", program, program, why)
	return frame.ExitUnavailable
}

func find(applets []frame.Applet, name string) *frame.Applet {
	for i := range applets {
		if applets[i].Name == name {
			return &applets[i]
		}
	}
	return nil
}

func usage(applets []frame.Applet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s PROGRAM [options] [arguments]\n\nPrograms, each also to be called by its own name through a link:\n", name)
	for _, a := range applets {
		if a.Hidden {
			continue
		}
		fmt.Fprintf(&b, "  %-14s %s\n", a.Name, a.Summary)
	}
	return b.String()
}

func unknown(applets []frame.Applet, word string) string {
	var names []string
	for _, a := range applets {
		if a.Hidden {
			continue
		}
		names = append(names, a.Name, strings.TrimPrefix(a.Name, prefix))
	}
	text := fmt.Sprintf("%s: error: no such program: %s", name, word)
	if near := textedit.Nearest(word, names); len(near) > 0 {
		text += " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return text + "\n"
}
