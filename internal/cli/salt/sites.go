package salt

import (
	"context"
	"errors"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

// sitePoll is the pause between two looks at the summaries of a job.
const sitePoll = 200 * time.Millisecond

// siteSummary gives a job whose sites return only summaries, waits until all are final or the timeout is
// over, and shows them by site.
func (p *program) siteSummary(ctx context.Context) error {
	pub, err := p.session.Client.Publish(ctx, p.job())
	if errors.Is(err, client.ErrNoMatch) {
		p.say("%s\n", err)
		return exit{frame.ExitNoReturn, textNoReturn}
	}
	if err != nil {
		return err
	}
	if p.opts.Verbose || p.opts.ShowJID {
		p.say("jid: %s\n", pub.JID)
	}
	if len(pub.Sites) == 0 {
		return exit{frame.ExitFailure, "--site-summary needs a master that commands sites (federation_hub), and a target that matches one; the job id is " + pub.JID}
	}
	o := p.session.Client.Options()
	most := o.Timeout + o.GatherJobTimeout
	if p.opts.Timeout > 0 {
		most = time.Duration(p.opts.Timeout) * time.Second
	}
	for end := time.Now().Add(most); ; {
		d, err := p.session.Client.Run(ctx, client.Runner{Fun: "federation.job", Args: []any{pub.JID}}, nil, nil)
		if err != nil {
			return p.stopped(err, pub.JID)
		}
		sites, ok := d.At("return").(*value.Dict)
		if !ok {
			return exit{frame.ExitFailure, value.Str(d.At("return"))}
		}
		done, failed := summarized(sites)
		if !done && time.Now().Before(end) && wait.Sleep(ctx, sitePoll) {
			continue
		}
		if err := p.session.Show.Show(sites, "nested", output.Call{}); err != nil {
			return err
		}
		if !done {
			p.session.Env.Errorf("Not all sites have sent their final summary. Later: salt-run federation.job %s", pub.JID)
		}
		if failed || !done {
			return exit{frame.ExitFailure, textFailed}
		}
		return nil
	}
}

// summarized reports whether nothing more is expected of any site, and whether a site refused the job
// or some minions failed or did not return.
func summarized(sites *value.Dict) (done, failed bool) {
	done = true
	for _, v := range sites.All() {
		d, _ := v.(*value.Dict)
		number := func(key string) int64 { n, _ := d.At(key).(int64); return n }
		switch state, _ := d.At("state").(string); {
		case state == "waiting" || state == "stored" && d.At("final") != true:
			done = false
		case state != "stored" || number("failed") > 0 || number("ok") < number("targeted"):
			failed = true
		}
	}
	return done, failed
}
