package network

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// firewalld runs firewall-cmd(1), which controls the daemon firewalld.
type firewalld struct{ m *host.Machine }

func init() { units.Register("firewalld", firewalldModule) }

func firewalldModule(m *host.Machine) fn.Module {
	f := firewalld{m}
	when := func(fn.Reader) (string, bool) {
		return "The firewalld execution module cannot be loaded: the firewall-cmd binary is not in the path.", m.Which("firewall-cmd") != ""
	}
	takes := func(names string) fn.Option { return fn.Params(strings.Fields(names)...) }
	ex := func(text string) fn.Option { return fn.Example("salt '*' firewalld." + text) }
	anyZone := fn.Default("zone", "null")
	return fn.Module{Name: "firewalld", When: when, Doc: `Zones and services of firewalld. What is permanent counts from the next reload on.`,
		Funcs: []fn.Func{
			fn.Of("version", f.say("--version"), `Return the version of firewalld.`, takes(""), ex("version")),
			fn.Of("reload_rules", f.say("--reload"), `Have what is permanent count now.`, takes(""), ex("reload_rules")),
			fn.Of("default_zone", f.say("--get-default-zone"), `Return the name of the default zone.`, takes(""), ex("default_zone")),
			fn.Of("set_default_zone", f.say("--set-default-zone=ZONE"), `Set the default zone.`, takes("zone"), ex("set_default_zone damian")),
			fn.Of("make_permanent", f.say("--runtime-to-permanent"), `Make permanent what counts now.`, takes(""), ex("make_permanent")),
			fn.Of("list_zones", f.zones, `Return what all zones let in.`, takes("permanent"), ex("list_zones")),
			fn.Of("list_all", f.zone, `Return what a zone lets in, or the default zone.`, takes("zone permanent"), anyZone, ex("list_all my_zone")),
			fn.Of("get_zones", f.words("--get-zones"), `Return the names of the zones.`, takes("permanent"), ex("get_zones")),
			fn.Of("get_services", f.words("--get-services"), `Return the names of the services.`, takes("permanent"), ex("get_services")),
			fn.Of("get_icmp_types", f.words("--get-icmptypes"), `Return the names of ICMP's types.`, takes("permanent"), ex("get_icmp_types")),
			fn.Of("new_zone", f.made("--new-zone=ZONE"), `Make a zone, and reload.`, takes("zone restart"), ex("new_zone my_zone")),
			fn.Of("delete_zone", f.made("--delete-zone=ZONE"), `Delete a zone, and reload.`, takes("zone restart"), ex("delete_zone my_zone")),
			fn.Of("new_service", f.made("--new-service=NAME"), `Make a service, and reload.`, takes("name restart"), ex("new_service my_service")),
			fn.Of("delete_service", f.made("--delete-service=NAME"), `Delete a service, and reload.`, takes("name restart"), ex("delete_service my_service")),
			fn.Of("list_services", f.words("ZONE --list-services"), `Return the services that a zone lets in.`, takes("zone permanent"), anyZone,
				ex("list_services my_zone")),
			fn.Of("add_service", f.say("ZONE --add-service=SERVICE"), `Have a zone let a service in.`, takes("service zone permanent"), anyZone,
				ex("add_service ssh my_zone")),
			fn.Of("remove_service", f.say("ZONE --remove-service=SERVICE"), `Have a zone let a service in no more.`, takes("service zone permanent"), anyZone,
				ex("remove_service ssh my_zone")),
			fn.Of("get_service_ports", f.words("--permanent --service=SERVICE --get-ports"), `Return the ports of a service.`, takes("service"),
				ex("get_service_ports zone")),
			fn.Of("add_service_port", f.ofService("--permanent --service=SERVICE --add-port=PORT"), `Add a port to a service.`, takes("service port"),
				ex("add_service_port zone 80/tcp")),
			fn.Of("remove_service_port", f.ofService("--permanent --service=SERVICE --remove-port=PORT"), `Remove a port from a service.`,
				takes("service port"), ex("remove_service_port zone 80/tcp")),
			fn.Of("get_service_protocols", f.words("--permanent --service=SERVICE --get-protocols"), `Return the protocols of a service.`, takes("service"),
				ex("get_service_protocols zone")),
			fn.Of("add_service_protocol", f.say("--permanent --service=SERVICE --add-protocol=PROTOCOL"), `Add a protocol to a service.`,
				takes("service protocol"), ex("add_service_protocol zone ssh")),
			fn.Of("remove_service_protocol", f.say("--permanent --service=SERVICE --remove-protocol=PROTOCOL"), `Remove a protocol from a service.`,
				takes("service protocol"), ex("remove_service_protocol zone ssh")),
			fn.Of("get_masquerade", f.masquerade, `Say whether a zone hides the addresses of others.`, takes("zone permanent"), anyZone,
				ex("get_masquerade zone")),
			fn.Of("add_masquerade", f.say("ZONE --add-masquerade"), `Have a zone hide the addresses of others.`, takes("zone permanent"), anyZone,
				ex("add_masquerade dmz")),
			fn.Of("remove_masquerade", f.say("ZONE --remove-masquerade"), `Have a zone hide the addresses of others no more.`, takes("zone permanent"),
				anyZone, ex("remove_masquerade dmz")),
			fn.Of("list_ports", f.words("ZONE --list-ports"), `Return the ports that a zone lets in.`, takes("zone permanent"), ex("list_ports my_zone")),
			fn.Of("add_port", f.addPort, `Have a zone let a port in.`, takes("zone port permanent force_masquerade"), ex("add_port internal 443/tcp")),
			fn.Of("remove_port", f.say("ZONE --remove-port=PORT"), `Have a zone let a port in no more.`, takes("zone port permanent"),
				ex("remove_port internal 443/tcp")),
			fn.Of("list_port_fwd", f.forwards, `Return the ports that a zone forwards.`, takes("zone permanent"), ex("list_port_fwd public")),
			fn.Of("add_port_fwd", f.addForward, `Have a zone forward a port.`, takes("zone src dest proto dstaddr permanent force_masquerade"),
				ex("add_port_fwd public 80 443 tcp")),
			fn.Of("remove_port_fwd", f.say("ZONE --remove-forward-port=FORWARD"), `Have a zone forward a port no more.`,
				takes("zone src dest proto dstaddr permanent"), ex("remove_port_fwd public 80 443 tcp")),
			fn.Of("list_icmp_block", f.words("ZONE --list-icmp-blocks"), `Return the types of ICMP that a zone blocks.`, takes("zone permanent"),
				ex("list_icmp_block zone")),
			fn.Of("block_icmp", f.icmp("--add-icmp-block=", false), `Have a zone block a type of ICMP.`, takes("zone icmp permanent"),
				ex("block_icmp zone echo-reply")),
			fn.Of("allow_icmp", f.icmp("--remove-icmp-block=", true), `Have a zone block a type of ICMP no more.`, takes("zone icmp permanent"),
				ex("allow_icmp zone echo-reply")),
			fn.Of("get_interfaces", f.words("ZONE --list-interfaces"), `Return the interfaces of a zone.`, takes("zone permanent"),
				ex("get_interfaces zone")),
			fn.Of("add_interface", f.say("ZONE --add-interface=INTERFACE"), `Put an interface into a zone.`, takes("zone interface permanent"),
				ex("add_interface zone eth0")),
			fn.Of("remove_interface", f.say("ZONE --remove-interface=INTERFACE"), `Take an interface out of a zone.`, takes("zone interface permanent"),
				ex("remove_interface zone eth0")),
			fn.Of("get_sources", f.words("ZONE --list-sources"), `Return the addresses of a zone.`, takes("zone permanent"), ex("get_sources zone")),
			fn.Of("add_source", f.say("ZONE --add-source=SOURCE"), `Put addresses into a zone.`, takes("zone source permanent"),
				ex("add_source zone 192.168.1.0/24")),
			fn.Of("remove_source", f.say("ZONE --remove-source=SOURCE"), `Take addresses out of a zone.`, takes("zone source permanent"),
				ex("remove_source zone 192.168.1.0/24")),
			fn.Of("get_rich_rules", f.richRules, `Return the rich rules of a zone.`, takes("zone permanent"), ex("get_rich_rules zone")),
			fn.Of("add_rich_rule", f.say("ZONE --add-rich-rule=RULE"), `Add a rich rule to a zone.`, takes("zone rule permanent"),
				ex("add_rich_rule zone 'rule'")),
			fn.Of("remove_rich_rule", f.say("ZONE --remove-rich-rule=RULE"), `Remove a rich rule from a zone.`, takes("zone rule permanent"),
				ex("remove_rich_rule zone 'rule'")),
		}}
}

type firewalldArgs struct {
	Zone      string `salt:"zone" doc:"zone"`
	Name      string `salt:"name" doc:"service"`
	Service   string `salt:"service" doc:"service"`
	Port      string `salt:"port" doc:"port, as 80/tcp"`
	Protocol  string `salt:"protocol" doc:"protocol"`
	ICMP      string `salt:"icmp" doc:"type of ICMP"`
	Interface string `salt:"interface" doc:"interface"`
	Source    string `salt:"source" doc:"addresses"`
	Rule      string `salt:"rule" doc:"rich rule"`
	Src       string `salt:"src" doc:"port"`
	Dest      string `salt:"dest" doc:"port that it is forwarded to"`
	Proto     string `salt:"proto" doc:"protocol" default:"tcp"`
	DstAddr   string `salt:"dstaddr" doc:"address that it is forwarded to" default:""`
	Restart   bool   `salt:"restart" doc:"reload afterwards" default:"true"`
	Permanent bool   `salt:"permanent" doc:"what is permanent, and not what counts now" default:"true"`
	Force     bool   `salt:"force_masquerade" doc:"have the zone hide the addresses of others, too" default:"false"`
}

func (f firewalld) run(ctx context.Context, words ...string) (string, error) {
	out, err := f.m.Do(ctx, "firewall-cmd", words...)
	if err != nil {
		return "", fn.Errorf("cannot run firewall-cmd: %w", err)
	}
	stdout, stderr := strings.TrimRight(out.Stdout, "\r\n"), strings.TrimRight(out.Stderr, "\r\n")
	if out.Exit != 0 {
		if stderr == "" {
			stderr = stdout
		}
		return "", fn.Errorf("firewall-cmd failed: %s", stderr)
	}
	return stdout, nil
}

// ask runs firewall-cmd. It replaces placeholders in pattern by the arguments.
func (f firewalld) ask(ctx context.Context, a firewalldArgs, pattern string) (string, error) {
	places := strings.NewReplacer("NAME", a.Name, "SERVICE", a.Service, "PORT", a.Port, "PROTOCOL", a.Protocol, "INTERFACE", a.Interface, "SOURCE", a.Source,
		"RULE", a.Rule, "FORWARD", "port="+a.Src+":proto="+a.Proto+":toport="+a.Dest+":toaddr="+a.DstAddr, "ZONE", a.Zone)
	var words []string
	for _, w := range strings.Fields(pattern) {
		switch {
		case w == "ZONE" && a.Zone == "":
		case w == "ZONE":
			words = append(words, "--zone="+a.Zone)
		default:
			words = append(words, places.Replace(w))
		}
	}
	if a.Permanent && !slices.Contains(words, "--permanent") {
		words = append(words, "--permanent")
	}
	return f.run(ctx, words...)
}

// say returns a function that runs firewall-cmd and returns its output.
// Patterns that do not support --permanent run without it.
func (f firewalld) say(pattern string) func(context.Context, *fn.Call, firewalldArgs) (string, error) {
	switch pattern {
	case "--version", "--reload", "--get-default-zone", "--set-default-zone=ZONE", "--runtime-to-permanent":
		return func(ctx context.Context, _ *fn.Call, a firewalldArgs) (string, error) {
			a.Permanent = false
			return f.ask(ctx, a, pattern)
		}
	}
	return func(ctx context.Context, _ *fn.Call, a firewalldArgs) (string, error) { return f.ask(ctx, a, pattern) }
}

func (f firewalld) words(pattern string) func(context.Context, *fn.Call, firewalldArgs) (*value.List, error) {
	return func(ctx context.Context, _ *fn.Call, a firewalldArgs) (*value.List, error) {
		said, err := f.ask(ctx, a, pattern)
		return value.Strings(strings.Fields(said)), err
	}
}

// made returns a function that permanently adds or removes something, and
// reloads.
func (f firewalld) made(pattern string) func(context.Context, *fn.Call, firewalldArgs) (string, error) {
	return func(ctx context.Context, _ *fn.Call, a firewalldArgs) (string, error) {
		said, err := f.ask(ctx, a, pattern)
		if err != nil || !a.Restart || said != "success" {
			return said, err
		}
		return f.run(ctx, "--reload")
	}
}

func (f firewalld) ofService(pattern string) func(context.Context, *fn.Call, firewalldArgs) (string, error) {
	return func(ctx context.Context, c *fn.Call, a firewalldArgs) (string, error) {
		all, err := f.words("--get-services")(ctx, c, a)
		if err == nil && !slices.Contains(value.Texts(all), a.Service) {
			err = fn.Errorf("The service does not exist.")
		}
		if err != nil {
			return "", err
		}
		return f.ask(ctx, a, pattern)
	}
}

// zonesOf parses a list of zones. The lines of a zone are indented; further
// values of a line begin with a tab.
func zonesOf(text string) *value.Dict {
	all := value.NewDict(1)
	var zone *value.Dict
	var values *value.List
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		word := strings.TrimSpace(line)
		key, v, ok := strings.Cut(word, ":")
		switch {
		case word == "":
		case line[0] != ' ' && line[0] != '\t':
			zone = value.NewDict(12)
			all.Set(strings.TrimRight(line, " \t"), zone)
		case zone == nil:
		case line[0] == '\t' && values != nil:
			values.Append(word)
		case ok:
			values = value.ListOf(strings.TrimSpace(v))
			zone.Set(strings.TrimSpace(key), values)
		}
	}
	return all
}

func (f firewalld) zones(ctx context.Context, _ *fn.Call, a firewalldArgs) (*value.Dict, error) {
	said, err := f.ask(ctx, a, "--list-all-zones")
	return zonesOf(said), err
}

func (f firewalld) zone(ctx context.Context, _ *fn.Call, a firewalldArgs) (*value.Dict, error) {
	said, err := f.ask(ctx, a, "ZONE --list-all")
	return zonesOf(said), err
}

func (f firewalld) masquerade(ctx context.Context, c *fn.Call, a firewalldArgs) (bool, error) {
	d, err := f.zone(ctx, c, a)
	for _, v := range d.All() {
		zone, _ := v.(*value.Dict)
		if l := zone.List("masquerade"); len(l) > 0 && l[0] == "no" {
			return false, err
		}
	}
	return err == nil, err
}

// hide enables masquerading for a zone if force is set.
func (f firewalld) hide(ctx context.Context, c *fn.Call, a firewalldArgs) error {
	if !a.Force {
		return nil
	}
	a.Permanent = true
	if is, err := f.masquerade(ctx, c, a); err != nil || is {
		return err
	}
	_, err := f.ask(ctx, a, "ZONE --add-masquerade")
	return err
}

func (f firewalld) addPort(ctx context.Context, c *fn.Call, a firewalldArgs) (string, error) {
	if err := f.hide(ctx, c, a); err != nil {
		return "", err
	}
	return f.ask(ctx, a, "ZONE --add-port=PORT")
}

func (f firewalld) addForward(ctx context.Context, c *fn.Call, a firewalldArgs) (string, error) {
	if err := f.hide(ctx, c, a); err != nil {
		return "", err
	}
	return f.ask(ctx, a, "ZONE --add-forward-port=FORWARD")
}

func (f firewalld) forwards(ctx context.Context, _ *fn.Call, a firewalldArgs) (*value.List, error) {
	said, err := f.ask(ctx, a, "ZONE --list-forward-ports")
	all := &value.List{}
	for line := range strings.Lines(said) {
		part := map[string]string{}
		for f := range strings.SplitSeq(strings.TrimSpace(line), ":") {
			k, v, _ := strings.Cut(f, "=")
			part[k] = v
		}
		all.Append(value.DictOf("Source port", part["port"], "Protocol", part["proto"], "Destination port", part["toport"], "Destination address",
			part["toaddr"]))
	}
	return all, err
}

func (f firewalld) richRules(ctx context.Context, _ *fn.Call, a firewalldArgs) (*value.List, error) {
	said, err := f.ask(ctx, a, "ZONE --list-rich-rules")
	all := &value.List{}
	for line := range strings.Lines(said) {
		all.Append(strings.TrimRight(line, "\r\n"))
	}
	return all, err
}

// icmp returns a function that blocks or allows an ICMP type, unless that is
// already so. blocked is the state to be changed.
func (f firewalld) icmp(option string, blocked bool) func(context.Context, *fn.Call, firewalldArgs) (any, error) {
	return func(ctx context.Context, c *fn.Call, a firewalldArgs) (any, error) {
		known, err := f.words("--get-icmptypes")(ctx, c, a)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(value.Texts(known), a.ICMP) {
			c.Log.Error("Invalid ICMP type", "type", a.ICMP)
			return false, nil
		}
		now, err := f.words("ZONE --list-icmp-blocks")(ctx, c, a)
		if err != nil || slices.Contains(value.Texts(now), a.ICMP) != blocked {
			return "success", err
		}
		return f.ask(ctx, a, "ZONE "+option+a.ICMP)
	}
}
