package api

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/py/value"
)

// handler serves one method of a resource.
type handler func(*call) (any, error)

// resource is a path and what can be done with it.
type resource struct {
	// about says what the resource is, for the description of the API.
	about string
	do    map[string]handler
	// allow are the methods for the header Allow.
	allow []string
	// below is how many parts of a path may follow; -1 any number.
	below int
	// session says that answers set the cookie, auth that a session is needed,
	// authPost that POST needs one, checked that the master must confirm its
	// token first, raw that the handler writes by itself, addresses that
	// authorized_ips counts.
	session, auth, authPost, checked, raw, addresses bool
}

var (
	getPost = []string{"GET", "HEAD", "POST"}
	getOnly = []string{"GET", "HEAD"}
	post    = []string{"POST"}
)

// resources is the table of all paths.
func (a *Server) resources() map[string]*resource {
	const get, put = http.MethodGet, http.MethodPost
	t := map[string]*resource{
		"/": {about: "The clients there are; and running chunks of low data by a session.", allow: getPost, authPost: true, addresses: true,
			do: map[string]handler{get: (*call).welcome, put: (*call).lowstate}},
		"/login": {about: "Starting a session.", allow: getPost, session: true,
			do: map[string]handler{get: (*call).loginPrompt, put: (*call).login}},
		"/logout": {about: "Ending a session.", allow: getPost, session: true, auth: true, do: map[string]handler{put: (*call).logout}},
		"/token": {about: "Tokens of the master, for /run.", allow: getPost, addresses: true,
			do: map[string]handler{get: (*call).welcome, put: (*call).token}},
		"/run": {about: "Running chunks of low data that show themselves who asks.", allow: getPost, addresses: true,
			do: map[string]handler{get: (*call).welcome, put: (*call).run}},
		"/minions": {about: "The grains of minions; and starting jobs.", allow: getPost, below: 1, session: true, auth: true, addresses: true,
			do: map[string]handler{get: (*call).minions, put: (*call).startJobs}},
		"/jobs": {about: "Jobs and what they returned.", allow: getPost, below: 1, session: true, auth: true, addresses: true,
			do: map[string]handler{get: (*call).jobs}},
		"/keys": {about: "The keys of minions; and making a pair.", allow: getPost, below: 1, session: true, addresses: true,
			do: map[string]handler{get: (*call).keys, put: (*call).newKeys}},
		"/events": {about: "The event bus, as server-sent events.", allow: getOnly, session: true, raw: true, do: map[string]handler{get: (*call).events}},
		"/ws": {about: "The event bus, over a WebSocket.", allow: getOnly, below: 1, session: true, raw: true,
			do: map[string]handler{get: (*call).socket}},
		"/stats": {about: "Statistics of this server.", allow: getOnly, session: true, auth: !a.s.StatsOpen, checked: true,
			do: map[string]handler{get: (*call).statistics}},
		"/health": {about: "Whether this server and its master work.", allow: getOnly, do: map[string]handler{get: (*call).health}},
		"/metrics": {about: "Statistics for Prometheus.", allow: getOnly, raw: true, auth: !a.s.StatsOpen, checked: true,
			do: map[string]handler{get: (*call).metrics}},
		"/openapi.json": {about: "This description.", allow: getOnly,
			do: map[string]handler{get: (*call).openAPI}},
	}
	if a.s.Webhook != "/" {
		t[a.s.Webhook] = &resource{about: "Firing an event.", allow: post, below: -1, session: true, auth: !a.s.WebhookOpen, checked: true,
			do: map[string]handler{put: (*call).hook}}
	}
	if a.s.App != "" && a.s.AppPath != "/" {
		t[a.s.AppPath] = &resource{about: "The app.", allow: getOnly, below: -1, raw: true,
			do: map[string]handler{get: func(c *call) (any, error) { c.file(c.s.App); return nil, nil }}}
	}
	if a.s.Static != "" && a.s.StaticPath != "/" {
		t[a.s.StaticPath] = &resource{about: "Files.", below: -1, raw: true, do: map[string]handler{get: (*call).staticFile}}
	}
	if a.s.Favicon != "" {
		t["/favicon.ico"] = &resource{about: "The icon.", raw: true,
			do: map[string]handler{get: func(c *call) (any, error) { c.file(c.s.Favicon); return nil, nil }}}
	}
	if !a.s.Sessions {
		for _, p := range []string{"/login", "/logout", "/minions", "/jobs"} {
			delete(t, p)
		}
	}
	return t
}

// find returns the resource of a path and the parts of the path below it.
func (a *Server) find(name string) (*resource, []string) {
	name = "/" + strings.Trim(name, "/")
	for head := name; ; head = path.Dir(head) {
		res := a.table[head]
		if res != nil && (head != "/" || name == "/") {
			var rest []string
			if tail := strings.Trim(strings.TrimPrefix(name, head), "/"); tail != "" {
				rest = strings.Split(tail, "/")
			}
			if res.below >= 0 && len(rest) > res.below {
				return nil, nil
			}
			return res, rest
		}
		if head == "/" || head == "." {
			return nil, nil
		}
	}
}

// part returns the one part of the path below a resource, or "".
func (c *call) part() string {
	if len(c.rest) == 0 {
		return ""
	}
	return c.rest[0]
}

func (c *call) welcome() (any, error) {
	return value.DictOf("return", "Welcome", "clients", value.Strings(client.LowClients)), nil
}

// lowstate runs chunks by the session.
func (c *call) lowstate() (any, error) {
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	out, err := c.all(c.bySession(chunks, ""))
	return value.DictOf("return", value.ListOf(out...)), err
}

// bySession has chunks show the session's token and nothing else.
func (c *call) bySession(chunks []*value.Dict, clientName string) []*value.Dict {
	out := make([]*value.Dict, 0, len(chunks))
	for _, d := range chunks {
		d = d.Clone()
		for _, k := range []string{"eauth", "username", "password", "token"} {
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

// all runs chunks in turn and returns their results in order.
func (c *call) all(chunks []*value.Dict) ([]any, error) {
	var out []any
	for _, d := range chunks {
		results, err := c.one(d)
		if err != nil {
			return nil, err
		}
		out = append(out, results...)
	}
	return out, nil
}

// one runs a chunk.
func (c *call) one(d *value.Dict) ([]any, error) {
	name := value.Str(d.At("client"))
	switch {
	case !slices.Contains(client.LowClients, name):
		return nil, salt.Errorf(salt.Invalid, "Invalid client specified: '%.100s'", name)
	case !slices.Contains(c.s.Clients, name) || name == "ssh":
		return nil, salt.Errorf(salt.Invalid, "Client disabled: '%s'. Add to 'netapi_enable_clients' master config option to enable.", name)
	}
	if tok, ok := d.Get("token"); ok {
		if s, ok := tok.(string); !ok || !isHex(s) {
			return nil, &failure{http.StatusUnauthorized, "Invalid token"}
		}
	}
	end := func(verdict) {}
	if d.Has("eauth") && !d.Has("token") { // with a token, the master does not look at the password
		var err error
		if end, err = c.attempt(d); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.s.Timeout)
	defer cancel()
	out, err := c.master.Low(ctx, d)
	c.audit(d, err)
	end(judged(err, refusedLogin(err)))
	if err == nil {
		proven(c.r)
	}
	if err != nil && c.r.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, salt.Errorf(salt.Timeout, "nothing was returned within %.0f seconds (rest_timeout)", c.s.Timeout.Seconds())
	}
	return out, err
}

// judged is what an answer of the master says of a password. Right is only what
// the master has said so of: it has not seen all that fails. An answer that the
// client or this program did not wait for counts as a refusal, since refusals
// are slow.
func judged(err error, refused bool) verdict {
	var r *client.Refused
	switch {
	case err == nil, errors.As(err, &r) && r.Name == "AuthorizationError":
		return right
	case refused:
		return wrong
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), salt.KindOf(err) == salt.Timeout:
		return late
	}
	return unjudged
}

// refusedLogin reports whether the master did not believe a password.
func refusedLogin(err error) bool {
	var r *client.Refused
	return errors.As(err, &r) && (r.Name == "AuthenticationError" || r.Name == "EauthAuthenticationError")
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && s != ""
}

// audit notes who asked for what, and what came of it.
func (c *call) audit(d *value.Dict, err error) {
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
	c.log.Info("audit", append(what, "result", result)...)
}

func (c *call) loginPrompt() (any, error) {
	c.w.Header().Set("Www-Authenticate", "Session")
	return value.DictOf("status", nil, "return", "Please log in"), nil
}

// errEmpty is what a login without any body ends with.
var errEmpty = errors.New("a login without a body")

func (c *call) login() (any, error) {
	d, ok := c.body.data.(*value.Dict)
	if l, isList := c.body.data.(*value.List); isList && l.Len() > 0 {
		d, ok = l.Items[0].(*value.Dict)
	}
	switch {
	case c.body.data == nil:
		return nil, errEmpty
	case !ok:
		return nil, &failure{http.StatusBadRequest, "A login must be a map"}
	}
	user := value.Str(d.At("username"))
	addr := c.address()
	end, err := c.attempt(d)
	if err != nil {
		return nil, err
	}
	refuse := func(why string) (any, error) {
		end(wrong)
		c.log.Warn("audit", "user", fmt.Sprintf("%.80s", user), "from", addr, "login", "refused", "reason", why)
		return nil, &failure{http.StatusUnauthorized, textBadLogin}
	}
	if !c.mayTry(user, addr) {
		return refuse("api_acl does not let this user in from this address")
	}
	for _, k := range []string{"username", "password", "eauth"} {
		if k == "username" && d.Str("eauth") == "oidc" && !d.Has(k) {
			continue // the token says who it is
		}
		if _, ok := d.At(k).(string); !ok {
			return refuse(k + " is missing or no text")
		}
	}
	tok, err := c.master.NewToken(c.r.Context(), d)
	if salt.KindOf(err) == salt.Denied && err != nil {
		return refuse("the name or password is wrong")
	}
	end(judged(err, false))
	if err != nil {
		return nil, err
	}
	expire, _ := tok.At("expire").(float64)
	// A new id for every login, so that no client can choose the id of another's
	// session beforehand.
	of := &session{Token: tok.Str("token"), Expire: expire, User: tok.Str("name")}
	if c.id, err = c.sessions.add(of); err != nil {
		return nil, err
	}
	c.of = of
	c.log.Info("audit", "user", fmt.Sprintf("%.80s", of.User), "from", addr, "login", "done")
	c.w.Header().Set("X-Auth-Token", c.id)
	return value.DictOf("return", value.ListOf(value.DictOf("token", c.id, "expire", tok.At("expire"), "start", tok.At("start"),
		"user", tok.At("name"), "eauth", tok.At("eauth"), "perms", perms(tok.List("perms"))))), nil
}

// mayTry asks api_acl.
func (c *call) mayTry(user, addr string) bool {
	if !c.s.hasACL {
		return true
	}
	for _, name := range []string{user, "*"} {
		for _, v := range list(c.s.ACL.At(name)) {
			if s := value.Str(v); s == "*" || s == addr {
				return true
			}
		}
	}
	return false
}

// perms sorts rights: texts first, then maps by their keys, without doubles.
// None at all is an empty map.
func perms(rights []any) any {
	var texts, maps []any
	for _, r := range rights {
		to := &maps
		if _, ok := r.(string); ok {
			to = &texts
		}
		if !slices.ContainsFunc(*to, func(o any) bool { return value.Equal(o, r) }) {
			*to = append(*to, r)
		}
	}
	key := func(v any) string {
		if d, ok := v.(*value.Dict); ok && d.Len() > 0 {
			k, _ := d.Entry(0)
			return value.Str(k)
		}
		return value.Str(v)
	}
	for _, l := range [][]any{texts, maps} {
		slices.SortStableFunc(l, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	}
	if len(texts)+len(maps) == 0 {
		return value.NewDict(0)
	}
	return value.ListOf(append(texts, maps...)...)
}

func (c *call) logout() (any, error) {
	if err := c.master.DropToken(c.r.Context(), c.of.Token); err != nil {
		c.log.Warn("the token of a session that was ended stays good until it expires", "err", err)
	}
	c.sessions.drop(c.id)
	c.id, c.gone = newID(), true
	return value.DictOf("return", "Your token has been cleared"), nil
}

func (c *call) token() (any, error) {
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(c.s.Clients, "runner") { // which it is in Salt
		return nil, salt.Errorf(salt.Invalid, "Client disabled: 'runner'. Add to 'netapi_enable_clients' master config option to enable.")
	}
	out := &value.List{}
	for _, d := range chunks {
		for _, k := range []string{"username", "password", "eauth"} {
			if !d.Has(k) {
				return nil, &failure{http.StatusBadRequest, `Require "username", "password", and "eauth" params`}
			}
		}
		end, err := c.attempt(d)
		if err != nil {
			return nil, err
		}
		tok, err := c.master.NewToken(c.r.Context(), d)
		end(judged(err, salt.KindOf(err) == salt.Denied))
		if err != nil {
			return nil, err
		}
		tok.Delete("perms")
		out.Append(tok)
	}
	return out, nil
}

func (c *call) run() (any, error) {
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	out, err := c.all(chunks)
	return value.DictOf("return", value.ListOf(out...)), err
}

func (c *call) minions() (any, error) {
	tgt := c.part()
	if tgt == "" {
		tgt = "*"
	}
	out, err := c.all(c.bySession([]*value.Dict{value.DictOf("client", "local", "tgt", tgt, "fun", "grains.items")}, ""))
	return value.DictOf("return", value.ListOf(out...)), err
}

func (c *call) startJobs() (any, error) {
	if c.part() != "" {
		return nil, &failure{http.StatusNotFound, notFound(c.r)}
	}
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	out, err := c.all(c.bySession(chunks, "local_async"))
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

func (c *call) jobs() (any, error) {
	jid := c.part()
	if jid == "" {
		out, err := c.all(c.bySession([]*value.Dict{value.DictOf("client", "runner", "fun", "jobs.list_jobs")}, ""))
		return value.DictOf("return", value.ListOf(out...)), err
	}
	out, err := c.all(c.bySession([]*value.Dict{value.DictOf("client", "runner", "fun", "jobs.list_job", "jid", jid)}, ""))
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

func (c *call) keys() (any, error) {
	d := value.DictOf("client", "wheel", "fun", "key.list_all")
	if id := c.part(); id != "" {
		d = value.DictOf("client", "wheel", "fun", "key.finger", "match", id)
	}
	out, err := c.all(c.bySession([]*value.Dict{d}, ""))
	if err != nil {
		return nil, err
	}
	ret, err := wheelReturn(out)
	return value.DictOf("return", ret), err
}

// wheelReturn takes what a wheel function returned out of its envelope.
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

// tarBlock is the size to which Python fills up archives.
const tarBlock = 10240

// newKeys makes a key pair, accepts it, and answers with an archive of it.
func (c *call) newKeys() (any, error) {
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
	out, err := c.one(d)
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

// errWritten says that an answer has been sent.
var errWritten = errors.New("the answer has been sent")

// archive packs a key pair as Python's tarfile does.
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

// hook fires an event with what was sent.
func (c *call) hook() (any, error) {
	headers := value.NewDict(len(c.r.Header) + 1)
	headers.Set("Host", c.r.Host)
	for k, v := range c.r.Header {
		if k != "X-Auth-Token" && k != "Cookie" { // everybody can read events
			headers.Set(k, strings.Join(v, ", "))
		}
	}
	data := c.body.data
	if data == nil {
		data = value.NewDict(0)
	}
	tag := salt.Tag(append([]string{"netapi", "hook"}, c.rest...)...)
	err := c.bus.Fire(c.r.Context(), tag, value.DictOf("body", c.body.raw, "post", data, "headers", headers))
	if err != nil {
		return nil, &salt.Error{Kind: salt.Unavailable, Err: err}
	}
	return value.DictOf("success", true), nil
}

// goodToken makes sure that the master knows a token still.
func (c *call) goodToken(token string) error {
	t, err := c.master.Token(c.r.Context(), token)
	if err == nil && t == nil {
		err = &failure{http.StatusUnauthorized, textNoPermission}
	}
	return err
}

func (c *call) staticFile() (any, error) {
	name := path.Join(c.rest...)
	if name == "" || c.static == nil {
		c.fail(&failure{http.StatusNotFound, notFound(c.r)})
		return nil, nil
	}
	f, err := c.static.Open(name)
	if err != nil {
		c.fail(&failure{http.StatusNotFound, notFound(c.r)})
		return nil, nil
	}
	defer f.Close()
	c.send(f)
	return nil, nil
}
