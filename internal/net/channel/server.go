package channel

import (
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"brine/internal/base/metrics"
	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Options are the master's options for the request channel.
type Options struct {
	MinimumAuthVersion int           `salt:"minimum_auth_version" default:"3" doc:"oldest protocol version accepted for sign-ins and local commands; requests of minions need 3" change:"live"`
	RequestServerTTL   time.Duration `salt:"request_server_ttl" default:"0" doc:"seconds that a request may be old by the clocks of both ends; 0 turns the check off" change:"live"`
	MinMinionKey       int           `salt:"min_minion_key_bits" default:"2048" least:"0" most:"16384" doc:"least size in bits of a minion's key that is not accepted yet; a smaller one is refused (Brine only)" change:"live"`
	RefuseSHA1         bool          `salt:"refuse_sha1" default:"false" doc:"refuse sign-ins and requests with OAEP-SHA1 or PKCS1v15-SHA1: minions need encryption_algorithm: OAEP-SHA224 and signing_algorithm: PKCS1v15-SHA224; set publish_signing_algorithm, too (Brine only)" change:"live"`
	SignInRate         int           `salt:"sign_in_rate" default:"0" least:"0" doc:"sign-ins that are served in a second; of more, Brine's minions are told when to come back, and Salt's wait and try again; 0 is as many as the machine can (Brine only)" change:"live"`
}

// Router handles requests that passed all checks of the channel. It is called
// on the goroutine that reads from the peer: slow work must move to another
// goroutine before the call is answered.
type Router interface {
	// Encrypted handles a request of the accepted minion c.ID.
	Encrypted(c *Call)
	// Clear handles an unauthenticated request.
	Clear(c *Call)
}

// Server is the master's end of the request channel, for all transports
// together. Handle is its transport.Handler.
type Server struct {
	opts   func() Options
	table  *minionTable
	auth   *Authenticator
	router Router
	log    *slog.Logger
	// complain logs disk errors; each request may cause one.
	complain *ratelimit.Log
	warned   ratelimit.Keys // minions
	now      func() time.Time
	// A sign-in costs milliseconds of RSA. Each queue serves a limited number at a
	// time, so that unauthenticated peers delay neither signed-in minions nor
	// accepted minions that reconnect after a restart.
	acceptedQueue, unauthenticatedQueue *signInQueue
	signIns                             metrics.Times
}

// NewServer returns a server; opts is called at each request, so that a reload
// takes effect.
func NewServer(opts func() Options, keys Keys, sessions *Sessions, auth *Authenticator, router Router, log *slog.Logger) *Server {
	procs := runtime.GOMAXPROCS(0)
	auth.opts = opts
	limit := &ratelimit.Pace{Rate: func() int { return opts().SignInRate }}
	return &Server{
		opts: opts,
		table: &minionTable{keys: keys, sessions: sessions, log: log,
			large: semaphore.NewWeighted(maxLarge)},
		auth:                 auth,
		router:               router,
		log:                  log,
		complain:             ratelimit.NewLog(log, 1, 10*time.Second),
		warned:               ratelimit.Keys{Most: 10000, Every: time.Minute},
		now:                  time.Now,
		acceptedQueue:        newSignInQueue(procs, limit),
		unauthenticatedQueue: newSignInQueue(max(procs/2, 1), limit),
	}
}

// Forget drops the state of a minion whose key was removed, and its session
// key.
func (s *Server) Forget(id string) {
	s.table.forget(id)
	s.auth.Identity().Forget(id)
}

// Prune drops the state of minions that are no longer accepted. It is cheap
// enough for once a minute.
func (s *Server) Prune() {
	s.table.m.Range(func(id, v any) bool {
		if _, err := s.table.get(id.(string)); err != nil && !errors.Is(err, errNotAccepted) {
			s.log.Debug("cannot read the key of a minion", "minion", id, "err", err)
		}
		v.(*minionState).forgetNonces(s.now())
		return true
	})
	s.table.waiting.expire(s.now())
}

// Handle handles one request from a transport.
func (s *Server) Handle(req *transport.Request) {
	env, err := parseEnvelope(req.Body)
	if err != nil {
		if _, bad := msgpack.Skip(req.Body); bad != nil {
			replyValue(req, value.DictOf("msg", badLoad))
			return
		}
		s.refuse(req, "not an envelope", badLoad)
		return
	}
	switch {
	case env.version < s.opts().MinimumAuthVersion:
		s.refuse(req, "protocol version below minimum_auth_version", badLoad)
	case env.enc == "clear":
		s.handleClear(req, env)
	case env.enc == "aes" && env.version < sessionVersion:
		s.refuse(req, "a request without session key; upgrade the minion", badLoad)
	case env.enc == "aes":
		s.handleAES(req, env)
	default:
		s.refuse(req, "unknown enc", badLoad)
	}
}

// refuse answers with one of the plain strings. Errors of unauthenticated peers
// are logged only at level debug, so that they cannot fill the log.
func (s *Server) refuse(req *transport.Request, why, text string) {
	s.log.Debug("request refused", "peer", peerText(req), "why", why)
	replyValue(req, text)
}

func peerText(req *transport.Request) string {
	if req.Peer == nil {
		return "unknown"
	}
	return req.Peer.String()
}

func (s *Server) handleClear(req *transport.Request, env envelope) {
	limits := unauthenticatedLimits
	cmd, hasCmd := textField(env.load, "cmd")
	if cmd == "_auth" {
		limits = signInLimits
	}
	load, err := dictOf(env.load, limits)
	if err != nil {
		s.refuse(req, "clear load: "+err.Error(), badDict)
		return
	}
	if load.Has("id") {
		id, ok := load.At("id").(string)
		if !ok {
			s.refuse(req, "id is not a text", badLoadIDStr)
			return
		}
		if strings.ContainsRune(id, 0) {
			s.refuse(req, "id with a NUL byte", badLoadID)
			return
		}
	}
	switch {
	case cmd == "_auth":
		in, err := handshake.ParseRequest(load, env.version)
		if err != nil {
			s.refuse(req, err.Error(), badLoad)
			return
		}
		s.signIn(req, in)
	case !hasCmd && !load.Has("cmd"):
		s.refuse(req, "clear load without cmd", badMinion)
	default:
		s.router.Clear(&Call{Cmd: cmd, Load: load, Version: env.version, req: req})
	}
}

// silence is how long a sign-in that cannot be served stays unanswered. A stock
// minion retries after a missing answer, but an error makes it drop the
// publication that it wanted to read. So it is answered only when it no longer
// listens.
const silence = 10 * time.Second

func (s *Server) signIn(req *transport.Request, in handshake.Request) {
	start := time.Now()
	queue, pub := s.queueOf(in)
	entered, back, ok := queue.acquireOrHint(in.TakesHints)
	switch {
	case back > 0:
		replyValue(req, handshake.ComeBack(back))
		return
	case !ok:
		s.log.Debug("dropped sign-in: too many at once", "minion", in.ID)
		time.AfterFunc(silence, func() { replyValue(req, badLoad) })
		return
	}
	defer queue.release(entered)
	if req.Gone != nil && req.Gone() {
		// The sign-in timed out in the queue; the minion may be retrying already.
		s.log.Debug("dropped sign-in: the minion gave up", "minion", in.ID)
		replyValue(req, badLoad)
		return
	}
	if pub != nil {
		if err := s.table.renewSession(in.ID); err != nil {
			s.complain.Log(slog.LevelError, "cannot replace a session key", "minion", in.ID, "err", err)
		}
	}
	reply, changed := s.auth.signIn(in, pub)
	if changed {
		s.table.drop(in.ID)
	}
	s.signIns.Since(start)
	replyValue(req, reply)
}

// SignIns returns how long sign-ins took, from the request to the answer, including the time in the
// queue. It excludes those that were not served.
func (s *Server) SignIns() *metrics.Times { return &s.signIns }

// queueOf returns the queue for a sign-in, and its key if that is the accepted
// one. A peer with an accepted key need not be its owner, but must at least have
// seen it.
func (s *Server) queueOf(in handshake.Request) (*signInQueue, *crypt.PublicKey) {
	if salt.CheckID(in.ID) != nil {
		return s.unauthenticatedQueue, nil
	}
	known, ok, err := s.table.keys.AcceptedKey(in.ID)
	if err != nil || !ok {
		return s.unauthenticatedQueue, nil
	}
	shown, err := crypt.ParsePublic([]byte(in.Pub))
	if err != nil || !known.Equal(shown) {
		return s.unauthenticatedQueue, nil
	}
	return s.acceptedQueue, shown
}

func (s *Server) handleAES(req *transport.Request, env envelope) {
	if err := salt.CheckID(env.id); err != nil {
		s.refuse(req, err.Error(), badLoad)
		return
	}
	sealed, ok := msgpack.Text(env.load)
	if !ok {
		s.refuse(req, "sealed load is not bytes", badLoad)
		return
	}
	if s.opts().RefuseSHA1 {
		// The algorithms are outside of the encrypted part: a peer on the network path
		// must not choose them, and a minion that signed in before the option was set
		// must sign in again.
		if enc, sig := algorithms(req.Body); enc == crypt.OAEPSHA1 || sig == crypt.PKCS1v15SHA1 {
			s.refuse(req, env.id+" asks for SHA-1 (refuse_sha1)", badLoad)
			return
		}
	}
	now := s.now()
	m, err := s.table.get(env.id)
	if err != nil {
		if !errors.Is(err, errNotAccepted) {
			s.complain.Log(slog.LevelError, "cannot read the key of a minion; its requests fail", "minion", env.id, "err", err)
		}
		s.refuse(req, err.Error(), badLoad)
		return
	}
	cipher, plain, err := s.open(env.id, m, sealed, now)
	if err != nil {
		s.refuse(req, "cannot open the load of "+env.id+": "+err.Error(), badLoad)
		return
	}
	if len(plain) >= largeRequest {
		req = releasing(req, s.table.reserve(m, len(plain)))
	}
	load, err := dictOf(plain, minionLimits)
	if err != nil {
		s.refuse(req, "load of "+env.id+": "+err.Error(), badDict)
		return
	}
	if why := s.checkLoad(env, m, load, now); why != "" {
		s.refuse(req, "load of "+env.id+": "+why, badLoad)
		return
	}
	nonce := load.Str("nonce")
	load.Delete("tok")
	load.Delete("nonce")
	if !load.Has("cmd") {
		s.refuse(req, "load of "+env.id+" without cmd", badMinion)
		return
	}
	s.router.Encrypted(&Call{Cmd: load.Str("cmd"), Load: load, ID: env.id, Version: env.version,
		req: req, cipher: cipher, nonce: nonce, minion: m, auth: s.auth})
}

// releasing returns a request that calls release before its answer.
func releasing(req *transport.Request, release func()) *transport.Request {
	r := *req
	r.Reply = func(body []byte) { release(); req.Reply(body) }
	if req.Answer != nil {
		r.Answer = func(a transport.Answer) { release(); req.Answer(a) }
	}
	return &r
}

// open decrypts with the cached session key and, if that fails, with one that
// another master with the same directory may have written meanwhile.
func (s *Server) open(id string, m *minionState, sealed []byte, now time.Time) (*crypt.Crypticle, []byte, error) {
	c, err := s.table.cipherOf(id, m, now)
	if err != nil {
		return nil, nil, err
	}
	plain, err := c.OpenInPlace(sealed)
	if err == nil {
		return c, plain, nil
	}
	if again := s.table.refresh(id, m, now); again != nil {
		if plain, err := again.OpenInPlace(sealed); err == nil {
			return again, plain, nil
		}
	}
	return nil, nil, err
}

// checkLoad returns the error in a decrypted load, or "".
func (s *Server) checkLoad(env envelope, m *minionState, load *value.Dict, now time.Time) string {
	if ttl := s.opts().RequestServerTTL; ttl > 0 {
		age := now.Sub(time.Unix(load.Int("ts"), 0))
		if age > ttl || age < -ttl {
			s.warn(env.id, now, "refused request: its time is off by more than request_server_ttl; check the clocks of this master and the minion",
				"minion", env.id, "age", age.Round(time.Second), "ttl", ttl)
			return "too old or from the future"
		}
	}
	switch {
	case load.Str("id") != env.id:
		return "id differs from that of the envelope"
	case !load.Has("tok"):
		return "no tok"
	case !m.checkToken(load.Bytes("tok")):
		return "tok was not made with the accepted key"
	case len(load.Str("nonce")) > 64:
		return "nonce is too long"
	}
	switch s.table.judge(m, env.id, load.Str("nonce"), load.Str("cmd"), load.Int("ts"), now) {
	case replayed:
		s.warn(env.id, now, "refused a replayed request", "minion", env.id, "cmd", load.Str("cmd"))
		return "replayed"
	case outrun:
		const why = "sent before requests that are forgotten; was the minion's clock set back?"
		s.warn(env.id, now, "request refused: "+why, "minion", env.id, "cmd", load.Str("cmd"))
		return why
	}
	return ""
}

// warn logs, at a limited rate, what an attacker on the network path can cause.
func (s *Server) warn(id string, now time.Time, msg string, args ...any) {
	if s.warned.Admit(id, now) {
		s.log.Warn(msg, args...)
	}
}

func replyValue(req *transport.Request, v any) {
	b, err := msgpack.Marshal(v, dialect(req))
	if err != nil { // only values created here get here
		b = msgpack.AppendNil(nil)
	}
	req.Reply(b)
}

func dialect(req *transport.Request) msgpack.Dialect {
	if req.NewSpec {
		return msgpack.NewSpec
	}
	return msgpack.Wire
}
