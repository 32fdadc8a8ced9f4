package system

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/iptables"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("iptables", func() state.Module {
		return state.Module{Name: "iptables", Doc: `Keep the rules of the packet filter.`, Aggregate: rulesAggregated, Funcs: []state.Func{
			state.Of("chain_present", chainPresent, `Have a chain.`),
			state.Of("chain_absent", chainAbsent, `Have no chain of this name.`),
			state.Of("append", ruleAppended, `Have a rule in a chain, at its end if it is new. Further arguments are iptables' long options.`),
			state.Of("insert", ruleInserted, `Have a rule in a chain, at a position if it is new. Further arguments are iptables' long options.`),
			state.Of("delete", ruleDeleted, `Have no such rule in a chain. Further arguments are iptables' long options.`),
			state.Of("set_policy", policySet, `Set what becomes of packets that no rule of a chain is about.`),
			state.Of("flush", flushed, `Delete all rules of a chain, or of a table.`),
		}}
	})
}

type chainArgs struct {
	Name   string `salt:"name" doc:"name of the chain"`
	Table  string `salt:"table" doc:"table of the chain" default:"filter"`
	Family string `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
}

func (a chainArgs) chain() iptables.ChainArgs {
	return iptables.ChainArgs{Table: a.Table, Chain: a.Name, Family: a.Family}
}

// filter accesses the packet filter of this machine.
func filter() iptables.Filter { return iptables.Filter{M: machine} }

// one returns a plan of one step. do returns an error for a failure.
func one(would string, do func(ctx context.Context) (state.Change, error)) state.Plan {
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: would}, Do: do}}}
}

// changed returns the change that all states for the packet filter report.
func changed(name, comment string) state.Change {
	return state.Change{Diff: value.DictOf("locale", name), Comment: comment}
}

func chainPresent(ctx context.Context, e *state.Env, a chainArgs) (state.Plan, error) {
	there, err := filter().CheckChain(ctx, e.Call, a.chain())
	if err != nil {
		return state.Plan{}, err
	}
	if there == true {
		return state.Plan{Comment: "iptables " + a.Name + " chain is already exist in " + a.Table + " table for " + a.Family}, nil
	}
	return one("iptables "+a.Name+" chain in "+a.Table+" table needs to be set for "+a.Family, func(ctx context.Context) (state.Change, error) {
		said, err := filter().Edit("-N")(ctx, e.Call, a.chain())
		if err == nil && said != true {
			err = state.Errorf("Failed to create %s chain in %s table: %s for %s", a.Name, a.Table, strings.TrimSpace(value.Str(said)), a.Family)
		}
		if err != nil {
			return state.Change{}, err
		}
		return changed(a.Name, "iptables "+a.Name+" chain in "+a.Table+" table create success for "+a.Family), nil
	}), nil
}

func chainAbsent(ctx context.Context, e *state.Env, a chainArgs) (state.Plan, error) {
	there, err := filter().CheckChain(ctx, e.Call, a.chain())
	if err != nil {
		return state.Plan{}, err
	}
	if !value.Truth(there) {
		return state.Plan{Comment: "iptables " + a.Name + " chain is already absent in " + a.Table + " table for " + a.Family}, nil
	}
	return one("iptables "+a.Name+" chain in "+a.Table+" table needs to be removed "+a.Family, func(ctx context.Context) (state.Change, error) {
		wrong, err := filter().Flush(ctx, e.Call, iptables.FlushArgs(a.chain()))
		if err == nil && wrong != "" {
			err = state.Errorf("Failed to flush %s chain in %s table: %s for %s", a.Name, a.Table, strings.TrimSpace(wrong), a.Family)
		}
		if err != nil {
			return state.Change{}, err
		}
		said, err := filter().Edit("-X")(ctx, e.Call, a.chain())
		if err == nil && said != true {
			err = state.Errorf("Failed to delete %s chain in %s table: %s for %s", a.Name, a.Table, strings.TrimSpace(value.Str(said)), a.Family)
		}
		if err != nil {
			return state.Change{}, err
		}
		return changed(a.Name, "iptables "+a.Name+" chain in "+a.Table+" table delete success for "+a.Family), nil
	}), nil
}

type ruleArgs struct {
	Name   string    `salt:"name" doc:"what the rule is called in the SLS"`
	Table  string    `salt:"table" doc:"table of the chain" default:"filter"`
	Family string    `salt:"family" doc:"ipv4 or ipv6" default:"ipv4"`
	Kwargs fn.Kwargs `salt:"kwargs" doc:"chain, position, save (true, or a file to write the rules to), rules (several of them), and options of iptables"`
}

// filterRule is a desired or an unwanted rule.
type filterRule struct {
	ruleArgs
	e             *state.Env
	chain         string
	rule, command string // the options, and the whole command for messages
	there         bool
}

func (a ruleArgs) need(keys ...string) error {
	for _, k := range keys {
		if !a.Kwargs.Has(k) {
			return state.Errorf("%s must be given", k)
		}
	}
	return nil
}

// look builds the rule and checks whether its chain has it.
func (a ruleArgs) look(ctx context.Context, e *state.Env, letter string) (*filterRule, error) {
	if err := a.need("chain"); err != nil {
		return nil, err
	}
	r := &filterRule{ruleArgs: a, e: e, chain: value.Str(a.Kwargs.At("chain"))}
	b := iptables.BuildArgs{Table: a.Table, Chain: r.chain, Position: "", Family: a.Family, Kwargs: fn.Kwargs{Dict: a.Kwargs.Clone()}}
	if v, ok := b.Kwargs.Get("position"); ok {
		b.Position = v
	}
	for _, key := range []string{"chain", "position", "command", "full"} {
		b.Kwargs.Delete(key)
	}
	rule, err := filter().Build(ctx, e.Call, b)
	if err != nil {
		return nil, err
	}
	b.Full, b.Command = true, letter
	command, err := filter().Build(ctx, e.Call, b)
	if err != nil {
		return nil, err
	}
	r.rule, r.command = rule, strings.TrimSpace(command)
	there, err := filter().Check(ctx, e.Call, iptables.RuleArgs{Table: a.Table, Chain: r.chain, Rule: r.rule, Family: a.Family})
	r.there = there == true
	return r, err
}

// file returns where to save the rules, if requested; "" means the file that
// the system reads at boot.
func (a ruleArgs) file() (file string, save bool) {
	v := a.Kwargs.At("save")
	if v != true && value.Truth(v) {
		file = value.Str(v)
	}
	return file, value.Truth(v)
}

func (a ruleArgs) saveTo(ctx context.Context, e *state.Env, file string) (string, error) {
	said, err := filter().Save(ctx, e.Call, iptables.SaveArgs{File: file, Family: a.Family})
	return value.Str(said), err
}

// rulesOf returns the rules of all chains.
func rulesOf(all *value.Dict) *value.List {
	out := &value.List{}
	for _, table := range all.All() {
		chains, _ := table.(*value.Dict)
		for _, c := range chains.All() {
			chain, _ := c.(*value.Dict)
			out.Append(chain.At("rules"))
		}
	}
	return out
}

// unsaved reports whether the rules in the file differ from the kernel's.
func (a ruleArgs) unsaved(ctx context.Context, e *state.Env, file string) (bool, error) {
	saved, err := filter().SavedRules(ctx, e.Call, iptables.SavedArgs{File: file, Family: a.Family})
	if err != nil {
		return false, err
	}
	now, err := filter().Rules(ctx, e.Call, iptables.FilterArgs{Family: a.Family})
	return !value.Equal(rulesOf(saved), rulesOf(now)), err
}

// present returns the plan to add the rule. already, would and failed are
// comments.
func (r *filterRule) present(ctx context.Context, already, would, failed string, add func(ctx context.Context) (bool, error)) (state.Plan, error) {
	file, save := r.file()
	if r.there {
		if !save {
			return state.Plan{Comment: already}, nil
		}
		other, err := r.unsaved(ctx, r.e, file)
		if err != nil || !other {
			return state.Plan{Comment: already}, err
		}
		// In Salt, saving an outdated file is not a change.
		return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
			if test {
				return state.Result{Verdict: state.Succeeded, Comment: already}
			}
			said, err := r.saveTo(ctx, r.e, file)
			if err != nil {
				return state.Result{Verdict: state.Failed, Comment: err.Error()}
			}
			return state.Result{Verdict: state.Succeeded, Comment: already + "\nSaved iptables rule " + r.Name + " for " + r.Family + "\n" + r.command +
				"\n" + said}
		}}, nil
	}
	return one(would, func(ctx context.Context) (state.Change, error) {
		done, err := add(ctx)
		if err == nil && !done {
			err = state.Errorf("%s", failed)
		}
		if err != nil {
			return state.Change{}, err
		}
		if !save {
			return changed(r.Name, "Set iptables rule for "+r.Name+" to: "+r.command+" for "+r.Family), nil
		}
		said, err := r.saveTo(ctx, r.e, file)
		return changed(r.Name, "Set and saved iptables rule "+r.Name+" for "+r.Family+"\n"+r.command+"\n"+said), err
	}), nil
}

// rulesAggregated merges into low the rules of other states of the run with the
// same function. The state's own rule comes first.
func rulesAggregated(low *value.Dict, chunks []*value.Dict, running *value.Dict) *value.Dict {
	fun := low.At("fun")
	if fun != "append" && fun != "insert" {
		return low
	}
	of := func(chunk *value.Dict) []any {
		if l, ok := chunk.At("rules").(*value.List); ok {
			return slices.Clone(l.Items)
		}
		return []any{chunk.Clone()}
	}
	rules, added := of(low), false
	for _, c := range chunks {
		if c.At("state") == "iptables" && c.At("fun") == fun && !c.Has(state.Aggregated) && !running.Has(state.Tag(c)) {
			rules, added = append(rules, of(c)...), true
			c.Set(state.Aggregated, true)
		}
	}
	if !added {
		return low
	}
	merged := low.Clone()
	merged.Set("rules", &value.List{Items: rules})
	return merged
}

// several returns the plan of a state that has the arguments of several rules.
// Each rule is compared with the packet filter when its turn comes: two may be
// the same.
func (a ruleArgs) several(e *state.Env, plan func(context.Context, *state.Env, ruleArgs) (state.Plan, error)) state.Plan {
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		r := state.Result{Verdict: state.Succeeded}
		worse := func(v state.Verdict) {
			if v == state.Failed || r.Verdict == state.Succeeded {
				r.Verdict = v
			}
		}
		var comments []string
		set := &value.List{}
		var save any
		for _, rule := range value.Items(a.Kwargs.At("rules")) {
			d, ok := rule.(*value.Dict)
			if !ok {
				worse(state.Failed)
				comments = append(comments, "a rule is a map of arguments, not "+value.Repr(rule))
				continue
			}
			one := ruleArgsOf(d)
			if v := one.Kwargs.At("save"); value.Truth(v) {
				save = v
				one.Kwargs.Delete("save")
			}
			verdict, comment, changed := one.apply(ctx, e, test, plan)
			worse(verdict)
			comments = append(comments, comment)
			if changed {
				set.Append(one.Name)
			}
		}
		if set.Len() > 0 {
			r.Changes = value.DictOf("locale", set)
		}
		if value.Truth(save) && !test {
			file := ""
			if save != true {
				file = value.Str(save)
			}
			if _, err := a.saveTo(ctx, e, file); err != nil {
				worse(state.Failed)
				comments = append(comments, err.Error())
			}
		}
		r.Comment = strings.Join(comments, "\n")
		return r
	}}
}

// ruleArgsOf returns the arguments of a state from its chunk.
func ruleArgsOf(chunk *value.Dict) ruleArgs {
	a := ruleArgs{Table: "filter", Family: "ipv4", Kwargs: fn.Kwargs{Dict: value.NewDict(chunk.Len())}}
	for k, v := range chunk.All() {
		switch {
		case k == "name":
			a.Name = value.Str(v)
		case k == "table":
			a.Table = value.Str(v)
		case k == "family":
			a.Family = value.Str(v)
		case k == "rules", k == state.Aggregated, state.Internal(k):
		default:
			a.Kwargs.Set(k, v)
		}
	}
	return a
}

// apply executes or predicts the state of one rule.
func (a ruleArgs) apply(ctx context.Context, e *state.Env, test bool, plan func(context.Context, *state.Env, ruleArgs) (state.Plan, error)) (
	v state.Verdict, comment string, changed bool) {
	p, err := plan(ctx, e, a)
	switch {
	case err != nil:
		return state.Failed, err.Error(), false
	case len(p.Steps) == 0:
		return state.Succeeded, p.Comment, false
	case test:
		return state.Undecided, p.Steps[0].Change.Comment, false
	}
	c, err := p.Steps[0].Do(ctx)
	if err != nil {
		return state.Failed, err.Error(), false
	}
	return state.Succeeded, c.Comment, true
}

func ruleAppended(ctx context.Context, e *state.Env, a ruleArgs) (state.Plan, error) {
	if a.Kwargs.Has("rules") {
		return a.several(e, ruleAppended), nil
	}
	r, err := a.look(ctx, e, "A")
	if err != nil {
		return state.Plan{}, err
	}
	return r.present(ctx, "iptables rule for "+a.Name+" already set ("+r.command+") for "+a.Family,
		"iptables rule for "+a.Name+" needs to be set ("+r.command+") for "+a.Family,
		"Failed to set iptables rule for "+a.Name+".\nAttempted rule was "+r.command+" for "+a.Family,
		func(ctx context.Context) (bool, error) {
			done, err := filter().Append(ctx, e.Call, iptables.RuleArgs{Table: a.Table, Chain: r.chain, Rule: r.rule, Family: a.Family})
			return value.Truth(done), err
		})
}

func ruleInserted(ctx context.Context, e *state.Env, a ruleArgs) (state.Plan, error) {
	if a.Kwargs.Has("rules") {
		return a.several(e, ruleInserted), nil
	}
	r, err := a.look(ctx, e, "I")
	if err == nil && !r.there {
		err = a.need("position")
	}
	if err != nil {
		return state.Plan{}, err
	}
	return r.present(ctx, "iptables rule for "+a.Name+" already set for "+a.Family+" ("+r.command+")",
		"iptables rule for "+a.Name+" needs to be set for "+a.Family+" ("+r.command+")",
		"Failed to set iptables rule for "+a.Name+".\nAttempted rule was "+r.command,
		func(ctx context.Context) (bool, error) {
			wrong, err := filter().Insert(ctx, e.Call, iptables.InsertArgs{Table: a.Table, Chain: r.chain, Position: a.Kwargs.At("position"), Rule: r.rule,
				Family: a.Family})
			return !value.Truth(wrong), err
		})
}

func ruleDeleted(ctx context.Context, e *state.Env, a ruleArgs) (state.Plan, error) {
	r, err := a.look(ctx, e, "D")
	if err != nil {
		return state.Plan{}, err
	}
	position, byPosition := a.Kwargs.Get("position")
	if !r.there && !byPosition {
		return state.Plan{Comment: "iptables rule for " + a.Name + " already absent for " + a.Family + " (" + r.command + ")"}, nil
	}
	return one("iptables rule for "+a.Name+" needs to be deleted for "+a.Family+" ("+r.command+")", func(ctx context.Context) (state.Change, error) {
		due := iptables.DeleteArgs{Table: a.Table, Chain: r.chain, Rule: r.rule, Family: a.Family}
		if byPosition {
			due.Rule, due.Position = "", position
		}
		wrong, err := filter().Delete(ctx, e.Call, due)
		if err == nil && wrong != "" {
			err = state.Errorf("Failed to delete iptables rule for %s.\nAttempted rule was %s", a.Name, r.command)
		}
		if err != nil {
			return state.Change{}, err
		}
		file, save := a.file()
		if !save {
			return changed(a.Name, "Delete iptables rule for "+a.Name+" "+r.command), nil
		}
		said, err := a.saveTo(ctx, e, file)
		return changed(a.Name, "Deleted and saved iptables rule "+a.Name+" for "+a.Family+"\n"+r.command+"\n"+said), err
	}), nil
}

func policySet(ctx context.Context, e *state.Env, a ruleArgs) (state.Plan, error) {
	if err := a.need("chain", "policy"); err != nil {
		return state.Plan{}, err
	}
	chain, policy := value.Str(a.Kwargs.At("chain")), value.Str(a.Kwargs.At("policy"))
	now, err := filter().Policy(ctx, e.Call, iptables.ChainArgs{Table: a.Table, Chain: chain, Family: a.Family})
	if err != nil {
		return state.Plan{}, err
	}
	about := "iptables default policy for chain " + chain + " on table " + a.Table + " for " + a.Family
	if now == policy {
		return state.Plan{Comment: about + " already set to " + policy}, nil
	}
	return one(about+" needs to be set to "+policy, func(ctx context.Context) (state.Change, error) {
		wrong, err := filter().SetPolicy(ctx, e.Call, iptables.PolicyArgs{Table: a.Table, Chain: chain, Policy: policy, Family: a.Family})
		if err == nil && wrong != "" {
			err = state.Errorf("Failed to set iptables default policy")
		}
		if err != nil {
			return state.Change{}, err
		}
		text := "Set default policy for "
		if file, save := a.file(); save {
			text = "Set and saved default policy for "
			_, err = a.saveTo(ctx, e, file)
		}
		return changed(a.Name, text+chain+" to "+policy+" family "+a.Family), err
	}), nil
}

func flushed(ctx context.Context, e *state.Env, a ruleArgs) (state.Plan, error) {
	chain := ""
	if v, ok := a.Kwargs.Get("chain"); ok {
		chain = value.Str(v)
	}
	return one("iptables rules in "+a.Name+" table "+a.Table+" chain "+a.Family+" family needs to be flushed",
		func(ctx context.Context) (state.Change, error) {
			wrong, err := filter().Flush(ctx, e.Call, iptables.FlushArgs{Table: a.Table, Chain: chain, Family: a.Family})
			if err == nil && wrong != "" {
				err = state.Errorf("Failed to flush iptables rules")
			}
			if err != nil {
				return state.Change{}, err
			}
			return changed(a.Name, "Flush iptables rules in "+a.Table+" table "+chain+" chain "+a.Family+" family"), nil
		}), nil
}
