package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brine/internal/base/field"
	"brine/internal/base/target"
	"brine/internal/base/textedit"
	"brine/internal/call/acl"
	"brine/internal/call/schedule"
	"brine/internal/catalogue"
	"brine/internal/catalogue/beacons"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/catalogue/wheel"
	"brine/internal/host"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/internal/store/returner"
)

// form checks the form of a value inside an option. It calls report for each part that is not what the
// option expects; at is the path to the part, "" for the whole value.
type form func(at string, v any, report func(at, text string))

// maxFormRemarks bounds the remarks about one option.
const maxFormRemarks = 10

// forms are the forms of options that have more structure than their type in Go says. The parts that
// use these options skip what has another form.
var forms = map[string]form{
	"auth.ldap.port":              wants("a port", isPort),
	"append_minionid_config_dirs": severalOf(oneOf("pki_dir", "cachedir", "extension_modules", "pidfile")),
	"beacons":                     beaconsForm,
	"decrypt_pillar": either("a list of paths, or a map of paths to renderers",
		listOf("paths", either("a path, or a map of a path to its renderer", text("a path"), mapOf("a path and its renderer", renderer))),
		mapOf("paths and renderers", orNull(renderer))),
	"backup_mode":                    wordOf("minion", "master", "both"),
	"decrypt_pillar_default":         renderer,
	"file_client":                    wordOf("remote", "local"),
	"git_pillar_provider":            wordOf("pygit2", "gitpython"),
	"gitfs_provider":                 wordOf("pygit2", "gitpython"),
	"master_uri_format":              wordOf("default", "ip_only"),
	"pillar_cache_backend":           wordOf("disk", "memory"),
	"pillar_source_merging_strategy": wordOf("smart", "recurse", "aggregate", "overwrite", "list", "none"),
	"state_data":                     wordOf("terse"),
	"state_output":                   wordOf("full", "full_id", "terse", "terse_id", "mixed", "mixed_id", "changes", "changes_id", "filter", "filter_id"),
	"top_file_merging_strategy":      wordOf("merge", "same", "merge_all"),
	"decrypt_pillar_renderers":       severalOf(renderer),
	"disabled_requisites":            severalOf(among("requisite", requisites)),
	"event_return_blacklist":         severalOf(text("a pattern")),
	"event_return_whitelist":         severalOf(text("a pattern")),
	"engines":                        either("a list or a map of engines", listOf("engines", engineForm), mapOf("engines", anything)),
	"ext_pillar":                     listOf("maps of a source to its settings", mapOf("a source and its settings", anything)),
	"external_auth":                  mapOf("systems", systemForm),
	"extmod_blacklist":               mapOf("kinds of modules", severalOf(text("the name of a module")), among("kind of modules", moduleKinds)),
	"extmod_whitelist":               mapOf("kinds of modules", severalOf(text("the name of a module")), among("kind of modules", moduleKinds)),
	"file_ignore_glob":               severalOf(text("a pattern")),
	"file_ignore_regex":              severalOf(text("a regular expression")),
	"file_roots":                     mapOf("environments", listOf("directories", text("a directory"))),
	"gitfs_ref_types":                severalOf(oneOf("branch", "tag", "sha")),
	"gitfs_remotes": listOf("repositories", either("a URL, or a map of a URL to its parameters",
		word("a URL"), mapOf("a URL and its parameters", anything))),
	"gitfs_saltenv":              listOf("environments", mapOf("an environment and its parameters", anything)),
	"global_state_conditions":    mapOf("states", severalOf(word("a target"))),
	"jinja_env":                  jinjaSettings,
	"jinja_sls_env":              jinjaSettings,
	"mine_functions":             mapOf("functions", orNull(either("a list or a map of arguments", listOf("arguments", anything), mapOf("arguments", anything)))),
	"mine_get":                   mapOf("minions", listOf("functions", regex), regex),
	"no_proxy":                   severalOf(text("a host")),
	"nodegroups":                 nodegroupsForm,
	"pass_to_ext_pillars":        severalOf(text("an option")),
	"peer":                       mapOf("minions", listOf("functions", grant), regex),
	"peer_run":                   mapOf("minions", listOf("runners", regex), regex),
	"pillar_roots":               mapOf("environments", listOf("directories", text("a directory"))),
	"pillarenv":                  text("an environment"),
	"providers":                  mapOf("virtual modules", word("the name of a module")),
	acl.RolesOption:              mapOf("roles", roleForm),
	"publisher_acl":              mapOf("users", listOf("permissions", grant)),
	"renderer_blacklist":         severalOf(renderer),
	"renderer_whitelist":         severalOf(renderer),
	"s3.buckets":                 buckets,
	"saltenv":                    text("an environment"),
	"schedule":                   scheduleForm,
	"ssl":                        either("a map of settings", truth, mapOf("settings", anything, among("setting", sslSettings))),
	"state_aggregate":            either("true, false or a list of state modules", truth, listOf("state modules", stateModule)),
	"state_queue":                either("true, false or a whole number", truth, wants("a whole number", isWhole)),
	"state_top_saltenv":          text("an environment"),
	"token_expire_user_override": either("true, false or a map of systems to users", truth, mapOf("systems", listOf("users", text("a user")))),
	"x509_signing_policies": mapOf("policies", either("a list or a map of settings",
		listOf("settings", policy), policy)),
}

// engineForm is the form of one of a list of engines.
func engineForm(at string, v any, report func(at, text string)) {
	if _, ok := v.(string); ok {
		return
	}
	mapOf("an engine and its arguments", orNull(mapOf("arguments", anything)))(at, v, report)
	if d, ok := v.(*value.Dict); ok && d.Len() > 1 {
		report(at, "only the first key of the map is an engine; indent its arguments below it")
	}
}

// moduleKinds are the kinds of the user's own modules.
var moduleKinds = strings.Fields(`auth beacons cache clouds engines executors fileserver grains log_handlers matchers modules output pillar proxy queues
	renderers returners roster runners sdb serializers states thorium tokens tops utils wheel wrapper`)

// requisites are the requisites that disabled_requisites may name.
var requisites = strings.Fields(`listen listen_in onchanges onchanges_any onchanges_in onfail onfail_all onfail_any onfail_in prereq prereq_in require
	require_any require_in use use_in watch watch_any watch_in`)

// sslSettings are the settings of the option ssl.
var sslSettings = func() (names []string) {
	fields, err := fieldsOf(reflect.TypeFor[transport.TLSOptions]())
	if err != nil {
		panic(err)
	}
	for _, f := range fields {
		names = append(names, f.Name)
	}
	return names
}()

// jobSettings are the settings of a scheduled job in Salt and Brine.
var jobSettings = strings.Fields(`after args cron days dry_run enabled fun func function hours jid_include job_args job_kwargs kwargs maxrunning metadata
	minutes name offline once once_fmt persist range return_config return_job return_kwargs returner run run_after_skip_range run_explicit run_on_start
	seconds skip_during_range skip_explicit splay until when where`)

// formRemarks returns remarks about the parts of an option that are not what it expects.
func formRemarks(name string, v any) (out []Remark) {
	f := forms[name]
	if f == nil || v == nil {
		return nil
	}
	more := 0
	f("", v, func(at, text string) {
		if len(out) == maxFormRemarks {
			more++
			return
		}
		if at != "" {
			text = at + ": " + text
		}
		out = append(out, Remark{name, text})
	})
	if more > 0 {
		out = append(out, Remark{name, fmt.Sprintf("%d more parts have a wrong form", more)})
	}
	return out
}

// idle returns remarks about options that have no effect because of others: repositories and buckets
// of files that no backend serves, and a function for the id that is set.
func (t *Tree) idle() (out []Remark) {
	if value.Truth(t.Values.At("id_function")) && value.Truth(t.Values.At("id")) {
		out = append(out, Remark{"id_function", "option has no effect: functions for the id are not supported, and id is set"})
	}
	backends := value.Split(t.Values.At("fileserver_backend"))
	for _, s := range []struct{ key, names string }{{"gitfs_remotes", "gitfs git"}, {"s3.buckets", "s3fs s3"}} {
		used := slices.ContainsFunc(strings.Fields(s.names), func(name string) bool { return slices.Contains(backends, name) })
		if value.Truth(t.Values.At(s.key)) && !used {
			out = append(out, Remark{s.key, "option has no effect: fileserver_backend does not name " + strings.Fields(s.names)[0]})
		}
	}
	return out
}

// inside extends the path to a part.
func inside(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

func anything(string, any, func(at, text string)) {}

// wants returns a form for single values.
func wants(what string, ok func(any) bool) form {
	return func(at string, v any, report func(at, text string)) {
		if !ok(v) {
			report(at, "expected "+what+", got "+field.Describe(v))
		}
	}
}

// truth is the form of true and false.
var truth = wants("true or false", func(v any) bool { _, ok := v.(bool); return ok })

func isWhole(v any) bool { _, ok := v.(int64); return ok }

func isPort(v any) bool {
	n, err := strconv.ParseUint(value.Str(v), 10, 16)
	return err == nil && n > 0
}

// isScalar reports whether a value may stand for a name: names of digits are numbers in YAML.
func isScalar(v any) bool {
	switch v.(type) {
	case nil, bool, *value.Dict, *value.List:
		return false
	}
	return true
}

func text(what string) form { return wants(what, isScalar) }

// word is the form of a string that cannot be a number.
func word(what string) form {
	return wants(what, func(v any) bool { _, ok := v.(string); return ok })
}

// regex is the form of a regular expression.
func regex(at string, v any, report func(at, text string)) {
	s, ok := v.(string)
	if !ok {
		report(at, "expected a regular expression, got "+field.Describe(v))
	} else if _, err := target.CompileRegexp(s); err != nil {
		report(at, fmt.Sprintf("the regular expression %.80q is malformed: %v", s, err))
	}
}

// among returns a form for names of a fixed set.
func among(what string, names []string) form {
	return func(at string, v any, report func(at, text string)) {
		name := value.Str(v)
		if slices.Contains(names, name) {
			return
		}
		hint := "use one of " + strings.Join(names, ", ")
		if near := textedit.Nearest(name, names); len(near) > 0 {
			hint = "did you mean " + near[0] + "?"
		} else if len(names) > 12 {
			hint = "see docs/reference"
		}
		report(at, fmt.Sprintf("there is no %s %.80q; %s", what, name, hint))
	}
}

func oneOf(names ...string) form { return among("value", names) }

// wordOf is the form of a word of a fixed set, or an empty string.
func wordOf(names ...string) form {
	return func(at string, v any, report func(at, text string)) {
		if v != "" {
			oneOf(names...)(at, v, report)
		}
	}
}

// policySettings are the settings of a signing policy that restrict who may ask, and how it is signed.
var policySettings = strings.Fields(`minions signing_private_key signing_private_key_passphrase signing_cert days_valid copypath digest algorithm`)

// policy is the form of a signing policy. Its other settings are names of attributes and extensions, so
// that only those are found that are close to one of policySettings.
func policy(at string, v any, report func(at, text string)) {
	mapOf("settings", anything, func(at string, k any, report func(at, text string)) {
		name := strings.ToLower(value.Str(k))
		if len(name) > 4 && !slices.Contains(policySettings, name) && len(textedit.Nearest(name, policySettings)) > 0 {
			among("setting", policySettings)(at, name, report)
		}
	})(at, v, report)
}

// renderer is the form of the name of a renderer. Names that are far from all may be renderers of the
// user's own.
func renderer(at string, v any, report func(at, text string)) {
	word("a renderer")(at, v, report)
	if len(textedit.Nearest(value.Str(v), render.Names())) > 0 {
		among("renderer", render.Names())(at, v, report)
	}
}

// orNull accepts null as well.
func orNull(f form) form {
	return func(at string, v any, report func(at, text string)) {
		if v != nil {
			f(at, v, report)
		}
	}
}

// severalOf returns a form for a list of items, or one item.
func severalOf(item form) form {
	return func(at string, v any, report func(at, text string)) {
		l, ok := v.(*value.List)
		if !ok {
			item(at, v, report)
			return
		}
		for i, it := range l.Items {
			item(at+"["+strconv.Itoa(i)+"]", it, report)
		}
	}
}

// listOf returns a form for a list, not for one item.
func listOf(what string, item form) form {
	return func(at string, v any, report func(at, text string)) {
		if _, ok := v.(*value.List); !ok {
			report(at, "expected a list of "+what+", got "+field.Describe(v))
			return
		}
		severalOf(item)(at, v, report)
	}
}

// mapOf returns a form for a map. Each key must have the forms of keys.
func mapOf(what string, item form, keys ...form) form {
	return func(at string, v any, report func(at, text string)) {
		d, ok := v.(*value.Dict)
		if !ok {
			report(at, "expected a map of "+what+", got "+field.Describe(v))
			return
		}
		for k, x := range d.All() {
			for _, f := range keys {
				f(inside(at, value.Str(k)), k, report)
			}
			item(inside(at, value.Str(k)), x, report)
		}
	}
}

// either accepts values of any of the forms. Of a form that accepts the value and not its parts it
// reports these; otherwise it reports that the value is not what it should be.
func either(what string, all ...form) form {
	return func(at string, v any, report func(at, text string)) {
		var parts [][2]string
		for _, f := range all {
			var found [][2]string
			f(at, v, func(at, text string) { found = append(found, [2]string{at, text}) })
			if len(found) == 0 {
				return
			}
			if found[0][0] != at {
				parts = found
			}
		}
		if parts == nil {
			report(at, "expected "+what+", got "+field.Describe(v))
		}
		for _, r := range parts {
			report(r[0], r[1])
		}
	}
}

// grant is the form of an entry in a list of permissions, see package acl.
func grant(at string, v any, report func(at, text string)) {
	d, ok := v.(*value.Dict)
	if !ok {
		if s, isText := v.(string); !isText || !strings.HasPrefix(s, "@") {
			regex(at, v, report)
		} else {
			onMaster(at, s, report)
		}
		return
	}
	if d.Len() != 1 {
		report(at, fmt.Sprintf("expected one target with its functions, got a map of %d: make an entry of the list of each", d.Len()))
		return
	}
	k, conditions := d.Entry(0)
	if s := value.Str(k); strings.HasPrefix(s, "@") {
		onMaster(at, s, report)
	}
	at = inside(at, value.Str(k))
	severalOf(func(at string, v any, report func(at, text string)) {
		c, ok := v.(*value.Dict)
		switch {
		case !ok:
			regex(at, v, report)
		case c.Len() != 1:
			report(at, fmt.Sprintf("expected one function with its arguments, got a map of %d: make an entry of the list of each", c.Len()))
		default:
			fun, args := c.Entry(0)
			regex(at, fun, report)
			severalOf(mapOf("args and kwargs", anything, among("condition", []string{"args", "kwargs"})))(inside(at, value.Str(fun)), args, report)
		}
	})(at, conditions, report)
}

// masterPermissions returns the permissions for the master's own functions.
var masterPermissions = sync.OnceValue(func() []string {
	known := []string{"@" + acl.Runner, "@" + acl.Runner + "s", "@" + acl.Wheel, "@" + acl.Wheel + "s"}
	for _, m := range append(runners.New(runners.Deps{}), wheel.New(wheel.Deps{})...) {
		known = append(known, "@"+m.Name)
	}
	return known
})

// stateModules returns the names of the state modules.
var stateModules = sync.OnceValue(func() (known []string) {
	for _, m := range catalogue.States(orchestration.Deps{}) {
		known = append(append(known, m.Name), m.Aliases...)
	}
	return known
})

// onMaster reports a permission for the master's own functions, such as @runner or @jobs, that is close to one that
// has an effect. Others may be modules of the user's own.
func onMaster(at, name string, report func(at, text string)) {
	if _, ok := acl.RoleName(name); ok {
		return // the options that have roles check it
	}
	known := masterPermissions()
	if !slices.Contains(known, name) && len(textedit.Nearest(name, known)) > 0 {
		among("permission", known)(at, name, report)
	}
}

// stateModule is the form of the name of a state module. Names that are far from all may be the user's own modules.
func stateModule(at string, v any, report func(at, text string)) {
	word("a state module")(at, v, report)
	known := stateModules()
	if name := value.Str(v); !slices.Contains(known, name) && len(textedit.Nearest(name, known)) > 0 {
		among("state module", known)(at, name, report)
	}
}

// systemForm is the form of a system of external_auth: settings, which begin with ^, users and groups.
func systemForm(at string, v any, report func(at, text string)) {
	d, ok := v.(*value.Dict)
	if !ok {
		report(at, "expected a map of users and groups, got "+field.Describe(v))
		return
	}
	for k, x := range d.All() {
		if name := value.Str(k); !strings.HasPrefix(name, "^") && name != "ca_file" { // Salt's pki has its setting without ^
			listOf("permissions", grant)(inside(at, name), x, report)
		}
	}
}

// roleForm is the form of a role of permission_roles. The options report other errors.
func roleForm(at string, v any, report func(at, text string)) {
	if d, ok := v.(*value.Dict); ok {
		listOf("permissions", grant)(inside(at, "permissions"), d.At("permissions"), report)
	}
}

// nodegroupsForm is the form of nodegroups, which may name each other.
func nodegroupsForm(at string, v any, report func(at, text string)) {
	d, ok := v.(*value.Dict)
	if !ok {
		report(at, "expected a map of groups and targets, got "+field.Describe(v))
		return
	}
	groups := target.Nodegroups{}
	for k, x := range d.All() {
		groups[value.Str(k)] = x
	}
	for k, x := range d.All() {
		name := value.Str(k)
		if _, ok := x.(*value.List); !ok && !isScalar(x) {
			report(inside(at, name), "expected a target or a list of its words, got "+field.Describe(x))
		} else if words, err := groups.Expand(name); err != nil {
			report(inside(at, name), err.Error())
		} else if err := cmp.Or(target.CheckParentheses(strings.Join(words, " ")), parses(groups, name)); err != nil {
			report(inside(at, name), err.Error())
		}
	}
}

// parses returns the error of a nodegroup's target.
func parses(groups target.Nodegroups, name string) error {
	_, err := groups.Parse("nodegroup", name, "")
	return err
}

// scheduleForm is the form of a schedule. The scheduler reports other errors of its jobs.
func scheduleForm(at string, v any, report func(at, text string)) {
	window := mapOf("start and end", anything, among("setting", []string{"start", "end", "invert"}))
	d, _ := v.(*value.Dict)
	for k, x := range d.All() {
		name := value.Str(k)
		if schedule.IsGlobal(name) {
			continue
		}
		job, ok := x.(*value.Dict)
		if !ok {
			report(name, "expected the settings of a job, got "+field.Describe(x))
		}
		for k, x := range job.All() {
			switch key := value.Str(k); {
			case strings.HasPrefix(key, "_"): // saved by the scheduler
			case key == "range", key == "skip_during_range", key == "splay":
				if _, ok := x.(*value.Dict); ok { // the scheduler reports other errors
					window(inside(name, key), x, report)
				}
			case key == "args":
				orNull(listOf("arguments", anything))(inside(name, key), x, report)
			case key == "kwargs":
				orNull(mapOf("arguments", anything))(inside(name, key), x, report)
			case key == "returner":
				for _, r := range value.Split(x) {
					returnerName(inside(name, key), r, report)
				}
			default:
				among("setting of jobs", jobSettings)(name, key, report)
			}
		}
	}
}

// returnerName reports a returner that is close to one that exists. Others may be modules of the user's own.
func returnerName(at, name string, report func(at, text string)) {
	if known := returner.Names(); !slices.Contains(known, name) && len(textedit.Nearest(name, known)) > 0 {
		among("returner", known)(at, name, report)
	}
}

// beaconsForm is the form of beacons. The scheduler of beacons reports other errors.
func beaconsForm(at string, v any, report func(at, text string)) {
	d, _ := v.(*value.Dict)
	kinds := beacons.All(&host.Machine{})
	for k, def := range d.All() {
		c, err := beacons.ParseConfig(def)
		if err != nil {
			continue
		}
		name := value.Str(k)
		kind := name
		if s, ok := c.Get("beacon_module").(string); ok {
			kind = s
		}
		if names, ok := kinds[kind].SettingNames(); ok {
			for key := range c.Own() {
				among("setting of this beacon", names)(name, key, report)
			}
		}
	}
}

// buckets is the form of s3.buckets.
func buckets(at string, v any, report func(at, text string)) {
	names := listOf("buckets", either("a bucket, or a map of a bucket to its settings", text("a bucket"), mapOf("a bucket and its settings", anything)))
	either("a list of buckets, or a map of environments to buckets", names, mapOf("environments", names))(at, v, report)
}

// jinjaSettings is the form of jinja_env and jinja_sls_env.
func jinjaSettings(at string, v any, report func(at, text string)) {
	texts, flags := render.JinjaSettings()
	mapOf("settings of Jinja", anything, func(at string, k any, report func(at, text string)) {
		among("setting", slices.Concat(texts, flags))(at, strings.ToLower(value.Str(k)), report)
	})(at, v, report)
	d, _ := v.(*value.Dict)
	for k, x := range d.All() {
		if slices.Contains(texts, strings.ToLower(value.Str(k))) {
			word("a string")(inside(at, value.Str(k)), x, report)
		}
	}
}
