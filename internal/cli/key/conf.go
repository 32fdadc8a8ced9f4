package key

import (
	"log/slog"
	"reflect"

	"brine/internal/base/field"
	"brine/internal/daemons/config"
)

// Options are the options of the master's configuration for keys only, besides those of config.Master.
type Options struct {
	HashType      string `salt:"hash_type" default:"sha256" doc:"hash used for fingerprints"`
	KeySize       int    `salt:"keysize" default:"2048" doc:"size in bits of generated keys"`
	SignKeyName   string `salt:"master_sign_key_name" default:"master_sign" doc:"base name of the signing key pair in pki_dir"`
	Signature     string `salt:"master_pubkey_signature" default:"master_pubkey_signature" doc:"file in pki_dir with the signature of the master's public key"`
	SigningPass   string `salt:"signing_key_pass" default:"" doc:"passphrase of the signing key"`
	RotateAES     bool   `salt:"rotate_aes_key" default:"true" doc:"replace the AES key when a minion's key is deleted or rejected"`
	KeepCache     bool   `salt:"preserve_minion_cache" default:"false" doc:"keep the cached data of minions whose keys are deleted"`
	ClusterID     string `salt:"cluster_id" default:"" doc:"name of the cluster that the master belongs to"`
	ClusterPKIDir string `salt:"cluster_pki_dir" default:"" doc:"directory of the keys shared by a cluster"`
}

// conf is the master's configuration as needed by salt-key, with the options of the command line
// applied.
type conf struct {
	*config.Master
	Options
	logFile  string // the user of salt-key, "" if not configured
	preserve bool   // keep the cached data of deleted minions
}

// loadConf reads the master's configuration. Warnings about it are left to the daemon.
func loadConf(path string, o *options) (*conf, error) {
	quiet := slog.New(slog.DiscardHandler)
	tree, err := config.Load(path, config.MasterKind, quiet)
	if err != nil {
		return nil, err
	}
	machine := config.ThisMachine()
	if !o.needsID() {
		machine.FullName = func(name string) string { return name } // no DNS lookup
	}
	c := &conf{}
	if c.Master, err = config.NewMaster(tree, machine, quiet); err != nil {
		return nil, err
	}
	if err := c.Options.fill(tree); err != nil {
		return nil, err
	}
	if _, set := tree.Origin("key_logfile"); set {
		c.logFile = c.Files.KeyLogFile
	}
	if o.Rotate != nil {
		c.RotateAES = *o.Rotate
	}
	if o.KeySize != nil {
		c.KeySize = *o.KeySize
	}
	if o.User.User != "" {
		c.Files.User = o.User.User
	}
	c.preserve = c.KeepCache || o.Preserve != nil && *o.Preserve
	return c, nil
}

// fill decodes the options from the tree, which was validated before.
func (o *Options) fill(tree *config.Tree) error {
	if err := field.Defaults(o); err != nil {
		return err
	}
	st := reflect.ValueOf(o).Elem()
	fields, err := field.Of(st.Type())
	if err != nil {
		return err
	}
	for _, f := range fields {
		v, ok := tree.Values.Get(f.Name)
		if !ok || v == nil {
			continue
		}
		if err := f.Set(st, v); err != nil {
			from, _ := tree.Origin(f.Name)
			return &config.Fault{Origin: from, Key: f.Name, Err: err}
		}
	}
	return nil
}

// needsID reports whether the options may lead to a request for a new session key, which contains
// the master's id.
func (o *options) needsID() bool {
	return o.Delete != "" || o.DeleteAll || o.Reject != "" || o.RejectAll
}

// keyDir returns the key directory, which a cluster shares.
func (c *conf) keyDir() string {
	if c.ClusterID != "" && c.ClusterPKIDir != "" {
		return c.ClusterPKIDir
	}
	return c.Files.PKIDir
}
