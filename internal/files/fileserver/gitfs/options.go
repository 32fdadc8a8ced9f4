package gitfs

import (
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Options are Salt's options of gitfs. All but the first one and the locks are
// defaults for remotes.
type Options struct {
	Remotes  any    `salt:"gitfs_remotes" default:"[]" doc:"git repositories whose branches and tags are environments: a list of addresses, or of maps of an address to its parameters" change:"live"`
	Base     string `salt:"gitfs_base" default:"master" doc:"branch, tag or commit that is the environment base" change:"live"`
	Root     string `salt:"gitfs_root" default:"" doc:"directory of the repository that is served; empty: all of it" change:"live"`
	Mount    string `salt:"gitfs_mountpoint" default:"" doc:"directory that the files appear below, such as salt://web" change:"live"`
	Fallback string `salt:"gitfs_fallback" default:"" doc:"branch or tag for environments that there is none of in a repository" change:"live"`
	Saltenv  any    `salt:"gitfs_saltenv" default:"[]" doc:"environments whose ref, root or mountpoint is another" change:"live"`

	Whitelist []string `salt:"gitfs_saltenv_whitelist" default:"[]" doc:"environments that are served, by name, pattern or regular expression; none means all" change:"live" list:"comma"`
	Blacklist []string `salt:"gitfs_saltenv_blacklist" default:"[]" doc:"environments that are not served" change:"live" list:"comma"`
	RefTypes  []string `salt:"gitfs_ref_types" default:"[branch, tag, sha]" doc:"what can be an environment, in the order of precedence: branch, tag, sha" change:"live" list:"comma"`
	NoMapping bool     `salt:"gitfs_disable_saltenv_mapping" default:"false" doc:"serve only base and the environments of gitfs_saltenv" change:"live"`

	Refspecs []string      `salt:"gitfs_refspecs" default:"[+refs/heads/*:refs/remotes/origin/*, +refs/tags/*:refs/tags/*]" doc:"what is fetched, and where to" change:"live" list:"comma"`
	Interval time.Duration `salt:"gitfs_update_interval" default:"60" doc:"seconds between fetches" change:"live"`

	User         string `salt:"gitfs_user" default:"" doc:"user for http and https" change:"live"`
	Password     string `salt:"gitfs_password" default:"" doc:"password or token of this user" change:"live"`
	InsecureAuth bool   `salt:"gitfs_insecure_auth" default:"false" doc:"send the password without encryption, over http" change:"live"`
	PubKey       string `salt:"gitfs_pubkey" default:"" doc:"file of the public key for ssh; it need not be given" change:"live"`
	PrivKey      string `salt:"gitfs_privkey" default:"" doc:"file of the private key for ssh" change:"live"`
	Passphrase   string `salt:"gitfs_passphrase" default:"" doc:"passphrase of the private key" change:"live"`
	SSLVerify    bool   `salt:"gitfs_ssl_verify" default:"true" doc:"refuse https servers whose certificate is not known" change:"live"`

	GlobalLock bool `salt:"gitfs_global_lock" default:"true" doc:"honour locks whose process is not on this machine, for masters that share a cachedir; a dead owner's lock ends by itself" change:"live"`

	Provider string `salt:"gitfs_provider" default:"" doc:"pygit2 or gitpython, which both mean the git program here" change:"live"`
}

// all returns the options by the names of the parameters of a remote.
func (o Options) all() map[string]any {
	return map[string]any{
		"base": o.Base, "root": o.Root, "mountpoint": o.Mount, "fallback": o.Fallback, "saltenv_whitelist": o.Whitelist, "saltenv_blacklist": o.Blacklist,
		"ref_types": o.RefTypes, "disable_saltenv_mapping": o.NoMapping, "refspecs": o.Refspecs, "update_interval": o.Interval, "user": o.User,
		"password":      o.Password,
		"insecure_auth": o.InsecureAuth, "pubkey": o.PubKey, "privkey": o.PrivKey, "passphrase": o.Passphrase, "ssl_verify": o.SSLVerify,
	}
}

// parameters returns the names of the parameters of a remote.
func parameters() []string {
	return []string{
		"base", "fallback", "mountpoint", "root", "ssl_verify", "saltenv_whitelist", "saltenv_blacklist", "refspecs", "disable_saltenv_mapping", "ref_types",
		"update_interval",
		"user", "password", "pubkey", "privkey", "passphrase", "insecure_auth", "all_saltenvs", "name", "saltenv",
	}
}

// entries returns the list of remotes.
func (o Options) entries() ([]any, error) {
	switch x := o.Remotes.(type) {
	case nil:
		return nil, nil
	case *value.List:
		return x.Items, nil
	}
	return nil, salt.Errorf(salt.Invalid, "gitfs_remotes is a %s, not a list", value.TypeName(o.Remotes))
}
