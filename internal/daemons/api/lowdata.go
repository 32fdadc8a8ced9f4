package api

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// lowData lets the master run chunks of low data: those that clients send, and those that
// the resources for minions, jobs and keys build.
type lowData struct {
	s      *Settings
	log    *slog.Logger
	master Master
	limits *limits
	// approvals keeps the jobs that need a second user.
	approvals *approvals
}

// lowstate runs chunks with the session's token.
func (l *lowData) lowstate(c *call) (any, error) {
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	out, err := l.all(c, bySession(c, chunks, ""))
	return value.DictOf("return", value.ListOf(out...)), err
}

func (l *lowData) run(c *call) (any, error) {
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	out, err := l.all(c, chunks)
	return value.DictOf("return", value.ListOf(out...)), err
}

func (l *lowData) minions(c *call) (any, error) {
	tgt := c.part()
	if tgt == "" {
		tgt = "*"
	}
	out, err := l.all(c, bySession(c, []*value.Dict{value.DictOf("client", "local", "tgt", tgt, "fun", "grains.items")}, ""))
	return value.DictOf("return", value.ListOf(out...)), err
}

func (l *lowData) startJobs(c *call) (any, error) {
	if c.part() != "" {
		return nil, &failure{http.StatusNotFound, notFound(c.r)}
	}
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	out, err := l.all(c, bySession(c, chunks, "local_async"))
	if err != nil {
		return nil, err
	}
	links := &value.List{}
	for _, v := range out {
		if d, ok := v.(*value.Dict); ok && d.Str("jid") != "" {
			links.Append(value.DictOf("href", "/jobs/"+d.Str("jid")))
		}
	}
	c.status = http.StatusAccepted
	return value.DictOf("return", value.ListOf(out...), "_links", value.DictOf("jobs", links)), nil
}

func (l *lowData) jobs(c *call) (any, error) {
	jid := c.part()
	if jid == "" {
		out, err := l.all(c, bySession(c, []*value.Dict{value.DictOf("client", "runner", "fun", "jobs.list_jobs")}, ""))
		return value.DictOf("return", value.ListOf(out...)), err
	}
	out, err := l.all(c, bySession(c, []*value.Dict{value.DictOf("client", "runner", "fun", "jobs.list_job", "jid", jid)}, ""))
	if err != nil {
		return nil, err
	}
	returns := value.NewDict(0)
	if d, ok := out[0].(*value.Dict); ok {
		for id, r := range d.Dict("Result").All() {
			if r, ok := r.(*value.Dict); ok {
				returns.Set(id, r.At("return"))
			}
		}
	}
	return value.DictOf("info", value.ListOf(out...), "return", value.ListOf(returns)), nil
}

func (l *lowData) keys(c *call) (any, error) {
	d := value.DictOf("client", "wheel", "fun", "key.list_all")
	if id := c.part(); id != "" {
		d = value.DictOf("client", "wheel", "fun", "key.finger", "match", id)
	}
	out, err := l.all(c, bySession(c, []*value.Dict{d}, ""))
	if err != nil {
		return nil, err
	}
	ret, err := wheelReturn(out)
	return value.DictOf("return", ret), err
}

// wheelReturn extracts the return of a wheel function from the master's answer.
func wheelReturn(out []any) (any, error) {
	d, ok := out[0].(*value.Dict)
	data := d.Dict("data")
	if !ok || data == nil {
		return nil, salt.Errorf(salt.Internal, "the master answered with %.100s", value.Repr(out[0]))
	}
	if data.At("success") == false {
		return nil, salt.Errorf(salt.Invalid, "%s", value.Str(data.At("return")))
	}
	return data.At("return"), nil
}

// tarBlock is the block size to which Python pads archives.
const tarBlock = 10240

// newKeys generates a key pair, accepts it, and returns an archive with it.
func (l *lowData) newKeys(c *call) (any, error) {
	c.cookie = false
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	if len(chunks) == 0 {
		return nil, &failure{http.StatusBadRequest, "Lowstates must be a list"}
	}
	d := chunks[0].Clone()
	d.Set("client", "wheel")
	d.Set("fun", "key.gen_accept")
	if mid, ok := d.Get("mid"); ok {
		d.Delete("mid")
		d.Set("id_", mid)
	}
	for _, k := range []string{"keysize", "force"} {
		if v, ok := d.At(k).(string); ok {
			d.Set(k, formWord(v))
		}
	}
	id := d.Str("id_")
	if err := salt.CheckID(id); err != nil {
		return nil, &failure{http.StatusBadRequest, err.Error()}
	}
	out, err := l.one(c, d)
	if err != nil {
		return nil, err
	}
	ret, err := wheelReturn(out)
	if err != nil {
		return nil, err
	}
	pair, _ := ret.(*value.Dict)
	if pair.Str("priv") == "" {
		return nil, &failure{http.StatusBadRequest, "There is an accepted key for this minion already; send force to replace it"}
	}
	b, err := archive(pair)
	if err != nil {
		return nil, err
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/x-tar")
	h.Set("Content-Disposition", `attachment; filename="saltkeys-`+id+`.tar"`)
	h.Set("Cache-Control", "no-cache")
	c.write(b, "application/x-tar")
	return nil, errWritten
}

// archive packs a key pair in the same form as Python's tarfile.
func archive(pair *value.Dict) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct{ name, text string }{{"minion.pub", pair.Str("pub")}, {"minion.pem", pair.Str("priv")}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if over := b.Len() % tarBlock; over > 0 {
		b.Write(make([]byte, tarBlock-over))
	}
	return b.Bytes(), nil
}

// bySession removes all credentials from chunks and sets the session's token.
func bySession(c *call, chunks []*value.Dict, clientName string) []*value.Dict {
	out := make([]*value.Dict, 0, len(chunks))
	for _, d := range chunks {
		d = d.Clone()
		for _, k := range []string{"eauth", "username", "password", "token", wire.ApproverKey} {
			d.Delete(k)
		}
		if c.of != nil {
			d.Set("token", c.of.Token)
		}
		if clientName != "" {
			d.Set("client", clientName)
		}
		out = append(out, d)
	}
	return out
}

// all runs chunks one after the other and returns their results in order.
func (l *lowData) all(c *call, chunks []*value.Dict) ([]any, error) {
	var out []any
	for _, d := range chunks {
		results, err := l.one(c, d)
		if err != nil {
			return nil, err
		}
		out = append(out, results...)
	}
	return out, nil
}

// one runs a chunk.
func (l *lowData) one(c *call, d *value.Dict) ([]any, error) {
	name := value.Str(d.At("client"))
	switch {
	case !slices.Contains(client.LowClients, name):
		return nil, salt.Errorf(salt.Invalid, "Invalid client specified: '%.100s'", name)
	case !slices.Contains(l.s.Clients, name) || name == "ssh":
		return nil, salt.Errorf(salt.Invalid, "Client disabled: '%s'. Add to 'netapi_enable_clients' master config option to enable.", name)
	}
	if tok, ok := d.Get("token"); ok {
		if s, ok := tok.(string); !ok || !isHex(s) {
			return nil, &failure{http.StatusUnauthorized, "Invalid token"}
		}
	}
	end := func(verdict) {}
	if d.Has("eauth") && !d.Has("token") { // with a token the master does not check the password
		var err error
		if end, err = l.limits.attempt(c, d); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), l.s.Timeout)
	defer cancel()
	out, err := l.master.Low(ctx, d)
	l.audit(c, d, err)
	end(judged(err, refusedLogin(err)))
	if err == nil {
		proven(c.r)
	}
	if needs(err) && c.of != nil && d.At("token") == c.of.Token {
		kept, err := l.approvals.add(c, d, err)
		return []any{kept}, err
	}
	if err != nil && c.r.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, salt.Errorf(salt.Timeout, "nothing was returned within %.0f seconds (rest_timeout)", l.s.Timeout.Seconds())
	}
	return out, err
}

// audit logs who requested what, and the result.
func (l *lowData) audit(c *call, d *value.Dict, err error) {
	who := value.Str(d.At("username"))
	if c.of != nil {
		who = c.of.User
	}
	result := "done"
	if err != nil {
		result = salt.KindOf(err).String()
	}
	what := []any{"user", fmt.Sprintf("%.80s", who), "from", c.address(), "client", value.Str(d.At("client"))}
	for _, k := range []string{"fun", "tgt"} {
		if v := d.At(k); v != nil {
			what = append(what, k, fmt.Sprintf("%.200s", value.Str(v)))
		}
	}
	l.log.Info("audit", append(what, "result", result)...)
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && s != ""
}
