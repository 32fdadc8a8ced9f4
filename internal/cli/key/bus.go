package key

import (
	"context"
	"log/slog"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/value"
)

// busTimeout bounds how long telling a master may take, all events together.
const busTimeout = 2 * time.Second

// bus tells a master that runs what was done. It is best effort: the master
// sees the changed folders too, only a little later.
type bus struct {
	at   event.Sockets
	max  int
	log  *slog.Logger
	push *event.Pusher
	over bool // no master is there, or none that listens
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
		b.log.Debug("no master was told", "error", err)
	}
}

func (b *bus) close() {
	if b != nil && b.push != nil {
		_ = b.push.Close() // nobody waits for an answer
	}
}
