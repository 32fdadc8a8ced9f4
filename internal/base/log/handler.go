package log

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"brine/internal/base/log/redact"
)

// Sink is one destination of records.
type Sink struct {
	W        io.Writer
	Level    slog.Leveler // records below are dropped; may change
	Template *Template
	// JSON writes objects instead of lines by the template.
	JSON bool
}

// NewHandler returns a handler that writes every record to each sink whose
// level it reaches, with one Write per record. Write errors are ignored: there
// is nowhere to report them.
func NewHandler(sinks ...Sink) slog.Handler {
	return &handler{sinks: sinks, mu: new(sync.Mutex), json: slices.ContainsFunc(sinks, func(s Sink) bool { return s.JSON })}
}

type handler struct {
	sinks []Sink
	mu    *sync.Mutex // shared by derived handlers

	name, jid string
	attrs     string // formatted, each after a blank
	group     string // prefix of keys, with a dot at the end

	json   bool   // some sink writes JSON
	fields []byte // the attributes as members of a JSON object, each after a comma
}

// Enabled reports whether any sink logs the level.
func (h *handler) Enabled(_ context.Context, l slog.Level) bool {
	for _, s := range h.sinks {
		if l >= s.Level.Level() && l < LevelQuiet {
			return true
		}
	}
	return false
}

// WithAttrs returns a handler that adds the attributes to every record.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.fields = slices.Clip(c.fields)
	var b strings.Builder
	b.WriteString(h.attrs)
	for _, a := range attrs {
		c.add(&b, a, h.group)
	}
	c.attrs = b.String()
	return &c
}

// WithGroup returns a handler that prefixes further keys with the name.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.group += name + "."
	return &c
}

// add adds one attribute: the component or job id of the record, or text after
// the message.
func (h *handler) add(b *strings.Builder, a slog.Attr, group string) {
	v := a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
	case v.Kind() == slog.KindGroup:
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, g := range v.Group() {
			h.add(b, g, group)
		}
	case group == "" && a.Key == "component":
		h.name = clean(v.String())
	case group == "" && a.Key == "jid":
		h.jid = clean(v.String())
	default:
		b.WriteString(" " + group + a.Key + "=" + quote(redact.Text(v.String())))
		if h.json {
			h.fields = appendField(h.fields, group+a.Key, v)
		}
	}
}

// Handle writes one record.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	cur := *h // takes the record's own component and jid
	cur.fields = slices.Clip(cur.fields)
	var b strings.Builder
	b.WriteString(clean(redact.Text(r.Message)))
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		cur.add(&b, a, h.group)
		return true
	})
	rec := record{time: r.Time, name: cur.name, jid: cur.jid, message: b.String(), pc: r.PC}
	if rec.name == "" {
		rec.name = "salt"
	}
	rec.level, rec.number = nameOf(r.Level)
	plain := rec.message
	var line []byte
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sinks {
		if r.Level < s.Level.Level() {
			continue
		}
		if s.JSON {
			line = appendJSON(line[:0], &rec, redact.Text(r.Message), cur.fields)
			_, _ = s.W.Write(line)
			continue
		}
		rec.message = plain
		if cur.jid != "" && !s.Template.usesJID {
			rec.message += " jid=" + quote(cur.jid)
		}
		line = s.Template.appendTo(line[:0], &rec)
		_, _ = s.W.Write(line)
	}
	return nil
}

// maxValue bounds the size of one attribute in bytes, since a peer may have
// sent it.
const maxValue = 4 << 10

// quote quotes text unless it is a single plain word.
func quote(s string) string {
	if len(s) > maxValue {
		s = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:maxValue], ""), len(s))
	}
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r == ' ' || r == '"' || r == '=' || r == unicode.ReplacementChar || !unicode.IsPrint(r)
	})
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// clean replaces control characters other than newline and tab.
func clean(s string) string {
	if !strings.ContainsFunc(s, steers) {
		return s
	}
	rs := []rune(s)
	for i, r := range rs {
		if steers(r) {
			rs[i] = '?'
		}
	}
	return string(slices.Clip(rs))
}

func steers(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t'
}
