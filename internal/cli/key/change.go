package key

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// change is an action that changes the state of keys.
type change struct {
	act  string // "accept", as in the event
	past string // "accepted"
	// from are the affected states, in order.
	from []keystore.State
	// named are the states named in the message that nothing matches.
	named []string
	// question shows the default answer in upper case.
	question, byDefault string
	do                  func(p *program, st keystore.State, id string) error
}

func accepting(o *options) change {
	c := change{act: "accept", past: "accepted", from: []keystore.State{keystore.Pending}, named: []string{"unaccepted"},
		question: "Proceed? [n/Y] ", byDefault: "y", do: (*program).accept}
	if o.IncludeAll || o.IncludeRejected {
		c.include(keystore.Rejected)
	}
	if o.IncludeDenied {
		c.include(keystore.Denied)
	}
	return c
}

func rejecting(o *options) change {
	c := change{act: "reject", past: "rejected", from: []keystore.State{keystore.Pending}, named: []string{"unaccepted"},
		question: "Proceed? [n/Y] ", byDefault: "y", do: (*program).reject}
	if o.IncludeAll || o.IncludeAccepted {
		c.include(keystore.Accepted)
	}
	if o.IncludeDenied {
		c.include(keystore.Denied)
	}
	return c
}

// deleting differs from the others: it affects all states, although its message mentions unaccepted
// keys, and the default answer is no.
func deleting(*options) change {
	return change{act: "delete", past: "deleted", from: states, named: []string{"unaccepted"},
		question: "Proceed? [N/y] ", byDefault: "n", do: (*program).remove}
}

func (c *change) include(st keystore.State) {
	c.from = append(c.from, st)
	c.named = append(c.named, st.String())
}

// change shows the affected keys, asks, and changes them.
func (p *program) change(ctx context.Context, c change, pattern string) error {
	found, err := p.match(pattern)
	if err != nil {
		return err
	}
	var work []ids
	for _, st := range c.from {
		if i := slices.IndexFunc(found, func(s ids) bool { return s.state == st }); i >= 0 {
			work = append(work, found[i])
		}
	}
	if len(work) == 0 {
		p.say("The key glob '%s' does not match any %s keys.\n", pattern, orList(c.named))
		return nil
	}
	p.say("The following keys are going to be %s:\n", c.past)
	if err := p.display(byDirectory(work)); err != nil {
		return err
	}
	if !p.opts.Yes {
		answer, err := p.ask(ctx, c.question, c.byDefault)
		if err != nil || answer != "y" {
			return err
		}
	}
	return p.apply(ctx, c, work)
}

// apply changes the keys one by one. A failure does not stop it.
func (p *program) apply(ctx context.Context, c change, work []ids) error {
	var failed error
	revoked := false
	var gone []string
	for _, s := range work {
		for _, id := range s.ids {
			err := c.do(p, s.state, id)
			var skip skipped
			if errors.As(err, &skip) {
				p.env.Errorf("%s", err)
				if p.opts.HardCrash.HardCrash {
					return skip.error
				}
				continue
			}
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			p.bus.fire(ctx, "salt/key", value.DictOf("result", true, "act", c.act, "id", id))
			p.say("Key for minion %s %s.\n", id, c.past)
			revoked = revoked || s.state == keystore.Accepted && c.act != "accept"
			gone = append(gone, id)
		}
	}
	if c.act == "delete" && !p.conf.preserve {
		failed = errors.Join(failed, p.forget(gone))
	}
	if revoked && p.conf.RotateAES {
		failed = errors.Join(failed, requestRotation(p.conf))
	}
	return failed
}

// skipped is a key that is left unchanged, with the message for the user.
type skipped struct{ error }

func (p *program) accept(st keystore.State, id string) error {
	pem, err := p.keys.Read(st, id)
	if err != nil {
		return err
	}
	if _, err := crypt.ParsePublic([]byte(pem)); err != nil {
		p.log.Error("Invalid RSA public key: "+id, "err", err)
		return skipped{fmt.Errorf("Unable to accept invalid key for %s.", id)} //lint:ignore ST1005 it is Salt's text
	}
	return p.keys.Move(id, st, keystore.Accepted)
}

func (p *program) reject(st keystore.State, id string) error {
	return p.keys.Move(id, st, keystore.Rejected)
}

func (p *program) remove(st keystore.State, id string) error {
	err := p.keys.Delete(st, id)
	if salt.KindOf(err) == salt.NotFound {
		return nil // already deleted
	}
	return err
}

// orList joins words as in "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
