package trace

import (
	"encoding/json"
	"strconv"
	"time"

	"brine/internal/base/salt"
)

// The messages of OTLP 1.x in their JSON encoding, as far as spans need them:
// https://opentelemetry.io/docs/specs/otlp/.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope      `json:"scope"`
		Spans []spanData `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	spanData struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		ParentID   string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       Kind        `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes"`
		Status     *status     `json:"status,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value text   `json:"value"`
	}
	text struct {
		String string `json:"stringValue"`
	}
	status struct {
		Code int `json:"code"`
	}
)

// statusError is the code of a span that failed.
const statusError = 2

func attributes(pairs ...string) []attribute {
	out := make([]attribute, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, attribute{pairs[i], text{pairs[i+1]}})
	}
	return out
}

// encode returns the request for a batch of spans.
func (t *Tracer) encode(batch []Span) []byte {
	spans := make([]spanData, 0, len(batch))
	for i := range batch {
		s := &batch[i]
		trace, id, parent := s.ids()
		d := spanData{TraceID: trace, SpanID: id, ParentID: parent, Name: s.Name, Kind: s.Kind, Start: nanoseconds(s.Start), End: nanoseconds(s.end()),
			Attributes: append(attributes("salt.jid", s.JID), attributes(s.Attributes...)...)}
		if s.Failed {
			d.Status = &status{statusError}
		}
		spans = append(spans, d)
	}
	b, err := json.Marshal(request{[]resourceSpans{{
		Resource:   resource{attributes("service.name", t.service, "service.version", salt.BrineVersion, "service.instance.id", t.name())},
		ScopeSpans: []scopeSpans{{Scope: scope{"brine", salt.BrineVersion}, Spans: spans}},
	}}})
	if err != nil {
		return nil // strings and numbers can always be encoded
	}
	return b
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }
