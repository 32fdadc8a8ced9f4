package serialize

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/py/value"
)

// plist has Apple's property lists, in XML and in the binary format.

const plistHead = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
`

type plistForm struct {
	sort, skip bool
}

func init() { register("plist", Format{writePlist, readPlist}) }

func writePlist(v any, opts *value.Dict) (any, error) {
	o := of("plist", opts)
	f := plistForm{sort: o.truth("sort_keys", true), skip: o.truth("skipkeys", false)}
	form, _ := o.take("fmt")
	if form != nil && form != "FMT_BINARY" && value.Truth(form) {
		// the only options that Salt passes on
		form = nil
	}
	if err := o.done(); err != nil {
		return nil, err
	}
	if err := depthOK(v, 0); err != nil {
		return nil, err
	}
	if form == "FMT_BINARY" {
		return f.binary(v)
	}
	w := plistWriter{plistForm: f}
	w.b.WriteString(plistHead)
	if err := w.write(v, 0); err != nil {
		return nil, err
	}
	w.b.WriteString("</plist>\n")
	return w.b.Bytes(), nil
}

// entries returns the keys and values to write.
func (f plistForm) entries(d *value.Dict) (keys []string, vals []any, err error) {
	for k, v := range d.All() {
		s, ok := k.(string)
		if !ok && f.skip && !f.mixed(d) {
			continue
		}
		if !ok {
			return nil, nil, fmt.Errorf("plist: keys must be strings, and %s is a %s", value.Repr(k), value.TypeName(k))
		}
		keys, vals = append(keys, s), append(vals, v)
	}
	if f.sort {
		order := make([]int, len(keys))
		for i := range order {
			order[i] = i
		}
		sort.SliceStable(order, func(a, b int) bool { return keys[order[a]] < keys[order[b]] })
		k, v := make([]string, len(keys)), make([]any, len(keys))
		for i, at := range order {
			k[i], v[i] = keys[at], vals[at]
		}
		keys, vals = k, v
	}
	return keys, vals, nil
}

// mixed reports whether keys that must be sorted have different types.
func (f plistForm) mixed(d *value.Dict) bool {
	if !f.sort {
		return false
	}
	keys := d.Keys()
	for _, k := range keys[1:] {
		if _, ok := value.Compare(keys[0], k); !ok {
			return true
		}
	}
	return false
}

var (
	minInteger = big.NewInt(-1 << 63)
	maxInteger = new(big.Int).SetUint64(1<<64 - 1)
)

func integerFits(i *big.Int) error {
	if i.Cmp(minInteger) < 0 || i.Cmp(maxInteger) > 0 {
		return fmt.Errorf("plist: the number %s is out of range", i)
	}
	return nil
}

func plistType(v any) error {
	if v == nil {
		return errors.New("plist: null cannot be written")
	}
	return fmt.Errorf("plist: a %s cannot be written", value.TypeName(v))
}

type plistWriter struct {
	plistForm
	b bytes.Buffer
}

func (w *plistWriter) line(depth int, text string) {
	w.b.WriteString(strings.Repeat("\t", depth) + text + "\n")
}

func (w *plistWriter) write(v any, depth int) error {
	switch x := v.(type) {
	case bool:
		w.line(depth, "<"+strconv.FormatBool(x)+"/>")
	case int64:
		w.line(depth, fmt.Sprintf("<integer>%d</integer>", x))
	case *big.Int:
		if err := integerFits(x); err != nil {
			return err
		}
		w.line(depth, fmt.Sprintf("<integer>%d</integer>", x))
	case float64:
		w.line(depth, "<real>"+value.Str(x)+"</real>")
	case string:
		return w.text(depth, "string", x)
	case time.Time:
		w.line(depth, "<date>"+x.UTC().Format("2006-01-02T15:04:05Z")+"</date>")
	case []byte:
		w.data(depth, x)
	case *value.List:
		return w.array(x.Items, depth)
	case value.Tuple:
		return w.array(x, depth)
	case *value.Dict:
		return w.dict(x, depth)
	default:
		return plistType(v)
	}
	return nil
}

var plistEscapes = strings.NewReplacer("\r\n", "\n", "\r", "\n", "&", "&amp;", "<", "&lt;", ">", "&gt;")

func (w *plistWriter) text(depth int, element, s string) error {
	if i := strings.IndexFunc(s, func(r rune) bool { return r < 0x20 && r != '\t' && r != '\n' && r != '\r' }); i >= 0 {
		return fmt.Errorf("plist: a string must not have control characters: %s", value.Repr(s))
	}
	w.line(depth, "<"+element+">"+plistEscapes.Replace(s)+"</"+element+">")
	return nil
}

func (w *plistWriter) data(depth int, p []byte) {
	w.line(depth, "<data>")
	for width := max(16, 76-8*depth) / 4 * 3; len(p) > 0; {
		n := min(width, len(p))
		w.line(depth, base64.StdEncoding.EncodeToString(p[:n]))
		p = p[n:]
	}
	w.line(depth, "</data>")
}

func (w *plistWriter) array(items []any, depth int) error {
	if len(items) == 0 {
		w.line(depth, "<array/>")
		return nil
	}
	w.line(depth, "<array>")
	for _, it := range items {
		if err := w.write(it, depth+1); err != nil {
			return err
		}
	}
	w.line(depth, "</array>")
	return nil
}

func (w *plistWriter) dict(d *value.Dict, depth int) error {
	if d.Len() == 0 {
		w.line(depth, "<dict/>")
		return nil
	}
	keys, vals, err := w.entries(d)
	if err != nil {
		return err
	}
	w.line(depth, "<dict>")
	for i, k := range keys {
		if err := w.text(depth+1, "key", k); err != nil {
			return err
		}
		if err := w.write(vals[i], depth+1); err != nil {
			return err
		}
	}
	w.line(depth, "</dict>")
	return nil
}

func readPlist(data []byte, opts *value.Dict) (any, error) {
	o := of("plist", opts)
	o.null("fmt", "dict_type")
	if err := o.done(); err != nil {
		return nil, err
	}
	body := bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case bytes.HasPrefix(data, []byte("bplist00")):
		return readBinaryPlist(data)
	case bytes.HasPrefix(body, []byte("<?xml")), bytes.HasPrefix(body, []byte("<plist")):
		return readXMLPlist(body)
	}
	return nil, errors.New("plist: the file is neither an XML nor a binary property list")
}

// plistReader is the state of the XML reader.
type plistReader struct {
	root  any
	stack []any // *value.Dict and *value.List
	keys  []any // pending key of the dict at the same index; nil if none
	text  strings.Builder
}

func readXMLPlist(data []byte) (any, error) {
	dec := xml.NewDecoder(bytes.NewReader(data))
	dec.Entity = nil
	var r plistReader
	depth, seen := 0, false
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			if !seen || depth > 0 {
				return nil, errors.New("plist: the document ends too early")
			}
			return r.root, nil
		}
		if err == nil {
			switch x := tok.(type) {
			case xml.Directive:
				if bytes.Contains(x, []byte("<!ENTITY")) {
					err = errors.New("entities are not declared in property lists")
				}
			case xml.StartElement:
				if depth++; depth > MaxDepth {
					err = errDeep
				} else if depth == 1 && seen {
					err = errors.New("there is a second root element")
				} else {
					seen = true
					err = r.begin(x.Name.Local)
				}
			case xml.EndElement:
				depth--
				err = r.end(x.Name.Local)
			case xml.CharData:
				if depth > 0 {
					r.text.Write(x)
				} else if len(bytes.TrimSpace(x)) > 0 {
					err = errors.New("there is text outside of the root element")
				}
			}
		}
		if err != nil {
			line, _ := dec.InputPos()
			return nil, fmt.Errorf("plist: line %d: %w", line, err)
		}
	}
}

func (r *plistReader) begin(element string) error {
	r.text.Reset()
	var c any
	switch element {
	case "dict":
		c = value.NewDict(0)
	case "array":
		c = &value.List{}
	default:
		return nil
	}
	err := r.add(c)
	r.stack, r.keys = append(r.stack, c), append(r.keys, nil)
	return err
}

// add adds a value to the innermost container.
func (r *plistReader) add(v any) error {
	if len(r.stack) == 0 {
		r.root = v
		return nil
	}
	top := len(r.stack) - 1
	switch c := r.stack[top].(type) {
	case *value.Dict:
		if r.keys[top] == nil {
			return errors.New("a value has no key before it")
		}
		c.Set(r.keys[top], v)
		r.keys[top] = nil
	case *value.List:
		c.Append(v)
	}
	return nil
}

var plistDate = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d)(?::(\d\d)(?::(\d\d))?)?)?)?)?Z`)
})

func (r *plistReader) end(element string) error {
	text := r.text.String()
	top := len(r.stack) - 1
	switch element {
	case "dict", "array":
		if r.keys[top] != nil {
			return fmt.Errorf("the key %s has no value", value.Str(r.keys[top]))
		}
		r.stack, r.keys = r.stack[:top], r.keys[:top]
		return nil
	case "key":
		if top < 0 || r.keys[top] != nil || value.TypeName(r.stack[top]) != "dict" {
			return errors.New("a key is outside of a dict or follows another key")
		}
		r.keys[top] = text
		r.text.Reset()
		return nil
	case "true", "false", "string", "integer", "real", "data", "date":
	default:
		return nil
	}
	r.text.Reset()
	v, err := plistScalar(element, text)
	if err != nil {
		return err
	}
	return r.add(v)
}

func plistScalar(element, text string) (any, error) {
	word := strings.TrimSpace(text)
	switch element {
	case "string":
		return text, nil
	case "true", "false":
		return element == "true", nil
	case "integer":
		if len(word) > 100 {
			return nil, errors.New("an integer has too many digits")
		}
		base := 10
		if hex, ok := strings.CutPrefix(strings.ToLower(word), "0x"); ok {
			word, base = hex, 16
		}
		n, ok := new(big.Int).SetString(strings.TrimPrefix(word, "+"), base)
		if !ok {
			return nil, fmt.Errorf("%s is not an integer", value.Repr(text))
		}
		return value.Big(n), nil
	case "real":
		f, err := strconv.ParseFloat(word, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("%s is not a number", value.Repr(text))
		}
		return f, nil
	case "data":
		p, err := base64.StdEncoding.DecodeString(strings.Map(func(r rune) rune {
			if r == ' ' || r == '\t' || r == '\n' || r == '\r' {
				return -1
			}
			return r
		}, text))
		if err != nil {
			return nil, fmt.Errorf("the data is not base64: %w", err)
		}
		return p, nil
	}
	m := plistDate().FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%s is not a date", value.Repr(text))
	}
	n := [7]int{}
	for i := 1; i < 7; i++ {
		n[i], _ = strconv.Atoi(m[i])
	}
	t := time.Date(n[1], time.Month(n[2]), n[3], n[4], n[5], n[6], 0, time.UTC)
	if t.Year() != n[1] || int(t.Month()) != n[2] || t.Day() != n[3] || t.Hour() != n[4] || t.Minute() != n[5] || n[1] == 0 {
		return nil, fmt.Errorf("%s is not a date", value.Repr(text))
	}
	return t, nil
}
