package network

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/iptables"
	"brine/internal/host"
)

func init() { units.Register("iptables", iptablesModule) }

func iptablesModule(m *host.Machine) fn.Module {
	x := iptables.Filter{M: m}
	return fn.Module{Name: "iptables", Doc: `The packet filter of the kernel, by iptables(8) and ip6tables(8).`, Funcs: []fn.Func{
		fn.Of("version", x.Version, `Return the version of iptables.`, fn.Example("salt '*' iptables.version")),
		fn.Of("build_rule", x.Build, `Return the options that a rule is made of, or with full a whole command.
			The keywords are iptables' long options; connstate stands for --state, if and of for -i and -o.`,
			fn.Example("salt '*' iptables.build_rule match=state connstate=RELATED,ESTABLISHED jump=ACCEPT")),
		fn.Of("check", x.Check, `Say whether a chain has a rule.`,
			fn.Example("salt '*' iptables.check filter INPUT rule='-m state --state RELATED,ESTABLISHED -j ACCEPT'")),
		fn.Of("check_chain", x.CheckChain, `Say whether there is a chain.`, fn.Example("salt '*' iptables.check_chain filter INPUT")),
		fn.Of("new_chain", x.Edit("-N"), `Make a chain. Returns true, or what is wrong.`, fn.Example("salt '*' iptables.new_chain filter CUSTOM_CHAIN")),
		fn.Of("delete_chain", x.Edit("-X"), `Delete a chain. Returns true, or what is wrong.`,
			fn.Example("salt '*' iptables.delete_chain filter CUSTOM_CHAIN")),
		fn.Of("append", x.Append, `Add a rule at the end of a chain that has not got it, and say whether that was done.`,
			fn.Example("salt '*' iptables.append filter INPUT rule='-m state --state RELATED,ESTABLISHED -j ACCEPT'")),
		fn.Of("insert", x.Insert, `Add a rule at a position of a chain that has not got it. Returns what is wrong, false if it is there, or nothing.`,
			fn.Example("salt '*' iptables.insert filter INPUT position=3 rule='-m state --state RELATED,ESTABLISHED -j ACCEPT'")),
		fn.Of("delete", x.Delete, `Delete a rule, which is given by its position or by itself. Returns what is wrong.`,
			fn.Example("salt '*' iptables.delete filter INPUT position=3")),
		fn.Of("flush", x.Flush, `Delete all rules of a chain, or of all chains of a table. Returns what is wrong.`,
			fn.Example("salt '*' iptables.flush filter INPUT")),
		fn.Of("get_policy", x.Policy, `Return what becomes of packets that no rule of a chain is about.`,
			fn.Example("salt '*' iptables.get_policy filter INPUT")),
		fn.Of("get_saved_policy", x.SavedPolicy, `Return the same from the file of rules to load at boot.`,
			fn.Example("salt '*' iptables.get_saved_policy filter INPUT")),
		fn.Of("set_policy", x.SetPolicy, `Set what becomes of packets that no rule of a chain is about. Returns what is wrong.`,
			fn.Example("salt '*' iptables.set_policy filter INPUT ACCEPT")),
		fn.Of("get_rules", x.Rules, `Return tables, chains and rules.`, fn.Example("salt '*' iptables.get_rules")),
		fn.Of("get_saved_rules", x.SavedRules, `Return tables, chains and rules of the file of rules to load at boot.`,
			fn.Example("salt '*' iptables.get_saved_rules")),
		fn.Of("save", x.Save, `Write the rules to the file of rules to load at boot, or to another.
			Lines that match one of the expressions in the option iptables.save_filters are left out.`,
			fn.Example("salt '*' iptables.save /etc/sysconfig/iptables")),
	}}
}
