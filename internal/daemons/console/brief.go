package console

import (
	"strings"
	"unicode/utf8"

	"brine/internal/catalogue/runners"
	"brine/internal/net/event"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// Limits of an event that is sent to pages.
const (
	maxText  = 512     // bytes of a string
	maxBrief = 4 << 10 // bytes of the data
	maxItems = 40      // entries of a list or map
	maxDepth = 6
	maxTag   = 300
)

// Event is an event as sent to pages, encoded as JSON.
type Event struct {
	// Brief has the tag and the shortened data, Bare only what identifies a return.
	Brief, Bare string
}

// NewEvent shortens an event. It omits a large return: the page fetches it when the user
// asks for it.
func NewEvent(tag string, data *value.Dict) (*Event, error) {
	shown := value.NewDict(data.Len())
	room := maxBrief
	for k, v := range data.All() {
		name, _ := k.(string)
		if name == "return" {
			continue // last, in the remaining space
		}
		shown.Set(shortText(value.Str(k), maxText), shorten(v, &room, maxDepth))
	}
	if v, ok := data.Get("return"); ok {
		if s := runners.StatesOf(v); s != nil {
			shown.Set("states", s.Dict())
		}
		if v != event.Trimmed && runners.Size(v, room) <= room {
			shown.Set("return", v)
		} else {
			shown.Set("cut", true)
		}
		shown.Set("failed", runners.Failed(data))
	}
	tag = shortText(tag, maxTag)
	brief, err := encode(value.DictOf("tag", tag, "data", shown))
	if err != nil {
		return nil, err
	}
	e := &Event{Brief: brief}
	if parts := strings.Split(tag, "/"); len(parts) == 5 && parts[1] == "job" && parts[3] == "ret" {
		bare := value.NewDict(4)
		for _, k := range []string{"id", "jid", "failed", "states"} {
			if v, ok := shown.Get(k); ok {
				bare.Set(k, v)
			}
		}
		bare.Set("cut", true)
		e.Bare, err = encode(value.DictOf("tag", tag, "data", bare))
	}
	return e, err
}

// shorten copies a value without the parts that exceed the limits.
func shorten(v any, room *int, depth int) any {
	switch x := v.(type) {
	case string:
		s := shortText(x, min(maxText, max(*room, 0)))
		*room -= len(s)
		return s
	case []byte:
		s := shortText(string(x), min(maxText, max(*room, 0)))
		*room -= len(s)
		return s
	case *value.List:
		return shortList(value.Items(x), room, depth)
	case value.Tuple:
		return shortList(x, room, depth)
	case *value.Dict:
		if depth == 0 {
			return "…"
		}
		out := value.NewDict(min(x.Len(), maxItems))
		n := 0
		for k, it := range x.All() {
			if n++; n > maxItems || *room <= 0 {
				out.Set("…", int64(x.Len()-n+1))
				break
			}
			key := shortText(value.Str(k), maxText)
			*room -= len(key)
			out.Set(key, shorten(it, room, depth-1))
		}
		return out
	}
	*room -= 8
	return v
}

func shortList(items []any, room *int, depth int) any {
	if depth == 0 {
		return "…"
	}
	out := &value.List{}
	for i, it := range items {
		if i == maxItems || *room <= 0 {
			out.Append("…")
			break
		}
		out.Append(shorten(it, room, depth-1))
	}
	return out
}

// shortText cuts a string at a character boundary.
func shortText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// encode encodes a value as JSON in one line.
func encode(v any) (string, error) {
	return json.Dump(v, json.Format{ASCII: true, Other: func(v any) (any, error) { return value.Str(v), nil }})
}
