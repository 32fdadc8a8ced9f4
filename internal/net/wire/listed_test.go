package wire_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"brine/internal/net/wire"
)

// TestMessagesAreListed: every struct of this package with tags is in a conversation,
// whose target fuzzes it, and has a usable declaration.
func TestMessagesAreListed(t *testing.T) {
	listed := map[string]bool{}
	for _, all := range conversations {
		for _, m := range all {
			listed[reflect.TypeOf(m).Name()] = true
			wire.Encode(m)
		}
	}
	found := 0
	inspect := func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		s, ok := spec.Type.(*ast.StructType)
		if !ok || len(s.Fields.List) == 0 || s.Fields.List[0].Tag == nil {
			return true
		}
		found++
		if !listed[spec.Name.Name] {
			t.Errorf("add %s to its conversation", spec.Name.Name)
		}
		return true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, inspect)
	}
	if found != len(listed) {
		t.Errorf("%d structs, %d in conversations", found, len(listed))
	}
}
