package api

import (
	"errors"
	"maps"
	"net/http"
	"path"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/py/value"
)

// handler handles one method of a resource.
type handler func(*call) (any, error)

// resource is a path with its methods.
type resource struct {
	// about describes the resource in the OpenAPI document.
	about string
	do    map[string]handler
	// allow are the methods in the header Allow.
	allow []string
	// below is how many path segments may follow; -1: any number.
	below int
	// session: responses set the cookie. auth: all methods require a session; authPost:
	// only POST does. checked: the master must confirm the token of the session first. raw:
	// the handler writes the response itself. stream: the response lasts until the client
	// ends it. addresses: authorized_ips applies. plainErrors: errors are JSON whatever the client
	// accepts, and there is no web app here.
	// public: requests do not use the session that their cookie names.
	public                                                                bool
	session, auth, authPost, checked, raw, stream, addresses, plainErrors bool
}

var (
	getPost = []string{"GET", "HEAD", "POST"}
	getOnly = []string{"GET", "HEAD"}
	post    = []string{"POST"}
)

// resources is the table of all paths.
func (a *Server) resources() map[string]*resource {
	const get, put = http.MethodGet, http.MethodPost
	users := &logins{s: &a.s, log: a.log, master: a.master, sessions: a.sessions, limits: a.limits}
	second := &approvals{master: a.master, log: a.log, now: time.Now}
	if files, err := openApprovalFiles(a.sessions); err != nil {
		a.log.Warn("jobs that wait for approval do not survive a restart", "err", err)
	} else {
		second.restore(&a.s, files)
	}
	low := &lowData{s: &a.s, log: a.log, master: a.master, limits: a.limits, approvals: second}
	bus := &streams{s: &a.s, master: a.master, sessions: a.sessions, feed: a.feed}
	own := a.figures
	t := map[string]*resource{
		"/": {about: "The clients there are; and running chunks of low data by a session.", allow: getPost, authPost: true, addresses: true,
			do: map[string]handler{get: welcome, put: low.lowstate}},
		"/login": {about: "Starting a session.", allow: getPost, session: true, public: true,
			do: map[string]handler{get: users.loginPrompt, put: users.login}},
		"/logout": {about: "Ending a session.", allow: getPost, session: true, auth: true, do: map[string]handler{put: users.logout}},
		"/token": {about: "Tokens of the master, for /run.", allow: getPost, addresses: true, public: true,
			do: map[string]handler{get: welcome, put: users.token}},
		"/run": {about: "Running chunks of low data that show themselves who asks.", allow: getPost, addresses: true, public: true,
			do: map[string]handler{get: welcome, put: low.run}},
		"/minions": {about: "The grains of minions; and starting jobs.", allow: getPost, below: 1, session: true, auth: true, addresses: true,
			do: map[string]handler{get: low.minions, put: low.startJobs}},
		"/jobs": {about: "Jobs and what they returned.", allow: getPost, below: 1, session: true, auth: true, addresses: true,
			do: map[string]handler{get: low.jobs}},
		"/keys": {about: "The keys of minions; and making a pair.", allow: getPost, below: 1, session: true, addresses: true,
			do: map[string]handler{get: low.keys, put: low.newKeys}},
		"/events": {about: "The event bus, as server-sent events.", allow: getOnly, session: true, raw: true, stream: true, do: map[string]handler{get: bus.events}},
		"/ws": {about: "The event bus, over a WebSocket.", allow: getOnly, below: 1, session: true, raw: true, stream: true,
			do: map[string]handler{get: bus.socket}},
		"/stats": {about: "Statistics of this server.", allow: getOnly, session: true, auth: !a.s.StatsOpen, checked: true,
			do: map[string]handler{get: own.statistics}},
		"/health": {about: "Whether this server and its master work.", allow: getOnly, do: map[string]handler{get: own.health}},
		"/metrics": {about: "Statistics for Prometheus.", allow: getOnly, raw: true, auth: !a.s.StatsOpen, checked: true,
			do: map[string]handler{get: own.metrics}},
		"/openapi.json": {about: "This description.", allow: getOnly,
			do: map[string]handler{get: own.openAPI}},
	}
	looks := &lookups{master: a.master}
	if a.s.Sessions {
		data := &v1{log: a.log, master: a.master, sessions: a.sessions, lookups: looks, low: low, approval: second}
		maps.Copy(t, data.resources(bus.resumable))
	}
	if a.s.Console && a.s.Sessions {
		pages := &consoles{s: &a.s, log: a.log, master: a.master, sessions: a.sessions, streams: bus, lookups: looks}
		t["/console"] = &resource{about: "The web console.", allow: getOnly, below: -1, raw: true, do: map[string]handler{get: pages.get}}
	}
	if a.s.Webhook != "/" {
		t[a.s.Webhook] = &resource{about: "Firing an event.", allow: post, below: -1, session: true, auth: !a.s.WebhookOpen, checked: true,
			do: map[string]handler{put: a.hook}}
	}
	if a.s.App != "" && a.s.AppPath != "/" {
		t[a.s.AppPath] = &resource{about: "The app.", allow: getOnly, below: -1, raw: true,
			do: map[string]handler{get: func(c *call) (any, error) { c.file(c.s.App); return nil, nil }}}
	}
	if a.s.Static != "" && a.s.StaticPath != "/" {
		t[a.s.StaticPath] = &resource{about: "Files.", below: -1, raw: true, do: map[string]handler{get: a.staticFile}}
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
	own.table = t
	return t
}

// find returns the resource of a path and the path segments below it.
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

// part returns the path segment below a resource, or "".
func (c *call) part() string {
	if len(c.rest) == 0 {
		return ""
	}
	return c.rest[0]
}

func welcome(*call) (any, error) {
	return value.DictOf("return", "Welcome", "clients", value.Strings(client.LowClients)), nil
}

// errWritten means that the handler has sent the response.
var errWritten = errors.New("the answer has been sent")

// hook fires an event with the request data.
func (a *Server) hook(c *call) (any, error) {
	headers := value.NewDict(len(c.r.Header) + 1)
	headers.Set("Host", c.r.Host)
	for k, v := range c.r.Header {
		if k != "X-Auth-Token" && k != "Cookie" { // events are readable by other users
			headers.Set(k, strings.Join(v, ", "))
		}
	}
	data := c.body.data
	if data == nil {
		data = value.NewDict(0)
	}
	tag := salt.Tag(append([]string{"netapi", "hook"}, c.rest...)...)
	err := a.bus.Fire(c.r.Context(), tag, value.DictOf("body", c.body.raw, "post", data, "headers", headers))
	if err != nil {
		return nil, &salt.Error{Kind: salt.Unavailable, Err: err}
	}
	return value.DictOf("success", true), nil
}

func (a *Server) staticFile(c *call) (any, error) {
	name := path.Join(c.rest...)
	if name == "" || a.static == nil {
		c.fail(&failure{http.StatusNotFound, notFound(c.r)})
		return nil, nil
	}
	f, err := a.static.Open(name)
	if err != nil {
		c.fail(&failure{http.StatusNotFound, notFound(c.r)})
		return nil, nil
	}
	defer f.Close()
	c.send(f)
	return nil, nil
}
