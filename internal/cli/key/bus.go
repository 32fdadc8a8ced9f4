package key

import (
	"context"
	"log/slog"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/value"
)

// busTimeout is the timeout for sending all events to a master.
const busTimeout = 2 * time.Second

// bus sends events about changes to a running master. It is best effort: the master also notices
// the changed directories, a little later.
type bus struct {
	at   event.Sockets
	max  int
	log  *slog.Logger
	push *event.Pusher
	over bool // no master listens
}

// fire sends an event. The first one connects.
func (b *bus) fire(ctx context.Context, tag string, data *value.Dict) {
	if b.over {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	var err error
	if b.push == nil {
		b.push, err = event.DialPush(ctx, b.at, b.max)
	}
	if err == nil {
		err = b.push.Fire(ctx, tag, data)
	}
	if err != nil {
		b.over = true
		b.log.Debug("cannot send events to the master", "err", err)
	}
}

func (b *bus) close() {
	if b != nil && b.push != nil {
		_ = b.push.Close() // no reply is expected
	}
}
