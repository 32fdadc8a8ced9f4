package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/cli/frame"
	"brine/internal/cli/run"
	"brine/internal/daemons/config"
)

// recoveredConf is the file that replaces the voters after most masters were
// lost. Its name sorts after the other files of this program, so that it takes
// precedence.
const recoveredConf = "cluster.voters.conf"

// recoverLost lets the running master of this machine continue without the lost masters. It removes
// them from the cluster, and removes the voters from the configuration. code is the exit code if
// there is no error.
func recoverLost(ctx context.Context, env *frame.Env, o *options) (code int, err error) {
	path := config.Path(config.MasterKind, o.Resolve(env), env.Getenv)
	quiet := slog.New(slog.DiscardHandler)
	c, _, err := config.LoadMaster(path, quiet)
	if err != nil {
		return 0, err
	}
	if !c.Cluster.Isolated {
		return 0, salt.Errorf(salt.Invalid, "this master is not in a cluster without a shared directory")
	}
	line := []string{"-c", o.ConfigDir}
	if o.Out != "" {
		line = append(line, "--out", o.Out)
	}
	line = append(line, "cluster.recover")
	if o.Sure {
		line = append(line, "sure=True")
	}
	if code := run.Applet().Run(ctx, env, line); code != frame.ExitOK || !o.Sure || len(c.Cluster.Voters) == 0 {
		return code, nil
	}
	conf := filepath.Join(filepath.Dir(path), "master.d", recoveredConf)
	const text = "# Written by brine cluster recover: the former voters are lost. Name new ones here, the same on all masters,\n# when " +
		"there are three masters.\ncluster_voters: []\n"
	if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
		return 0, err
	}
	if err := atomicfile.Write(conf, []byte(text), 0o600, true); err != nil {
		return 0, err
	}
	now, _, err := config.LoadMaster(path, quiet)
	if err == nil && len(now.Cluster.Voters) > 0 {
		err = salt.Errorf(salt.Invalid, "%s has no effect: a configuration file that is read later sets cluster_voters; remove it there",
			conf)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(conf))
	}
	fmt.Fprintf(env.Stderr, "%s names no voters now: restart the master of this machine; it runs the tasks that run once until there are new voters.\n", conf)
	return frame.ExitOK, nil
}
