// Package proc runs programs: with a shell or without, as another user, with
// a time limit, and always so that no child outlives what it was started for.
// Every program gets a process group of its own; a time limit or the end of
// the context ends the whole group. Output is returned whole or not at all.
//
// The package knows nothing of Salt. It works on Unix-like systems.
package proc
