package trace

import (
	"context"
	"encoding/hex"
	"strings"

	"brine/internal/base/salt"
)

// Link is the place of a job in the trace of another one, which has started it: an orchestration, or
// the job of a master above. The zero Link is that of a job with its own trace.
type Link struct {
	// Root is the job of the trace.
	Root   string
	Parent SpanID
}

// String returns the link as messages have it.
func (l Link) String() string { return l.Root + "/" + hex.EncodeToString(l.Parent[:]) }

// ParseLink returns the link that String has written, the zero Link for anything else.
func ParseLink(s string) Link {
	root, parent, _ := strings.Cut(s, "/")
	var l Link
	if !salt.ValidJID(root) || len(parent) != hex.EncodedLen(len(l.Parent)) {
		return Link{}
	}
	if _, err := hex.Decode(l.Parent[:], []byte(parent)); err != nil {
		return Link{}
	}
	l.Root = root
	return l
}

type linkKey struct{}

// With returns a context in which jobs that are started have a link.
func With(ctx context.Context, l Link) context.Context { return context.WithValue(ctx, linkKey{}, l) }

// From returns the link of a context, the zero Link without one.
func From(ctx context.Context) Link {
	l, _ := ctx.Value(linkKey{}).(Link)
	return l
}
