package services

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/rabbitmq"
	"brine/internal/host"
	"strings"
)

func init() { units.Register("rabbitmq", rabbitmqModule) }

func rabbitmqModule(m *host.Machine) fn.Module {
	r := rabbitmq.Broker{M: m}
	when := func(fn.Reader) (string, bool) {
		return "Module rabbitmq: module only works when RabbitMQ is installed", m.Which("rabbitmqctl") != ""
	}
	ex := func(text string) fn.Option { return fn.Example("salt '*' rabbitmq." + text) }
	takes := func(names string) fn.Option { return fn.Params(strings.Fields(names)...) }
	return fn.Module{Name: "rabbitmq", When: when, Doc: `Users, virtual hosts, rights, policies and plugins of RabbitMQ, by way of rabbitmqctl.`,
		Funcs: []fn.Func{
			fn.Of("list_users", r.ListUsers, `Return the tags of all users.`, takes("runas"), ex("list_users")),
			fn.Of("list_vhosts", r.ListVhosts, `Return the names of the virtual hosts.`, takes("runas"), ex("list_vhosts")),
			fn.Of("list_upstreams", r.ListUpstreams, `Return what is declared of the upstreams of federations.`, takes("runas"), ex("list_upstreams")),
			fn.Of("user_exists", r.UserExists, `Say whether there is a user.`, takes("name runas"), ex("user_exists rabbit_user")),
			fn.Of("vhost_exists", r.VhostExists, `Say whether there is a virtual host.`, takes("name runas"), ex("vhost_exists rabbit_host")),
			fn.Of("upstream_exists", r.UpstreamExists, `Say whether there is an upstream.`, takes("name runas"), ex("upstream_exists rabbit_upstream")),
			fn.Of("add_user", r.AddUser, `Add a user; without a password one that cannot log in with any.`, takes("name password runas"),
				fn.Default("password", "null"), ex("add_user rabbit_user password")),
			fn.Of("delete_user", r.DeleteUser, `Delete a user.`, takes("name runas"), ex("delete_user rabbit_user")),
			fn.Of("change_password", r.ChangePassword, `Change the password of a user.`, takes("name password runas"),
				ex("change_password rabbit_user password")),
			fn.Of("clear_password", r.ClearPassword, `Let a user log in with no password any more.`, takes("name runas"), ex("clear_password rabbit_user")),
			fn.Of("check_password", r.CheckPassword, `Say whether a password is that of a user.`, takes("name password runas"),
				ex("check_password rabbit_user password")),
			fn.Of("add_vhost", r.AddVhost, `Add a virtual host.`, takes("vhost runas"), ex("add_vhost vhost_name")),
			fn.Of("delete_vhost", r.DeleteVhost, `Delete a virtual host.`, takes("vhost runas"), ex("delete_vhost vhost_name")),
			fn.Of("set_permissions", r.SetPermissions, `Set what a user may do in a virtual host.`, ex("set_permissions myvhost myuser")),
			fn.Of("list_permissions", r.ListPermissions, `Return the rights of the users in a virtual host.`, takes("vhost runas"),
				ex("list_permissions /myvhost")),
			fn.Of("list_user_permissions", r.ListUserPermissions, `Return the rights of a user by virtual hosts.`, takes("name runas"),
				ex("list_user_permissions user")),
			fn.Of("set_user_tags", r.SetTags, `Set the tags of a user.`, ex("set_user_tags myadmin administrator")),
			fn.Of("status", r.Say("status"), `Return what the broker says of itself.`, takes("runas"), ex("status")),
			fn.Of("cluster_status", r.Say("cluster_status"), `Return what the broker says of its cluster.`, takes("runas"), ex("cluster_status")),
			fn.Of("join_cluster", r.JoinCluster, `Have the broker join the cluster of another host.`, ex("join_cluster rabbit.example.com rabbit")),
			fn.Of("stop_app", r.Say("stop_app"), `Stop the broker, and let its node run on.`, takes("runas"), ex("stop_app")),
			fn.Of("start_app", r.Say("start_app"), `Start the broker.`, takes("runas"), ex("start_app")),
			fn.Of("reset", r.Say("reset"), `Make the node as it was at first.`, takes("runas"), ex("reset")),
			fn.Of("force_reset", r.Say("force_reset"), `Make the node as it was at first, whatever its cluster is.`, takes("runas"), ex("force_reset")),
			fn.Of("list_queues", r.ListQueues, `Return facts of the queues of the virtual host /.`, ex("list_queues messages consumers")),
			fn.Of("list_queues_vhost", r.ListQueuesVhost, `Return facts of the queues of a virtual host.`,
				ex("list_queues_vhost myvhost messages consumers")),
			fn.Of("list_policies", r.ListPolicies, `Return the policies of a virtual host, by its name and theirs.`, takes("vhost runas"),
				fn.Default("vhost", "/"), ex("list_policies")),
			fn.Of("set_policy", r.SetPolicy, `Set a policy.`, ex(`set_policy / HA '.*' '{"ha-mode":"all"}'`)),
			fn.Of("delete_policy", r.DeletePolicy, `Delete a policy.`, takes("vhost name runas"), ex("delete_policy / HA")),
			fn.Of("policy_exists", r.PolicyExists, `Say whether there is a policy.`, takes("vhost name runas"), ex("policy_exists / HA")),
			fn.Of("list_available_plugins", r.Plugins("list", "-m"), `Return the names of all plugins.`, takes("runas"), ex("list_available_plugins")),
			fn.Of("list_enabled_plugins", r.Plugins("list", "-m", "-e"), `Return the names of the plugins that are enabled.`, takes("runas"),
				ex("list_enabled_plugins")),
			fn.Of("plugin_is_enabled", r.PluginIsEnabled, `Say whether a plugin is enabled.`, takes("name runas"),
				ex("plugin_is_enabled rabbitmq_plugin_name")),
			fn.Of("enable_plugin", r.EnablePlugin, `Enable a plugin.`, takes("name runas"), ex("enable_plugin foo")),
			fn.Of("disable_plugin", r.DisablePlugin, `Disable a plugin.`, takes("name runas"), ex("disable_plugin foo")),
			fn.Of("set_upstream", r.SetUpstream, `Declare an upstream of a federation.`,
				ex("set_upstream upstream_name ack_mode=on-confirm max_hops=1 trust_user_id=True uri=amqp://hostname")),
			fn.Of("delete_upstream", r.DeleteUpstream, `Delete an upstream of a federation.`, takes("name runas"), ex("delete_upstream upstream_name")),
		}}
}
