// Package rabbitmq implements the execution module and the states rabbitmq: it
// controls the broker of this machine and returns results in Salt's format.
package rabbitmq

import (
	"context"
	"crypto/rand"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// Broker runs rabbitmqctl and rabbitmq-plugins, which control the broker of this
// machine.
type Broker struct{ M *host.Machine }

// Args are the arguments of AddUser, CheckPassword, DeleteUpstream and others.
type Args struct {
	Vhost    string `salt:"vhost" doc:"virtual host"`
	Name     string `salt:"name" doc:"name"`
	Password string `salt:"password" doc:"password"`
	RunAs    any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

// call runs a program of the broker through the cmd module.
func (r Broker) call(ctx context.Context, c *fn.Call, runas any, program string, words ...string) (*value.Dict, error) {
	path := r.M.Which(program)
	if path == "" && program == "rabbitmq-plugins" { // its path if it is not in PATH
		v, err := c.Funcs.Call(ctx, c, "pkg.version", []any{"rabbitmq-server"}, nil)
		if err != nil {
			return nil, err
		}
		version, _, _ := strings.Cut(value.Str(v), "-")
		path = "/usr/lib/rabbitmq/lib/rabbitmq_server-" + version + "/sbin/rabbitmq-plugins"
	}
	if path == "" {
		return nil, &fn.ProgramError{Program: program}
	}
	kw := value.DictOf("python_shell", false, "reset_system_locale", false, "output_loglevel", "quiet")
	if value.Truth(runas) {
		kw.Set("runas", runas)
	}
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(append([]string{path}, words...))}, kw)
	d, _ := v.(*value.Dict)
	return d, err
}

// ask runs a program and returns its output. Error output is an error.
func (r Broker) ask(ctx context.Context, c *fn.Call, runas any, program string, words ...string) (string, error) {
	d, err := r.call(ctx, c, runas, program, words...)
	if err == nil && (d.Int("retcode") != 0 || d.Str("stderr") != "") {
		err = fn.Errorf("RabbitMQ command failed: %s", d.Str("stderr"))
	}
	return d.Str("stdout"), err
}

const rabbitmqctl = "rabbitmqctl"

// do returns a function that runs rabbitmqctl, with NAME, PASSWORD and VHOST in words
// replaced by arguments. The result has the output under a title.
func (r Broker) do(title, words string) func(context.Context, *fn.Call, Args) (*value.Dict, error) {
	return func(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
		line := strings.Fields(words)
		for i, w := range line {
			given := ""
			switch w {
			case "NAME":
				given = a.Name
			case "PASSWORD":
				given = a.Password
			case "VHOST":
				given = a.Vhost
			default:
				continue
			}
			if err := checked(given); err != nil {
				return nil, err
			}
			line[i] = given
		}
		return r.titled(ctx, c, title, a.RunAs, rabbitmqctl, line...)
	}
}

// checked rejects names and passwords that the program would take for options.
func checked(words ...string) error { return fn.FromHost(host.NoOption(rabbitmqctl, words...)) }

func (r Broker) titled(ctx context.Context, c *fn.Call, title string, runas any, program string, words ...string) (*value.Dict, error) {
	said, err := r.ask(ctx, c, runas, program, words...)
	if err != nil {
		return nil, err
	}
	return value.DictOf(title, said), nil
}

// Say returns a function that implements rabbitmq.status or another function without
// arguments.
func (r Broker) Say(verb string) func(context.Context, *fn.Call, Args) (string, error) {
	return func(ctx context.Context, c *fn.Call, a Args) (string, error) {
		return r.ask(ctx, c, a.RunAs, rabbitmqctl, verb)
	}
}

// rabbitRows returns the rows of a table. header is the header line that newer
// versions print; it is skipped.
func rabbitRows(text, header string) (rows []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case line == "", strings.Contains(line, "...done"), strings.HasPrefix(line, "WARNING:"):
		case strings.HasPrefix(line, "Listing") && (strings.HasSuffix(line, "...") || !strings.Contains(line, "\t")):
		case len(rows) == 0 && line == header:
			header = ""
		default:
			rows = append(rows, line)
		}
	}
	return rows
}

// ListUsers implements rabbitmq.list_users.
func (r Broker) ListUsers(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	said, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "list_users", "-q")
	if err != nil {
		return nil, err
	}
	users := value.NewDict(4)
	for _, row := range rabbitRows(said, "user\ttags") {
		name, tags, ok := strings.Cut(row, "\t")
		if !ok {
			users.Set(name, "")
			continue
		}
		tags = strings.TrimSuffix(strings.TrimPrefix(tags, "["), "]")
		list, sep := &value.List{}, " "
		if strings.Contains(tags, ",") {
			sep = ","
		}
		for t := range strings.SplitSeq(tags, sep) {
			list.Append(strings.TrimSpace(t))
		}
		users.Set(name, list)
	}
	return users, nil
}

// ListVhosts implements rabbitmq.list_vhosts.
func (r Broker) ListVhosts(ctx context.Context, c *fn.Call, a Args) (*value.List, error) {
	said, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "list_vhosts", "-q")
	names := &value.List{}
	for _, row := range rabbitRows(said, "name") {
		for _, word := range strings.Fields(row) {
			names.Append(word)
		}
	}
	return names, err
}

// ListUpstreams implements rabbitmq.list_upstreams.
func (r Broker) ListUpstreams(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	d, err := r.call(ctx, c, a.RunAs, rabbitmqctl, "list_parameters", "-q")
	all := value.NewDict(2)
	for _, row := range rabbitRows(d.Str("stdout"), "component\tname\tvalue") {
		if f := strings.SplitN(row, "\t", 3); len(f) == 3 {
			all.Set(f[1], f[2])
		}
	}
	return all, err
}

// UserExists implements rabbitmq.user_exists.
func (r Broker) UserExists(ctx context.Context, c *fn.Call, a Args) (bool, error) {
	d, err := r.ListUsers(ctx, c, a)
	return d.Has(a.Name), err
}

// VhostExists implements rabbitmq.vhost_exists.
func (r Broker) VhostExists(ctx context.Context, c *fn.Call, a Args) (bool, error) {
	l, err := r.ListVhosts(ctx, c, a)
	return slices.Contains(value.Texts(l), a.Name), err
}

// UpstreamExists implements rabbitmq.upstream_exists.
func (r Broker) UpstreamExists(ctx context.Context, c *fn.Call, a Args) (bool, error) {
	d, err := r.ListUpstreams(ctx, c, a)
	return d.Has(a.Name), err
}

// AddUser implements rabbitmq.add_user.
func (r Broker) AddUser(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	clear := a.Password == ""
	if clear {
		a.Password = rand.Text() // the program requires a password
	}
	if err := checked(a.Name, a.Password); err != nil {
		return nil, err
	}
	said, err := r.titled(ctx, c, "Added", a.RunAs, rabbitmqctl, "add_user", a.Name, a.Password)
	if err != nil || !clear {
		return said, err
	}
	if _, err := r.do("", "clear_password NAME")(ctx, c, a); err != nil {
		if _, gone := r.do("", "delete_user NAME")(ctx, c, a); gone != nil {
			return nil, fn.Errorf("%w; and it cannot be deleted again: %w", err, gone)
		}
		return nil, err
	}
	return said, nil
}

var rabbitVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:RabbitMQ version:\s*|\{rabbit,"RabbitMQ",")([0-9]+)\.([0-9]+)\.([0-9]+)`)
})

// CheckPassword implements rabbitmq.check_password.
func (r Broker) CheckPassword(ctx context.Context, c *fn.Call, a Args) (bool, error) {
	status, err := r.call(ctx, c, a.RunAs, rabbitmqctl, "status")
	if err != nil {
		return false, err
	}
	var version []int
	if m := rabbitVersion().FindStringSubmatch(status.Str("stdout")); m != nil {
		for _, part := range m[1:] {
			n, _ := strconv.Atoi(part)
			version = append(version, n)
		}
	}
	if slices.Compare(version, []int{3, 5, 7}) >= 0 {
		if err := checked(a.Name, a.Password); err != nil {
			return false, err
		}
		d, err := r.call(ctx, c, a.RunAs, rabbitmqctl, "authenticate_user", a.Name, a.Password)
		return d.Int("retcode") == 0 && d.Str("stderr") == "", err
	}
	quoted := func(s string) string { return `<<"` + strings.ReplaceAll(s, `"`, `\"`) + `">>` }
	said, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "eval", "rabbit_auth_backend_internal:check_user_login("+quoted(a.Name)+", [{password, "+
		quoted(a.Password)+"}]).")
	return err == nil && !strings.Contains(said, "invalid credentials"), err
}

// RightsArgs are the arguments of SetPermissions.
type RightsArgs struct {
	Vhost string `salt:"vhost" doc:"virtual host"`
	User  string `salt:"user" doc:"user"`
	Conf  string `salt:"conf" doc:"expression for what may be configured" default:".*"`
	Write string `salt:"write" doc:"expression for what may be written to" default:".*"`
	Read  string `salt:"read" doc:"expression for what may be read" default:".*"`
	RunAs any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

// SetPermissions implements rabbitmq.set_permissions.
func (r Broker) SetPermissions(ctx context.Context, c *fn.Call, a RightsArgs) (*value.Dict, error) {
	if err := checked(a.Vhost, a.User, a.Conf, a.Write, a.Read); err != nil {
		return nil, err
	}
	return r.titled(ctx, c, "Permissions Set", a.RunAs, rabbitmqctl, "set_permissions", "-p", a.Vhost, a.User, a.Conf, a.Write, a.Read)
}

// permissions reads a list of permissions, indexed by one of their fields.
func (r Broker) permissions(ctx context.Context, c *fn.Call, runas any, by string, words ...string) (*value.Dict, error) {
	d, err := r.call(ctx, c, runas, rabbitmqctl, words...)
	if err != nil {
		return nil, err
	}
	v, err := json.Load(d.Str("stdout"))
	if err != nil {
		return nil, fn.Errorf("RabbitMQ command failed: %s%s", d.Str("stderr"), d.Str("stdout"))
	}
	all := value.NewDict(2)
	l, _ := v.(*value.List)
	if l == nil {
		return all, nil
	}
	for _, it := range l.Items {
		if p, ok := it.(*value.Dict); ok {
			key := p.At(by)
			p.Delete(by)
			all.Set(key, p)
		}
	}
	return all, nil
}

// ListPermissions implements rabbitmq.list_permissions.
func (r Broker) ListPermissions(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.permissions(ctx, c, a.RunAs, "user", "list_permissions", "--formatter=json", "-p", a.Vhost)
}

// ListUserPermissions implements rabbitmq.list_user_permissions.
func (r Broker) ListUserPermissions(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	if err := checked(a.Name); err != nil {
		return nil, err
	}
	return r.permissions(ctx, c, a.RunAs, "vhost", "list_user_permissions", a.Name, "--formatter=json")
}

// TagsArgs are the arguments of SetTags.
type TagsArgs struct {
	Name  string `salt:"name" doc:"user"`
	Tags  any    `salt:"tags" doc:"tag, or a list of them"`
	RunAs any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

// SetTags implements rabbitmq.set_user_tags.
func (r Broker) SetTags(ctx context.Context, c *fn.Call, a TagsArgs) (*value.Dict, error) {
	if err := checked(append(value.Texts(a.Tags), a.Name)...); err != nil {
		return nil, err
	}
	return r.titled(ctx, c, "Tag(s) set", a.RunAs, rabbitmqctl, append([]string{"set_user_tags", a.Name}, value.Texts(a.Tags)...)...)
}

// JoinArgs are the arguments of JoinCluster.
type JoinArgs struct {
	Host    string `salt:"host" doc:"host of a broker in the cluster"`
	User    string `salt:"user" doc:"first part of the name of its node" default:"rabbit"`
	RAMNode any    `salt:"ram_node" doc:"keep nothing on disk" default:"null"`
	RunAs   any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

// JoinCluster implements rabbitmq.join_cluster.
func (r Broker) JoinCluster(ctx context.Context, c *fn.Call, a JoinArgs) (*value.Dict, error) {
	words := []string{"join_cluster"}
	if value.Truth(a.RAMNode) {
		words = append(words, "--ram")
	}
	if _, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "stop_app"); err != nil {
		return nil, err
	}
	d, failed := r.titled(ctx, c, "Join", a.RunAs, rabbitmqctl, append(words, a.User+"@"+a.Host)...)
	if _, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "start_app"); err != nil {
		return nil, err
	}
	return d, failed
}

// QueuesArgs are the arguments of ListQueues.
type QueuesArgs struct {
	RunAs any     `salt:"runas" doc:"user to run the program as" default:"null"`
	Facts fn.Args `salt:"args"`
}

// ListQueues implements rabbitmq.list_queues.
func (r Broker) ListQueues(ctx context.Context, c *fn.Call, a QueuesArgs) (*value.Dict, error) {
	return r.queues(ctx, c, a.RunAs, a.Facts)
}

// QueuesVhostArgs are the arguments of ListQueuesVhost.
type QueuesVhostArgs struct {
	Vhost string  `salt:"vhost" doc:"virtual host"`
	RunAs any     `salt:"runas" doc:"user to run the program as" default:"null"`
	Facts fn.Args `salt:"args"`
}

// ListQueuesVhost implements rabbitmq.list_queues_vhost.
func (r Broker) ListQueuesVhost(ctx context.Context, c *fn.Call, a QueuesVhostArgs) (*value.Dict, error) {
	return r.queues(ctx, c, a.RunAs, a.Facts, "-p", a.Vhost)
}

func (r Broker) queues(ctx context.Context, c *fn.Call, runas any, facts fn.Args, words ...string) (*value.Dict, error) {
	words = append([]string{"list_queues", "-q"}, words...)
	header := "name\tmessages"
	if len(facts) > 0 {
		header = strings.Join(value.Texts(&value.List{Items: facts}), "\t")
	}
	for _, f := range facts {
		if err := checked(value.Str(f)); err != nil {
			return nil, err
		}
		words = append(words, value.Str(f))
	}
	said, err := r.ask(ctx, c, runas, rabbitmqctl, words...)
	all := value.NewDict(4)
	for _, row := range rabbitRows(said, header) {
		if name, rest, ok := strings.Cut(row, "\t"); ok {
			all.Set(name, value.Strings(strings.Split(rest, "\t")))
		} else {
			all.Set(row, "")
		}
	}
	return all, err
}

// ListPolicies reads the tables of version 3.7 and later, where the pattern comes
// before apply-to, and those of earlier versions, which may lack apply-to.
func (r Broker) ListPolicies(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	said, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "list_policies", "-q", "-p", a.Vhost)
	if err != nil {
		return nil, err
	}
	early := false
	if v, err := c.Funcs.Call(ctx, c, "pkg.version", []any{"rabbitmq-server"}, nil); err == nil {
		major, rest, _ := strings.Cut(value.Str(v), ".")
		minor, _, _ := strings.Cut(rest, ".")
		n, err1 := strconv.Atoi(major)
		k, err2 := strconv.Atoi(minor)
		early = err1 == nil && err2 == nil && slices.Compare([]int{n, k}, []int{3, 7}) < 0
	}
	all := value.NewDict(1)
	for _, row := range rabbitRows(said, "vhost\tname\tpattern\tapply-to\tdefinition\tpriority") {
		f := strings.Split(strings.TrimSpace(row), "\t")
		if len(f) != 5 && len(f) != 6 {
			continue
		}
		if !all.Has(f[0]) {
			all.Set(f[0], value.NewDict(2))
		}
		p := value.NewDict(4)
		switch {
		case !early && len(f) == 6:
			p.Update(value.DictOf("pattern", f[2], "apply_to", f[3], "definition", f[4], "priority", f[5]))
		case len(f) == 6:
			p.Set("apply_to", f[2])
			p.Update(value.DictOf("pattern", f[3], "definition", f[4], "priority", f[5]))
		default:
			p.Update(value.DictOf("pattern", f[2], "definition", f[3], "priority", f[4]))
		}
		all.Dict(f[0]).Set(f[1], p)
	}
	return all, nil
}

// PolicyArgs are the arguments of SetPolicy.
type PolicyArgs struct {
	Vhost      string `salt:"vhost" doc:"virtual host"`
	Name       string `salt:"name" doc:"name of the policy"`
	Pattern    string `salt:"pattern" doc:"expression for the names of queues"`
	Definition any    `salt:"definition" doc:"map, or JSON of it"`
	Priority   any    `salt:"priority" doc:"which of several policies counts" default:"null"`
	RunAs      any    `salt:"runas" doc:"user to run the program as" default:"null"`
	ApplyTo    any    `salt:"apply_to" doc:"queues, exchanges or all" default:"null"`
}

// SetPolicy implements rabbitmq.set_policy.
func (r Broker) SetPolicy(ctx context.Context, c *fn.Call, a PolicyArgs) (*value.Dict, error) {
	definition, ok := a.Definition.(string)
	if d, isDict := a.Definition.(*value.Dict); isDict {
		b, err := json.Dump(d, json.Format{})
		if err != nil {
			return nil, fn.Errorf("cannot write the definition as JSON: %w", err)
		}
		definition, ok = b, true
	}
	if !ok {
		return nil, fn.Invalidf("The 'definition' argument must be a dictionary or JSON string")
	}
	words := []string{"set_policy", "-p", a.Vhost}
	if value.Truth(a.Priority) {
		words = append(words, "--priority", value.Str(a.Priority))
	}
	if value.Truth(a.ApplyTo) {
		words = append(words, "--apply-to", value.Str(a.ApplyTo))
	}
	if err := checked(a.Vhost, a.Name, a.Pattern, definition); err != nil {
		return nil, err
	}
	return r.titled(ctx, c, "Set", a.RunAs, rabbitmqctl, append(words, a.Name, a.Pattern, definition)...)
}

// PolicyExists implements rabbitmq.policy_exists.
func (r Broker) PolicyExists(ctx context.Context, c *fn.Call, a Args) (bool, error) {
	d, err := r.ListPolicies(ctx, c, a)
	return d.Dict(a.Vhost).Has(a.Name), err
}

// Plugins returns a function that implements rabbitmq.list_available_plugins or a
// similar function.
func (r Broker) Plugins(words ...string) func(context.Context, *fn.Call, Args) (*value.List, error) {
	return func(ctx context.Context, c *fn.Call, a Args) (*value.List, error) {
		said, err := r.ask(ctx, c, a.RunAs, "rabbitmq-plugins", words...)
		names := &value.List{}
		for _, row := range rabbitRows(said, "") {
			for _, word := range strings.Fields(row) {
				names.Append(word)
			}
		}
		return names, err
	}
}

// PluginIsEnabled implements rabbitmq.plugin_is_enabled.
func (r Broker) PluginIsEnabled(ctx context.Context, c *fn.Call, a Args) (bool, error) {
	l, err := r.Plugins("list", "-m", "-e")(ctx, c, a)
	return slices.Contains(value.Texts(l), a.Name), err
}

func (r Broker) plugin(title, verb string) func(context.Context, *fn.Call, Args) (*value.Dict, error) {
	return func(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
		return r.titled(ctx, c, title, a.RunAs, "rabbitmq-plugins", verb, a.Name)
	}
}

// UpstreamArgs are the arguments of SetUpstream.
type UpstreamArgs struct {
	Name     string `salt:"name" doc:"name of the upstream"`
	URI      any    `salt:"uri" doc:"where it is"`
	Prefetch any    `salt:"prefetch_count" doc:"messages under way at most" default:"null"`
	Delay    any    `salt:"reconnect_delay" doc:"seconds until the next attempt to connect" default:"null"`
	Ack      any    `salt:"ack_mode" doc:"on-confirm, on-publish or no-ack" default:"null"`
	Trust    any    `salt:"trust_user_id" doc:"keep the users of messages" default:"null"`
	Exchange any    `salt:"exchange" doc:"name of the exchange there" default:"null"`
	Hops     any    `salt:"max_hops" doc:"links that a message may go over" default:"null"`
	Expires  any    `salt:"expires" doc:"milliseconds until the queue for an exchange is deleted there" default:"null"`
	TTL      any    `salt:"message_ttl" doc:"milliseconds until a message is" default:"null"`
	HAPolicy any    `salt:"ha_policy" doc:"x-ha-policy of that queue" default:"null"`
	Queue    any    `salt:"queue" doc:"name of the queue there" default:"null"`
	RunAs    any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

// SetUpstream implements rabbitmq.set_upstream.
func (r Broker) SetUpstream(ctx context.Context, c *fn.Call, a UpstreamArgs) (bool, error) {
	params := value.DictOf("uri", a.URI, "prefetch-count", a.Prefetch, "reconnect-delay", a.Delay, "ack-mode", a.Ack, "trust-user-id", a.Trust, "exchange",
		a.Exchange,
		"max-hops", a.Hops, "expires", a.Expires, "message-ttl", a.TTL, "ha-policy", a.HAPolicy, "queue", a.Queue)
	given := value.NewDict(params.Len())
	for k, v := range params.All() {
		if value.Truth(v) {
			given.Set(k, v)
		}
	}
	b, err := json.Dump(given, json.Format{})
	if err != nil {
		return false, fn.Errorf("cannot write the upstream as JSON: %w", err)
	}
	if err := checked(a.Name); err != nil {
		return false, err
	}
	_, err = r.ask(ctx, c, a.RunAs, rabbitmqctl, "set_parameter", "federation-upstream", a.Name, b)
	return err == nil, err
}

// DeleteUpstream implements rabbitmq.delete_upstream.
func (r Broker) DeleteUpstream(ctx context.Context, c *fn.Call, a Args) (bool, error) {
	if err := checked(a.Name); err != nil {
		return false, err
	}
	_, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "clear_parameter", "federation-upstream", a.Name)
	return err == nil, err
}

// DeleteUser implements rabbitmq.delete_user.
func (r Broker) DeleteUser(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.do("Deleted", "delete_user NAME")(ctx, c, a)
}

// ChangePassword implements rabbitmq.change_password.
func (r Broker) ChangePassword(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.do("Password Changed", "change_password NAME PASSWORD")(ctx, c, a)
}

// ClearPassword implements rabbitmq.clear_password.
func (r Broker) ClearPassword(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.do("Password Cleared", "clear_password NAME")(ctx, c, a)
}

// AddVhost implements rabbitmq.add_vhost.
func (r Broker) AddVhost(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.do("Added", "add_vhost VHOST")(ctx, c, a)
}

// DeleteVhost implements rabbitmq.delete_vhost.
func (r Broker) DeleteVhost(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.do("Deleted", "delete_vhost VHOST")(ctx, c, a)
}

// DeletePolicy implements rabbitmq.delete_policy.
func (r Broker) DeletePolicy(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.do("Deleted", "clear_policy -p VHOST NAME")(ctx, c, a)
}

// EnablePlugin implements rabbitmq.enable_plugin.
func (r Broker) EnablePlugin(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.plugin("Enabled", "enable")(ctx, c, a)
}

// DisablePlugin implements rabbitmq.disable_plugin.
func (r Broker) DisablePlugin(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	return r.plugin("Disabled", "disable")(ctx, c, a)
}
