//go:build race

package tools

// Race reports whether the race detector, which makes tests five to ten times slower, runs.
// A test that repeats one thing to search at random, or to measure, does it less often then:
// `make test-all` does the whole, and a few rounds run the same code.
const Race = true
