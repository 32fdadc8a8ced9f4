package voter

import (
	"context"
	"sync"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/base/wait"
	"brine/internal/ha/lease"
)

// Driver runs a node: it sends packets to the other voters, and calls Tick.
type Driver struct {
	*Node
	post func(ctx context.Context, to string, p Packet) (Packet, error)
	ask  func(ctx context.Context, voter string, r lease.Request) (lease.Answer, error)

	pulse liveness.Pulse // of Run

	boxMu sync.Mutex
	boxes map[string]*mailbox
	begin func(name string, b *mailbox) // nil before Run and after its end
}

// mailbox has the messages for another voter.
type mailbox struct {
	wake wait.Wakeup

	mu       sync.Mutex
	messages [][]byte
	calls    bool // a packet must be sent, even without messages
}

// Times and bounds of a driver.
const (
	// postTime is the timeout for sending a packet and receiving its answer.
	postTime = time.Second
	// maxMail bounds the messages that wait for the answer to a packet. Raft repeats lost ones.
	maxMail = 256
)

// Drive opens a voter. post sends a packet to another one and returns its answer; it is nil for a witness, which only answers. ask queries a
// voter. Run or Close must follow.
func Drive(cfg Config, post func(ctx context.Context, to string, p Packet) (Packet, error),
	ask func(ctx context.Context, voter string, r lease.Request) (lease.Answer, error)) (*Driver, error) {
	d := &Driver{post: post, ask: ask, boxes: map[string]*mailbox{}}
	if post != nil {
		cfg.Mail = d.put
	}
	var err error
	d.Node, err = Open(cfg)
	return d, err
}

// put puts messages into a mailbox.
func (d *Driver) put(to string, messages [][]byte) {
	b := d.box(to)
	if b == nil {
		return
	}
	b.mu.Lock()
	b.messages = append(b.messages, messages...)
	b.messages = b.messages[max(0, len(b.messages)-maxMail):]
	b.calls = true
	b.mu.Unlock()
	b.wake.Wake()
}

// maxBoxes bounds the number of mailboxes.
const maxBoxes = 256

// box returns the mailbox for a voter, nil if there are too many.
func (d *Driver) box(to string) *mailbox {
	d.boxMu.Lock()
	defer d.boxMu.Unlock()
	b := d.boxes[to]
	if b == nil && len(d.boxes) < maxBoxes {
		b = &mailbox{wake: wait.NewWakeup()}
		d.boxes[to] = b
		if d.begin != nil {
			d.begin(to, b)
		}
	}
	return b
}

// take empties a mailbox.
func (b *mailbox) take() (messages [][]byte, calls bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages, calls = b.messages, b.calls
	b.messages, b.calls = nil, false
	return messages, calls
}

// Run takes part until ctx ends, and closes the node.
func (d *Driver) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	d.boxMu.Lock()
	d.begin = func(name string, b *mailbox) { wg.Go(func() { d.carry(ctx, name, b) }) }
	for name, b := range d.boxes {
		d.begin(name, b)
	}
	d.boxMu.Unlock()
	tick := time.NewTicker(TickTime)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			d.pulse.Beat()
			d.Tick()
			if d.ask != nil && d.Begins() {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, postTime)
					defer cancel()
					d.Begin(ctx, d.ask)
				})
			}
		}
	}
	d.boxMu.Lock()
	d.begin = nil
	d.boxMu.Unlock()
	wg.Wait()
	return d.Close()
}

// CheckLive returns an error if the loop of the voter hangs. Other voters have no effect on it. It blocks while the lock of the node is held.
func (d *Driver) CheckLive() error {
	d.Health()
	return d.pulse.Check("the loop of the voter", liveness.StepTime)
}

// carry sends the content of a mailbox, one packet at a time.
func (d *Driver) carry(ctx context.Context, name string, b *mailbox) {
	for ctx.Err() == nil {
		messages, calls := b.take()
		if !calls {
			select {
			case <-ctx.Done():
			case <-b.wake.C():
			}
			continue
		}
		d.pass(ctx, name, messages)
	}
}

func (d *Driver) pass(ctx context.Context, name string, messages [][]byte) {
	ctx, cancel := context.WithTimeout(ctx, postTime)
	defer cancel()
	back, err := d.post(ctx, name, d.Packet(name, messages))
	if err != nil {
		d.e.cfg.Log.Debug("cannot reach a voter", "voter", name, "err", err)
		d.unreachable(name, err.Error())
		return
	}
	d.Returned(name, back)
}
