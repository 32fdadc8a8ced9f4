//go:build !race

package tools

// Race reports whether the race detector runs: race.go.
const Race = false
