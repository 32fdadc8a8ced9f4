// Package cluster is the program `brine cluster`: it creates a cluster of
// masters without a shared directory, lets this machine join or leave it, and
// shows its state.
package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/term"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/cli/frame"
	"brine/internal/cli/run"
	"brine/internal/daemons/config"
	"brine/internal/daemons/master"
	"brine/internal/ha/cluster"
	"brine/internal/ha/cluster/witness"
	"brine/internal/net/crypt"
)

var command = frame.Command{
	Name: "cluster", Usage: "SUBCOMMAND [MASTER] [options]",
	Doc: "Creates a cluster of masters without a shared directory, lets the master of this machine join or leave it, and shows its state.",
	Subs: []frame.Sub{
		{Name: "init",
			Doc: "Creates a cluster with the master of this machine as first member. An existing key pair of it becomes the cluster's, so that its minions " +
				"are not affected. It writes master.d/cluster.conf; start or restart the master afterwards.",
			Example: "brine cluster init --id 10.0.0.1", Options: []string{"id", "name", "secret-file"}},
		{Name: "join", Args: "MASTER",
			Doc: "Makes the master of this machine join the cluster of a running member. It writes master.d/cluster.conf; start or restart the master " +
				"afterwards.",
			Example: "brine cluster join 10.0.0.1 --id 10.0.0.2 --fingerprint DIGITS",
			Options: []string{"id", "name", "secret-file", "secret", "fingerprint"}},
		{Name: "unshare",
			Doc: "Moves the master of this machine, which must be stopped, from a directory that it shares with others of its cluster to directories " +
				"of its own.",
			Example: "brine cluster unshare --pki-dir /etc/salt/pki/cluster", Options: []string{"pki-dir", "cache-dir"}},
		{Name: "leave", Doc: "Makes the running master of this machine hand over its data, leave and stop.", Example: "brine cluster leave"},
		{Name: "remove", Args: "MASTER",
			Doc:     "Removes a master that is gone for good, replaces the secrets that it knew, and shows the new secret for joining.",
			Example: "brine cluster remove 10.0.0.3", Options: []string{"keep-secret"}},
		{Name: "readmit", Args: "MASTER", Doc: "Lets the id of a removed master join again.", Example: "brine cluster readmit 10.0.0.3"},
		{Name: "recover",
			Doc: "Lets the running master of this machine continue when most masters are lost for good: it removes all unreachable ones, and has no " +
				"voters from its next start on.", Example: "brine cluster recover --sure", Options: []string{"sure"}},
		{Name: "drain", Args: "[MASTER]", Doc: "Makes minions that know all masters leave this one, or MASTER.", Example: "brine cluster drain"},
		{Name: "undrain", Args: "[MASTER]", Doc: "Reverts drain.", Example: "brine cluster undrain"},
		{Name: "rotate-secret",
			Doc: "Replaces the secret for joining on all members and witnesses, and shows it. It also replaces the AES key and the secret of " +
				"session keys.", Example: "brine cluster rotate-secret", Options: []string{"out"}},
		{Name: "rotate-key", Doc: "Replaces the key of the cluster, by which minions identify the masters. Brine minions accept the new one.",
			Example: "brine cluster rotate-key", Options: []string{"force", "out"}},
		{Name: "witness-secret", Doc: "Shows the secret of the cluster's witnesses, for cluster_witness_secret in their configuration.",
			Example: "brine cluster witness-secret", Options: []string{"out"}},
		{Name: "status", Doc: "Shows the state of each master and voter.", Example: "brine cluster status --out json", Options: []string{"out"}},
		{Name: "voters", Args: "[list | add ID | remove ID]",
			Doc: "Shows the state of the voters; adds a master or a running witness to them, or removes one. Removing one so that fewer than three, or no " +
				"reachable majority, would be left needs --force.",
			Example: "brine cluster voters add 10.0.0.4", Options: []string{"force", "out"}},
		{Name: "members", Doc: "Shows the members as seen by this one.", Example: "brine cluster members", Options: []string{"out"}},
		{Name: "check", Doc: "Compares the data of the members.", Example: "brine cluster check", Options: []string{"out"}},
	},
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "create, join, leave and show a cluster of masters", Run: execute}
}

type options struct {
	frame.Config
	ID          string `flag:"--id" arg:"ADDRESS" doc:"With init and join: address or name of this master, to which the other masters connect."`
	Name        string `flag:"--name" arg:"NAME" default:"main" doc:"With init and join: name of the cluster, cluster_id. Default: %default."`
	SecretFile  string `flag:"--secret-file" arg:"FILE" doc:"With join: file with the cluster_secret that init has shown; - is standard input. With init: file with the secret of the new cluster. Default: the environment variable BRINE_CLUSTER_SECRET; else join reads it from standard input, and init creates one."`
	Secret      string `flag:"--secret" arg:"SECRET" doc:"With join: the secret itself. Other users of this machine can see it in the list of processes: prefer --secret-file."`
	Fingerprint string `flag:"--fingerprint" arg:"DIGITS" doc:"With join: the fingerprint of the cluster, which init has shown. Without it, the member is authenticated by the secret only."`
	PKIDir      string `flag:"--pki-dir" arg:"DIR" doc:"With unshare: directory for the keys of the cluster and of minions. Default: cluster, in pki_dir."`
	CacheDir    string `flag:"--cache-dir" arg:"DIR" doc:"With unshare: directory for jobs and data of minions. Default: cachedir with the suffix -own."`
	KeepSecret  bool   `flag:"--keep-secret" doc:"With remove: keep the secret for joining, and tokens: the machine will be repaired and come back."`
	Force       bool   `flag:"--force" doc:"With rotate-key: even if stock minions are connected, which do not accept the new key by themselves. With voters remove: even if fewer than three voters, or no reachable majority, are left."`
	Sure        bool   `flag:"--sure" doc:"With recover: remove them. Without it, only show what would be done."`
	Out         string `flag:"--out --output" arg:"NAME" doc:"With rotate-secret, rotate-key, witness-secret, status, voters, members and check: output format, as for salt-run."`
}

// words are the subcommands.
const words = "init, join, unshare, leave, remove, readmit, recover, drain, undrain, rotate-secret, status, voters, members and check"

func execute(ctx context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	if len(inv.Args) == 0 {
		return command.Fail(env, "subcommand missing: "+words)
	}
	what, names := inv.Args[0], inv.Args[1:]
	if text := misused(inv, what, names); text != "" {
		return command.Fail(env, text)
	}
	if what == "unshare" {
		if err := unshare(ctx, env, o); err != nil {
			return failed(env, err)
		}
		return frame.ExitOK
	}
	if what == "witness-secret" {
		return showWitnessSecret(env, o)
	}
	if what == "recover" {
		code, err := recoverLost(ctx, env, o)
		if err != nil {
			return failed(env, err)
		}
		return code
	}
	if what != "init" && what != "join" {
		line := []string{"-c", o.ConfigDir}
		out := o.Out
		if what == "voters" && len(names) > 0 && names[0] != "list" {
			what, names = names[0]+"-voter", names[1:]
		} else if what == "voters" {
			names = nil
		}
		if out == "" && (what == "status" || what == "voters") {
			out = "table"
		}
		if out != "" {
			line = append(line, "--out", out)
		}
		line = slices.Clip(line)
		call := append(append(line, "cluster."+strings.ReplaceAll(what, "-", "_")), names...)
		if o.KeepSecret {
			call = append(call, "keep_secret=True")
		}
		if o.Force {
			call = append(call, "force=True")
		}
		code := run.Applet().Run(ctx, env, call)
		if shows := what == "rotate-secret" || what == "remove" && !o.KeepSecret && isolated(env, o); shows && out == "" && code == frame.ExitOK {
			return showSecret(env, o)
		}
		if what == "status" && o.Out == "" && hasVoters(env, o) {
			if of := run.Applet().Run(ctx, env, append(line, "cluster.voters")); code == frame.ExitOK {
				code = of
			}
		}
		return code
	}
	if o.ID == "" || salt.CheckID(o.ID) != nil {
		return command.Fail(env, what+" needs --id: the address or name of this master, to which the others connect")
	}
	m, err := open(env, o)
	if err == nil && what == "init" {
		err = m.found()
	} else if err == nil {
		err = m.join(names[0])
	}
	if err != nil {
		return failed(env, err)
	}
	return frame.ExitOK
}

// misused returns an error message for the arguments and options of a
// subcommand, or "". An option that the subcommand does not use is an error:
// `leave --id OTHER` would make this master leave.
func misused(inv *frame.Invocation, what string, names []string) string {
	type use struct {
		least, most int    // number of masters
		options     string // besides -c
	}
	n, known := map[string]use{
		"init": {0, 0, "id name secret_file"}, "join": {1, 1, "id name secret secret_file fingerprint"}, "unshare": {0, 0, "pki_dir cache_dir"},
		"leave":  {0, 0, "out"},
		"remove": {1, 1, "keep_secret out"}, "readmit": {1, 1, "out"}, "recover": {0, 0, "sure out"}, "drain": {0, 1, "out"}, "undrain": {0, 1, "out"},
		"rotate-secret": {0, 0, "out"}, "rotate-key": {0, 0, "force out"}, "witness-secret": {0, 0, ""},
		"status": {0, 0, "out"}, "voters": {0, 2, "force out"}, "members": {0, 0, "out"}, "check": {0, 0, "out"},
	}[what]
	switch {
	case !known:
		return "there is no " + what + "; there are " + words
	case what == "voters":
		return misusedVoters(inv, names)
	case len(names) > n.most && n.most == 0:
		return what + " takes no arguments"
	case len(names) < n.least || len(names) > n.most:
		return what + " takes the id of a master"
	}
	return misusedOptions(inv, what, n.options)
}

// misusedOptions returns an error message for options that a subcommand does not use, or "".
func misusedOptions(inv *frame.Invocation, what, options string) string {
	used := strings.Fields(options)
	for _, o := range []string{"id", "name", "secret", "secret_file", "fingerprint", "pki_dir", "cache_dir", "sure", "keep_secret", "force", "out"} {
		if inv.Given(o) && !slices.Contains(used, o) {
			return what + " does not use the option --" + strings.ReplaceAll(o, "_", "-")
		}
	}
	return ""
}

// misusedVoters is misused for the subcommand voters.
func misusedVoters(inv *frame.Invocation, names []string) string {
	verb := "list"
	if len(names) > 0 {
		verb = names[0]
	}
	switch {
	case verb != "list" && verb != "add" && verb != "remove":
		return "voters takes list, add ID or remove ID"
	case verb == "list" && len(names) > 1:
		return "voters list takes no arguments"
	case verb != "list" && len(names) != 2:
		return "voters " + verb + " takes the id of a master or witness"
	case verb != "remove" && inv.Given("force"):
		return "voters " + verb + " does not use the option --force"
	}
	return misusedOptions(inv, "voters "+verb, "force out")
}

func failed(env *frame.Env, err error) int {
	env.Errorf("cluster: %v", err)
	if salt.KindOf(err) == salt.Unavailable {
		return frame.ExitUnavailable
	}
	return frame.ExitFailure
}

// isolated reports whether the configured master is in a cluster without a shared directory.
func isolated(env *frame.Env, o *options) bool {
	c, _, err := config.LoadMaster(config.Path(config.MasterKind, o.Resolve(env), env.Getenv), slog.New(slog.DiscardHandler))
	return err == nil && c.Cluster.Isolated
}

// hasVoters reports whether the configuration names voters.
func hasVoters(env *frame.Env, o *options) bool {
	c, _, err := config.LoadMaster(config.Path(config.MasterKind, o.Resolve(env), env.Getenv), slog.New(slog.DiscardHandler))
	return err == nil && c.Cluster.Isolated && len(c.Cluster.Voters) > 0
}

// currentSecret returns the configuration of the master of this machine and the
// secret for joining its cluster.
func currentSecret(env *frame.Env, o *options) (c *config.Master, secret string, err error) {
	c, _, err = config.LoadMaster(config.Path(config.MasterKind, o.Resolve(env), env.Getenv), slog.New(slog.DiscardHandler))
	if err == nil && !c.Cluster.Isolated {
		err = salt.Errorf(salt.Invalid, "this master is not in a cluster without a shared directory")
	}
	if err == nil {
		secret, err = cluster.CurrentSecret(c.Cluster.PKIDir, c.Cluster.Secret)
	}
	return c, secret, err
}

// showWitnessSecret prints the secret of witnesses.
func showWitnessSecret(env *frame.Env, o *options) int {
	_, secret, err := currentSecret(env, o)
	if err != nil {
		return failed(env, err)
	}
	fmt.Fprintf(env.Stdout, "cluster_witness_secret: %s\n", witness.Secret(secret))
	return frame.ExitOK
}

// showSecret prints how masters join at present.
func showSecret(env *frame.Env, o *options) int {
	c, secret, err := currentSecret(env, o)
	if err != nil {
		env.Errorf("cluster: %v", err)
		return frame.ExitFailure
	}
	fmt.Fprintf(env.Stdout, "\nMasters join with:\n\n    brine cluster join %s --id ITS-ADDRESS --name %s\n\n%s", c.Files.ID, c.Cluster.ID, asksFor(secret))
	return frame.ExitOK
}

// machine is the master configured on this machine.
type machine struct {
	env  *frame.Env
	o    *options
	conf string // the file to write
	pki  string
	// cache is cachedir.
	cache string
	port  int
	bits  int
	pass  string // passphrase of master.pem
	// clusterPass is the passphrase of cluster.pem.
	clusterPass string
}

func open(env *frame.Env, o *options) (*machine, error) {
	path := config.Path(config.MasterKind, o.Resolve(env), env.Getenv)
	m := &machine{env: env, o: o, conf: filepath.Join(filepath.Dir(path), "master.d", "cluster.conf")}
	c, _, err := config.LoadMaster(path, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if c.Cluster.On() {
		return nil, salt.Errorf(salt.Exists, "this master is configured for the cluster %s already", c.Cluster.ID)
	}
	if _, err := os.Lstat(m.conf); err == nil {
		return nil, salt.Errorf(salt.Exists, "%s exists already", m.conf)
	}
	m.pki, m.port, m.bits, m.pass = c.Files.PKIDir, c.Cluster.Port, c.Options.Keysize, c.Options.KeyPass
	m.clusterPass, m.cache = c.Cluster.KeyPass, c.Files.CacheDir
	if _, err := os.Lstat(filepath.Join(m.pki, cluster.KeyFile)); err == nil {
		return nil, salt.Errorf(salt.Exists, "%s contains the keys of a cluster already", m.pki)
	}
	return m, os.MkdirAll(m.pki, 0o700)
}

// found creates the keys of a cluster, from the master's own key pair if there
// is one, because minions know it.
func (m *machine) found() error {
	own, err := crypt.LoadPrivate(filepath.Join(m.pki, "master.pem"), m.pass)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if own, err = crypt.GenerateKey(m.bits); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if err := crypt.WriteKeyPair(m.pki, strings.TrimSuffix(cluster.KeyFile, ".pem"), own, m.clusterPass); err != nil {
		return err
	}
	if err := m.putAside(); err != nil {
		return err
	}
	secret, err := m.newSecret()
	if err != nil {
		return err
	}
	if err := m.write(secret, "", ""); err != nil {
		return err
	}
	pub, err := os.ReadFile(filepath.Join(m.pki, cluster.PublicFile))
	if err != nil {
		return err
	}
	name := ""
	if m.o.Name != "main" {
		name = " --name " + m.o.Name
	}
	fmt.Fprintf(m.env.Stdout, "Created the cluster %s; its options are in %s. Start or restart the master of this machine. "+
		"Then run on each other machine:\n\n    "+
		"brine cluster join %s --id ITS-ADDRESS --fingerprint %x%s\n\n%s",
		m.o.Name, m.conf, m.o.ID, sha256.Sum256(pub), name, asksFor(secret))
	return nil
}

// asksFor explains how join gets the secret.
func asksFor(secret string) string {
	return "It asks for the secret, or takes it from --secret-file FILE or the variable BRINE_CLUSTER_SECRET:\n\n    " + secret + "\n"
}

// secretVariable is the environment variable that may contain the secret.
const secretVariable = "BRINE_CLUSTER_SECRET"

// newSecret returns the secret of a new cluster: the given one, or a random
// one.
func (m *machine) newSecret() (string, error) {
	if m.o.SecretFile == "" && m.env.Getenv(secretVariable) == "" {
		var b [16]byte
		rand.Read(b[:])
		return hex.EncodeToString(b[:]), nil
	}
	return m.givenSecret()
}

// maxSecret bounds the size of a secret in bytes.
const maxSecret = 4096

// givenSecret reads the secret from the user. It should not be an argument:
// arguments are visible to all users of the machine.
func (m *machine) givenSecret() (string, error) {
	var b []byte
	var err error
	from := m.o.SecretFile
	terminal, _ := m.env.Stdin.(*os.File)
	switch {
	case m.o.Secret != "":
		m.env.Errorf("cluster: --secret shows the secret to all users of this machine; use --secret-file, the variable %s or standard input", secretVariable)
		return m.o.Secret, nil
	case from != "" && from != "-":
		b, err = os.ReadFile(from)
	case from == "" && m.env.Getenv(secretVariable) != "":
		b = []byte(m.env.Getenv(secretVariable))
	case terminal != nil && m.env.IsTerminal(terminal):
		fmt.Fprint(m.env.Stderr, "Secret of the cluster: ")
		b, err = term.ReadPassword(int(terminal.Fd()))
		fmt.Fprintln(m.env.Stderr)
	default:
		from = "standard input"
		b, err = io.ReadAll(io.LimitReader(m.env.Stdin, maxSecret+1))
	}
	secret := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return "", salt.Errorf(salt.Unavailable, "cannot read the secret of the cluster from %s: %w", from, err)
	case secret == "":
		return "", salt.Errorf(salt.Invalid, "the secret of the cluster is missing: name a file with --secret-file, set %s, or write it to standard input",
			secretVariable)
	case len(secret) > maxSecret || strings.ContainsAny(secret, "\n\r"):
		return "", salt.Errorf(salt.Invalid, "the secret of the cluster must be one line of at most %d bytes", maxSecret)
	}
	return secret, nil
}

// putAside renames the master's key pair, so that the master creates a new one when it starts. The
// old pair is now the cluster's, or is no longer used for minions.
func (m *machine) putAside() error {
	for _, f := range []string{"master.pem", "master.pub"} {
		path := filepath.Join(m.pki, f)
		if err := os.Rename(path, path+".before-cluster"); err != nil && !errors.Is(err, fs.ErrNotExist) { // rename: moves a file aside
			return salt.Errorf(salt.Unavailable, "cannot move the old key pair of this master: %w", err)
		}
	}
	return nil
}

func (m *machine) join(member string) error {
	secret, err := m.givenSecret()
	if err != nil {
		return err
	}
	own, err := crypt.GenerateKey(m.bits)
	if err != nil {
		return err
	}
	cfg := &cluster.Config{ID: m.o.ID, Own: own, OwnPub: own.Public().PEM(), Options: cluster.Options{
		ID: m.o.Name, Port: m.port, Peers: []string{member}, PKIDir: m.pki, Isolated: true, Secret: secret, Fingerprint: m.o.Fingerprint,
		KeyPass: m.clusterPass,
	}}
	cfg.Joins = func() error {
		return master.PutAside(m.cache, m.o.ID, m.pki, slog.New(slog.NewTextHandler(m.env.Stderr, nil)))
	}
	if err := cfg.Options.Check(m.o.ID, true, "0.0.0.0"); err != nil {
		return err
	}
	if err := cluster.Join(cfg, member); err != nil {
		if salt.KindOf(err) != salt.Denied {
			err = salt.Errorf(salt.Unavailable, "%w", err)
		}
		return fmt.Errorf("cannot join the cluster at %s: %w", member, err)
	}
	if err := m.putAside(); err != nil {
		return err
	}
	if err := crypt.WriteKeyPair(m.pki, "master", own, m.pass); err != nil {
		return err
	}
	if err := m.write(secret, member, m.o.Fingerprint); err != nil {
		return err
	}
	fmt.Fprintf(m.env.Stdout, "This machine has joined the cluster %s; its options are in %s. Start or restart its master.\n", m.o.Name, m.conf)
	return nil
}

// write writes the file with the options.
func (m *machine) write(secret, peer, fingerprint string) error {
	text := fmt.Sprintf("# Written by brine cluster. Keep its secrets to the masters of this cluster.\nid: %s\ncluster_id: %s\n"+
		"cluster_isolated_filesystem: True\ncluster_secret: %s\ncluster_pki_dir: %s\n",
		m.o.ID, m.o.Name, secret, m.pki)
	if peer != "" {
		text += "cluster_peers: [" + peer + "]\n"
	}
	if fingerprint != "" {
		text += "cluster_pub_fingerprint: " + fingerprint + "\n"
	}
	if err := os.MkdirAll(filepath.Dir(m.conf), 0o755); err != nil {
		return err
	}
	return atomicfile.Create(m.conf, []byte(text), 0o600)
}
