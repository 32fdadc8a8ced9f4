// Package yaml reads and writes YAML as Salt does: YAML 1.1 with the types
// that PyYAML's safe loader knows and with Salt's changes to it. Values are
// those of package value.
//
// Where Salt differs from YAML 1.2, and from what many expect:
//
//   - yes, no, on and off are booleans; y and n are strings;
//   - a leading zero is dropped, not octal: 0644 is 644 (but -012 is -10,
//     and 08 is a string);
//   - a number with exponent needs a dot and a sign: 1.0e+3, else it is a string;
//   - 190:20:30 is a sexagesimal number;
//   - dates stay strings;
//   - a key that appears twice in a mapping is an error, also if << adds
//     it twice; 1 and true are one key;
//   - a stream has only one document, and an anchor is defined once;
//   - !!omap and !!pairs become a list of tuples, !!set a list of its members
//     (the model has no set), and tags of Python objects are rejected.
//
// Documents may come from unauthenticated peers. Load bounds the size, the
// depth and the expansion of aliases, and rejects a value that contains itself.
package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"brine/internal/py/value"
)

// Bounds of a document.
const (
	// MaxBytes is the maximum size of a document.
	MaxBytes = 16 << 20
	// MaxDepth bounds the nesting of lists and mappings, through aliases too.
	MaxDepth = 400
	// MaxExpansion bounds the values, in units of 64 bytes, that aliases and
	// merges may add to a document.
	MaxExpansion = 1 << 20
)

// Load reads the single document in data. An empty document is nil. name is the
// origin of data, for errors, which are of type *Error.
//
// An alias yields the same *value.List or *value.Dict as its anchor, shared
// as in Python.
func Load(data []byte, name string) (any, error) {
	return LoadText(string(data), name)
}

// LoadText is Load for a string. Strings of the result may share its memory.
func LoadText(text, name string) (any, error) {
	if v, ok := quickLoad(text); ok {
		return v, nil
	}
	v, _, err := load([]byte(text), name)
	return v, err
}

// LoadLines is Load that also returns the line of each key of a mapping, by the
// key's text.
func LoadLines(data []byte, name string) (any, map[string]int, error) {
	v, doc, err := load(data, name)
	if _, ok := v.(*value.Dict); !ok || err != nil {
		return v, nil, err
	}
	lines := make(map[string]int, len(doc.Content)/2)
	for i := 0; i+1 < len(doc.Content); i += 2 {
		n := target(doc.Content[i])
		text := n.Value
		if k, err := convert(n.Tag, n.Value); err == nil {
			text = value.Str(k)
		}
		lines[text] = n.Line
	}
	return v, lines, nil
}

func load(data []byte, name string) (any, *yaml.Node, error) {
	doc, err := compose(data)
	if err == nil && doc != nil {
		var v any
		if v, err = construct(doc, data); err == nil {
			return v, doc, nil
		}
	}
	var e *Error
	if !errors.As(err, &e) {
		return nil, nil, err // nil: no document
	}
	e.Name = name
	e.Text = sourceLine(data, e.Line)
	return nil, nil, e
}

// LoadArg parses one command line argument as Salt does: as YAML, except where
// YAML would lose something or interpret too much. A mapping or list must be in
// braces or brackets. Arguments with # stay strings; so do digits with
// underscores, tabs and line ends, !, | and invalid YAML. "None" is null.
func LoadArg(text string) any {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "", trimmed == "---", trimmed == "...":
		return text
	case strings.Contains(text, "_") && strings.Trim(trimmed, "0123456789_") == "":
		return text
	case strings.ContainsAny(text, "\t\r\n"):
		return text
	case text == "None":
		return nil
	case plainWord(text):
		return text
	}
	v, err := Load([]byte(text), "")
	if err != nil {
		return text
	}
	return argValue(text, trimmed, v)
}

// compose turns text into nodes. It returns nil when there is no document.
func compose(data []byte) (*yaml.Node, error) {
	if len(data) > MaxBytes {
		return nil, &Error{Stage: Reader, Reason: fmt.Sprintf("the document has %d bytes, more than the %d allowed", len(data), MaxBytes)}
	}
	data, err := prepare(data)
	if err != nil {
		return nil, err
	}
	return deepen(data, composePrepared)
}

// composePrepared is compose for the output of prepare.
func composePrepared(data []byte) (*yaml.Node, error) {
	limits := loaderlimits.New(loaderlimits.DepthValue(MaxDepth), loaderlimits.AliasNone())
	l, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(limits))
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	switch err := l.Load(&doc); {
	case err == io.EOF:
		return nil, nil
	case err != nil:
		return nil, syntaxError(err)
	case len(doc.Content) != 1:
		return nil, nil
	}
	var next yaml.Node
	if err := l.Load(&next); err != io.EOF {
		return nil, secondDocument(data, doc.Content[0], &next, err)
	}
	return doc.Content[0], nil
}

// secondDocument is the error for a stream that continues after its document.
func secondDocument(data []byte, first, next *yaml.Node, err error) error {
	e := &Error{Stage: Composer, Reason: "expected a single document in the stream, but found another document", Mark: markOf(next)}
	if err == nil {
		return e
	}
	s := syntaxError(err)
	if strings.Contains(s.Reason, "<document start>") {
		return s
	}
	e.Mark = s.Mark // within the second document; report its start instead
	for i, line := range bytes.Split(data, []byte("\n")) {
		if i+1 > first.Line && marker(line, "---") {
			e.Mark = Mark{i + 1, 1}
			break
		}
	}
	return e
}

// syntaxError translates an error of the YAML library.
func syntaxError(err error) *Error {
	var l *yaml.LoadError
	if !errors.As(err, &l) {
		return &Error{Stage: Parser, Reason: err.Error()}
	}
	return &Error{
		Stage:       Stage(l.Stage),
		Mark:        Mark{l.Mark.Line, l.Mark.Column},
		Reason:      l.Message,
		Context:     l.ContextMsg,
		ContextMark: Mark{l.ContextMark.Line, l.ContextMark.Column},
	}
}

func markOf(n *yaml.Node) Mark { return Mark{n.Line, n.Column} }
