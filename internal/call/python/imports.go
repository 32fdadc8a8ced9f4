package python

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// Import is the import of a module by a Python file.
type Import struct {
	// Name is the first part of the module's name, such as requests.
	Name string
	// Offset is the place in the file.
	Offset int
	// Optional means that it is in a statement such as try or if: the file may do without it.
	Optional bool
}

var (
	anyImport = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^[ \t]*(?:from[ \t]+([A-Za-z_]\w*)(?:\.\w+)*[ \t]+import\b|import[ \t]+([A-Za-z_][^\n;]*))`)
	})
	firstName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^|,)[ \t]*([A-Za-z_]\w*)`) })
	branching = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:try|except|else|finally|if|elif|with)\b`) })
)

// Imports returns the modules that a Python file imports from outside of Salt's package and of what
// the helper provides, each once.
func Imports(text []byte) []Import {
	code := Code(text)
	var out []Import
	index := map[string]int{}
	own := map[string]bool{"salt": true, "__future__": true}
	for name := range shimContents() {
		top, _, _ := strings.Cut(strings.TrimSuffix(name, ".py"), "/")
		own[top] = true
	}
	for _, m := range anyImport().FindAllSubmatchIndex(code, -1) {
		var names []string
		if m[2] >= 0 {
			names = []string{string(code[m[2]:m[3]])}
		} else {
			for _, n := range firstName().FindAllSubmatch(code[m[4]:m[5]], -1) {
				names = append(names, string(n[1]))
			}
		}
		optional := isOptional(code, m[0])
		for _, name := range names {
			if own[name] {
				continue
			}
			if i, ok := index[name]; !ok {
				index[name] = len(out)
				out = append(out, Import{name, m[0], optional})
			} else if out[i].Optional && !optional {
				out[i] = Import{name, m[0], false}
			}
		}
	}
	return out
}

// maxEnclosing bounds the lines that are searched for the statements around an import.
const maxEnclosing = 500

// isOptional reports whether the line at an offset is in a statement such as try or if.
func isOptional(code []byte, offset int) bool {
	depth := indentation(code[offset:])
	for n := 0; offset > 0 && depth > 0 && n < maxEnclosing; n++ {
		end := offset - 1
		offset = bytes.LastIndexByte(code[:end], '\n') + 1
		line := code[offset:end]
		if d := indentation(line); d < depth && len(bytes.TrimSpace(line)) > 0 {
			if branching().Match(line[d:]) {
				return true
			}
			depth = d
		}
	}
	return false
}

// indentation returns the number of blanks at the beginning of a line.
func indentation(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " \t")) }
