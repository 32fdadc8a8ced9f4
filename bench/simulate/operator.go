package simulate

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Operator publishes jobs like the command line, without starting it.
type Operator struct {
	req transport.Requester
	key string
}

// NewOperator returns an operator of the master at addr. keyFile is the file .root_key in its
// cachedir.
func NewOperator(tr transport.Transport, addr, keyFile string) (*Operator, error) {
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	return &Operator{req: tr.NewRequester(addr, transport.DialOptions{}), key: strings.TrimSpace(string(key))}, nil
}

// Publish starts a job for all minions and returns its id.
func (o *Operator) Publish(ctx context.Context, fun string, arg ...any) (jid string, err error) {
	return o.PublishTo(ctx, "*", fun, arg...)
}

// PublishTo starts a job for the minions that a glob matches.
func (o *Operator) PublishTo(ctx context.Context, glob, fun string, arg ...any) (jid string, err error) {
	load := value.DictOf("cmd", "publish", "tgt", glob, "fun", fun, "arg", &value.List{Items: arg}, "key", o.key,
		"tgt_type", "glob", "ret", "", "jid", "", "user", "root")
	body, err := msgpack.Marshal(value.DictOf("enc", "clear", "load", load, "version", protocolVersion), msgpack.NewSpec)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	raw, err := o.req.Request(ctx, body)
	if err != nil {
		return "", fmt.Errorf("publish: %w", err)
	}
	v, err := msgpack.Unmarshal(raw)
	if err != nil {
		return "", err
	}
	reply, _ := v.(*value.Dict)
	if jid = reply.Dict("load").Str("jid"); jid == "" {
		return "", fmt.Errorf("publish: the master answered %.200q", value.Repr(v))
	}
	return jid, nil
}

// Close ends the connection.
func (o *Operator) Close() { o.req.Close() }
