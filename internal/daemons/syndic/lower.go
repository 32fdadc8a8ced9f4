package syndic

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Lower is the master on this machine, stock or Brine.
type Lower struct {
	local   *client.Local
	client  *client.Client
	sockets event.Sockets
	log     *slog.Logger
}

// NewLower returns the connection to the master at a place. It does not connect yet.
func NewLower(at client.Place, o client.Options, confFile string, log *slog.Logger) (*Lower, error) {
	local, err := client.NewLocal(at, client.Caller(func(string) string { return "" }), log)
	if err != nil {
		return nil, err
	}
	o.OrderMasters = true // sends the timeout along, and accepts jobs that match no minion here
	return &Lower{local: local, client: client.New(o, confFile, local, local, log), sockets: at.Sockets, log: log}, nil
}

func (l *Lower) close() { _ = l.local.Close() }

// publish publishes a job from above. ErrNoMatch means that no minion matches. An error of the
// kind Denied means that the master refuses the job.
func (l *Lower) publish(ctx context.Context, load *value.Dict) (client.Published, error) {
	var in wire.Job
	if err := wire.Decode(load, &in); err != nil {
		return client.Published{}, salt.Errorf(salt.Invalid, "malformed command: %w", err)
	}
	kwargs := value.DictOf("auth_list", above(load))
	for _, k := range []string{"master_id", "user", "delimiter", "metadata", "ret_config", "ret_kwargs", "module_executors", "executor_opts", wire.TraceKey} {
		if v, ok := load.Get(k); ok {
			kwargs.Set(k, v)
		}
	}
	ret, _ := in.Ret.(string)
	arg, _ := in.Arg.(*value.List)
	j := client.Job{Target: in.Tgt, Type: in.TgtType, Fun: in.Fun, Arg: arg, Ret: ret, JID: in.JID, Kwargs: kwargs, Timeout: l.timeout(in.To)}
	return l.client.Publish(ctx, j)
}

// above returns the permissions of the user of the master above.
func above(load *value.Dict) any {
	if l := load.At("auth_list"); l != nil {
		return l
	}
	return &value.List{}
}

// timeout returns how long the lower master's command would wait: a second less than the master
// above.
func (l *Lower) timeout(to any) time.Duration {
	d := l.client.Options().Timeout
	switch x := to.(type) {
	case int64:
		d = time.Duration(min(max(x, 0), maxTimeout)) * time.Second
	case float64:
		d = time.Duration(min(max(x, 0), maxTimeout)) * time.Second
	}
	return max(d-time.Second, time.Second)
}

// maxTimeout is a day, in seconds.
const maxTimeout = 24 * 3600

// stored is what the lower master knows of a job.
type stored struct {
	fun     any
	minions []string
	returns map[string]*value.Dict
}

// look reads a job from the lower master; nil means that it does not know the job.
func (l *Lower) look(ctx context.Context, jid string) (*stored, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	d, err := l.client.Run(ctx, client.Runner{Fun: lookUp, Args: []any{jid}}, nil, nil)
	if err != nil {
		return nil, err
	}
	var ran wire.Ran
	wire.View(d, &ran)
	about, _ := ran.Return.(*value.Dict)
	if about == nil {
		return nil, salt.Errorf(salt.Internal, "%s: %.200s", lookUp, value.Str(ran.Return))
	}
	if about.Has("Error") {
		return nil, nil
	}
	s := &stored{fun: about.At("Function"), minions: value.OnlyTexts(about.At("Minions")), returns: map[string]*value.Dict{}}
	results, _ := about.At("Result").(*value.Dict)
	for id, v := range results.All() {
		if ret, ok := v.(*value.Dict); ok {
			s.returns[value.Str(id)] = ret
		}
	}
	return s, nil
}

// lookTime bounds one look-up; a stock master starts a process for it.
const lookTime = 30 * time.Second

// events yields the events of the lower master from now on. opened is called when the master has
// accepted the connection. The last pair is the error that ended it.
func (l *Lower) events(ctx context.Context, opened func()) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		r, err := event.Dial(ctx, l.sockets)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Close()
		_ = r.IsSyndic() // a failure shows when the first event is read
		if err := event.Settle(ctx, l.sockets); err != nil && ctx.Err() == nil {
			l.log.Debug("the master is slow to accept event subscribers", "err", err)
		}
		opened()
		for e, err := range r.Events() {
			if !yield(e, err) {
				return
			}
		}
	}
}

// mayRetry reports whether a publish request that failed may succeed later: the master was not
// reached, or did not answer.
func mayRetry(err error) bool {
	kind := salt.KindOf(err)
	return kind == salt.Unavailable || kind == salt.Timeout || errors.Is(err, client.ErrNoReply)
}
