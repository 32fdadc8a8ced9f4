package master

import (
	"net"
	"slices"
	"sync"

	"brine/internal/base/metrics"
	"brine/internal/daemons/master/hotlink"
	"brine/internal/files/fileserver"
	"brine/internal/net/channel"
	"brine/internal/py/value"
)

// route is a command that a peer may send.
type route struct {
	handle func(*channel.Call)
	// slow routes run in a goroutine of their own, because they wait for a disk, a
	// minion or a long computation.
	slow bool
	// times measures how long the answers take.
	times *metrics.Times
}

// router is the table of all commands: those of minions, which are encrypted,
// and those of the local command line, which are in clear and authenticated
// with a key.
type router struct {
	bounds
	encrypted  map[string]route
	clear      map[string]route
	asked      func(id string, from net.Addr)
	identify   func(load *value.Dict) *caller
	background *sync.WaitGroup
	timed
}

// bounds limit how many requests are in progress at once.
type bounds struct {
	minions   *slots        // slow requests of minions
	operators chan struct{} // slow requests of programs and users
	logins    chan struct{} // requests with a password
}

func newBounds() bounds {
	return bounds{minions: newSlots(minionRoutes, minionShare), operators: make(chan struct{}, operatorRoutes), logins: make(chan struct{}, loginRoutes)}
}

const (
	// minionRoutes bounds the concurrent slow requests of minions, and minionShare
	// those of one minion.
	minionRoutes = 64
	minionShare  = 4
	// operatorRoutes bounds the slow requests of programs and users. They have
	// slots of their own, so that minions cannot delay an operator.
	operatorRoutes = 64
)

// loginRoutes bounds the concurrent requests with a password, including delayed
// refusals. Package auth bounds the checks; once accepted, a request takes a
// slot of the slow routes.
const loginRoutes = 1024

// handlers are the targets of the routes.
type handlers struct {
	returns *returns
	events  *events
	data    *minionData
	files   *fileRoutes
	queue   *queueRequests
	publish *commands
	runs    *runs
	looks   *looks
	wheels  *wheels
	logins  *logins
	peers   *peers
	reports *connectionReports
	standby *standbyJobs
	hot     *hotMasters
}

// newRouter returns the table. asked is called with each request of a minion;
// identify authenticates requests with a password. background tracks requests
// in progress.
func newRouter(h handlers, asked func(id string, from net.Addr), identify func(load *value.Dict) *caller, background *sync.WaitGroup) *router {
	r := &router{
		bounds: newBounds(),
		asked:  asked, identify: identify, background: background,
		encrypted: map[string]route{
			"_return":          {handle: h.returns.take},
			"_syndic_return":   {handle: h.returns.takeSyndic},
			"_minion_event":    {handle: h.events.take},
			"_brine_missed":    {handle: h.queue.missed, slow: true},
			"_brine_running":   {handle: h.queue.running},
			"_brine_record":    {handle: h.queue.record, slow: true},
			"_brine_published": {handle: h.standby.give, slow: true},
			"_brine_about":     {handle: h.queue.about},
			"_brine_standing":  {handle: h.reports.take},
			"_brine_members":   {handle: h.reports.members},
			"_pillar":          {handle: h.data.pillar, slow: true},
			"_mine":            {handle: h.data.mine, slow: true},
			"_mine_get":        {handle: h.data.mineGet, slow: true},
			"_mine_delete":     {handle: h.data.mineDelete, slow: true},
			"_mine_flush":      {handle: h.data.mineFlush, slow: true},
			"revoke_auth":      {handle: h.data.revoke, slow: true},
			"_master_opts":     {handle: h.files.masterOpts, slow: true},
			"_master_tops":     {handle: h.files.tops, slow: true},
			"_file_recv":       {handle: h.files.receive, slow: true},
			"minion_pub":       {handle: h.peers.publish, slow: true},
			"minion_publish":   {handle: h.peers.long(h.peers.publishAndWait)},
			"pub_ret":          {handle: h.peers.collect, slow: true},
			"minion_runner":    {handle: h.peers.long(h.peers.runner)},
		},
		clear: map[string]route{
			"ping":          {handle: func(c *channel.Call) { c.Reply(c.Load) }},
			"publish":       {handle: h.publish.publish, slow: true},
			"_brine_states": {handle: h.queue.report},
			"runner":        {handle: h.runs.start, slow: true},
			"_brine_look":   {handle: h.looks.answer, slow: true},
			"wheel":         {handle: h.wheels.run, slow: true},
			"_brine_wheel":  {handle: h.wheels.start, slow: true},
			"mk_token":      {handle: h.logins.make, slow: true},
			"get_token":     {handle: h.logins.get},
			"_brine_logout": {handle: h.logins.remove},
			hotlink.Command: {handle: h.hot.take, slow: true},
		},
	}
	for _, cmd := range fileserver.Commands() {
		r.encrypted[cmd] = route{handle: h.files.serve, slow: true}
	}
	for _, cmd := range fileserver.SharedCommands() {
		r.encrypted[cmd] = route{handle: h.files.share, slow: true}
	}
	// Files have a queue of their own instead of slots.
	r.encrypted["_serve_file"] = route{handle: h.files.part}
	r.encrypted["_brine_part"] = route{handle: h.files.sharedPart}
	r.observe()
	return r
}

// observe assigns each route the measurement of its kind.
func (r *router) observe() {
	for cmd, rt := range r.clear {
		rt.times = &r.others
		r.clear[cmd] = rt
	}
	files := append(append(fileserver.Commands(), fileserver.SharedCommands()...), "_serve_file", "_brine_part")
	for cmd, rt := range r.encrypted {
		switch {
		case cmd == "_return" || cmd == "_syndic_return":
			rt.times = &r.returns
		case cmd == "_pillar":
			rt.times = &r.pillars
		case cmd == "_minion_event":
			rt.times = &r.events
		case slices.Contains(files, cmd):
			rt.times = &r.files
		default:
			rt.times = &r.others
		}
		r.encrypted[cmd] = rt
	}
}

// metrics writes what is in progress, and how long requests take.
func (r *router) metrics(p *metrics.Page, signIns *metrics.Times) {
	for _, b := range []struct {
		by   string
		busy chan struct{}
	}{{"minions", r.minions.all}, {"operators", r.operators}, {"logins", r.logins}} {
		p.Count(&busyRequests, int64(len(b.busy)), b.by)
		p.Count(&mostRequests, int64(cap(b.busy)), b.by)
	}
	r.timed.metrics(p, signIns)
}

// Encrypted handles a request of a minion.
func (r *router) Encrypted(c *channel.Call) {
	r.asked(c.ID, c.Peer())
	r.serve(r.encrypted, c)
}

// Clear handles a request of the command line.
func (r *router) Clear(c *channel.Call) { r.serve(r.clear, c) }

func (r *router) serve(table map[string]route, c *channel.Call) {
	rt, ok := table[c.Cmd]
	if !ok {
		c.Reply(value.NewDict(0))
		return
	}
	c.Observe(rt.times)
	if !rt.slow {
		rt.handle(c)
		return
	}
	if c.ID == "" && showsPassword(c.Load) {
		r.logins <- struct{}{}
		r.background.Go(func() {
			defer func() { <-r.logins }()
			r.login(rt, c)
		})
		return
	}
	// Waiting for a slot delays only the requesting connection.
	leave := r.enter(c)
	r.background.Go(func() {
		defer leave()
		rt.handle(c)
	})
}

// enter waits for a slot for a slow request and returns a function that frees
// it.
func (r *router) enter(c *channel.Call) (leave func()) {
	if c.ID != "" {
		return r.minions.enter(c.ID)
	}
	r.operators <- struct{}{}
	return func() { <-r.operators }
}

// login handles a request with a password. A refusal is delayed by about a second on purpose,
// and occupies no slot meanwhile.
func (r *router) login(rt route, c *channel.Call) {
	if c.Cmd == "mk_token" {
		rt.handle(c) // only checking the password is slow
		return
	}
	who := r.identify(c.Load)
	c.Sender = who
	if who != nil {
		defer r.enter(c)()
	}
	rt.handle(c)
}
