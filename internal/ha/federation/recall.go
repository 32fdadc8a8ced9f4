package federation

import (
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
)

// recalls learn commands again that the hub has given and forgotten: its disk was restored from an older copy. A site that reports about
// such a command is asked for the sealed message in which it got it. That has the signature of the hub, so that a site cannot invent one,
// and names the site.
type recalls struct {
	h      *Hub
	opener *sealed.Opener // of the hub's own messages

	mu    sync.Mutex
	asked ratelimit.Bucket
}

// recallRate bounds the questions for forgotten commands in a second, of all sites.
const recallRate = 200

func newRecalls(h *Hub) *recalls {
	return &recalls{h: h, asked: ratelimit.Bucket{Rate: recallRate, Burst: recallRate},
		opener: sealed.NewOpener(func(id *sealed.Identity) error {
			if id.Role != sealed.Hub || id.Fingerprint != sealed.Fingerprint(h.cfg.Key.Pub()) {
				return salt.Errorf(salt.Denied, "the command is not one of this master")
			}
			return nil
		})}
}

// unknown asks a site for a command that it reports about. It returns the error for the report, which the site repeats.
func (r *recalls) unknown(site, jid string) error {
	r.mu.Lock()
	ask := salt.ValidJID(jid) && r.asked.Admit(1, time.Now())
	r.mu.Unlock()
	if ask {
		r.h.publish(subjectDown+site, kindForgotten, site, wire.SiteAsk{JID: jid})
	}
	return salt.Errorf(salt.Denied, "the site %s has no command %s", site, jid)
}

// take adds a command that a site has returned.
func (r *recalls) take(site string, in *wire.SiteRecall) error {
	h := r.h
	msg, err := r.opener.OpenAnyTime(in.Command)
	if err != nil {
		return err
	}
	var c wire.SiteCommand
	if msg.Kind != kindCommand || msg.To != site {
		return salt.Errorf(salt.Denied, "the message that the site %s returned is no command for it", site)
	}
	if err := msg.Read(&c); err != nil {
		return err
	}
	if !salt.ValidJID(c.JID) || c.Passing || steady.Early().Sub(msg.At) > h.cfg.Keep {
		return salt.Errorf(salt.Denied, "the site %s returned a command that is not kept: %.64q", site, c.JID)
	}
	h.mu.Lock()
	j := h.jobs[c.JID]
	if j != nil && j.sites[site] != nil {
		h.mu.Unlock()
		return nil
	}
	if j == nil {
		j = &Command{cmd: c, sites: map[string]*sitePart{}, given: msg.At, loaded: true}
		h.jobs[c.JID] = j
	}
	j.sites[site] = &sitePart{tgt: c.Tgt, tgtType: c.TgtType, state: StateStored}
	record := j.record()
	h.mu.Unlock()
	if err := h.cfg.Host.Restore(&c); err != nil {
		h.mu.Lock()
		if delete(j.sites, site); len(j.sites) == 0 {
			delete(h.jobs, c.JID)
		}
		h.mu.Unlock()
		return err
	}
	h.book.later(jobsBucket, c.JID, record) // if it is lost, the site reports again
	h.log.Log(h.ctx, slog.LevelWarn, "learned a command again that this master had forgotten; was its disk restored from an older copy?",
		"jid", c.JID, "site", site)
	h.command(site, c, false) // the site reports all again
	return nil
}
