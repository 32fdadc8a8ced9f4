package services

import (
	"context"
	"crypto/rand"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// rabbitmq asks rabbitmqctl and rabbitmq-plugins, which command the broker of
// this machine.
type rabbitmq struct{ m *host.Machine }

func init() { units.Register("rabbitmq", rabbitmqModule) }

func rabbitmqModule(m *host.Machine) fn.Module {
	r := rabbitmq{m}
	when := func(fn.Reader) (string, bool) {
		return "Module rabbitmq: module only works when RabbitMQ is installed", m.Which("rabbitmqctl") != ""
	}
	ex := func(text string) fn.Option { return fn.Example("salt '*' rabbitmq." + text) }
	takes := func(names string) fn.Option { return fn.Params(strings.Fields(names)...) }
	return fn.Module{Name: "rabbitmq", When: when, Doc: `Users, virtual hosts, rights, policies and plugins of RabbitMQ, by way of rabbitmqctl.`, Funcs: []fn.Func{
		fn.Of("list_users", r.listUsers, `Return the tags of all users.`, takes("runas"), ex("list_users")),
		fn.Of("list_vhosts", r.listVhosts, `Return the names of the virtual hosts.`, takes("runas"), ex("list_vhosts")),
		fn.Of("list_upstreams", r.listUpstreams, `Return what is declared of the upstreams of federations.`, takes("runas"), ex("list_upstreams")),
		fn.Of("user_exists", r.userExists, `Say whether there is a user.`, takes("name runas"), ex("user_exists rabbit_user")),
		fn.Of("vhost_exists", r.vhostExists, `Say whether there is a virtual host.`, takes("name runas"), ex("vhost_exists rabbit_host")),
		fn.Of("upstream_exists", r.upstreamExists, `Say whether there is an upstream.`, takes("name runas"), ex("upstream_exists rabbit_upstream")),
		fn.Of("add_user", r.addUser, `Add a user; without a password one that cannot log in with any.`, takes("name password runas"), fn.Default("password", "null"), ex("add_user rabbit_user password")),
		fn.Of("delete_user", r.do("Deleted", "delete_user NAME"), `Delete a user.`, takes("name runas"), ex("delete_user rabbit_user")),
		fn.Of("change_password", r.do("Password Changed", "change_password NAME PASSWORD"), `Change the password of a user.`, takes("name password runas"), ex("change_password rabbit_user password")),
		fn.Of("clear_password", r.do("Password Cleared", "clear_password NAME"), `Let a user log in with no password any more.`, takes("name runas"), ex("clear_password rabbit_user")),
		fn.Of("check_password", r.checkPassword, `Say whether a password is that of a user.`, takes("name password runas"), ex("check_password rabbit_user password")),
		fn.Of("add_vhost", r.do("Added", "add_vhost VHOST"), `Add a virtual host.`, takes("vhost runas"), ex("add_vhost vhost_name")),
		fn.Of("delete_vhost", r.do("Deleted", "delete_vhost VHOST"), `Delete a virtual host.`, takes("vhost runas"), ex("delete_vhost vhost_name")),
		fn.Of("set_permissions", r.setPermissions, `Set what a user may do in a virtual host.`, ex("set_permissions myvhost myuser")),
		fn.Of("list_permissions", r.listPermissions, `Return the rights of the users in a virtual host.`, takes("vhost runas"), ex("list_permissions /myvhost")),
		fn.Of("list_user_permissions", r.listUserPermissions, `Return the rights of a user by virtual hosts.`, takes("name runas"), ex("list_user_permissions user")),
		fn.Of("set_user_tags", r.setTags, `Set the tags of a user.`, ex("set_user_tags myadmin administrator")),
		fn.Of("status", r.say("status"), `Return what the broker says of itself.`, takes("runas"), ex("status")),
		fn.Of("cluster_status", r.say("cluster_status"), `Return what the broker says of its cluster.`, takes("runas"), ex("cluster_status")),
		fn.Of("join_cluster", r.joinCluster, `Have the broker join the cluster of another host.`, ex("join_cluster rabbit.example.com rabbit")),
		fn.Of("stop_app", r.say("stop_app"), `Stop the broker, and let its node run on.`, takes("runas"), ex("stop_app")),
		fn.Of("start_app", r.say("start_app"), `Start the broker.`, takes("runas"), ex("start_app")),
		fn.Of("reset", r.say("reset"), `Make the node as it was at first.`, takes("runas"), ex("reset")),
		fn.Of("force_reset", r.say("force_reset"), `Make the node as it was at first, whatever its cluster is.`, takes("runas"), ex("force_reset")),
		fn.Of("list_queues", r.listQueues, `Return facts of the queues of the virtual host /.`, ex("list_queues messages consumers")),
		fn.Of("list_queues_vhost", r.listQueuesVhost, `Return facts of the queues of a virtual host.`, ex("list_queues_vhost myvhost messages consumers")),
		fn.Of("list_policies", r.listPolicies, `Return the policies of a virtual host, by its name and theirs.`, takes("vhost runas"), fn.Default("vhost", "/"), ex("list_policies")),
		fn.Of("set_policy", r.setPolicy, `Set a policy.`, ex(`set_policy / HA '.*' '{"ha-mode":"all"}'`)),
		fn.Of("delete_policy", r.do("Deleted", "clear_policy -p VHOST NAME"), `Delete a policy.`, takes("vhost name runas"), ex("delete_policy / HA")),
		fn.Of("policy_exists", r.policyExists, `Say whether there is a policy.`, takes("vhost name runas"), ex("policy_exists / HA")),
		fn.Of("list_available_plugins", r.plugins("list", "-m"), `Return the names of all plugins.`, takes("runas"), ex("list_available_plugins")),
		fn.Of("list_enabled_plugins", r.plugins("list", "-m", "-e"), `Return the names of the plugins that are enabled.`, takes("runas"), ex("list_enabled_plugins")),
		fn.Of("plugin_is_enabled", r.pluginIsEnabled, `Say whether a plugin is enabled.`, takes("name runas"), ex("plugin_is_enabled rabbitmq_plugin_name")),
		fn.Of("enable_plugin", r.plugin("Enabled", "enable"), `Enable a plugin.`, takes("name runas"), ex("enable_plugin foo")),
		fn.Of("disable_plugin", r.plugin("Disabled", "disable"), `Disable a plugin.`, takes("name runas"), ex("disable_plugin foo")),
		fn.Of("set_upstream", r.setUpstream, `Declare an upstream of a federation.`, ex("set_upstream upstream_name ack_mode=on-confirm max_hops=1 trust_user_id=True uri=amqp://hostname")),
		fn.Of("delete_upstream", r.deleteUpstream, `Delete an upstream of a federation.`, takes("name runas"), ex("delete_upstream upstream_name")),
	}}
}

type rabbitArgs struct {
	Vhost    string `salt:"vhost" doc:"virtual host"`
	Name     string `salt:"name" doc:"name"`
	Password string `salt:"password" doc:"password"`
	RunAs    any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

// call runs a program of the broker by way of the module cmd.
func (r rabbitmq) call(ctx context.Context, c *fn.Call, runas any, program string, words ...string) (*value.Dict, error) {
	path := r.m.Which(program)
	if path == "" && program == "rabbitmq-plugins" { // where it lies outside of PATH
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

// ask is call with what is printed, or the error if there is any.
func (r rabbitmq) ask(ctx context.Context, c *fn.Call, runas any, program string, words ...string) (string, error) {
	d, err := r.call(ctx, c, runas, program, words...)
	if err == nil && (d.Int("retcode") != 0 || d.Str("stderr") != "") {
		err = fn.Errorf("RabbitMQ command failed: %s", d.Str("stderr"))
	}
	return d.Str("stdout"), err
}

const rabbitmqctl = "rabbitmqctl"

// do runs rabbitmqctl with words of which NAME, PASSWORD and VHOST are
// arguments, and returns what it prints under a title.
func (r rabbitmq) do(title, words string) func(context.Context, *fn.Call, rabbitArgs) (*value.Dict, error) {
	return func(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.Dict, error) {
		line := strings.Fields(words)
		for i, w := range line {
			switch w {
			case "NAME":
				line[i] = a.Name
			case "PASSWORD":
				line[i] = a.Password
			case "VHOST":
				line[i] = a.Vhost
			}
		}
		return r.titled(ctx, c, title, a.RunAs, rabbitmqctl, line...)
	}
}

func (r rabbitmq) titled(ctx context.Context, c *fn.Call, title string, runas any, program string, words ...string) (*value.Dict, error) {
	said, err := r.ask(ctx, c, runas, program, words...)
	if err != nil {
		return nil, err
	}
	return value.DictOf(title, said), nil
}

func (r rabbitmq) say(verb string) func(context.Context, *fn.Call, rabbitArgs) (string, error) {
	return func(ctx context.Context, c *fn.Call, a rabbitArgs) (string, error) {
		return r.ask(ctx, c, a.RunAs, rabbitmqctl, verb)
	}
}

// rabbitRows returns the lines that are rows of a table. header is the first line of
// tables of newer versions, which is none.
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

func (r rabbitmq) listUsers(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.Dict, error) {
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

func (r rabbitmq) listVhosts(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.List, error) {
	said, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "list_vhosts", "-q")
	names := &value.List{}
	for _, row := range rabbitRows(said, "name") {
		for _, word := range strings.Fields(row) {
			names.Append(word)
		}
	}
	return names, err
}

func (r rabbitmq) listUpstreams(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.Dict, error) {
	d, err := r.call(ctx, c, a.RunAs, rabbitmqctl, "list_parameters", "-q")
	all := value.NewDict(2)
	for _, row := range rabbitRows(d.Str("stdout"), "component\tname\tvalue") {
		if f := strings.SplitN(row, "\t", 3); len(f) == 3 {
			all.Set(f[1], f[2])
		}
	}
	return all, err
}

func (r rabbitmq) userExists(ctx context.Context, c *fn.Call, a rabbitArgs) (bool, error) {
	d, err := r.listUsers(ctx, c, a)
	return d.Has(a.Name), err
}

func (r rabbitmq) vhostExists(ctx context.Context, c *fn.Call, a rabbitArgs) (bool, error) {
	l, err := r.listVhosts(ctx, c, a)
	return slices.Contains(value.Texts(l), a.Name), err
}

func (r rabbitmq) upstreamExists(ctx context.Context, c *fn.Call, a rabbitArgs) (bool, error) {
	d, err := r.listUpstreams(ctx, c, a)
	return d.Has(a.Name), err
}

func (r rabbitmq) addUser(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.Dict, error) {
	clear := a.Password == ""
	if clear {
		a.Password = rand.Text() // a user cannot be added without
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

var rabbitVersion = regexp.MustCompile(`(?:RabbitMQ version:\s*|\{rabbit,"RabbitMQ",")([0-9]+)\.([0-9]+)\.([0-9]+)`)

func (r rabbitmq) checkPassword(ctx context.Context, c *fn.Call, a rabbitArgs) (bool, error) {
	status, err := r.call(ctx, c, a.RunAs, rabbitmqctl, "status")
	if err != nil {
		return false, err
	}
	var version []int
	if m := rabbitVersion.FindStringSubmatch(status.Str("stdout")); m != nil {
		for _, part := range m[1:] {
			n, _ := strconv.Atoi(part)
			version = append(version, n)
		}
	}
	if slices.Compare(version, []int{3, 5, 7}) >= 0 {
		d, err := r.call(ctx, c, a.RunAs, rabbitmqctl, "authenticate_user", a.Name, a.Password)
		return d.Int("retcode") == 0 && d.Str("stderr") == "", err
	}
	quoted := func(s string) string { return `<<"` + strings.ReplaceAll(s, `"`, `\"`) + `">>` }
	said, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "eval", "rabbit_auth_backend_internal:check_user_login("+quoted(a.Name)+", [{password, "+quoted(a.Password)+"}]).")
	return err == nil && !strings.Contains(said, "invalid credentials"), err
}

type rabbitRightsArgs struct {
	Vhost string `salt:"vhost" doc:"virtual host"`
	User  string `salt:"user" doc:"user"`
	Conf  string `salt:"conf" doc:"expression for what may be configured" default:".*"`
	Write string `salt:"write" doc:"expression for what may be written to" default:".*"`
	Read  string `salt:"read" doc:"expression for what may be read" default:".*"`
	RunAs any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

func (r rabbitmq) setPermissions(ctx context.Context, c *fn.Call, a rabbitRightsArgs) (*value.Dict, error) {
	return r.titled(ctx, c, "Permissions Set", a.RunAs, rabbitmqctl, "set_permissions", "-p", a.Vhost, a.User, a.Conf, a.Write, a.Read)
}

// permissions reads a list of rights, by one of their fields.
func (r rabbitmq) permissions(ctx context.Context, c *fn.Call, runas any, by string, words ...string) (*value.Dict, error) {
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

func (r rabbitmq) listPermissions(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.Dict, error) {
	return r.permissions(ctx, c, a.RunAs, "user", "list_permissions", "--formatter=json", "-p", a.Vhost)
}

func (r rabbitmq) listUserPermissions(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.Dict, error) {
	return r.permissions(ctx, c, a.RunAs, "vhost", "list_user_permissions", a.Name, "--formatter=json")
}

type rabbitTagsArgs struct {
	Name  string `salt:"name" doc:"user"`
	Tags  any    `salt:"tags" doc:"tag, or a list of them"`
	RunAs any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

func (r rabbitmq) setTags(ctx context.Context, c *fn.Call, a rabbitTagsArgs) (*value.Dict, error) {
	return r.titled(ctx, c, "Tag(s) set", a.RunAs, rabbitmqctl, append([]string{"set_user_tags", a.Name}, value.Texts(a.Tags)...)...)
}

type rabbitJoinArgs struct {
	Host    string `salt:"host" doc:"host of a broker in the cluster"`
	User    string `salt:"user" doc:"first part of the name of its node" default:"rabbit"`
	RAMNode any    `salt:"ram_node" doc:"keep nothing on disk" default:"null"`
	RunAs   any    `salt:"runas" doc:"user to run the program as" default:"null"`
}

func (r rabbitmq) joinCluster(ctx context.Context, c *fn.Call, a rabbitJoinArgs) (*value.Dict, error) {
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

type rabbitQueuesArgs struct {
	RunAs any     `salt:"runas" doc:"user to run the program as" default:"null"`
	Facts fn.Args `salt:"args"`
}

func (r rabbitmq) listQueues(ctx context.Context, c *fn.Call, a rabbitQueuesArgs) (*value.Dict, error) {
	return r.queues(ctx, c, a.RunAs, a.Facts)
}

type rabbitQueuesVhostArgs struct {
	Vhost string  `salt:"vhost" doc:"virtual host"`
	RunAs any     `salt:"runas" doc:"user to run the program as" default:"null"`
	Facts fn.Args `salt:"args"`
}

func (r rabbitmq) listQueuesVhost(ctx context.Context, c *fn.Call, a rabbitQueuesVhostArgs) (*value.Dict, error) {
	return r.queues(ctx, c, a.RunAs, a.Facts, "-p", a.Vhost)
}

func (r rabbitmq) queues(ctx context.Context, c *fn.Call, runas any, facts fn.Args, words ...string) (*value.Dict, error) {
	words = append([]string{"list_queues", "-q"}, words...)
	header := "name\tmessages"
	if len(facts) > 0 {
		header = strings.Join(value.Texts(&value.List{Items: facts}), "\t")
	}
	for _, f := range facts {
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

// listPolicies reads tables of version 3.7 and later, where the pattern comes
// before what it applies to, and those of earlier ones, which may lack the
// latter.
func (r rabbitmq) listPolicies(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.Dict, error) {
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

type rabbitPolicyArgs struct {
	Vhost      string `salt:"vhost" doc:"virtual host"`
	Name       string `salt:"name" doc:"name of the policy"`
	Pattern    string `salt:"pattern" doc:"expression for the names of queues"`
	Definition any    `salt:"definition" doc:"map, or JSON of it"`
	Priority   any    `salt:"priority" doc:"which of several policies counts" default:"null"`
	RunAs      any    `salt:"runas" doc:"user to run the program as" default:"null"`
	ApplyTo    any    `salt:"apply_to" doc:"queues, exchanges or all" default:"null"`
}

func (r rabbitmq) setPolicy(ctx context.Context, c *fn.Call, a rabbitPolicyArgs) (*value.Dict, error) {
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
	return r.titled(ctx, c, "Set", a.RunAs, rabbitmqctl, append(words, a.Name, a.Pattern, definition)...)
}

func (r rabbitmq) policyExists(ctx context.Context, c *fn.Call, a rabbitArgs) (bool, error) {
	d, err := r.listPolicies(ctx, c, a)
	return d.Dict(a.Vhost).Has(a.Name), err
}

func (r rabbitmq) plugins(words ...string) func(context.Context, *fn.Call, rabbitArgs) (*value.List, error) {
	return func(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.List, error) {
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

func (r rabbitmq) pluginIsEnabled(ctx context.Context, c *fn.Call, a rabbitArgs) (bool, error) {
	l, err := r.plugins("list", "-m", "-e")(ctx, c, a)
	return slices.Contains(value.Texts(l), a.Name), err
}

func (r rabbitmq) plugin(title, verb string) func(context.Context, *fn.Call, rabbitArgs) (*value.Dict, error) {
	return func(ctx context.Context, c *fn.Call, a rabbitArgs) (*value.Dict, error) {
		return r.titled(ctx, c, title, a.RunAs, "rabbitmq-plugins", verb, a.Name)
	}
}

type rabbitUpstreamArgs struct {
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

func (r rabbitmq) setUpstream(ctx context.Context, c *fn.Call, a rabbitUpstreamArgs) (bool, error) {
	params := value.DictOf("uri", a.URI, "prefetch-count", a.Prefetch, "reconnect-delay", a.Delay, "ack-mode", a.Ack, "trust-user-id", a.Trust, "exchange", a.Exchange,
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
	_, err = r.ask(ctx, c, a.RunAs, rabbitmqctl, "set_parameter", "federation-upstream", a.Name, b)
	return err == nil, err
}

func (r rabbitmq) deleteUpstream(ctx context.Context, c *fn.Call, a rabbitArgs) (bool, error) {
	_, err := r.ask(ctx, c, a.RunAs, rabbitmqctl, "clear_parameter", "federation-upstream", a.Name)
	return err == nil, err
}
