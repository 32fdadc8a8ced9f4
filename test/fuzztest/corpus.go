package fuzztest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const header = "go test fuzz v1"

// marshal writes arguments in the format of Go's corpora.
func marshal(args []any) []byte {
	var b bytes.Buffer
	b.WriteString(header + "\n")
	for _, a := range args {
		switch a := a.(type) {
		case []byte:
			fmt.Fprintf(&b, "[]byte(%q)\n", a)
		case string:
			fmt.Fprintf(&b, "string(%q)\n", a)
		default:
			fmt.Fprintf(&b, "%T(%v)\n", a, a)
		}
	}
	return b.Bytes()
}

// kinds are the types that the targets of this project use.
var kinds = map[string]reflect.Type{
	"string": reflect.TypeFor[string](), "bool": reflect.TypeFor[bool](), "int": reflect.TypeFor[int](), "int64": reflect.TypeFor[int64](),
	"uint64": reflect.TypeFor[uint64](), "uint8": reflect.TypeFor[uint8](), "byte": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](),
}

// unmarshal reads what marshal and Go's fuzzing write.
func unmarshal(text []byte) ([]any, error) {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if lines[0] != header {
		return nil, fmt.Errorf("not a corpus file: %q", lines[0])
	}
	var args []any
	for _, l := range lines[1:] {
		a, err := argument(l)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", l, err)
		}
		args = append(args, a)
	}
	return args, nil
}

func argument(line string) (any, error) {
	e, err := parser.ParseExpr(line)
	if err != nil {
		return nil, err
	}
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil, strconv.ErrSyntax
	}
	from := line[call.Lparen : call.Rparen-1]
	name, isName := call.Fun.(*ast.Ident)
	if !isName {
		s, err := strconv.Unquote(from)
		return []byte(s), err
	}
	if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.CHAR {
		r, _, _, err := strconv.UnquoteChar(lit.Value[1:len(lit.Value)-1], '\'')
		return reflect.ValueOf(r).Convert(kinds[name.Name]).Interface(), err
	}
	if name.Name == "string" {
		return strconv.Unquote(from)
	}
	typ, ok := kinds[name.Name]
	if !ok {
		return nil, fmt.Errorf("no argument of type %s is expected", name.Name)
	}
	v := reflect.New(typ)
	_, err = fmt.Sscan(from, v.Interface())
	return v.Elem().Interface(), err
}

// readCorpus returns the inputs in a directory, if it exists.
func (f *F) readCorpus(t *testing.T, dir string) (inputs [][]any) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		args, err := unmarshal(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		inputs = append(inputs, args)
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return inputs
}

// MaxKept is the maximum size of a kept input in bytes.
const MaxKept = 4096

// keep writes those inputs of dir to testdata/fuzz that cover more statements
// than the seeds and all smaller inputs.
func (f *F) keep(t *testing.T, fn any, dir string) {
	call := caller(fn)
	own := filepath.Join("testdata", "fuzz", f.Name())
	for _, args := range append(f.seeds, f.readCorpus(t, own)...) {
		call(t, args)
	}
	inputs := f.readCorpus(t, filepath.Join(dir, f.pkg, f.Name()))
	slices.SortFunc(inputs, func(a, b []any) int { return size(a) - size(b) })
	covered, kept := testing.Coverage(), 0
	for _, args := range inputs {
		if size(args) > MaxKept {
			break
		}
		if ok := t.Run("", func(t *testing.T) { call(t, args) }); !ok {
			t.Errorf("fails: %s", marshal(args))
		}
		if now := testing.Coverage(); now > covered {
			covered, kept = now, kept+1
			if _, err := write(own, args); err != nil {
				t.Fatal(err)
			}
		}
	}
	fmt.Printf("%s %s: %d of %d inputs kept\n", f.pkg, f.Name(), kept, len(inputs))
}

func size(args []any) (n int) {
	for _, a := range args {
		switch a := a.(type) {
		case []byte:
			n += len(a)
		case string:
			n += len(a)
		default:
			n++
		}
	}
	return n
}
