//go:build !linux

package daemon

// unmapProgram is for Linux only: elsewhere the system sees to it alone.
func unmapProgram() {}
