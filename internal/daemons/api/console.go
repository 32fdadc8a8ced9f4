package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/catalogue/runners"
	"brine/internal/daemons/console"
	"brine/internal/py/value"
)

// consoles serves the web console: its files, and the data that its pages read. To change
// something, pages use the same resources as other clients.
type consoles struct {
	s        *Settings
	log      *slog.Logger
	master   Master
	sessions *sessions
	streams  *streams
	lookups  *lookups
}

func (o *consoles) get(c *call) (any, error) {
	name := strings.Join(c.rest, "/")
	fun, isLook := strings.CutPrefix(name, "look/")
	switch {
	case isLook, name == "boot", name == "me", name == "stream", name == "oidc":
		c.kind = typeJSON
		c.w.Header().Set("Cache-Control", "no-store")
		// Browsers send this header over TLS. Pages of other sites are not allowed here,
		// not even those in cors_origins.
		if from := c.r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" && from != "none" {
			return nil, &failure{http.StatusForbidden, "This is for the pages of the console only"}
		}
		return nil, o.data(c, name, fun)
	case name == "enter":
		return nil, o.enter(c)
	case name == "":
		if !strings.HasSuffix(c.r.URL.Path, "/") {
			c.w.Header().Set("Location", c.s.Prefix+"/console/")
			c.status = http.StatusTemporaryRedirect
			c.write(nil, typeHTML)
			return nil, nil
		}
		fallthrough
	default:
		// The files are public, like a login page.
		if !console.Serve(c.w, c.r, name, c.s.ConsoleMasters) {
			return nil, &failure{http.StatusNotFound, notFound(c.r)}
		}
		c.count()
		return nil, nil
	}
}

// data answers a page. fun is the function of the runner fleet for a look-up.
func (o *consoles) data(c *call, name, fun string) error {
	switch name {
	case "boot":
		c.answer(value.DictOf("version", salt.BrineVersion, "eauth", value.Strings(c.s.EAuth), "clients", value.Strings(c.s.Clients),
			"masters", value.Strings(c.s.ConsoleMasters), "oidc", c.s.CodeFlow != nil, "door", c.s.Door != nil, "approval_above", int64(c.s.ApprovalAbove)), nil)
		return nil
	case "oidc":
		return o.toProvider(c)
	}
	if c.of == nil {
		return &failure{http.StatusUnauthorized, textNoPermission}
	}
	if !c.fromAuthorized() {
		return &failure{http.StatusForbidden, "Bad IP"}
	}
	switch name {
	case "me":
		c.answer(o.me(c))
	case "stream":
		return o.stream(c)
	default:
		c.answer(o.look(c, fun))
	}
	return nil
}

// used are the functions whose permissions decide what pages show.
var used = map[string][]string{
	acl.Runner: {"fleet.topology", "fleet.minions", "fleet.minion", "fleet.preview", "fleet.jobs", "fleet.job", "fleet.result", "fleet.functions",
		"fleet.compare", "fleet.store", "fleet.history", "fleet.runs", "fleet.moves",
		"auth.can", "auth.permissions", "auth.roles", "audit.list", "audit.verify",
		"state.orchestrate", "fleet.states", "fleet.schedules", "fleet.files", "pillar.show_pillar",
		"saved.list", savedPut, savedPutPublic, savedRemove, savedRemoveAny},
	acl.Wheel: {"key.list_all", "key.finger", "key.accept_dict", "key.reject_dict", "key.delete_dict"},
}

// me returns the permissions of the session's user, by which pages decide what to show. The
// master checks each request.
func (o *consoles) me(c *call) (any, error) {
	t, err := o.master.Token(c.r.Context(), c.of.Token)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, &failure{http.StatusUnauthorized, textNoPermission}
	}
	may := value.NewDict(0)
	rights := t.List("perms")
	for form, names := range used {
		for _, fun := range names {
			may.Set(form+"."+fun, c.allows(form) && acl.OnMaster(rights, form, acl.Call{Fun: fun}))
		}
	}
	return value.DictOf("user", t.Str("name"), "eauth", t.At("eauth"), "expire", t.At("expire"), "may", may,
		"commands", c.allows("local_async") && commands(rights), "all_events", o.streams.seesAll(t), "csrf", c.of.Forgery,
		"perms", &value.List{Items: rights},
		"idle", int64(c.s.ConsoleIdle/time.Second)), nil
}

// toProvider sends a browser to the OpenID provider. The page has made the state, the code
// challenge and the nonce, and keeps what belongs to them: this server has no record of sign-ins
// that have begun.
func (o *consoles) toProvider(c *call) error {
	if c.s.CodeFlow == nil {
		return &failure{http.StatusNotFound, "external_auth has no oidc with ^redirect_uri"}
	}
	q := c.r.URL.Query()
	var values []string
	for _, name := range []string{"state", "challenge", "nonce"} {
		v := q.Get(name)
		if !secretForm.MatchString(v) {
			return &failure{http.StatusBadRequest, name + " must have 43 characters of base64url"}
		}
		values = append(values, v)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.s.Timeout)
	defer cancel()
	to, err := c.s.CodeFlow.URL(ctx, values[0], values[1], values[2])
	if err != nil {
		return &failure{http.StatusBadGateway, err.Error()}
	}
	c.w.Header().Set("Location", to)
	c.status = http.StatusSeeOther
	c.write(nil, typeHTML)
	return nil
}

// secretForm is the form of 32 bytes in base64url, as pages make them for a sign-in at a provider.
var secretForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// look calls a function of the runner fleet with the arguments in the query.
func (o *consoles) look(c *call, fun string) (any, error) {
	kwargs := value.NewDict(4)
	for k, vs := range c.r.URL.Query() {
		kwargs.Set(k, vs[len(vs)-1])
	}
	ret, err := o.lookups.look(c, runners.FleetModule+"."+fun, kwargs)
	if err != nil {
		return nil, err
	}
	return value.DictOf("return", ret), nil
}

// commands reports whether permissions include any function of minions.
func commands(rights []any) bool {
	for _, r := range rights {
		if d, ok := r.(*value.Dict); ok && d.Len() > 0 {
			r, _ = d.Entry(0)
		}
		if s, ok := r.(string); ok && !strings.HasPrefix(s, "@") {
			return true
		}
	}
	return false
}

const (
	// flowTime is how long events are collected before they are sent together.
	flowTime = 100 * time.Millisecond
	// topologyTime is the interval of reading the topology while no event suggests a
	// change, and hintPause the minimum time between two readings.
	topologyTime = 2 * time.Second
	hintPause    = 200 * time.Millisecond
)

// stream sends a page the topology and its changes, and the events that its user may see,
// shortened and limited in rate.
func (o *consoles) stream(c *call) error {
	token := c.of.Token
	v, err := o.streams.admit(c, token)
	if err != nil {
		return err
	}
	if !o.lookups.page(token, func(p *page) bool {
		if p.streams >= pageStreams {
			return false
		}
		p.streams++
		return true
	}) {
		return &failure{http.StatusTooManyRequests, "This session has too many pages open"}
	}
	defer o.lookups.page(token, func(p *page) bool { p.streams--; return true })
	r := o.streams.feed.open()
	defer o.streams.feed.close(r)
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream;charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // keeps nginx from buffering events
	c.count()
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	hint, changes := make(chan struct{}, 1), make(chan string)
	// Without the permission, each look-up would be a refusal in the audit log.
	if c.allows(acl.Runner) && acl.OnMaster(v.rights, acl.Runner, acl.Call{Fun: "fleet.topology"}) {
		go o.watch(ctx, token, hint, changes)
	}
	ctl := http.NewResponseController(c.w)
	send := func(name, text string) bool {
		_, err := c.w.Write([]byte("event: " + name + "\ndata: " + text + "\n\n"))
		return err == nil && ctl.Flush() == nil
	}
	if _, err := c.w.Write([]byte("retry: 400\n\n")); err != nil || ctl.Flush() != nil {
		return nil
	}
	check := time.NewTicker(c.s.checkTime)
	defer check.Stop()
	flow := console.NewFlow()
	var due <-chan time.Time // fires when the events in flow are to be sent
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-check.C:
			if o.streams.recheck(ctx, token, v) || !send("alive", "{}") {
				return nil
			}
		case text := <-changes:
			if !send("topology", text) {
				return nil
			}
		case <-due:
			due = nil
			if text := flow.Take(); text != "" && !send("bus", text) {
				return nil
			}
		case m, ok := <-r.c:
			if !ok {
				return nil // the page was too slow: it reconnects and gets everything again
			}
			r.took(m)
			if console.Hints(m.tag) {
				select {
				case hint <- struct{}{}:
				default:
				}
			}
			if !v.sees(m) {
				continue
			}
			if e := m.short(); e != nil {
				flow.Put(e, time.Now())
				if due == nil {
					due = time.After(flowTime)
				}
			}
		}
	}
}

// watch reads the topology until ctx ends, and sends its changes.
func (o *consoles) watch(ctx context.Context, token string, hint <-chan struct{}, changes chan<- string) {
	var have console.Topology
	problem := ""
	for {
		text, wait := "", topologyTime
		ret, err := o.master.Look(ctx, token, "fleet.topology", value.DictOf("since", have.Revision))
		if d, ok := ret.(*value.Dict); ok && err == nil {
			if text, err = have.Update(d); err == nil {
				problem = ""
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			wait = o.s.checkTime
			if f := (*failure)(nil); !errors.As(err, &f) && salt.KindOf(err) != salt.Denied {
				wait = topologyTime // temporary: the master is unreachable
			}
			if why := err.Error(); why != problem {
				problem = why
				if b, e := encode(value.DictOf("problem", why), typeJSON); e == nil {
					text = string(b)
				}
				have = console.Topology{}
			}
		}
		if text != "" {
			select {
			case changes <- text:
			case <-ctx.Done():
				return
			}
		}
		pause := time.NewTimer(hintPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-hint:
		case <-time.After(wait - hintPause):
		}
	}
}
