package main

import (
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/analysis/passes/inspect"
)

func TestRulesFindWhatTheyAreFor(t *testing.T) {
	t.Setenv("GOFLAGS", "")
	together := &analysis.Analyzer{Name: "all", Doc: "runs all rules", Requires: []*analysis.Analyzer{inspect.Analyzer}, Run: func(p *analysis.Pass) (any, error) {
		for _, a := range all {
			if _, err := a.Run(p); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}}
	analysistest.Run(t, analysistest.TestData(), together, "brine/internal/cli/bad")
}
