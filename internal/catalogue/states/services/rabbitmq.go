package services

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/rabbitmq"
	"brine/internal/host"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("rabbitmq_user", rabbitmqUserModule)
	units.Declare("rabbitmq_vhost", rabbitmqVhostModule)
	units.Declare("rabbitmq_plugin", rabbitmqPluginModule)
	units.Declare("rabbitmq_policy", rabbitmqPolicyModule)
}

func rabbitmqUserModule() state.Module {
	return state.Module{Name: "rabbitmq_user", When: withRabbitmq, Doc: `Keep the users of RabbitMQ.`, Funcs: []state.Func{
		state.Of("present", rabbitUserPresent, `Have a user with a password, tags and rights.`),
		state.Of("absent", rabbitUserAbsent, `Have no such user.`),
	}}
}

func rabbitmqVhostModule() state.Module {
	return state.Module{Name: "rabbitmq_vhost", When: withRabbitmq, Doc: `Keep the virtual hosts of RabbitMQ.`, Funcs: []state.Func{
		state.Of("present", rabbitVhost(true), `Have a virtual host.`),
		state.Of("absent", rabbitVhost(false), `Have no such virtual host.`),
	}}
}

func rabbitmqPluginModule() state.Module {
	return state.Module{Name: "rabbitmq_plugin", When: withRabbitmq, Doc: `Keep plugins of RabbitMQ enabled, or not.`, Funcs: []state.Func{
		state.Of("enabled", rabbitPlugin(true), `Have a plugin enabled.`),
		state.Of("disabled", rabbitPlugin(false), `Have a plugin disabled.`),
	}}
}

func rabbitmqPolicyModule() state.Module {
	return state.Module{Name: "rabbitmq_policy", When: withRabbitmq, Doc: `Keep the policies of RabbitMQ.`, Funcs: []state.Func{
		state.Of("present", rabbitPolicyPresent, `Have a policy.`),
		state.Of("absent", rabbitPolicyAbsent, `Have no such policy.`),
	}}
}

func withRabbitmq(fn.Reader) (string, bool) {
	return "Command not found: rabbitmqctl", (&host.Machine{}).Which("rabbitmqctl") != ""
}

var broker = rabbitmq.Broker{M: &host.Machine{}}

// answer formats errors as comments of these states.
func answer[T any](v T, err error) (T, error) {
	if err != nil {
		err = state.Errorf("Error: %w", err)
	}
	return v, err
}

type rabbitUserArgs struct {
	Name     string `salt:"name" doc:"user"`
	Password any    `salt:"password" doc:"password; null to leave it alone, and for a new user to have none" default:"null"`
	Force    any    `salt:"force" doc:"set the password each time, or remove it if none is given" default:"false"`
	Tags     any    `salt:"tags" doc:"tags, as a list or a text with blanks between them; null to leave them alone" default:"null"`
	Perms    any    `salt:"perms" doc:"list of maps from virtual hosts to lists of what may be configured, written and read" default:"[]"`
	RunAs    any    `salt:"runas" doc:"user to run rabbitmqctl as" default:"null"`
}

// rabbitRights are the permissions in one virtual host.
type rabbitRights struct {
	vhost string
	perms []any
}

func (r rabbitRights) args(a rabbitUserArgs) rabbitmq.RightsArgs {
	return rabbitmq.RightsArgs{Vhost: r.vhost, User: a.Name, Conf: value.Str(r.perms[0]), Write: value.Str(r.perms[1]), Read: value.Str(r.perms[2]),
		RunAs: a.RunAs}
}

func (r rabbitRights) dict() *value.Dict {
	return value.DictOf("configure", r.perms[0], "write", r.perms[1], "read", r.perms[2])
}

func (a rabbitUserArgs) rights() (all []rabbitRights, err error) {
	l, ok := a.Perms.(*value.List)
	if !ok {
		if value.Truth(a.Perms) {
			return nil, fn.Errorf("perms is a list of maps, each from a virtual host to a list of three expressions, not %s", value.Repr(a.Perms))
		}
		return nil, nil
	}
	for _, it := range l.Items {
		d, _ := it.(*value.Dict)
		if d == nil {
			return nil, fn.Errorf("perms has %s where a map from a virtual host to a list of three expressions belongs", value.Repr(it))
		}
		for k, v := range d.All() {
			three, _ := v.(*value.List)
			if three.Len() < 3 {
				return nil, fn.Errorf("perms of the virtual host %s are three expressions, for what may be configured, written and read, not %s",
					value.Str(k), value.Repr(v))
			}
			all = append(all, rabbitRights{value.Str(k), three.Items})
		}
	}
	return all, nil
}

// password returns the declared password as the program expects it.
func (a rabbitUserArgs) password() string {
	if a.Password == nil {
		return ""
	}
	return value.Str(a.Password)
}

func rabbitUserPresent(ctx context.Context, e *state.Env, a rabbitUserArgs) (state.Plan, error) {
	rights, err := a.rights()
	if err != nil {
		return state.Plan{}, err
	}
	there, err := answer(broker.UserExists(ctx, e.Call, rabbitmq.Args{Name: a.Name, RunAs: a.RunAs}))
	if err != nil {
		return state.Plan{}, err
	}
	if !there {
		diff := value.DictOf("user", value.DictOf("old", "", "new", a.Name))
		return state.Plan{Steps: []state.Step{{
			Change: state.Change{Diff: diff, Comment: "User '" + a.Name + "' is set to be created."},
			Do: func(ctx context.Context) (state.Change, error) {
				if _, err := answer(broker.AddUser(ctx, e.Call, rabbitmq.Args{Name: a.Name, Password: a.password(), RunAs: a.RunAs})); err != nil {
					return state.Change{Diff: diff}, err
				}
				return a.configure(ctx, e, rights, diff.Clone(), false)
			},
		}}}, nil
	}
	wrong := false
	if a.Password != nil {
		right, err := answer(broker.CheckPassword(ctx, e.Call, rabbitmq.Args{Name: a.Name, Password: a.password(), RunAs: a.RunAs}))
		if err != nil {
			return state.Plan{}, err
		}
		wrong = !right
	}
	if !wrong && !value.Truth(a.Force) && len(rights) == 0 && !value.Truth(a.Tags) {
		return state.Plan{Comment: "User '" + a.Name + "' is already present."}, nil
	}
	before := value.NewDict(3)
	switch {
	case !wrong && !value.Truth(a.Force):
	case a.Password != nil:
		before.Set("password", value.DictOf("old", "", "new", "Set password."))
	default:
		before.Set("password", value.DictOf("old", "Removed password.", "new", ""))
	}
	would, err := a.configure(ctx, e, rights, before.Clone(), true)
	if err != nil {
		return state.Plan{}, err
	}
	if would.Diff.Len() == 0 {
		return state.Plan{Comment: "'" + a.Name + "' is already in the desired state."}, nil
	}
	would.Comment = "Configuration for '" + a.Name + "' will change."
	return state.Plan{Steps: []state.Step{{Change: would, Do: func(ctx context.Context) (state.Change, error) {
		if before.Len() > 0 {
			set := broker.ClearPassword
			if a.Password != nil {
				set = broker.ChangePassword
			}
			if _, err := answer(set(ctx, e.Call, rabbitmq.Args{Name: a.Name, Password: a.password(), RunAs: a.RunAs})); err != nil {
				return state.Change{}, err
			}
		}
		return a.configure(ctx, e, rights, before.Clone(), false)
	}}}}, nil
}

// configure adds the changes of tags and permissions to diff, and makes them
// unless this is a test.
func (a rabbitUserArgs) configure(ctx context.Context, e *state.Env, rights []rabbitRights, diff *value.Dict, test bool) (state.Change, error) {
	c := state.Change{Diff: diff, Comment: "'" + a.Name + "' was configured."}
	if a.Tags != nil {
		if err := a.tag(ctx, e, diff, test); err != nil {
			return c, err
		}
	}
	now, err := answer(broker.ListUserPermissions(ctx, e.Call, rabbitmq.Args{Name: a.Name, RunAs: a.RunAs}))
	if err != nil {
		return c, err
	}
	same := func(r rabbitRights) bool { return now.Has(r.vhost) && value.Equal(now.At(r.vhost), r.dict()) }
	if !slices.ContainsFunc(rights, func(r rabbitRights) bool { return !same(r) }) {
		return c, nil
	}
	for _, r := range rights {
		if !test {
			if _, err := answer(broker.SetPermissions(ctx, e.Call, r.args(a))); err != nil {
				return c, err
			}
		}
		fresh := value.DictOf(r.vhost, r.dict())
		switch {
		case !now.Has(r.vhost):
			diff.Set("perms", value.DictOf("new", fresh))
		case !same(r):
			if !diff.Dict("perms").Has("old") {
				diff.Set("perms", value.DictOf("old", value.NewDict(3), "new", value.NewDict(1)))
			}
			diff.Dict("perms").Dict("old").Update(now.Dict(r.vhost))
			diff.Dict("perms").Dict("new").Update(fresh)
		}
	}
	return c, nil
}

func (a rabbitUserArgs) tag(ctx context.Context, e *state.Env, diff *value.Dict, test bool) error {
	users, err := broker.ListUsers(ctx, e.Call, rabbitmq.Args{RunAs: a.RunAs})
	now := value.ListOf()
	if l, ok := users.At(a.Name).(*value.List); err == nil && ok {
		now = l
	}
	tags := a.Tags
	if text, ok := tags.(string); ok {
		tags = value.Strings(strings.Fields(text))
	}
	sorted := func(v any) []string { // without tags, the broker reports one empty tag
		s := slices.DeleteFunc(value.Texts(v), func(t string) bool { return t == "" })
		slices.Sort(s)
		return slices.Compact(s)
	}
	if slices.Equal(sorted(now), sorted(tags)) {
		return nil
	}
	if !test {
		if _, err := answer(broker.SetTags(ctx, e.Call, rabbitmq.TagsArgs{Name: a.Name, Tags: tags, RunAs: a.RunAs})); err != nil {
			return err
		}
	}
	diff.Set("tags", value.DictOf("old", now, "new", tags))
	return nil
}

type rabbitNameArgs struct {
	Name  string `salt:"name" doc:"name"`
	RunAs any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

// rabbitCall makes a change and returns the broker's output under a title.
type rabbitCall func(context.Context, *fn.Call, rabbitmq.Args) (*value.Dict, error)

// rabbitStep returns a plan with one call.
func rabbitStep(e *state.Env, diff *value.Dict, would string, did func(said *value.Dict) string, do rabbitCall, args rabbitmq.Args) state.Plan {
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: diff, Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		v, err := answer(do(ctx, e.Call, args))
		if err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: diff, Comment: did(v)}, nil
	}}}}
}

func just(text string) func(*value.Dict) string { return func(*value.Dict) string { return text } }

func rabbitUserAbsent(ctx context.Context, e *state.Env, a rabbitNameArgs) (state.Plan, error) {
	there, err := answer(broker.UserExists(ctx, e.Call, rabbitmq.Args{Name: a.Name, RunAs: a.RunAs}))
	if err != nil {
		return state.Plan{}, err
	}
	if !there {
		return state.Plan{Comment: "The user '" + a.Name + "' is not present."}, nil
	}
	return rabbitStep(e, value.DictOf("name", value.DictOf("old", a.Name, "new", "")), "The user '"+a.Name+"' will be removed.",
		just("The user '"+a.Name+"' was removed."), broker.DeleteUser, rabbitmq.Args{Name: a.Name, RunAs: a.RunAs}), nil
}

type rabbitVhostArgs struct {
	Name string `salt:"name" doc:"virtual host"`
}

// fieldOf returns a function that returns one string of a result.
func fieldOf(name string) func(*value.Dict) string {
	return func(d *value.Dict) string { return d.Str(name) }
}

func rabbitVhost(want bool) func(context.Context, *state.Env, rabbitVhostArgs) (state.Plan, error) {
	return func(ctx context.Context, e *state.Env, a rabbitVhostArgs) (state.Plan, error) {
		there, err := answer(broker.VhostExists(ctx, e.Call, rabbitmq.Args{Name: a.Name}))
		about := "Virtual Host '" + a.Name + "' "
		switch {
		case err != nil:
			return state.Plan{}, err
		case want && there:
			return state.Plan{Comment: about + "already exists."}, nil
		case want:
			return rabbitStep(e, value.DictOf("old", "", "new", a.Name), about+"will be created.", fieldOf("Added"), broker.AddVhost,
				rabbitmq.Args{Vhost: a.Name}), nil
		case !there:
			return state.Plan{Comment: about + "is not present."}, nil
		}
		return rabbitStep(e, value.DictOf("new", "", "old", a.Name), about+"will be removed.", fieldOf("Deleted"), broker.DeleteVhost,
			rabbitmq.Args{Vhost: a.Name}), nil
	}
}

func rabbitPlugin(want bool) func(context.Context, *state.Env, rabbitNameArgs) (state.Plan, error) {
	word, verb, diff := "disabled", broker.DisablePlugin, func(name string) *value.Dict { return value.DictOf("old", name, "new", "") }
	if want {
		word, verb, diff = "enabled", broker.EnablePlugin, func(name string) *value.Dict { return value.DictOf("old", "", "new", name) }
	}
	return func(ctx context.Context, e *state.Env, a rabbitNameArgs) (state.Plan, error) {
		is, err := answer(broker.PluginIsEnabled(ctx, e.Call, rabbitmq.Args{Name: a.Name, RunAs: a.RunAs}))
		about := "Plugin '" + a.Name + "' "
		switch {
		case err != nil:
			return state.Plan{}, err
		case is == want:
			return state.Plan{Comment: about + "is already " + word + "."}, nil
		}
		return rabbitStep(e, diff(a.Name), about+"is set to be "+word+".", just(about+"was "+word+"."), verb, rabbitmq.Args{Name: a.Name, RunAs: a.RunAs}),
			nil
	}
}

type rabbitPolicyArgs struct {
	Name       string `salt:"name" doc:"policy"`
	Pattern    string `salt:"pattern" doc:"expression for the names of queues"`
	Definition any    `salt:"definition" doc:"map, or JSON of it"`
	Priority   int64  `salt:"priority" doc:"which of several policies counts" default:"0"`
	Vhost      string `salt:"vhost" doc:"virtual host" default:"/"`
	RunAs      any    `salt:"runas" doc:"user to run rabbitmqctl as" default:"null"`
	ApplyTo    any    `salt:"apply_to" doc:"queues, exchanges or all" default:"null"`
}

func rabbitPolicyPresent(ctx context.Context, e *state.Env, a rabbitPolicyArgs) (state.Plan, error) {
	policies, err := broker.ListPolicies(ctx, e.Call, rabbitmq.Args{Vhost: a.Vhost, RunAs: a.RunAs})
	if err != nil {
		return state.Plan{}, err
	}
	now := policies.Dict(a.Vhost).Dict(a.Name)
	about := "Policy " + a.Vhost + " " + a.Name + " "
	diff, would := value.DictOf("old", value.NewDict(0), "new", a.Name), about+"is set to be created"
	if now != nil {
		updates, err := a.updates(now)
		switch {
		case err != nil:
			return state.Plan{}, err
		case len(updates) == 0:
			return state.Plan{Comment: about + "is already present"}, nil
		}
		diff, would = value.DictOf("old", now, "new", value.Strings(updates)), about+"is set to be updated"
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: diff, Comment: would}, Do: func(ctx context.Context) (state.Change, error) {
		v, err := broker.SetPolicy(ctx, e.Call, rabbitmq.PolicyArgs{Vhost: a.Vhost, Name: a.Name, Pattern: a.Pattern, Definition: a.Definition,
			Priority: a.Priority, RunAs: a.RunAs, ApplyTo: a.ApplyTo})
		if err != nil {
			return state.Change{}, err
		}
		return state.Change{Diff: diff, Comment: fieldOf("Set")(v)}, nil
	}}}}, nil
}

// updates names the parts of a policy that must change.
func (a rabbitPolicyArgs) updates(now *value.Dict) (updates []string, err error) {
	read := func(v any) any {
		text, ok := v.(string)
		if !ok || text == "" {
			return v
		}
		v, bad := json.Load(text)
		if bad != nil && err == nil {
			err = fn.Errorf("the definition %s is not JSON: %w", text, bad)
		}
		return v
	}
	if now.Str("pattern") != a.Pattern {
		updates = append(updates, "Pattern")
	}
	if !value.Equal(read(now.At("definition")), read(a.Definition)) {
		updates = append(updates, "Definition")
	}
	if value.Truth(a.ApplyTo) && now.Str("apply_to") != value.Str(a.ApplyTo) {
		updates = append(updates, "Applyto")
	}
	if now.Str("priority") != value.Str(a.Priority) {
		updates = append(updates, "Priority")
	}
	return updates, err
}

type rabbitPolicyAbsentArgs struct {
	Name  string `salt:"name" doc:"policy"`
	Vhost string `salt:"vhost" doc:"virtual host" default:"/"`
	RunAs any    `salt:"runas" doc:"user to run rabbitmqctl as" default:"null"`
}

func rabbitPolicyAbsent(ctx context.Context, e *state.Env, a rabbitPolicyAbsentArgs) (state.Plan, error) {
	there, err := answer(broker.PolicyExists(ctx, e.Call, rabbitmq.Args{Vhost: a.Vhost, Name: a.Name, RunAs: a.RunAs}))
	about := "Policy '" + a.Vhost + " " + a.Name + "' "
	switch {
	case err != nil:
		return state.Plan{}, err
	case !there:
		return state.Plan{Comment: about + "is not present."}, nil
	}
	return rabbitStep(e, value.DictOf("new", "", "old", a.Name), about+"will be removed.", just("Deleted"), broker.DeletePolicy,
		rabbitmq.Args{Vhost: a.Vhost, Name: a.Name, RunAs: a.RunAs}), nil
}
