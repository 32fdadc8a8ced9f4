package log

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"brine/internal/base/log/redact"
)

// The members of an object that are not attributes. An attribute with one of these names gets the
// prefix "attr.".
var reserved = map[string]bool{"time": true, "level": true, "logger": true, "pid": true, "jid": true, "msg": true}

// appendJSON appends a record as a line with one object: time (RFC 3339, UTC, microseconds), level,
// logger, pid, jid if there is one, msg, and the attributes.
func appendJSON(b []byte, r *record, message string, fields []byte) []byte {
	b = append(b, `{"time":"`...)
	b = r.time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
	b = append(b, `","level":"`...)
	b = append(b, strings.ToLower(r.level)...)
	b = append(b, `","logger":`...)
	b = appendString(b, r.name)
	b = fmt.Appendf(b, `,"pid":%d`, os.Getpid())
	if r.jid != "" {
		b = append(b, `,"jid":`...)
		b = appendString(b, r.jid)
	}
	b = append(b, `,"msg":`...)
	b = appendString(b, message)
	b = append(b, fields...)
	return append(b, "}\n"...)
}

// appendField appends an attribute as a member of an object, after a comma. Numbers and booleans keep
// their types, durations are in seconds, times in RFC 3339. Everything else is text.
func appendField(b []byte, key string, v slog.Value) []byte {
	if reserved[key] {
		key = "attr." + key
	}
	b = append(appendString(append(b, ','), key), ':')
	switch v.Kind() {
	case slog.KindInt64:
		return fmt.Appendf(b, "%d", v.Int64())
	case slog.KindUint64:
		return fmt.Appendf(b, "%d", v.Uint64())
	case slog.KindBool:
		return fmt.Appendf(b, "%t", v.Bool())
	case slog.KindFloat64:
		if out, err := json.Marshal(v.Float64()); err == nil { // not for infinity
			return append(b, out...)
		}
	case slog.KindDuration:
		return fmt.Appendf(b, "%g", v.Duration().Seconds())
	case slog.KindTime:
		return appendString(b, v.Time().UTC().Format(time.RFC3339Nano))
	}
	s := redact.Text(v.String())
	if len(s) > maxValue {
		s = fmt.Sprintf("%s... (%d bytes)", s[:maxValue], len(s))
	}
	return appendString(b, s)
}

// appendString appends s as a JSON string. It replaces invalid UTF-8.
func appendString(b []byte, s string) []byte {
	out, err := json.Marshal(s)
	if err != nil { // never for a string
		return append(b, `""`...)
	}
	return append(b, out...)
}
