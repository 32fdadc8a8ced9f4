// Package proc runs programs: with a shell or without, as another user, with a
// time limit, and so that no child process outlives the call. Every program
// gets its own process group; a time limit or the end of the context ends the
// whole group. Output is returned completely or not at all.
//
// The package does not depend on Salt. It works on Unix-like systems.
package proc
