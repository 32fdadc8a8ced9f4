package wire

import "brine/internal/py/value"

// Sealed is a message between a hub and a site on a bus that neither trusts. Body is a
// SealedBody, Cert a SealedCert, and Sig the signature of Body by the key in it.
type Sealed struct {
	Cert []byte `wire:"c,required" max:"8192"`
	Body []byte `wire:"b,required"`
	Sig  []byte `wire:"s,required" max:"128"`
}

// SealedCert binds a key for messages to the key of a master or cluster: Data is a
// SealedIdentity, and Sig the signature of it by the master's key.
type SealedCert struct {
	Data []byte `wire:"d,required" max:"7168"`
	Sig  []byte `wire:"s,required" max:"1024"`
}

// SealedIdentity says who signs with which key until when.
type SealedIdentity struct {
	Name string `wire:"name,required" max:"64"`
	Role string `wire:"role,required" max:"16"`
	// Key is an Ed25519 key, Pub the PEM text of the master's key.
	Key   []byte `wire:"key,required" max:"32"`
	Pub   string `wire:"pub,required" max:"4096"`
	From  int64  `wire:"from,required"`  // Unix seconds
	Until int64  `wire:"until,required"` // Unix seconds
}

// SealedBody is the content of a Sealed. Data is one of the messages below, by Kind.
type SealedBody struct {
	Kind string      `wire:"kind,required" max:"16"`
	To   string      `wire:"to" max:"64"` // the site, or "" for the hub and for all sites
	At   int64       `wire:"at"`          // Unix nanoseconds
	Data *value.Dict `wire:"data,required"`
}

// SiteCommand is a job that a hub gives to a site.
type SiteCommand struct {
	JID     string `wire:"jid,required" max:"64"`
	Tgt     any    `wire:"tgt"`
	TgtType string `wire:"tgt_type" max:"64"`
	Fun     any    `wire:"fun"`
	Arg     any    `wire:"arg"`
	Ret     string `wire:"ret,omitempty" max:"1024"`
	// Kwargs are the keywords of a Publish that reach minions.
	Kwargs *value.Dict `wire:"kwargs,omitempty"`
	User   string      `wire:"user" max:"255"`
	// AuthList has the permissions of a limited user.
	AuthList any `wire:"auth_list,omitempty"`
	// Expires is until when the job may begin, in Unix milliseconds.
	Expires int64 `wire:"expires,required"`
	// Passing jobs are questions about other jobs: not kept, and not repeated.
	Passing bool `wire:"passing,omitempty"`
	// Summary asks for a summary only, not for the returns of the minions.
	Summary bool `wire:"summary,omitempty"`
}

// SiteStored is a site's answer to a SiteCommand: it is stored there, and published to Minions, or
// Refused for a reason.
type SiteStored struct {
	JID     string      `wire:"jid,required" max:"64"`
	Minions *value.List `wire:"minions,omitempty"`
	Missing *value.List `wire:"missing,omitempty"`
	Refused string      `wire:"refused,omitempty" max:"4096"`
	// Master is the one that answers. More says that further messages name more minions.
	Master string `wire:"master,omitempty" max:"255"`
	More   bool   `wire:"more,omitempty"`
}

// SiteReturns are returns of a job from minions of a site. Returns has a dict for each id.
type SiteReturns struct {
	JID     string      `wire:"jid,required" max:"64"`
	Returns *value.Dict `wire:"returns,required"`
}

// SiteSummary is what became of a job at a site, so far or, if Final, in the end.
type SiteSummary struct {
	JID      string `wire:"jid,required" max:"64"`
	Version  int64  `wire:"version,required"`
	Final    bool   `wire:"final,omitempty"`
	Targeted int64  `wire:"targeted"`
	OK       int64  `wire:"ok"`
	Changed  int64  `wire:"changed"`
	Failed   int64  `wire:"failed"`
	// FailedIDs and AbsentIDs name the first of the minions that failed and that did not return.
	FailedIDs *value.List `wire:"failed_ids,omitempty" max:"1000"`
	AbsentIDs *value.List `wire:"absent_ids,omitempty" max:"1000"`
	// Groups are the largest groups of equal returns: {count, ids, return}.
	Groups *value.List `wire:"groups,omitempty" max:"100"`
}

// SiteConfirmed says that the hub has stored returns, or a version of a summary.
type SiteConfirmed struct {
	JID     string      `wire:"jid,required" max:"64"`
	IDs     *value.List `wire:"ids,omitempty"`
	Version int64       `wire:"version,omitempty"`
	// Counted are the returns in the summary, and Final whether it is final. Another master of the
	// site may have sent it.
	Counted int64 `wire:"counted,omitempty"`
	Final   bool  `wire:"final,omitempty"`
}

// SitePresence is the state of a site.
type SitePresence struct {
	Master    string `wire:"master" max:"255"`
	Version   string `wire:"version" max:"64"`
	Accepted  int64  `wire:"accepted"`
	Connected int64  `wire:"connected"`
	Leads     bool   `wire:"leads,omitempty"`
	// Returns are the stored returns that the hub has not confirmed.
	Returns int64 `wire:"returns,omitempty"`
	// News asks the hub to repeat what the site has not confirmed.
	News bool `wire:"news,omitempty"`
	// Nonce asks for a SiteClock.
	Nonce []byte `wire:"nonce,omitempty" max:"32"`
}

// SiteClock is the time of a hub in Unix nanoseconds, in answer to a nonce. Sig is a signature of both by
// the hub's long-lived key.
type SiteClock struct {
	Nonce []byte `wire:"nonce,required" max:"32"`
	At    int64  `wire:"at,required"`
	Sig   []byte `wire:"sig,required" max:"1024"`
}

// SiteAsk asks a site for the returns of a job.
type SiteAsk struct {
	JID string `wire:"jid,required" max:"64"`
}

// SiteRecall is the sealed message in which a site got a command that the hub does not know any more.
type SiteRecall struct {
	Command []byte `wire:"command,required" max:"16777216"`
}

// SiteEvent is an event of a site's bus.
type SiteEvent struct {
	Tag  string      `wire:"tag,required" max:"1024"`
	Data *value.Dict `wire:"data,required"`
}

// SiteList are the sites that a hub accepts, by name, with the PEM text of their keys.
type SiteList struct {
	Sites *value.Dict `wire:"sites,required"`
}

// HubJob is a command as one master above has recorded it, for the others of its cluster.
type HubJob struct {
	JID string      `wire:"jid,required" max:"64"`
	Job *value.Dict `wire:"job,required"`
}

// HubKey is a decision about the key of a site: one master above has accepted or rejected it or, with
// an empty State, deleted it.
type HubKey struct {
	Name  string `wire:"name,required" max:"64"`
	Pub   string `wire:"pub,required" max:"4096"`
	State string `wire:"state" max:"16"`
	// ID identifies the decision.
	ID string `wire:"id,required" max:"32"`
	// Seen are decisions that the user had seen, the newest first. This one replaces them.
	Seen []string `wire:"seen" max:"64"`
}

// HubKeys is a hash of the decisions about keys of sites that one master above has recorded. Masters that
// have others send them.
type HubKeys struct {
	Sum []byte `wire:"sum,required" max:"32"`
}
