package python

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestImports(t *testing.T) {
	const text = `#!/usr/bin/env python
"""
import in_documentation
"""
# import in_comment
from __future__ import absolute_import
import os, boto3.session as b, requests
from salt.utils import files
from .sibling import x
from yaml.nodes import (
    Node,
)
try:
    import certifi
    HAS = True
except ImportError:
    import certifi_old
if True:
    pass
import importing_nothing_else


def f():
    import inner
    if f:
        from deep.er import x
        import requests


class C:
    try:
        def g(self):
            import nested
    except Exception:
        pass
    import boto3
important = 1
fromage = 2
`
	var got []string
	for _, i := range Imports([]byte(text)) {
		optional := ""
		if i.Optional {
			optional = "?"
		}
		got = append(got, fmt.Sprintf("%s%s:%d", i.Name, optional, 1+strings.Count(text[:i.Offset], "\n")))
	}
	want := []string{"os:7", "boto3:7", "requests:7", "yaml:10", "certifi?:14", "certifi_old?:17", "importing_nothing_else:20", "inner:24",
		"deep?:26", "nested?:33"}
	if !slices.Equal(got, want) {
		t.Errorf("%v\ninstead of %v", got, want)
	}
}

// TestImportsOfHostileFiles: the search ends soon in files that are made to be slow.
func TestImportsOfHostileFiles(t *testing.T) {
	begin := time.Now()
	for _, text := range []string{strings.Repeat(" import a\n", 50_000), strings.Repeat("import ", 100_000), "import " + strings.Repeat("a,", 200_000)} {
		Imports([]byte(text))
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
