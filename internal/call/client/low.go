package client

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// LowClients are the supported clients of low data, sorted by name. Salt's client ssh is not supported.
var LowClients = []string{"local", "local_async", "local_batch", "local_subset", "runner", "runner_async", "ssh", "wheel", "wheel_async"}

// lowCredentials are the keys of a chunk with credentials.
var lowCredentials = []string{"token", "eauth", "username", "password", wire.ApproverKey}

// ErrNoCredentials means that a chunk has no credentials. Its message is Salt's.
var ErrNoCredentials error = &salt.Error{Kind: salt.Denied, Err: constError("No authentication credentials given")}

// ErrMissing means that a chunk has no function or no target.
var ErrMissing error = &salt.Error{Kind: salt.Internal, Err: constError("the chunk lacks fun, or tgt for a job of minions")}

// Low runs a chunk of low data: a map with the key client and the arguments of that client. It must
// contain a token, or eauth, username and password; the key of this process' user is never used.
// There is usually one result, and one per minion for a batch. A target without matches is not an
// error.
func (c *Client) Low(ctx context.Context, chunk *value.Dict) ([]any, error) {
	creds := value.NewDict(4)
	for _, k := range lowCredentials {
		if v, ok := chunk.Get(k); ok {
			creds.Set(k, v)
		}
	}
	if !creds.Has("token") && !creds.Has("eauth") {
		return nil, ErrNoCredentials
	}
	return newLow(c.As(creds), chunk, false).do(ctx)
}

// LowTrusted runs a chunk of low data as the user of this process and ignores credentials in it. It
// is for requests from the machine's own configuration.
func (c *Client) LowTrusted(ctx context.Context, chunk *value.Dict) ([]any, error) {
	return newLow(c, chunk, true).do(ctx)
}

// do runs the chunk.
func (l *low) do(ctx context.Context) ([]any, error) {
	name, _ := l.Client.(string)
	if l.Fun == nil || l.Fun == "" {
		if strings.HasPrefix(name, "runner") || strings.HasPrefix(name, "wheel") {
			return nil, salt.Errorf(salt.Invalid, "fun is missing: the function to run with the client %s", name)
		}
		return nil, ErrMissing
	}
	one := func(v any, err error) ([]any, error) { return []any{v}, err }
	switch name {
	case "local":
		return one(l.local(ctx))
	case "local_async":
		return one(l.localAsync(ctx))
	case "local_batch":
		return l.localBatch(ctx)
	case "local_subset":
		return one(l.localSubset(ctx))
	case "runner":
		return one(l.runner(ctx))
	case "runner_async":
		return one(l.runnerAsync(ctx))
	case "wheel":
		return one(l.master(ctx, "wheel"))
	case "wheel_async":
		return one(l.master(ctx, "_brine_wheel"))
	}
	return nil, salt.Errorf(salt.Invalid, "Invalid client specified: '%s'", value.Str(l.Client))
}

// low is one chunk with its client.
type low struct {
	wire.Low
	client *Client
	chunk  *value.Dict
	// trusted means that the chunk comes from the machine's own configuration.
	trusted bool
}

func newLow(c *Client, chunk *value.Dict, trusted bool) *low {
	l := &low{client: c, chunk: chunk, trusted: trusted}
	wire.View(chunk, &l.Low)
	return l
}

// keywords returns the keywords of a chunk, or none.
func (l *low) keywords() *value.Dict {
	kw, _ := l.Kwarg.(*value.Dict)
	return kw
}

// lowKwargs are the keys of a chunk for minions that the master reads besides the job itself.
// Others are not passed on: they could change a job beyond the permissions that were checked.
var lowKwargs = []string{"delimiter", "metadata", "ret_config", "ret_kwargs"}

// maxLowTimeout bounds the wait for minions of one chunk.
const maxLowTimeout = 24 * time.Hour

// job builds the job for the minions.
func (l *low) job() (Job, error) {
	if !l.chunk.Has("tgt") {
		return Job{}, ErrMissing
	}
	j := Job{Target: l.Tgt, Type: l.TgtType, Fun: l.Fun, Ret: l.Ret, JID: l.JID, Kwargs: value.NewDict(0)}
	switch tgt := j.Target.(type) {
	case string:
	case *value.List:
		if !allTexts(tgt) {
			return Job{}, salt.Errorf(salt.Invalid, "tgt must be a string or a list of strings")
		}
	default:
		j.Target = value.Str(tgt)
	}
	switch fun := j.Fun.(type) {
	case string:
	case *value.List:
		if !allTexts(fun) {
			return Job{}, salt.Errorf(salt.Invalid, "fun must be a string or a list of strings")
		}
	default:
		return Job{}, salt.Errorf(salt.Invalid, "fun must be a string or a list of strings")
	}
	var err error
	if j.Arg, err = l.args(); err != nil {
		return Job{}, err
	}
	if j.Timeout, err = secondsOf("timeout", l.Timeout); err != nil {
		return Job{}, err
	}
	if j.GatherTimeout, err = secondsOf("gather_job_timeout", l.GatherJobTimeout); err != nil {
		return Job{}, err
	}
	for _, k := range lowKwargs {
		if v, ok := l.chunk.Get(k); ok {
			j.Kwargs.Set(k, v)
		}
	}
	return j, nil
}

func allTexts(l *value.List) bool {
	return !slices.ContainsFunc(l.Items, func(v any) bool { _, ok := v.(string); return !ok })
}

// args returns the positional arguments followed by the keywords.
func (l *low) args() (*value.List, error) {
	args, kwargs, err := l.given()
	if err != nil {
		return nil, err
	}
	out := value.ListOf(args...)
	if kwargs.Len() > 0 {
		kw := value.DictOf("__kwarg__", true)
		kw.Update(kwargs)
		out.Append(kw)
	}
	return out, nil
}

// given parses arg and kwarg.
func (l *low) given() (args []any, kwargs *value.Dict, err error) {
	switch a := l.Arg.(type) {
	case nil:
	case *value.List:
		args = a.Items
	default:
		args = []any{a}
	}
	kwargs = value.NewDict(0)
	switch k := l.Kwarg.(type) {
	case nil:
	case *value.Dict:
		kwargs.Update(k)
	default:
		return nil, nil, salt.Errorf(salt.Invalid, "kwarg must be a map")
	}
	return args, kwargs, nil
}

// secondsOf parses a number of seconds; key names it in errors.
func secondsOf(key string, v any) (time.Duration, error) {
	if v == nil {
		return 0, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(value.Str(v)), 64)
	if err != nil || !(n >= 0) || n > maxLowTimeout.Seconds() {
		return 0, salt.Errorf(salt.Invalid, "%s must be a number of seconds from 0 to %.0f", key, maxLowTimeout.Seconds())
	}
	return time.Duration(n * float64(time.Second)), nil
}

func (l *low) local(ctx context.Context) (any, error) {
	j, err := l.job()
	if err != nil {
		return nil, err
	}
	return l.collect(ctx, j)
}

// collect runs a job and returns a map of minions to returns.
func (l *low) collect(ctx context.Context, j Job) (any, error) {
	pub, results, err := l.client.Call(ctx, j)
	all := value.NewDict(len(results))
	if errors.Is(err, ErrNoMatch) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	full := l.FullReturn
	for _, r := range results {
		switch {
		case r.Unknown:
		case r.Absent:
			all.Set(r.ID, false)
		case full:
			all.Set(r.ID, fullReturn(r, pub.JID))
		default:
			all.Set(r.ID, r.Return)
		}
	}
	return all, nil
}

// fullReturn returns a return together with its metadata.
func fullReturn(r Result, jid string) *value.Dict {
	d := value.DictOf("ret", r.Return)
	if r.Out != "" {
		d.Set("out", r.Out)
	}
	if code, ok := r.Event.Get("retcode"); ok {
		d.Set("retcode", code)
	}
	d.Set("jid", jid)
	return d
}

func (l *low) localAsync(ctx context.Context) (any, error) {
	j, err := l.job()
	if err != nil {
		return nil, err
	}
	p, err := l.client.Publish(ctx, j)
	if errors.Is(err, ErrNoMatch) {
		return value.NewDict(0), nil
	}
	if err != nil {
		return nil, err
	}
	return value.DictOf("jid", p.JID, "minions", value.Strings(p.Minions)), nil
}

// usualBatch is Salt's default batch size.
const usualBatch = "10%"

func (l *low) localBatch(ctx context.Context) ([]any, error) {
	j, err := l.job()
	if err != nil {
		return nil, err
	}
	text := usualBatch
	if l.Batch != nil {
		text = value.Str(l.Batch)
	}
	size, ok := BatchSize(text)
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "batch must be a number or a percentage, such as 3 or 10%%")
	}
	out := []any{}
	for step, err := range l.client.RunBatch(ctx, Batch{Job: j, Size: size}) {
		switch r := step.Result; {
		case errors.Is(err, ErrNoMatch):
			return out, nil
		case err != nil:
			return nil, err
		case r == nil:
		case r.Absent:
			out = append(out, value.DictOf(r.ID, false))
		default:
			out = append(out, value.DictOf(r.ID, r.Return))
		}
	}
	return out, nil
}

// BatchSize parses a batch size: a number, or a percentage of the minions, of which there is at least one.
func BatchSize(text string) (size func(minions int) int, ok bool) {
	if t := strings.Trim(text, "%"); t != text {
		share, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
		if err != nil || !(share > 0) || math.IsInf(share, 0) {
			return nil, false
		}
		return func(n int) int {
			part := share / 100 * float64(n)
			if part < 1 {
				part = math.Ceil(part)
			}
			return int(min(part, math.MaxInt32))
		}, true
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 {
		return nil, false
	}
	return func(int) int { return n }, true
}

// usualSubset is Salt's default size of a subset.
const usualSubset = 3

func (l *low) localSubset(ctx context.Context) (any, error) {
	j, err := l.job()
	if err != nil {
		return nil, err
	}
	n := usualSubset
	if l.Subset != nil {
		if n, err = strconv.Atoi(value.Str(l.Subset)); err != nil || n < 1 {
			return nil, salt.Errorf(salt.Invalid, "subset must be 1 or more")
		}
	}
	ids, err := l.client.Pick(ctx, j, n)
	if err != nil && !errors.Is(err, ErrNoMatch) {
		return nil, err
	}
	if len(ids) == 0 {
		return value.NewDict(0), nil
	}
	j.Target, j.Type = value.Strings(ids), "list"
	return l.collect(ctx, j)
}

// Pick chooses at random up to n minions of a job's target that have its functions. Its errors are
// those of Start.
func (c *Client) Pick(ctx context.Context, j Job, n int) ([]string, error) {
	funs := []string{value.Str(j.Fun)}
	if several, ok := j.Fun.(*value.List); ok {
		funs = value.OnlyTexts(several)
	}
	j.Fun, j.Arg, j.Ret, j.JID = "sys.list_functions", nil, "", ""
	if j.Kwargs != nil {
		j.Kwargs = j.Kwargs.Clone()
		j.Kwargs.Delete("metadata")
	}
	_, results, err := c.Call(ctx, j)
	if err != nil {
		return nil, err
	}
	return subset(results, funs, n), nil
}

// subset chooses at random up to n minions whose return of sys.list_functions contains all of the functions.
func subset(results []Result, funs []string, n int) []string {
	var ids []string
	for _, r := range results {
		l, ok := r.Return.(*value.List)
		if ok && !slices.ContainsFunc(funs, func(f string) bool { return !slices.Contains(l.Items, any(f)) }) {
			ids = append(ids, r.ID)
		}
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:min(len(ids), n)]
}

// masterFields are the keys of a chunk for the master that are not arguments of the function.
var masterFields = []string{"client", "fun", "arg", "kwarg", "full_return", "token", "eauth", "username", "password"}

// onMaster collects the arguments of a runner or wheel function: arg, kwarg, and all other keys.
func (l *low) onMaster() (args []any, kwargs *value.Dict, err error) {
	args, kwargs, err = l.given()
	if err != nil {
		return nil, nil, err
	}
	for k, v := range l.chunk.All() {
		if name, ok := k.(string); ok && !slices.Contains(masterFields, name) && !strings.HasPrefix(name, "__") {
			kwargs.Set(name, v)
		}
	}
	return args, kwargs, nil
}

// runnerFields are further keys of a chunk that are not passed to runners.
var runnerFields = []string{"user", "key"}

func (l *low) run() (Runner, error) {
	args, kwargs, err := l.onMaster()
	for _, k := range runnerFields {
		if !l.keywords().Has(k) {
			kwargs.Delete(k)
		}
	}
	return Runner{Fun: value.Str(l.Fun), Args: args, Kwargs: kwargs, Lenient: !l.trusted}, err
}

func (l *low) runner(ctx context.Context) (any, error) {
	r, err := l.run()
	if err != nil {
		return nil, err
	}
	wait, err := secondsOf("timeout", l.Timeout)
	if err != nil {
		return nil, err
	}
	limited := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	if !l.keywords().Has("timeout") {
		r.Kwargs.Delete("timeout")
	}
	data, err := l.client.Run(limited, r, nil, nil)
	var end wire.Ran
	wire.View(data, &end)
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return nil, salt.Errorf(salt.Timeout, "RunnerClient job '%s' timed out", r.Fun)
	case err != nil:
		return nil, err
	case end.Success == false && strings.HasPrefix(value.Str(end.Return), "'"+r.Fun+"' is not available"):
		return nil, salt.Errorf(salt.Internal, "%s", value.Str(end.Return))
	}
	if !l.FullReturn {
		return end.Return, nil
	}
	// The order is Salt's.
	d := value.NewDict(data.Len())
	for _, k := range []string{"fun", "jid", "user", "fun_args", "_stamp", "return", "success"} {
		if v, ok := data.Get(k); ok {
			d.Set(k, v)
		}
	}
	d.Update(data)
	return value.DictOf("data", d, "tag", salt.Tag("run", end.JID, "ret")), nil
}

func (l *low) runnerAsync(ctx context.Context) (any, error) {
	r, err := l.run()
	if err != nil {
		return nil, err
	}
	jid, tag, err := l.client.RunAsync(ctx, r)
	if err != nil {
		return nil, err
	}
	return value.DictOf("tag", tag, "jid", jid), nil
}

// minWheel is the minimum timeout of a wheel function: generating a key takes time.
const minWheel = time.Minute

// master runs a wheel function on the master.
func (l *low) master(ctx context.Context, cmd string) (any, error) {
	args, kwargs, err := l.onMaster()
	if err != nil {
		return nil, err
	}
	return l.client.wheel(ctx, cmd, value.Str(l.Fun), args, kwargs)
}

// Wheel runs a wheel function on the master and returns the data of its event: {fun, jid, user,
// return, success, ...}. args and kwargs may be nil.
func (c *Client) Wheel(ctx context.Context, fun string, args []any, kwargs *value.Dict) (*value.Dict, error) {
	if kwargs == nil {
		kwargs = value.NewDict(0)
	}
	d, err := c.wheel(ctx, "wheel", fun, args, kwargs)
	if err != nil {
		return nil, err
	}
	var in wire.WheelAnswer
	wire.View(d, &in)
	return in.Data, nil
}

func (c *Client) wheel(ctx context.Context, cmd, fun string, args []any, kwargs *value.Dict) (*value.Dict, error) {
	load := wire.Encode(wire.Wheel{Cmd: cmd, Fun: fun, Arg: value.ListOf(args...), Kwarg: kwargs})
	c.sign(load)
	reply, err := c.request(ctx, load, minWheel)
	if err != nil {
		return nil, err
	}
	return checkReply(reply)
}

// ErrNoLook means that the master is a stock master, or a Brine master of an older version.
var ErrNoLook error = &salt.Error{Kind: salt.Unavailable, Err: constError("the master has no data for the console: it needs Brine on the master")}

// Look calls a function of the runner fleet with the permissions of a token, and without a job. The
// master answers immediately.
func (c *Client) Look(ctx context.Context, token, fun string, kwargs *value.Dict) (any, error) {
	return c.As(value.DictOf("token", token)).LookTrusted(ctx, fun, kwargs)
}

// LookTrusted is Look with the permissions of the user of this process.
func (c *Client) LookTrusted(ctx context.Context, fun string, kwargs *value.Dict) (any, error) {
	load := wire.Encode(wire.Look{Cmd: "_brine_look", Fun: fun, Kwarg: kwargs})
	c.sign(load)
	reply, err := c.request(ctx, load, c.o.Timeout)
	if err != nil {
		return nil, err
	}
	d, err := checkReply(reply)
	if errors.Is(err, ErrNoReply) {
		return nil, ErrNoLook
	}
	if err != nil {
		return nil, err
	}
	var in wire.Looked
	if err := wire.Decode(d, &in); err != nil {
		return nil, unreadable(err)
	}
	return in.Return, nil
}

// NewToken requests a token from the master: {start, expire, name, eauth, token} and perms, the
// permissions of its user. creds are eauth, username and password, and optionally token_expire.
func (c *Client) NewToken(ctx context.Context, creds *value.Dict) (*value.Dict, error) {
	var in wire.Credentials
	wire.View(creds, &in)
	login := wire.Login{Cmd: "mk_token", EAuth: in.EAuth, Username: in.Username, Password: in.Password, Token: in.Token, TokenExpire: in.TokenExpire,
		Perms: true}
	reply, err := c.request(ctx, wire.Encode(login), c.o.Timeout)
	if err != nil {
		return nil, err
	}
	d, ok := reply.(*value.Dict)
	var token wire.Token
	if !ok || wire.Decode(d, &token) != nil || token.Token == "" {
		return nil, &salt.Error{Kind: salt.Denied, Err: constError("Could not authenticate using provided credentials")}
	}
	return d, nil
}

// Token returns the data of a token from the master, nil if it is invalid. A Brine master adds
// perms, the permissions of its user.
func (c *Client) Token(ctx context.Context, token string) (*value.Dict, error) {
	reply, err := c.request(ctx, wire.Encode(wire.TokenRequest{Cmd: "get_token", Token: token, Perms: true}), c.o.Timeout)
	if err != nil {
		return nil, err
	}
	d, _ := reply.(*value.Dict)
	var in wire.Token
	if err := wire.Decode(d, &in); err != nil {
		return nil, unreadable(err)
	}
	if in.Name == "" {
		return nil, nil
	}
	return d, nil
}

// DropToken revokes a token on the master. Stock masters do not support this.
func (c *Client) DropToken(ctx context.Context, token string) error {
	_, err := c.request(ctx, wire.Encode(wire.TokenRequest{Cmd: "_brine_logout", Token: token}), c.o.Timeout)
	return err
}

// Ping returns an error if the master does not answer.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.request(ctx, value.DictOf("cmd", "ping"), c.o.Timeout)
	return err
}
