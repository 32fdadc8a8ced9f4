// Package openstack reads and changes the options of OpenStack services with
// openstack-config(1), which is part of openstack-utils.
package openstack

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"brine/internal/host"
)

// Program is the required program.
const Program = "openstack-config"

// Option is an option of a service.
type Option struct {
	M                   *host.Machine
	File, Section, Name string
}

// ProgramError means that the program failed; it has its stderr.
type ProgramError struct{ Stderr string }

func (e *ProgramError) Error() string { return e.Stderr }

// Absent reports whether the program failed because the option does not exist.
func (e *ProgramError) Absent() bool {
	return strings.HasPrefix(strings.ToLower(e.Stderr), "parameter not found:")
}

func (o Option) run(ctx context.Context, verb string, more ...string) (string, error) {
	if o.M.Which(Program) == "" {
		return "", &exec.Error{Name: Program, Err: exec.ErrNotFound}
	}
	out, err := o.M.Do(ctx, Program, append([]string{verb}, host.Operands(append([]string{o.File, o.Section, o.Name}, more...)...)...)...)
	if err != nil {
		return "", fmt.Errorf("cannot run %s: %w", Program, err)
	}
	text := strings.TrimRight(out.Stdout, "\r\n")
	if out.Exit != 0 {
		return text, &ProgramError{strings.TrimRight(out.Stderr, "\r\n")}
	}
	return text, nil
}

// Get returns the value of an option. The error is a ProgramError if there is
// none.
func (o Option) Get(ctx context.Context) (string, error) { return o.run(ctx, "--get") }

// Set sets an option and returns the output of the program.
func (o Option) Set(ctx context.Context, value string) (string, error) {
	return o.run(ctx, "--set", value)
}

// Delete removes an option and returns the output of the program.
func (o Option) Delete(ctx context.Context) (string, error) { return o.run(ctx, "--del") }
