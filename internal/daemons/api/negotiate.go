package api

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// The content types of responses.
const (
	typeJSON = "application/json"
	typeYAML = "application/x-yaml"
	typeHTML = "text/html"
)

// wish is an item of an Accept header.
type wish struct {
	kind string
	q    float64
}

func wishes(header string) []wish {
	var out []wish
	for item := range strings.SplitSeq(header, ",") {
		kind, params, _ := strings.Cut(item, ";")
		w := wish{strings.ToLower(strings.TrimSpace(kind)), 1}
		for p := range strings.SplitSeq(params, ";") {
			if k, v, ok := strings.Cut(strings.TrimSpace(p), "="); ok && k == "q" {
				if q, err := strconv.ParseFloat(v, 64); err == nil {
					w.q = q
				}
			}
		}
		if w.kind != "" {
			out = append(out, w)
		}
	}
	slices.SortStableFunc(out, func(a, b wish) int {
		switch {
		case a.q > b.q:
			return -1
		case a.q < b.q:
			return 1
		}
		return 0
	})
	return out
}

// choose returns the offered type that an Accept header prefers: by q, then by the order in
// the header. A wildcard selects the first type offered. It returns "" if the header
// accepts none.
func choose(header string, offer ...string) string {
	if strings.TrimSpace(header) == "" {
		return offer[0]
	}
	for _, w := range wishes(header) {
		if w.q <= 0 {
			continue
		}
		for _, o := range offer {
			group, _, _ := strings.Cut(o, "/")
			if w.kind == "*/*" || w.kind == o || w.kind == group+"/*" {
				return o
			}
		}
	}
	return ""
}

// encode encodes data in a content type.
func encode(v any, kind string) ([]byte, error) {
	if kind == typeYAML {
		return []byte(yaml.Dump(v)), nil
	}
	text, err := json.Dump(v, json.Format{ASCII: true, Other: func(v any) (any, error) { return value.Str(v), nil }})
	return []byte(text), err
}

// maxNodes bounds the number of values in a body, because YAML can repeat a value by
// reference many times.
const maxNodes = 1 << 20

// maxYAML bounds the bytes of a YAML body, because parsing YAML can take much longer than
// parsing JSON.
const maxYAML = 256 << 10

// body is the content of a request.
type body struct {
	raw  string
	data any // nil if empty
}

// readBody reads and parses a body.
func readBody(r *http.Request, limit int64) (body, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			// A client that is still sending when the connection is closed sees an error
			// instead of the response. So read a limited part of the rest.
			_, _ = io.CopyN(io.Discard, r.Body, 4*limit)
			return body{}, &failure{http.StatusRequestEntityTooLarge, "The entity sent with the request exceeds the maximum allowed bytes."}
		}
		return body{}, &failure{http.StatusBadRequest, "The body of the request could not be read."}
	}
	b := body{raw: string(raw)}
	if len(raw) == 0 {
		return b, nil
	}
	header := r.Header.Get("Content-Type")
	if header == "" {
		header = "application/x-www-form-urlencoded"
	}
	kind, _, err := mime.ParseMediaType(header)
	if err != nil {
		return b, &failure{http.StatusNotAcceptable, "Content type not supported"}
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		b.data = formData(b.raw)
	case typeJSON:
		if b.data, err = json.Load(b.raw); err != nil {
			return b, &failure{http.StatusBadRequest, "Invalid JSON document"}
		}
	case typeYAML, "text/yaml":
		if len(raw) > maxYAML {
			return b, &failure{http.StatusRequestEntityTooLarge, "The YAML document is too large; send JSON."}
		}
		if b.data, err = yaml.Load(raw, "body"); err != nil {
			return b, &failure{http.StatusBadRequest, "Invalid YAML document"}
		}
	case "text/plain": // sent by browsers' fetch for a string, which is usually JSON
		if b.data, err = json.Load(b.raw); err != nil {
			b.data = b.raw
		}
	default:
		return b, &failure{http.StatusNotAcceptable, "Content type not supported"}
	}
	if value.Weight(b.data, maxNodes) >= maxNodes {
		return b, &failure{http.StatusRequestEntityTooLarge, "The body holds too many values."}
	}
	return b, nil
}

// formData parses a form. Repeated keys become lists; arg and kwarg are parsed like command
// line arguments.
func formData(raw string) *value.Dict {
	d := value.NewDict(8)
	for pair := range strings.SplitSeq(raw, "&") {
		k, v, _ := strings.Cut(pair, "=")
		key, val := unquote(k), unquote(v)
		if key == "" || val == "" { // Python drops empty values
			continue
		}
		switch old := d.At(key).(type) {
		case nil:
			d.Set(key, val)
		case *value.List:
			old.Append(val)
		default:
			d.Set(key, value.ListOf(old, val))
		}
	}
	if v, ok := d.At("kwarg").(string); ok {
		d.Set("kwarg", yaml.LoadArg(v))
	}
	if v, ok := d.Get("arg"); ok {
		out := &value.List{}
		for _, it := range list(v) {
			out.Append(yaml.LoadArg(value.Str(it)))
		}
		d.Set("arg", out)
	}
	return d
}

// unquote decodes a form value as Python does: an invalid % escape is not changed, and
// invalid UTF-8 becomes the replacement character.
func unquote(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '+':
			b.WriteByte(' ')
		case s[i] == '%' && i+2 < len(s) && isHex(s[i+1:i+3]):
			n, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			b.WriteByte(byte(n))
			i += 2
		default:
			b.WriteByte(s[i])
		}
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// lowstate converts a body into a list of chunks.
func lowstate(data any) ([]*value.Dict, error) {
	bad := &failure{http.StatusBadRequest, "Lowstates must be a list"}
	switch x := data.(type) {
	case *value.Dict:
		return []*value.Dict{x}, nil
	case *value.List:
		var out []*value.Dict
		for _, it := range x.Items {
			d, ok := it.(*value.Dict)
			if !ok {
				return nil, bad
			}
			out = append(out, d)
		}
		return out, nil
	}
	return nil, bad
}

// compressed reports whether a client accepts gzip.
func compressed(r *http.Request) bool {
	for _, w := range wishes(r.Header.Get("Accept-Encoding")) {
		if w.kind == "gzip" || w.kind == "*" {
			return w.q > 0
		}
	}
	return false
}

// squeeze compresses with gzip.
func squeeze(b []byte) []byte {
	var out strings.Builder
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return []byte(out.String())
}
