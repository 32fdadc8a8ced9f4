package salt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"brine/internal/base/textedit"
	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/daemons/minion"
	"brine/internal/py/value"
)

// job returns the job defined by the command line.
func (p *program) job() client.Job {
	return client.Job{
		Target: p.cmd.target, Type: p.opts.targetType(), Fun: p.cmd.fun, Arg: p.cmd.arg, Ret: p.opts.Return,
		Kwargs: p.tell(), Timeout: time.Duration(p.opts.Timeout) * time.Second,
		LeaveAway: p.opts.Timeout == 0 && p.opts.Expire == "", // a user who gives a time wants to wait
	}
}

func (p *program) async(ctx context.Context) error {
	pub, err := p.session.Client.Publish(ctx, p.job())
	if errors.Is(err, client.ErrNoMatch) {
		p.say("%s\nExecuted command with job ID: 0\n", err)
		return p.strict(frame.ExitNoReturn, textNoReturn)
	}
	if err != nil {
		return err
	}
	p.say("Executed command with job ID: %s\n", pub.JID)
	return nil
}

// strict returns the error for a failure for which Salt's program exits with 0, or nil.
func (p *program) strict(code int, text string) error {
	if code = p.opts.Strict(code); code != 0 {
		return exit{code, text}
	}
	return nil
}

// falls reports whether a result counts as a failure with strict exit codes.
func (p *program) falls(r client.Result) bool {
	return p.opts.Strict(frame.ExitFailure) != 0 && (r.Absent || r.Retcode != 0 || r.Return == false)
}

// start sends the job and shows its id if requested.
func (p *program) start(ctx context.Context) (*client.Running, error) {
	j := p.job()
	if p.opts.Subset > 0 {
		ids, err := p.subset(ctx)
		if err != nil {
			return nil, err
		}
		j.Target, j.Type = value.Strings(ids), "list"
	}
	if p.opts.Verbose {
		j.StillRunning = func(id string) { p.aside(func() { p.say("Execution is still running on %s\n", id) }) }
		j.StateChanged = func(jid, id, state string) { p.aside(func() { p.states().change(jid, id, state, "") }) }
	}
	r, err := p.session.Client.Start(ctx, j)
	if err != nil {
		return nil, err
	}
	p.tellElsewhere(r.Elsewhere)
	p.away, p.keptUntil = r.Away, r.Expires
	if p.opts.Verbose {
		text := "Executing job with jid " + r.JID
		p.say("%s\n%s\n\n", text, strings.Repeat("-", len(text)))
	} else if p.opts.ShowJID {
		p.say("jid: %s\n", r.JID)
	}
	return r, nil
}

// subset selects random minions that have the function.
func (p *program) subset(ctx context.Context) ([]string, error) {
	ids, err := p.session.Client.Pick(ctx, p.job(), p.opts.Subset)
	if err != nil {
		return nil, p.stopped(err, "")
	}
	return ids, nil
}

// execute runs the job and shows each return as it arrives.
func (p *program) execute(ctx context.Context) error {
	r, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	var sum summary
	docs := value.NewDict(0)
	progress := p.newProgress(r.Minions)
	defer progress.stop()
	var absent []string
	failed := false
	for res, err := range r.Results(ctx) {
		if err != nil {
			progress.stop()
			return p.stopped(err, r.JID)
		}
		failed = failed || p.falls(res)
		if res.Absent && !res.Unknown && p.opts.HideTimeout && !p.opts.Verbose {
			continue
		}
		if res.Absent && !res.Unknown {
			absent = append(absent, res.ID)
		}
		shown := p.shape(res, r.JID)
		sum.add(res, res.Absent && p.notConnected(res.ID))
		failed = failed || shown.retcode != 0
		err = progress.step(res, func() error {
			if p.cmd.doc() {
				addDocs(docs, res)
				failed = false
				return nil
			}
			return p.print(shown)
		})
		if err != nil {
			return err
		}
	}
	progress.stop()
	if p.cmd.doc() {
		return p.printDocs(docs, sum.targeted())
	}
	if p.opts.Summary && p.session.Show.Wanted() == "" {
		sum.print(p.session.Env.Stdout, p.opts.Verbose)
	}
	if p.wantsStates() {
		p.states().absent(ctx, r.JID, absent, sum.returned)
	}
	if failed {
		suggest(p)
		return exit{1, textFailed}
	}
	return nil
}

// suggest prints similar function names if Brine has none of this name.
func suggest(p *program) {
	var names []string
	for _, m := range minion.Catalogue() {
		for _, module := range append([]string{m.Name}, m.Aliases...) {
			for i := range m.Funcs {
				names = append(names, module+"."+m.Funcs[i].Name())
			}
		}
	}
	for _, fun := range p.cmd.funs() {
		if near := textedit.Nearest(fun, names); len(near) > 0 && !slices.Contains(names, fun) {
			p.session.Env.Errorf("Brine minions have no function %s. Did you mean %s?", fun, strings.Join(near, " or "))
		}
	}
}

// static runs the job and shows all returns together.
func (p *program) static(ctx context.Context) error {
	r, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	all := value.NewDict(len(r.Minions))
	var absent []string
	failed := false
	progress := p.newProgress(r.Minions)
	defer progress.stop()
	for res, err := range r.Results(ctx) {
		if err != nil {
			progress.stop()
			return p.stopped(err, r.JID)
		}
		progress.step(res, func() error { return nil })
		failed = failed || p.falls(res)
		if !res.Absent {
			all.Set(res.ID, res.Return)
		} else if !res.Unknown {
			absent = append(absent, res.ID)
		}
	}
	progress.stop()
	if p.wantsStates() {
		defer p.states().absent(ctx, r.JID, absent, all.Len())
	}
	return p.allPrinted(all, failed)
}

// allPrinted shows the returns of all minions together; some may have failed.
func (p *program) allPrinted(all *value.Dict, failed bool) error {
	if err := p.printAll(all); err != nil || !failed || p.cmd.doc() {
		return err
	}
	return p.strict(frame.ExitFailure, textFailed)
}

// printNothing prints the empty result in machine-readable output.
func (p *program) printNothing() error {
	switch p.session.Show.Wanted() {
	case "json", "yaml", "raw", "pprint":
		return p.session.Show.Show(value.NewDict(0), "", output.Call{})
	}
	return nil
}

// printAll shows the returns of all minions together.
func (p *program) printAll(all *value.Dict) error {
	if p.cmd.doc() {
		docs := value.NewDict(0)
		for id, ret := range all.All() {
			addDocs(docs, client.Result{ID: value.Str(id), Return: ret})
		}
		return p.printDocs(docs, all.Len())
	}
	out := ""
	if strings.HasPrefix(p.cmd.funs()[0], "state.") {
		out = "highstate"
	}
	if err := p.session.Show.Show(all, out, output.Call{}); err != nil {
		return err
	}
	if all.Len() == 0 {
		return exit{2, textNoReturn}
	}
	return nil
}

// shown is a return in printable form.
type shown struct {
	data    *value.Dict
	out     string
	retcode int
}

// shape makes a result printable; for an absent minion it contains the reason.
func (p *program) shape(res client.Result, jid string) shown {
	if !res.Absent {
		return shown{value.DictOf(res.ID, res.Return), res.Out, res.Retcode}
	}
	text := fmt.Sprintf("Minion did not return. [No response]\n"+lookupHint, jid)
	if master := p.elsewhere[res.ID]; master != "" {
		text = "Minion did not return. [Commanded by " + master + "]"
	} else if since, ok := p.away[res.ID]; ok {
		text = "Minion did not return. [Not connected since " + since.Format(time.DateTime) + "]"
		if now := time.Now(); p.keptUntil.After(now) {
			text += "\nIt gets the job if it connects before " + p.keptUntil.Format(time.TimeOnly) + "; salt --expire keeps a job longer."
		}
	} else if p.notConnected(res.ID) {
		text = "Minion did not return. [Not connected]"
	} else if why := withoutKey(p, res.ID); why != "" {
		text += "\n" + why
	}
	return shown{value.DictOf(res.ID, text), "no_return", 1}
}

func (p *program) print(s shown) error {
	return p.session.Show.Show(s.data, s.out, output.Call{Retcode: s.retcode})
}
